//! Networks bridged over IP, by VXLAN or GENEVE: what can be said of them, and what it comes to. The gateway itself is in a crate of its own.

use std::collections::HashSet;
use std::net::IpAddr;

use serde::Deserialize;
use warmlane_settings::{Fault, Located, list_from_text};
use warmlane_wire::{MacAddress, martian};

use super::check::{Checked, number, port_number};
use super::settings::{Host, host, mac, optional_address};
use super::{ConfigProblem, PortConfig};
use crate::control::TunnelProtocol;

/// Bytes that a tunnel puts in front of an IP packet over IPv4: Ethernet inside, IPv4, UDP, VXLAN or GENEVE. Over IPv6 it is 20 more.
const OVERHEAD: u16 = 50;

/// Longest packet inside that still fits 1,500 bytes over IPv6, or with it over IPv4.
const USUAL_MTU: u32 = 1500;

/// The most networks, and tunnel ends and accesses of each: the gateway numbers them by 16 bits, and one number says that there is none.
const MOST: usize = u16::MAX as usize;

/// A network bridged over IP.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct OverlayEntry {
    /// The network's identifier (VNI), 24 bits.
    pub vni: Located<i64>,
    /// Our tunnel end: an address of a port.
    #[serde(deserialize_with = "host")]
    pub local: Located<IpAddr>,
    /// The other tunnel ends. Without them, all that send to the group.
    #[serde(default, deserialize_with = "list_from_text")]
    pub remotes: Vec<Located<Host>>,
    /// The multicast group that frames for all are sent to, instead of a copy to each tunnel end.
    #[serde(default, deserialize_with = "optional_address")]
    pub group: Option<Located<IpAddr>>,
    /// The port where the group is; the one with the address `local` unless it is said.
    pub group_port: Option<Located<String>>,
    /// The ports, or VLANs of ports, whose frames belong to the network.
    pub access: Vec<AccessEntry>,
    /// Stations behind tunnel ends, which are known without being seen.
    #[serde(default)]
    pub stations: Vec<StationEntry>,
    /// The UDP port.
    pub udp_port: Option<Located<i64>>,
    /// Longest IP packet inside, in bytes.
    pub mtu: Option<Located<i64>>,
    /// TTL or hop limit of the packets around.
    pub ttl: Option<Located<i64>>,
    /// Whether UDP checksums are sent.
    pub udp_checksum: Option<bool>,
    /// Whether checksums of TCP, UDP and ICMP inside are checked.
    #[serde(default)]
    pub inner_checksums: bool,
    /// Whether questions for addresses of known hosts are answered here.
    #[serde(default)]
    pub neighbour_suppression: bool,
    /// Seconds after which a station that was not seen is forgotten.
    pub age: Option<Located<i64>>,
}

/// A port, or a VLAN of it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AccessEntry {
    /// The port's name.
    pub port: Located<String>,
    /// The VLAN, whose tag is taken off and put on; without one, untagged frames.
    pub vlan: Option<Located<i64>>,
}

/// A station that is known without being seen.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct StationEntry {
    /// Its Ethernet address.
    #[serde(deserialize_with = "mac")]
    pub mac: Located<MacAddress>,
    /// The tunnel end that it is behind.
    #[serde(deserialize_with = "host")]
    pub remote: Located<IpAddr>,
    /// Its IP addresses, for neighbour suppression.
    #[serde(default, deserialize_with = "list_from_text")]
    pub addresses: Vec<Located<Host>>,
}

/// A network's multicast group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupConfig {
    /// Its address, of the tunnel ends' version of IP.
    pub address: IpAddr,
    /// The number of the port where it is.
    pub port: usize,
    /// Our address on that port, which says that we are in the group.
    pub source: IpAddr,
}

