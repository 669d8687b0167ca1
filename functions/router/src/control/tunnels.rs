//! Networks behind tunnels: what lanes encapsulate, and what they take out of tunnels, as the kernel's VXLAN devices, its bridges and
//! what either knows of stations say, and its devices that carry IP packets ([`packets`]). All else of a tunnel is the kernel's.
//!
//! A network is an interface that the box routes by: a bridge with VXLAN devices among its members, or such a device without a bridge.

mod packets;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use warmlane_forward::control::{Adjacency, Around, AroundFrame, Class, SourceCheck, Tunnel, TunnelProtocol};
use warmlane_wire::MacAddress;

use super::desired::{Desired, Found, bridge_of, host_prefix};
use super::kernel::{Link, LinkIndex, StationKey, View, Vxlan};
use super::policy::Policy;
pub(crate) use packets::PacketArrival;

/// Bytes that a tunnel puts in front of an IP packet: Ethernet inside, VXLAN, UDP, and IPv4 or IPv6.
const OVER_IPV4: u32 = 14 + 8 + 8 + 20;
const OVER_IPV6: u32 = OVER_IPV4 + 20;

/// Ports with higher numbers take nothing out of datagrams.
const MASK_BITS: u16 = u64::BITS as u16;

/// Where datagrams to a tunnel end leave.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Way {
    links: Vec<LinkIndex>,
    /// Longest IP packet that all of them carry, in bytes.
    mtu: u32,
}

/// What lanes take out of datagrams, in plain values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Arrivals {
    /// Networks' tunnels that carry frames.
    pub(crate) tunnels: Vec<Arrival>,
    /// Tunnels that carry packets.
    pub(crate) packets: Vec<PacketArrival>,
    /// Tunnel ends that datagrams are taken from, and for each the ports that they may come in by, a bit each.
    pub(crate) ends: BTreeMap<IpAddr, u64>,
    /// Stations that are known behind tunnels that learn, by the number of the tunnel; with the tunnel end, if that is known.
    pub(crate) stations: BTreeMap<(u16, [u8; 6]), Option<IpAddr>>,
}

/// What comes to lanes of what is for one of our addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LocalEnd {
    /// Datagrams for these UDP ports.
    pub udp_ports: Vec<u16>,
    /// IP packets in IP packets, and GRE.
    pub takes_packets: bool,
}

/// A tunnel that lanes take frames out of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// The kernel's number of its device.
    pub(crate) device: LinkIndex,
    /// Where its datagrams go to.
    pub(crate) local: IpAddr,
    pub(crate) udp_port: u16,
    pub(crate) identifier: u32,
    /// The network.
    pub(crate) port: u16,
    /// The network's Ethernet address. Frames to others are bridged.
    pub(crate) mac: [u8; 6],
    /// That of the device, from which nobody else sends.
    pub(crate) device_mac: [u8; 6],
    /// Over IPv6 a checksum of zero is none.
    pub(crate) takes_no_checksum: bool,
    /// The kernel learns from it, and so has to see what stations it doesn't know send.
    pub(crate) learns: bool,
}

/// Whether packets that leave by a link may go through tunnels.
pub(crate) fn is_network(view: &View, link: &Link) -> bool {
    devices(view, link).next().is_some() || packets::device(link).is_some()
}

/// The tunnels of a network, as far as lanes can do what they do.
fn devices<'a>(view: &'a View, network: &'a Link) -> impl Iterator<Item = (&'a Link, &'a Vxlan)> {
    view.links().values().filter_map(move |link| Some((link, tunnel_of(view, network, link)?)))
}

fn tunnel_of<'a>(view: &View, network: &Link, device: &'a Link) -> Option<&'a Vxlan> {
    let vxlan = device.vxlan.as_ref().filter(|vxlan| vxlan.kernel_only.is_none())?;
    let is_its = if device.index == network.index {
        bridge_of(view, device.index).is_none()
    } else {
        device.master == Some(network.index) && network.kind == "bridge" && !network.filters_vlans
    };
    is_its.then_some(vxlan)
}

/// Whether frames pass the device of a tunnel.
fn passes(device: &Link) -> bool {
    device.is_up && device.bridge_port.is_none_or(|port| port.is_forwarding)
}

