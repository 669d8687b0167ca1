//! Reads what the kernel says of devices that carry IP packets over IPv4.

use std::net::{IpAddr, Ipv4Addr};

use netlink_packet_route::IpProtocol;
use netlink_packet_route::link::{GreEncapType, GreIOFlags, InfoGre, InfoIpTunnel, TunnelEncapType};
use warmlane_forward::control::IpTunnel;

use super::event::IpTunnelDevice;

/// `SIT_ISATAP` (`include/uapi/linux/if_tunnel.h`).
const ISATAP: u16 = 1;

const SEVERAL_ENDS: &str =
    "has no fixed tunnel end at the other side (remote), or is one for several (external)";
const NO_ADDRESS: &str = "has no address of its own (local)";
const IN_UDP: &str = "puts its packets into UDP (encap)";
const MARKS: &str = "marks its packets (fwmark)";
const MAY_BE_CUT: &str = "takes the flag DF of packets inside (nopmtudisc)";
const OPTIONS: &str = "has checksums or sequence numbers (csum, seq)";
const ISATAP_USED: &str = "has tunnel ends by ISATAP (isatap)";

fn unknown(tunnel: IpTunnel, carries: [bool; 2]) -> IpTunnelDevice {
    IpTunnelDevice {
        local: Ipv4Addr::UNSPECIFIED,
        remote: Ipv4Addr::UNSPECIFIED,
        lower: None,
        tunnel: [tunnel; 2],
        carries,
        ttl: 0,
        tos: 0,
        kernel_only: None,
    }
}

/// With a reason why only the kernel can do what it does, if there is one and it has none yet.
fn judged(mut device: IpTunnelDevice) -> IpTunnelDevice {
    let why = if device.remote.is_unspecified() || device.remote.is_multicast() {
        Some(SEVERAL_ENDS)
    } else if device.local.is_unspecified() {
        Some(NO_ADDRESS)
    } else {
        None
    };
    device.kernel_only = device.kernel_only.or(why);
    device
}

fn ipv4(address: IpAddr) -> Ipv4Addr {
    match address {
        IpAddr::V4(address) => address,
        IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
    }
}

/// A device of kind `ipip` or `sit`.
pub(super) fn ip_tunnel(kind: &str, parts: &[InfoIpTunnel]) -> IpTunnelDevice {
    let is_sit = kind == "sit";
    let mut device = unknown(IpTunnel::Plain, [!is_sit, is_sit]);
    for part in parts {
        match part {
            InfoIpTunnel::Local(address) => device.local = ipv4(*address),
            InfoIpTunnel::Remote(address) => device.remote = ipv4(*address),
            InfoIpTunnel::Link(lower) => device.lower = (*lower != 0).then_some(*lower),
            InfoIpTunnel::Ttl(ttl) => device.ttl = *ttl,
            InfoIpTunnel::Tos(tos) => device.tos = *tos,
            // Of `mode any` it is 0.
            InfoIpTunnel::Protocol(protocol) => {
                let is =
                    |number: IpProtocol| u8::from(*protocol) == u8::from(number) || u8::from(*protocol) == 0;
                device.carries = [is(IpProtocol::Ipip), is_sit && is(IpProtocol::Ipv6)];
            }
            InfoIpTunnel::PMtuDisc(false) => device.kernel_only = Some(MAY_BE_CUT),
            InfoIpTunnel::CollectMetadata => device.kernel_only = Some(SEVERAL_ENDS),
            InfoIpTunnel::EncapType(kind) if *kind != TunnelEncapType::None => {
                device.kernel_only = Some(IN_UDP);
            }
            InfoIpTunnel::FwMark(1..) => device.kernel_only = Some(MARKS),
            InfoIpTunnel::Ipv6SitFlags(flags) if flags & ISATAP != 0 => {
                device.kernel_only = Some(ISATAP_USED);
            }
            _ => {}
        }
    }
    judged(device)
}

