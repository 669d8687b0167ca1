//! What locks cost, with nobody else there and with another lane that always wants them too.

use crate::bench::Bench;
use crate::locked::{one_lane, two_lanes};
use warmlane_sync::mcs::McsLock;
use warmlane_sync::spin::SpinLock;
use warmlane_sync::ticket::TicketLock;

pub(super) const BENCHES: &[Bench] = &[
    Bench {
        name: "lock-spin",
        unit: "lock",
        sentence: "lock a spin lock that nobody else wants, count, unlock",
        prepare: |_| Ok(one_lane::<SpinLock<u64>>()),
    },
    Bench {
        name: "lock-ticket",
        unit: "lock",
        sentence: "lock a ticket lock that nobody else wants, count, unlock",
        prepare: |_| Ok(one_lane::<TicketLock<u64>>()),
    },
    Bench {
        name: "lock-mcs",
        unit: "lock",
        sentence: "lock an MCS lock that nobody else wants, count, unlock",
        prepare: |_| Ok(one_lane::<McsLock<u64>>()),
    },
    Bench {
        name: "lock-spin-two-lanes",
        unit: "lock",
        sentence: "two lanes lock one spin lock, count, unlock; locks of both count",
        prepare: |options| two_lanes::<SpinLock<u64>>("lock-spin-two-lanes", options),
    },
    Bench {
        name: "lock-ticket-two-lanes",
        unit: "lock",
        sentence: "two lanes lock one ticket lock, count, unlock; locks of both count",
        prepare: |options| two_lanes::<TicketLock<u64>>("lock-ticket-two-lanes", options),
    },
    Bench {
        name: "lock-mcs-two-lanes",
        unit: "lock",
        sentence: "two lanes lock one MCS lock, count, unlock; locks of both count",
        prepare: |options| two_lanes::<McsLock<u64>>("lock-mcs-two-lanes", options),
    },
];
