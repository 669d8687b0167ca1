//! What a workload misses in a model of a machine's caches, to stand beside its cycles.
//!
//! A counter would say the same of the machine itself; where there is none, this says at least what its caches would do if they were as
//! [`cache_model`](crate::cache_model) has them. Modelled are lines of buffers, headers and data, in the order in which real pools hand them out.
//! Descriptors, tables, the pools' own arrays, prefetchers and time are not.

use crate::cache_model::{Hierarchy, LINE_BYTES, Traffic};
use crate::counters;
use crate::error::LabError;
use crate::memory_traffic::machines::Model;
use crate::setting::Setting;
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use warmlane_mem::{Burst, Packet, Pool, PoolConfig};

/// The experiments whose workloads are modelled.
pub const EXPERIMENTS: [&str; 6] = ["burst-depth", "header", "hot-set", "layout", "pool-order", "tx-free"];

/// What is told of each workload, for each packet.
pub const EVENTS: [&str; 6] = [
    "L1 misses",
    "L2 misses",
    "lines from the other core",
    "lines taken from it to be written",
    "lines read from memory",
    "lines written to memory",
];

/// Lines in front of a packet's data: the header's, and the usual headroom's two.
pub(crate) const BEFORE_DATA: u64 = 3;

/// How a line is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// What is done to each packet at one point of its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// So many packets after its buffer was taken.
    pub(crate) after: usize,
    /// By the second lane.
    pub(crate) by_second: bool,
    /// Lines of the buffer, from its first.
    pub(crate) lines: &'static [(u64, Access)],
    /// All lines of the data that the workload touches.
    pub(crate) data: Option<Access>,
}

/// What a core misses for each packet, in the order of [`EVENTS`].
pub type Misses = [f64; EVENTS.len()];

/// A figure for each of those who may answer an access: the first and the second level, the other core, the shared level, memory; and for what a core has
/// and may write to once the other core has given its copy up.
pub type ByAnswer = [f64; 6];

pub(crate) const FIRST: usize = 0;
pub(crate) const SECOND: usize = 1;
pub(crate) const OTHER: usize = 2;
pub(crate) const SHARED: usize = 3;
pub(crate) const MEMORY: usize = 4;
pub(crate) const UPGRADE: usize = 5;

/// Lines of buffers that a core reads and writes for each packet.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Lines {
    pub(crate) read: ByAnswer,
    pub(crate) written: ByAnswer,
}

/// What each of two cores does for each packet.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Modelled {
    pub(crate) misses: [Misses; 2],
    pub(crate) lines: [Lines; 2],
}

/// Packets on their way through one or two lanes.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    /// The buffer of each packet.
    pub(crate) order: Order,
    /// Packets that take each step together.
    pub(crate) burst: usize,
    /// Bytes of data that are touched, over and over.
    pub(crate) lengths: Vec<usize>,
    /// Where in the buffer data begins, in lines.
    pub(crate) data_line: u64,
    /// In the order of time.
    pub(crate) steps: Vec<Step>,
}

impl Workload {
    /// Lets all packets take all steps; the second half of them is counted. `both_on_one`: the lanes are threads of one core. For each packet, what
    /// each of the two cores misses.
    pub(crate) fn play(&self, model: &Model, both_on_one: bool) -> Result<Modelled, LabError> {
        let mut levels = model.hierarchy(2, model.shared.ways).map_err(LabError::setup)?;
        let bursts = self.order.buffers.len() / self.burst;
        let begin = bursts / 2;
        let mut lines = [Lines::default(); 2];
        for burst in 0..bursts {
            if burst == begin {
                levels.forget_counts();
                lines = Default::default();
            }
            for step in &self.steps {
                let Some(burst) = burst.checked_sub(step.after.div_ceil(self.burst)) else { continue };
                let core = usize::from(step.by_second && !both_on_one);
                self.take(&mut levels, &mut lines[core], burst * self.burst, core, step);
            }
        }
        let packets = ((bursts - begin) * self.burst) as f64;
        let misses = [0, 1].map(|core| {
            let of = levels.core(core).copied().unwrap_or_default();
            let Traffic { first_misses, second_misses, transfers, upgrades, .. } = of;
            [first_misses, second_misses, transfers, upgrades, of.memory_reads, of.memory_writes]
                .map(|count| count as f64 / packets)
        });
        let each = |all: ByAnswer| all.map(|count| count / packets);
        let lines = lines.map(|Lines { read, written }| Lines { read: each(read), written: each(written) });
        Ok(Modelled { misses, lines })
    }