/// A network bridged over IP, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverlayConfig {
    /// How frames are packed.
    pub protocol: TunnelProtocol,
    /// The network's identifier (VNI).
    pub identifier: u32,
    /// Our tunnel end.
    pub local: IpAddr,
    /// The other tunnel ends, of the same version of IP. If there are none, those that send to the group.
    pub remotes: Vec<IpAddr>,
    /// The multicast group that frames for all are sent to, instead of a copy to each tunnel end.
    pub group: Option<GroupConfig>,
    /// Numbers of ports, and VLANs of them.
    pub access: Vec<(usize, Option<u16>)>,
    /// Stations behind remotes, by the remotes' numbers here.
    pub stations: Vec<(MacAddress, usize)>,
    /// The UDP port.
    pub udp_port: u16,
    /// Longest IP packet inside, in bytes.
    pub mtu: u16,
    /// TTL or hop limit of the packets around.
    pub ttl: u8,
    /// Whether UDP checksums are sent.
    pub udp_checksum: bool,
    /// Whether checksums of TCP, UDP and ICMP inside are checked.
    pub inner_checksums: bool,
    /// Whether questions for addresses of known hosts are answered here.
    pub neighbour_suppression: bool,
    /// IP addresses of stations.
    pub hosts: Vec<(IpAddr, MacAddress)>,
    /// Seconds after which a station that was not seen is forgotten.
    pub age_seconds: u32,
}

impl OverlayConfig {
    /// Where its packets come to: our tunnel end, and its group.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        [self.local].into_iter().chain(self.group.map(|group| group.address))
    }
}

/// Checks all of them, of which each has its own accesses, and of one protocol its own identifier.
pub(super) fn check(
    vxlan: &[OverlayEntry],
    geneve: &[OverlayEntry],
    ports: &[PortConfig],
    lanes: usize,
) -> Checked<Vec<OverlayConfig>> {
    let entries = || {
        let of = |protocol, entries| std::iter::repeat(protocol).zip::<&[OverlayEntry]>(entries);
        of(TunnelProtocol::Vxlan, vxlan).chain(of(TunnelProtocol::Geneve, geneve))
    };
    if let Some((_, entry)) = entries().nth(MOST) {
        return Err(too_many(&entry.vni, "bridged networks", entries().count()));
    }
    let mut so_far = HashSet::new();
    let mut networks: Vec<OverlayConfig> = Vec::with_capacity(vxlan.len() + geneve.len());
    for (protocol, entry) in entries() {
        let network = one(protocol, entry, ports)?;
        if lanes > 1 {
            return Err(entry.vni.fault(ConfigProblem::OverlayLanes { protocol, lanes }));
        }
        let mut same = networks.iter().filter(|other| other.protocol == protocol);
        if same.any(|other| other.identifier == network.identifier) {
            return Err(entry.vni.fault(ConfigProblem::DuplicateVni { protocol, vni: network.identifier }));
        }
        let udp_port = network.udp_port;
        let others =
            || networks.iter().filter(|other| other.protocol != protocol && other.udp_port == udp_port);
        for address in network.addresses() {
            if others().any(|other| other.addresses().any(|of_other| of_other == address)) {
                return Err(entry.vni.fault(ConfigProblem::TwoProtocols { address, udp_port }));
            }
        }
        for (access, entry) in network.access.iter().zip(&entry.access) {
            if !so_far.insert(*access) {
                return Err(entry
                    .port
                    .fault(ConfigProblem::DuplicateAccess { port: String::clone(&entry.port) }));
            }
        }
        networks.push(network);
    }
    Ok(networks)
}

fn too_many(vni: &Located<i64>, what: &'static str, count: usize) -> Fault<ConfigProblem> {
    vni.fault(ConfigProblem::OverlayTooMany { what, count, most: MOST })
}

