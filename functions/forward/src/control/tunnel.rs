//! Next hops behind tunnels. The forwarder sends packets to them by an output of their own, where a stage puts the tunnel's headers
//! around the frame; what these are is only described here.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use warmlane_table::NextHopId;
use warmlane_wire::{EthernetHeader, MacAddress, geneve, vxlan};

use super::next_hop::Adjacency;

/// A neighbour on another network, and the tunnel that leads there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tunnel {
    /// The neighbour, on a link that is a port for its addresses, its table and the like, but none to send by.
    pub inner: Adjacency,
    /// The number of the output that leads into tunnels.
    pub entrance: u16,
    /// The tunnel's device, by a number that means something to who made it.
    pub device: u32,
    /// What is put around packets.
    pub around: Around,
}

impl Tunnel {
    /// What the forwarder does with packets: they go to the entrance with the next hop's number for the address that they come from.
    pub(crate) fn entrance(&self, number: NextHopId) -> Adjacency {
        let [a, b, c, d] = (number.index() as u32).to_be_bytes();
        Adjacency { source: MacAddress([0, 0, a, b, c, d]), port: self.entrance, ..self.inner }
    }

    /// The number of the next hop that a frame at the entrance is for.
    #[inline]
    pub fn number_at_entrance(frame: EthernetHeader<'_>) -> Option<NextHopId> {
        let MacAddress([_, _, a, b, c, d]) = frame.source();
        NextHopId::new(u32::from_be_bytes([a, b, c, d]))
    }
}

/// How a frame is packed in UDP. Either header takes as many bytes, as none is sent with options.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TunnelProtocol {
    /// VXLAN (RFC 7348).
    Vxlan,
    /// GENEVE (RFC 8926).
    Geneve,
}

impl TunnelProtocol {
    /// Bytes of the header between UDP and the frame.
    pub const HEADER_LENGTH: usize = vxlan::HEADER_LENGTH;

    /// The UDP port that it usually has.
    pub const fn udp_port(self) -> u16 {
        match self {
            Self::Vxlan => vxlan::PORT,
            Self::Geneve => geneve::PORT,
        }
    }

    /// The header in front of a network's frames.
    pub const fn header(self, identifier: u32) -> [u8; Self::HEADER_LENGTH] {
        match self {
            Self::Vxlan => vxlan::header(identifier),
            Self::Geneve => geneve::header(identifier),
        }
    }

    /// What it is called in configurations, and in Linux.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Vxlan => "vxlan",
            Self::Geneve => "geneve",
        }
    }
}

impl fmt::Display for TunnelProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Vxlan => "VXLAN",
            Self::Geneve => "GENEVE",
        })
    }
}

/// What is put around packets in a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Around {
    /// Around whole frames, in UDP.
    Frame(AroundFrame),
    /// Around IP packets without frames.
    Packet(AroundPacket),
}

impl Around {
    /// Our tunnel end.
    pub const fn local(&self) -> IpAddr {
        match self {
            Self::Frame(around) => around.local,
            Self::Packet(around) => IpAddr::V4(around.local),
        }
    }

    /// The other one.
    pub const fn remote(&self) -> IpAddr {
        match self {
            Self::Frame(around) => around.remote,
            Self::Packet(around) => IpAddr::V4(around.remote),
        }
    }
}

impl fmt::Display for Around {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frame(around) => write!(f, "{} {}", around.protocol, around.identifier),
            Self::Packet(around) => around.tunnel.fmt(f),
        }
    }
}

/// What is between the IPv4 header around a packet and the IP header inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IpTunnel {
    /// Nothing: IP in IP (RFC 2003), or IPv6 in IPv4 (RFC 4213 section 3).
    Plain,
    /// A GRE header (RFC 2784), perhaps with a key (RFC 2890).
    Gre(Option<u32>),
}

impl fmt::Display for IpTunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain => f.write_str("IP in IP"),
            Self::Gre(None) => f.write_str("GRE"),
            Self::Gre(Some(key)) => write!(f, "GRE {key}"),
        }
    }
}

/// What is put around IP packets in a tunnel over IPv4 without frames. Routers on the way may not cut its packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AroundPacket {
    /// Our tunnel end.
    pub local: Ipv4Addr,
    /// The other one.
    pub remote: Ipv4Addr,
    /// What is between the headers.
    pub tunnel: IpTunnel,
    /// Whether packets of IPv4 are carried, and whether those of IPv6 are.
    pub carries: [bool; 2],
    /// TTL; `None`: that of the packet inside.
    pub ttl: Option<u8>,
    /// DSCP and ECN.
    pub class: Class,
}

/// What is put around frames in a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AroundFrame {
    /// How frames are packed.
    pub protocol: TunnelProtocol,
    /// Our tunnel end.
    pub local: IpAddr,
    /// The other one, of the same version of IP.
    pub remote: IpAddr,
    /// The network's identifier (VNI).
    pub identifier: u32,
    /// The UDP port of the other end.
    pub udp_port: u16,
    /// The first and the last of the UDP ports that flows inside are spread over.
    pub source_ports: (u16, u16),
    /// TTL or hop limit.
    pub ttl: u8,
    /// DSCP and ECN.
    pub class: Class,
    /// Whether routers on the way may cut IPv4 packets.
    pub dont_fragment: bool,
    /// Whether UDP checksums are sent.
    pub udp_checksum: bool,
}

impl AroundFrame {
    /// What RFC 6335 section 6 leaves for such uses, which RFC 7348 section 5 recommends, and RFC 8926 section 3.3 allows.
    pub const USUAL_SOURCE_PORTS: (u16, u16) = (0xc000, 0xffff);
}

/// What the outer header says of DSCP; what the inner one says of congestion it says, too (RFC 6040 section 4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// What the inner one says (RFC 2983 section 3).
    Inherited,
    /// Always this DSCP, in the upper six bits.
    Fixed(u8),
}
