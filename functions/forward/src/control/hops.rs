//! Ports and next hops by their numbers: what lanes read besides the tables. Made once, then only read; when something
//! changes, a new set replaces the old one.

use std::any::Any;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use warmlane_mem::Packet;
use warmlane_table::NextHopId;
use warmlane_wire::{EtherType, LinkLayer, MacAddress, martian};

use super::config::{IcmpLimits, InterfaceAddress};
use super::host::{ClaimedSources, Host, MultipathHash, OWN_TTL};
use super::live::TableNumber;
use super::next_hop::{Adjacency, NextHop, Rewrite};
use super::source_check::InterfaceCheck;

/// A port as the forwarder sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouterPort {
    /// Our Ethernet address there. `None`: take unicast frames whoever they are for, as from a capture file.
    pub mac: Option<MacAddress>,
    /// Largest IP packet that the link carries, in bytes.
    pub mtu: u16,
    /// Our addresses there.
    pub addresses: Vec<InterfaceAddress>,
    /// Which of the tables packets that come in untagged are looked up in.
    pub table: TableNumber,
    /// How sources of packets that come in untagged are checked.
    pub source_check: InterfaceCheck,
    /// The hop limit of IPv6 packets of our own that leave there untagged (Linux: `net.ipv6.conf.*.hop_limit`).
    pub hop_limit: u8,
    /// The VLANs on it; packets of others are not taken. `None`: tags are looked through, and packets are treated as
    /// if they had come in untagged.
    pub vlans: Option<Vec<VlanInterface>>,
}

/// A VLAN on a port, with addresses of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VlanInterface {
    /// The VLAN's number (IEEE 802.1Q), 1 to 4094.
    pub vlan: u16,
    /// Our addresses there.
    pub addresses: Vec<InterfaceAddress>,
    /// Which of the tables its packets are looked up in.
    pub table: TableNumber,
    /// How its packets' sources are checked.
    pub source_check: InterfaceCheck,
    /// The hop limit of IPv6 packets of our own that leave there.
    pub hop_limit: u8,
}

impl RouterPort {
    /// The address that our frames come from: the port's own, or one made of the port's number in the range for
    /// local use (IEEE 802 section 8.4.2).
    pub fn source_address(&self, number: u16) -> MacAddress {
        let [high, low] = number.to_be_bytes();
        self.mac.unwrap_or(MacAddress([0x02, 0, 0, 0, high, low]))
    }

    fn checks_sources(&self) -> bool {
        let vlans = self.vlans.iter().flatten().map(|vlan| vlan.source_check);
        vlans.chain([self.source_check]).any(InterfaceCheck::looks_up)
    }

    /// Whether an address is ours, on this port.
    pub fn has_address(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|own| own.address == address)
    }
}

/// The interface that a packet came in by: a port, or a VLAN on one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Interface<'a> {
    /// Which of the tables its packets are looked up in.
    pub(crate) table: TableNumber,
    pub(crate) source_check: InterfaceCheck,
    pub(crate) vlan: Option<u16>,
    hop_limit: u8,
    addresses: &'a [InterfaceAddress],
}

impl<'a> Interface<'a> {
    pub(crate) fn of_port(port: &'a RouterPort) -> Self {
        Self {
            table: port.table,
            source_check: port.source_check,
            vlan: None,
            hop_limit: port.hop_limit,
            addresses: &port.addresses,
        }
    }

    fn of_vlan(vlan: &'a VlanInterface) -> Self {
        Self {
            table: vlan.table,
            source_check: vlan.source_check,
            vlan: Some(vlan.vlan),
            hop_limit: vlan.hop_limit,
            addresses: &vlan.addresses,
        }
    }

    fn addresses(&self) -> impl Iterator<Item = IpAddr> + use<'a> {
        self.addresses.iter().map(|own| own.address)
    }
}

/// What the first pass over a burst needs of the port that a packet came in by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Admission {
    /// The destination address that frames to us have, in the low 48 bits, first byte lowest.
    pub(crate) mac: u64,
    /// Which bits must be as in `mac`.
    pub(crate) mask: u64,
}

fn rewrite(number: u32, hop: &NextHop) -> Rewrite {
    // Numbers beyond lead nowhere.
    Rewrite::of(NextHopId::new(number).unwrap_or(NextHopId::NONE), hop)
}

