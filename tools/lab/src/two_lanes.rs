//! Buffers that one lane takes and fills and another one reads and frees.

use crate::error::LabError;
use crate::measure::Measure;
use crate::modelled::{self, Access, Step, Workload};
use crate::partner::Partner;
use warmlane_mem::{
    BURST_CAPACITY, Burst, LINE_BYTES, LaneCache, PacketSender, Pool, PoolConfig, PoolKind, channel,
};

/// Bursts in a unit of work: well below a millisecond.
const BURSTS: usize = 64;

/// Slots for the burst, one after the other from round to round.
const SLOTS: usize = 16;

/// From one slot to the next: an odd number of lines, so that they are all over a page.
const APART: usize = 35 * LINE_BYTES;

/// A burst, and what keeps the next one off.
///
/// A load whose address ends in the same 12 bits as that of a store before it waits for that store (Intel 64 and IA-32
/// Architectures Optimization Reference Manual, "4-KByte aliasing"), and the store to a header waits for a line from the other
/// core. So it matters where in its page a list of packets lies, which is the allocator's whim: of 24 ways to lay out the
/// same lanes two took 41 cycles a packet and the others 35 to 37 (Granite Rapids, headers of 131,072 buffers, 20,000 held).
/// A figure that is a median of rounds in different slots does not depend on it.
struct Slot {
    burst: Burst,
    _apart: [u8; APART - size_of::<Burst>()],
}

/// What the lanes do.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) kind: PoolKind,
    /// Buffers that a lane keeps, in magazines of so many; 0: none.
    pub(crate) magazine: u32,
    /// Buffers that a depot keeps going round, if it is not to find their number itself.
    pub(crate) hot_set: Option<u32>,
    pub(crate) buffers: u32,
    pub(crate) burst: usize,
    /// Frame lengths in bytes, over and over.
    pub(crate) lengths: Vec<usize>,
    /// Bytes of each frame that are written and read at most.
    pub(crate) touched: usize,
    /// Packets between the lanes: at most so many, or, if they are held, about that.
    pub(crate) under_way: usize,
    /// The second lane leaves packets lying until so many are under way.
    pub(crate) held: bool,
    /// How many more than those may lie between the lanes; `None`: as many as the channel has space for, which is
    /// a power of two.
    pub(crate) beyond_held: Option<usize>,
}

impl Default for Shape {
    /// Full-length frames in a large pool.
    fn default() -> Self {
        let usual = PoolConfig::default();
        Self {
            kind: usual.kind,
            magazine: usual.magazine_size(),
            hot_set: None,
            buffers: 65_535,
            burst: 32,
            lengths: vec![1_520],
            touched: usize::MAX,
            under_way: 256,
            held: false,
            beyond_held: None,
        }
    }
}

impl Shape {
    fn pool(&self, name: &str) -> PoolConfig {
        PoolConfig {
            name: name.to_owned(),
            kind: self.kind,
            magazine: Some(self.magazine),
            hot_set: self.hot_set,
            buffers: self.buffers,
            ..PoolConfig::default()
        }
    }

    /// What the lanes do, for a model of caches: as many packets as may be are always under way.
    pub(crate) fn workload(&self) -> Result<Workload, LabError> {
        self.workload_with(self.under_way)
    }

    /// The same with so many under way.
    pub(crate) fn workload_with(&self, under_way: usize) -> Result<Workload, LabError> {
        let packets = modelled::rounds(self.buffers as usize, under_way);
        let order = modelled::order(&self.pool("modelled"), packets, self.burst, under_way, true)?;
        let written =
            Step { after: 0, by_second: false, lines: &[(0, Access::Write)], data: Some(Access::Write) };
        let read = Step {
            after: order.behind,
            by_second: true,
            lines: &[(0, Access::Read)],
            data: Some(Access::Read),
        };
        Ok(Workload {
            order,
            burst: self.burst,
            lengths: self.lengths.iter().map(|&length| length.min(self.touched)).collect(),
            data_line: modelled::BEFORE_DATA,
            steps: vec![written, read],
        })
    }
}

impl Slot {
    fn new(limit: usize) -> Self {
        Self { burst: Burst::with_limit(limit), _apart: [0; APART - size_of::<Burst>()] }
    }
}

/// The first lane, ready to be measured.
pub(crate) struct TwoLanes {
    lengths: Vec<usize>,
    next: usize,
    touched: usize,
    template: Vec<u8>,
    slots: Vec<Slot>,
    slot: usize,
    sender: PacketSender,
    distance: Distance,
    partner: Partner,
    pool: Pool,
    _lane: LaneCache,
}

