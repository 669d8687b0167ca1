//! A network as packets meet it: its configuration, what stands in front of its frames, and where its stations are.

use std::net::IpAddr;

use warmlane_forward::control::config::OverlayConfig;
use warmlane_forward::control::{AroundFrame, Class};
use warmlane_sys::clock::Clock;

use crate::directory::Directory;
use crate::encapsulation::Encapsulation;
use crate::gateway::PortFacts;
use crate::hosts::Hosts;
use crate::outer::Outer;
use crate::stations::{Place, Stations};

pub(crate) struct Network {
    pub(crate) config: OverlayConfig,
    /// With an age of its own.
    pub(crate) stations: Stations,
    /// Whose addresses are, if questions for them are answered here.
    pub(crate) hosts: Option<Hosts>,
    /// The numbers of the tunnel ends that it sends to, by their addresses.
    remotes_ipv4: Directory<u64>,
    remotes_ipv6: Directory<u128>,
    /// What is in front of frames to each tunnel end.
    encapsulations: Box<[Encapsulation]>,
    /// Longest IP packet that leaves by each access.
    mtus: Box<[u16]>,
}

/// What is in front of frames of a network to one of its tunnel ends.
fn around(network: &OverlayConfig, remote: IpAddr) -> AroundFrame {
    AroundFrame {
        protocol: network.protocol,
        local: network.local,
        remote,
        identifier: network.identifier,
        udp_port: network.udp_port,
        source_ports: AroundFrame::USUAL_SOURCE_PORTS,
        ttl: network.ttl,
        class: Class::Inherited,
        dont_fragment: true,
        udp_checksum: network.udp_checksum,
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
        let remotes = || (0..u16::MAX).zip(&config.remotes);
        let ipv4 = remotes().filter_map(|(number, address)| match address {
            IpAddr::V4(address) => Some((address.to_bits().into(), number)),
            IpAddr::V6(_) => None,
        });
        let ipv6 = remotes().filter_map(|(number, address)| match address {
            IpAddr::V4(_) => None,
            IpAddr::V6(address) => Some((address.to_bits(), number)),
        });
        Self {
            stations,
            hosts: config.neighbour_suppression.then(|| Hosts::new(&config.hosts, age)),
            remotes_ipv4: Directory::new(ipv4),
            remotes_ipv6: Directory::new(ipv6),
            encapsulations: config
                .remotes
                .iter()
                .map(|remote| Encapsulation::new(&around(&config, *remote)))
                .collect(),
            mtus: (config.access.iter())
                .map(|(port, _)| ports.get(*port).map_or(0, |facts| facts.mtu))
                .collect(),
            config,
        }
    }

    /// The number of a tunnel end.
    #[inline]
    pub(crate) fn remote(&self, address: IpAddr) -> Option<u16> {
        match address {
            IpAddr::V4(address) => self.remote_ipv4(address.to_bits()),
            IpAddr::V6(address) => self.remotes_ipv6.get(address.to_bits()),
        }
    }

    /// The number of a tunnel end with an IPv4 address.
    #[inline(always)]
    pub(crate) fn remote_ipv4(&self, address: u32) -> Option<u16> {
        self.remotes_ipv4.get(address.into())
    }

    /// What is in front of frames to the tunnel end of this number.
    #[inline]
    pub(crate) fn encapsulation(&self, remote: u16) -> &Encapsulation {
        &self.encapsulations[usize::from(remote)]
    }

    /// Longest IP packet that goes there.
    #[inline]
    pub(crate) fn mtu(&self, to: Place) -> u16 {
        match to {
            Place::Remote(_) => self.config.mtu,
            Place::Access(access) => self.mtus[usize::from(access)],
        }
    }

    /// Whether these headers are from one of the network's tunnel ends to ours.
    pub(crate) fn is_between(&self, outer: &Outer) -> bool {
        self.config.local == outer.destination && self.remote(outer.source).is_some()
    }

    /// Where broadcast, multicast and unknown unicast frames from there go. What came from a tunnel end goes to no other.
    pub(crate) fn everybody_else(&self, from: Place) -> impl Iterator<Item = Place> + use<> {
        let remotes = if matches!(from, Place::Access(_)) { self.config.remotes.len() } else { 0 };
        let places = (0..self.config.access.len()).map(|access| Place::Access(access as u16));
        let places = places.chain((0..remotes).map(|remote| Place::Remote(remote as u16)));
        places.filter(move |place| *place != from)
    }
}