/// Bit 0 of a frame's first byte tells group addresses from those of one interface (IEEE 802.3 clause 3.2.3).
const GROUP_BIT: u64 = 1;

impl Admission {
    pub(crate) fn of(port: &RouterPort) -> Self {
        match port.mac {
            Some(MacAddress([a, b, c, d, e, f])) => {
                Self { mac: u64::from_le_bytes([a, b, c, d, e, f, 0, 0]), mask: (1 << 48) - 1 }
            }
            None => Self { mac: 0, mask: GROUP_BIT },
        }
    }

    /// Of frames that were looked at before: all are admitted.
    pub(crate) const ALL: Self = Self { mac: 0, mask: 0 };

    /// For packets from ports that don't exist: no frame is admitted.
    pub(crate) const NONE: Self = Self { mac: 1, mask: 0 };

    /// Whether a frame that starts with these 8 bytes is for us.
    #[inline(always)]
    pub(crate) fn admits(self, first_bytes: u64) -> bool {
        first_bytes & self.mask == self.mac
    }
}

/// Ports and next hops.
#[derive(Debug, Default)]
pub struct Hops {
    entries: Vec<NextHop>,
    rewrites: Vec<Rewrite>,
    ports: Vec<RouterPort>,
    admissions: Vec<Admission>,
    checks_sources: bool,
    icmp: Option<IcmpLimits>,
    hash_seed: u64,
    host: Host,
    claimed_sources: ClaimedSources,
    beside: Option<Beside>,
}

/// What stages beside the forwarder go by, together with ports and next hops.
pub type Beside = Arc<dyn Any + Send + Sync>;

impl Hops {
    pub(crate) const fn nothing() -> Self {
        Self {
            entries: Vec::new(),
            rewrites: Vec::new(),
            ports: Vec::new(),
            admissions: Vec::new(),
            checks_sources: false,
            icmp: None,
            hash_seed: 0,
            host: Host::nothing(),
            claimed_sources: ClaimedSources::none(),
            beside: None,
        }
    }

    /// These ports and next hops, numbered in this order. Flow hashes start from `hash_seed`.
    pub fn new(ports: Vec<RouterPort>, next_hops: Vec<NextHop>, hash_seed: u64) -> Self {
        Self {
            rewrites: (0..).zip(&next_hops).map(|(number, hop)| rewrite(number, hop)).collect(),
            entries: next_hops,
            admissions: ports.iter().map(Admission::of).collect(),
            checks_sources: ports.iter().any(RouterPort::checks_sources),
            ports,
            icmp: None,
            hash_seed,
            host: Host::default(),
            claimed_sources: ClaimedSources::none(),
            beside: None,
        }
    }

    /// The same, with what stages beside the forwarder go by.
    #[must_use]
    pub fn with_beside(self, beside: Option<Beside>) -> Self {
        Self { beside, ..self }
    }

    /// What stages beside the forwarder go by, if it is of this kind.
    #[inline]
    pub fn beside<T: Any>(&self) -> Option<&T> {
        self.beside.as_ref()?.downcast_ref()
    }

    /// Which of the tables a packet is looked up in; `None` if it came in by no port, or by a VLAN that there is no interface for.
    pub fn table_of(&self, packet: &Packet) -> Option<TableNumber> {
        self.interface(packet).map(|interface| interface.table)
    }

    /// The same, with limits for ICMP errors that replace what the forwarder was made with.
    #[must_use]
    pub fn with_icmp_limits(self, limits: Option<IcmpLimits>) -> Self {
        Self { icmp: limits, ..self }
    }

    /// The same, for such a host.
    #[must_use]
    pub fn with_host(self, host: Host) -> Self {
        Self { claimed_sources: ClaimedSources::of(&host), host, ..self }
    }

    /// Sources that IPv4 packets shouldn't have.
    #[inline]
    pub(crate) fn claimed_sources(&self) -> &ClaimedSources {
        &self.claimed_sources
    }

    /// What chooses one of several paths, for IPv4 and for IPv6.
    #[inline]
    pub(crate) fn multipath_hash(&self) -> [MultipathHash; 2] {
        self.host.multipath_hash
    }