fn one(protocol: TunnelProtocol, entry: &OverlayEntry, ports: &[PortConfig]) -> Checked<OverlayConfig> {
    let local = *entry.local;
    for (what, count) in [("`remotes`", entry.remotes.len()), ("`access` entries", entry.access.len())] {
        if count > MOST {
            return Err(too_many(&entry.vni, what, count));
        }
    }
    if !ports.iter().any(|port| port.addresses.iter().any(|own| own.address == local)) {
        return Err(entry.local.fault(ConfigProblem::NotOurs { address: local }));
    }
    let mut remotes: Vec<IpAddr> = Vec::with_capacity(entry.remotes.len());
    for remote in &entry.remotes {
        let address = remote.0;
        if address.is_ipv4() != local.is_ipv4() || address == local || remotes.contains(&address) {
            return Err(remote.fault(ConfigProblem::Remote { address, local }));
        }
        remotes.push(address);
    }
    let group = check_group(entry, ports)?;
    if group.is_none() && remotes.is_empty() {
        return Err(entry.vni.fault(ConfigProblem::NoTunnelEnds { vni: *entry.vni }));
    }
    let access = entry.access.iter().map(|access| check_access(access, ports)).collect::<Checked<_>>()?;
    let stations = entry.stations.iter().map(|station| {
        let number = remotes.iter().position(|remote| *remote == *station.remote);
        let unknown = || station.remote.fault(ConfigProblem::NoRemote { address: *station.remote });
        Ok((*station.mac, number.ok_or_else(unknown)?))
    });
    let mut hosts: Vec<(IpAddr, MacAddress)> = Vec::new();
    for station in &entry.stations {
        for given in &station.addresses {
            let address = given.0;
            if !entry.neighbour_suppression {
                return Err(given.fault(ConfigProblem::AddressWithoutSuppression { address }));
            }
            if hosts.iter().any(|(other, _)| *other == address) {
                return Err(given.fault(ConfigProblem::DuplicateAddress { address }));
            }
            hosts.push((address, *station.mac));
        }
    }
    let overhead = u32::from(OVERHEAD) + if local.is_ipv6() { 20 } else { 0 };
    let mtu = number(entry.mtu.as_ref(), "`mtu`", USUAL_MTU - overhead, 68..=65_535 - overhead)? as u16;
    check_mtu(entry, mtu, overhead, ports)?;
    Ok(OverlayConfig {
        protocol,
        identifier: number(Some(&entry.vni), "`vni`", 0, 0..=0xff_ffff)?,
        local,
        access,
        stations: stations.collect::<Checked<_>>()?,
        remotes,
        group,
        udp_port: number(entry.udp_port.as_ref(), "`udp-port`", protocol.udp_port().into(), 1..=65_535)?
            as u16,
        mtu,
        ttl: number(entry.ttl.as_ref(), "`ttl`", 64, 1..=255)? as u8,
        // RFC 768 lets IPv4 do without; over IPv6 not every receiver does (RFC 6935).
        udp_checksum: entry.udp_checksum.unwrap_or(local.is_ipv6()),
        inner_checksums: entry.inner_checksums,
        neighbour_suppression: entry.neighbour_suppression,
        hosts,
        // As bridges do (IEEE 802.1Q table 8-6).
        age_seconds: number(entry.age.as_ref(), "`age`", 300, 1..=1_000_000)?,
    })
}

/// Whether packets that are so long inside can leave by any port.
fn check_mtu(entry: &OverlayEntry, mtu: u16, overhead: u32, ports: &[PortConfig]) -> Checked<()> {
    let is_of_version =
        |port: &&PortConfig| port.addresses.iter().any(|own| own.address.is_ipv4() == entry.local.is_ipv4());
    let widest = ports.iter().filter(is_of_version).max_by_key(|port| port.mtu);
    let outer = u32::from(mtu) + overhead;
    let Some(port) = widest.filter(|port| u32::from(port.mtu) < outer) else { return Ok(()) };
    let place = entry.mtu.as_ref().unwrap_or(&entry.vni);
    Err(place.fault(ConfigProblem::OverlayMtu {
        mtu,
        outer,
        port: port.name.clone(),
        port_mtu: port.mtu,
        most: u32::from(port.mtu).saturating_sub(overhead),
    }))
}

