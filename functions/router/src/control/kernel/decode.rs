//! Reads the kernel's messages (rtnetlink(7)). What is malformed, or not for us, gives no event.

use std::net::IpAddr;
use std::sync::Arc;

use netlink_packet_core::{Nla as _, NlasIterator, Parseable};
use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{
    InfoBridge, InfoData, InfoKind, InfoPortData, InfoVlan, InfoVrf, LinkAttribute, LinkFlags, LinkInfo,
    LinkMessage, VlanProtocol,
};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState as Nud,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteMetric, RouteNextHop, RouteNextHopFlags,
    RouteType, RouteVia,
};
use netlink_packet_route::rule::{RuleAction as Action, RuleAttribute, RuleFlags, RuleMessage};
use warmlane_table::{IpPrefix, Prefix};

use super::event::{
    Address, Event, Link, Neighbour, NeighbourState, NextHopObject, Placement, Route, RouteKey, RoutePath,
    Rule, RuleAction, Target,
};
use super::{decode_bridge, decode_tunnel};

/// Kinds of messages (`include/uapi/linux/rtnetlink.h`).
pub(super) mod kind {
    pub(crate) const NEW_LINK: u16 = 16;
    pub(crate) const DEL_LINK: u16 = 17;
    pub(crate) const GET_LINK: u16 = 18;
    pub(crate) const NEW_ADDRESS: u16 = 20;
    pub(crate) const DEL_ADDRESS: u16 = 21;
    pub(crate) const GET_ADDRESS: u16 = 22;
    pub(crate) const NEW_ROUTE: u16 = 24;
    pub(crate) const DEL_ROUTE: u16 = 25;
    pub(crate) const GET_ROUTE: u16 = 26;
    pub(crate) const NEW_NEIGHBOUR: u16 = 28;
    pub(crate) const DEL_NEIGHBOUR: u16 = 29;
    pub(crate) const GET_NEIGHBOUR: u16 = 30;
    pub(crate) const NEW_RULE: u16 = 32;
    pub(crate) const DEL_RULE: u16 = 33;
    pub(crate) const GET_RULE: u16 = 34;
    pub(crate) const NEW_NEXT_HOP: u16 = 104;
    pub(crate) const DEL_NEXT_HOP: u16 = 105;
    pub(crate) const GET_NEXT_HOP: u16 = 106;
}

/// Flags of messages (`include/uapi/linux/netlink.h`).
pub(super) const FLAG_REPLACE: u16 = 0x100;
pub(super) const FLAG_APPEND: u16 = 0x800;

/// Reads one message's body.
pub fn decode(kind: u16, flags: u16, body: &[u8]) -> Option<Event> {
    match kind {
        kind::NEW_LINK => {
            let message = LinkMessage::parse(body).ok()?;
            match message.header.interface_family {
                AddressFamily::Bridge => decode_bridge::port_message(&message),
                _ => link(&message).map(Event::Link),
            }
        }
        kind::DEL_LINK => link(&LinkMessage::parse(body).ok()?).map(|link| Event::LinkGone(link.index)),
        kind::NEW_ADDRESS => address(&AddressMessage::parse(body).ok()?).map(Event::Address),
        kind::DEL_ADDRESS => address(&AddressMessage::parse(body).ok()?).map(Event::AddressGone),
        kind::NEW_NEIGHBOUR | kind::DEL_NEIGHBOUR => {
            let message = NeighbourMessage::parse(body).ok()?;
            let is_gone = kind == kind::DEL_NEIGHBOUR;
            if message.header.family == AddressFamily::Bridge {
                return decode_bridge::station(&message, is_gone);
            }
            let known = neighbour(&message)?;
            Some(if is_gone {
                Event::NeighbourGone(known.link, known.address)
            } else {
                Event::Neighbour(known)
            })
        }
        kind::NEW_ROUTE => {
            let (key, route) = route(&RouteMessage::parse(body).ok()?)?;
            let placement = if flags & FLAG_REPLACE != 0 {
                Placement::Replace
            } else if flags & FLAG_APPEND != 0 {
                Placement::Append
            } else {
                Placement::Insert
            };
            Some(Event::Route(key, route, placement))
        }
        kind::DEL_ROUTE => {
            let (key, route) = route(&RouteMessage::parse(body).ok()?)?;
            Some(Event::RouteGone(key, route))
        }
        kind::NEW_NEXT_HOP => object(body).map(|(number, object)| Event::Object(number, object)),
        kind::DEL_NEXT_HOP => object(body).map(|(number, _)| Event::ObjectGone(number)),
        kind::NEW_RULE => rule(&RuleMessage::parse(body).ok()?).map(Event::Rule),
        kind::DEL_RULE => rule(&RuleMessage::parse(body).ok()?).map(Event::RuleGone),
        _ => None,
    }
}

