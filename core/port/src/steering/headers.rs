//! What of a packet's headers rules look at, in six words that are compared as a whole.

use std::net::IpAddr;

use warmlane_mem::Packet;
use warmlane_wire::geneve::{self, GeneveHeader};
use warmlane_wire::{Flow, IpProtocol, udp, vxlan};

/// ```text
/// 0  | is IP (1) | has ports (1) | version (4) | protocol (8) | Ethernet address (48) |
/// 1  | has identifier (1) | identifier (24) | source port (16) | destination port (16) |
/// 2  source address, IPv4 as in ::ffff:0:0/96
/// 4  destination address
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Headers(pub(super) [u64; 6]);

/// The bits that count, in the same places.
pub(super) type Mask = Headers;

const PROTOCOL_SHIFT: u32 = 48;
const VERSION_SHIFT: u32 = 56;
const HAS_PORTS: u64 = 1 << 60;
const IS_IP: u64 = 1 << 61;
const VNI_SHIFT: u32 = 32;
const HAS_VNI: u64 = 1 << 56;

impl Headers {
    /// Of a packet, with its flow and where its transport header starts, as [`Flow::of_front`] finds them. What isn't there is zero.
    #[inline]
    pub(super) fn of(packet: &Packet, found: Option<&(Flow, Option<usize>)>) -> Self {
        let (front, mut headers) = (packet.data(), Self::default());
        if let Some(mac) = front.first_chunk() {
            headers.set_mac(*mac);
        }
        let Some((flow, transport)) = found else { return headers };
        headers.set_protocol(flow.protocol.0);
        headers.set_version(if flow.source.is_ipv4() { 4 } else { 6 });
        headers.set_address(true, to_bits(flow.source));
        headers.set_address(false, to_bits(flow.destination));
        if let Some((source, destination)) = flow.ports {
            headers.set_has_ports();
            headers.set_port(true, source);
            headers.set_port(false, destination);
            let data = transport.and_then(|start| front.get(start + udp::HEADER_LENGTH..));
            if flow.protocol == IpProtocol::UDP
                && let Some(vni) = data.and_then(|data| identifier(destination, data))
            {
                headers.set_vni(vni);
            }
        }
        headers
    }

    #[inline(always)]
    pub(super) fn and(&self, mask: &Mask) -> Self {
        Self(std::array::from_fn(|word| self.0[word] & mask.0[word]))
    }

    pub(super) fn set_mac(&mut self, [a, b, c, d, e, f]: [u8; 6]) {
        self.0[0] |= u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
    }

    pub(super) fn set_protocol(&mut self, protocol: u8) {
        self.0[0] |= IS_IP | u64::from(protocol) << PROTOCOL_SHIFT;
    }

    /// Of IP.
    pub(super) fn set_version(&mut self, version: u8) {
        self.0[0] |= u64::from(version) << VERSION_SHIFT;
    }

    pub(super) fn set_has_ports(&mut self) {
        self.0[0] |= HAS_PORTS;
    }

    pub(super) fn set_port(&mut self, is_source: bool, port: u16) {
        self.0[1] |= u64::from(port) << if is_source { 16 } else { 0 };
    }

    pub(super) fn set_vni(&mut self, vni: u32) {
        self.0[1] |= HAS_VNI | u64::from(vni) << VNI_SHIFT;
    }

    pub(super) fn set_address(&mut self, is_source: bool, bits: u128) {
        let at = if is_source { 2 } else { 4 };
        self.0[at] = (bits >> 64) as u64;
        self.0[at + 1] = bits as u64;
    }
}

/// The network identifier of a datagram to this port.
fn identifier(port: u16, data: &[u8]) -> Option<u32> {
    match port {
        vxlan::PORT => vxlan::parse(data).ok().map(|(vni, _)| vni),
        // Whatever options follow.
        geneve::PORT => {
            let header = GeneveHeader(data.first_chunk()?);
            (header.version() == 0).then_some(header.identifier())
        }
        _ => None,
    }
}

fn to_bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}