    /// A burst that begins with packet `first` takes a step.
    fn take(&self, levels: &mut Hierarchy, lines: &mut Lines, first: usize, core: usize, step: &Step) {
        let mut access = |line, access: Access| match access {
            Access::Read => lines.read[levels.access(core, line, false) as usize] += 1.0,
            Access::Write => {
                let upgrades = |levels: &Hierarchy| levels.core(core).map_or(0, |traffic| traffic.upgrades);
                let before = upgrades(levels);
                let answered = levels.access(core, line, true) as usize;
                let upgraded = upgrades(levels) > before;
                lines.written[if upgraded { UPGRADE } else { answered }] += 1.0;
            }
        };
        for packet in first..first + self.burst {
            let buffer = self.order.buffers[packet] / LINE_BYTES;
            for (line, how) in step.lines {
                access(buffer + line, *how);
            }
            let bytes = self.lengths[packet % self.lengths.len()];
            if let Some(how) = step.data {
                for line in 0..(bytes as u64).div_ceil(LINE_BYTES) {
                    access(buffer + self.data_line + line, how);
                }
            }
        }
    }
}

impl Setting {
    /// Notes what a variant (from 0) of this step misses, if that was asked for; of each core.
    pub(crate) fn model(
        &self,
        variant: usize,
        workload: impl FnOnce() -> Result<Workload, LabError>,
    ) -> Result<(), LabError> {
        let Some(model) = &self.model else { return Ok(()) };
        note(variant, &workload()?.play(model, self.lanes_share_a_core())?);
        Ok(())
    }

    /// Whether the lanes are threads of one core.
    pub(crate) fn lanes_share_a_core(&self) -> bool {
        self.second_cpu.is_some_and(|second| are_one_core(self.cpu, second))
    }
}

/// Notes what a variant (from 0) of this step misses.
pub(crate) fn note(variant: usize, modelled: &Modelled) {
    counters::modelled(variant, EVENTS.into_iter().zip(sum(&modelled.misses)));
}

/// Of both cores together.
fn sum([first, second]: &[Misses; 2]) -> Misses {
    std::array::from_fn(|event| first[event] + second[event])
}

/// Whether two CPUs are threads of one core, as far as the machine tells.
pub(crate) fn are_one_core(first: usize, second: usize) -> bool {
    warmlane_sys::topology::Topology::read().is_ok_and(|machine| {
        machine.cpu(first).is_some_and(|cpu| first != second && cpu.siblings.contains(&second))
    })
}

/// Buffers in the order in which they are taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    /// As bytes from the first.
    pub(crate) buffers: Vec<u64>,
    /// How many packets later each is freed.
    pub(crate) behind: usize,
}