/// A device of kind `gre`.
pub(super) fn gre(parts: &[InfoGre]) -> IpTunnelDevice {
    let mut device = unknown(IpTunnel::Gre(None), [true; 2]);
    let (mut flags, mut keys) = ([GreIOFlags::default(); 2], [0; 2]);
    for part in parts {
        match part {
            InfoGre::Local(address) => device.local = *address,
            InfoGre::Remote(address) => device.remote = *address,
            InfoGre::Link(lower) => device.lower = (*lower != 0).then_some(*lower),
            InfoGre::Ttl(ttl) => device.ttl = *ttl,
            InfoGre::Tos(tos) => device.tos = *tos,
            InfoGre::IFlags(is) => flags[0] = *is,
            InfoGre::OFlags(is) => flags[1] = *is,
            InfoGre::IKey(key) => keys[0] = *key,
            InfoGre::OKey(key) => keys[1] = *key,
            InfoGre::PathMTUDiscovery(false) => device.kernel_only = Some(MAY_BE_CUT),
            InfoGre::CollectMetadata => device.kernel_only = Some(SEVERAL_ENDS),
            InfoGre::EncapType(kind) if *kind != GreEncapType::None => device.kernel_only = Some(IN_UDP),
            InfoGre::FwMask(1..) => device.kernel_only = Some(MARKS),
            _ => {}
        }
    }
    for (tunnel, (flags, key)) in device.tunnel.iter_mut().zip(flags.into_iter().zip(keys)) {
        *tunnel = IpTunnel::Gre(flags.contains(GreIOFlags::Key).then_some(key));
        if flags.intersects(GreIOFlags::Checksum | GreIOFlags::Seq) {
            device.kernel_only = Some(OPTIONS);
        }
    }
    judged(device)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
    const REMOTE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);

    #[test]
    fn what_a_gre_device_carries() {
        let ends = [InfoGre::Local(LOCAL), InfoGre::Remote(REMOTE), InfoGre::Ttl(9), InfoGre::Tos(1)];
        let device = gre(&ends);
        assert_eq!((device.local, device.remote, device.ttl, device.tos), (LOCAL, REMOTE, 9, 1));
        assert_eq!((device.tunnel, device.kernel_only), ([IpTunnel::Gre(None); 2], None));
        let more = [InfoGre::IFlags(GreIOFlags::Key), InfoGre::IKey(7), InfoGre::OKey(8)];
        let device = gre(&[&ends[..], &more].concat());
        assert_eq!(
            (device.tunnel, device.kernel_only),
            ([IpTunnel::Gre(Some(7)), IpTunnel::Gre(None)], None)
        );
        for part in [
            InfoGre::OFlags(GreIOFlags::Checksum),
            InfoGre::IFlags(GreIOFlags::Seq | GreIOFlags::Key),
            InfoGre::PathMTUDiscovery(false),
            InfoGre::CollectMetadata,
            InfoGre::EncapType(GreEncapType::Fou),
            InfoGre::FwMask(1),
            InfoGre::Remote(Ipv4Addr::UNSPECIFIED),
            InfoGre::Remote([224, 0, 0, 9].into()),
            InfoGre::Local(Ipv4Addr::UNSPECIFIED),
        ] {
            assert!(
                gre(&[&ends[..], std::slice::from_ref(&part)].concat()).kernel_only.is_some(),
                "{part:?}"
            );
        }
    }

    #[test]
    fn what_devices_without_gre_carry() {
        let ends = [InfoIpTunnel::Local(LOCAL.into()), InfoIpTunnel::Remote(REMOTE.into())];
        let with = |kind: &str, more: &[InfoIpTunnel]| ip_tunnel(kind, &[&ends[..], more].concat());
        let protocol = |number: u8| InfoIpTunnel::Protocol(number.into());
        for (kind, number, carries) in [
            ("ipip", 4, [true, false]),
            ("ipip", 0, [true, false]),
            ("ipip", 137, [false, false]),
            ("sit", 41, [false, true]),
            ("sit", 4, [true, false]),
            ("sit", 0, [true, true]),
        ] {
            let device = with(kind, &[protocol(number)]);
            assert_eq!((device.carries, device.kernel_only), (carries, None), "{kind} {number}");
        }
        assert_eq!(with("sit", &[]).carries, [false, true]);
        for part in [
            InfoIpTunnel::PMtuDisc(false),
            InfoIpTunnel::CollectMetadata,
            InfoIpTunnel::EncapType(TunnelEncapType::Gue),
            InfoIpTunnel::FwMark(1),
            InfoIpTunnel::Ipv6SitFlags(ISATAP),
        ] {
            assert!(with("sit", std::slice::from_ref(&part)).kernel_only.is_some(), "{part:?}");
        }
        assert!(ip_tunnel("ipip", &[]).kernel_only.is_some());
    }
}
