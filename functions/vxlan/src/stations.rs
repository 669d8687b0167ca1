//! Where the stations of a network are: a table of Ethernet addresses that is learned from their frames.
//!
//! Four places for each bucket, all in one cache line. It never grows, so learning never allocates; whoever floods it with
//! addresses gets a counter and no memory.

use std::fmt;

use warmlane_wire::{MacAddress, ethernet};

/// An Ethernet address as a number of 48 bits, its first byte foremost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Station(u64);

impl Station {
    /// The destination and the source in an Ethernet header.
    #[inline(always)]
    pub(crate) fn both(header: &[u8; ethernet::HEADER_LENGTH]) -> (Self, Self) {
        // Eight bytes each, as the compiler loads them at once. They overlap, and taken one by one it loads them one by one.
        let number = |bytes: &[u8]| bytes.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
        let (first, second) = (number(header), number(&header[4..]));
        (Self(first >> 16), Self(second & 0xffff_ffff_ffff))
    }

    /// Its bytes, behind two that are zero.
    pub(crate) const fn bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }

    #[inline(always)]
    pub(crate) const fn is_multicast(self) -> bool {
        self.0 >> 40 & 1 != 0
    }

    /// Whether it can be somebody's: no group, and not all zero.
    #[inline(always)]
    pub(crate) const fn is_valid_source(self) -> bool {
        !self.is_multicast() && self.0 != 0
    }

    /// 01:80:c2:00:00:00 to 0f: spanning tree, pauses, LLDP (IEEE 802.1D table 7-10).
    #[inline(always)]
    pub(crate) const fn is_reserved_group(self) -> bool {
        self.0 >> 4 == 0x0180_c200_0000 >> 4
    }
}

impl From<MacAddress> for Station {
    fn from(mac: MacAddress) -> Self {
        let [a, b, c, d, e, f] = mac.0;
        Self(u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
    }
}

impl fmt::Display for Station {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [_, _, mac @ ..] = self.bytes();
        MacAddress(mac).fmt(f)
    }
}

/// Where frames of a station come from and go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// By the access with this number.
    Access(u16),
    /// Behind the remote tunnel end with this number.
    Remote(u16),
}

/// What came of learning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Learned {
    /// It was known to be there.
    Known,
    New,
    Moved,
    /// All places are taken by stations that were seen not long ago.
    Full,
}

/// When stations are seen: times of 63 bits.
#[inline(always)]
pub(crate) const fn at(cycles: u64) -> u64 {
    cycles & (u64::MAX >> 1)
}

/// Who was seen last where, and when. Four make a cache line.
#[derive(Clone, Copy)]
struct Slot {
    /// The address in the upper 48 bits, and the number of its place; [`EMPTY`] if nobody is here.
    station: u64,
    /// Cycles when it was last seen, [`STATIC`] if it stays whatever is seen; [`REMOTE`] is set if its place is behind a tunnel end.
    seen: u64,
}

/// All ones would be the address of everybody, from which no frame is learned.
const EMPTY: u64 = u64::MAX;
const REMOTE: u64 = 1 << 63;
const STATIC: u64 = REMOTE - 1;
const WAYS: usize = 4;
const BUCKETS: usize = 1 << 12;

impl Slot {
    #[inline]
    fn new(station: Station, place: Place, seen: u64) -> Self {
        let (number, remote) = match place {
            Place::Access(number) => (number, 0),
            Place::Remote(number) => (number, REMOTE),
        };
        Self { station: station.0 << 16 | u64::from(number), seen: seen | remote }
    }

    #[inline]
    fn is_of(&self, station: Station) -> bool {
        self.station >> 16 == station.0
    }

    #[inline]
    fn place(&self) -> Place {
        let number = self.station as u16;
        if self.seen & REMOTE == 0 { Place::Access(number) } else { Place::Remote(number) }
    }

    #[inline]
    fn is_static(&self) -> bool {
        self.seen & STATIC == STATIC
    }

    #[inline]
    fn is_old(&self, now: u64, age: u64) -> bool {
        !self.is_static() && now.saturating_sub(self.seen & STATIC) > age
    }
}

/// Four stations, as they were known.
#[derive(Clone)]
#[repr(align(64))]
pub(crate) struct Bucket([Slot; WAYS]);

/// The number of the bucket that a station is in.
#[inline(always)]
const fn bucket_of(station: Station) -> usize {
    let hash = station.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - BUCKETS.trailing_zeros());
    hash as usize % BUCKETS
}

pub(crate) struct Stations {
    buckets: Box<[Bucket]>,
    /// Cycles after which a station that was not seen is forgotten.
    age: u64,
}

impl Stations {
    pub(crate) fn new(age: u64) -> Self {
        let empty = Bucket([Slot { station: EMPTY, seen: 0 }; WAYS]);
        Self { buckets: vec![empty; BUCKETS].into(), age }
    }

    #[inline]
    fn bucket(&mut self, station: Station) -> &mut [Slot; WAYS] {
        &mut self.buckets[bucket_of(station)].0
    }

