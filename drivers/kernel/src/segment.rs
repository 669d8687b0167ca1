//! Cuts super-frames into frames that fit the link, as a NIC with segmentation offload would.
//!
//! A Linux host hands TCP data (TSO) and batched UDP datagrams (UDP GSO) down as one frame of up to 64 KiB and
//! leaves the cutting to the NIC; a TAP or a veth shows that frame as it is. What belongs in each segment follows
//! `Documentation/networking/segmentation-offloads.rst` of the kernel, and what the kernel's own software
//! segmentation does (`net/ipv4/tcp_offload.c: tcp_gso_segment`, `net/ipv4/udp_offload.c: __udp_gso_segment`,
//! `net/ipv4/af_inet.c: inet_gso_segment`).
//!
//! Pure functions on byte slices: no packets, no system calls, no unsafe.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use warmlane_wire::checksum::{Sum, checksum, pseudo_ipv4, pseudo_ipv6};
use warmlane_wire::{EtherType, IpProtocol, ethernet, ipv4, ipv6};

/// Bytes of headers, Ethernet to TCP with all options and a few IPv6 extension headers, that a segment may have.
pub(crate) const MAXIMUM_HEADERS: usize = 256;

/// Bytes of a UDP header (RFC 768).
const UDP_HEADER_LENGTH: usize = 8;
/// Bytes of a TCP header without options (RFC 9293 section 3.1).
const TCP_HEADER_LENGTH: usize = 20;

/// TCP flags (RFC 9293 section 3.1, RFC 3168 for CWR), in byte 13 of the header.
const TCP_FIN: u8 = 0x01;
const TCP_PSH: u8 = 0x08;
const TCP_CWR: u8 = 0x80;

/// What a super-frame carries, according to who made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// TCP over IPv4 or IPv6.
    Tcp,
    /// Several UDP datagrams of one flow, all but the last of the same size.
    Udp,
}

/// How a super-frame is to be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// The protocol whose header each segment gets a copy of.
    pub(crate) transport: Transport,
    /// Payload bytes of each segment but the last (TCP: the maximum segment size).
    pub(crate) size: u16,
    /// Where the transport header starts, in bytes from the start of the frame, if the maker of the frame said so
    /// and left the checksum to us.
    pub(crate) checksum_start: Option<u16>,
}

/// Why a frame can't be cut. All of them mean the same to the operator: we don't know how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Uncuttable;

/// A super-frame that was found to be cuttable: where its parts are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SuperFrame {
    network: usize,
    transport: usize,
    payload: usize,
    end: usize,
    size: usize,
    kind: Transport,
    /// A UDP datagram over IPv4 whose sender computed no checksum (RFC 768: field zero); its segments get none.
    without_checksum: bool,
    version: Version,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    Four,
    Six,
}

impl SuperFrame {
    /// Looks at the headers of `frame`, outermost first.
    pub(crate) fn parse(frame: &[u8], cut: Cut) -> Result<Self, Uncuttable> {
        let (network, ether_type) = skip_tags(frame)?;
        let packet = frame.get(network..).ok_or(Uncuttable)?;
        let (version, protocol, header, length) = match ether_type {
            EtherType::IPV4 => parse_ipv4(packet)?,
            EtherType::IPV6 => parse_ipv6(packet)?,
            _ => return Err(Uncuttable),
        };
        let transport = network + header;
        let end = network + length;
        // A tunnel's super-frame says where the *inner* transport header is. Cutting it at the outer one would
        // make garbage.
        if cut.checksum_start.is_some_and(|start| usize::from(start) != transport) {
            return Err(Uncuttable);
        }
        let segment = frame.get(transport..end).ok_or(Uncuttable)?;
        let (expected, header, field) = match cut.transport {
            Transport::Tcp => {
                let offset = segment.get(12).map_or(0, |byte| usize::from(byte >> 4) * 4);
                (IpProtocol::TCP, offset.max(TCP_HEADER_LENGTH), 16)
            }
            Transport::Udp => (IpProtocol::UDP, UDP_HEADER_LENGTH, 6),
        };
        let payload = transport + header;
        if protocol != expected || header > segment.len() || payload > MAXIMUM_HEADERS || cut.size == 0 {
            return Err(Uncuttable);
        }
        let without_checksum = cut.transport == Transport::Udp
            && version == Version::Four
            && cut.checksum_start.is_none()
            && segment[field..field + 2] == [0, 0];
        let size = usize::from(cut.size);
        let kind = cut.transport;
        Ok(Self { network, transport, payload, end, size, kind, without_checksum, version })
    }

