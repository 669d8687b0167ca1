//! Changes to a whole frame.

use std::net::IpAddr;

use thiserror::Error;

use super::transport::Transport;
use super::{Ipv4HeaderMut, Ipv6HeaderMut};
use crate::checksum::Difference;
use crate::flow::Flow;
use crate::layers::{IpVersion, Layers, LayersError};
use crate::{IpProtocol, MacAddress, ethernet, ipv4, ipv6};

/// Why a change can't be made. The frame is as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum EditError {
    /// An address of the other IP version.
    #[error("{address} can't be put in an {packet} packet: give an address of the same version", packet = match packet {
        IpVersion::V4 => "IPv4",
        IpVersion::V6 => "IPv6",
    })]
    Version {
        /// The packet's version.
        packet: IpVersion,
        /// The address that was given.
        address: IpAddr,
    },
    /// The packet has no ports: it is neither TCP nor UDP, its header is cut off, or it is a fragment other than the first.
    #[error("the packet carries {protocol} without ports here: check `ports()` first")]
    NoPorts {
        /// What it carries.
        protocol: IpProtocol,
    },
    /// The packet is no ICMP echo request or reply.
    #[error("the packet carries {protocol} and no echo message: check `echo_identifier()` first")]
    NoEcho {
        /// What it carries.
        protocol: IpProtocol,
    },
}

/// An Ethernet frame with an IP packet inside, to change. The layers are found once, by [`PacketMut::parse`].
///
/// Each method updates all checksums that cover what it changes: that of the IPv4 header, and those of TCP, UDP and ICMPv6
/// with their pseudo header.
///
/// - A UDP checksum of 0 ("none") stays 0, and no other becomes 0.
/// - In fragments the checksum is in the first one; the others have none to update.
/// - With IPv6 segments left, the checksum doesn't cover the header's destination.
/// - If the transport checksum is left for hardware to complete, say so by [`PacketMut::partial_checksum`].
/// - Authentication headers, and protocols that are not named above but have a checksum over the addresses (DCCP, UDP-Lite),
///   are not updated.
///
/// ```
/// use std::net::Ipv4Addr;
/// use warmlane_wire::edit::PacketMut;
/// use warmlane_wire::{Frame, Ipv4Fields, MacAddress};
///
/// let frame = |destination: [u8; 4], port| {
///     Frame::new()
///         .ethernet(MacAddress::BROADCAST, MacAddress([2, 0, 0, 0, 0, 1]))
///         .ipv4(Ipv4Fields::new([192, 0, 2, 1].into(), destination.into()))
///         .udp(4242, port)
///         .payload(b"question")
///         .to_vec()
/// };
/// let mut bytes = frame([198, 51, 100, 2], 53)?;
/// let mut packet = PacketMut::parse(&mut bytes)?;
/// packet.set_destination(Ipv4Addr::new(203, 0, 113, 9).into())?;
/// packet.set_destination_port(5353)?;
/// assert_eq!(bytes, frame([203, 0, 113, 9], 5353)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct PacketMut<'a> {
    link: &'a mut [u8],
    network: Network<'a>,
    transport: Transport<'a>,
    layers: Layers,
    partial: bool,
}

