//! Reads what the kernel says of bridges, of VXLAN devices, and of stations behind either.

use std::net::IpAddr;

use netlink_packet_core::{DefaultNla, Nla as _};
use netlink_packet_route::link::{
    BridgePortState, InfoBridgePort, InfoVxlan, LinkAttribute, LinkMessage, LinkProtoInfoBridge, VxlanDf,
};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState as Nud,
};

use super::event::{BridgePort, Event, StationKey, TunnelEnd, Vxlan};

/// The UDP port that the kernel's devices have unless somebody says another (`drivers/net/vxlan/vxlan_core.c: vxlan_port`).
const USUAL_PORT: u16 = 8472;

/// Attributes that the crate has no name for (`include/uapi/linux/if_link.h`, `neighbour.h`).
const IFLA_BRPORT_STATE: u16 = 1;
const IFLA_BRPORT_LEARNING: u16 = 8;
const NDA_NH_ID: u16 = 13;

/// `BR_STATE_FORWARDING` (`include/uapi/linux/if_bridge.h`).
const FORWARDING: u8 = 3;

/// How a VXLAN device is set up.
pub(super) fn vxlan(parts: &[InfoVxlan]) -> Vxlan {
    let mut device = Vxlan {
        identifier: 0,
        local: None,
        lower: None,
        udp_port: USUAL_PORT,
        ttl: 0,
        tos: 0,
        learns: false,
        source_ports: None,
        udp_checksum: false,
        no_checksum_over_ipv6: false,
        takes_no_checksum_over_ipv6: false,
        dont_fragment: false,
        kernel_only: None,
    };
    for part in parts {
        match part {
            InfoVxlan::Id(identifier) => device.identifier = *identifier,
            InfoVxlan::Local(address) => device.local = Some(IpAddr::V4(*address)),
            InfoVxlan::Local6(address) => device.local = Some(IpAddr::V6(*address)),
            InfoVxlan::Link(lower) => device.lower = (*lower != 0).then_some(*lower),
            InfoVxlan::Port(port) => device.udp_port = *port,
            InfoVxlan::Ttl(ttl) => device.ttl = *ttl,
            InfoVxlan::Tos(tos) => device.tos = *tos,
            InfoVxlan::Learning(learns) => device.learns = *learns,
            InfoVxlan::PortRange(range) => device.source_ports = (*range != (0, 0)).then_some(*range),
            InfoVxlan::UDPCsum(sends) => device.udp_checksum = *sends,
            InfoVxlan::UDPZeroCsumTX(none) => device.no_checksum_over_ipv6 = *none,
            InfoVxlan::UDPZeroCsumRX(takes) => device.takes_no_checksum_over_ipv6 = *takes,
            InfoVxlan::Df(VxlanDf::Set) => device.dont_fragment = true,
            InfoVxlan::CollectMetadata(true) | InfoVxlan::Vnifilter(true) => {
                device.kernel_only = Some("is one for several networks (external, vnifilter)");
            }
            InfoVxlan::TtlInherit(1..) => {
                device.kernel_only.get_or_insert("takes the TTL of packets inside (ttl inherit)");
            }
            InfoVxlan::Df(VxlanDf::Inherit) => {
                device.kernel_only.get_or_insert("takes the flag DF of packets inside (df inherit)");
            }
            InfoVxlan::Rsc(true) => {
                device.kernel_only.get_or_insert("routes by itself (rsc)");
            }
            InfoVxlan::Gbp | InfoVxlan::Gpe | InfoVxlan::RemCsumTX(true) | InfoVxlan::RemCsumRX(true) => {
                device.kernel_only.get_or_insert("has an extension (gbp, gpe, remcsum)");
            }
            _ => {}
        }
    }
    if device.local.is_none_or(|local| local.is_unspecified()) {
        device.local = None;
        device.kernel_only.get_or_insert("has no address of its own (local)");
    }
    device
}

