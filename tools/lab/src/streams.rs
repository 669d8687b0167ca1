//! What a line costs a lane that goes through one frame after the other, by who has the line.
//!
//! Frames are independent of each other, so that a lane has many of their lines on the way at once, and a line costs a small part of what a load takes
//! that somebody waits for ([`chase`](crate::chase)). Here two threads fill and read the very buffers that lanes have, as lanes do, and nothing else: no
//! pool, no ring between them. They take turns, a few bursts each, over so many buffers, and so far apart, that it is known who has
//! the lines.

use crate::cache_model::LINE_BYTES;
use crate::error::LabError;
use crate::line_transfer::{self, wait_for};
use crate::memory_traffic::machines::Model;
use crate::modelled::{ByAnswer, FIRST, MEMORY, OTHER, SECOND, SHARED, UPGRADE};
use crate::statistics::median;
use crate::two_lanes::read_lines;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Mutex, PoisonError};
use std::thread;
use warmlane_mem::{Packet, Pool, PoolConfig, PoolKind};
use warmlane_sync::padded::CachePadded;
use warmlane_sys::{affinity, clock};

/// Cycles of the time-stamp counter for a line, of a frame and of its header, by who answers.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct LineCosts {
    /// Of those that are read.
    pub read: ByAnswer,
    /// Of those that are written.
    pub written: ByAnswer,
    /// From CPU to CPU, of a line that somebody waits for, measured with them.
    pub transfer: f64,
    /// KiB of the shared level that are seen to be left for these CPUs.
    pub shared_kib: u64,
}

/// Turns that count at most, and at least.
const MOST: usize = 512;
const LEAST: usize = 32;

/// As many buffers as the largest pools that are modelled have.
pub(crate) const BUFFERS: u32 = 131_072;

/// Buffers of lanes, and what they are filled with.
pub(crate) struct Frames {
    packets: Mutex<Vec<Packet>>,
    template: Vec<u8>,
    cpus: [usize; 2],
    model: Model,
}

/// How both lanes go through the buffers.
#[derive(Clone, Copy, Debug)]
struct Walk {
    /// Bytes of each frame.
    bytes: usize,
    /// Frames of a turn, and turns until the first comes again.
    burst: usize,
    turns: usize,
    /// The second lane reads so many turns after the first has written; nothing if it doesn't read.
    lag: Option<usize>,
    /// The first one writes in each turn, not in the first round only.
    writes: bool,
}

impl Frames {
    /// So many of them.
    pub(crate) fn new(buffers: u32, model: &Model, cpus: [usize; 2]) -> Result<Self, LabError> {
        let config = PoolConfig {
            name: "streams".to_owned(),
            kind: PoolKind::Ring,
            magazine: Some(0),
            buffers,
            ..PoolConfig::default()
        };
        // The packets keep the pool.
        let pool = Pool::new(&config).map_err(LabError::setup)?;
        let packets: Vec<Packet> = std::iter::from_fn(|| pool.take()).collect();
        Ok(Self { packets: Mutex::new(packets), template: vec![0x5a; 1_520], cpus, model: model.clone() })
    }

    /// What lines of frames of so many bytes cost now.
    pub(crate) fn measure(&self, bytes: usize) -> Result<LineCosts, LabError> {
        let [first, second] = self.cpus;
        let before = line_transfer::measure(first, second).map_err(LabError::setup)?;
        let model = &self.model;
        let (near, private) = (model.first.kib << 10, model.second.kib << 10);
        let all = 3 * ((model.shared.kib << 10) + private);
        let apart = |footprint: u64, lag: fn(usize) -> Option<usize>, writes: bool| {
            self.walk(&self.plan(bytes, footprint, lag, writes))
        };
        // Twice the second level and a half: what a lane comes back to has left it.
        let between = private * 5 / 2;
        let alone = [near / 2, private / 2].map(|footprint| apart(footprint, |_| None, true));
        let read_alone = [near / 2, private / 2].map(|footprint| apart(footprint, |_| Some(0), false));
        // Read and written again at once; read at once and written when all others were; the other way round; and all of it from memory.
        let ping_pong = apart(private / 8, |_| Some(0), true)?;
        let ring = apart(between, |_| Some(0), true)?;
        let held = apart(between, |turns| Some(turns - 1), true)?;
        let memory = apart(all, |turns| Some(turns * 2 / 3), true)?;
        let (mut read, mut written) = (ByAnswer::default(), ByAnswer::default());
        for (level, (alone, read_alone)) in [FIRST, SECOND].into_iter().zip(alone.into_iter().zip(read_alone))
        {
            written[level] = alone?[0];
            read[level] = read_alone?[1];
        }
        written[UPGRADE] = ping_pong[0];
        read[OTHER] = ping_pong[1];
        written[SHARED] = ring[0];
        written[OTHER] = held[0];
        read[SHARED] = held[1];
        [written[MEMORY], read[MEMORY]] = memory;
        let shared_kib = self.shared_left()?;
        let after = line_transfer::measure(first, second).map_err(LabError::setup)?;
        Ok(LineCosts { read, written, transfer: f64::midpoint(before, after), shared_kib })
    }

