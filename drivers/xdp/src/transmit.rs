//! The sending end: hands packets to the kernel, and frees them when it is done with them.

use crate::bpf::Program;
use crate::drops::TransmitDrop;
use crate::receive::XdpReceive;
use crate::ring::{CONTINUES, Consumer, Descriptor, Producer};
use crate::socket::{Channel, XdpCostCounters, XdpCostCountersView};
use crate::transmit_metadata;
use crate::wake;
use rustix::io::Errno;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use warmlane_counters::Source;
use warmlane_driver_common::{LentBuffers, interface_gone};
use warmlane_mem::{BURST_CAPACITY, Burst, Packet, Region};
use warmlane_port::{CountDropped as _, QueueCounters, TransmitQueue, queue_report};

/// Bytes of an Ethernet header, and of a VLAN tag, which an interface carries on top of its MTU.
pub(crate) const ETHERNET: u32 = 14;
pub(crate) const TAG: u32 = 4;

/// Types of frames that start with a VLAN tag (IEEE 802.1Q clause 9).
const TAG_TYPES: [[u8; 2]; 2] = [[0x81, 0x00], [0x88, 0xa8]];

/// Pieces of one frame that the kernel takes at most (`CONFIG_MAX_SKB_FRAGS`, usually).
const PIECES: usize = 17;

/// Calls to send what is in the ring, at most: before Linux 6.17 one sends 32 packets (`TX_BATCH_SIZE` in `net/xdp/xsk.c`), if it
/// copies them.
const CALLS: usize = BURST_CAPACITY / 32;

/// How long the end of a queue waits for what is on its way.
const LAST_WAIT: Duration = Duration::from_millis(200);

pub(crate) struct XdpTransmit {
    /// Of a port that only sends: nobody polls it, but its buffers stay posted. A device that exchanges packets without
    /// copies could not receive for the kernel without them.
    unused: Option<Box<XdpReceive>>,
    region: Region,
    /// Fields are dropped in this order: the program no longer redirects here, the rings are unmapped, the socket is
    /// closed.
    _program: Arc<Program>,
    ring: Producer<Descriptor>,
    completion: Consumer<u64>,
    channel: Arc<Channel>,
    name: String,
    mtu: u32,
    /// Bytes that one descriptor may have.
    piece: usize,
    /// Frames up to here need no closer look.
    plain: u32,
    busy_poll: bool,
    lent: LentBuffers,
    in_flight: u32,
    /// The interface was down at the last attempt.
    is_down: bool,
    indices: Box<[u32; BURST_CAPACITY]>,
    counters: QueueCounters<TransmitDrop>,
    costs: XdpCostCounters,
    failure: Option<String>,
}

/// What a sending end is made of.
pub(crate) struct Parts {
    pub(crate) region: Region,
    pub(crate) program: Arc<Program>,
    pub(crate) ring: Producer<Descriptor>,
    pub(crate) completion: Consumer<u64>,
    pub(crate) channel: Arc<Channel>,
    pub(crate) name: String,
    pub(crate) mtu: u32,
    pub(crate) chunk: u32,
    pub(crate) busy_poll: bool,
}

/// What became of the first packet of a burst.
enum Slow {
    /// It is in the ring: so many bytes.
    Sent(u64),
    /// It was counted as a drop.
    Dropped,
    /// The ring has no space for all its pieces.
    NoSpace,
}

impl XdpTransmit {
    pub(crate) fn new(parts: Parts) -> Self {
        Self {
            unused: None,
            lent: LentBuffers::new(parts.region.buffers()),
            region: parts.region,
            _program: parts.program,
            ring: parts.ring,
            completion: parts.completion,
            piece: parts.chunk as usize - parts.channel.in_front(),
            plain: (parts.mtu + ETHERNET).min(parts.chunk - parts.channel.in_front() as u32),
            channel: parts.channel,
            name: parts.name,
            mtu: parts.mtu,
            busy_poll: parts.busy_poll,
            in_flight: 0,
            is_down: false,
            indices: Box::new([0; BURST_CAPACITY]),
            counters: QueueCounters::new(),
            costs: XdpCostCounters::new(),
            failure: None,
        }
    }

    /// Keeps the receiving end for as long as this one is open.
    pub(crate) fn keep(&mut self, unused: XdpReceive) {
        self.unused = Some(Box::new(unused));
    }

    /// What it costs, to read.
    pub(crate) fn costs(&self) -> XdpCostCountersView {
        self.costs.view()
    }

    /// Frees what the kernel has sent.
    #[inline]
    fn reclaim(&mut self) {
        if self.in_flight == 0 {
            return;
        }
        let Ok(mut ready) = self.completion.ready(1) else {
            self.fail_corrupt();
            return;
        };
        while ready > 0 {
            let count = ready.min(BURST_CAPACITY as u32);
            let (offsets, mut marks) = (self.region.offsets(), self.lent.marks());
            let mut good = 0;
            let waiting = self.completion.waiting();
            for address in (0..count).map(|ahead| waiting.get(ahead)) {
                if let Some((index, _)) = offsets.locate(address)
                    && marks.take_back(index)
                {
                    self.indices[good] = index;
                    good += 1;
                }
            }
            self.completion.release(count);
            // SAFETY: the kernel had each (or it would not have been lent) and has given it back.
            unsafe { self.region.free_raw(&self.indices[..good]) };
            self.in_flight = self.in_flight.saturating_sub(good as u32);
            if good < count as usize {
                let bad = u64::from(count) - good as u64;
                self.counters.drops().count(TransmitDrop::BadCompletion, bad);
            }
            ready -= count;
        }
    }

