//! What a filter knows of a frame: read once, as far as the frame goes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(super) const IPV4: u16 = 0x0800;
pub(super) const ARP: u16 = 0x0806;
pub(super) const RARP: u16 = 0x8035;
pub(super) const IPV6: u16 = 0x86dd;
const TAGS: [u16; 3] = [0x8100, 0x88a8, 0x9100];

/// The IPv6 header's next header that says that a fragment header comes next (RFC 8200 section 4.5).
const FRAGMENT: u8 = 44;

/// What is in a frame. All of what is sent first, source or sender, is in front.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) length: usize,
    pub(super) macs: Option<([u8; 6], [u8; 6])>,
    /// Behind the tags.
    pub(super) ethertype: Option<u16>,
    pub(super) vlans: [Option<u16>; 2],
    /// Of IP, or those that ARP is about.
    pub(super) addresses: Option<(IpAddr, IpAddr)>,
    pub(super) protocol: Option<u8>,
    /// What would be ports; not in fragments other than the first.
    pub(super) ports: Option<(u16, u16)>,
}

fn bytes<const N: usize>(data: &[u8], offset: usize) -> Option<[u8; N]> {
    data.get(offset..)?.first_chunk().copied()
}

fn half(data: &[u8], offset: usize) -> Option<u16> {
    bytes(data, offset).map(u16::from_be_bytes)
}

impl Facts {
    pub(super) fn of(data: &[u8], length: usize) -> Self {
        let mut facts = Self { length, ..Self::default() };
        facts.macs = bytes(data, 6).zip(bytes(data, 0));
        let mut offset = 14;
        let mut ethertype = half(data, 12);
        for vlan in &mut facts.vlans {
            if !ethertype.is_some_and(|value| TAGS.contains(&value)) {
                break;
            }
            *vlan = half(data, offset).map(|control| control & 0xfff);
            ethertype = half(data, offset + 2);
            offset += 4;
        }
        facts.ethertype = ethertype;
        let payload = data.get(offset..).unwrap_or_default();
        match ethertype {
            Some(IPV4) => facts.read_ipv4(payload),
            Some(IPV6) => facts.read_ipv6(payload),
            Some(ARP | RARP) => {
                let address =
                    |offset| bytes::<4>(payload, offset).map(|bytes| IpAddr::from(Ipv4Addr::from(bytes)));
                facts.addresses = address(14).zip(address(24));
            }
            _ => {}
        }
        facts
    }

    fn read_ipv4(&mut self, packet: &[u8]) {
        let address = |offset| bytes::<4>(packet, offset).map(|bytes| IpAddr::from(Ipv4Addr::from(bytes)));
        self.addresses = address(12).zip(address(16));
        self.protocol = packet.get(9).copied();
        // The offset is in the lower 13 bits.
        let is_first = half(packet, 6).is_some_and(|fragment| fragment << 3 == 0);
        let header = usize::from(packet.first().copied().unwrap_or(0) & 0xf) * 4;
        if is_first {
            self.ports = half(packet, header).zip(half(packet, header + 2));
        }
    }

    fn read_ipv6(&mut self, packet: &[u8]) {
        let address = |offset| bytes::<16>(packet, offset).map(|bytes| IpAddr::from(Ipv6Addr::from(bytes)));
        self.addresses = address(8).zip(address(24));
        self.protocol = packet.get(6).copied();
        if self.protocol == Some(FRAGMENT) {
            self.protocol = packet.get(40).copied();
        } else {
            self.ports = half(packet, 40).zip(half(packet, 42));
        }
    }
}
