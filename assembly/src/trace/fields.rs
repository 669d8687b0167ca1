//! What headers say, for people.

use std::collections::BTreeMap;
use std::fmt::Display;

use warmlane_wire::checksum::Sum;
use warmlane_wire::{
    ArpOperation, ArpPacket, EtherType, IpProtocol, Ipv4Header, Ipv6Header, LinkLayer, VlanTag, ipv4, ipv6,
};

/// What the headers of a frame say, by names in lower case. Only the beginning of the frame need be there; what is cut off or malformed is
/// left out.
pub fn fields(frame: &[u8]) -> BTreeMap<String, String> {
    let mut found = Found(BTreeMap::new());
    found.link(frame);
    found.0
}

struct Found(BTreeMap<String, String>);

impl Found {
    fn put(&mut self, name: &str, value: impl Display) {
        self.0.insert(name.to_owned(), value.to_string());
    }

    fn link(&mut self, frame: &[u8]) {
        let Ok(link) = LinkLayer::parse(frame) else { return };
        self.put("destination-mac", link.header.destination());
        self.put("source-mac", link.header.source());
        let tags: Vec<String> =
            [link.outer, link.inner].into_iter().flatten().map(|tag: VlanTag| tag.id().to_string()).collect();
        if !tags.is_empty() {
            self.put("vlan", tags.join("."));
        }
        match link.ethertype {
            EtherType::IPV4 => self.ipv4(link.payload),
            EtherType::IPV6 => self.ipv6(link.payload),
            EtherType::ARP => self.arp(link.payload),
            other => self.put("ethertype", format_args!("{:#06x}", other.0)),
        }
    }

    fn ipv4(&mut self, packet: &[u8]) {
        let Some(fixed) = packet.first_chunk::<{ ipv4::HEADER_LENGTH }>() else { return };
        let header = Ipv4Header(fixed);
        self.put("source", header.source());
        self.put("destination", header.destination());
        self.put("ttl", header.ttl());
        self.put("ip-length", header.total_length());
        let whole = packet.get(..header.header_length().max(ipv4::HEADER_LENGTH));
        if whole.is_some_and(|whole| !Sum::new().bytes(whole).is_valid()) {
            self.put("header-checksum", "wrong");
        }
        if header.is_fragment() {
            self.put("protocol", format_args!("{}, a fragment", header.protocol()));
        } else {
            self.transport(header.protocol(), packet.get(header.header_length()..).unwrap_or_default());
        }
    }

    fn ipv6(&mut self, packet: &[u8]) {
        let Some((fixed, rest)) = packet.split_first_chunk::<{ ipv6::HEADER_LENGTH }>() else { return };
        let header = Ipv6Header(fixed);
        self.put("source", header.source());
        self.put("destination", header.destination());
        self.put("hop-limit", header.hop_limit());
        self.put("ip-length", ipv6::HEADER_LENGTH + usize::from(header.payload_length()));
        self.transport(header.next_header(), rest);
    }

    fn transport(&mut self, protocol: IpProtocol, bytes: &[u8]) {
        self.put("protocol", protocol);
        let &[a, b, c, d, ..] = bytes else { return };
        match protocol {
            IpProtocol::TCP | IpProtocol::UDP | IpProtocol::SCTP => {
                self.put("source-port", u16::from_be_bytes([a, b]));
                self.put("destination-port", u16::from_be_bytes([c, d]));
            }
            IpProtocol::ICMP | IpProtocol::ICMPV6 => {
                self.put("icmp-type", a);
                self.put("icmp-code", b);
            }
            _ => {}
        }
    }

    fn arp(&mut self, bytes: &[u8]) {
        let Ok(arp) = ArpPacket::parse(bytes) else { return self.put("ethertype", "ARP") };
        self.put("protocol", "ARP");
        self.put("source", arp.sender_ip);
        self.put("destination", arp.target_ip);
        self.put("arp", if arp.operation == ArpOperation::Request { "request" } else { "reply" });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmlane_wire::{Frame, Ipv4Fields, MacAddress};

    #[test]
    fn headers_are_read_as_far_as_they_are_there() {
        let frame = Frame::new()
            .ethernet(MacAddress([2, 0, 0, 0, 0, 2]), MacAddress([2, 0, 0, 0, 0, 1]))
            .ipv4(Ipv4Fields::new([192, 0, 2, 1].into(), [198, 51, 100, 2].into()))
            .udp(4242, 53)
            .to_vec()
            .unwrap();
        let all = fields(&frame);
        for (name, value) in [
            ("source", "192.0.2.1"),
            ("destination", "198.51.100.2"),
            ("protocol", "UDP"),
            ("source-port", "4242"),
            ("destination-port", "53"),
            ("destination-mac", "02:00:00:00:00:02"),
        ] {
            assert_eq!(all.get(name).map(String::as_str), Some(value), "{all:?}");
        }
        assert!(!all.contains_key("header-checksum"));
        let mut broken = frame.clone();
        broken[24] ^= 1;
        assert_eq!(fields(&broken)["header-checksum"], "wrong");
        for length in 0..frame.len() {
            assert!(fields(&frame[..length]).len() <= all.len(), "{length}");
        }
    }
}
