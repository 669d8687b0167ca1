//! The lane's end of a probe.

use super::{EdgeProbes, Filter, HEADER, Header, ProbeConfig, ProbeCounters, ProbeReader, Reminder};
use crate::graph::LaneDrop;
use crate::trace::Follower;
use std::cell::Cell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use warmlane_counters::{DropCounters, DropReason, Reason as _};
use warmlane_mem::{BURST_CAPACITY, Burst, Packet};
use warmlane_port::watched::DropWatcher;
use warmlane_sync::ring::RingError;
use warmlane_sync::spsc::{self, Producer};
use warmlane_sync::zero_copy::Reservation;
use warmlane_sys::{clock, tracepoints};

/// So many packets of the sample pass unlooked at once the ring is full: there is no space for many copies soon.
const PAUSE: u64 = 256;

/// Copies packets into a ring.
pub(crate) struct Probe {
    ring: Producer<u8>,
    filter: Option<Filter>,
    snap_length: usize,
    one_in: u32,
    /// Packets until the next one of the sample, which is the last of them.
    left: u32,
    /// Packets of the sample that aren't looked at, because the ring was full.
    pause: u64,
    counters: ProbeCounters,
    marks: Box<[Mark; BURST_CAPACITY]>,
}

/// Why packets are dropped, and by which port they came in, if they don't say that themselves.
#[derive(Clone, Copy)]
pub(crate) struct Cause<'a> {
    reason: &'a DropReason,
    port: Option<u16>,
}

impl Cause<'_> {
    fn name(&self) -> &[u8] {
        let name = self.reason.name.as_bytes();
        name.get(..usize::from(u8::MAX)).unwrap_or(name)
    }
}

/// A packet of a burst that a copy is to be made of.
#[derive(Clone, Copy, Default)]
struct Mark {
    /// Its index there.
    index: usize,
    /// Bytes that its copy takes.
    size: usize,
    /// Bytes of all copies up to this one.
    end: usize,
    /// There was no space.
    is_missed: bool,
}

/// Copies that are not in the ring yet.
pub(crate) struct Staged<'a> {
    copies: Option<Reservation<'a, u8, warmlane_sync::side::Single, warmlane_sync::side::Single>>,
    marks: &'a [Mark],
    left: &'a mut u32,
    one_in: u32,
    counters: &'a ProbeCounters,
}

impl Probe {
    fn new(ring: Producer<u8>, config: ProbeConfig) -> Self {
        let one_in = config.one_in.max(1);
        Self {
            ring,
            filter: config.filter,
            snap_length: config.snap_length,
            one_in,
            left: one_in,
            pause: 0,
            counters: ProbeCounters::new(),
            marks: Box::new([Mark::default(); BURST_CAPACITY]),
        }
    }

    /// With the other end.
    pub(crate) fn with_reader(
        config: ProbeConfig,
        reminder: Option<Reminder>,
    ) -> Result<(Self, ProbeReader), RingError> {
        let (producer, ring) = spsc::ring(config.ring)?;
        let probe = Self::new(producer, config);
        let counters = probe.counters.view();
        Ok((probe, ProbeReader { ring, counters, bytes: Vec::new(), _reminder: reminder }))
    }

    /// Whether nobody reads any more.
    pub(crate) fn is_over(&self) -> bool {
        self.ring.is_disconnected()
    }

    /// Copies what is wanted of packets, however many, of which none comes again.
    #[inline]
    pub(crate) fn show(&mut self, packets: &[Packet], cause: Option<Cause<'_>>) {
        if self.looks_at(packets, cause) {
            self.show_sample(packets, cause);
        } else {
            self.pass(packets.len());
        }
    }

    #[inline(never)]
    fn show_sample(&mut self, packets: &[Packet], cause: Option<Cause<'_>>) {
        for packets in packets.chunks(BURST_CAPACITY) {
            self.stage(packets, cause).commit(packets.len());
        }
    }

    /// Whether any of these is to be looked at: one of the sample is among them. Without a filter none is while the ring is full, as it is
    /// behind a reader that has stopped, and none of the next [`PAUSE`].
    #[inline]
    pub(crate) fn looks_at(&mut self, packets: &[Packet], cause: Option<Cause<'_>>) -> bool {
        let Some(first) = packets.get(self.left as usize - 1) else { return false };
        if self.filter.is_some() {
            return true;
        }
        let size = self.size(first, cause);
        if self.pause == 0 && self.ring.reserve_bulk(size).is_none() {
            self.pause = PAUSE;
        }
        self.pause == 0
    }

    /// Counts so many packets that it doesn't look at.
    #[inline]
    pub(crate) fn pass(&mut self, count: usize) {
        let (due, left) = passed(self.left, self.one_in, count);
        self.left = left;
        if due > 0 {
            self.pause = self.pause.saturating_sub(due);
            self.counters.missed().add(due);
        }
    }

