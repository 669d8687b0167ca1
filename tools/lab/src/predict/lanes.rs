//! Lanes that forward, in the model: real pools say the order of buffers, and what was recorded says which lines a packet touches.

use super::configuration::{Configuration, PortRings, Table};
use crate::cache_model::{Hierarchy, LINE_BYTES};
use crate::error::LabError;
use crate::memory_traffic::forward_touches::FamilyTouches;
use crate::memory_traffic::machines::Model;
use crate::memory_traffic::orders::BURST;
use crate::memory_traffic::replay::PerFrame;
use crate::memory_traffic::touches::Lines;
use crate::random::Xorshift;
use std::collections::{HashSet, VecDeque};
use std::sync::mpsc::{Receiver, Sender, channel};
use warmlane_mem::{Burst, Packet, Pool};

/// Where a lane's buffers are. `T` is a packet, or the place of one.
struct Way<T> {
    /// In each port's receive ring.
    posted: Vec<VecDeque<T>>,
    depths: Vec<usize>,
    /// In each port's transmit ring.
    held: Vec<VecDeque<T>>,
    holds: Vec<usize>,
}

impl<T> Way<T> {
    fn new(rings: &[Rings]) -> Self {
        let empty = || rings.iter().map(|_| VecDeque::new()).collect();
        Self {
            posted: empty(),
            depths: rings.iter().map(|rings| rings.posted).collect(),
            held: empty(),
            holds: rings.iter().map(|rings| rings.held).collect(),
        }
    }

    /// The port whose turn it is, and the one that its packets leave by.
    const fn ports(&self, step: usize) -> [usize; 2] {
        let count = self.posted.len();
        [step % count, (step + 1) % count]
    }

    /// Buffers are posted; those of the packets that come meanwhile.
    fn receive(&mut self, port: usize, taken: impl IntoIterator<Item = T>) -> Vec<T> {
        let posted = &mut self.posted[port];
        posted.extend(taken);
        let came = posted.len().saturating_sub(self.depths[port]);
        posted.drain(..came.min(posted.len())).collect()
    }

    /// Packets leave; those that are gone and are freed.
    fn send(&mut self, port: usize, packets: Vec<T>) -> Vec<T> {
        let held = &mut self.held[port];
        held.extend(packets);
        let gone = held.len().saturating_sub(self.holds[port]);
        held.drain(..gone).collect()
    }
}

/// How many buffers a port has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rings {
    pub(super) posted: usize,
    pub(super) held: usize,
}

/// What a pool must have for all rings, and what lanes keep besides.
pub(super) fn needed(configuration: &Configuration) -> u64 {
    let in_rings =
        |port: &PortRings| u64::from(port.held) + if port.posts { u64::from(port.entries) } else { 0 };
    let rings: u64 = configuration.ports.iter().map(in_rings).sum();
    let magazines = 2 * u64::from(configuration.pool.magazine_size());
    configuration.lanes as u64 * (rings + magazines + 2 * BURST as u64)
}

/// The rings that are filled: if the pool has too few buffers, each as far as they go.
pub(super) fn rings(configuration: &Configuration) -> Vec<Rings> {
    let Configuration { pool, lanes, ports, .. } = configuration;
    let posting = ports.iter().filter(|port| port.posts).count().max(1) as u64;
    let held: u64 = ports.iter().map(|port| u64::from(port.held)).sum();
    let reserve = 2 * u64::from(pool.magazine_size()) + 2 * BURST as u64 + held;
    let of_lane = u64::from(pool.buffers) / (*lanes as u64).max(1);
    let most = of_lane.saturating_sub(reserve) / posting;
    let of_port = |port: &PortRings| Rings {
        posted: if port.posts { u64::from(port.entries).min(most) as usize / BURST * BURST } else { 0 },
        held: port.held as usize,
    };
    ports.iter().map(of_port).collect()
}

