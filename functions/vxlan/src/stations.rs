//! Where the stations of a network are: a table of Ethernet addresses that is learned from their frames.
//!
//! Four places for each bucket, all in one cache line. It never grows, so learning never allocates; whoever floods it with
//! addresses gets a counter and no memory.

use warmlane_wire::MacAddress;

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
    fn new(key: u64, place: Place, seen: u64) -> Self {
        let (number, remote) = match place {
            Place::Access(number) => (number, 0),
            Place::Remote(number) => (number, REMOTE),
        };
        Self { station: key << 16 | u64::from(number), seen: seen | remote }
    }

    #[inline]
    fn is_of(&self, key: u64) -> bool {
        self.station >> 16 == key
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

#[derive(Clone)]
#[repr(align(64))]
struct Bucket([Slot; WAYS]);

pub(crate) struct Stations {
    buckets: Box<[Bucket]>,
    /// Cycles after which a station that was not seen is forgotten.
    age: u64,
}

#[inline]
fn key(mac: MacAddress) -> u64 {
    let [a, b, c, d, e, f] = mac.0;
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

impl Stations {
    pub(crate) fn new(age: u64) -> Self {
        let empty = Bucket([Slot { station: EMPTY, seen: 0 }; WAYS]);
        Self { buckets: vec![empty; BUCKETS].into(), age }
    }

    #[inline]
    fn bucket(&mut self, key: u64) -> &mut [Slot; WAYS] {
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(20) as usize;
        &mut self.buckets[hash % BUCKETS].0
    }

    /// Puts a station there for good. Says whether there was space.
    pub(crate) fn set(&mut self, mac: MacAddress, place: Place) -> bool {
        let key = key(mac);
        let free = self.bucket(key).iter_mut().find(|slot| slot.is_of(key) || slot.station == EMPTY);
        free.map(|slot| *slot = Slot::new(key, place, STATIC)).is_some()
    }

    /// A frame of the station came from `place`.
    #[inline]
    pub(crate) fn learn(&mut self, mac: MacAddress, place: Place, now: u64) -> Learned {
        let (key, age) = (key(mac), self.age);
        let bucket = self.bucket(key);
        let Some(slot) = bucket.iter_mut().find(|slot| slot.is_of(key)) else {
            return take_place(bucket, Slot::new(key, place, now), now, age);
        };
        if slot.is_static() {
            return Learned::Known;
        }
        let learned = match (slot.is_old(now, age), slot.place() == place) {
            (true, _) => Learned::New,
            (false, true) => Learned::Known,
            (false, false) => Learned::Moved,
        };
        *slot = Slot::new(key, place, now);
        learned
    }

    /// Where a station is, if that is known and not too long ago.
    #[inline]
    pub(crate) fn find(&mut self, mac: MacAddress, now: u64) -> Option<Place> {
        let (key, age) = (key(mac), self.age);
        let slot = self.bucket(key).iter().find(|slot| slot.is_of(key))?;
        (!slot.is_old(now, age)).then(|| slot.place())
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

    const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);

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
    fn static_stations_stay() {
        let mut stations = Stations::new(100);
        assert!(stations.set(MAC, Place::Remote(1)));
        assert_eq!(stations.learn(MAC, Place::Access(0), 10), Learned::Known);
        assert_eq!(stations.find(MAC, 1_000_000), Some(Place::Remote(1)));
    }

    #[test]
    fn a_full_table_learns_nothing_until_stations_are_old() {
        let mut stations = Stations::new(100);
        let mac = |number: u32| {
            let [a, b, c, d] = number.to_be_bytes();
            MacAddress([2, 0, a, b, c, d])
        };
        let learn = |stations: &mut Stations, now| {
            (0..100_000)
                .filter(|number| stations.learn(mac(*number), Place::Access(0), now) != Learned::Full)
                .count()
        };
        let known = learn(&mut stations, 1);
        assert!(known > 16_000 && known <= 16_384, "{known}");
        // Those that are there are known, the others still have no place.
        assert_eq!(learn(&mut stations, 50), known);
        let anew = stations.learn(MacAddress([6; 6]), Place::Access(0), 151);
        assert_eq!(anew, Learned::New);
    }
}
