//! A large, hostile and reproducible mixture of frames for a router, and the capture file that it goes into.
//!
//! What should become of each frame is not written down here: whoever checks a router with it has to know by itself.

mod unusual;

use std::io::{self, Write};

use crate::bytes::{
    Ends, ICMP, ICMPV6, IPV4, IPV6, SERVICE_VLAN, TCP, UDP, VLAN, frame, icmp, icmpv6, ipv4, ipv6, seal_ipv4,
    tcp, udp,
};
use crate::capture;
use warmlane_sys::random::Random;

/// The router that the frames are for, as far as their contents depend on it.
#[derive(Debug, Clone)]
pub struct Target {
    /// The router's Ethernet address on the link that the frames come in by.
    pub router: [u8; 6],
    /// The Ethernet address of the neighbour that sends them.
    pub sender: [u8; 6],
    /// The router's IPv4 address on that link, which is a /24.
    pub ipv4: u32,
    /// The router's IPv6 address on that link, which is a /64.
    pub ipv6: u128,
    /// Prefixes to send to, as first address and length.
    pub ipv4_prefixes: Vec<(u32, u8)>,
    /// Prefixes to send to, as first address and length.
    pub ipv6_prefixes: Vec<(u128, u8)>,
}

/// How much of the traffic is unusual, in percent: malformed, rare, or the router's own business.
const UNUSUAL_PERCENT: usize = 14;

/// Writes `count` frames for `target` as a classic pcap file. A few of them are marked as cut off by the capture.
///
/// # Errors
/// What `output` says.
pub fn write(target: &Target, seed: u64, count: u32, output: &mut impl Write) -> io::Result<()> {
    capture::begin(output, capture::ETHERNET)?;
    let mut mixture = Mixture { target, random: Random::new(seed), number: 0 };
    for number in 0..count {
        mixture.number = number;
        let frame = mixture.next_frame();
        capture::frame(output, number, &frame, u32::from(number % 10_000 == 7_777))?;
    }
    Ok(())
}

struct Mixture<'a> {
    target: &'a Target,
    random: Random,
    number: u32,
}