/// What a bridge does with a member, in a message about the member's interface.
pub(super) fn port(parts: &[InfoBridgePort]) -> BridgePort {
    let mut port = BridgePort::default();
    for part in parts {
        match part {
            InfoBridgePort::State(state) => port.is_forwarding = *state == BridgePortState::Forwarding,
            InfoBridgePort::Learning(learns) => port.learns = *learns,
            _ => {}
        }
    }
    port
}

/// The same in a message of the bridge's own family; not all of these are about a member.
pub(super) fn port_message(message: &LinkMessage) -> Option<Event> {
    let all = message.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::ProtoInfoBridge(all) => Some(all),
        _ => None,
    })?;
    let byte = |attribute: &DefaultNla| {
        let mut value = [0];
        (attribute.value_len() == 1).then(|| attribute.emit_value(&mut value))?;
        Some(value[0])
    };
    let find = |kind| {
        all.iter().find_map(|part| match part {
            LinkProtoInfoBridge::Other(attribute) if attribute.kind() == kind => byte(attribute),
            _ => None,
        })
    };
    let is_forwarding = find(IFLA_BRPORT_STATE)? == FORWARDING;
    let port = BridgePort { is_forwarding, learns: find(IFLA_BRPORT_LEARNING)? != 0 };
    Some(Event::BridgePort(message.header.index, port))
}

