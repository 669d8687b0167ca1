//! A network as packets meet it: its configuration, what stands in front of its frames, and where its stations are.

use std::net::IpAddr;

use warmlane_forward::control::config::{GroupConfig, OverlayConfig};
use warmlane_sys::clock::Clock;
use warmlane_wire::{MacAddress, ethernet, ipv4, ipv6};

use crate::encapsulation::Encapsulation;
use crate::gateway::PortFacts;
use crate::hosts::Hosts;
use crate::outer::{DATAGRAM, Outer};
use crate::remotes::{Remotes, around};
use crate::stations::{Place, Stations};

pub(crate) struct Network {
    pub(crate) config: OverlayConfig,
    /// With an age of its own.
    pub(crate) stations: Stations,
    /// Whose addresses are, if questions for them are answered here.
    pub(crate) hosts: Option<Hosts>,
    pub(crate) remotes: Remotes,
    pub(crate) group: Option<Group>,
    /// Longest IP packet that leaves by each access.
    mtus: Box<[u16]>,
}

/// Where a frame can go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum To {
    Place(Place),
    /// Tunnel ends in a multicast group, all at once.
    Group,
}

/// Where frames for all go, if that is a multicast group.
pub(crate) struct Group {
    pub(crate) port: usize,
    pub(crate) encapsulation: Encapsulation,
    /// The group's Ethernet address, and ours on its port.
    pub(crate) addresses: [u8; 12],
    /// Longest IP packet inside.
    mtu: u16,
}

/// The Ethernet address of a multicast group.
pub(crate) const fn group_mac(address: IpAddr) -> MacAddress {
    match address {
        IpAddr::V4(address) => MacAddress::of_ipv4_multicast(address),
        IpAddr::V6(address) => MacAddress::of_ipv6_multicast(address),
    }
}

impl Group {
    fn new(group: &GroupConfig, network: &OverlayConfig, ports: &[PortFacts]) -> Self {
        let headers = if group.address.is_ipv4() { ipv4::HEADER_LENGTH } else { ipv6::HEADER_LENGTH };
        let MacAddress([a, b, c, d, e, f]) = group_mac(group.address);
        let facts = ports.get(group.port).copied().unwrap_or(PortFacts { mac: None, mtu: 0 });
        let MacAddress([g, h, i, j, k, l]) = facts.own_address(group.port as u16);
        let around_packets = (headers + DATAGRAM + ethernet::HEADER_LENGTH) as u16;
        Self {
            port: group.port,
            encapsulation: Encapsulation::new(&around(network, group.address)),
            addresses: [a, b, c, d, e, f, g, h, i, j, k, l],
            // No forwarder looks whether it fits the port.
            mtu: network.mtu.min(facts.mtu.saturating_sub(around_packets)),
        }
    }
}

impl Network {
    pub(crate) fn new(config: OverlayConfig, ports: &[PortFacts], clock: &Clock) -> Self {
        let nanoseconds = u64::from(config.age_seconds).saturating_mul(1_000_000_000);
        let age = clock.cycles_for(nanoseconds);
        let mut stations = Stations::new(age);
        for (mac, remote) in &config.stations {
            // The configuration has fewer than a bucket holds, or they collide; then they are learned.
            stations.set((*mac).into(), Place::Remote(*remote as u16));
        }
        Self {
            stations,
            hosts: config.neighbour_suppression.then(|| Hosts::new(&config.hosts, age)),
            remotes: Remotes::new(&config, age),
            group: config.group.as_ref().map(|group| Group::new(group, &config, ports)),
            mtus: (config.access.iter())
                .map(|(port, _)| ports.get(*port).map_or(0, |facts| facts.mtu))
                .collect(),
            config,
        }
    }

    /// Longest IP packet that goes there.
    #[inline]
    pub(crate) fn mtu(&self, to: To) -> u16 {
        match to {
            To::Place(Place::Remote(_)) => self.config.mtu,
            To::Place(Place::Access(access)) => self.mtus[usize::from(access)],
            To::Group => self.group.as_ref().map_or(0, |group| group.mtu),
        }
    }

    /// Whether these headers are from one of the network's tunnel ends to ours, or to its group.
    pub(crate) fn is_between(&self, outer: &Outer) -> bool {
        let is_known = self.remotes.number(outer.source).is_some();
        match self.config.group {
            Some(group) if group.address == outer.destination => is_known || self.remotes.are_heard(),
            _ => self.config.local == outer.destination && is_known,
        }
    }

    /// Where broadcast, multicast and unknown unicast frames from there go. What came from a tunnel end goes to no other.
    pub(crate) fn everybody_else(&self, from: Place) -> impl Iterator<Item = To> + use<> {
        let to_tunnels = matches!(from, Place::Access(_));
        let group = self.group.is_some();
        let remotes = if to_tunnels && !group { self.config.remotes.len() } else { 0 };
        let places = (0..self.config.access.len()).map(|access| Place::Access(access as u16));
        let places = places.chain((0..remotes).map(|remote| Place::Remote(remote as u16)));
        let to_group = (to_tunnels && group).then_some(To::Group);
        places.filter(move |place| *place != from).map(To::Place).chain(to_group)
    }
}