impl Mixture<'_> {
    fn next_frame(&mut self) -> Vec<u8> {
        if !self.random.percent(UNUSUAL_PERCENT) {
            return if self.random.percent(60) { self.ordinary_ipv4() } else { self.ordinary_ipv6() };
        }
        match self.random.below(10) {
            0 => self.flipped_bits(),
            1 => self.link_layer_fault(),
            2 | 3 => self.ipv4_fault(),
            4 => self.unusual_ipv4(),
            5 | 6 => self.ipv6_fault(),
            7 => self.unusual_ipv6(),
            8 => self.for_the_router(),
            _ => self.short_lived(),
        }
    }

    /// Length of an IP packet: most are short, some fill an Ethernet frame, one in a hundred is larger than that.
    fn length(&mut self, least: usize) -> usize {
        let length = match self.random.below(100) {
            0..58 => self.random.between(46, 128),
            58..90 => self.random.between(128, 576),
            90..95 => self.random.between(577, 1499),
            95..99 => 1500,
            _ => self.random.between(1501, 9000),
        };
        length.max(least)
    }

    /// A payload that starts with the frame's number, for whoever looks for a lost frame; the rest is random.
    fn payload(&mut self, length: usize) -> Vec<u8> {
        let mut payload = vec![0; length];
        self.random.fill(&mut payload);
        let number = u64::from(self.number).to_be_bytes();
        let count = length.min(8);
        payload[..count].copy_from_slice(&number[8 - count..]);
        payload
    }

    /// No tag in three of four frames, one or two in the others.
    fn tags(&mut self) -> Vec<(u16, u16)> {
        // VLANs 1 to 4094 of any priority.
        let mut control = || (self.random.below(8) << 13 | self.random.between(1, 4094)) as u16;
        let (outer, inner) = (control(), control());
        match self.random.below(20) {
            0..15 => vec![],
            15..19 => vec![(VLAN, outer)],
            _ => vec![(SERVICE_VLAN, outer), (VLAN, inner)],
        }
    }

    /// A frame from the sender to the router, with random tags.
    fn sent(&mut self, ethertype: u16, packet: &[u8]) -> Vec<u8> {
        let tags = self.tags();
        frame(self.target.router, self.target.sender, &tags, ethertype, packet)
    }

    /// An address outside the networks that mean something special.
    fn ipv4_source(&mut self) -> u32 {
        loop {
            let address = self.random.bits() as u32;
            let special = matches!(address >> 24, 0 | 127 | 224..) || address >> 16 == 0xa9fe;
            if !special && address >> 8 != self.target.ipv4 >> 8 {
                return address;
            }
        }
    }

    /// An address in 2000::/3, global unicast.
    fn ipv6_source(&mut self) -> u128 {
        self.random.bits128() >> 3 | 1 << 125
    }

    /// An address in one of the prefixes; one in thirty is anywhere.
    fn ipv4_destination(&mut self) -> u32 {
        if self.random.below(30) == 0 {
            return self.ipv4_source();
        }
        let (first, length) = self.random.pick(&self.target.ipv4_prefixes);
        first | (self.random.bits() as u32).checked_shr(length.into()).unwrap_or(0)
    }

    fn ipv6_destination(&mut self) -> u128 {
        if self.random.below(30) == 0 {
            return self.ipv6_source();
        }
        let (first, length) = self.random.pick(&self.target.ipv6_prefixes);
        first | self.random.bits128().checked_shr(length.into()).unwrap_or(0)
    }

    fn ttl(&mut self) -> u8 {
        self.random.between(2, 255) as u8
    }

    /// A good packet of this length that nothing is special about but its contents, and its IP addresses.
    fn good_ipv4(&mut self, length: usize) -> Vec<u8> {
        let (source, destination) = (self.ipv4_source(), self.ipv4_destination());
        self.good_ipv4_between(source, destination, length)
    }

    fn good_ipv4_between(&mut self, source: u32, destination: u32, length: usize) -> Vec<u8> {
        let (ttl, ends) = (self.ttl(), Ends::Ipv4(source, destination));
        let (protocol, segment) = self.good_segment(ends, length.saturating_sub(20));
        ipv4(&mut self.random, source, destination, ttl, protocol, &segment)
    }

    /// What an IP packet carries, its protocol and so many bytes: mostly UDP, some TCP, now and then an echo request.
    fn good_segment(&mut self, ends: Ends, length: usize) -> (u8, Vec<u8>) {
        let kind = self.random.below(20);
        let payload = self.payload(length.saturating_sub(if (12..19).contains(&kind) { 20 } else { 8 }));
        match (kind, ends) {
            (0..12, _) => (UDP, udp(&mut self.random, ends, &payload)),
            (12..19, _) => (TCP, tcp(&mut self.random, ends, &payload)),
            (_, Ends::Ipv4(..)) => (ICMP, icmp(8, 0, [1, 2, 3, 4], &payload)),
            (_, Ends::Ipv6(source, destination)) => {
                (ICMPV6, icmpv6(source, destination, 128, [1, 2, 3, 4], &payload))
            }
        }
    }

    fn good_ipv6(&mut self, length: usize) -> Vec<u8> {
        let (source, destination) = (self.ipv6_source(), self.ipv6_destination());
        self.good_ipv6_between(source, destination, length)
    }

    fn good_ipv6_between(&mut self, source: u128, destination: u128, length: usize) -> Vec<u8> {
        let (hop_limit, ends) = (self.ttl(), Ends::Ipv6(source, destination));
        let (protocol, segment) = self.good_segment(ends, length.saturating_sub(40));
        ipv6(&mut self.random, source, destination, hop_limit, protocol, &segment)
    }

    fn ordinary_ipv4(&mut self) -> Vec<u8> {
        let length = self.length(28);
        let mut packet = self.good_ipv4(length);
        if self.random.percent(60) {
            packet[6] |= 0x40;
            seal_ipv4(&mut packet);
        }
        self.sent(IPV4, &packet)
    }

    fn ordinary_ipv6(&mut self) -> Vec<u8> {
        let length = self.length(60);
        let packet = self.good_ipv6(length);
        self.sent(IPV6, &packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::seal_transport;

    fn capture(seed: u64) -> Vec<u8> {
        let target = Target {
            router: [2, 0, 0, 0, 1, 0],
            sender: [2, 0, 0, 0, 0, 9],
            ipv4: 0xc000_0201,
            ipv6: 0x2001_0db8_0000_0001_0000_0000_0000_0001,
            ipv4_prefixes: vec![(0x0800_0000, 8), (0x0101_0101, 32)],
            ipv6_prefixes: vec![(0x2600 << 112, 16)],
        };
        let mut bytes = Vec::new();
        write(&target, seed, 20_000, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_seed_is_a_capture() {
        assert_eq!(capture(1), capture(1));
        assert_ne!(capture(1), capture(2));
    }

    #[test]
    fn records_add_up_and_sizes_are_mixed() {
        let bytes = capture(3);
        let (mut rest, mut lengths) = (&bytes[24..], Vec::new());
        while let Some((header, more)) = rest.split_first_chunk::<16>() {
            let length = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
            lengths.push(length);
            rest = &more[length..];
        }
        assert_eq!(lengths.len(), 20_000);
        for range in [0..14, 14..60, 60..65, 65..1500, 1514..1515, 1515..9023] {
            assert!(lengths.iter().any(|length| range.contains(length)), "{range:?}");
        }
        assert!(lengths.iter().all(|length| *length < 9030));
    }

    #[test]
    fn checksums_are_right() {
        // The example of RFC 1071 section 3: the sum is ddf2.
        assert_eq!(crate::bytes::checksum(&[&[0, 1, 0xf2, 3, 0xf4, 0xf5, 0xf6, 0xf7]]), !0xddf2);
        let mut random = Random::new(4);
        let datagram = udp(&mut random, Ends::Ipv4(1, 2), b"odd");
        let packet = ipv4(&mut random, 1, 2, 3, UDP, &datagram);
        assert_eq!(crate::bytes::checksum(&[&packet[..20]]), 0);
        let mut segment = packet[20..].to_vec();
        let sum = [segment[6], segment[7]];
        seal_transport(Ends::Ipv4(1, 2), UDP, &mut segment, 6);
        assert_eq!([segment[6], segment[7]], sum);
    }
}
