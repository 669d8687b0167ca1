//! Frames that are malformed, rare, or the router's own business.

use super::{Mixture, Target};
use crate::bytes::{
    ARP, Ends, ICMP, ICMPV6, IPV4, IPV6, SERVICE_VLAN, UDP, VLAN, arp, frame, icmp, icmpv6, ipv4, ipv6,
    seal_ipv4, udp,
};

impl Mixture<'_> {
    /// Noise: any bit of the Ethernet and IP headers may be wrong. Versions, lengths, types, addresses, all of them.
    pub(super) fn flipped_bits(&mut self) -> Vec<u8> {
        let mut frame = if self.random.percent(50) { self.ordinary_ipv4() } else { self.ordinary_ipv6() };
        for _ in 0..self.random.between(1, 3) {
            let (index, bit) = (self.random.below(54), self.random.below(8));
            frame[index] ^= 1 << bit;
        }
        frame
    }

    pub(super) fn link_layer_fault(&mut self) -> Vec<u8> {
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
            // A unicast packet in a broadcast frame.
            7 => frame([0xff; 6], sender, &[], IPV4, &packet),
            _ => {
                let packet = self.good_ipv6(100);
                frame([0x33, 0x33, 0, 0, 0, 1], sender, &[], IPV6, &packet)
            }
        }
    }

    pub(super) fn ipv4_fault(&mut self) -> Vec<u8> {
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
    pub(super) fn unusual_ipv4(&mut self) -> Vec<u8> {
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

    pub(super) fn ipv6_fault(&mut self) -> Vec<u8> {
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
    pub(super) fn unusual_ipv6(&mut self) -> Vec<u8> {
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
    pub(super) fn for_the_router(&mut self) -> Vec<u8> {
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
    pub(super) fn short_lived(&mut self) -> Vec<u8> {
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