/// How many packets lie between the lanes, and how many may.
struct Distance {
    most: u64,
    sent: u64,
    /// How many the second lane had received when it was last looked: looked again only when it matters, as at a full ring.
    received: u64,
}

impl Distance {
    /// Whether so many more may be sent.
    fn allows(&mut self, count: usize, sender: &PacketSender) -> bool {
        let after = self.sent + count as u64;
        if after > self.received.saturating_add(self.most) {
            self.received = sender.counters().received.get();
        }
        after <= self.received.saturating_add(self.most)
    }
}

impl TwoLanes {
    /// Attaches the calling thread, and starts the second lane on `second_cpu`.
    pub(crate) fn start(name: &str, shape: &Shape, second_cpu: usize) -> Result<Self, String> {
        let pool = Pool::new(&shape.pool(name)).map_err(|error| error.to_string())?;
        let lane = pool.attach().map_err(|error| error.to_string())?;
        // Space for what is held, and for what comes meanwhile.
        let slots = if shape.held { shape.under_way + BURST_CAPACITY } else { shape.under_way };
        let (sender, mut receiver) = channel(slots.next_power_of_two()).map_err(|error| error.to_string())?;
        let most = match shape.beyond_held {
            Some(beyond) if shape.held => (shape.under_way + beyond) as u64,
            _ => u64::MAX,
        };
        let least = if shape.held { shape.under_way } else { 1 };
        let (limit, touched) = (shape.burst, shape.touched);
        let theirs = pool.clone();
        let partner = Partner::start(second_cpu, move || {
            let lane = theirs.attach().map_err(|error| error.to_string())?;
            let mut burst = Burst::with_limit(limit);
            Ok(move || {
                let _lane = &lane;
                if receiver.len() < least || receiver.receive(&mut burst) == 0 {
                    std::hint::spin_loop();
                    return;
                }
                for packet in &*burst {
                    let data = packet.data();
                    read_lines(&data[..data.len().min(touched)]);
                }
                burst.clear();
            })
        })?;
        let longest = shape.lengths.iter().copied().max().unwrap_or(0);
        Ok(Self {
            lengths: shape.lengths.clone(),
            next: 0,
            touched,
            template: vec![0x5a; longest],
            slots: (0..SLOTS).map(|_| Slot::new(shape.burst)).collect(),
            slot: 0,
            sender,
            distance: Distance { most, sent: 0, received: 0 },
            partner,
            pool,
            _lane: lane,
        })
    }
}

/// Reads a word of each cache line.
#[inline(always)]
pub(crate) fn read_lines(data: &[u8]) {
    for line in data.chunks(64) {
        if let Some(word) = line.first_chunk::<8>() {
            std::hint::black_box(u64::from_ne_bytes(*word));
        }
    }
}

impl Measure for TwoLanes {
    fn work(&mut self) -> u64 {
        let mut sent = 0;
        let burst = &mut self.slots[self.slot].burst;
        for _ in 0..BURSTS {
            let size = burst.limit();
            let allowed = self.distance.allows(size, &self.sender);
            if !allowed || !self.pool.take_bulk(burst, size) {
                // The second lane has them.
                std::hint::spin_loop();
                continue;
            }
            for packet in burst.iter_mut() {
                let length = self.lengths[self.next];
                self.next += 1;
                if self.next == self.lengths.len() {
                    self.next = 0;
                }
                // The frame's header if no more is to be touched; the packet has its whole length all the same.
                if packet.fill(&self.template[..length.min(self.touched)]).is_ok() && self.touched < length {
                    let _ = packet.append(length - self.touched);
                }
            }
            while !burst.is_empty() {
                let count = self.sender.send(burst);
                sent += count as u64;
                self.distance.sent += count as u64;
                if count == 0 {
                    std::hint::spin_loop();
                }
            }
        }
        sent
    }

    fn begin(&mut self) {
        self.slot = (self.slot + 1) % SLOTS;
        self.partner.resume();
    }

    fn end(&mut self) {
        self.partner.pause();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_lie_between_the_lanes_than_may() {
        let pool = Pool::new(&PoolConfig { buffers: 128, ..PoolConfig::default() }).unwrap();
        let (mut sender, mut receiver) = channel(128).unwrap();
        let mut distance = Distance { most: 40, sent: 0, received: 0 };
        let (mut burst, mut received) = (Burst::new(), Burst::new());
        assert!(distance.allows(32, &sender) && pool.take_bulk(&mut burst, 32));
        distance.sent += sender.send(&mut burst) as u64;
        assert!(distance.allows(8, &sender) && !distance.allows(9, &sender));
        assert_eq!(receiver.receive(&mut received), 32);
        assert!(distance.allows(40, &sender) && !distance.allows(41, &sender));
    }
}