    pub(crate) fn icmp_limits(&self) -> Option<IcmpLimits> {
        self.icmp
    }

    /// The ports, by their numbers.
    pub fn ports(&self) -> &[RouterPort] {
        &self.ports
    }

    /// The next hops, by their numbers.
    pub fn next_hops(&self) -> &[NextHop] {
        &self.entries
    }

    /// What a next hop is; `None` for [`NextHopId::NONE`].
    #[inline]
    pub fn next_hop(&self, id: NextHopId) -> Option<&NextHop> {
        self.entries.get(id.index())
    }

    /// The member of a group that a flow goes to, by the hash that `hash` makes from the seed; any other next hop is
    /// itself. Groups don't nest.
    #[inline]
    pub fn member(&self, id: NextHopId, hash: impl FnOnce(u64) -> u32) -> NextHopId {
        match self.next_hop(id) {
            Some(NextHop::Group(group)) => group.pick(hash(self.hash_seed)),
            _ => id,
        }
    }

    #[inline(always)]
    pub(crate) fn rewrites(&self) -> &[Rewrite] {
        &self.rewrites
    }

    #[inline(always)]
    pub(crate) fn admission(&self, port: u16) -> Admission {
        self.admissions.get(usize::from(port)).copied().unwrap_or(Admission::NONE)
    }

    /// Our address that IPv4 packets of our own leave with that way: the first of the interface's, else of any.
    pub(crate) fn ipv4_source(&self, way: &Adjacency) -> Option<Ipv4Addr> {
        self.own_addresses(way).find_map(|address| match address {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        })
    }

    /// The same for IPv6, of addresses that are good beyond their links.
    pub(crate) fn ipv6_source(&self, way: &Adjacency) -> Option<Ipv6Addr> {
        self.own_addresses(way).find_map(|address| match address {
            IpAddr::V6(address) => (!martian::ipv6_stays_on_link(address)).then_some(address),
            IpAddr::V4(_) => None,
        })
    }

    /// The TTL of IPv4 packets of our own.
    pub(crate) fn ttl(&self) -> u8 {
        self.host.ttl
    }

    /// The hop limit of IPv6 packets of our own that leave that way.
    pub(crate) fn hop_limit(&self, way: &Adjacency) -> u8 {
        self.leaves_by(way).map_or(OWN_TTL, |interface| interface.hop_limit)
    }

    /// The interface that a way leads out of.
    fn leaves_by(&self, way: &Adjacency) -> Option<Interface<'_>> {
        let port = self.port(way.port)?;
        let mut vlans = port.vlans.iter().flatten();
        let of_vlan = vlans.find(|vlan| Some(vlan.vlan) == way.vlan).map(Interface::of_vlan);
        Some(of_vlan.unwrap_or_else(|| Interface::of_port(port)))
    }

    /// Our addresses, those of the interface that this way leads out of first.
    fn own_addresses(&self, way: &Adjacency) -> impl Iterator<Item = IpAddr> {
        let others = self.ports.iter().map(Interface::of_port);
        let all = self.leaves_by(way).into_iter().chain(others).flat_map(|interface| interface.addresses());
        all.chain(self.host.other_addresses.iter().copied())
    }

    /// Whether the sources of any interface's packets are checked.
    #[inline]
    pub(crate) fn checks_sources(&self) -> bool {
        self.checks_sources
    }

    /// The interface that a packet came in by; `None` for an unknown port, or a VLAN that the port has no interface for.
    pub(crate) fn interface(&self, packet: &Packet) -> Option<Interface<'_>> {
        let port = self.port(packet.port())?;
        let whole = Interface::of_port(port);
        let Some(vlans) = &port.vlans else { return Some(whole) };
        let link = LinkLayer::parse(packet.data()).ok()?;
        match (link.outer, link.inner) {
            // A tag with number 0 is there for its priority only (IEEE 802.1Q clause 6.9).
            (None, _) => Some(whole),
            (Some(tag), None) if tag.id() == 0 => Some(whole),
            (Some(tag), None) if tag.protocol == EtherType::VLAN => {
                vlans.iter().find(|vlan| vlan.vlan == tag.id()).map(Interface::of_vlan)
            }
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn port(&self, number: u16) -> Option<&RouterPort> {
        self.ports.get(usize::from(number))
    }
}
