//! What locks cost, with nobody else there and with another lane that always wants them too.

use crate::bench::Bench;
use crate::locked::{one_lane, two_lanes};
use crate::setting::Lanes;
use warmlane_sync::extra::mcs::McsLock;
use warmlane_sync::extra::ticket::TicketLock;
use warmlane_sync::spin::SpinLock;

pub(super) const BENCHES: &[Bench] = &[
    Bench {
        name: "lock-spin",
        unit: "lock",
        sentence: "lock a spin lock that nobody else wants, count, unlock",
        lanes: Lanes::One,
        prepare: |_| Ok(one_lane::<SpinLock<u64>>()),
    },
    Bench {
        name: "lock-ticket",
        unit: "lock",
        sentence: "lock a ticket lock that nobody else wants, count, unlock",
        lanes: Lanes::One,
        prepare: |_| Ok(one_lane::<TicketLock<u64>>()),
    },
    Bench {
        name: "lock-mcs",
        unit: "lock",
        sentence: "lock an MCS lock that nobody else wants, count, unlock",
        lanes: Lanes::One,
        prepare: |_| Ok(one_lane::<McsLock<u64>>()),
    },
    Bench {
        name: "lock-spin-two-lanes",
        unit: "lock",
        sentence: "two lanes lock one spin lock, count, unlock; locks of both count",
        lanes: Lanes::Two,
        prepare: two_lanes::<SpinLock<u64>>,
    },
    Bench {
        name: "lock-ticket-two-lanes",
        unit: "lock",
        sentence: "two lanes lock one ticket lock, count, unlock; locks of both count",
        lanes: Lanes::Two,
        prepare: two_lanes::<TicketLock<u64>>,
    },
    Bench {
        name: "lock-mcs-two-lanes",
        unit: "lock",
        sentence: "two lanes lock one MCS lock, count, unlock; locks of both count",
        lanes: Lanes::Two,
        prepare: two_lanes::<McsLock<u64>>,
    },
];