    /// How many segments there are: at least one.
    pub(crate) fn count(&self) -> usize {
        (self.end - self.payload).div_ceil(self.size).max(1)
    }

    /// Where the payload of segment `index` is in the super-frame.
    pub(crate) fn payload(&self, index: usize) -> Range<usize> {
        let start = (self.payload + index * self.size).min(self.end);
        start..(start + self.size).min(self.end)
    }

    /// Writes the headers of segment `index`, checksums included, to the front of `headers`, and returns
    /// as many bytes as they are. `frame` is what was parsed.
    pub(crate) fn write_headers<'a>(
        &self,
        frame: &[u8],
        index: usize,
        headers: &'a mut [u8; MAXIMUM_HEADERS],
    ) -> &'a [u8] {
        let headers = &mut headers[..self.payload];
        headers.copy_from_slice(&frame[..self.payload]);
        let payload = self.payload(index);
        let transport_length = self.payload - self.transport + payload.len();
        let pseudo = self.finish_network(&mut headers[self.network..], index, transport_length);
        let transport = &mut headers[self.transport..];
        let field = match self.kind {
            Transport::Tcp => {
                self.finish_tcp(transport, index);
                16
            }
            Transport::Udp => {
                put(transport, 4, transport_length as u16);
                6
            }
        };
        if !self.without_checksum {
            put(transport, field, 0);
            let sum = pseudo.bytes(transport).bytes(&frame[payload]).checksum();
            // RFC 768: a checksum of zero is sent as all ones, because zero means that there is none. For TCP the
            // two are the same number.
            put(transport, field, if sum == 0 { 0xffff } else { sum });
        }
        headers
    }

    /// Completes the IP header; returns the pseudo header's sum.
    fn finish_network(&self, packet: &mut [u8], index: usize, transport_length: usize) -> Sum {
        let header = self.transport - self.network;
        let protocol = match self.kind {
            Transport::Tcp => IpProtocol::TCP,
            Transport::Udp => IpProtocol::UDP,
        };
        match self.version {
            Version::Four => {
                put(packet, 2, (header + transport_length) as u16);
                // Each segment is a packet of its own, so each has an identification of its own (RFC 6864).
                put(packet, 4, word(packet, 4).wrapping_add(index as u16));
                put(packet, 10, 0);
                put(packet, 10, checksum(&packet[..header]));
                let (source, destination) = (array::<4>(packet, 12), array::<4>(packet, 16));
                let (source, destination) = (Ipv4Addr::from(source), Ipv4Addr::from(destination));
                pseudo_ipv4(source, destination, protocol, transport_length as u16)
            }
            Version::Six => {
                put(packet, 4, (header - ipv6::HEADER_LENGTH + transport_length) as u16);
                let (source, destination) = (array::<16>(packet, 8), array::<16>(packet, 24));
                let (source, destination) = (Ipv6Addr::from(source), Ipv6Addr::from(destination));
                pseudo_ipv6(source, destination, protocol, transport_length as u32)
            }
        }
    }

    fn finish_tcp(&self, header: &mut [u8], index: usize) {
        let sequence = u32::from_be_bytes(array::<4>(header, 4)).wrapping_add((index * self.size) as u32);
        header[4..8].copy_from_slice(&sequence.to_be_bytes());
        if index + 1 < self.count() {
            header[13] &= !(TCP_FIN | TCP_PSH);
        }
        if index > 0 {
            header[13] &= !TCP_CWR;
        }
    }
}

/// Where the network header starts, behind any VLAN tags, and its type.
fn skip_tags(frame: &[u8]) -> Result<(usize, EtherType), Uncuttable> {
    let mut offset = ethernet::HEADER_LENGTH;
    loop {
        let ether_type = frame.get(offset - 2..offset).ok_or(Uncuttable)?;
        let ether_type = EtherType(word(ether_type, 0));
        if !ether_type.is_vlan() {
            return Ok((offset, ether_type));
        }
        offset += 4;
    }
}

/// Version, transport protocol, bytes of IP headers, and bytes of the whole packet.
type Network = (Version, IpProtocol, usize, usize);