/// The buffers that each lane takes, in their order, as bytes from the pool's first: those that fill the rings, then a burst a step.
pub(super) fn orders(
    pool: &Pool,
    lanes: usize,
    rings: &[Rings],
    steps: usize,
) -> Result<Vec<Vec<u64>>, LabError> {
    let empty = || LabError::setup("the pool has run out of buffers: give it more");
    std::thread::scope(|scope| {
        let start = |_| {
            let (turn, turns) = channel();
            let (tell, told) = channel();
            scope.spawn(move || take_turns(pool, rings, &turns, &tell));
            Taker { turn, told, order: Vec::new() }
        };
        let mut lanes: Vec<Taker> = (0..lanes).map(start).collect();
        // One lane after the other, so that the order is the same each time.
        for step in 0..filling(rings) + steps {
            for Taker { turn, told, order } in &mut lanes {
                let taken = turn.send(step).ok().and_then(|()| told.recv().ok()).flatten();
                order.extend(taken.ok_or_else(empty)?);
            }
        }
        Ok(lanes.into_iter().map(|lane| lane.order).collect())
    })
}

/// A lane that takes buffers when it is its turn.
struct Taker {
    turn: Sender<usize>,
    told: Receiver<Option<Vec<u64>>>,
    order: Vec<u64>,
}

/// Steps until all rings are full.
fn filling(rings: &[Rings]) -> usize {
    let deepest = rings.iter().map(|rings| rings.posted).max().unwrap_or(0);
    deepest / BURST * rings.len()
}

/// A lane, step by step.
fn take_turns(pool: &Pool, rings: &[Rings], turns: &Receiver<usize>, tell: &Sender<Option<Vec<u64>>>) {
    let Ok(_lane) = pool.attach() else { return };
    let stride = pool.stride() as u64;
    let mut way = Way::<Packet>::new(rings);
    let mut burst = Burst::with_limit(BURST);
    for step in turns {
        let [from, to] = way.ports(step);
        let count = pool.take_burst(&mut burst, BURST);
        let offsets = burst.iter().map(|packet| u64::from(packet.id().index()) * stride).collect();
        let came = way.receive(from, burst.drain());
        for packet in way.send(to, came) {
            if burst.len() == BURST {
                burst.clear();
            }
            // There is space for it.
            let _ = burst.push(packet);
        }
        burst.clear();
        if tell.send((count == BURST).then_some(offsets)).is_err() {
            return;
        }
    }
}

/// What a lane has in memory of its own, and what all share, as lines from the first.
const BUFFERS: u64 = 1 << 38;
const TABLES: u64 = 1 << 37;
const LANE: u64 = 1 << 30;
const RINGS: u64 = 1 << 26;
const SLOTS: u64 = 1 << 27;
/// An instance's share of all these.
const INSTANCE: u64 = 1 << 40;

/// Lines of a buffer in front of a frame: a header of one and the headroom of 128 bytes, as recorded.
const BEFORE_FRAME: u64 = 3;

/// What the families' packets touch, IPv4 first.
pub(super) type Families = [FamilyTouches; 2];

/// A lane in the model.
struct Lane<'a> {
    core: usize,
    instance: u64,
    number: u64,
    order: &'a [u64],
    way: Way<u64>,
    ports: &'a [PortRings],
    tables: &'a [Table],
    touches: &'a Families,
    sizes: &'a [u16],
    random: Xorshift,
    frames: usize,
    /// Bursts that each port has had, in and out.
    bursts: Vec<[u64; 2]>,
}

