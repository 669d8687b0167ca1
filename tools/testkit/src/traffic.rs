//! A large, hostile and reproducible mixture of frames for a router, and the capture file that it goes into.
//!
//! What should become of each frame is not written down here: whoever checks a router with it has to know by itself.

use std::io::{self, Write};

use crate::bytes::{
    ARP, Ends, ICMP, ICMPV6, IPV4, IPV6, SERVICE_VLAN, TCP, UDP, VLAN, arp, frame, icmp, icmpv6, ipv4, ipv6,
    seal_ipv4, tcp, udp,
};
use crate::random::Random;

/// The router that the frames are for, as far as their contents depend on it.
#[derive(Debug, Clone)]
pub struct Target {
    /// The router's Ethernet address on the link that the frames come in by.
    pub router: [u8; 6],
    /// The Ethernet address of the station that sends them.
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

/// How much of the traffic is odd, in percent: malformed, rare, or the router's own business.
const ODD_PERCENT: usize = 14;

/// Writes `count` frames for `target` as a classic pcap file. A few of them are marked as cut off by the capture.
///
/// # Errors
/// What `output` says.
pub fn write(target: &Target, seed: u64, count: u32, output: &mut impl Write) -> io::Result<()> {
    // pcap-savefile(5): magic for microseconds, version 2.4, time zone, accuracy, snapshot length, Ethernet.
    output.write_all(&0xa1b2_c3d4_u32.to_le_bytes())?;
    output.write_all(&[2, 0, 4, 0])?;
    for field in [0, 0, 0x4_0000, 1_u32] {
        output.write_all(&field.to_le_bytes())?;
    }
    let mut mixture = Mixture { target, random: Random::new(seed), number: 0 };
    for number in 0..count {
        mixture.number = number;
        let frame = mixture.next_frame();
        let length = frame.len() as u32;
        let cut_off = u32::from(number % 10_000 == 7_777);
        for field in [1_700_000_000 + number / 1_000_000, number % 1_000_000, length, length + cut_off] {
            output.write_all(&field.to_le_bytes())?;
        }
        output.write_all(&frame)?;
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
        if !self.random.percent(ODD_PERCENT) {
            return if self.random.percent(60) { self.ordinary_ipv4() } else { self.ordinary_ipv6() };
        }
        match self.random.below(10) {
            0 => self.flipped_bits(),
            1 => self.link_layer_fault(),
            2 | 3 => self.ipv4_fault(),
            4 => self.ipv4_oddity(),
            5 | 6 => self.ipv6_fault(),
            7 => self.ipv6_oddity(),
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
        let (protocol, segment) = match self.random.below(20) {
            0..12 => {
                let payload = self.payload(length.saturating_sub(28));
                (UDP, udp(&mut self.random, ends, &payload))
            }
            12..19 => {
                let payload = self.payload(length.saturating_sub(40));
                (TCP, tcp(&mut self.random, ends, &payload))
            }
            _ => (ICMP, icmp(8, 0, [1, 2, 3, 4], &self.payload(length.saturating_sub(28)))),
        };
        ipv4(&mut self.random, source, destination, ttl, protocol, &segment)
    }

    fn good_ipv6(&mut self, length: usize) -> Vec<u8> {
        let (source, destination) = (self.ipv6_source(), self.ipv6_destination());
        self.good_ipv6_between(source, destination, length)
    }

    fn good_ipv6_between(&mut self, source: u128, destination: u128, length: usize) -> Vec<u8> {
        let (hop_limit, ends) = (self.ttl(), Ends::Ipv6(source, destination));
        let (protocol, segment) = match self.random.below(20) {
            0..12 => {
                let payload = self.payload(length.saturating_sub(48));
                (UDP, udp(&mut self.random, ends, &payload))
            }
            12..19 => {
                let payload = self.payload(length.saturating_sub(60));
                (TCP, tcp(&mut self.random, ends, &payload))
            }
            _ => {
                let payload = self.payload(length.saturating_sub(48));
                (ICMPV6, icmpv6(source, destination, 128, [1, 2, 3, 4], &payload))
            }
        };
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

    /// Noise: any bit of the Ethernet and IP headers may be wrong. Versions, lengths, types, addresses, all of them.
    fn flipped_bits(&mut self) -> Vec<u8> {
        let mut frame = if self.random.percent(50) { self.ordinary_ipv4() } else { self.ordinary_ipv6() };
        for _ in 0..self.random.between(1, 3) {
            let (place, bit) = (self.random.below(54), self.random.below(8));
            frame[place] ^= 1 << bit;
        }
        frame
    }

    fn link_layer_fault(&mut self) -> Vec<u8> {
        let Target { router, sender, .. } = *self.target;
        let packet = self.good_ipv4(100);
        match self.random.below(9) {
            // Cut off within the Ethernet header and within a tag.
            0 => frame(router, sender, &[], IPV4, &packet)[..self.random.between(1, 13)].to_vec(),
            1 => frame(router, sender, &[(VLAN, 5)], IPV4, &packet)[..self.random.between(14, 17)].to_vec(),
            2 => {
                let tags = [(SERVICE_VLAN, 5), (VLAN, 6)];
                frame(router, sender, &tags, IPV4, &packet)[..self.random.between(18, 21)].to_vec()
            }
            3 => frame(router, sender, &[(VLAN, 5), (VLAN, 6), (VLAN, 7)], IPV4, &packet),
            4 => {
                let mut other = router;
                other[self.random.below(5) + 1] ^= 0x11;
                frame(other, sender, &[], IPV4, &packet)
            }
            // LLDP, Ethernet loopback, MPLS, PPPoE; and IEEE 802.3 lengths.
            5 => {
                let ethertype = self.random.pick(&[0x88cc, 0x9000, 0x8847, 0x8864]);
                self.sent(ethertype, &packet)
            }
            6 => self.sent(packet.len() as u16, &packet),
            // One station's packet in everybody's frame.
            7 => frame([0xff; 6], sender, &[], IPV4, &packet),
            _ => {
                let packet = self.good_ipv6(100);
                frame([0x33, 0x33, 0, 0, 0, 1], sender, &[], IPV6, &packet)
            }
        }
    }

    fn ipv4_fault(&mut self) -> Vec<u8> {
        let length = self.length(60);
        let mut packet = self.good_ipv4(length);
        match self.random.below(17) {
            0 => {
                let mut cut = frame(self.target.router, self.target.sender, &[], IPV4, &packet);
                cut.truncate(14 + self.random.below(20));
                return cut;
            }
            1 => packet[0] = self.random.pick(&[0x05, 0x15, 0x55, 0x65, 0xf5]),
            2 => packet[0] = 0x40 | self.random.below(5) as u8,
            // A header of 60 bytes in a frame of 60: it ends behind it.
            3 => {
                packet.truncate(46);
                packet[0] = 0x4f;
                packet[2..4].copy_from_slice(&46_u16.to_be_bytes());
            }
            4 => packet[2..4].copy_from_slice(&(self.random.below(20) as u16).to_be_bytes()),
            5 => {
                let beyond = packet.len() + 46 + self.random.between(1, 40_000);
                packet[2..4].copy_from_slice(&(beyond as u16).to_be_bytes());
            }
            6 => {
                packet[10] ^= self.random.between(1, 255) as u8;
                return self.sent(IPV4, &packet);
            }
            7 => {
                let source = self.random.pick(&[0, 0x0001_0203, 0x7f00_0001, 0x7fff_ffff]);
                packet[12..16].copy_from_slice(&u32::to_be_bytes(source));
            }
            8 => {
                let source = self.random.pick(&[0xe000_0001, 0xefff_0102, 0xf000_0001, 0xffff_ffff]);
                packet[12..16].copy_from_slice(&u32::to_be_bytes(source));
            }
            9 => {
                let destination = self.random.pick(&[0, 0x0001_0203, 0x7f00_0001, 0x7fff_ffff]);
                packet[16..20].copy_from_slice(&u32::to_be_bytes(destination));
            }
            10 => {
                let destination = self.random.pick(&[0xf000_0001, 0xffff_fffe]);
                packet[16..20].copy_from_slice(&u32::to_be_bytes(destination));
            }
            11 => {
                packet[16..20].fill(0xff);
                seal_ipv4(&mut packet);
                return frame([0xff; 6], self.target.sender, &[], IPV4, &packet);
            }
            // Groups: on the link, and beyond.
            12 => {
                let group: u32 = self.random.pick(&[0xe000_0005, 0xe800_0001, 0xefff_fffa]);
                packet[16..20].copy_from_slice(&group.to_be_bytes());
                seal_ipv4(&mut packet);
                let [_, b, c, d] = group.to_be_bytes();
                return frame([1, 0, 0x5e, b & 0x7f, c, d], self.target.sender, &[], IPV4, &packet);
            }
            13 => packet[12..14].copy_from_slice(&[169, 254]),
            14 => packet[16..18].copy_from_slice(&[169, 254]),
            // Loose and strict source routes through the router's address.
            15 => {
                let kind = self.random.pick(&[131, 137]);
                let [a, b, c, d] = self.target.ipv4.to_be_bytes();
                packet = with_options(&packet, &[kind, 7, 4, a, b, c, d, 0]);
            }
            _ => {
                // Lengths of 0 and 1, beyond the header, and none at all.
                let options = self.random.pick(&[[7, 0, 4, 0], [68, 1, 0, 0], [7, 5, 4, 0], [1, 1, 1, 148]]);
                packet = with_options(&packet, &options);
            }
        }
        seal_ipv4(&mut packet);
        self.sent(IPV4, &packet)
    }

    /// Rare, but nothing is wrong with it.
    fn ipv4_oddity(&mut self) -> Vec<u8> {
        let length = self.length(64);
        let mut packet = self.good_ipv4(length);
        match self.random.below(5) {
            // Router alert, record route, timestamps, padding (RFC 791, RFC 2113).
            0 | 1 => {
                let options: &[u8] = match self.random.below(4) {
                    0 => &[148, 4, 0, 0],
                    1 => &[1, 7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0],
                    2 => &[68, 8, 5, 0, 0, 0, 0, 0, 1, 148, 4, 0, 0, 0, 0, 0],
                    _ => &[0, 0, 0, 0],
                };
                packet = with_options(&packet, options);
            }
            // First, middle and last fragments.
            2 => packet[6] |= 0x20,
            3 => packet[6..8].copy_from_slice(&(0x2000 | self.random.between(1, 0xfff) as u16).to_be_bytes()),
            _ => packet[6..8].copy_from_slice(&(self.random.between(1, 0xfff) as u16).to_be_bytes()),
        }
        seal_ipv4(&mut packet);
        self.sent(IPV4, &packet)
    }

    fn ipv6_fault(&mut self) -> Vec<u8> {
        let length = self.length(60);
        let mut packet = self.good_ipv6(length);
        let mut ff0e = [0; 16];
        (ff0e[0], ff0e[1], ff0e[15]) = (0xff, 0x0e, 5);
        let martian: [u128; 4] = [0, 1, 0xffff_c000_0201, 0xffff_0000_0000];
        match self.random.below(11) {
            0 => {
                let mut cut = frame(self.target.router, self.target.sender, &[], IPV6, &packet);
                cut.truncate(14 + self.random.below(40));
                return cut;
            }
            1 => packet[0] = self.random.pick(&[0x00, 0x40, 0x50, 0x70, 0xf0]),
            2 => {
                let beyond = packet.len() + self.random.between(1, 40_000);
                packet[4..6].copy_from_slice(&(beyond as u16).to_be_bytes());
            }
            // A jumbogram's length.
            3 => (packet[4], packet[5], packet[6]) = (0, 0, 0),
            4 => packet[8..24].copy_from_slice(&self.random.pick(&martian).to_be_bytes()),
            5 => packet[8..24].copy_from_slice(&ff0e),
            6 => packet[24..40].copy_from_slice(&self.random.pick(&martian).to_be_bytes()),
            7 => packet[24..26].copy_from_slice(&self.random.pick(&[0xff00_u16, 0xff30]).to_be_bytes()),
            8 => {
                let scope = self.random.pick(&[0x01, 0x02, 0x05, 0x0e]);
                packet[24..40].copy_from_slice(&ff0e);
                packet[25] = scope;
                return frame([0x33, 0x33, 0, 0, 0, 5], self.target.sender, &[], IPV6, &packet);
            }
            9 => packet[8..16].copy_from_slice(&0xfe80_0000_0000_0000_u64.to_be_bytes()),
            _ => packet[24..32].copy_from_slice(&0xfe80_0000_0000_0000_u64.to_be_bytes()),
        }
        self.sent(IPV6, &packet)
    }

    /// Extension headers, and nothing behind the header.
    fn ipv6_oddity(&mut self) -> Vec<u8> {
        let (source, destination) = (self.ipv6_source(), self.ipv6_destination());
        let hop_limit = if self.random.percent(30) { 1 } else { self.ttl() };
        let length = self.length(80) - 48;
        let payload = self.payload(length);
        let datagram = udp(&mut self.random, Ends::Ipv6(source, destination), &payload);
        let (first, chain): (u8, Vec<u8>) = match self.random.below(8) {
            // Hop-by-hop with padding, destination options, both.
            0 => (0, [&[UDP, 0, 1, 4, 0, 0, 0, 0], &datagram[..]].concat()),
            1 => (60, [&[UDP, 0, 1, 4, 0, 0, 0, 0], &datagram[..]].concat()),
            2 => (0, [&[60, 0, 1, 4, 0, 0, 0, 0, UDP, 0, 1, 4, 0, 0, 0, 0], &datagram[..]].concat()),
            // The first and a later fragment.
            3 => (44, [&[UDP, 0, 0, 1, 1, 2, 3, 4], &datagram[..]].concat()),
            4 => (44, [&[UDP, 0, 5, 0xa8, 1, 2, 3, 4], &datagram[..]].concat()),
            // An error of someone's, with and without a header in front of it.
            5 => (ICMPV6, icmpv6(source, destination, self.random.pick(&[1, 2, 3, 4]), [0; 4], &payload)),
            6 => {
                let error = icmpv6(source, destination, 3, [0; 4], &payload);
                (60, [&[ICMPV6, 0, 1, 4, 0, 0, 0, 0], &error[..]].concat())
            }
            _ => (59, Vec::new()),
        };
        let packet = ipv6(&mut self.random, source, destination, hop_limit, first, &chain);
        self.sent(IPV6, &packet)
    }

    /// What is for the router itself, or for a link of its own.
    fn for_the_router(&mut self) -> Vec<u8> {
        let Target { router, sender, ipv4: ours, ipv6: ours6, .. } = *self.target;
        let (neighbour, neighbour6) = (ours ^ 0x33, ours6 ^ 0x33);
        let payload = self.payload(60);
        match self.random.below(14) {
            0 => frame([0xff; 6], sender, &[], ARP, &arp(1, (sender, neighbour), ([0; 6], ours))),
            1 => frame([0xff; 6], sender, &[(VLAN, 9)], ARP, &arp(1, (sender, neighbour), ([0; 6], ours))),
            2 => frame([0xff; 6], sender, &[], ARP, &arp(1, (sender, neighbour), ([0; 6], ours ^ 0x44))),
            3 => frame(router, sender, &[], ARP, &arp(2, (sender, neighbour), (router, ours))),
            4 => {
                let message = icmp(8, 0, [9, 8, 7, 6], &payload);
                let (source, ttl) = (self.ipv4_source(), self.random.between(1, 255) as u8);
                let packet = ipv4(&mut self.random, source, ours, ttl, ICMP, &message);
                self.sent(IPV4, &packet)
            }
            // The checksum is wrong.
            5 => {
                let mut message = icmp(8, 0, [9, 8, 7, 6], &payload);
                message[3] ^= 0x40;
                let packet = ipv4(&mut self.random, neighbour, ours, 64, ICMP, &message);
                self.sent(IPV4, &packet)
            }
            6 => {
                let packet = self.good_ipv4_between(neighbour, ours, 64);
                let packet = if packet[9] == ICMP { self.good_ipv4(64) } else { packet };
                self.sent(IPV4, &packet)
            }
            // Everybody on the link, and someone on it that nobody knows.
            7 => {
                let source = self.ipv4_source();
                let packet = self.good_ipv4_between(source, ours | 0xff, 64);
                self.sent(IPV4, &packet)
            }
            8 => {
                let source = self.ipv4_source();
                let packet = self.good_ipv4_between(source, ours ^ 0x55, 64);
                self.sent(IPV4, &packet)
            }
            9 => {
                let message = icmpv6(neighbour6, ours6, 128, [9, 8, 7, 6], &payload);
                let packet = ipv6(&mut self.random, neighbour6, ours6, 64, ICMPV6, &message);
                self.sent(IPV6, &packet)
            }
            10 => {
                let source = self.ipv6_source();
                let packet = self.good_ipv6_between(source, ours6 ^ 0x5555, 100);
                self.sent(IPV6, &packet)
            }
            kind => {
                // Neighbour solicitations: for the router, for another, and one that came through a router.
                let target = if kind == 12 { ours6 ^ 0x44 } else { ours6 };
                let hop_limit = if kind == 13 { 254 } else { 255 };
                let group = 0xff02_u128 << 112 | 0x1_ff00_0000 | target & 0xff_ffff;
                let body = [&target.to_be_bytes()[..], &[1, 1], &sender].concat();
                let message = icmpv6(neighbour6, group, 135, [0; 4], &body);
                let packet = ipv6(&mut self.random, neighbour6, group, hop_limit, ICMPV6, &message);
                let [.., a, b, c, d] = group.to_be_bytes();
                frame([0x33, 0x33, a, b, c, d], sender, &[], IPV6, &packet)
            }
        }
    }

    /// A TTL or hop limit that ends here, in packets that are answered and in some that are not.
    fn short_lived(&mut self) -> Vec<u8> {
        let length = self.length(60);
        let ttl = self.random.below(2) as u8;
        if self.random.percent(50) {
            let mut packet = self.good_ipv6(length);
            packet[7] = ttl;
            return self.sent(IPV6, &packet);
        }
        let mut packet = self.good_ipv4(length);
        packet[8] = ttl;
        match self.random.below(8) {
            // An error, and a later fragment.
            0 => {
                packet[9] = ICMP;
                let kind = self.random.pick(&[3, 4, 5, 11, 12]);
                let message = icmp(kind, 0, [0; 4], &packet[28..]);
                packet[20..].copy_from_slice(&message);
            }
            1 => packet[7] = 9,
            _ => {}
        }
        seal_ipv4(&mut packet);
        self.sent(IPV4, &packet)
    }
}

/// Puts options behind the fixed header; their length is a multiple of 4.
fn with_options(packet: &[u8], options: &[u8]) -> Vec<u8> {
    let mut longer = [&packet[..20], options, &packet[20..]].concat();
    longer[0] = 0x45 + (options.len() / 4) as u8;
    let total = longer.len() as u16;
    longer[2..4].copy_from_slice(&total.to_be_bytes());
    seal_ipv4(&mut longer);
    longer
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
