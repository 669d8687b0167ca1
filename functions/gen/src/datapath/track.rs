//! What became of one stream's packets.

use serde::Serialize;

use super::histogram::Histogram;
use super::signature::{self, Signature};

/// Packets that did not arrive in the order in which they were sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Disorder {
    /// Packets that had arrived before.
    pub duplicated: u64,
    /// Packets that arrived after one with a larger sequence number (RFC 4737 section 3.3), duplicates not counted.
    pub reordered: u64,
    /// The most places by which a reordered packet was behind the largest sequence number seen.
    pub reorder_extent: u64,
    /// Packets behind the largest sequence number by more than is remembered: reordered, or duplicates. They count as lost.
    pub unjudged: u64,
}

impl Disorder {
    /// That of both streams together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            duplicated: self.duplicated + other.duplicated,
            reordered: self.reordered + other.reordered,
            reorder_extent: self.reorder_extent.max(other.reorder_extent),
            unjudged: self.unjudged + other.unjudged,
        }
    }
}

/// Counts a stream's arrivals, by sequence number.
#[derive(Clone, Debug)]
pub struct StreamTrack {
    /// Packets that arrived intact for the first time.
    pub received: u64,
    /// Their bytes, without frame check sequence.
    pub bytes: u64,
    /// Packets that arrived again, or behind later ones.
    pub disorder: Disorder,
    /// Packets with the stream's signature, and damage elsewhere; each counted once.
    pub corrupted: u64,
    /// Packets that took longer than they may; they count as received too.
    pub late: u64,
    /// Cycles from building to reception.
    pub latency: Option<Histogram>,
    /// Interarrival jitter in cycles, with 4 binary places (RFC 3550 section 6.4.1 and appendix A.8).
    jitter: u64,
    last_transit: Option<u64>,
    /// The next sequence number if nothing is lost: one above the largest seen (RFC 4737 calls it NextExp).
    expected: u64,
    /// A bit for each of the last sequence numbers that arrived; a ring of words.
    seen: Box<[u64]>,
}

/// How much to remember and measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrackConfig {
    /// Sequence numbers that are remembered, in words of 64; brought to a power of two, at least 2.
    pub words: usize,
    /// Resolution of the latency histogram, in bits; `None` for no histogram.
    pub latency_bits: Option<u32>,
    /// Cycles from which on a packet is late.
    pub late_after: u64,
}

impl StreamTrack {
    /// Nothing arrived yet.
    pub fn new(config: &TrackConfig) -> Self {
        Self {
            received: 0,
            bytes: 0,
            disorder: Disorder::default(),
            corrupted: 0,
            late: 0,
            latency: config.latency_bits.map(Histogram::new),
            jitter: 0,
            last_transit: None,
            expected: 0,
            seen: vec![0; config.words.next_power_of_two().max(2)].into(),
        }
    }

    /// Interarrival jitter in cycles.
    pub const fn jitter(&self) -> u64 {
        self.jitter >> 4
    }

    /// An intact packet of `length` bytes arrived at `now`. Gives the cycles that it took, if it had not arrived before.
    #[inline(always)]
    pub(crate) fn arrived(
        &mut self,
        packet: &Signature,
        now: u64,
        length: usize,
        late_after: u64,
    ) -> Option<u64> {
        if !self.is_first(packet.sequence) {
            return None;
        }
        self.received += 1;
        self.bytes += length as u64;
        let transit = signature::cycles_between(packet.time, now);
        if let Some(latency) = &mut self.latency {
            latency.record(transit);
        }
        if transit > late_after {
            self.late += 1;
        }
        if let Some(last) = self.last_transit {
            // J += (|D| - J) / 16, in whole numbers as appendix A.8 has it.
            self.jitter = self.jitter + transit.abs_diff(last) - ((self.jitter + 8) >> 4);
        }
        self.last_transit = Some(transit);
        Some(transit)
    }

    /// A damaged packet arrived that still says which one it is. Whether it had not arrived before.
    #[cold]
    pub(crate) fn arrived_damaged(&mut self, packet: &Signature) -> bool {
        let is_first = self.is_first(packet.sequence);
        self.corrupted += u64::from(is_first);
        is_first
    }

    /// Whether this is the packet's first arrival; notes its order.
    #[inline(always)]
    fn is_first(&mut self, sequence: u64) -> bool {
        let ahead = signature::sequence_distance(self.expected, sequence);
        let words = self.seen.len() as u64;
        let bit = 1 << (sequence % 64);
        if ahead == 0 {
            // A word is cleared as its first number comes, or when numbers are skipped.
            let word = &mut self.seen[(sequence / 64 % words) as usize];
            *word = if bit == 1 { 1 } else { *word | bit };
            self.expected = sequence + 1;
            return true;
        }
        if ahead > 0 {
            self.skip_to(sequence);
            self.seen[(sequence / 64 % words) as usize] |= bit;
            self.expected = sequence + 1;
            return true;
        }
        self.is_first_behind(sequence, ahead.unsigned_abs())
    }

    #[cold]
    fn skip_to(&mut self, sequence: u64) {
        let words = self.seen.len() as u64;
        // Words whose first number is among the skipped ones, or is this one.
        let first = self.expected.div_ceil(64);
        let last = sequence / 64;
        let first = first.max((last + 1).saturating_sub(words));
        for word in first..=last {
            self.seen[(word % words) as usize] = 0;
        }
    }

