//! Membership in the networks' multicast groups: what a host tells switches and routers, so that they send a group's packets here.
//!
//! By IGMPv3 (RFC 3376) and MLDv2 (RFC 3810), or by IGMPv2 and MLDv1 where a router asks by these. A group is joined when the lane begins, and
//! left when it ends; in between, queries are answered. Reports are of one group each, and from whatever source packets come.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use warmlane_lane::Outputs;
use warmlane_mem::{Packet, Pool, Vlan};
use warmlane_sys::clock::{self, Clock};
use warmlane_wire::{
    EtherType, GroupRecord, IgmpQuery, IpProtocol, Ipv4Fields, Ipv6Fields, LinkLayer, MacAddress, MldQuery,
    ethernet, igmp, ipv4, ipv6, mld,
};

use crate::network::Network;
use crate::reason::VxlanCounters;
use crate::stations::Station;
use crate::too_big::write;

/// How often a change is told, as one report may get lost (RFC 3376 section 8.1).
const ROBUSTNESS: u8 = 2;
/// The longest between such reports (RFC 3376 section 8.11).
const UNSOLICITED_INTERVAL: Duration = Duration::from_secs(1);
/// How long a query by an older version is remembered: twice the usual query interval, and the time to answer (RFC 3376 section 8.12).
const OLDER_QUERIER: Duration = Duration::from_secs(260);
/// The least time to answer in, whatever a router says.
const LEAST_RESPONSE: Duration = Duration::from_millis(100);
/// How long until the next attempt if there was no buffer, or no port.
const LATER: Duration = Duration::from_secs(1);
/// DSCP and ECN of network control (RFC 3376 section 4).
const NETWORK_CONTROL: u8 = 0xc0;

/// Bytes of the longest frame: MLDv2 behind a hop-by-hop header.
const LONGEST: usize =
    ethernet::HEADER_LENGTH + ipv6::HEADER_LENGTH + mld::ROUTER_ALERT.len() + mld::REPORT_LENGTH;

/// What is asked by either protocol.
#[derive(Clone, Copy, Debug)]
struct Query {
    group: Option<IpAddr>,
    within: Duration,
    /// By the protocol's latest version.
    is_latest: bool,
}

impl Query {
    /// One in an untagged frame.
    fn parse(packet: &Packet) -> Option<(bool, Self)> {
        let link = LinkLayer::parse(packet.data()).ok()?;
        if packet.vlan() != Vlan::None || link.header_length() != ethernet::HEADER_LENGTH {
            return None;
        }
        match link.ethertype {
            EtherType::IPV4 => {
                let ip = ipv4::check(link.payload).ok()?;
                let is_igmp = ip.header.protocol() == IpProtocol::IGMP && ip.header.ttl() == 1;
                let query = is_igmp.then(|| IgmpQuery::parse(ip.payload))?.ok()?;
                let IgmpQuery { group, within, is_v3 } = query;
                // Others might have come from beyond the link (RFC 3376 section 4.1.12).
                let is_of_link = ip.header.destination() == group.unwrap_or(igmp::ALL_SYSTEMS);
                let query = Self { group: group.map(IpAddr::V4), within, is_latest: is_v3 };
                is_of_link.then_some((true, query))
            }
            EtherType::IPV6 => {
                let ip = ipv6::check(link.payload).ok()?;
                let upper = ip.upper_layer().ok()?;
                // RFC 3810 section 6.2.
                let has_alert =
                    ip.header.next_header() == IpProtocol::HOP_BY_HOP && mld::has_router_alert(ip.payload);
                let is_icmp = has_alert && upper.protocol == IpProtocol::ICMPV6 && upper.fragment.is_none();
                let message = ip.payload.get(upper.offset - ipv6::HEADER_LENGTH..)?;
                let MldQuery { group, within, is_v2 } =
                    is_icmp.then(|| MldQuery::parse(ip.header, message))?.ok()?;
                Some((false, Self { group: group.map(IpAddr::V6), within, is_latest: is_v2 }))
            }
            _ => None,
        }
    }
}