fn parse_ipv4(packet: &[u8]) -> Result<Network, Uncuttable> {
    let fixed = packet.first_chunk::<{ ipv4::HEADER_LENGTH }>().ok_or(Uncuttable)?;
    let header = usize::from(fixed[0] & 0x0f) * 4;
    let total = usize::from(word(fixed, 2));
    // A total length of zero is how packets of more than 64 KiB travel inside one host (BIG TCP).
    let length = if total == 0 { packet.len() } else { total };
    let fragment = word(fixed, 6) & 0x3fff != 0;
    if fixed[0] >> 4 != 4
        || header < ipv4::HEADER_LENGTH
        || length > packet.len()
        || header > length
        || fragment
    {
        return Err(Uncuttable);
    }
    Ok((Version::Four, IpProtocol(fixed[9]), header, length))
}

fn parse_ipv6(packet: &[u8]) -> Result<Network, Uncuttable> {
    let fixed = packet.first_chunk::<{ ipv6::HEADER_LENGTH }>().ok_or(Uncuttable)?;
    let payload = usize::from(word(fixed, 4));
    let jumbo = payload == 0;
    let length = if jumbo { packet.len() } else { ipv6::HEADER_LENGTH + payload };
    if fixed[0] >> 4 != 6 || length > packet.len() {
        return Err(Uncuttable);
    }
    let mut protocol = IpProtocol(fixed[6]);
    let mut header = ipv6::HEADER_LENGTH;
    // RFC 8200 section 4: these two repeat unchanged in each segment. A jumbo payload option must not, and a
    // routing header changes the pseudo header; nobody is known to combine these with segmentation.
    while protocol == IpProtocol::HOP_BY_HOP || protocol == IpProtocol::DESTINATION_OPTIONS {
        let [next, units] = *packet.get(header..header + 2).ok_or(Uncuttable)? else {
            return Err(Uncuttable);
        };
        protocol = IpProtocol(next);
        header += 8 + usize::from(units) * 8;
        if jumbo {
            return Err(Uncuttable);
        }
    }
    if header > length {
        return Err(Uncuttable);
    }
    Ok((Version::Six, protocol, header, length))
}

/// The 16-bit field at `offset`, which the caller has checked to be there.
fn word(bytes: &[u8], offset: usize) -> u16 {
    u16::from_be_bytes([bytes[offset], bytes[offset + 1]])
}

/// Writes the 16-bit field at `offset`, which the caller has checked to be there.
fn put(bytes: &mut [u8], offset: usize, value: u16) {
    bytes[offset..offset + 2].copy_from_slice(&value.to_be_bytes());
}