impl Desired<'_> {
    /// The tunnel to a station of a network, and what is put around frames; `None`: only the kernel can reach it.
    pub(super) fn tunnel(&self, port: u16, network: &Link, mac: [u8; 6], own_mtu: u32) -> Option<Tunnel> {
        let entrance = u16::try_from(self.own_ports().len()).ok()?;
        let device = if network.vxlan.is_some() {
            network
        } else {
            let key = StationKey { bridge: network.index, mac, vlan: 0 };
            self.view.links().get(&self.view.stations().member(key)?)?
        };
        let vxlan = tunnel_of(self.view, network, device).filter(|_| passes(device))?;
        let end = self.view.stations().end(device.index, mac).filter(|end| !end.has_link)?;
        let (local, remote) = (vxlan.local?, end.address);
        let is_ipv6 = local.is_ipv6();
        let is_one_host = !remote.is_multicast() && !remote.is_unspecified() && remote != local;
        if !is_one_host || remote.is_ipv6() != is_ipv6 || self.view.leaves_tunnels(is_ipv6) {
            return None;
        }
        if self.view.is_left_at_egress(device.index) || self.view.is_left_at_egress(network.index) {
            return None;
        }
        let way = self.way(remote)?;
        if vxlan.lower.is_some_and(|lower| way.links.iter().any(|link| *link != lower)) {
            return None;
        }
        let overhead = if is_ipv6 { OVER_IPV6 } else { OVER_IPV4 };
        let own_mtu = if own_mtu == 0 { u32::MAX } else { own_mtu };
        let mtu = network.mtu.min(device.mtu).min(own_mtu).min(way.mtu.saturating_sub(overhead));
        let ttl = if vxlan.ttl == 0 { self.usual_ttl(is_ipv6, &way) } else { vxlan.ttl };
        Some(Tunnel {
            inner: Adjacency {
                destination: MacAddress(mac),
                source: MacAddress(network.mac?),
                port,
                mtu: u16::try_from(mtu).unwrap_or(u16::MAX),
                vlan: None,
            },
            entrance,
            device: device.index,
            around: Around::Frame(AroundFrame {
                protocol: TunnelProtocol::Vxlan,
                local,
                remote,
                identifier: end.identifier.unwrap_or(vxlan.identifier),
                udp_port: end.udp_port.unwrap_or(vxlan.udp_port),
                source_ports: vxlan.source_ports.unwrap_or(AroundFrame::USUAL_SOURCE_PORTS),
                // The datagram is routed as if it had come in from somewhere, and loses one on its way out.
                ttl: ttl.saturating_add(1),
                class: if vxlan.tos == 1 { Class::Inherited } else { Class::Fixed(vxlan.tos) },
                dont_fragment: vxlan.dont_fragment,
                udp_checksum: if is_ipv6 { !vxlan.no_checksum_over_ipv6 } else { vxlan.udp_checksum },
            }),
        })
    }

    /// TTL or hop limit of the box's own packets.
    fn usual_ttl(&self, is_ipv6: bool, way: &Way) -> u8 {
        match way.links.first() {
            Some(link) if is_ipv6 => self.view.switches().of_link(*link).hop_limit,
            _ => self.view.switches().ttl,
        }
    }

    /// Where packets of the box's own to an address leave; `None`: not, or not by lanes' ports alone.
    fn way(&self, to: IpAddr) -> Option<Arc<Way>> {
        if let Some(known) = self.ways.borrow().get(&to) {
            return known.clone();
        }
        let way = self.find_way(to).map(Arc::new);
        self.ways.borrow_mut().insert(to, way.clone());
        way
    }

    fn find_way(&self, to: IpAddr) -> Option<Way> {
        let policy = self.own_policy.get_or_init(|| Policy::of(self.view, None));
        let Found::Target(target, own_mtu) = self.decide(policy, host_prefix(to))?.found else { return None };
        let paths = self.paths(target).ok()?;
        let is_chosen_here = self.knows_choice(&paths) && paths.iter().all(|path| path.1.is_some());
        if paths.is_empty() || (paths.len() > 1 && !is_chosen_here) {
            return None;
        }
        let mut way = Way { links: Vec::new(), mtu: if own_mtu == 0 { u32::MAX } else { own_mtu } };
        for (link, _, _) in paths {
            let (port, _) = self.port_of(link).filter(|(port, _)| !self.is_network(*port))?;
            if self.view.is_left_at_egress(link) {
                return None;
            }
            let limit = self.ports.get(usize::from(port)).map_or(0, |port| port.mtu_limit);
            let mtu = self.view.links().get(&link)?.mtu.min(limit.into());
            way.mtu = way.mtu.min(mtu);
            way.links.push(link);
        }
        Some(way)
    }

    /// What lanes take out of datagrams.
    pub(super) fn arrivals(&self) -> Arrivals {
        let mut all = Arrivals::default();
        let networks = (0_u16..).zip(self.ports).skip(self.own_ports().len() + 1);
        for (port, settings) in networks {
            let Some(network) = self.view.links().get(&settings.link).filter(|link| link.is_up) else {
                continue;
            };
            self.add_packet_tunnel(port, network, &mut all);
            for (device, vxlan) in devices(self.view, network).filter(|(device, _)| passes(device)) {
                let (Some(local), Some(mac), Some(device_mac)) = (vxlan.local, network.mac, device.mac)
                else {
                    continue;
                };
                let is_left =
                    [false, true].into_iter().any(|is_ipv6| self.view.is_left(device.index, is_ipv6));
                if is_left || self.view.leaves_tunnels(local.is_ipv6()) {
                    continue;
                }
                let bridge_learns = device.bridge_port.is_some_and(|port| port.learns);
                let Ok(number) = u16::try_from(all.tunnels.len()) else { continue };
                all.tunnels.push(Arrival {
                    device: device.index,
                    local,
                    udp_port: vxlan.udp_port,
                    identifier: vxlan.identifier,
                    port,
                    mac,
                    device_mac,
                    takes_no_checksum: vxlan.takes_no_checksum_over_ipv6,
                    learns: vxlan.learns || bridge_learns,
                });
                self.add_ends(device, local, &mut all.ends);
                self.add_stations(network, device, (vxlan.learns, bridge_learns), number, &mut all.stations);
            }
        }
        all
    }

    /// The tunnel ends that a device knows, and by which ports what they send may come in.
    fn add_ends(&self, device: &Link, local: IpAddr, all: &mut BTreeMap<IpAddr, u64>) {
        for (_, end) in self.view.stations().of_device(device.index) {
            let address = end.address;
            let is_other = address.is_ipv6() == local.is_ipv6() && address != local;
            if is_other && !address.is_multicast() && !all.contains_key(&address) {
                all.insert(address, self.ports_from(address));
            }
        }
    }

    /// By which ports the kernel would let datagrams of an address come in, which are for the box itself.
    fn ports_from(&self, address: IpAddr) -> u64 {
        let is_ipv6 = address.is_ipv6();
        let count = self.own_ports().len().min(MASK_BITS.into());
        let mut mask = u64::MAX >> (u64::BITS - count as u32).min(u64::BITS - 1);
        for link in self.view.links().values() {
            let Some((port, _)) = self.port_of(link.index).filter(|(port, _)| *port < MASK_BITS) else {
                continue;
            };
            let check = self.view.switches().of_link(link.index).reverse_path;
            let comes_back = match check {
                _ if is_ipv6 => true,
                SourceCheck::Off | SourceCheck::Foreign => true,
                SourceCheck::Loose => self.way(address).is_some(),
                SourceCheck::Strict => self.way(address).is_some_and(|way| way.links.contains(&link.index)),
            };
            // Sockets of the box are in no VRF.
            if !comes_back || link.master.is_some() || self.view.is_left(link.index, is_ipv6) {
                mask &= !(1 << port);
            }
        }
        mask
    }

    /// The stations that the kernel needs to see nothing more of.
    fn add_stations(
        &self,
        network: &Link,
        device: &Link,
        (device_learns, bridge_learns): (bool, bool),
        number: u16,
        all: &mut BTreeMap<(u16, [u8; 6]), Option<IpAddr>>,
    ) {
        let stations = self.view.stations();
        let key = |mac| StationKey { bridge: network.index, mac, vlan: 0 };
        if device_learns {
            for (mac, end) in stations.of_device(device.index) {
                if !bridge_learns || stations.member(key(mac)) == Some(device.index) {
                    all.insert((number, mac), Some(end.address));
                }
            }
        } else if bridge_learns {
            let behind = stations.of_bridge(network.index).filter(|(_, member)| *member == device.index);
            all.extend(behind.map(|(key, _)| ((number, key.mac), None)));
        }
    }

    /// What is to be said of tunnels that lanes have nothing to do with, a sentence each.
    pub(super) fn tunnel_warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for (device, vxlan) in
            self.view.links().values().filter_map(|link| Some((link, link.vxlan.as_ref()?)))
        {
            let bridge = bridge_of(self.view, device.index).filter(|bridge| bridge.filters_vlans);
            let why = match (vxlan.kernel_only, bridge) {
                (Some(why), _) => why.to_owned(),
                (None, Some(bridge)) => {
                    format!("is a member of {}, which tells VLANs apart (vlan_filtering)", bridge.name)
                }
                (None, None) => continue,
            };
            warnings.push(left(device, &why));
        }
        warnings.extend(self.packet_tunnel_warnings());
        warnings
    }
}

/// What is to be said of a tunnel that lanes have nothing to do with.
fn left(device: &Link, why: &str) -> String {
    let name = &device.name;
    format!("tunnel {name} {why}: what comes and goes there is left to the kernel, which is slower")
}

impl Arrivals {
    /// Our addresses that tunnels end at, and what comes to lanes there.
    pub(super) fn local_ends(&self) -> BTreeMap<IpAddr, LocalEnd> {
        let mut all: BTreeMap<IpAddr, LocalEnd> = BTreeMap::new();
        for Arrival { local, udp_port, .. } in &self.tunnels {
            let ports = &mut all.entry(*local).or_default().udp_ports;
            if !ports.contains(udp_port) {
                ports.push(*udp_port);
            }
        }
        for PacketArrival { local, .. } in &self.packets {
            all.entry((*local).into()).or_default().takes_packets = true;
        }
        all
    }
}