fn check_group(entry: &OverlayEntry, ports: &[PortConfig]) -> Checked<Option<GroupConfig>> {
    let Some(group) = &entry.group else {
        let useless = |port: &Located<String>| Err(port.fault(ConfigProblem::GroupPortWithoutGroup));
        return entry.group_port.as_ref().map_or(Ok(None), useless);
    };
    let (address, local) = (**group, *entry.local);
    // What routers don't pass on, or only from sources that were named (RFC 4607 section 1).
    let is_special = match address {
        IpAddr::V4(address) => martian::ipv4_stays_on_link(address) || address.octets()[0] == 232,
        IpAddr::V6(address) => {
            martian::ipv6_stays_on_link(address)
                || address.segments()[0] & 0xfff0 == 0xff30 && address.segments()[1] == 0
        }
    };
    if !address.is_multicast() || is_special || address.is_ipv4() != local.is_ipv4() {
        return Err(group.fault(ConfigProblem::MulticastGroup { address, local }));
    }
    let has_local = |port: &PortConfig| port.addresses.iter().any(|own| own.address == local);
    let port = match &entry.group_port {
        Some(port) => port_number(port, ports)?,
        // It is there: `local` was found before.
        None => ports.iter().position(has_local).unwrap_or_default(),
    };
    let own = || ports.iter().skip(port).take(1).flat_map(|port| &port.addresses).map(|own| own.address);
    let same = || own().find(|own| own.is_ipv4() == local.is_ipv4());
    let source = own().find(|own| *own == local).or_else(same);
    let Some(source) = source else {
        let port = ports.get(port).map(|port| port.name.clone()).unwrap_or_default();
        return Err(group.fault(ConfigProblem::GroupPortWithoutAddress { port, group: address }));
    };
    Ok(Some(GroupConfig { address, port, source }))
}