fn link(message: &LinkMessage) -> Option<Link> {
    // Bridges tell of their ports in messages of their own family.
    if message.header.interface_family != AddressFamily::Unspec {
        return None;
    }
    let flags = message.header.flags;
    let mut link = Link {
        index: message.header.index,
        is_up: flags.contains(LinkFlags::Up),
        // Neither of them is what the kernel takes for no carrier (`net/ipv4/nexthop.c: nh_netdev_event`).
        has_carrier: flags.intersects(LinkFlags::Running | LinkFlags::LowerUp),
        ..Link::default()
    };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name.clone_from(name),
            LinkAttribute::Address(bytes) => link.mac = bytes.as_slice().try_into().ok(),
            LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
            LinkAttribute::Controller(master) => link.master = (*master != 0).then_some(*master),
            LinkAttribute::Link(lower) => link.lower = Some(*lower),
            LinkAttribute::LinkInfo(infos) => {
                for info in infos {
                    link_info(&mut link, info);
                }
            }
            _ => {}
        }
    }
    Some(link)
}

fn link_info(link: &mut Link, info: &LinkInfo) {
    match info {
        LinkInfo::Kind(kind) => {
            link.kind = match kind {
                InfoKind::Other(name) => name.clone(),
                known => known.to_string(),
            };
        }
        LinkInfo::Data(InfoData::Vlan(vlan)) => {
            let mut customer = true;
            for part in vlan {
                match part {
                    InfoVlan::Id(number) => link.vlan = Some(*number),
                    InfoVlan::Protocol(protocol) => customer = *protocol == VlanProtocol::Ieee8021Q,
                    _ => {}
                }
            }
            if !customer {
                link.vlan = None;
            }
        }
        LinkInfo::Data(InfoData::Vxlan(parts)) => link.vxlan = Some(decode_bridge::vxlan(parts)),
        LinkInfo::Data(InfoData::IpTunnel(parts)) if link.kind == "ipip" || link.kind == "sit" => {
            link.ip_tunnel = Some(decode_tunnel::ip_tunnel(&link.kind, parts));
        }
        LinkInfo::Data(InfoData::GreTun(parts)) => link.ip_tunnel = Some(decode_tunnel::gre(parts)),
        LinkInfo::Data(InfoData::Bridge(parts)) => {
            link.filters_vlans = parts.contains(&InfoBridge::VlanFiltering(true));
        }
        LinkInfo::PortData(InfoPortData::BridgePort(parts)) => {
            link.bridge_port = Some(decode_bridge::port(parts));
        }
        LinkInfo::Data(InfoData::Vrf(vrf)) => {
            for part in vrf {
                if let InfoVrf::TableId(table) = part {
                    link.vrf_table = Some(*table);
                }
            }
        }
        _ => {}
    }
}

fn address(message: &AddressMessage) -> Option<Address> {
    let (mut local, mut address) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(ip) => local = Some(*ip),
            AddressAttribute::Address(ip) => address = Some(*ip),
            _ => {}
        }
    }
    // On a point-to-point link, "address" is the other end.
    let address = local.or(address)?;
    Some(Address { link: message.header.index, address, length: message.header.prefix_len })
}