    #[cold]
    fn is_first_behind(&mut self, sequence: u64, behind: u64) -> bool {
        let words = self.seen.len() as u64;
        if behind > (words - 1) * 64 {
            self.disorder.unjudged += 1;
            return false;
        }
        let word = &mut self.seen[(sequence / 64 % words) as usize];
        let bit = 1 << (sequence % 64);
        if *word & bit != 0 {
            self.disorder.duplicated += 1;
            return false;
        }
        *word |= bit;
        self.disorder.reordered += 1;
        // The largest number seen is one below the expected one.
        self.disorder.reorder_extent = self.disorder.reorder_extent.max(behind - 1);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn track(words: usize) -> StreamTrack {
        StreamTrack::new(&TrackConfig { words, latency_bits: None, late_after: u64::MAX })
    }

    fn arrive(track: &mut StreamTrack, sequence: u64) {
        track.arrived(&Signature { stream: 0, trial: 0, sequence, time: 0 }, 10, 60, u64::MAX);
    }

    proptest! {
        /// Any disorder within the memory is told exactly.
        #[test]
        fn counts_are_exact(moves in prop::collection::vec((0..2_000_u64, 0..100_u64), 1..400)) {
            // Each packet is held back by a random number of places; some come twice, some never.
            let mut arrivals: Vec<(u64, u64)> = Vec::new();
            for (sequence, &(hold, fate)) in moves.iter().enumerate() {
                let sequence = sequence as u64;
                match fate {
                    0..5 => {}
                    5..10 => arrivals.extend([(sequence, sequence), (sequence + hold % 300, sequence)]),
                    10..20 => arrivals.push((sequence + hold % 300, sequence)),
                    _ => arrivals.push((sequence, sequence)),
                }
            }
            arrivals.sort_by_key(|&(place, _)| place);
            let mut track = track(64);
            let (mut seen, mut next) = (HashSet::new(), 0);
            let (mut duplicated, mut reordered) = (0, 0);
            for &(_, sequence) in &arrivals {
                arrive(&mut track, sequence);
                if !seen.insert(sequence) {
                    duplicated += 1;
                } else if sequence < next {
                    reordered += 1;
                } else {
                    next = sequence + 1;
                }
            }
            prop_assert_eq!(track.received, seen.len() as u64);
            prop_assert_eq!((track.disorder.duplicated, track.disorder.reordered, track.disorder.unjudged), (duplicated, reordered, 0));
        }
    }

    #[test]
    fn the_memory_goes_round() {
        let mut track = track(4);
        for sequence in (0..10_000).filter(|sequence| sequence % 997 != 5) {
            arrive(&mut track, sequence);
        }
        assert_eq!((track.disorder.duplicated, track.disorder.reordered, track.received), (0, 0, 9_989));
        // 5 was lost long ago; nobody remembers.
        arrive(&mut track, 5);
        assert_eq!((track.disorder.unjudged, track.received), (1, 9_989));
        // A gap as long as the memory and more forgets it all.
        arrive(&mut track, 20_000);
        arrive(&mut track, 19_990);
        arrive(&mut track, 19_990);
        assert_eq!(
            (track.disorder.reordered, track.disorder.duplicated, track.disorder.reorder_extent),
            (1, 1, 10)
        );
    }

    /// The word that the next numbers go to holds what is left of those before, and remembers nothing for certain.
    #[test]
    fn the_memory_is_all_words_but_the_one_that_is_being_filled() {
        let memory = 3 * 64;
        for expected in 1_000..1_064 {
            let mut track = track(4);
            arrive(&mut track, expected - 1);
            arrive(&mut track, expected - memory - 1);
            assert_eq!((track.disorder.reordered, track.disorder.unjudged), (0, 1), "{expected}");
            for sequence in expected - memory..expected - 1 {
                arrive(&mut track, sequence);
            }
            let others = memory - 1;
            assert_eq!(
                (track.disorder.reordered, track.disorder.reorder_extent),
                (others, others),
                "{expected}"
            );
            arrive(&mut track, expected - memory);
            assert_eq!(
                (track.disorder.duplicated, track.received, track.disorder.unjudged),
                (1, memory, 1),
                "{expected}"
            );
        }
    }

    #[test]
    fn a_damaged_packet_counts_once_however_often_it_comes() {
        let mut track = track(4);
        let packet = |sequence| Signature { stream: 0, trial: 0, sequence, time: 0 };
        arrive(&mut track, 0);
        assert!(track.arrived_damaged(&packet(1)) && !track.arrived_damaged(&packet(1)));
        assert!(!track.arrived_damaged(&packet(0)));
        arrive(&mut track, 1);
        arrive(&mut track, 2);
        assert_eq!((track.received, track.corrupted, track.disorder.duplicated), (2, 1, 3));
    }

    #[test]
    fn jitter_is_that_of_the_rfc() {
        let mut track = track(4);
        let transits = [100_u64, 116, 100, 132];
        for (sequence, transit) in (0_u64..).zip(transits) {
            let time = sequence * 1_000;
            track.arrived(&Signature { stream: 0, trial: 0, sequence, time }, time + transit, 60, 110);
        }
        // 16, then 16 + 16 - 1 = 31, then 31 + 32 - 2 = 61: in sixteenths.
        assert_eq!((track.jitter, track.jitter()), (61, 3));
        assert_eq!(track.late, 2);
    }
}