    /// How much of the shared level there is: up to where a line that comes again is nearer to one of that level than to one of memory. Neighbours on
    /// the host may have the rest.
    pub(crate) fn shared_left(&self) -> Result<u64, LabError> {
        let model = &self.model;
        let private = model.second.kib << 10;
        let way = (model.shared.kib << 10) / u64::from(model.shared.ways.max(1));
        let bytes = self.template.len();
        let written = |footprint| {
            let both = self.walk(&self.plan(bytes, footprint, |_| Some(0), true))?;
            Ok::<f64, LabError>(both[0])
        };
        let shared = written(private * 5 / 2)?;
        let memory = written(3 * ((model.shared.kib << 10) + private))?;
        let edge = (shared * memory).sqrt();
        // The largest number of ways of which lines come again, by halving.
        let (mut fits, mut beyond) = (1, u64::from(model.shared.ways) + 1);
        while beyond - fits > 1 {
            let ways = u64::midpoint(fits, beyond);
            if written(private + ways * way)? < edge {
                fits = ways;
            } else {
                beyond = ways;
            }
        }
        Ok((fits * way) >> 10)
    }

    fn plan(&self, bytes: usize, footprint: u64, lag: fn(usize) -> Option<usize>, writes: bool) -> Walk {
        let frame = ((bytes as u64).div_ceil(LINE_BYTES) + 1) * LINE_BYTES;
        let buffers = self.packets.lock().unwrap_or_else(PoisonError::into_inner).len();
        let frames = ((footprint / frame) as usize).clamp(1, buffers);
        // An eighth of the second level, so that what is under way is in there.
        let burst = (((self.model.second.kib << 10) / 8 / frame) as usize).clamp(1, frames);
        let turns = frames / burst;
        Walk { bytes, burst, turns, lag: lag(turns), writes }
    }

    /// Cycles for a line of the lane that writes, and of the one that reads.
    fn walk(&self, walk: &Walk) -> Result<[f64; 2], LabError> {
        let &Walk { bytes, burst, turns, lag, writes } = walk;
        let turn = CachePadded::new(AtomicU64::new(0));
        // One round, and the lag, until all is where it is to be.
        let before = turns + lag.unwrap_or(0);
        let all = before + turns.clamp(LEAST, MOST);
        let lines = (burst * (bytes.div_ceil(LINE_BYTES as usize) + 1)) as f64;
        let lane = |place: usize, work: &(dyn Fn(usize, &mut [Packet]) + Sync)| {
            // Whether pinned or not, it takes its turns, since the other one waits for them.
            let pinned = affinity::pin_current_thread(self.cpus[place]);
            let mut cycles = Vec::with_capacity(all);
            for number in 0..all {
                let mine = (2 * number + place) as u64;
                wait_for(&turn, mine);
                let mut packets = self.packets.lock().unwrap_or_else(PoisonError::into_inner);
                let begin = clock::cycles_ordered();
                work(number, &mut packets);
                // Stores count until others may see them.
                fence(Ordering::SeqCst);
                let took = clock::cycles_ordered().saturating_sub(begin);
                drop(packets);
                if number >= before {
                    cycles.push(took as f64 / lines);
                }
                turn.store(mine + 1, Ordering::Release);
            }
            pinned.map(|()| median(&cycles)).map_err(LabError::setup)
        };
        let write = |number: usize, packets: &mut [Packet]| {
            if writes || number < turns {
                let first = number % turns * burst;
                for packet in &mut packets[first..first + burst] {
                    // It fits: buffers are larger than the template.
                    let _ = packet.fill(&self.template[..bytes]);
                }
            }
        };
        let read = |number: usize, packets: &mut [Packet]| {
            if let Some(number) = lag.and_then(|lag| number.checked_sub(lag)) {
                let first = number % turns * burst;
                for packet in &packets[first..first + burst] {
                    read_lines(packet.data());
                }
            }
        };
        thread::scope(|scope| {
            let reader = scope.spawn(|| lane(1, &read));
            let writer = scope.spawn(|| lane(0, &write));
            let failed = |_| LabError::setup("a thread that reads or writes frames has failed");
            Ok([writer.join().map_err(failed)??, reader.join().map_err(failed)??])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_other_levels_and_of_the_other_core_cost_more() {
        let cpus = affinity::allowed_cpus().unwrap();
        let [first, .., second] = cpus[..] else { return };
        let model = Model::find("here").unwrap();
        let frames = Frames::new(4_096, &model, [first, second]).unwrap();
        let costs = frames.measure(1_520).unwrap();
        assert!(costs.written[UPGRADE] > costs.written[FIRST], "{costs:?}");
        assert!(costs.read[OTHER] > costs.read[FIRST], "{costs:?}");
        assert!(
            costs.read.iter().chain(&costs.written[..=UPGRADE]).take(5).all(|cost| *cost > 0.0),
            "{costs:?}"
        );
        assert!((1..=model.shared.kib).contains(&costs.shared_kib), "{costs:?}");
        assert!(Frames::new(64, &model, [first, 100_000]).unwrap().measure(64).is_err());
    }

    #[test]
    fn a_plan_fits_the_buffers_there_are() {
        let model = Model::find("xeon-gold-6148").unwrap();
        let frames = Frames::new(256, &model, [0, 1]).unwrap();
        let walk = frames.plan(1_520, u64::MAX, |turns| Some(turns - 1), true);
        // 128 KiB of 25 lines each.
        assert_eq!((walk.burst, walk.turns, walk.lag), (81, 3, Some(2)));
        let walk = frames.plan(64, 0, |_| None, true);
        assert_eq!((walk.burst, walk.turns), (1, 1));
    }
}