fn neighbour(message: &NeighbourMessage) -> Option<Neighbour> {
    let (mut address, mut mac) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(ip)) => address = Some(IpAddr::V4(*ip)),
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(ip)) => address = Some(IpAddr::V6(*ip)),
            NeighbourAttribute::LinkLayerAddress(bytes) => mac = <[u8; 6]>::try_from(bytes.as_slice()).ok(),
            _ => {}
        }
    }
    if !matches!(message.header.family, AddressFamily::Inet | AddressFamily::Inet6) {
        return None;
    }
    let state = match (message.header.state, mac) {
        (Nud::Reachable | Nud::Permanent | Nud::Delay | Nud::Probe, Some(mac)) => NeighbourState::Known(mac),
        (Nud::Stale, Some(mac)) => NeighbourState::Stale(mac),
        // As routing daemons set those that they have learned of (EVPN).
        (Nud::Noarp, Some(mac)) if is_one_host(mac) && !address.is_some_and(|ip| ip.is_multicast()) => {
            NeighbourState::Known(mac)
        }
        // Groups and broadcasts: nobody to send to by a route.
        (Nud::Noarp, _) => return None,
        _ => NeighbourState::Unknown,
    };
    Some(Neighbour { link: message.header.ifindex, address: address?, state })
}

/// Whether this is the address of a single interface (IEEE 802 section 8.2).
fn is_one_host(mac: [u8; 6]) -> bool {
    mac[0] & 1 == 0 && mac != [0; 6]
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(ip) => Some(IpAddr::V4(*ip)),
        RouteAddress::Inet6(ip) => Some(IpAddr::V6(*ip)),
        _ => None,
    }
}

/// What the attributes of a route, or of one of its paths, say of the next hop.
#[derive(Default)]
struct NextHopFields {
    gateway: Option<IpAddr>,
    link: u32,
    /// Something that only the kernel can do: encapsulation, MPLS.
    special: bool,
}

impl NextHopFields {
    fn read(&mut self, attribute: &RouteAttribute) {
        match attribute {
            RouteAttribute::Gateway(gateway) => self.gateway = ip(gateway),
            RouteAttribute::Via(RouteVia::Inet(gateway)) => self.gateway = Some(IpAddr::V4(*gateway)),
            RouteAttribute::Via(RouteVia::Inet6(gateway)) => self.gateway = Some(IpAddr::V6(*gateway)),
            RouteAttribute::Oif(link) => self.link = *link,
            RouteAttribute::Via(_)
            | RouteAttribute::EncapType(_)
            | RouteAttribute::Encap(_)
            | RouteAttribute::NewDestination(_)
            | RouteAttribute::NewDestinationAddress(_) => self.special = true,
            _ => {}
        }
    }
}

fn path(next_hop: &RouteNextHop) -> Option<RoutePath> {
    let mut fields = NextHopFields { link: next_hop.interface_index, ..NextHopFields::default() };
    next_hop.attributes.iter().for_each(|attribute| fields.read(attribute));
    (!fields.special).then_some(RoutePath {
        link: fields.link,
        gateway: fields.gateway,
        weight: u16::from(next_hop.hops) + 1,
        is_dead: next_hop.flags.contains(RouteNextHopFlags::Dead),
    })
}

fn own_mtu(metrics: &[RouteMetric]) -> u32 {
    let mtus = metrics.iter().map(|metric| if let RouteMetric::Mtu(mtu) = metric { *mtu } else { 0 });
    mtus.max().unwrap_or(0)
}

/// The route in the answer to a question for one.
pub(super) fn answered_route(body: &[u8]) -> Option<(IpPrefix, Route)> {
    let mut message = RouteMessage::parse(body).ok()?;
    // What is of a table or made up for the answer, and by which object: here the next hop is what counts.
    message.header.flags.remove(RouteFlags::Cloned);
    message.attributes.retain(|attribute| !matches!(attribute, RouteAttribute::NhId(_)));
    let (key, route) = route(&message)?;
    Some((key.prefix, route))
}

