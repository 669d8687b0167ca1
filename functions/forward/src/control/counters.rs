//! How full tables are.

use warmlane_counters::counters;

use super::Routes;

counters! {
    /// How many entries the tables have that packets are looked up in.
    pub struct TableCounters => TableCountersView {
        /// Routes for IPv4, of all tables.
        ipv4_routes: Gauge, "routes";
        /// Routes for IPv6, of all tables.
        ipv6_routes: Gauge, "routes";
        /// Next hops that routes and flows lead to; several of them may share one.
        next_hops: Gauge, "hops";
        /// Neighbours that are known; of a router those of the kernel, also while it asks for them.
        neighbours: Gauge, "neighbours";
        /// Flows that have a next hop of their own; of a router those that are forwarded past netfilter, each direction one.
        flows: Gauge, "flows";
    }
}

impl TableCounters {
    /// Of routes that stay as they are, with so many neighbours.
    pub fn of(routes: &Routes, neighbours: usize) -> Self {
        let counters = Self::new();
        counters.ipv4_routes().set(routes.ipv4().len() as u64);
        counters.ipv6_routes().set(routes.ipv6().len() as u64);
        counters.next_hops().set(routes.hops().next_hops().len() as u64);
        counters.neighbours().set(neighbours as u64);
        counters.flows().set(routes.flows().len() as u64);
        counters
    }
}