    /// How many bytes a copy takes.
    fn size(&self, packet: &Packet, cause: Option<Cause<'_>>) -> usize {
        HEADER + cause.map_or(0, |cause| cause.name().len()) + packet.packet_length().min(self.snap_length)
    }

    /// Copies what is wanted of these, as far as there is space: of more than [`BURST_CAPACITY`], only so many.
    pub(crate) fn stage<'a>(&'a mut self, packets: &[Packet], cause: Option<Cause<'_>>) -> Staged<'a> {
        let packets = packets.get(..BURST_CAPACITY).unwrap_or(packets);
        let name = cause.as_ref().map_or(&[][..], Cause::name);
        let port = cause.and_then(|cause| cause.port);
        let (mut due, mut all) = (0, 0);
        let mut index = self.left as usize - 1;
        while let Some(packet) = packets.get(index) {
            let size = self.size(packet, cause);
            if self.filter.as_ref().is_none_or(|filter| filter(packet.data(), packet.packet_length()))
                && let Some(mark) = self.marks.get_mut(due)
            {
                *mark = Mark { index, size, end: 0, is_missed: false };
                all += mark.size;
                due += 1;
            }
            index += self.one_in as usize;
        }
        let marks = self.marks.get_mut(..due).unwrap_or_default();
        let mut copies = if all > 0 { self.ring.reserve_burst(all) } else { None };
        let space = copies.as_ref().map_or(0, Reservation::count);
        let (cycles, mut end) = (if all > 0 { clock::cycles() } else { 0 }, 0);
        for mark in &mut *marks {
            if let Some(packet) = packets.get(mark.index)
                && let Some(copies) = &mut copies
                && end + mark.size <= space
            {
                let length = packet.packet_length();
                let captured = mark.size - HEADER - name.len();
                let header = Header {
                    captured: captured as u32,
                    length: length as u32,
                    cycles,
                    port: port.unwrap_or(packet.port()),
                    reason: name.len() as u8,
                };
                copies.write(end, &header.to_bytes());
                copies.write(end + HEADER, name);
                copy(packet, captured, |offset, bytes| {
                    copies.write(end + HEADER + name.len() + offset, bytes);
                });
                end += mark.size;
            } else {
                mark.is_missed = true;
            }
            mark.end = end;
        }
        let (left, one_in, counters) = (&mut self.left, self.one_in, &self.counters);
        Staged { copies, marks, left, one_in, counters }
    }

    /// Copies a dropped frame that is in no packet, if it is wanted.
    fn copy_frame(&mut self, frame: &[u8], cause: Cause<'_>) {
        let (due, left) = passed(self.left, self.one_in, 1);
        self.left = left;
        if due == 0 || self.filter.as_ref().is_some_and(|filter| !filter(frame, frame.len())) {
            return;
        }
        let (name, captured) = (cause.name(), frame.get(..self.snap_length).unwrap_or(frame));
        let Some(mut copy) = self.ring.reserve_bulk(HEADER + name.len() + captured.len()) else {
            self.counters.missed().add(1);
            return;
        };
        let header = Header {
            captured: captured.len() as u32,
            length: frame.len() as u32,
            cycles: clock::cycles(),
            port: cause.port.unwrap_or_default(),
            reason: name.len() as u8,
        };
        copy.write(0, &header.to_bytes());
        copy.write(HEADER, name);
        copy.write(HEADER + name.len(), captured);
        copy.commit_first(HEADER + name.len() + captured.len());
        self.counters.copied().add(1);
    }
}

/// Gives the first so many bytes of a packet in pieces, each with its offset.
fn copy(packet: &Packet, count: usize, mut each: impl FnMut(usize, &[u8])) {
    let mut offset = 0;
    for segment in packet.segment_data() {
        let piece = segment.get(..count - offset).unwrap_or(segment);
        each(offset, piece);
        offset += piece.len();
        if offset == count {
            return;
        }
    }
}

impl Staged<'_> {
    /// Puts the copies of the first `count` packets in; the others have stayed where they were, and come again.
    pub(crate) fn commit(self, count: usize) {
        *self.left = passed(*self.left, self.one_in, count).1;
        let due = self.marks.partition_point(|mark| mark.index < count);
        let Some((last, others)) = self.marks.get(..due).and_then(<[Mark]>::split_last) else { return };
        let missed = others.iter().chain([last]).filter(|mark| mark.is_missed).count();
        let copied = due - missed;
        if missed > 0 {
            self.counters.missed().add(missed as u64);
        }
        if let Some(copies) = self.copies.filter(|_| copied > 0) {
            copies.commit_first(last.end);
            self.counters.copied().add(copied as u64);
        }
    }
}