fn route(message: &RouteMessage) -> Option<(RouteKey, Route)> {
    let header = &message.header;
    // Entries of the IPv6 route cache.
    if header.flags.contains(RouteFlags::Cloned) {
        return None;
    }
    let mut table = u32::from(header.table);
    let (mut destination, mut metric, mut mtu, mut object, mut several) = (None, 0, 0, None, None);
    let mut source = None;
    let mut fields = NextHopFields::default();
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Table(number) => table = *number,
            RouteAttribute::Destination(address) => destination = ip(address),
            RouteAttribute::Source(RouteAddress::Inet6(from)) => {
                let length = header.source_prefix_length;
                source = (length != 0).then(|| IpPrefix::V6(Prefix::containing(from.to_bits(), length)));
            }
            RouteAttribute::Priority(number) => metric = *number,
            RouteAttribute::Metrics(metrics) => mtu = own_mtu(metrics),
            RouteAttribute::NhId(number) => object = Some(*number),
            RouteAttribute::MultiPath(list) => several = Some(list),
            other => fields.read(other),
        }
    }
    let length = header.destination_prefix_length;
    let prefix = match (header.address_family, destination) {
        (AddressFamily::Inet, None) => IpPrefix::V4(Prefix::containing(0, length)),
        (AddressFamily::Inet6, None) => IpPrefix::V6(Prefix::containing(0, length)),
        (AddressFamily::Inet, Some(IpAddr::V4(ip))) => IpPrefix::V4(Prefix::containing(ip.to_bits(), length)),
        (AddressFamily::Inet6, Some(IpAddr::V6(ip))) => {
            IpPrefix::V6(Prefix::containing(ip.to_bits(), length))
        }
        _ => return None,
    };
    let target = match (header.kind, object) {
        // The kernel calls those to a blackhole object blackhole routes (`net/ipv4/fib_semantics.c: fib_dump_info`); they go
        // with the object all the same.
        (RouteType::Unicast | RouteType::BlackHole, Some(number)) if number != 0 => Target::Object(number),
        (RouteType::Unicast, _) => match several {
            Some(list) => {
                let paths: Option<Vec<RoutePath>> = list.iter().map(path).collect();
                paths.map_or(Target::KernelOnly, Target::Paths)
            }
            _ if fields.special => Target::KernelOnly,
            _ => {
                let is_dead = header.flags.contains(RouteFlags::Dead);
                Target::Paths(vec![RoutePath {
                    link: fields.link,
                    gateway: fields.gateway,
                    weight: 1,
                    is_dead,
                }])
            }
        },
        (RouteType::Local | RouteType::Anycast, _) => Target::Local,
        (RouteType::Broadcast, _) => Target::Broadcast,
        (RouteType::BlackHole, _) => Target::Blackhole,
        (RouteType::Unreachable, _) => Target::Unreachable,
        (RouteType::Prohibit, _) => Target::Prohibit,
        // Groups never get as far as a lookup.
        (RouteType::Multicast, _) => return None,
        _ => Target::KernelOnly,
    };
    let route = Route {
        metric,
        tos: header.tos,
        protocol: header.protocol.into(),
        source,
        mtu,
        target: Arc::new(target),
    };
    Some((RouteKey { table, prefix }, route))
}

/// Attributes of nexthop objects (`include/uapi/linux/nexthop.h`).
const NHA_ID: u16 = 1;
const NHA_GROUP: u16 = 2;
const NHA_GROUP_TYPE: u16 = 3;
const NHA_BLACKHOLE: u16 = 4;
const NHA_OIF: u16 = 5;
const NHA_GATEWAY: u16 = 6;
const NHA_ENCAP_TYPE: u16 = 7;
const NHA_FDB: u16 = 11;

/// `struct nhmsg`, and a member in an `NHA_GROUP`.
const OBJECT_HEADER: usize = 8;
const MEMBER: usize = 8;

/// `RTNH_F_DEAD` among the flags of a nexthop object.
const DEAD: u32 = 1;