    /// Puts a station there for good. Says whether there was space.
    pub(crate) fn set(&mut self, station: Station, place: Place) -> bool {
        let free = self.bucket(station).iter_mut().find(|slot| slot.is_of(station) || slot.station == EMPTY);
        free.map(|slot| *slot = Slot::new(station, place, STATIC)).is_some()
    }

    /// A frame of the station came from `place`.
    #[inline(always)]
    pub(crate) fn learn(&mut self, station: Station, place: Place, now: u64) -> Learned {
        let age = self.age;
        let bucket = self.bucket(station);
        let Some(slot) = bucket.iter_mut().find(|slot| slot.is_of(station)) else {
            return take_place(bucket, Slot::new(station, place, now), now, age);
        };
        if slot.is_static() {
            return Learned::Known;
        }
        let learned = match (slot.is_old(now, age), slot.place() == place) {
            (true, _) => Learned::New,
            (false, true) => Learned::Known,
            (false, false) => Learned::Moved,
        };
        *slot = Slot::new(station, place, now);
        learned
    }

    /// Where a station is, if that is known and not too long ago.
    #[inline(always)]
    pub(crate) fn find(&self, station: Station, now: u64) -> Option<Place> {
        let slot = self.buckets[bucket_of(station)].0.iter().find(|slot| slot.is_of(station))?;
        (!slot.is_old(now, self.age)).then(|| slot.place())
    }

    /// All that [`learn`](Self::learn) can change for a station, to be [restored](Self::restore).
    pub(crate) fn keep(&self, station: Station) -> Bucket {
        self.buckets[bucket_of(station)].clone()
    }

    /// Puts back what was kept of a station.
    pub(crate) fn restore(&mut self, station: Station, kept: Bucket) {
        self.buckets[bucket_of(station)] = kept;
    }
}

/// Puts a station where nobody is, or somebody who was not seen for long.
#[cold]
fn take_place(bucket: &mut [Slot; WAYS], station: Slot, now: u64, age: u64) -> Learned {
    match bucket.iter_mut().find(|slot| slot.station == EMPTY || slot.is_old(now, age)) {
        Some(slot) => {
            *slot = station;
            Learned::New
        }
        None => Learned::Full,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: Station = Station(0x0200_0000_0001);

    #[test]
    fn stations_are_learned_move_and_are_forgotten() {
        let mut stations = Stations::new(100);
        assert_eq!(stations.find(MAC, 0), None);
        assert_eq!(stations.learn(MAC, Place::Access(1), 10), Learned::New);
        assert_eq!(stations.learn(MAC, Place::Access(1), 20), Learned::Known);
        assert_eq!(stations.find(MAC, 120), Some(Place::Access(1)));
        assert_eq!(stations.find(MAC, 121), None, "it was last seen at 20");
        assert_eq!(stations.learn(MAC, Place::Remote(7), 120), Learned::Moved);
        assert_eq!(stations.find(MAC, 120), Some(Place::Remote(7)));
        assert_eq!(stations.learn(MAC, Place::Remote(7), 300), Learned::New);
    }

    #[test]
    fn headers_have_both_addresses() {
        let header = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 8, 0];
        let both = (MacAddress([1, 2, 3, 4, 5, 6]).into(), MacAddress([7, 8, 9, 10, 11, 12]).into());
        assert_eq!(Station::both(&header), both);
        assert!(both.0.is_multicast() && !both.0.is_valid_source() && both.1.is_multicast());
        assert!(MAC.is_valid_source() && !MAC.is_multicast());
        for (last, is) in [(0, true), (0x0f, true), (0x10, false)] {
            assert_eq!(Station::from(MacAddress([1, 0x80, 0xc2, 0, 0, last])).is_reserved_group(), is);
        }
        assert!(!Station::from(MacAddress([0; 6])).is_valid_source());
    }

    #[test]
    fn places_of_the_same_number_differ() {
        let mut stations = Stations::new(100);
        for place in [Place::Access(u16::MAX), Place::Remote(u16::MAX), Place::Access(0), Place::Remote(0)] {
            stations.learn(MAC, place, 1);
            assert_eq!(stations.find(MAC, 1), Some(place));
            assert_eq!(stations.learn(MAC, place, 2), Learned::Known);
        }
    }

    #[test]
    fn static_stations_stay() {
        let mut stations = Stations::new(100);
        assert!(stations.set(MAC, Place::Remote(1)));
        assert_eq!(stations.learn(MAC, Place::Access(0), 10), Learned::Known);
        assert_eq!(stations.find(MAC, 1_000_000), Some(Place::Remote(1)));
    }

    #[test]
    fn a_full_table_learns_nothing_until_stations_are_old() {
        let mut stations = Stations::new(100);
        let mac = |number: u32| Station(0x0200_0000_0000 | u64::from(number));
        let learn = |stations: &mut Stations, now| {
            (0..100_000)
                .filter(|number| stations.learn(mac(*number), Place::Access(0), now) != Learned::Full)
                .count()
        };
        let known = learn(&mut stations, 1);
        assert!(known > 16_000 && known <= 16_384, "{known}");
        // Those that are there are known, the others still have no place.
        assert_eq!(learn(&mut stations, 50), known);
        let anew = stations.learn(MacAddress([6; 6]).into(), Place::Access(0), 151);
        assert_eq!(anew, Learned::New);
    }
}