impl Lane<'_> {
    fn own(&self) -> u64 {
        self.instance * INSTANCE + (self.number + 1) * LANE
    }

    fn touch(&self, levels: &mut Hierarchy, buffer: u64, lines: &Lines) {
        for (lines, write) in [(&lines.read, false), (&lines.written, true)] {
            for &line in lines {
                levels.access(self.core, buffer + u64::from(line), write);
            }
        }
    }

    /// The table and the touches of a packet's family: families with routes take turns.
    fn family(&self, frame: usize) -> (usize, &FamilyTouches) {
        let table = frame % self.tables.len().max(1);
        let is_ipv6 = self.tables.get(table).is_some_and(|table| table.ipv6);
        (table, &self.touches[usize::from(is_ipv6)])
    }

    /// A burst's entries of a port's rings, which a device writes or reads.
    fn entries(&mut self, levels: &mut Hierarchy, port: usize, sends: bool) {
        let PortRings { entries, entry_bytes, .. } = self.ports[port];
        let bursts = &mut self.bursts[port][usize::from(sends)];
        let place = *bursts * BURST as u64;
        *bursts += 1;
        if entries == 0 {
            return;
        }
        // Half of an entry's bytes are those of the direction.
        let bytes = u64::from(entry_bytes / 2);
        let first = self.own() + RINGS + (port as u64 * 2 + u64::from(sends)) * (RINGS >> 8);
        let begin = place % u64::from(entries) * bytes;
        let lines =
            (first + begin / LINE_BYTES)..(first + (begin + bytes * BURST as u64).div_ceil(LINE_BYTES));
        levels.device_write(lines.start * LINE_BYTES, (lines.end - lines.start) * LINE_BYTES);
        for line in lines {
            levels.access(self.core, line, true);
        }
    }

    /// One burst comes and one leaves.
    fn step(&mut self, levels: &mut Hierarchy, step: usize) {
        let [from, to] = self.way.ports(step);
        let pool = self.instance * INSTANCE + BUFFERS;
        let taken = &self.order[step * BURST..(step + 1) * BURST];
        let buffers: Vec<u64> = taken.iter().map(|offset| pool + offset / LINE_BYTES).collect();
        for &buffer in &buffers {
            let (_, touches) = self.family(0);
            self.touch(levels, buffer, &touches.take);
        }
        let came = self.way.receive(from, buffers);
        if !came.is_empty() {
            self.entries(levels, from, false);
            for line in 0..u64::from(self.touches[0].hot) {
                levels.access(self.core, self.own() + line, true);
            }
        }
        for &buffer in &came {
            self.packet(levels, buffer, [from, to]);
        }
        if !came.is_empty() {
            self.entries(levels, to, true);
        }
        for buffer in self.way.send(to, came) {
            let (_, touches) = self.family(0);
            self.touch(levels, buffer, &touches.free);
        }
    }

    /// A packet comes into a buffer, is forwarded, and leaves.
    fn packet(&mut self, levels: &mut Hierarchy, buffer: u64, [from, to]: [usize; 2]) {
        let frame = self.frames;
        self.frames += 1;
        // Devices leave the frame check sequence out.
        let bytes = u64::from(self.sizes[frame % self.sizes.len()]).saturating_sub(4).max(1);
        let data = buffer + BEFORE_FRAME;
        let lines = bytes.div_ceil(LINE_BYTES);
        let PortRings { posts, entries, slot_bytes, .. } = self.ports[from];
        if posts {
            levels.device_write(data * LINE_BYTES, bytes);
        } else {
            if slot_bytes > 0 {
                let slot = frame as u64 % u64::from(entries.max(1)) * u64::from(slot_bytes) / LINE_BYTES;
                let first = self.own() + SLOTS + from as u64 * (SLOTS >> 4) + slot;
                levels.device_write(first * LINE_BYTES, bytes);
                (first..first + lines).for_each(|line| {
                    levels.access(self.core, line, false);
                });
            }
            (data..data + lines).for_each(|line| {
                levels.access(self.core, line, true);
            });
        }
        let (table, touches) = self.family(frame);
        self.touch(levels, buffer, &touches.lane);
        let lookup = touches.lookup;
        if let Some(Table { ipv6, reached, .. }) = self.tables.get(table) {
            let first = self.instance * INSTANCE + TABLES + u64::from(*ipv6) * (TABLES >> 2);
            // So many on average: 2.3 lines are two, or three for three packets in ten.
            #[expect(clippy::cast_sign_loss, reason = "no packet touches less than no lines")]
            let count = (lookup + self.random.below(1_000) as f64 / 1e3) as usize;
            for _ in 0..count {
                levels.access(self.core, first + self.random.below(*reached as usize) as u64, false);
            }
        }
        if self.ports[to].posts {
            levels.device_read(data * LINE_BYTES, bytes);
        } else if self.ports[to].driver != "null" {
            (data..data + lines).for_each(|line| {
                levels.access(self.core, line, false);
            });
        }
    }
}