fn number(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

/// Reads a nexthop object; the crate that reads the rest doesn't know these messages.
fn object(body: &[u8]) -> Option<(u32, NextHopObject)> {
    let (header, attributes) = body.split_first_chunk::<OBJECT_HEADER>()?;
    let flags = number(&header[4..])?;
    let (mut id, mut group, mut blackhole, mut special) = (None, None, false, false);
    let mut path = RoutePath { link: 0, gateway: None, weight: 1, is_dead: flags & DEAD != 0 };
    for attribute in NlasIterator::new(attributes) {
        let attribute = attribute.ok()?;
        let value = attribute.value();
        match attribute.kind() {
            NHA_ID => id = number(value),
            NHA_GROUP => {
                let members = value.chunks_exact(MEMBER).map(|member| {
                    let id = u32::from_ne_bytes([member[0], member[1], member[2], member[3]]);
                    // One less than the weight, the upper byte of which came with Linux 6.12.
                    (id, u16::from_le_bytes([member[4], member[5]]).saturating_add(1))
                });
                group = Some(members.collect());
            }
            // Buckets that stay with their member as long as that is there ("resilient"): ours do that anyway.
            NHA_GROUP_TYPE | NHA_BLACKHOLE => blackhole |= attribute.kind() == NHA_BLACKHOLE,
            NHA_OIF => path.link = number(value)?,
            NHA_GATEWAY => {
                path.gateway = match value.len() {
                    4 => Some(IpAddr::from(<[u8; 4]>::try_from(value).ok()?)),
                    16 => Some(IpAddr::from(<[u8; 16]>::try_from(value).ok()?)),
                    _ => return None,
                };
            }
            NHA_ENCAP_TYPE | NHA_FDB => special = true,
            _ => {}
        }
    }
    let object = match group {
        _ if special => NextHopObject::KernelOnly,
        Some(members) => NextHopObject::Group(members),
        None if blackhole => NextHopObject::Blackhole,
        None => NextHopObject::Path(path),
    };
    Some((id?, object))
}

/// What a rule's attribute says if it is not given (`FIB_RULE_...: suppress_prefixlen, suppress_ifgroup` of -1), and
/// `FRA_PAD`, which says nothing.
const NOT_GIVEN: u32 = u32::MAX;
const FRA_PAD: u16 = 18;

fn rule(message: &RuleMessage) -> Option<Rule> {
    let header = &message.header;
    let is_ipv6 = match header.family {
        AddressFamily::Inet => false,
        AddressFamily::Inet6 => true,
        _ => return None,
    };
    let inverted = header.flags.contains(RuleFlags::Invert);
    let mut rule = Rule {
        priority: 0,
        is_ipv6,
        action: match header.action {
            Action::ToTable => RuleAction::Table(u32::from(header.table)),
            Action::Blackhole => RuleAction::Blackhole,
            Action::Unreachable => RuleAction::Unreachable,
            Action::Prohibit => RuleAction::Prohibit,
            Action::Nop => RuleAction::Nothing,
            _ => RuleAction::Other,
        },
        comes_in_by: None,
        is_for_output: false,
        to: None,
        looks_at_more: inverted || header.src_len != 0 || header.tos != 0,
    };
    let mut to_vrf = false;
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Priority(priority) => rule.priority = *priority,
            RuleAttribute::Table(table) if header.action == Action::ToTable => {
                rule.action = RuleAction::Table(*table);
            }
            RuleAttribute::L3MDev(is) => to_vrf = *is,
            RuleAttribute::Iifname(name) => rule.comes_in_by = Some(name.clone()),
            RuleAttribute::Oifname(_) => rule.is_for_output = true,
            RuleAttribute::Destination(IpAddr::V4(to)) => {
                rule.to = Some(IpPrefix::V4(Prefix::containing(to.to_bits(), header.dst_len)));
            }
            RuleAttribute::Destination(IpAddr::V6(to)) => {
                rule.to = Some(IpPrefix::V6(Prefix::containing(to.to_bits(), header.dst_len)));
            }
            RuleAttribute::SuppressPrefixLen(NOT_GIVEN)
            | RuleAttribute::SuppressIfGroup(NOT_GIVEN)
            | RuleAttribute::Table(_)
            | RuleAttribute::Source(_)
            | RuleAttribute::Goto(_)
            | RuleAttribute::Realm(_)
            | RuleAttribute::Protocol(_) => {}
            RuleAttribute::Other(other) if other.kind() == FRA_PAD => {}
            // Marks, protocols, ports, users, tunnels, suppressed answers, and what is yet to come.
            _ => rule.looks_at_more = true,
        }
    }
    if to_vrf && header.action == Action::ToTable {
        rule.action = RuleAction::Vrf;
    }
    if inverted {
        // For all others than it says.
        (rule.comes_in_by, rule.is_for_output, rule.to) = (None, false, None);
    }
    Some(rule)
}
