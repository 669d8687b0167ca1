//! The receiving end: posts buffers, and takes packets.

use crate::bpf::Program;
use crate::drops::ReceiveDrop;
use crate::left_checksum::{SampleCounters, SampleCountersView, is_left};
use crate::pieces::Pieces;
use crate::ring::{CONTINUES, Consumer, Descriptor, Producer};
use crate::socket::{Channel, XdpCostCounters, XdpCostCountersView, XdpStatistics};
use crate::umem::Geometry;
use crate::wake;
use rustix::io::Errno;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use warmlane_counters::Source;
use warmlane_driver_common::{FillLevel, LentBuffers, LentMarks, interface_gone};
use warmlane_mem::{BURST_CAPACITY, BufferOffsets, Burst, METADATA_BYTES, Region, Span};
use warmlane_port::{CountDropped as _, QueueCounters, ReceiveQueue, queue_report};
use warmlane_sys::prefetch;

/// With chunks anywhere, an address is the chunk's in its lower 48 bits, and the data's distance from it above
/// (`XSK_UNALIGNED_BUF_OFFSET_SHIFT`).
const DISTANCE_SHIFT: u32 = 48;
const CHUNK_MASK: u64 = (1 << DISTANCE_SHIFT) - 1;

/// Buffers posted at least, and after a pause.
const LEVEL_MINIMUM: u32 = 128;
const LEVEL_INITIAL: u32 = 1024;

/// When queues post for a sleep, they leave one in so many buffers of the pool for others.
const LEFT_IN_SLEEP: u32 = 2;

/// Buffers are posted at least this many at a time, as long as a quarter of the level is not needed at once.
const REFILL: u32 = 32;

/// How many polls go by before the clock is looked at, and how much time before the kernel is asked whether the
/// interface is still there, and what it dropped.
const POLLS_PER_CHECK: u32 = 1024;
const TIME_PER_CHECK: Duration = Duration::from_millis(100);

pub(crate) struct XdpReceive {
    region: Region,
    geometry: Geometry,
    /// Fields are dropped in this order: the program no longer redirects here, the rings are unmapped, the socket is
    /// closed.
    _program: Arc<Program>,
    fill: Producer<u64>,
    ring: Consumer<Descriptor>,
    channel: Arc<Channel>,
    name: String,
    busy_poll: bool,
    lent: LentBuffers,
    level: FillLevel,
    /// Buffers posted for a sleep, if the pool has plenty.
    asleep: u32,
    /// Names on their way from the pool to the fill ring.
    indices: Box<[u32; BURST_CAPACITY]>,
    pieces: Pieces,
    counters: QueueCounters<ReceiveDrop>,
    polls: u32,
    checked: Instant,
    told: XdpStatistics,
    costs: XdpCostCounters,
    /// Packets are sampled for checksums that are left to hardware.
    samples: Option<SampleCounters>,
    failure: Option<String>,
}

/// What a receiving end is made of.
pub(crate) struct Parts {
    pub(crate) region: Region,
    pub(crate) geometry: Geometry,
    pub(crate) program: Arc<Program>,
    pub(crate) fill: Producer<u64>,
    pub(crate) ring: Consumer<Descriptor>,
    pub(crate) channel: Arc<Channel>,
    pub(crate) name: String,
    pub(crate) entries: u32,
    pub(crate) busy_poll: bool,
    /// Senders may leave checksums to hardware that there isn't.
    pub(crate) may_lack_checksums: bool,
}

