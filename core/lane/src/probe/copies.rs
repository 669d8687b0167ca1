//! The lane's end of a probe.

use super::{Filter, HEADER, Header, ProbeConfig, ProbeCounters};
use crate::graph::LaneDrop;
use crate::trace::Follower;
use std::cell::RefCell;
use warmlane_counters::{DropCounters, DropReason, Reason as _};
use warmlane_mem::{BURST_CAPACITY, Burst, Packet};
use warmlane_sync::spsc::Producer;
use warmlane_sync::zero_copy::Reservation;
use warmlane_sys::clock;

/// Copies packets into a ring.
pub(crate) struct Probe {
    ring: Producer<u8>,
    filter: Option<Filter>,
    snap_length: usize,
    one_in: u32,
    /// Wanted packets until the next copy.
    left: u32,
    counters: ProbeCounters,
    marks: Box<[Mark; BURST_CAPACITY]>,
}

/// What has become of a packet of a burst, as far as it is known.
#[derive(Clone, Copy, Default)]
struct Mark {
    /// Bytes that its copy takes; 0 if there is to be none.
    size: usize,
    /// Bytes of all copies up to this one.
    end: usize,
    /// [`Probe::left`] behind it.
    left: u32,
    /// There was no space.
    is_missed: bool,
}

/// Copies that are not in the ring yet.
pub(crate) struct Staged<'a> {
    copies: Option<Reservation<'a, u8, warmlane_sync::side::Single, warmlane_sync::side::Single>>,
    marks: &'a [Mark],
    left: &'a mut u32,
    counters: &'a ProbeCounters,
}

impl Probe {
    pub(crate) fn new(ring: Producer<u8>, config: ProbeConfig) -> Self {
        let one_in = config.one_in.max(1);
        Self {
            ring,
            filter: config.filter,
            snap_length: config.snap_length,
            one_in,
            left: one_in,
            counters: ProbeCounters::new(),
            marks: Box::new([Mark::default(); BURST_CAPACITY]),
        }
    }

    pub(crate) const fn counters(&self) -> &ProbeCounters {
        &self.counters
    }

    /// Whether nobody reads any more.
    pub(crate) fn is_over(&self) -> bool {
        self.ring.is_disconnected()
    }

    /// Copies what is wanted of these, as far as there is space.
    pub(crate) fn stage<'a>(&'a mut self, packets: &[Packet], reason: Option<&DropReason>) -> Staged<'a> {
        let packets = packets.get(..BURST_CAPACITY).unwrap_or(packets);
        let name = reason.map_or("", |reason| reason.name).as_bytes();
        let name = name.get(..usize::from(u8::MAX)).unwrap_or(name);
        let (mut all, mut left) = (0, self.left);
        for (packet, mark) in packets.iter().zip(self.marks.iter_mut()) {
            let length = packet.packet_length();
            let is_wanted = self.filter.as_ref().is_none_or(|filter| filter(packet.data(), length));
            let mut size = 0;
            if is_wanted {
                left -= 1;
                if left == 0 {
                    left = self.one_in;
                    size = HEADER + name.len() + length.min(self.snap_length);
                }
            }
            all += size;
            *mark = Mark { size, end: all, left, is_missed: false };
        }
        let marks = self.marks.get_mut(..packets.len()).unwrap_or_default();
        let mut copies = if all > 0 { self.ring.reserve_burst(all) } else { None };
        let space = copies.as_ref().map_or(0, Reservation::count);
        let (cycles, mut end) = (if all > 0 { clock::cycles() } else { 0 }, 0);
        for (packet, mark) in packets.iter().zip(marks.iter_mut()) {
            if mark.size > 0 && end + mark.size <= space {
                let length = packet.packet_length();
                let captured = mark.size - HEADER - name.len();
                let header = Header {
                    captured: captured as u32,
                    length: length as u32,
                    cycles,
                    port: packet.port(),
                    reason: name.len() as u8,
                };
                if let Some(copies) = &mut copies {
                    copies.write(end, &header.to_bytes());
                    copies.write(end + HEADER, name);
                    copy(packet, captured, |offset, bytes| {
                        copies.write(end + HEADER + name.len() + offset, bytes);
                    });
                }
                end += mark.size;
            } else {
                mark.is_missed = mark.size > 0;
            }
            mark.end = end;
        }
        Staged { copies, marks, left: &mut self.left, counters: &self.counters }
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
        let marks = self.marks.get(..count).unwrap_or(self.marks);
        let Some(last) = marks.last() else { return };
        *self.left = last.left;
        let missed = marks.iter().filter(|mark| mark.is_missed).count();
        let copied = marks.iter().filter(|mark| mark.size > 0).count() - missed;
        if missed > 0 {
            self.counters.missed().add(missed as u64);
        }
        if let Some(copies) = self.copies.filter(|_| copied > 0) {
            copies.commit_first(last.end);
            self.counters.copied().add(copied as u64);
        }
    }
}

/// What a lane drops by itself, and who is shown what it and its stages drop.
pub(crate) struct DropProbes {
    pub(crate) counters: DropCounters<LaneDrop>,
    probes: RefCell<Vec<Probe>>,
    followers: RefCell<Vec<Follower>>,
}

impl DropProbes {
    pub(crate) fn new() -> Self {
        let probes = RefCell::new(Vec::with_capacity(super::MOST));
        Self { counters: DropCounters::new(), probes, followers: RefCell::default() }
    }

    /// Counts packets and frees them.
    #[cold]
    pub(crate) fn drop_all(&self, reason: LaneDrop, burst: &mut Burst) {
        self.counters.count(reason, burst.len() as u64);
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
