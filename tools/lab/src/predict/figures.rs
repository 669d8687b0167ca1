//! What a configuration's packets miss and move, by the model.

use super::configuration::{Configuration, Function, HELD};
use super::lanes;
use super::load::Load;
use crate::cable;
use crate::cache_model::LINE_BYTES;
use crate::error::LabError;
use crate::memory_traffic::forward_touches::Forwarding;
use crate::memory_traffic::machines::Model;
use crate::memory_traffic::mix::Mix;
use crate::memory_traffic::orders::{BURST, Kind, UnderWay};
use crate::memory_traffic::parameters::Parameters;
use crate::memory_traffic::question::{self, Question};
use crate::memory_traffic::replay::{self, PerFrame};
use crate::memory_traffic::touches::Touches;
use serde::Serialize;
use std::collections::HashSet;
use warmlane_mem::{PoolConfig, PoolKind};

/// Frames that a downstream is counted for.
const COUNTED: usize = 2_048;

/// What is asked of which machine.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The machine.
    pub model: Model,
    /// Ways of the shared level that the lanes have.
    pub ways: u32,
    /// What comes.
    pub load: Load,
    touches: Touches,
    forwarding: Forwarding,
}

/// What a configuration's packets do to caches and memory.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Lines for each packet.
    pub per_packet: PerFrame,
    /// Different buffers of an instance that go round.
    pub circulating: usize,
    /// GB/s read from memory, by all instances.
    pub read: f64,
    /// GB/s written to memory, by all instances.
    pub written: f64,
}

impl Figures {
    /// GB/s both ways.
    pub fn both(&self) -> f64 {
        self.read + self.written
    }
}

/// The pool as the model has it: how large a depot's hot set comes to be depends on time, which isn't modelled; it is the smallest here.
pub(super) fn of_model(pool: &PoolConfig) -> PoolConfig {
    let magazine = pool.magazine_size();
    let smallest = (pool.kind == PoolKind::Depot && magazine > 0).then_some(magazine);
    PoolConfig { hot_set: pool.hot_set.or(smallest), ..pool.clone() }
}

impl Asked {
    /// A load on a machine, of whose shared level lanes have the part that was fitted for the Xeon Gold 6148.
    ///
    /// # Errors
    /// [`LabError::Setup`], if what was recorded is damaged.
    pub fn new(model: Model, load: Load) -> Result<Self, LabError> {
        let ways = Parameters::FITTED.for_machine(&model).ways;
        let touches = Touches::recorded().map_err(LabError::setup)?;
        let forwarding = Forwarding::recorded().map_err(LabError::setup)?;
        Ok(Self { model, ways, load, touches, forwarding })
    }

    /// Lanes of an instance, and instances, that share a last level: if there are more than cores, others have one of their own.
    pub fn together(&self, configuration: &Configuration) -> [usize; 2] {
        let cores = self.model.cores.max(1);
        let lanes = configuration.lanes.max(1);
        let lanes = lanes.div_ceil(lanes.div_ceil(cores));
        let instances = configuration.instances.clamp(1, (cores / lanes).max(1));
        [lanes, configuration.instances.div_ceil(configuration.instances.div_ceil(instances))]
    }

    /// What a configuration can't be asked for.
    ///
    /// # Errors
    /// [`LabError::Setup`]: frames that no downstream was recorded with.
    pub fn check(&self, configuration: &Configuration) -> Result<(), LabError> {
        if configuration.function == Function::Docsis { self.mix().map(|_| ()) } else { Ok(()) }
    }

    /// Its frames, as a mix of the recorded lengths.
    fn mix(&self) -> Result<Mix, LabError> {
        Mix::of(&self.load.sizes, &self.load.frames)
    }

    /// What the configuration's packets do.
    ///
    /// # Errors
    /// [`LabError`].
    pub fn figures(&self, configuration: &Configuration) -> Result<Figures, LabError> {
        let (per_packet, circulating) = match configuration.function {
            Function::Docsis => self.downstream(configuration)?,
            Function::Forward | Function::Router => {
                let families = [false, true].map(|ipv6| self.forwarding.family(ipv6));
                let [ipv4, ipv6] = families;
                let touches = [ipv4.map_err(LabError::setup)?, ipv6.map_err(LabError::setup)?];
                let together = self.together(configuration);
                let sizes = self.load.sizes.round();
                let found = lanes::run(&self.model, self.ways, together, configuration, &touches, sizes)?;
                (found.per_packet, found.circulating)
            }
        };
        let packets = self.load.packets_per_second * configuration.instances as f64;
        let gbs = packets * LINE_BYTES as f64 / 1e9;
        Ok(Figures {
            per_packet,
            circulating,
            read: per_packet.reads * gbs,
            written: per_packet.writes * gbs,
        })
    }

    fn downstream(&self, configuration: &Configuration) -> Result<(PerFrame, usize), LabError> {
        let pool = of_model(&configuration.pool);
        let kind = match pool.kind {
            PoolKind::Depot => Kind::Ours(pool.kind, pool.magazine_size(), pool.hot_set.unwrap_or(0)),
            PoolKind::Ring => Kind::Ours(pool.kind, pool.magazine_size(), 0),
            kind => Kind::Ours(kind, 0, 0),
        };
        let posted: u32 = configuration.ports.iter().map(|port| port.entries).sum();
        // What is received and what is sent have half each.
        let buffers = pool.buffers / 2;
        let question = Question {
            model: self.model.clone(),
            pools: vec![("its own".to_owned(), kind)],
            buffers,
            frames: COUNTED,
            placements: 1,
            mix: self.mix()?,
            parameters: Parameters { ways: self.ways, cold_lines: 0, ..Parameters::FITTED },
        };
        let [_, instances] = self.together(configuration);
        let load = question::Load { gbps: self.load.gbps(), crc: configuration.crc, instances };
        question.check(load)?;
        let (mut setup, frames_of) = question.setup(load, &self.touches)?;
        let rings = (posted as usize).min(buffers as usize / 2).next_multiple_of(BURST);
        setup.under_way = UnderWay { posted: rings, held: HELD as usize, ..setup.under_way };
        setup.modems = configuration.modems;
        setup.ring = kind.is_ring().then_some(buffers);
        let frames = replay::frames(&self.model, &setup);
        let order = kind.order(&self.model, buffers, setup.under_way, frames, setup.per_thousand)?;
        let per_packet = replay::run(&self.model, &setup, &order, &frames_of).map_err(LabError::setup)?;
        let different = |all: &[u64]| all[all.len() / 2..].iter().collect::<HashSet<_>>().len();
        Ok((per_packet, different(&order.received) + different(&order.sent)))
    }
}

impl Asked {
    /// Bytes of tables, queues and keys that a downstream has for its modems, as many for each as were recorded.
    pub(super) fn modem_state(&self, configuration: &Configuration) -> u64 {
        let usual = self.touches.frames(configuration.crc).map_or(0, |[usual, ..]| usual.state.others);
        u64::from(usual) * LINE_BYTES * u64::from(configuration.modems) / u64::from(cable::MODEMS)
    }
}