impl XdpReceive {
    /// Takes over, and posts the first buffers.
    pub(crate) fn new(parts: Parts) -> Self {
        // A pool is there for all queues and both directions.
        let fair = (parts.region.buffers() / 8).max(1);
        let mut receive = Self {
            lent: LentBuffers::new(parts.region.buffers()),
            asleep: parts.entries.min(fair),
            level: FillLevel::new(LEVEL_MINIMUM.min(fair), LEVEL_INITIAL.min(fair), parts.entries),
            region: parts.region,
            geometry: parts.geometry,
            _program: parts.program,
            fill: parts.fill,
            ring: parts.ring,
            channel: parts.channel,
            name: parts.name,
            busy_poll: parts.busy_poll,
            indices: Box::new([0; BURST_CAPACITY]),
            pieces: Pieces::default(),
            counters: QueueCounters::new(),
            polls: 0,
            checked: Instant::now(),
            told: XdpStatistics::default(),
            costs: XdpCostCounters::new(),
            samples: parts.may_lack_checksums.then(SampleCounters::new),
            failure: None,
        };
        receive.refill();
        receive
    }

    /// What it costs, to read.
    pub(crate) fn costs(&self) -> XdpCostCountersView {
        self.costs.view()
    }

    /// What is sampled, to read.
    pub(crate) fn samples(&self) -> Option<SampleCountersView> {
        self.samples.as_ref().map(SampleCounters::view)
    }

    /// Posts buffers up to the level.
    #[inline]
    fn refill(&mut self) {
        let missing = self.missing();
        if missing > 0 {
            self.post(missing);
        }
    }

    /// How many buffers are to be posted: none while only a few are missing.
    #[inline(always)]
    fn missing(&self) -> u32 {
        let target = self.level.target();
        let missing = target.saturating_sub(self.fill.under_way());
        if missing >= REFILL.min(target / 4).max(1) { missing } else { 0 }
    }

    /// Posts as many buffers as the ring takes: how late the lane will wake is unknown. Its level stays what it was, so that a
    /// lane under load doesn't go through more of them than it needs.
    fn post_for_sleep(&mut self) {
        let pool = self.region.pool();
        let spare = pool.available().saturating_sub(pool.buffers() / LEFT_IN_SLEEP);
        let missing = self.asleep.saturating_sub(self.fill.under_way()).min(spare);
        if missing >= REFILL {
            self.post(missing);
        }
    }

    fn post(&mut self, missing: u32) {
        // Neither the level nor what is posted for a sleep is above the ring's size, so there is space for all.
        let (offsets, start) = (self.region.offsets(), self.geometry.start);
        let (mut fill, mut marks) = (self.fill.writer(), self.lent.marks());
        let mut missing = missing as usize;
        while missing > 0 {
            let wanted = missing.min(BURST_CAPACITY);
            let taken = self.region.take_raw(&mut self.indices[..wanted]);
            for &index in &self.indices[..taken] {
                marks.lend(index);
                fill.write(offsets.of(index) + start);
            }
            if taken < wanted {
                break;
            }
            missing -= taken;
        }
        drop(fill);
        self.fill.publish();
        if self.channel.zero_copy && self.fill.needs_wakeup() {
            self.wake();
        }
    }

    fn wake(&mut self) {
        self.costs.wake_calls().add(1);
        if let Err(Errno::NXIO | Errno::NODEV) = wake::receiver(&self.channel.fd) {
            self.failure.get_or_insert_with(|| interface_gone(&self.name));
        }
    }

    #[cold]
    fn fail_corrupt(&mut self) {
        self.failure.get_or_insert_with(|| {
            format!("interface {:?}: the kernel's ring index is impossible; restart the program", self.name)
        });
    }

    /// Takes `count` descriptors that wait, each a packet. Returns how many buffers came.
    #[inline]
    fn take_whole(&mut self, burst: &mut Burst, count: u32) -> u32 {
        let base = self.region.address().as_ptr();
        let (offsets, end) = (self.region.offsets(), self.region.end());
        let mut marks = self.lent.marks();
        let waiting = self.ring.waiting();
        waiting.prefetch(count);
        let mut bytes = 0;
        let spans = (0..count).filter_map(|number| {
            let descriptor = waiting.get(number);
            // The headers are read and rewritten soon. Not yet believed, but to ask for a line does no harm wherever it is.
            prefetch::prefetch_write_at(base.wrapping_add(address_of(descriptor) as usize));
            let span = accept(offsets, end, &mut marks, descriptor)?;
            bytes += u64::from(span.length);
            Some(span)
        });
        // SAFETY: `accept` saw that the kernel had each buffer and has it no longer, and that the span is inside; the caller
        // left space in the burst.
        let good = unsafe { self.region.packets_from_raw(spans, burst) };
        self.ring.release(count);
        self.counters.count(good as u64, bytes);
        if good < count as usize {
            let bad = u64::from(count) - good as u64;
            self.counters.drops().count(ReceiveDrop::BadDescriptor, bad);
        }
        good as u32
    }

