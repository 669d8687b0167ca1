//! Instances of the downstream, as the touches of their frames, in the model of a machine's caches.

use super::machines::{MachineError, Model};
use super::mix::Frames;
use super::orders::{BURST, Order, UnderWay, sent_after};
use super::touches::Lines;
use crate::cable;
use crate::cache_model::{Hierarchy, LINE_BYTES, Traffic};
use crate::random::Xorshift;
use serde::Serialize;
use std::ops::Range;

/// Lines of a buffer in front of a frame, as recorded: a header of one and the headroom.
const BEFORE_FRAME: u64 = 3;

/// What is touched besides buffers and the state that was recorded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setup {
    /// Cores of which each runs an instance.
    pub instances: usize,
    /// Ways of the shared level that they have.
    pub ways: u32,
    /// Where buffers are.
    pub under_way: UnderWay,
    /// Lines of state that a frame writes and that no cache keeps, besides those that were recorded.
    pub cold_lines: u64,
    /// Packets to the remote PHY for a thousand frames.
    pub per_thousand: usize,
    /// Frames that each instance is counted for.
    pub frames: usize,
    /// Modems that frames go to.
    pub modems: u32,
}

/// Lines between memory and caches, for each frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PerFrame {
    /// Lines that cores accessed.
    pub accesses: f64,
    /// Of these, not answered by the first level.
    pub first_misses: f64,
    /// Nor by the second.
    pub second_misses: f64,
    /// Read from memory, by cores and devices.
    pub reads: f64,
    /// Written to memory.
    pub writes: f64,
}

impl PerFrame {
    /// What so many cores and all devices have caused, for each of so many frames.
    pub(crate) fn of(levels: &Hierarchy, cores: usize, frames: f64) -> Self {
        let (reads, writes) = levels.memory();
        let sum = |of: fn(&Traffic) -> u64| {
            (0..cores).filter_map(|core| levels.core(core)).map(of).sum::<u64>() as f64
        };
        Self {
            accesses: sum(|traffic| traffic.accesses) / frames,
            first_misses: sum(|traffic| traffic.first_misses) / frames,
            second_misses: sum(|traffic| traffic.second_misses) / frames,
            reads: reads as f64 / frames,
            writes: writes as f64 / frames,
        }
    }

    /// Both.
    pub fn both(self) -> f64 {
        self.reads + self.writes
    }
}

/// What an instance has in memory of its own, as lines from its first.
const SENT: u64 = 1 << 25;
const STATE: u64 = 1 << 26;
const COLD: u64 = 1 << 27;
const INSTANCE: u64 = 1 << 28;

/// Lines of state that no cache keeps: 1 GiB of them.
const COLD_STATE: usize = 1 << 24;

/// One instance.
struct Instance<'a> {
    core: usize,
    first_line: u64,
    order: &'a Order,
    frames: &'a Frames<'a>,
    setup: &'a Setup,
    /// Which modem is next.
    random: Xorshift,
    /// Bursts that the lower MAC's lane has had.
    through: usize,
    made: usize,
    freed: usize,
}

impl Instance<'_> {
    /// The first line of the buffer that a frame is received into.
    fn received(&self, frame: usize) -> u64 {
        self.first_line + self.order.received[frame] / LINE_BYTES
    }

    /// The first line of the buffer of a packet to the remote PHY.
    fn sent(&self, packet: usize) -> u64 {
        // Another pool, which does not begin in the same set.
        self.first_line + SENT + 1_171 + self.order.sent[packet] / LINE_BYTES
    }

    /// A line of a buffer with a header of one line, in one whose header may have more.
    const fn line(&self, buffer: u64, line: u64) -> u64 {
        let more = if line > 0 { self.order.header_lines - 1 } else { 0 };
        buffer + line + more
    }

    fn touch(&self, levels: &mut Hierarchy, buffer: u64, lines: &Lines) {
        for (lines, write) in [(&lines.read, false), (&lines.written, true)] {
            for &line in lines {
                levels.access(self.core, self.line(buffer, u64::from(line)), write);
                if line == 0 {
                    for more in 1..self.order.header_lines {
                        levels.access(self.core, buffer + more, write);
                    }
                }
            }
        }
    }

    /// A burst goes one step on.
    fn step(&mut self, levels: &mut Hierarchy, step: usize) {
        let UnderWay { posted, .. } = self.setup.under_way;
        let taken = step * BURST;
        for frame in taken..taken + BURST {
            let lines = &self.frames.touches(frame).received.take;
            self.touch(levels, self.received(frame), lines);
        }
        let Some(first) = taken.checked_sub(posted) else { return };
        let frames = first..first + BURST;
        for frame in frames.clone() {
            let first = self.line(self.received(frame), BEFORE_FRAME);
            // Cards leave the CRC out.
            levels.device_write(first * LINE_BYTES, u64::from(self.frames.touches(frame).bytes) - 4);
        }
        for line in 0..u64::from(self.frames.usual().state.hot) {
            levels.access(self.core, self.first_line + STATE + line, true);
        }
        for frame in frames {
            self.touch(levels, self.received(frame), &self.frames.touches(frame).received.upper);
            self.state(levels, frame);
        }
        for burst in self.through..self.setup.under_way.through(step) {
            self.lower(levels, burst * BURST..(burst + 1) * BURST);
            self.through = burst + 1;
        }
    }

    /// A burst on the lower MAC's lane.
    fn lower(&mut self, levels: &mut Hierarchy, frames: Range<usize>) {
        for frame in frames.clone() {
            self.touch(levels, self.received(frame), &self.frames.touches(frame).received.lower);
        }
        // What most frames make.
        let usual = self.frames.usual();
        let until = sent_after(frames.end, self.setup.per_thousand).min(self.order.sent.len());
        let made_lines =
            (usual.sent.lower.written.iter().max().copied().unwrap_or(0) as u64).max(BEFORE_FRAME);
        let new = self.made..until;
        self.made = until;
        for packet in new.clone() {
            self.touch(levels, self.sent(packet), &usual.sent.lower);
        }
        for packet in new {
            let buffer = self.sent(packet);
            let begins =
                usual.sent.lower.written.iter().find(|line| **line > 0).map_or(1, |line| u64::from(*line));
            let lines = made_lines - begins + 1;
            levels.device_read(self.line(buffer, begins) * LINE_BYTES, lines * LINE_BYTES);
        }
        while self.made - self.freed > self.setup.under_way.held {
            let end = (self.freed + BURST).min(self.made);
            for packet in self.freed..end {
                self.touch(levels, self.sent(packet), &usual.sent.free);
            }
            self.freed = end;
        }
    }

    /// What a frame touches of its modem's.
    fn state(&mut self, levels: &mut Hierarchy, frame: usize) {
        let modem = self.random.below(self.setup.modems.max(1) as usize) as u64;
        let touches = self.frames.touches(frame).state;
        let each = (u64::from(touches.others) / u64::from(cable::MODEMS)).max(1);
        #[expect(clippy::cast_sign_loss, reason = "they are counts")]
        let (touched, written) = (touches.touched.round() as u64, touches.written.round() as u64);
        let first = self.first_line + STATE + u64::from(touches.hot) + modem * each;
        for line in 0..touched {
            levels.access(self.core, first + line % each, line < written);
        }
        let first = self.first_line + COLD;
        for _ in 0..self.setup.cold_lines {
            levels.access(self.core, first + self.random.below(COLD_STATE) as u64, true);
        }
    }
}

