//! Locks.

use parking_lot::Mutex;
use warmlane_lab::bench::Bench;
use warmlane_lab::locked::{LockedCount, one_lane, two_lanes};
use warmlane_lab::setting::Lanes;

pub(crate) const BENCHES: &[Bench] = &[
    Bench {
        name: "parking-lot",
        unit: "lock",
        sentence: "lock a parking_lot mutex that nobody else wants, count, unlock",
        lanes: Lanes::One,
        prepare: |_| Ok(one_lane::<ParkingLot>()),
    },
    Bench {
        name: "parking-lot-two-lanes",
        unit: "lock",
        sentence: "two lanes lock one parking_lot mutex, count, unlock; locks of both count",
        lanes: Lanes::Two,
        prepare: two_lanes::<ParkingLot>,
    },
];

#[derive(Default)]
struct ParkingLot(Mutex<u64>);

impl LockedCount for ParkingLot {
    #[inline]
    fn count(&self) -> u64 {
        let mut count = self.0.lock();
        *count += 1;
        *count
    }
}