    #[cold]
    fn fail_corrupt(&mut self) {
        self.failure.get_or_insert_with(|| {
            format!("interface {:?}: the kernel's ring index is impossible; restart the program", self.name)
        });
    }

    /// Free entries of the ring, looked for up to `wanted`.
    #[inline]
    fn free_entries(&mut self, wanted: usize) -> usize {
        if let Ok(space) = self.ring.free_entries(wanted as u32) {
            return space as usize;
        }
        self.fail_corrupt();
        0
    }

    /// Writes packets from the front of the burst into the ring, as long as `fits` says so and no more than `limit`, for which
    /// there is space. Returns how many, and their bytes.
    #[inline(always)]
    fn write(
        &mut self,
        burst: &mut Burst,
        limit: usize,
        options: impl Fn(&Packet) -> u32,
        fits: impl Fn(&Packet) -> bool,
    ) -> (usize, u64) {
        let (offsets, mut marks) = (self.region.offsets(), self.lent.marks());
        let mut bytes = 0;
        let mut ring = self.ring.writer();
        let count = self.region.packets_into_raw(burst, limit, |packet, span| {
            if !fits(packet) {
                return false;
            }
            marks.lend(span.index);
            ring.write(Descriptor {
                address: offsets.of(span.index) + u64::from(span.offset),
                length: u32::from(span.length),
                options: options(packet),
            });
            bytes += u64::from(span.length);
            true
        });
        drop(ring);
        self.in_flight += count as u32;
        (count, bytes)
    }

    /// Handles the first packet of the burst, which can't go into the ring just so.
    #[cold]
    fn send_slowly(&mut self, burst: &mut Burst) -> Slow {
        let Some(packet) = burst.first_mut() else { return Slow::NoSpace };
        let fit = self.examine(packet).and_then(|()| {
            let must_copy = self.needs_copy(packet);
            let piece = self.region.data_size().min(self.piece);
            let pieces = if must_copy { packet.packet_length().div_ceil(piece) } else { packet.segments() };
            match pieces {
                1 => Ok((must_copy, pieces)),
                _ if !self.channel.fragments => Err(TransmitDrop::TooLarge),
                _ if pieces > PIECES => Err(TransmitDrop::TooManyPieces),
                _ => Ok((must_copy, pieces)),
            }
        });
        let bytes = packet.packet_length() as u64;
        let (must_copy, pieces) = match fit {
            Ok(fit) => fit,
            Err(reason) => {
                self.counters.drops().count_packet(reason, packet);
                burst.free_front(1);
                return Slow::Dropped;
            }
        };
        if self.free_entries(pieces) < pieces {
            return Slow::NoSpace;
        }
        let mut one = Burst::with_limit(1);
        burst.move_to(&mut one);
        if must_copy {
            // It is the only one.
            let Some(packet) = one.pop() else { return Slow::NoSpace };
            let Some(copy) = self.copy(&packet) else {
                self.counters.drops().count_packet(TransmitDrop::NoBuffer, &packet);
                return Slow::Dropped;
            };
            drop(one.push(copy));
        }
        // Of the first piece, what is known of the packet.
        let mut told = one.first_mut().map_or(0, |packet| {
            transmit_metadata::write(packet);
            transmit_metadata::options(packet)
        });
        while let Some(mut packet) = one.pop() {
            let rest = packet.split_chain();
            let options = std::mem::take(&mut told) | if rest.is_some() { CONTINUES } else { 0 };
            drop(one.push(packet));
            self.write(&mut one, 1, |_| options, |_| true);
            if let Some(rest) = rest {
                drop(one.push(rest));
            }
        }
        Slow::Sent(bytes)
    }

    /// Whether the packet may leave at all.
    fn examine(&self, packet: &Packet) -> Result<(), TransmitDrop> {
        let length = packet.packet_length();
        if packet.len() < ETHERNET as usize {
            return Err(TransmitDrop::Malformed);
        }
        let is_tagged = packet.data().get(12..14).is_some_and(|kind| TAG_TYPES.iter().any(|tag| tag == kind));
        let limit = self.mtu + ETHERNET + if is_tagged { TAG } else { 0 };
        if length > limit as usize {
            return Err(TransmitDrop::TooLarge);
        }
        Ok(())
    }

