//! What is asked, and the memory traffic that comes out.

use super::machines::Model;
use super::mix::{Frames, Mix};
use super::orders::{Kind, Order, UnderWay};
use super::parameters::{Parameters, QUEUED};
use super::pool_touches::RecordedPools;
use super::replay::{self, Setup};
use super::touches::Touches;
use crate::cable;
use crate::cache_model::LINE_BYTES;
use crate::error::LabError;
use serde::Serialize;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use warmlane_mem::PoolKind;

/// Buffers of a pool: more than the 20,000 that the paper once saw under way.
pub const BUFFERS: u32 = 32_767;

/// What a stack and a ring are compared by, by name; `hot_set` is a depot's, or it is planned.
///
/// # Errors
/// [`LabError::Unknown`].
pub fn pools(
    names: &[String],
    lane_cache: u32,
    hot_set: Option<u32>,
) -> Result<Vec<(String, Kind)>, LabError> {
    const KNOWN: &str = "ring, stack, depot, dpdk-ring, dpdk-stack";
    let kind = |name: &str| match name {
        "ring" => Ok(Kind::Ours(PoolKind::Ring, lane_cache, 0)),
        "stack" => Ok(Kind::Ours(PoolKind::Stack, 0, 0)),
        "depot" => Ok(Kind::Ours(PoolKind::Depot, lane_cache, hot_set.unwrap_or(0))),
        "dpdk-ring" => Ok(Kind::Dpdk("ring_mp_mc", lane_cache)),
        "dpdk-stack" => Ok(Kind::Dpdk("stack", 0)),
        _ => Err(LabError::Unknown { kind: "pool", name: name.to_owned(), known: KNOWN.to_owned() }),
    };
    let usual = if crate::peer::file("pool_order").is_ok() {
        ["dpdk-ring", "dpdk-stack", "depot"]
    } else {
        ["ring", "stack", "depot"]
    };
    let usual = usual.map(str::to_owned);
    let names = if names.is_empty() { &usual[..] } else { names };
    names.iter().map(|name| Ok((name.clone(), kind(name)?))).collect()
}

/// Bytes that a frame of 1,520 bytes touches in its buffer: header, encapsulation and data, in whole lines.
const BUFFER_BYTES: u64 = 26 * LINE_BYTES;

/// Magazines of each pool that go round at most: two with each lane, the hot set's one, and the two that it may have more.
const CIRCULATING: u64 = 7;

/// What is received and what is sent have one each.
const POOLS: u64 = 2;

/// Of an instance's share of the caches, buffers may have this part.
const PART_OF_SHARE: u64 = 8;

/// With smaller magazines a lane comes to the depot with each burst.
const SMALLEST_MAGAZINE: u32 = 32;

/// The rate at which [`Parameters::under_way`] holds.
const BASE_GBPS: f64 = 5.0;

/// What is asked.
#[derive(Clone, Debug)]
pub struct Question {
    /// For which machine.
    pub model: Model,
    /// Which pools, with their names: a ring first, then a stack.
    pub pools: Vec<(String, Kind)>,
    /// Buffers in a pool.
    pub buffers: u32,
    /// Frames that each instance is counted for.
    pub frames: usize,
    /// How many times they are, each with other pages of memory.
    pub placements: u64,
    /// Their lengths.
    pub mix: Mix,
    /// What the paper doesn't say.
    pub parameters: Parameters,
}

/// Orders that were asked for: of which pool, with how many buffers where, packets for a thousand frames, and frames.
type Orders = HashMap<(String, UnderWay, usize, usize), Order>;

/// A rate, CRC or not, and how many instances.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Gbit/s of each instance.
    pub gbps: f64,
    /// Whether frames get CRCs.
    pub crc: bool,
    /// Side by side.
    pub instances: usize,
}

/// Memory traffic of all instances together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Bandwidth {
    /// GB/s read.
    pub read: f64,
    /// GB/s written.
    pub written: f64,
    /// Lines for each frame, both ways.
    pub lines: f64,
}

impl Bandwidth {
    /// GB/s both ways.
    pub fn both(self) -> f64 {
        self.read + self.written
    }
}