/// Where a station is: a bridge says behind which member, a VXLAN device behind which tunnel end.
///
/// An entry that somebody adds to a device's table is told of once more by the part of the kernel that all devices share, without the
/// tunnel end (`net/core/rtnetlink.c: rtnl_fdb_notify`, before Linux 6.15); its members are named by bridges alone. Such a message says nothing.
pub(super) fn station(message: &NeighbourMessage, is_gone: bool) -> Option<Event> {
    let link = message.header.ifindex;
    let (mut mac, mut bridge, mut vlan, mut address, mut by_object) = (None, None, 0, None, false);
    let (mut udp_port, mut identifier, mut has_link) = (None, None, false);
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::LinkLayerAddress(bytes) => mac = <[u8; 6]>::try_from(bytes.as_slice()).ok(),
            NeighbourAttribute::Controller(index) => bridge = Some(*index),
            NeighbourAttribute::Vlan(number) => vlan = *number,
            NeighbourAttribute::Destination(NeighbourAddress::Other(bytes)) => address = ip(bytes),
            NeighbourAttribute::Port(port) => udp_port = Some(*port),
            NeighbourAttribute::Vni(number) => identifier = Some(*number),
            NeighbourAttribute::IfIndex(index) => has_link = *index != 0,
            NeighbourAttribute::Other(other) if other.kind() == NDA_NH_ID => by_object = true,
            _ => {}
        }
    }
    let mac = mac?;
    if let Some(bridge) = bridge {
        let key = StationKey { bridge, mac, vlan };
        // Of the box's own there is one entry, whichever member has the address.
        let member = if message.header.state == Nud::Permanent { 0 } else { link };
        return Some(if is_gone { Event::StationGone(key, member) } else { Event::Station(key, member) });
    }
    let end = address.map(|address| TunnelEnd { address, udp_port, identifier, has_link });
    if end.is_none() && !by_object {
        return None;
    }
    Some(if is_gone { Event::BehindGone(link, mac, end) } else { Event::Behind(link, mac, end) })
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::kernel::{attribute, decode};

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x22];

    /// A message about a station (struct ndmsg), of a bridge's family, with these attributes.
    fn told(kind: u16, link: u32, state: u16, attributes: &[(u16, &[u8])]) -> Option<Event> {
        let mut body = vec![7, 0, 0, 0];
        body.extend(link.to_ne_bytes());
        body.extend(state.to_ne_bytes());
        body.extend([2, 0]);
        for (kind, value) in attributes {
            body.extend(attribute(*kind, value));
        }
        decode(kind, 0, &body)
    }

    /// As Linux 6.1 tells of `bridge fdb add … dst … self`: its device first, then the part that all devices share.
    #[test]
    fn what_is_told_once_more_without_a_tunnel_end_says_nothing() {
        let (mac, address): ((u16, &[u8]), _) = ((2, &MAC), [198, 51, 100, 2]);
        let end = TunnelEnd { address: address.into(), udp_port: None, identifier: None, has_link: false };
        assert_eq!(told(28, 5, 0x80, &[mac, (1, &address)]), Some(Event::Behind(5, MAC, Some(end))));
        assert_eq!(told(28, 5, 0x80, &[mac]), None);
        assert_eq!(told(29, 5, 0x80, &[mac, (1, &address)]), Some(Event::BehindGone(5, MAC, Some(end))));
        assert_eq!(told(29, 5, 0x80, &[mac]), None);
        // With a port, an identifier and an interface of its own, over IPv6; and by a nexthop object.
        let all = [mac, (1, &[0x20; 16]), (6, &4790_u16.to_be_bytes()), (7, &9_u32.to_ne_bytes())];
        let other = TunnelEnd {
            address: [0x20; 16].into(),
            udp_port: Some(4790),
            identifier: Some(9),
            has_link: true,
        };
        let by = 3_u32.to_ne_bytes();
        let all = [&all[..], &[(8, &by[..])]].concat();
        assert_eq!(told(28, 5, 2, &all), Some(Event::Behind(5, MAC, Some(other))));
        assert_eq!(told(28, 5, 2, &[mac, (13, &7_u32.to_ne_bytes())]), Some(Event::Behind(5, MAC, None)));
    }

    #[test]
    fn a_bridge_says_behind_which_member_a_station_is() {
        let (mac, bridge): ((u16, &[u8]), _) = ((2, &MAC), 3_u32.to_ne_bytes());
        let key = |vlan| StationKey { bridge: 3, mac: MAC, vlan };
        assert_eq!(told(28, 5, 2, &[mac, (9, &bridge)]), Some(Event::Station(key(0), 5)));
        let tagged = [mac, (9, &bridge), (5, &7_u16.to_ne_bytes())];
        assert_eq!(told(29, 5, 2, &tagged), Some(Event::StationGone(key(7), 5)));
        // The box's own (NUD_PERMANENT).
        assert_eq!(told(28, 5, 0x80, &[mac, (9, &bridge)]), Some(Event::Station(key(0), 0)));
    }

    #[test]
    fn a_member_of_a_bridge_is_told_of_in_the_bridge_s_family() {
        // struct ifinfomsg, and IFLA_PROTINFO with state and learning.
        let message = |state: u8, learning: u8| {
            let nested = [attribute(1, &[state]), attribute(8, &[learning])].concat();
            let mut body = vec![7, 0, 0, 0];
            body.extend(5_u32.to_ne_bytes());
            body.extend([0; 8]);
            body.extend(attribute(0x800c, &nested));
            decode(16, 0, &body)
        };
        let port = |is_forwarding, learns| Some(Event::BridgePort(5, BridgePort { is_forwarding, learns }));
        assert_eq!(message(3, 0), port(true, false));
        assert_eq!(message(0, 1), port(false, true));
    }

    #[test]
    fn what_only_the_kernel_can_do_has_a_reason() {
        let local = InfoVxlan::Local([198, 51, 100, 1].into());
        let why = |part: InfoVxlan| vxlan(&[local.clone(), part]).kernel_only;
        assert_eq!(why(InfoVxlan::Learning(true)), None);
        for part in [
            InfoVxlan::CollectMetadata(true),
            InfoVxlan::TtlInherit(1),
            InfoVxlan::Df(VxlanDf::Inherit),
            InfoVxlan::Gbp,
            InfoVxlan::Rsc(true),
            InfoVxlan::Local([0; 4].into()),
        ] {
            assert!(why(part.clone()).is_some(), "{part:?}");
        }
        assert!(vxlan(&[]).kernel_only.is_some());
    }
}