/// Which buffers a pool hands out to so many packets, of which at most `under_way` lie between the one who takes and the one who frees: another
/// lane, or the same.
pub(crate) fn order(
    config: &PoolConfig,
    packets: usize,
    burst: usize,
    under_way: usize,
    second_lane: bool,
) -> Result<Order, LabError> {
    let pool = Pool::new(config).map_err(LabError::setup)?;
    let _lane = pool.attach().map_err(LabError::setup)?;
    let stride = pool.stride() as u64;
    let (mut buffers, mut behind) = (Vec::with_capacity(packets + burst), 0);
    std::thread::scope(|scope| {
        let (give, given) = channel::<Vec<Packet>>();
        let (tell, told) = channel::<()>();
        if second_lane {
            let pool = &pool;
            scope.spawn(move || free_for_another(pool, &given, &tell));
        }
        let mut lying = VecDeque::new();
        let mut taken = Burst::with_limit(burst);
        while buffers.len() < packets {
            // Caches of lanes may have what a small pool is out of: then fewer are under way.
            if lying.len() * burst <= under_way && pool.take_bulk(&mut taken, burst) {
                buffers.extend(taken.iter().map(|packet| u64::from(packet.id().index()) * stride));
                behind = lying.len() * burst;
                lying.push_back(taken.drain().collect::<Vec<_>>());
                continue;
            }
            let empty = || LabError::setup("the pool has run out of buffers: it can't be modelled");
            let oldest = lying.pop_front().ok_or_else(empty)?;
            // One after the other, so that the order is the same each time.
            if !second_lane {
                free(oldest);
            } else if give.send(oldest).is_err() || told.recv().is_err() {
                return Err(LabError::setup("the second lane can't use the pool"));
            }
        }
        Ok(())
    })?;
    Ok(Order { buffers, behind })
}

/// The same of a list of which the last one is taken first, whose buffers lie so many lines apart.
pub(crate) fn order_of_list(
    count: usize,
    lines_apart: usize,
    packets: usize,
    burst: usize,
    under_way: usize,
) -> Order {
    let mut list: Vec<usize> = (0..count).collect();
    let (mut lying, mut buffers) = (VecDeque::new(), Vec::new());
    while buffers.len() < packets {
        if lying.len() >= under_way {
            list.extend(lying.drain(..burst.min(lying.len())));
        }
        let taken = list.split_off(list.len().saturating_sub(burst));
        buffers.extend(taken.iter().rev().map(|buffer| (buffer * lines_apart) as u64 * LINE_BYTES));
        lying.extend(taken.into_iter().rev());
    }
    Order { buffers, behind: under_way }
}

fn free_for_another(pool: &Pool, given: &Receiver<Vec<Packet>>, tell: &Sender<()>) {
    let Ok(_lane) = pool.attach() else { return };
    for packets in given {
        free(packets);
        if tell.send(()).is_err() {
            return;
        }
    }
}

/// Frees packets as a burst.
fn free(packets: Vec<Packet>) {
    let mut burst = Burst::new();
    for packet in packets {
        // A full burst gives the packet back, which is freed by itself.
        let _ = burst.push(packet);
    }
}

/// How many packets go round until each buffer of a pool was used twice, and caches know them.
pub(crate) fn rounds(buffers: usize, under_way: usize) -> usize {
    (2 * buffers + 2 * under_way).max(LEAST)
}

/// Of few buffers as many packets go round until each set of a private cache has seen them often.
const LEAST: usize = 16_384;

#[cfg(test)]
mod tests {
    use super::*;
    use warmlane_mem::PoolKind;

    const TAKE: Step =
        Step { after: 0, by_second: false, lines: &[(0, Access::Write)], data: Some(Access::Write) };
    const READ: Step =
        Step { after: 64, by_second: true, lines: &[(0, Access::Read)], data: Some(Access::Read) };

    fn pool(kind: PoolKind, buffers: u32) -> PoolConfig {
        PoolConfig { kind, buffers, magazine: Some(0), ..PoolConfig::default() }
    }

    fn misses(order: &Order, both_on_one: bool) -> Misses {
        let model = Model::find("xeon-gold-6148").unwrap();
        let workload = Workload {
            order: order.clone(),
            burst: 32,
            lengths: vec![1_520],
            data_line: BEFORE_DATA,
            steps: vec![TAKE, READ],
        };
        sum(&workload.play(&model, both_on_one).unwrap().misses)
    }