impl Load {
    fn under_way(self, parameters: &Parameters) -> UnderWay {
        let at_base = UnderWay::of(parameters.under_way, QUEUED);
        #[expect(clippy::cast_sign_loss, reason = "no rate is negative")]
        let queued = (QUEUED as f64 * self.gbps / BASE_GBPS).round().max(1.0) as usize;
        UnderWay { queued, ..at_base }
    }
}

impl Question {
    /// A depot whose hot set nobody has chosen gets one that fits an instance's share of the caches.
    pub(super) fn planned(&self, kind: Kind, instances: usize) -> Kind {
        match kind {
            Kind::Ours(PoolKind::Depot, magazine, 0) => {
                let (magazine, hot) = self.hot_set(magazine, instances);
                Kind::Ours(PoolKind::Depot, magazine, hot)
            }
            other => other,
        }
    }

    /// How many whole buffers an instance's share of the caches holds, its own second level included.
    pub fn share(&self, instances: usize) -> u64 {
        let Model { second, shared, .. } = &self.model;
        let ways = u64::from(self.parameters.ways.min(shared.ways));
        let shared = (shared.kib << 10) * ways / u64::from(shared.ways) / instances.max(1) as u64;
        (shared + (second.kib << 10)) / BUFFER_BYTES
    }

    /// Magazine and hot set of a depot with so many instances side by side: the largest magazine, up to this, with which what
    /// is under way and what the depot keeps going round need an eighth of the instance's share. If none does, none: then a depot is a stack
    /// without a lock, and nothing goes round but what is under way. Whatever goes round besides costs lines long before the share is full, since
    /// others' lines and the card's push it out: with magazines of 32 a frame of 12 instances costs half as many lines again as
    /// with none (docs/memory-traffic.md).
    pub fn hot_set(&self, magazine: u32, instances: usize) -> (u32, u32) {
        let share = self.share(instances);
        let under_way = self.parameters.under_way as u64;
        let sizes = std::iter::successors(Some(magazine), |size| Some(size / 2));
        let fits = |size: &u32| PART_OF_SHARE * (under_way + POOLS * CIRCULATING * u64::from(*size)) <= share;
        let size = sizes.take_while(|size| *size >= SMALLEST_MAGAZINE).find(fits).unwrap_or(0);
        (size, size)
    }

    /// Frames a second of an instance.
    pub(super) fn frames_per_second(&self, gbps: f64) -> f64 {
        gbps * 1e9 / 8.0 / self.mix.mean()
    }

    /// Figures with the pools' names.
    pub fn named(&self, figures: Vec<Bandwidth>) -> Vec<(String, Bandwidth)> {
        self.pools.iter().map(|(name, _)| name.clone()).zip(figures).collect()
    }

    /// What else is to be known of these numbers of instances.
    pub fn notes(&self, instances: &[usize]) -> Vec<String> {
        let recorded = RecordedPools::recorded().unwrap_or_default();
        let own = |(name, kind): &(String, Kind)| {
            let Kind::Dpdk(operations, cache) = kind else { return None };
            let touches = recorded.find(operations, *cache)?;
            let walk = if kind.is_ring() { ", but for the walk along its array" } else { "" };
            Some(format!(
                "Not replayed{walk}: {:.2} lines a frame that {name} touches of its own besides {} hot ones, as recorded from DPDK's code.",
                touches.touched, touches.hot
            ))
        };
        let mut notes: Vec<String> = self.pools.iter().filter_map(own).collect();
        let is_planned = |(_, kind): &(String, Kind)| matches!(kind, Kind::Ours(PoolKind::Depot, _, 0));
        let Some((_, Kind::Ours(_, magazine, _))) = self.pools.iter().find(|pool| is_planned(pool)) else {
            return notes;
        };
        let note = |&instances: &usize| {
            let (size, _) = self.hot_set(*magazine, instances);
            let chosen = match size {
                0 => "no magazines (the order of a stack)".to_owned(),
                size => format!("magazines and a hot set of {size} buffers"),
            };
            format!(
                "Depot where {instances} share the caches: {chosen}, since an instance's share of the caches holds {} buffers and {} are under way.",
                self.share(instances),
                self.parameters.under_way
            )
        };
        notes.extend(instances.iter().map(note));
        notes
    }