/// Frames that each lane is counted for.
const COUNTED: usize = 8_192;

/// Frames before them at most.
const LONGEST_WARM_UP: usize = 262_144;

/// What a packet costs, and how many different buffers go round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Forwarded {
    pub(super) per_packet: PerFrame,
    pub(super) circulating: usize,
}

/// Lets all instances' lanes forward side by side, as many as share a last level, and counts once all is warm.
pub(super) fn run(
    model: &Model,
    ways: u32,
    together: [usize; 2],
    configuration: &Configuration,
    touches: &Families,
    sizes: &[u16],
) -> Result<Forwarded, LabError> {
    let [lanes, instances] = together;
    let rings = rings(configuration);
    let warm_up = warm_up(configuration, &rings, touches) / BURST;
    let steps = warm_up + COUNTED / BURST;
    let pool =
        Pool::new(&model.lay_out(super::figures::of_model(&configuration.pool))).map_err(LabError::setup)?;
    let orders = orders(&pool, lanes, &rings, steps)?;
    drop(pool);
    let mut levels = model.hierarchy(lanes * instances, ways).map_err(LabError::setup)?;
    let mut all: Vec<Lane<'_>> = Vec::new();
    for instance in 0..instances {
        for (number, order) in orders.iter().enumerate() {
            let mut random = Xorshift(Xorshift::SEED);
            for _ in 0..all.len() {
                random.below(1_000);
            }
            all.push(Lane {
                core: instance * lanes + number,
                instance: instance as u64 + 1,
                number: number as u64,
                order,
                way: Way::new(&rings),
                ports: &configuration.ports,
                tables: &configuration.tables,
                touches,
                sizes,
                random,
                frames: number,
                bursts: vec![[0; 2]; rings.len()],
            });
        }
    }
    let whole = filling(&rings) + steps;
    let counted = COUNTED / BURST;
    for step in 0..whole {
        if step == whole - counted {
            levels.forget_counts();
        }
        for lane in &mut all {
            lane.step(&mut levels, step);
        }
    }
    let frames = (counted * BURST * all.len()) as f64;
    let tail = |order: &Vec<u64>| order[order.len() - steps * BURST / 2..].to_vec();
    let circulating = orders.iter().flat_map(tail).collect::<HashSet<_>>().len();
    Ok(Forwarded { per_packet: PerFrame::of(&levels, lanes * instances, frames), circulating })
}

/// Frames of a lane until each buffer has gone round, and most lines of tables were read, a few times.
fn warm_up(configuration: &Configuration, rings: &[Rings], touches: &Families) -> usize {
    let in_rings: usize = rings.iter().map(|rings| rings.posted + rings.held).sum();
    let buffers = match configuration.pool.kind {
        warmlane_mem::PoolKind::Ring => configuration.pool.buffers as usize / configuration.lanes.max(1),
        _ => in_rings + 2 * configuration.pool.magazine_size() as usize,
    };
    let of_table = |table: &Table| {
        let lookup = touches[usize::from(table.ipv6)].lookup.max(0.5);
        #[expect(clippy::cast_sign_loss, reason = "no table has less than no lines")]
        let frames = (table.reached as f64 / lookup) as usize;
        frames * configuration.tables.len() / configuration.lanes.max(1)
    };
    let tables = configuration.tables.iter().map(of_table).max().unwrap_or(0);
    (4 * buffers).max(2 * tables).clamp(COUNTED, LONGEST_WARM_UP).next_multiple_of(BURST)
}