#[derive(Debug)]
enum Network<'a> {
    V4(Ipv4HeaderMut<'a>),
    V6(Ipv6HeaderMut<'a>),
}

impl<'a> PacketMut<'a> {
    /// Finds the layers of `frame`, which starts at the Ethernet header and may end in padding. Checks lengths, not
    /// checksums.
    ///
    /// # Errors
    /// [`LayersError`] if it doesn't carry IP, or a header is malformed.
    #[inline]
    pub fn parse(frame: &'a mut [u8]) -> Result<Self, LayersError> {
        let layers = Layers::find(frame)?;
        let end = layers.end;
        let (link, packet) = frame.get_mut(..end).unwrap_or_default().split_at_mut(layers.network);
        let not_ip = LayersError::NotIp { ethertype: crate::EtherType(0) };
        let (network, length, rest) = match layers.version {
            IpVersion::V4 => {
                let (header, rest) = packet.split_first_chunk_mut().ok_or(not_ip)?;
                (Network::V4(Ipv4HeaderMut(header)), ipv4::HEADER_LENGTH, rest)
            }
            IpVersion::V6 => {
                let (header, rest) = packet.split_first_chunk_mut().ok_or(not_ip)?;
                (Network::V6(Ipv6HeaderMut(header)), ipv6::HEADER_LENGTH, rest)
            }
        };
        let transport = layers.transport.and_then(|start| rest.get_mut(start - layers.network - length..));
        let transport =
            transport.map_or(Transport::Opaque(None), |bytes| Transport::new(layers.protocol, bytes));
        Ok(Self { link, network, transport, layers, partial: false })
    }

    /// Says whether the transport checksum is *partial*: the field holds only the sum of the pseudo header, and hardware
    /// or a driver adds the rest (virtio's `VIRTIO_NET_HDR_F_NEEDS_CSUM`, Linux' `CHECKSUM_PARTIAL`). Then a new address
    /// changes that sum, and a new port changes nothing.
    #[inline]
    #[must_use]
    pub fn partial_checksum(self, partial: bool) -> Self {
        Self { partial, ..self }
    }

    /// Where the headers begin.
    #[inline]
    pub const fn layers(&self) -> Layers {
        self.layers
    }

    /// The flow that the packet belongs to, as it is now.
    #[inline]
    pub fn flow(&self) -> Flow {
        let ports = if self.layers.is_fragment { None } else { self.transport.flow_ports() };
        Flow { source: self.source(), destination: self.destination(), protocol: self.layers.protocol, ports }
    }

    /// Where the packet comes from.
    #[inline]
    pub fn source(&self) -> IpAddr {
        match &self.network {
            Network::V4(header) => header.as_view().source().into(),
            Network::V6(header) => header.as_view().source().into(),
        }
    }

    /// Where it goes.
    #[inline]
    pub fn destination(&self) -> IpAddr {
        match &self.network {
            Network::V4(header) => header.as_view().destination().into(),
            Network::V6(header) => header.as_view().destination().into(),
        }
    }

    /// Source and destination port of TCP or UDP, if the packet has their header.
    #[inline]
    pub fn ports(&self) -> Option<(u16, u16)> {
        self.transport.ports()
    }

    /// The identifier of an ICMP echo request or reply.
    #[inline]
    pub fn echo_identifier(&self) -> Option<u16> {
        self.transport.echo_identifier()
    }

    /// The TTL or hop limit.
    #[inline]
    pub fn ttl(&self) -> u8 {
        match &self.network {
            Network::V4(header) => header.as_view().ttl(),
            Network::V6(header) => header.as_view().hop_limit(),
        }
    }

    /// The differentiated services code point.
    #[inline]
    pub fn dscp(&self) -> u8 {
        match &self.network {
            Network::V4(header) => header.as_view().dscp(),
            Network::V6(header) => header.as_view().traffic_class() >> 2,
        }
    }

    /// Sets both Ethernet addresses.
    #[inline]
    pub fn set_mac_addresses(&mut self, destination: MacAddress, source: MacAddress) {
        // The link layer was found whole, so this is always there.
        if let Some(header) = self.link.first_chunk_mut::<{ ethernet::HEADER_LENGTH }>() {
            header[..6].copy_from_slice(&destination.0);
            header[6..12].copy_from_slice(&source.0);
        }
    }

    /// Sets the source address.
    ///
    /// # Errors
    /// [`EditError::Version`] if the address isn't of the packet's version.
    #[inline]
    pub fn set_source(&mut self, address: IpAddr) -> Result<(), EditError> {
        let difference = self.difference(self.source(), address)?;
        match (&mut self.network, address) {
            (Network::V4(header), IpAddr::V4(address)) => header.set_source(address),
            (Network::V6(header), IpAddr::V6(address)) => header.set_source(address),
            _ => {}
        }
        self.transport.address_changed(difference, self.partial);
        Ok(())
    }

    /// Sets the destination address.
    ///
    /// # Errors
    /// [`EditError::Version`] if the address isn't of the packet's version.
    #[inline]
    pub fn set_destination(&mut self, address: IpAddr) -> Result<(), EditError> {
        let difference = self.difference(self.destination(), address)?;
        match (&mut self.network, address) {
            (Network::V4(header), IpAddr::V4(address)) => header.set_destination(address),
            (Network::V6(header), IpAddr::V6(address)) => header.set_destination(address),
            _ => {}
        }
        if !self.layers.is_source_routed {
            self.transport.address_changed(difference, self.partial);
        }
        Ok(())
    }

    /// Sets the source port of TCP or UDP.
    ///
    /// # Errors
    /// [`EditError::NoPorts`] if the packet has none.
    #[inline]
    pub fn set_source_port(&mut self, port: u16) -> Result<(), EditError> {
        let done = self.transport.set_port(0, port, self.partial);
        done.then_some(()).ok_or(EditError::NoPorts { protocol: self.layers.protocol })
    }

    /// Sets the destination port of TCP or UDP.
    ///
    /// # Errors
    /// [`EditError::NoPorts`] if the packet has none.
    #[inline]
    pub fn set_destination_port(&mut self, port: u16) -> Result<(), EditError> {
        let done = self.transport.set_port(2, port, self.partial);
        done.then_some(()).ok_or(EditError::NoPorts { protocol: self.layers.protocol })
    }

    /// Sets the identifier of an ICMP echo request or reply.
    ///
    /// # Errors
    /// [`EditError::NoEcho`] if the packet is neither.
    #[inline]
    pub fn set_echo_identifier(&mut self, identifier: u16) -> Result<(), EditError> {
        let done = self.transport.set_echo_identifier(identifier, self.partial);
        done.then_some(()).ok_or(EditError::NoEcho { protocol: self.layers.protocol })
    }

    /// Sets the TTL or hop limit.
    #[inline]
    pub fn set_ttl(&mut self, ttl: u8) {
        match &mut self.network {
            Network::V4(header) => header.set_ttl(ttl),
            Network::V6(header) => header.set_hop_limit(ttl),
        }
    }

    /// Takes one off the TTL or hop limit; leaves 0 as it is.
    #[inline]
    pub fn decrement_ttl(&mut self) {
        match &mut self.network {
            Network::V4(header) => header.decrement_ttl(),
            Network::V6(header) => header.decrement_hop_limit(),
        }
    }

    /// Sets the differentiated services code point (RFC 2474); only the low 6 bits count.
    #[inline]
    pub fn set_dscp(&mut self, dscp: u8) {
        match &mut self.network {
            Network::V4(header) => header.set_dscp(dscp),
            Network::V6(header) => header.set_dscp(dscp),
        }
    }

    /// Sets the explicit congestion notification field (RFC 3168); only the low 2 bits count.
    #[inline]
    pub fn set_ecn(&mut self, ecn: u8) {
        match &mut self.network {
            Network::V4(header) => header.set_ecn(ecn),
            Network::V6(header) => header.set_ecn(ecn),
        }
    }

    /// What going from one address to another does to a sum.
    #[inline]
    fn difference(&self, old: IpAddr, new: IpAddr) -> Result<Difference, EditError> {
        match (old, new) {
            (IpAddr::V4(old), IpAddr::V4(new)) => Ok(Difference::u32(old.to_bits(), new.to_bits())),
            (IpAddr::V6(old), IpAddr::V6(new)) => Ok(Difference::u128(old.to_bits(), new.to_bits())),
            _ => Err(EditError::Version { packet: self.layers.version, address: new }),
        }
    }
}