    /// What can't be asked.
    ///
    /// # Errors
    /// [`LabError::Setup`], if there are more instances than cores, or no load.
    pub fn check(&self, load: Load) -> Result<(), LabError> {
        let Load { gbps, instances, .. } = load;
        if !(gbps > 0.0 && gbps <= 400.0) {
            return Err(LabError::setup(format!(
                "{gbps} Gbit/s an instance: more than 0 and at most 400 are possible"
            )));
        }
        if instances == 0 || instances > self.model.cores {
            return Err(LabError::setup(format!(
                "{instances} instances: {} has {} cores that share a last level, and each instance needs one",
                self.model.name, self.model.cores
            )));
        }
        if self.frames < 64 {
            return Err(LabError::setup(format!(
                "{} frames: 64 are the least that say anything",
                self.frames
            )));
        }
        Ok(())
    }

    /// The traffic of each pool under each load, in the order of `loads`.
    ///
    /// # Errors
    /// [`LabError`].
    pub fn traffic(
        &self,
        loads: &[Load],
        touches: &Touches,
        progress: &(dyn Fn(&str) + Sync),
    ) -> Result<Vec<Vec<Bandwidth>>, LabError> {
        let mut jobs = Vec::new();
        for (load, pool) in loads.iter().flat_map(|load| (0..self.pools.len()).map(move |pool| (*load, pool)))
        {
            self.check(load)?;
            jobs.push((load, pool));
        }
        let orders = Mutex::new(Orders::new());
        let next = AtomicUsize::new(0);
        let results = Mutex::new((0..jobs.len()).map(|_| None).collect::<Vec<_>>());
        let work = || {
            loop {
                let job = next.fetch_add(1, Ordering::Relaxed);
                let Some((load, pool)) = jobs.get(job) else { return };
                progress(&format!("{} of {}", job + 1, jobs.len()));
                let result = self.one(*load, *pool, touches, &orders);
                results.lock().unwrap_or_else(std::sync::PoisonError::into_inner)[job] = Some(result);
            }
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            for _ in 0..threads.min(jobs.len()) {
                scope.spawn(work);
            }
        });
        let results = results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        let all = results
            .into_iter()
            .map(|result| {
                result.unwrap_or_else(|| Err(LabError::setup("a replay has ended before its time")))
            })
            .collect::<Result<Vec<_>, _>>()?;
        Ok(all.chunks(self.pools.len().max(1)).map(<[Bandwidth]>::to_vec).collect())
    }

    fn one(
        &self,
        load: Load,
        pool: usize,
        touches: &Touches,
        orders: &Mutex<Orders>,
    ) -> Result<Bandwidth, LabError> {
        let (setup, frames_of) = self.setup(load, touches)?;
        let kind = self.planned(self.pools[pool].1, load.instances);
        let setup = Setup { ring: kind.is_ring().then_some(self.buffers), ..setup };
        let frames = replay::frames(&self.model, &setup);
        let key = (format!("{kind:?}"), setup.under_way, setup.per_thousand, frames);
        let known = orders.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get(&key).cloned();
        let order = if let Some(order) = known {
            order
        } else {
            let order = kind.order(&self.model, self.buffers, setup.under_way, frames, setup.per_thousand)?;
            orders.lock().unwrap_or_else(std::sync::PoisonError::into_inner).insert(key, order.clone());
            order
        };
        let (mut reads, mut writes) = (0.0, 0.0);
        for placement in 0..self.placements {
            let setup = Setup { placement, ..setup };
            let cost = replay::run(&self.model, &setup, &order, &frames_of).map_err(LabError::setup)?;
            reads += cost.reads / self.placements as f64;
            writes += cost.writes / self.placements as f64;
        }
        let gbs = self.frames_per_second(load.gbps) * load.instances as f64 * LINE_BYTES as f64 / 1e9;
        Ok(Bandwidth { read: reads * gbs, written: writes * gbs, lines: reads + writes })
    }

    /// What a load is to the replay, and what its frames touch.
    pub(crate) fn setup<'a>(
        &'a self,
        load: Load,
        touches: &'a Touches,
    ) -> Result<(Setup, Frames<'a>), LabError> {
        let frames = Frames::new(touches.frames(load.crc).map_err(LabError::setup)?, &self.mix);
        let setup = Setup {
            instances: load.instances,
            ways: self.parameters.ways,
            under_way: load.under_way(&self.parameters),
            cold_lines: self.parameters.cold_lines,
            per_thousand: frames.packets_per_thousand(),
            frames: self.frames,
            modems: cable::MODEMS,
            ring: None,
            placement: 0,
        };
        Ok((setup, frames))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_depot_that_would_not_fit_goes_round_with_less() {
        let question = Question {
            model: Model::find("xeon-gold-6148").unwrap(),
            pools: pools(&[], 256, None).unwrap(),
            buffers: BUFFERS,
            frames: 64,
            placements: 1,
            mix: Mix::cable(),
            parameters: Parameters { ways: 4, under_way: 704, cold_lines: 0 },
        };
        // 4 of 11 ways are 10 MiB, and a buffer is 1,664 bytes.
        assert_eq!([1, 2, 12].map(|instances| question.share(instances)), [6_931, 3_780, 1_155]);
        assert_eq!([1, 2, 12].map(|instances| question.hot_set(256, instances)), [(0, 0); 3]);
        let quiet = Parameters { under_way: 64, ..question.parameters };
        let quiet = Question { parameters: quiet, ..question.clone() };
        assert_eq!([1, 2, 12].map(|instances| quiet.hot_set(256, instances).0), [32, 0, 0]);
        let ways = |name: &str| Parameters::FITTED.for_machine(&Model::find(name).unwrap()).ways;
        assert_eq!((ways("xeon-gold-6148"), ways("epyc-zen5")), (Parameters::FITTED.ways, 4));
        let large = Question { model: Model::find("granite-rapids").unwrap(), ..question.clone() };
        assert_eq!(large.hot_set(256, 1).0, 256);
        let notes = question.notes(&[12]);
        assert!(notes.iter().any(|note| note.contains("the order of a stack")), "{notes:?}");
        let names = ["dpdk-ring", "dpdk-stack"].map(str::to_owned);
        let dpdk = Question { pools: pools(&names, 256, None).unwrap(), ..question };
        assert!(dpdk.notes(&[1])[0].starts_with(
            "Not replayed, but for the walk along its array: 0.78 lines a frame that dpdk-ring touches"
        ));
    }

    #[test]
    fn a_ring_causes_more_traffic_than_a_stack_and_each_parameter_matters() {
        let touches = Touches::recorded().unwrap();
        let question = Question {
            model: Model::find("xeon-gold-6148").unwrap(),
            pools: pools(&["ring", "stack"].map(str::to_owned), 256, None).unwrap(),
            buffers: BUFFERS,
            frames: 256,
            placements: 1,
            mix: Mix::cable(),
            parameters: Parameters { ways: 2, under_way: 256, cold_lines: 1 },
        };
        let lines = |parameters: Parameters, instances: usize| {
            let question = Question { parameters, ..question.clone() };
            let load = Load { gbps: 5.0, crc: false, instances };
            let traffic = question.traffic(&[load], &touches, &|_| ()).unwrap();
            [traffic[0][0].lines, traffic[0][1].lines]
        };
        let [ring, stack] = lines(question.parameters, 1);
        // Each buffer of a ring is written back, in 24 lines or more; a cold line is read and written.
        assert!(ring > 24.0 && stack < 3.0, "{ring} {stack}");
        let [_, crowded] = lines(Parameters { under_way: 4_096, ..question.parameters }, 1);
        assert!(crowded > 10.0 * stack, "{crowded} {stack}");
        let [_, cold] = lines(Parameters { cold_lines: 5, ..question.parameters }, 1);
        assert!(cold > stack + 4.0, "{cold} {stack}");
        // Of a stack that fits, these lines are all that moves: each is read, and for each another one is written back, at first also some that fill the caches
        // beyond what will be there in the end.
        let parameters = Parameters { cold_lines: 2, under_way: 128, ..question.parameters };
        let [_, moved] = lines(parameters, 1);
        assert!((2.8..4.7).contains(&moved), "{moved}");
    }
}