    /// Takes `count` descriptors that wait, some of which are pieces of packets. Returns how many buffers came.
    #[cold]
    fn take_pieces(&mut self, burst: &mut Burst, count: u32) -> u32 {
        let mut buffers = 0;
        for number in 0..count {
            let descriptor = self.ring.waiting().get(number);
            let is_last = descriptor.options & CONTINUES == 0;
            let mut piece = Burst::with_limit(1);
            let offsets = self.region.offsets();
            let span = accept(offsets, self.region.end(), &mut self.lent.marks(), descriptor);
            // SAFETY: as in `take_whole`.
            buffers += unsafe { self.region.packets_from_raw(span.into_iter(), &mut piece) } as u32;
            match self.pieces.add(piece.pop(), is_last) {
                Ok(None) => {}
                Ok(Some(packet)) => {
                    self.counters.count(1, packet.packet_length() as u64);
                    // There is space: no more packets than descriptors come, and the caller left space for these.
                    drop(burst.push(packet));
                }
                Err((reason, found)) => self.counters.drops().count_found(reason, found.as_ref()),
            }
        }
        self.ring.release(count);
        buffers
    }

    /// Whether packets of several buffers are under way.
    #[inline]
    fn has_pieces(&self, count: u32) -> bool {
        self.channel.fragments
            && (self.pieces.has_begun()
                || (0..count).any(|number| self.ring.waiting().get(number).options & CONTINUES != 0))
    }

    /// Asks the kernel now and then whether the interface is there, and what it dropped.
    #[cold]
    fn check(&mut self) {
        if self.checked.elapsed() < TIME_PER_CHECK {
            return;
        }
        self.checked = Instant::now();
        self.wake();
        self.count_losses();
    }

    fn count_losses(&mut self) {
        let Some(now) = self.channel.statistics() else { return };
        let since = |read: fn(&XdpStatistics) -> u64| read(&now).saturating_sub(read(&self.told));
        let dropped = since(|statistics| statistics.receive_dropped);
        // In copy mode a packet without a buffer is counted as both; without copies, the device drops it and we are
        // only told that it looked for buffers.
        let without_buffer = since(|statistics| statistics.fill_ring_empty).min(dropped);
        for (reason, count) in [
            (ReceiveDrop::RingFull, since(|statistics| statistics.receive_ring_full)),
            (ReceiveDrop::NoBuffer, without_buffer),
            (ReceiveDrop::Refused, dropped - without_buffer),
        ] {
            self.counters.drops().count(reason, count);
        }
        if since(|statistics| statistics.fill_ring_empty) > 0 {
            self.level.ran_out();
        }
        self.told = now;
    }
}

/// Where the data of a descriptor is said to be, from the start of the region.
#[inline(always)]
const fn address_of(descriptor: Descriptor) -> u64 {
    // The distance is zero where chunks are aligned.
    (descriptor.address & CHUNK_MASK) + (descriptor.address >> DISTANCE_SHIFT)
}

/// Where the data of a descriptor is, if that is in a buffer that the kernel has; the kernel no longer has it then. A
/// buffer of which the descriptor is wrong stays with the kernel until the queue's end.
#[inline(always)]
fn accept(
    offsets: BufferOffsets,
    end: usize,
    marks: &mut LentMarks<'_>,
    descriptor: Descriptor,
) -> Option<Span> {
    let (index, offset) = offsets.locate(address_of(descriptor))?;
    let is_inside = offset >= METADATA_BYTES as u64 && offset + u64::from(descriptor.length) <= end as u64;
    (is_inside && marks.take_back(index)).then_some(Span {
        index,
        offset: offset as u16,
        length: descriptor.length as u16,
    })
}