/// The `N` bytes at `offset`, which the caller has checked to be there.
fn array<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[offset..offset + N]);
    array
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A super-frame and how its maker wants it cut.
    #[derive(Clone, Debug)]
    struct Sample {
        frame: Vec<u8>,
        cut: Cut,
        six: bool,
        network: usize,
        transport: usize,
        payload: usize,
    }

    #[derive(Clone, Debug)]
    #[expect(clippy::struct_excessive_bools, reason = "each is an independent dimension of the test")]
    struct Shape {
        six: bool,
        tcp: bool,
        tags: usize,
        options: usize,
        extension: bool,
        flags: u8,
        partial: bool,
        sequence: u32,
        identification: u16,
    }

    fn build(shape: &Shape, payload: &[u8], size: u16, padding: usize) -> Sample {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        for tag in 0..shape.tags {
            frame.extend(if tag == 0 { [0x88, 0xa8, 0, 7] } else { [0x81, 0, 0, 9] });
        }
        frame.extend(if shape.six { [0x86, 0xdd] } else { [0x08, 0] });
        let network = frame.len();
        let transport_header = if shape.tcp { 20 + shape.options * 4 } else { 8 };
        let transport_length = transport_header + payload.len();
        let protocol = if shape.tcp { 6 } else { 17 };
        if shape.six {
            let extension = if shape.extension { 8 } else { 0 };
            frame.extend([0x60, 0, 0, 0]);
            frame.extend(((transport_length + extension) as u16).to_be_bytes());
            frame.extend([if shape.extension { 60 } else { protocol }, 64]);
            frame.extend(std::array::from_fn::<u8, 32, _>(|i| i as u8));
            if shape.extension {
                frame.extend([protocol, 0, 1, 4, 0, 0, 0, 0]);
            }
        } else {
            frame.extend([0x45, 0]);
            frame.extend(((20 + transport_length) as u16).to_be_bytes());
            frame.extend(shape.identification.to_be_bytes());
            frame.extend([0x40, 0, 64, protocol, 0, 0, 192, 0, 2, 1, 198, 51, 100, 2]);
        }
        let transport = frame.len();
        frame.extend([0x12, 0x34, 0x56, 0x78]);
        if shape.tcp {
            frame.extend(shape.sequence.to_be_bytes());
            frame.extend([
                0,
                0,
                0,
                9,
                (transport_header as u8 / 4) << 4,
                shape.flags,
                1,
                0,
                0xaa,
                0xaa,
                0,
                0,
            ]);
            frame.extend(std::iter::repeat_n(1, shape.options * 4));
        } else {
            frame.extend((transport_length as u16).to_be_bytes());
            frame.extend(if shape.partial { [0, 0] } else { [0xaa, 0xaa] });
        }
        let start = frame.len();
        frame.extend(payload);
        frame.extend(std::iter::repeat_n(0xee, padding));
        let cut = Cut {
            transport: if shape.tcp { Transport::Tcp } else { Transport::Udp },
            size,
            checksum_start: shape.partial.then_some(transport as u16),
        };
        Sample { frame, cut, six: shape.six, network, transport, payload: start }
    }

    fn segments(sample: &Sample) -> Vec<Vec<u8>> {
        let plan = SuperFrame::parse(&sample.frame, sample.cut).unwrap();
        let mut headers = [0; MAXIMUM_HEADERS];
        (0..plan.count())
            .map(|index| {
                let mut segment = plan.write_headers(&sample.frame, index, &mut headers).to_vec();
                segment.extend(&sample.frame[plan.payload(index)]);
                segment
            })
            .collect()
    }

    /// Sums the pseudo header and everything behind it from scratch, a word at a time (RFC 1071 section 1).
    fn transport_is_valid(sample: &Sample, segment: &[u8]) -> bool {
        let packet = &segment[sample.network..];
        let transport = &segment[sample.transport..];
        let mut bytes = if sample.six { packet[8..40].to_vec() } else { packet[12..20].to_vec() };
        bytes.extend((transport.len() as u32).to_be_bytes());
        bytes.extend([0, 0, 0, if sample.cut.transport == Transport::Tcp { 6 } else { 17 }]);
        bytes.extend(transport);
        reference_sum(&bytes) == 0xffff
    }

    fn reference_sum(bytes: &[u8]) -> u32 {
        let mut sum = bytes
            .chunks(2)
            .map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)))
            .sum::<u32>();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum
    }

    fn shapes() -> impl Strategy<Value = Shape> {
        let booleans = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
        (booleans, 0..3_usize, 0..=10_usize, any::<u8>(), any::<u32>(), any::<u16>()).prop_map(
            |((six, tcp, extension, partial), tags, options, flags, sequence, identification)| Shape {
                six,
                tcp,
                tags,
                options,
                extension: extension && six,
                flags,
                partial,
                sequence,
                identification,
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn segments_are_valid_and_carry_what_was_in_the_super_frame(
            shape in shapes(),
            payload in prop::collection::vec(any::<u8>(), 0..9000),
            size in 1_u16..3000,
            padding in 0..8_usize,
        ) {
            let size = size.max((payload.len() / 200) as u16).max(1);
            let sample = build(&shape, &payload, size, padding);
            let all = segments(&sample);
            prop_assert_eq!(all.len(), payload.len().div_ceil(usize::from(size)).max(1));
            let mut joined = Vec::<u8>::new();
            for (index, segment) in all.iter().enumerate() {
                let (first, last) = (index == 0, index + 1 == all.len());
                prop_assert!(transport_is_valid(&sample, segment), "segment {}", index);
                prop_assert!(last || segment.len() == sample.payload + usize::from(size));
                let packet = &segment[sample.network..];
                if shape.six {
                    prop_assert_eq!(usize::from(word(packet, 4)), packet.len() - 40);
                } else {
                    prop_assert_eq!(usize::from(word(packet, 2)), packet.len());
                    prop_assert_eq!(word(packet, 4), shape.identification.wrapping_add(index as u16));
                    prop_assert_eq!(reference_sum(&packet[..20]), 0xffff);
                }
                let transport = &segment[sample.transport..];
                if shape.tcp {
                    let sequence = u32::from_be_bytes(array::<4>(transport, 4));
                    prop_assert_eq!(sequence, shape.sequence.wrapping_add(joined.len() as u32));
                    let mut flags = shape.flags;
                    if !last { flags &= !0x09; }
                    if !first { flags &= !0x80; }
                    prop_assert_eq!(transport[13], flags);
                } else {
                    prop_assert_eq!(usize::from(word(transport, 4)), transport.len());
                    prop_assert_ne!(word(transport, 6), 0);
                }
                joined.extend(&segment[sample.payload..]);
            }
            prop_assert_eq!(joined, payload);
        }

        /// Whatever the kernel says about whatever frame, nothing panics.
        #[test]
        fn any_bytes_are_cut_or_refused(
            mut frame in prop::collection::vec(any::<u8>(), 0..200),
            six: bool, tcp: bool, plausible: bool, size: u16, start: Option<u16>,
        ) {
            if plausible && frame.len() > 60 {
                frame[12..14].copy_from_slice(if six { &[0x86, 0xdd] } else { &[8, 0] });
                frame[14] = if six { 0x60 } else { 0x45 + (frame[14] & 3) };
                frame[if six { 20 } else { 23 }] = if tcp { 6 } else { 17 };
                frame[if six { 18 } else { 16 }] = 0;
                frame[20] &= if six { 0xff } else { 0 };
                frame[21] &= if six { 0xff } else { 0 };
            }
            let transport = if tcp { Transport::Tcp } else { Transport::Udp };
            if let Ok(plan) = SuperFrame::parse(&frame, Cut { transport, size, checksum_start: start }) {
                let mut headers = [0; MAXIMUM_HEADERS];
                for index in 0..plan.count() {
                    plan.write_headers(&frame, index, &mut headers);
                }
            }
        }
    }

    const PLAIN: Shape = Shape {
        six: false,
        tcp: true,
        tags: 0,
        options: 3,
        extension: false,
        flags: 0x18,
        partial: true,
        sequence: 1,
        identification: 1,
    };

    #[test]
    fn udp_without_checksum_stays_without() {
        let mut sample = build(&Shape { tcp: false, partial: false, ..PLAIN }, &[1; 100], 40, 0);
        sample.frame[sample.transport + 6..sample.transport + 8].fill(0);
        for segment in segments(&sample) {
            assert_eq!(word(&segment[sample.transport..], 6), 0);
        }
    }

    #[test]
    fn udp_checksum_of_zero_is_sent_as_ones() {
        // The payload is chosen so that everything else adds up to 0xffff.
        let shape = Shape { tcp: false, ..PLAIN };
        let mut sample = build(&shape, &[0, 0], 40, 0);
        let sum = word(&segments(&sample)[0][sample.transport..], 6);
        let payload = sample.payload;
        put(&mut sample.frame, payload, sum);
        assert_eq!(word(&segments(&sample)[0][sample.transport..], 6), 0xffff);
    }

    #[test]
    fn refuses_what_it_cannot_cut() {
        let good = build(&PLAIN, &[7; 500], 100, 0);
        assert!(SuperFrame::parse(&good.frame, good.cut).is_ok());
        let refused = |sample: &Sample| SuperFrame::parse(&sample.frame, sample.cut).is_err();

        let mut tunnel = good.clone();
        tunnel.cut.checksum_start = Some(84);
        assert!(refused(&tunnel), "the checksum starts in an inner header");
        let mut other = good.clone();
        other.cut.transport = Transport::Udp;
        assert!(refused(&other), "TCP announced as UDP");
        let mut nothing = good.clone();
        nothing.cut.size = 0;
        assert!(refused(&nothing), "segments of zero bytes");
        let mut fragment = good.clone();
        fragment.frame[14 + 6] = 0x20;
        assert!(refused(&fragment), "a fragment");
        let mut short = good.clone();
        short.frame.truncate(300);
        assert!(refused(&short), "total length behind the end");
        let mut routed = build(&Shape { six: true, extension: true, ..PLAIN }, &[7; 500], 100, 0);
        assert!(!refused(&routed));
        routed.frame[14 + 6] = 43;
        assert!(refused(&routed), "a routing header");
    }
}
