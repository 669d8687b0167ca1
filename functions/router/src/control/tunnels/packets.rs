//! Tunnels that carry IP packets without frames, as the kernel's devices of the kinds `ipip`, `sit` and `gre` do: each is a network of its own, and
//! whoever is there is at the other end.

use std::net::Ipv4Addr;

use warmlane_forward::control::{Adjacency, Around, AroundPacket, Class, IpTunnel, Tunnel};
use warmlane_wire::{MacAddress, gre, ipv4};

use super::super::desired::{Desired, bridge_of};
use super::super::kernel::{IpTunnelDevice, Link, LinkIndex};
use super::{Arrivals, left};

/// A tunnel that lanes take packets out of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PacketArrival {
    /// The kernel's number of its device.
    pub(crate) device: LinkIndex,
    /// Where its packets go to.
    pub(crate) local: Ipv4Addr,
    /// Where they come from.
    pub(crate) remote: Ipv4Addr,
    /// What is between the headers.
    pub(crate) tunnel: IpTunnel,
    /// Whether IPv4 is carried, and whether IPv6 is.
    pub(crate) carries: [bool; 2],
    /// The network.
    pub(crate) port: u16,
    /// The address that the network's port has, as lanes know it.
    pub(crate) mac: [u8; 6],
}

/// The tunnel of a network, as far as lanes can do what it does.
pub(super) fn device(network: &Link) -> Option<&IpTunnelDevice> {
    network.ip_tunnel.as_ref().filter(|device| device.kernel_only.is_none())
}

impl Desired<'_> {
    /// The tunnel that a network is, and what is put around packets; `None`: only the kernel can reach it.
    pub(crate) fn packet_tunnel(&self, port: u16, network: &Link, own_mtu: u32) -> Option<Tunnel> {
        let entrance = u16::try_from(self.own_ports().len()).ok()?;
        let device = device(network).filter(|device| network.is_up && device.remote != device.local)?;
        if self.view.leaves_tunnels(false) || bridge_of(self.view, network.index).is_some() {
            return None;
        }
        let way = self.way(device.remote.into())?;
        if device.lower.is_some_and(|lower| way.links.iter().any(|link| *link != lower)) {
            return None;
        }
        let [_, tunnel] = device.tunnel;
        let header = match tunnel {
            IpTunnel::Plain => 0,
            IpTunnel::Gre(None) => gre::HEADER_LENGTH,
            IpTunnel::Gre(Some(_)) => gre::LENGTH_WITH_KEY,
        };
        let overhead = (ipv4::HEADER_LENGTH + header) as u32;
        let own_mtu = if own_mtu == 0 { u32::MAX } else { own_mtu };
        let mtu = network.mtu.min(own_mtu).min(way.mtu.saturating_sub(overhead));
        Some(Tunnel {
            inner: Adjacency {
                destination: MacAddress::ZERO,
                source: MacAddress(network.mac.unwrap_or_default()),
                port,
                mtu: u16::try_from(mtu).unwrap_or(u16::MAX),
                vlan: None,
            },
            entrance,
            device: network.index,
            around: Around::Packet(AroundPacket {
                local: device.local,
                remote: device.remote,
                tunnel,
                carries: device.carries,
                ttl: (device.ttl != 0).then_some(device.ttl),
                class: if device.tos == 1 { Class::Inherited } else { Class::Fixed(device.tos) },
            }),
        })
    }

    /// What lanes take out of the tunnel that a network is, if it is one.
    pub(super) fn add_packet_tunnel(&self, port: u16, network: &Link, all: &mut Arrivals) {
        let Some(device) = device(network) else { return };
        let is_left = [false, true].into_iter().any(|is_ipv6| self.view.is_left(network.index, is_ipv6));
        let is_bridged = bridge_of(self.view, network.index).is_some();
        if is_left || is_bridged || self.view.leaves_tunnels(false) {
            return;
        }
        let [tunnel, _] = device.tunnel;
        all.packets.push(PacketArrival {
            device: network.index,
            local: device.local,
            remote: device.remote,
            tunnel,
            carries: device.carries,
            port,
            mac: network.mac.unwrap_or_default(),
        });
        let remote = device.remote.into();
        all.ends.entry(remote).or_insert_with(|| self.ports_from(remote));
    }

    /// What is to be said of such tunnels that lanes have nothing to do with, a sentence each. Each of the kernel's modules makes a device that is for no
    /// tunnel in particular, and is down.
    pub(super) fn packet_tunnel_warnings(&self) -> impl Iterator<Item = String> {
        let up = self.view.links().values().filter(|link| link.is_up);
        up.filter_map(|link| Some(left(link, link.ip_tunnel.as_ref()?.kernel_only?)))
    }
}