fn check_access(entry: &AccessEntry, ports: &[PortConfig]) -> Checked<(usize, Option<u16>)> {
    let port = port_number(&entry.port, ports)?;
    let vlan = entry.vlan.as_ref().map(|vlan| number(Some(vlan), "`vlan`", 0, 1..=4094)).transpose()?;
    if vlan.is_none() && !ports[port].addresses.is_empty() {
        return Err(entry
            .port
            .fault(ConfigProblem::AccessWithAddresses { port: String::clone(&entry.port) }));
    }
    Ok((port, vlan.map(|vlan| vlan as u16)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_only_so_many_numbers() {
        let address = IpAddr::from([192, 0, 2, 1]);
        let entry = |remotes: usize, access: usize| OverlayEntry {
            vni: 5.into(),
            local: address.into(),
            remotes: vec![Host(address).into(); remotes],
            group: None,
            group_port: None,
            access: vec![AccessEntry { port: "lan".into(), vlan: None }; access],
            stations: Vec::new(),
            udp_port: None,
            mtu: None,
            ttl: None,
            udp_checksum: None,
            inner_checksums: false,
            neighbour_suppression: false,
            age: None,
        };
        let networks = vec![entry(0, 0); MOST + 1];
        for (entries, text) in [
            (&networks[..], "there are 65536 bridged networks, and 65535 is the most"),
            (&[entry(MOST + 1, 0)], "there are 65536 `remotes`, and 65535 is the most"),
            (&[entry(0, MOST + 1)], "there are 65536 `access` entries, and 65535 is the most"),
        ] {
            assert_eq!(check(entries, &[], &[], 1).unwrap_err().problem.to_string(), text);
        }
        // One fewer is refused for another reason only: there is no such address.
        let fault = check(&[], &[entry(MOST, MOST)], &[], 1).unwrap_err();
        assert!(matches!(fault.problem, ConfigProblem::NotOurs { .. }), "{fault:?}");
    }

    const HOST: &str =
        r#"stations = [{ mac = "02:00:00:00:00:09", remote = "192.0.2.2", addresses = ["10.0.0.1"] }]"#;
    const GROUP: &str = r#"group = "239.1.1.1""#;
    const SAME_HOST: &str = r#"
        neighbour-suppression = true
        stations = [{ mac = "02:00:00:00:00:09", remote = "192.0.2.2", addresses = ["10.0.0.1", "10.0.0.1"] }]
        "#;

    #[test]
    fn a_group_is_at_the_port_of_our_tunnel_end_unless_another_is_said() {
        let text = |more: &str| {
            format!(
                r#"
                port = [
                    {{ name = "bare", driver = "null" }},
                    {{ name = "underlay", driver = "null", addresses = ["192.0.2.1/24"] }},
                    {{ name = "other", driver = "null", addresses = ["198.51.100.1/24"] }},
                ]
                [[vxlan]]
                vni = 5
                local = "192.0.2.1"
                access = [{{ port = "bare" }}]
                {more}
                "#
            )
        };
        let group_of = |more: &str| {
            crate::control::Config::from_toml(&text(more)).map(|config| config.overlays[0].group)
        };
        let address = IpAddr::from([239, 1, 1, 1]);
        assert_eq!(
            group_of(GROUP).unwrap(),
            Some(GroupConfig { address, port: 1, source: [192, 0, 2, 1].into() })
        );
        let elsewhere = format!("{GROUP}\ngroup-port = \"other\"");
        assert_eq!(
            group_of(&elsewhere).unwrap(),
            Some(GroupConfig { address, port: 2, source: [198, 51, 100, 1].into() })
        );
        let error = group_of("").unwrap_err().to_string();
        let expected =
            "network 5 has no other tunnel ends: say them as `remotes`, or a `group` where they can be heard";
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn protocols_share_identifiers_but_no_tunnel_end() {
        let check = |networks: &[(&str, u32, &str)]| {
            let port = r#"
                [[port]]
                name = "underlay"
                driver = "null"
                addresses = ["192.0.2.1/24"]

                [[port]]
                name = "bare"
                driver = "null"
                "#;
            let tables = networks.iter().enumerate().map(|(vlan, (table, vni, more))| {
                format!(
                    "[[{table}]]\nvni = {vni}\nlocal = \"192.0.2.1\"\nremotes = [\"192.0.2.2\"]\n\
                     access = [{{ port = \"underlay\", vlan = {} }}]\n{more}\n",
                    vlan + 1
                )
            });
            let text = [port.to_owned()].into_iter().chain(tables).collect::<Vec<_>>().concat();
            crate::control::Config::from_toml(&text).map_err(|error| error.to_string())
        };
        let config = check(&[("geneve", 5, ""), ("vxlan", 5, "")]).expect("they are told apart");
        let seen: Vec<_> = config.overlays.iter().map(|of| (of.protocol, of.udp_port, of.mtu)).collect();
        assert_eq!(seen, [(TunnelProtocol::Vxlan, 4789, 1450), (TunnelProtocol::Geneve, 6081, 1450)]);
        for (networks, text) in [
            (
                [("geneve", 5, "udp-port = 7"), ("vxlan", 6, "udp-port = 7")],
                "192.0.2.1 has networks of two protocols at UDP port 7",
            ),
            ([("geneve", 5, ""), ("geneve", 5, "")], "there are two [[geneve]] networks with VNI 5"),
            ([("vxlan", 5, ""), ("vxlan", 5, "")], "there are two [[vxlan]] networks with VNI 5"),
            (
                [("geneve", 5, ""), ("vxlan", 6, HOST)],
                "10.0.0.1 is of no use without `neighbour-suppression = true`",
            ),
            (
                [("geneve", 5, GROUP), ("vxlan", 6, "group = \"239.1.1.1\"\nudp-port = 6081")],
                "has networks of two protocols at UDP port 6081",
            ),
            (
                [("geneve", 5, ""), ("vxlan", 6, "group-port = \"underlay\"")],
                "`group-port` is of no use without `group`",
            ),
            (
                [("geneve", 5, ""), ("vxlan", 6, "group = \"239.1.1.1\"\ngroup-port = \"bare\"")],
                "port 'bare' has no address of the same version of IP as 239.1.1.1",
            ),
            (
                [("geneve", 5, ""), ("vxlan", 6, "group = \"224.0.0.9\"")],
                "224.0.0.9 can't be the group of tunnel ends beside 192.0.2.1",
            ),
            (
                [("geneve", 5, ""), ("vxlan", 6, "group = \"232.1.1.1\"")],
                "232.1.1.1 can't be the group of tunnel ends beside 192.0.2.1",
            ),
            (
                [("geneve", 5, ""), ("vxlan", 6, "group = \"ff0e::9\"")],
                "ff0e::9 can't be the group of tunnel ends beside 192.0.2.1",
            ),
            (
                [("geneve", 5, ""), ("vxlan", 6, "group = \"192.0.2.9\"")],
                "192.0.2.9 can't be the group of tunnel ends beside 192.0.2.1",
            ),
            (
                [("geneve", 5, ""), ("vxlan", 6, "mtu = 1451")],
                "1451 bytes inside come to 1501, and port 'underlay' has an `mtu` of 1500: make the network's `mtu` 1450",
            ),
            ([("geneve", 5, ""), ("vxlan", 6, SAME_HOST)], "address 10.0.0.1 is given twice"),
        ] {
            let error = check(&networks).unwrap_err();
            assert!(error.contains(text), "{error}");
        }
    }
}
