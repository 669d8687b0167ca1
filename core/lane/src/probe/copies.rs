//! The lane's end of a probe.

use super::{EdgeProbes, Filter, HEADER, Header, ProbeConfig, ProbeCounters, ProbeReader, Reminder};
use crate::graph::LaneDrop;
use crate::trace::Follower;
use std::cell::RefCell;
use warmlane_counters::{DropCounters, DropReason, Reason as _};
use warmlane_mem::{BURST_CAPACITY, Burst, Packet};
use warmlane_sync::ring::RingError;
use warmlane_sync::spsc::{self, Producer};
use warmlane_sync::zero_copy::Reservation;
use warmlane_sys::{clock, tracepoints};

/// Copies packets into a ring.
pub(crate) struct Probe {
    ring: Producer<u8>,
    filter: Option<Filter>,
    snap_length: usize,
    one_in: u32,
    /// Wanted packets until the next copy, which is of the last of them.
    left: u32,
    counters: ProbeCounters,
    marks: Box<[Mark; BURST_CAPACITY]>,
    /// With a filter: `left` behind each packet of a burst.
    left_behind: Box<[u32; BURST_CAPACITY]>,
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
    /// None without a filter.
    left_behind: Option<&'a [u32]>,
    /// The ring had no space for the first, so that none was even marked.
    is_full: bool,
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
            counters: ProbeCounters::new(),
            marks: Box::new([Mark::default(); BURST_CAPACITY]),
            left_behind: Box::new([0; BURST_CAPACITY]),
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

    /// Copies what is wanted of these, as far as there is space. Without a filter nothing is looked at but what is to be copied, and not even
    /// that while the ring is full, as it is behind a reader that has stopped.
    pub(crate) fn stage<'a>(&'a mut self, packets: &[Packet], reason: Option<&DropReason>) -> Staged<'a> {
        let packets = packets.get(..BURST_CAPACITY).unwrap_or(packets);
        let name = reason.map_or("", |reason| reason.name).as_bytes();
        let name = name.get(..usize::from(u8::MAX)).unwrap_or(name);
        let size = |packet: &Packet| HEADER + name.len() + packet.packet_length().min(self.snap_length);
        let mut is_full = false;
        if self.filter.is_none() {
            let first = packets.get(self.left as usize - 1);
            is_full = first.is_some_and(|first| self.ring.reserve_bulk(size(first)).is_none());
            if first.is_none() || is_full {
                return Staged {
                    copies: None,
                    marks: &[],
                    left_behind: None,
                    is_full,
                    left: &mut self.left,
                    one_in: self.one_in,
                    counters: &self.counters,
                };
            }
        }
        let (mut due, mut all) = (0, 0);
        let mut mark = |index: usize, packet: &Packet| {
            if let Some(mark) = self.marks.get_mut(due) {
                *mark = Mark { index, size: size(packet), end: 0, is_missed: false };
                all += mark.size;
                due += 1;
            }
        };
        if let Some(filter) = &self.filter {
            let mut left = self.left;
            for (index, (packet, left_behind)) in packets.iter().zip(self.left_behind.iter_mut()).enumerate()
            {
                if filter(packet.data(), packet.packet_length()) {
                    left -= 1;
                    if left == 0 {
                        left = self.one_in;
                        mark(index, packet);
                    }
                }
                *left_behind = left;
            }
        } else {
            let mut index = self.left as usize - 1;
            while let Some(packet) = packets.get(index) {
                mark(index, packet);
                index += self.one_in as usize;
            }
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
                    port: packet.port(),
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
        let left_behind = self.filter.is_some().then(|| self.left_behind.get(..packets.len())).flatten();
        let (left, one_in, counters) = (&mut self.left, self.one_in, &self.counters);
        Staged { copies, marks, left_behind, is_full, left, one_in, counters }
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
        if let Some(left_behind) = self.left_behind {
            if let Some(left) = count.checked_sub(1).and_then(|last| left_behind.get(last)) {
                *self.left = *left;
            }
        } else {
            let (due, left) = passed(*self.left, self.one_in, count);
            *self.left = left;
            if self.is_full && due > 0 {
                self.counters.missed().add(due);
            }
        }
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

/// How many of so many wanted packets are due, if the first `left` of them end with one and then one in so many is, and how many are left
/// behind them until the next.
const fn passed(left: u32, one_in: u32, count: usize) -> (u64, u32) {
    match count.checked_sub(left as usize) {
        None => (0, left - count as u32),
        Some(beyond) => {
            let one_in_usize = one_in as usize;
            (1 + (beyond / one_in_usize) as u64, one_in - (beyond % one_in_usize) as u32)
        }
    }
}

/// What a lane drops by itself, and who is shown what it and its stages drop, and what goes between them.
pub(crate) struct StageProbes {
    pub(crate) counters: DropCounters<LaneDrop>,
    pub(crate) edges: EdgeProbes,
    probes: RefCell<Vec<Probe>>,
    followers: RefCell<Vec<Follower>>,
}

impl StageProbes {
    pub(crate) fn new() -> Self {
        let probes = RefCell::new(Vec::with_capacity(super::MOST));
        let (edges, followers) = (EdgeProbes::default(), RefCell::default());
        Self { counters: DropCounters::new(), edges, probes, followers }
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
        for probe in self.probes.borrow_mut().iter_mut() {
            probe.stage(packets, Some(reason)).commit(packets.len());
        }
        for follower in self.followers.borrow().iter() {
            follower.lock().drop_all(reason, packets);
        }
    }

    /// Counts a packet that can't be shown.
    pub(crate) fn miss(&self) {
        for probe in self.probes.borrow().iter() {
            probe.counters.missed().add(1);
        }
    }

    /// Whether anybody is shown anything.
    pub(crate) fn is_watched(&self) -> bool {
        !self.probes.borrow().is_empty() || !self.followers.borrow().is_empty()
    }

    /// Shows drops to this one, too, and no more to those who have gone.
    pub(crate) fn change(&self, probe: Option<Probe>) {
        let mut probes = self.probes.borrow_mut();
        probes.retain(|probe| !probe.is_over());
        probes.extend(probe);
    }

    /// Tells of packets that are followed, and no more to those who have gone.
    pub(crate) fn follow(&self, follower: Option<&Follower>) {
        let mut followers = self.followers.borrow_mut();
        followers.retain(|follower| !follower.is_over());
        followers.extend(follower.cloned());
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