    #[test]
    fn a_stack_keeps_its_few_buffers_and_a_ring_goes_through_all() {
        let order = |kind| order(&pool(kind, 65_536), rounds(65_536, 64), 32, 64, true).unwrap();
        let distinct = |order: &Order| order.buffers.iter().collect::<std::collections::HashSet<_>>().len();
        let (ring, stack) = (order(PoolKind::Ring), order(PoolKind::Stack));
        assert_eq!((distinct(&ring), distinct(&stack)), (65_536, 96));
        // On one core: 25 lines of 65,536 buffers are more than any of its levels has, those of 96 are not.
        let [_, _, from_other, _, read, written] = misses(&ring, true);
        assert!(from_other < 0.01 && read > 24.0 && written > 24.0, "{read} {written}");
        let [_, second, _, _, read, written] = misses(&stack, true);
        assert!(second < 0.1 && read < 0.1 && written < 0.1, "{second} {read} {written}");
        // On two, each line comes over to be read; who writes it next still has it.
        let [_, _, from_other, taken, read, _] = misses(&stack, false);
        assert!((24.0..26.0).contains(&from_other) && read < 0.1, "{from_other} {read}");
        assert!((24.0..26.0).contains(&taken), "{taken}");
        let [_, _, from_other, taken, read, _] = misses(&ring, false);
        assert!(taken < 1.0, "{taken}");
        assert!((24.0..26.0).contains(&from_other) && read > 24.0, "{from_other} {read}");
    }

    #[test]
    fn one_lane_gets_back_what_it_frees() {
        let of_pool = order(&pool(PoolKind::Stack, 1_024), 4_096, 32, 128, false).unwrap();
        let of_list = order_of_list(1_024, 35, 4_096, 32, 128);
        for Order { buffers, behind } in [of_pool, of_list] {
            assert_eq!((buffers.len(), behind), (4_096, 128));
            let first: std::collections::BTreeSet<_> = buffers[..32].iter().collect();
            let again =
                buffers[160..192].iter().chain(&buffers[128..160]).filter(|buffer| first.contains(buffer));
            assert_eq!(again.count(), 32);
        }
        // Of a small pool fewer are under way, and of none nothing can be had.
        assert_eq!(order(&pool(PoolKind::Ring, 64), 4_096, 32, 128, true).unwrap().behind, 32);
        let error = order(&pool(PoolKind::Ring, 16), 4_096, 32, 128, false).unwrap_err();
        assert!(error.to_string().contains("run out of buffers"), "{error}");
    }

    #[test]
    fn experiments_with_a_model_tell_misses_for_each_variant() {
        let Some(tiny) = Setting::tiny_on_two_cpus() else { return };
        let model = Some(Model::find("xeon-gold-6148").unwrap());
        for name in EXPERIMENTS {
            let only = match name {
                "pool-order" => Some("1024, mix, header".to_owned()),
                "hot-set" => Some("64 bytes, 256".to_owned()),
                _ => None,
            };
            let setting = Setting { model: model.clone(), only, ..tiny.clone() };
            let record =
                crate::subject::run(crate::experiment::find(name).unwrap(), &setting, &mut |_| ()).unwrap();
            let rows = &record.counters.modelled;
            assert!(!rows.is_empty(), "{name}");
            // Few buffers may well miss nothing at all.
            assert!(rows.iter().any(|row| row.per_unit[EVENTS[0]] > 0.0), "{name}");
            for row in rows {
                assert!(EVENTS.iter().all(|event| row.per_unit[*event] >= 0.0), "{name}: {row:?}");
            }
            assert!(record.to_string().contains("lines read from memory"), "{name}");
            let agreement = record.counters.agreement.as_ref();
            assert_eq!(agreement.is_some(), name == "pool-order");
            for cell in agreement.iter().flat_map(|agreement| &agreement.cells) {
                assert!(
                    cell.modelled.len() == 7 && cell.modelled.iter().all(|cost| *cost >= 0.0),
                    "{cell:?}"
                );
            }
        }
    }
}