/// One group at one port.
#[derive(Clone, Debug)]
struct Membership {
    port: usize,
    mac: MacAddress,
    group: IpAddr,
    /// Our address on the port; over IPv6 reports come from a link-local one instead.
    source: IpAddr,
    /// When something is to be said.
    due: Option<u64>,
    /// How often a report that we are in the group, or no longer, is still to be sent.
    again: u8,
    /// What that is.
    record: GroupRecord,
    /// Until when a router counts that speaks an older version.
    older_until: u64,
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memberships {
    all: Vec<Membership>,
    /// When something is to be said next.
    due: Option<u64>,
    /// What delays are made of.
    random: u64,
}

impl Memberships {
    /// Of these networks' groups, each once for a port; `mac_of` is our Ethernet address there.
    pub(crate) fn of(networks: &[Network], mac_of: impl Fn(usize) -> MacAddress) -> Self {
        // Not the same delays as other gateways.
        let mut random = clock::cycles();
        let mut all: Vec<Membership> = Vec::new();
        for group in networks.iter().filter_map(|network| network.config.group) {
            let mac = mac_of(group.port);
            random ^= u64::from_be_bytes(Station::from(mac).bytes());
            if !all.iter().any(|other| (other.port, other.group) == (group.port, group.address)) {
                all.push(Membership {
                    port: group.port,
                    mac,
                    group: group.address,
                    source: group.source,
                    due: Some(0),
                    again: ROBUSTNESS,
                    record: GroupRecord::Joined,
                    older_until: 0,
                });
            }
        }
        Self { due: (!all.is_empty()).then_some(0), all, random }
    }

    /// Whether this group is one of ours at this port.
    pub(crate) fn contains(&self, port: u16, group: IpAddr) -> bool {
        self.all.iter().any(|member| (member.port, member.group) == (usize::from(port), group))
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// When something is to be said next, in cycles.
    pub(crate) const fn due(&self) -> Option<u64> {
        self.due
    }

    fn find_due(&mut self) {
        self.due = self.all.iter().filter_map(|membership| membership.due).min();
    }

    /// A packet came that is for none of our tunnel ends: it may be a query.
    #[inline]
    pub(crate) fn hear(&mut self, packet: &Packet, now: u64) {
        let is_for_group = packet.data().first().is_some_and(|first| first & 1 != 0);
        if is_for_group && !self.is_empty() {
            self.hear_group(packet, now);
        }
    }

    #[cold]
    fn hear_group(&mut self, packet: &Packet, now: u64) {
        let Some((is_ipv4, query)) = Query::parse(packet) else { return };
        for membership in &mut self.all {
            let is_asked = membership.port == usize::from(packet.port())
                && membership.group.is_ipv4() == is_ipv4
                && query.group.is_none_or(|group| group == membership.group);
            if !is_asked {
                continue;
            }
            // RFC 3376 section 7.2.1, RFC 3810 section 8.2.1.
            if !query.is_latest && query.group.is_none() {
                membership.older_until = now.saturating_add(cycles(OLDER_QUERIER));
            }
            let by = now.saturating_add(delay(&mut self.random, query.within.max(LEAST_RESPONSE)));
            // What is due earlier says so, too.
            membership.due = Some(membership.due.map_or(by, |due| due.min(by)));
        }
        self.find_due();
    }

    /// Sends what is due; gives the number of reports.
    pub(crate) fn report(
        &mut self,
        now: u64,
        pool: &Pool,
        counters: &VxlanCounters,
        outputs: &mut Outputs<'_>,
    ) -> usize {
        let mut sent = 0;
        for membership in &mut self.all {
            if membership.due.is_none_or(|due| due > now) {
                continue;
            }
            let report = outputs.is_connected(membership.port).then(|| membership.frame(now, pool));
            let Some(report) = report.flatten() else {
                membership.due = Some(now.saturating_add(cycles(LATER)));
                continue;
            };
            outputs.send(membership.port, report);
            counters.reports().add(1);
            sent += 1;
            membership.again = membership.again.saturating_sub(1);
            membership.due = if membership.again == 0 {
                membership.record = GroupRecord::Listens;
                None
            } else {
                Some(now.saturating_add(delay(&mut self.random, UNSOLICITED_INTERVAL)))
            };
        }
        self.find_due();
        sent
    }

    /// Leaves all groups; gives the number of reports, which is 0 when they were left before.
    pub(crate) fn leave(
        &mut self,
        now: u64,
        pool: &Pool,
        counters: &VxlanCounters,
        outputs: &mut Outputs<'_>,
    ) -> usize {
        for membership in &mut self.all {
            // Nobody is there to say it twice.
            (membership.record, membership.due, membership.again) = (GroupRecord::Left, Some(0), 1);
        }
        let sent = self.report(now, pool, counters, outputs);
        self.all.clear();
        self.due = None;
        sent
    }
}

impl Membership {
    /// The report in a buffer of its own, if there is one.
    fn frame(&self, now: u64, pool: &Pool) -> Option<Packet> {
        let mut bytes = [0; LONGEST];
        let is_older = now < self.older_until;
        let length = match self.group {
            IpAddr::V4(group) => self.igmp(group, is_older, &mut bytes),
            IpAddr::V6(group) => self.mld(group, is_older, &mut bytes),
        };
        let mut packet = pool.take()?;
        packet.fill(bytes.get(..length)?).ok()?;
        Some(packet)
    }