    /// Whether a buffer of the packet is not in the region or others hold it as well, or the kernel would not take it: it refuses pieces of no
    /// bytes, and packets of several where it was not told of them in time.
    fn needs_copy(&self, packet: &Packet) -> bool {
        !self.region.holds_chain(packet)
            || packet.has_shared_data()
            || !transmit_metadata::has_space(packet)
            || packet.segments() > 1 && !self.channel.fragments
            || packet.segment_data().any(|data| data.is_empty() || data.len() > self.piece)
    }

    /// A copy of the packet in buffers of the region, as few as it fits; `None` if the pool has not that many.
    fn copy(&self, packet: &Packet) -> Option<Packet> {
        let mut whole: Option<Packet> = None;
        let mut last = self.region.pool().take()?;
        for mut data in packet.segment_data() {
            while !data.is_empty() {
                let count = data.len().min(last.tailroom()).min(self.piece - last.len());
                if count == 0 {
                    let full = std::mem::replace(&mut last, self.region.pool().take()?);
                    add(&mut whole, full)?;
                    continue;
                }
                last.append(count).ok()?.copy_from_slice(&data[..count]);
                data = &data[count..];
            }
        }
        add(&mut whole, last)?;
        self.costs.copied().add(1);
        if let Some(copy) = &mut whole {
            copy.set_checksum(packet.checksum());
        }
        whole
    }

    /// Tells the kernel that there is something to send, if it wants to be told.
    #[inline]
    fn kick(&mut self) {
        self.is_down = false;
        if !(self.ring.needs_wakeup() || self.busy_poll) {
            return;
        }
        for _ in 0..CALLS {
            self.costs.wake_calls().add(1);
            let Err(error) = wake::sender(&self.channel.fd) else { return };
            match error {
                // The kernel has sent as many as a call may: the next call goes on.
                Errno::AGAIN if self.ring.has_begun() => continue,
                Errno::NETDOWN => self.is_down = true,
                Errno::NXIO | Errno::NODEV => {
                    self.failure.get_or_insert_with(|| interface_gone(&self.name));
                }
                // It has no space or no memory now: the next burst or flush goes on.
                _ => {}
            }
            return;
        }
    }

    fn drop_all(&self, burst: &mut Burst, reason: TransmitDrop) {
        self.counters.drops().count_packets(reason, burst);
        burst.clear();
    }
}

/// Hangs a piece behind what there is.
fn add(whole: &mut Option<Packet>, piece: Packet) -> Option<()> {
    if let Some(packet) = whole {
        return packet.chain(piece).ok();
    }
    *whole = Some(piece);
    Some(())
}

impl TransmitQueue for XdpTransmit {
    #[inline]
    fn transmit(&mut self, burst: &mut Burst) -> usize {
        let before = burst.len();
        if self.is_down {
            // What is in the ring goes first.
            self.kick();
        }
        let reason = match (&self.failure, self.is_down) {
            (Some(_), _) => Some(TransmitDrop::Gone),
            (None, true) => Some(TransmitDrop::LinkDown),
            (None, false) => None,
        };
        if let Some(reason) = reason {
            self.drop_all(burst, reason);
            return before;
        }
        self.reclaim();
        if self.channel.completes_checksums() {
            for packet in burst.iter_mut().filter(|packet| packet.has_work_left()) {
                transmit_metadata::write(packet);
            }
        }
        let (mut packets, mut bytes) = (0, 0);
        while !burst.is_empty() {
            let space = self.free_entries(burst.len());
            if space == 0 {
                break;
            }
            let plain = ETHERNET..=self.plain;
            let fits = |packet: &Packet| {
                plain.contains(&(packet.len() as u32)) && transmit_metadata::has_space(packet)
            };
            let (count, length) = self.write(burst, space, transmit_metadata::options, fits);
            packets += count as u64;
            bytes += length;
            if count > 0 {
                continue;
            }
            match self.send_slowly(burst) {
                Slow::Sent(length) => {
                    packets += 1;
                    bytes += length;
                }
                Slow::Dropped => {}
                Slow::NoSpace => break,
            }
        }
        self.ring.publish();
        self.counters.count(packets, bytes);
        if self.in_flight > 0 {
            self.kick();
        }
        before - burst.len()
    }

    fn is_costly_to_call(&self) -> bool {
        true
    }

    fn event(&mut self) -> Option<BorrowedFd<'_>> {
        Some(self.channel.fd.as_fd())
    }

    fn flush(&mut self) {
        self.reclaim();
        if self.in_flight > 0 && self.ring.is_pending() == Ok(true) {
            self.kick();
            self.reclaim();
        }
    }

    queue_report!(counters);

    fn own_counters(&self) -> Vec<Box<dyn Source>> {
        vec![Box::new(self.costs.view())]
    }
}

impl Drop for XdpTransmit {
    fn drop(&mut self) {
        let end = Instant::now() + LAST_WAIT;
        self.flush();
        while self.in_flight > 0 && self.failure.is_none() && !self.is_down && Instant::now() < end {
            std::thread::sleep(Duration::from_micros(100));
            self.flush();
        }
        // SAFETY: they were lent to this socket and not taken back, or they would not be in here; nobody else
        // remembers them.
        unsafe { self.channel.leave(&self.lent.take_all()) };
    }
}
