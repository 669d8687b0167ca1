//! Where the stations of a network are: a table of Ethernet addresses that is learned from their frames.
//!
//! Four places for each bucket, all in one cache line or two. It never grows, so learning never allocates; whoever floods it with
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

#[derive(Clone, Copy)]
struct Slot {
    /// The address; [`EMPTY`] if nobody is here.
    key: u64,
    place: Place,
    /// When it was last seen, in cycles; [`STATIC`] if it stays whatever is seen.
    seen: u64,
}

const EMPTY: u64 = u64::MAX;
const STATIC: u64 = u64::MAX;
const WAYS: usize = 4;
const BUCKETS: usize = 1 << 12;

pub(crate) struct Stations {
    buckets: Box<[[Slot; WAYS]]>,
    /// Cycles after which a station that was not seen is forgotten.
    age: u64,
}

/// Addresses have 48 bits, so none is [`EMPTY`].
fn key(mac: MacAddress) -> u64 {
    let [a, b, c, d, e, f] = mac.0;
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

impl Stations {
    pub(crate) fn new(age: u64) -> Self {
        let slot = Slot { key: EMPTY, place: Place::Access(0), seen: 0 };
        Self { buckets: vec![[slot; WAYS]; BUCKETS].into_boxed_slice(), age }
    }

    fn bucket(&mut self, key: u64) -> &mut [Slot; WAYS] {
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(20) as usize;
        &mut self.buckets[hash % BUCKETS]
    }

    /// Puts a station there for good. Says whether there was space.
    pub(crate) fn set(&mut self, mac: MacAddress, place: Place) -> bool {
        let key = key(mac);
        let free = self.bucket(key).iter_mut().find(|slot| slot.key == key || slot.key == EMPTY);
        free.map(|slot| *slot = Slot { key, place, seen: STATIC }).is_some()
    }

    /// A frame of the station came from `place`.
    pub(crate) fn learn(&mut self, mac: MacAddress, place: Place, now: u64) -> Learned {
        let (key, age) = (key(mac), self.age);
        let bucket = self.bucket(key);
        let is_old = |slot: &Slot| slot.seen != STATIC && now.saturating_sub(slot.seen) > age;
        if let Some(slot) = bucket.iter_mut().find(|slot| slot.key == key) {
            if slot.seen == STATIC {
                return Learned::Known;
            }
            let learned = match (is_old(slot), slot.place == place) {
                (true, _) => Learned::New,
                (false, true) => Learned::Known,
                (false, false) => Learned::Moved,
            };
            (slot.place, slot.seen) = (place, now);
            return learned;
        }
        match bucket.iter_mut().find(|slot| slot.key == EMPTY || is_old(slot)) {
            Some(slot) => {
                *slot = Slot { key, place, seen: now };
                Learned::New
            }
            None => Learned::Full,
        }
    }

    /// Where a station is, if that is known and not too long ago.
    pub(crate) fn find(&mut self, mac: MacAddress, now: u64) -> Option<Place> {
        let (key, age) = (key(mac), self.age);
        let slot = self.bucket(key).iter().find(|slot| slot.key == key)?;
        (slot.seen == STATIC || now.saturating_sub(slot.seen) <= age).then_some(slot.place)
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
