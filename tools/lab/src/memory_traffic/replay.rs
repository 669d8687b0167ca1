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
    /// Buffers of each pool, if it is a ring, which goes through all places of its array.
    pub ring: Option<u32>,
    /// Which pages of memory instances have got: another number, others.
    pub placement: u64,
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
const RINGS: u64 = STATE + (1 << 25);
const COLD: u64 = 1 << 27;
const INSTANCE: u64 = 1 << 28;

/// What the caches are full of at first: nobody's any more.
const OLD: u64 = 1 << 56;

/// Lines of a huge page of 2 MiB.
const PAGE: u64 = 1 << 15;

/// Where the system has put a line: within a huge page they stay together, and those lie anywhere.
const fn placed(line: u64, placement: u64) -> u64 {
    // SplitMix64.
    let mut page = (line / PAGE + (placement << 40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    page = (page ^ page >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    page = (page ^ page >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    // Addresses have 52 bits at most.
    (page >> 33) * PAGE + line % PAGE
}

/// Places of a ring's array in a line.
const PLACES: u64 = LINE_BYTES / 8;

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
    /// The core accesses a line.
    fn access(&self, levels: &mut Hierarchy, line: u64, write: bool) {
        levels.access(self.core, placed(line, self.setup.placement), write);
    }

    /// The places that a device writes or reads from a line on, each with its bytes.
    fn for_device(&self, line: u64, bytes: u64) -> impl Iterator<Item = (u64, u64)> + use<> {
        let placement = self.setup.placement;
        (0..bytes.div_ceil(LINE_BYTES)).map(move |number| {
            let rest = bytes - number * LINE_BYTES;
            (placed(line + number, placement) * LINE_BYTES, rest.min(LINE_BYTES))
        })
    }

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
        let all = lines.read.iter().chain(&lines.written);
        levels.prefetch(all.map(|line| placed(self.line(buffer, u64::from(*line)), self.setup.placement)));
        for (lines, write) in [(&lines.read, false), (&lines.written, true)] {
            for &line in lines {
                self.access(levels, self.line(buffer, u64::from(line)), write);
                if line == 0 {
                    for more in 1..self.order.header_lines {
                        self.access(levels, buffer + more, write);
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
            let bytes = u64::from(self.frames.touches(frame).bytes) - 4;
            let places = || self.for_device(first, bytes);
            levels.prefetch(places().map(|(address, _)| address / LINE_BYTES));
            places().for_each(|(address, bytes)| levels.device_write(address, bytes));
        }
        self.walk(levels, taken);
        for line in 0..u64::from(self.frames.usual().state.hot) {
            self.access(levels, self.first_line + STATE + line, true);
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
            self.for_device(self.line(buffer, begins), lines * LINE_BYTES)
                .for_each(|(address, bytes)| levels.device_read(address, bytes));
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
            self.access(levels, first + line % each, line < written);
        }
        let first = self.first_line + COLD;
        for _ in 0..self.setup.cold_lines {
            let line = first + self.random.below(COLD_STATE) as u64;
            self.access(levels, line, true);
        }
    }

    /// What rings of two pools touch of their arrays for the burst that begins with frame `taken`: each buffer's place is read when it is taken, and written
    /// when one is freed, which is as many places behind as buffers are under way.
    fn walk(&mut self, levels: &mut Hierarchy, taken: usize) {
        let Some(buffers) = self.setup.ring else { return };
        let lines = u64::from(buffers).div_ceil(PLACES);
        let UnderWay { posted, queued, held, .. } = self.setup.under_way;
        for (number, (share, behind)) in
            [(1_000, posted + queued), (self.setup.per_thousand, held)].into_iter().enumerate()
        {
            let first = self.first_line + RINGS + number as u64 * lines;
            let line = |frame: usize| (frame * share / 1_000) as u64 / PLACES;
            for place in line(taken)..line(taken + BURST) {
                self.access(levels, first + place % lines, false);
                self.access(levels, first + (place + lines - behind as u64 / PLACES) % lines, true);
            }
        }
    }
}

/// How many frames each instance's order must have: those after which caches hold what goes round, and those that are counted.
pub fn frames(model: &Model, setup: &Setup) -> usize {
    let UnderWay { posted, queued, .. } = setup.under_way;
    (warm_up(model, setup) + setup.frames + posted + queued + BURST).next_multiple_of(BURST)
}

/// Times that each modem has a frame, on average, until all have had some.
const ROUNDS_OF_MODEMS: usize = 8;

/// Frames until caches, full of old lines at first, have what goes round: what is under way and the modems' state, and of a ring all buffers,
/// where caches can hold them.
pub(super) fn warm_up(model: &Model, setup: &Setup) -> usize {
    let of_ways =
        model.shared.kib / u64::from(model.shared.ways.max(1)) * u64::from(setup.ways.min(model.shared.ways));
    let private = model.second.kib * setup.instances as u64;
    let lines = ((of_ways + private) << 10) / LINE_BYTES;
    let UnderWay { posted, queued, held, .. } = setup.under_way;
    let frames = 4 * (posted + queued + held) + ROUNDS_OF_MODEMS * setup.modems as usize;
    // With half of them gone the other half may still be there.
    let of_ring = |buffers: &u32| u64::from(*buffers) * LINES_OF_A_BUFFER * setup.instances as u64 <= lines;
    frames + setup.ring.filter(of_ring).map_or(0, |buffers| 2 * buffers as usize)
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
        let mut levels = model.hierarchy(setup.instances, setup.ways)?;
        levels.fill(OLD);
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

#[cfg(test)]
mod tests {
    use super::super::mix::Mix;
    use super::super::orders::Kind;
    use super::super::touches::Touches;
    use super::*;
    use std::collections::HashSet;
    use warmlane_mem::PoolKind;

    #[test]
    fn pages_stay_whole_and_lie_anywhere() {
        let of = |placement| {
            let pages: Vec<u64> = (0..2_000).map(|page| placed(page * PAGE, placement)).collect();
            assert!(pages.iter().all(|first| first % PAGE == 0 && first / PAGE < 1 << 31));
            assert_eq!(pages.iter().collect::<HashSet<_>>().len(), pages.len());
            pages
        };
        assert!(of(0).iter().zip(of(1)).all(|(one, other)| *one != other));
        assert_eq!(placed(5 * PAGE + 77, 3), placed(5 * PAGE, 3) + 77);
        // Nobody has the lines that fill the caches.
        assert!((0..1_000).all(|page| placed(page * PAGE, 0) < OLD));
    }

    const UNDER_WAY: UnderWay = UnderWay { posted: 96, queued: 64, held: 96, peak: None };

    /// What a frame costs in a small part of the Xeon's caches.
    fn cost(kind: PoolKind, cold_lines: u64, change: impl Fn(&mut Setup)) -> PerFrame {
        let (touches, mix) = (Touches::recorded().unwrap(), Mix::cable());
        let frames_of = Frames::new(touches.frames(false).unwrap(), &mix);
        let model = Model::find("xeon-gold-6148").unwrap();
        let mut setup = Setup {
            instances: 1,
            ways: 2,
            under_way: UNDER_WAY,
            cold_lines,
            per_thousand: frames_of.packets_per_thousand(),
            frames: 1_024,
            modems: cable::MODEMS,
            ring: None,
            placement: 0,
        };
        change(&mut setup);
        let frames = frames(&model, &setup);
        let order =
            Kind::Ours(kind, 0, 0).order(&model, 8_192, UNDER_WAY, frames, setup.per_thousand).unwrap();
        run(&model, &setup, &order, &frames_of).unwrap()
    }

    #[test]
    fn counting_begins_with_caches_as_full_as_they_will_be() {
        // Counted for eight times as long it is nearly the same: each cold line is read, and for each an old one is written back. Until all old lines have gone,
        // of which none is clean, a little more is written.
        let early = cost(PoolKind::Stack, 2, |_| ());
        let longer = cost(PoolKind::Stack, 2, |setup| setup.frames *= 8);
        assert!((early.reads - longer.reads).abs() < 0.15, "{early:?} {longer:?}");
        assert!((early.writes - longer.writes).abs() < 0.4, "{early:?} {longer:?}");
        assert!((1.9..2.8).contains(&early.writes), "{early:?}");
        let ring = cost(PoolKind::Ring, 0, |_| ());
        // All lines of a ring's buffers are written back, from the first on.
        assert!(ring.writes > 26.0, "{ring:?}");
    }

    #[test]
    fn a_ring_goes_through_its_array() {
        let [without, with] = [None, Some(32_767)]
            .map(|ring| cost(PoolKind::Stack, 0, |setup| setup.ring = ring))
            .map(|cost| [cost.reads, cost.writes]);
        // A line for each eight buffers of each pool; in many bursts none.
        let more = [0, 1].map(|way| with[way] - without[way]);
        assert!((0.2..0.35).contains(&more[0]) && (0.1..0.5).contains(&more[1]), "{more:?}");
    }
}