/// How many frames each instance's order must have: those that fill all caches, and those that are counted.
pub fn frames(model: &Model, setup: &Setup) -> usize {
    let UnderWay { posted, queued, .. } = setup.under_way;
    (warm_up(model, setup) + setup.frames + posted + queued).next_multiple_of(BURST)
}

/// Frames until all caches are full of what instances have touched. A stack's buffers soon are where they stay, and what fills the caches then are the
/// lines that nothing keeps; where there are none, a ring fills them with its buffers of at least 24 lines.
pub(super) fn warm_up(model: &Model, setup: &Setup) -> usize {
    let of_ways =
        model.shared.kib / u64::from(model.shared.ways.max(1)) * u64::from(setup.ways.min(model.shared.ways));
    let private = model.second.kib * setup.instances as u64;
    let lines = ((of_ways + private) << 10) / LINE_BYTES;
    let of_a_frame = if setup.cold_lines > 0 { setup.cold_lines } else { LINES_OF_A_BUFFER };
    let frames = (lines / of_a_frame / setup.instances as u64) as usize;
    frames + 4 * (setup.under_way.posted + setup.under_way.queued)
}

/// A frame's buffers have at least so many lines.
const LINES_OF_A_BUFFER: u64 = 24;

/// Instances side by side, each with an order of buffers of its own kind's, and the caches that they share.
struct Replay<'a> {
    levels: Hierarchy,
    instances: Vec<Instance<'a>>,
}

impl<'a> Replay<'a> {
    fn new(
        model: &Model,
        setup: &'a Setup,
        order: &'a Order,
        frames: &'a Frames<'a>,
    ) -> Result<Self, MachineError> {
        let levels = model.hierarchy(setup.instances, setup.ways)?;
        let instance = |core| {
            let mut random = Xorshift(Xorshift::SEED);
            // Instances differ in which modem comes when.
            for _ in 0..core {
                random.below(1_000);
            }
            // Pools don't begin in the same set.
            let first_line = (core as u64 + 1) * INSTANCE + core as u64 * 32_768 / 7;
            Instance { core, first_line, order, frames, setup, random, through: 0, made: 0, freed: 0 }
        };
        Ok(Self { levels, instances: (0..setup.instances).map(instance).collect() })
    }

    /// What each frame that is received in these steps costs.
    fn count(&mut self, steps: Range<usize>) -> PerFrame {
        self.levels.forget_counts();
        let frames = (steps.len() * BURST * self.instances.len()) as f64;
        for step in steps {
            for instance in &mut self.instances {
                instance.step(&mut self.levels, step);
            }
        }
        PerFrame::of(&self.levels, self.instances.len(), frames)
    }
}

/// Lets instances run side by side, and counts once all caches are full.
///
/// # Errors
/// [`MachineError`].
pub fn run(
    model: &Model,
    setup: &Setup,
    order: &Order,
    frames: &Frames<'_>,
) -> Result<PerFrame, MachineError> {
    let mut replay = Replay::new(model, setup, order, frames)?;
    let steps = order.received.len() / BURST;
    let counted = (setup.frames / BURST).min(steps);
    replay.count(0..steps - counted);
    Ok(replay.count(steps - counted..steps))
}

/// The same from the step `from` on, for every `every` steps by themselves.
///
/// # Errors
/// [`MachineError`].
pub fn run_by_steps(
    model: &Model,
    setup: &Setup,
    order: &Order,
    frames: &Frames<'_>,
    from: usize,
    every: usize,
) -> Result<Vec<PerFrame>, MachineError> {
    let mut replay = Replay::new(model, setup, order, frames)?;
    replay.count(0..from);
    let whole = (order.received.len() / BURST).saturating_sub(from) / every.max(1);
    let first = |part: usize| from + part * every;
    Ok((0..whole).map(|part| replay.count(first(part)..first(part + 1))).collect())
}