impl ReceiveQueue for XdpReceive {
    #[inline]
    fn receive(&mut self, burst: &mut Burst) -> usize {
        self.polls += 1;
        if self.polls == POLLS_PER_CHECK {
            self.polls = 0;
            self.check();
        }
        let before = burst.len();
        let space = burst.space().min(BURST_CAPACITY) as u32;
        let Ok(ready) = self.ring.ready(space) else {
            self.fail_corrupt();
            return 0;
        };
        if ready == 0 {
            self.level.empty_poll();
            self.refill();
            if self.busy_poll {
                self.wake();
            }
            return 0;
        }
        let count = ready.min(space);
        self.level.found(ready, count);
        let buffers = if self.has_pieces(count) {
            self.take_pieces(burst, count)
        } else {
            self.take_whole(burst, count)
        };
        // What came was posted, and what the kernel has filled it has taken from that ring.
        self.fill.note_taken(buffers);
        self.refill();
        // One of a burst: as good as all, as it is all or none of a sender's.
        if let (Some(samples), Some(packet)) = (&self.samples, burst.get(before))
            && is_left(packet.data())
        {
            samples.left_checksums().add(1);
        }
        burst.len() - before
    }

    fn event(&mut self) -> Option<BorrowedFd<'_>> {
        // A lane that sleeps polls too seldom to come to it.
        self.check();
        self.level.pause();
        self.refill();
        // Without enough buffers the next burst would be lost, and nobody tells when there are some again.
        if self.failure.is_some() || self.missing() > 0 {
            return None;
        }
        self.post_for_sleep();
        Some(self.channel.fd.as_fd())
    }

    queue_report!(counters);

    fn own_counters(&self) -> Vec<Box<dyn Source>> {
        let samples = self.samples().map(|samples| Box::new(samples) as Box<dyn Source>);
        samples.into_iter().chain([Box::new(self.costs.view()) as Box<dyn Source>]).collect()
    }
}

impl Drop for XdpReceive {
    fn drop(&mut self) {
        self.count_losses();
        // SAFETY: they were lent to this socket and not taken back, or they would not be in here; nobody else
        // remembers them.
        unsafe { self.channel.leave(&self.lent.take_all()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmlane_driver_common::LentBuffers;
    use warmlane_mem::{Pool, PoolConfig};

    #[test]
    fn only_what_the_kernel_has_is_taken_back_and_once() {
        let pool =
            Pool::new(&PoolConfig { buffers: 16, magazine: Some(4), ..PoolConfig::default() }).unwrap();
        let (region, mut lent) = (pool.region(), LentBuffers::new(16));
        let take = |lent: &mut LentBuffers, address: u64, length: u32| {
            let descriptor = Descriptor { address, length, options: 0 };
            accept(region.offsets(), region.end(), &mut lent.marks(), descriptor)
        };
        let third = region.offsets().of(3);
        assert_eq!(take(&mut lent, third + 320, 60), None, "never given");
        lent.marks().lend(3);
        let end = region.end() as u64;
        for (address, length) in [
            (third + 63, 60),
            (third + end - 59, 60),
            (third + 320, u32::MAX),
            (region.offsets().of(4) + 320, 60),
            (region.offsets().of(16) + 320, 60),
            (CHUNK_MASK, 60),
            (u64::MAX, u32::MAX),
        ] {
            assert_eq!(take(&mut lent, address, length), None, "{address} {length}");
        }
        let span = Span { index: 3, offset: 320, length: 60 };
        let apart = (third + 64) | (256 << DISTANCE_SHIFT);
        assert_eq!(take(&mut lent, apart, 60), Some(span));
        assert_eq!(take(&mut lent, third + 320, 60), None, "only once");
    }
}