    fn ethernet(&self, destination: MacAddress, ethertype: EtherType) -> [u8; ethernet::HEADER_LENGTH] {
        let mut header = [0; ethernet::HEADER_LENGTH];
        ethernet::write(&mut header, destination, self.mac, ethertype);
        header
    }

    fn igmp(&self, group: Ipv4Addr, is_older: bool, frame: &mut [u8]) -> usize {
        let has_left = self.record == GroupRecord::Left;
        let (destination, message) = match (is_older, has_left) {
            (false, _) => (igmp::ALL_V3_ROUTERS, &igmp::report(self.record, group)[..]),
            (true, false) => (group, &igmp::report_v2(group)[..]),
            (true, true) => (igmp::ALL_ROUTERS, &igmp::leave_v2(group)[..]),
        };
        let source = if let IpAddr::V4(source) = self.source { source } else { Ipv4Addr::UNSPECIFIED };
        let fields = Ipv4Fields {
            traffic_class: NETWORK_CONTROL,
            ttl: 1,
            options: &igmp::ROUTER_ALERT,
            ..Ipv4Fields::new(source, destination)
        };
        let length = ipv4::HEADER_LENGTH + igmp::ROUTER_ALERT.len() + message.len();
        let ip = fields.header(IpProtocol::IGMP, length as u16);
        let ethernet = self.ethernet(MacAddress::of_ipv4_multicast(destination), EtherType::IPV4);
        // There is space for the longest.
        write(frame, &[&ethernet, &ip, &igmp::ROUTER_ALERT, message]).unwrap_or_default()
    }

    fn mld(&self, group: Ipv6Addr, is_older: bool, frame: &mut [u8]) -> usize {
        let source = self.mac.link_local();
        let has_left = self.record == GroupRecord::Left;
        let (destination, message) = match (is_older, has_left) {
            (false, _) => (mld::ALL_V2_ROUTERS, &mld::report(source, self.record, group)[..]),
            (true, false) => (group, &mld::report_v1(source, group)[..]),
            (true, true) => (mld::ALL_ROUTERS, &mld::done_v1(source, group)[..]),
        };
        let fields = Ipv6Fields {
            traffic_class: NETWORK_CONTROL,
            hop_limit: 1,
            ..Ipv6Fields::new(source, destination)
        };
        let length = mld::ROUTER_ALERT.len() + message.len();
        let ip = fields.header(IpProtocol::HOP_BY_HOP, length as u16);
        let ethernet = self.ethernet(MacAddress::of_ipv6_multicast(destination), EtherType::IPV6);
        write(frame, &[&ethernet, &ip, &mld::ROUTER_ALERT, message]).unwrap_or_default()
    }
}

fn cycles(duration: Duration) -> u64 {
    Clock::calibrated().cycles_for(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

/// Cycles up to `most`, so that not all members answer at once (RFC 3376 section 5.2).
fn delay(random: &mut u64, most: Duration) -> u64 {
    // SplitMix64's step, https://prng.di.unimi.it/splitmix64.c
    *random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*random ^ (*random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((u128::from(mixed) * u128::from(cycles(most))) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_spread_over_the_time_there_is() {
        let (mut random, most) = (1, Duration::from_secs(10));
        let delays: Vec<_> = (0..1_000).map(|_| delay(&mut random, most)).collect();
        for tenth in 0..10 {
            let range = cycles(most) / 10 * tenth..cycles(most) / 10 * (tenth + 1);
            let count = delays.iter().filter(|delay| range.contains(delay)).count();
            assert!((50..200).contains(&count), "{count} in {tenth}");
        }
    }
}
