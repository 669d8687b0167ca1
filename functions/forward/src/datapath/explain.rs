//! By what the forwarder decides, for whoever traces packets; and what it would do with packets that never came.

use std::fmt::Display;
use std::net::IpAddr;

use warmlane_counters::Source;
use warmlane_lane::{Explanation, Outputs};
use warmlane_mem::{Burst, Packet};
use warmlane_table::NextHopId;

use super::fast::{IPV4_HEADERS, IPV6_HEADERS};
use super::forward::Forwarder;
use super::icmp_error::limiter;
use super::rewrite::{Family, Ipv4, Ipv6, layer_3};
use super::validate::{Finding, validate};
use crate::control::{Hops, NextHop, TableNumber, Tunnel};

impl Forwarder {
    /// Notes what is looked up for a packet, and what is found.
    #[cold]
    pub(super) fn note_lookups(&self, packet: &Packet, explanation: &mut Explanation) {
        let hops = self.routes.hops();
        // Validation cuts padding off.
        let Some(mut copy) = self.copies.copy(packet) else {
            return explanation.note("not-explained", "there was no memory for a copy");
        };
        let port = packet.port();
        let admission = hops.port(port).is_some().then(|| hops.admission(port));
        let address = match validate(&mut copy, admission) {
            Finding::Ipv4(address) => IpAddr::V4(address),
            Finding::Ipv6(address) => IpAddr::V6(address),
            Finding::WithOptions(address, _) => address,
            Finding::Arp | Finding::Ipv6OnLink(_) | Finding::Punt(_) | Finding::Drop(_) => return,
        };
        let Some(table) = hops.interface(&copy).map(|interface| interface.table) else { return };
        if table > 0 {
            explanation.note("table", table);
        }
        if hops.checks_sources() {
            self.note_way_back(&copy, table, explanation);
        }
        explanation.note("destination", address);
        let flow = self.flows.as_ref().and_then(|flows| flows.next_hop(&copy, address));
        let hop = if let Some((flow, hop)) = flow {
            explanation.note("flow", flow);
            hop
        } else {
            let (hop, route) = self.look_up(table, address);
            if let Some(route) = route {
                explanation.note("route", route);
            }
            hop
        };
        let member = match address {
            IpAddr::V4(_) => note_member::<Ipv4, IPV4_HEADERS>(hops, hop, &copy, explanation),
            IpAddr::V6(_) => note_member::<Ipv6, IPV6_HEADERS>(hops, hop, &copy, explanation),
        };
        match hops.next_hop(member) {
            Some(found) => explanation.note("next-hop", describe(found)),
            None => explanation.note("next-hop", "none"),
        }
    }

    /// The next hop that an address finds, and the prefix, if the lane knows that: tables that change are kept without.
    fn look_up(&self, table: TableNumber, address: IpAddr) -> (NextHopId, Option<String>) {
        let mut hop = [NextHopId::NONE];
        let route = match address {
            IpAddr::V4(address) => {
                self.routes.lookup_ipv4(table, &[address.to_bits()], &mut hop);
                let route = |address: u32| self.routes.fixed()?.ipv4().longest_match(address);
                route(address.to_bits()).map(|(prefix, _)| prefix.to_string())
            }
            IpAddr::V6(address) => {
                self.routes.lookup_ipv6(table, &[address.octets()], &mut hop);
                let route = |address: u128| self.routes.fixed()?.ipv6().longest_match(address);
                route(address.to_bits()).map(|(prefix, _)| prefix.to_string())
            }
        };
        (hop[0], route)
    }

    fn note_way_back(&self, packet: &Packet, table: TableNumber, explanation: &mut Explanation) {
        let source = match layer_3(packet) {
            ip if ip.first().is_some_and(|first| first >> 4 == 4) => {
                ip.get(12..16).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok()).map(IpAddr::from)
            }
            ip => ip.get(8..24).and_then(|bytes| <[u8; 16]>::try_from(bytes).ok()).map(IpAddr::from),
        };
        let Some(source) = source else { return };
        let (hop, _) = self.look_up(table, source);
        let way = self
            .routes
            .hops()
            .next_hop(hop)
            .map_or_else(|| "none".to_owned(), |hop| describe(hop).to_string());
        explanation.note("source", source);
        explanation.note("way-back", way);
    }

    /// Does what `work` does with a burst, so that nothing is counted, and no error is limited.
    #[cold]
    pub(super) fn rehearsing(
        &mut self,
        burst: &mut Burst,
        outputs: &mut Outputs<'_>,
        work: impl FnOnce(&mut Self, &mut Burst, &mut Outputs<'_>),
    ) -> Vec<Box<dyn Source>> {
        let counters = std::mem::take(&mut self.counters);
        let (limits, identification) = (self.limits, self.identification);
        let limiter = std::mem::replace(&mut self.limiter, limiter(limits));
        work(self, burst, outputs);
        (self.limits, self.limiter, self.identification) = (limits, limiter, identification);
        let counted = std::mem::replace(&mut self.counters, counters);
        vec![Box::new(counted.view())]
    }
}

/// Notes which member of a group a packet's flow goes to; any other next hop is itself.
fn note_member<F: Family<N>, const N: usize>(
    hops: &Hops,
    hop: NextHopId,
    packet: &Packet,
    explanation: &mut Explanation,
) -> NextHopId {
    let mut hash = None;
    let member = hops.member(hop, |seed| *hash.insert(F::flow_hash(hops, seed, layer_3(packet))));
    if let (Some(hash), Some(NextHop::Group(group))) = (hash, hops.next_hop(hop)) {
        let buckets = group.buckets();
        let share = buckets.iter().filter(|other| **other == member).count();
        explanation.note(
            "multipath",
            format_args!(
                "flow hash {hash:#010x} is bucket {} of {}, {share} of which lead to this next hop",
                hash as usize & buckets.len().saturating_sub(1),
                buckets.len()
            ),
        );
    }
    member
}

/// A next hop in words.
fn describe(hop: &NextHop) -> impl Display {
    match hop {
        NextHop::Forward(to) => {
            let vlan = to.vlan.map_or_else(String::new, |vlan| format!(", VLAN {vlan}"));
            format!("port{} to {} from {}, MTU {}{vlan}", to.port, to.destination, to.source, to.mtu)
        }
        NextHop::Tunnel(Tunnel { inner, around, .. }) => format!(
            "through {around} from {} to {}, there to {} from {}, MTU {}",
            around.local(),
            around.remote(),
            inner.destination,
            inner.source,
            inner.mtu
        ),
        NextHop::Group(_) => "one of several".to_owned(),
        NextHop::Local => "an address of ours".to_owned(),
        NextHop::NoNeighbour => "on a link of ours, neighbour not known".to_owned(),
        NextHop::Unresolved(whom) => {
            let gateway = whom.gateway.map_or_else(String::new, |gateway| format!(" {gateway}"));
            format!("port{}, neighbour{gateway} not resolved yet", whom.port)
        }
        NextHop::DirectedBroadcast => "all hosts of a link of ours".to_owned(),
        NextHop::Drop => "drop".to_owned(),
        NextHop::Unreachable => "unreachable".to_owned(),
        NextHop::Prohibited => "prohibited".to_owned(),
        NextHop::Punt => "somebody else's business".to_owned(),
        NextHop::PuntBy(port) => format!("somebody else's business, out of what is port{port}"),
        NextHop::LocalPunt => "an address of ours, which somebody else answers for".to_owned(),
    }
}