/// How many of so many packets are due, if the first `left` of them end with one and then one in so many is, and how many are left
/// behind them until the next.
#[inline]
const fn passed(left: u32, one_in: u32, count: usize) -> (u64, u32) {
    match count.checked_sub(left as usize) {
        None => (0, left - count as u32),
        // Most who want all don't pay for a division.
        Some(beyond) if one_in == 1 => (1 + beyond as u64, 1),
        Some(beyond) => {
            let one_in_usize = one_in as usize;
            (1 + (beyond / one_in_usize) as u64, one_in - (beyond % one_in_usize) as u32)
        }
    }
}

/// Who is shown what a lane, its stages and its queues drop.
struct Shown {
    probes: Vec<Probe>,
    followers: Vec<Follower>,
}

/// The same for queues, too, which are shown to by their thread ([`while_watched`](warmlane_port::watched::while_watched)). Nobody but the
/// lane ever locks it.
struct Watcher(Mutex<Shown>);

impl Watcher {
    fn lock(&self) -> MutexGuard<'_, Shown> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn show(&self, cause: Cause<'_>, packets: &[Packet]) {
        let Shown { probes, followers } = &mut *self.lock();
        for probe in probes {
            probe.show(packets, Some(cause));
        }
        for follower in followers {
            follower.lock().drop_all(cause.reason, packets);
        }
    }
}

impl DropWatcher for Watcher {
    fn dropped(&self, reason: &'static DropReason, packets: &[Packet], port: Option<u16>) {
        self.show(Cause { reason, port }, packets);
    }

    fn dropped_frame(&self, reason: &'static DropReason, frame: &[u8], port: Option<u16>) {
        for probe in &mut self.lock().probes {
            probe.copy_frame(frame, Cause { reason, port });
        }
    }
}

/// What a lane drops by itself, and who is shown what it, its stages and its queues drop, and what goes between stages.
pub(crate) struct StageProbes {
    pub(crate) counters: DropCounters<LaneDrop>,
    pub(crate) edges: EdgeProbes,
    watcher: Arc<Watcher>,
    is_watched: Cell<bool>,
}

impl StageProbes {
    pub(crate) fn new() -> Self {
        let shown = Shown { probes: Vec::with_capacity(super::MOST), followers: Vec::new() };
        let watcher = Arc::new(Watcher(Mutex::new(shown)));
        Self {
            counters: DropCounters::new(),
            edges: EdgeProbes::default(),
            watcher,
            is_watched: Cell::new(false),
        }
    }

    /// Counts packets that the lane drops.
    pub(crate) fn count(&self, reason: LaneDrop, packets: usize) {
        tracepoints::lane_drop(LaneDrop::ALL[reason.index()].name, packets);
        self.counters.count(reason, packets as u64);
    }

    /// Counts packets and frees them.
    #[cold]
    pub(crate) fn drop_all(&self, reason: LaneDrop, burst: &mut Burst) {
        self.count(reason, burst.len());
        if self.is_watched() {
            self.show(&LaneDrop::ALL[reason.index()], burst);
        }
        burst.clear();
    }

    /// Shows packets that are about to be dropped.
    pub(crate) fn show(&self, reason: &DropReason, packets: &[Packet]) {
        self.watcher.show(Cause { reason, port: None }, packets);
    }

    /// Counts a packet that can't be shown.
    pub(crate) fn miss(&self) {
        for probe in &self.watcher.lock().probes {
            probe.counters.missed().add(1);
        }
    }

    /// Whether anybody is shown anything.
    pub(crate) fn is_watched(&self) -> bool {
        self.is_watched.get()
    }

    /// Who is shown what queues drop, if anybody is.
    pub(crate) fn watcher(&self) -> Option<Arc<dyn DropWatcher>> {
        self.is_watched().then(|| -> Arc<dyn DropWatcher> { Arc::clone(&self.watcher) as _ })
    }

    /// Shows drops to this one, too, and no more to those who have gone.
    pub(crate) fn change(&self, probe: Option<Probe>) {
        let mut shown = self.watcher.lock();
        shown.probes.retain(|probe| !probe.is_over());
        shown.probes.extend(probe);
        self.is_watched.set(!shown.probes.is_empty() || !shown.followers.is_empty());
    }

    /// Tells of packets that are followed, and no more to those who have gone.
    pub(crate) fn follow(&self, follower: Option<&Follower>) {
        let mut shown = self.watcher.lock();
        shown.followers.retain(|follower| !follower.is_over());
        shown.followers.extend(follower.cloned());
        self.is_watched.set(!shown.probes.is_empty() || !shown.followers.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_counted_without_a_look_at_packets() {
        for one_in in 1..=7 {
            for left in 1..=one_in {
                for count in 0..40 {
                    // One by one.
                    let (mut due, mut behind) = (0, left);
                    for _ in 0..count {
                        behind -= 1;
                        if behind == 0 {
                            (due, behind) = (due + 1, one_in);
                        }
                    }
                    assert_eq!(passed(left, one_in, count), (due, behind), "{left} of {one_in}, {count}");
                }
            }
        }
    }
}
