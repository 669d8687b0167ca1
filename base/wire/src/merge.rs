//! Puts the frames of a flow together again that were cut for a link: what network cards do on receiving (LRO), and Linux in software (GRO).
//!
//! The reverse of [`segment`](crate::segment): cut again, the merged frame gives the same frames. So only those are merged that follow
//! each other without a gap and differ in nothing that cutting wouldn't make different (`net/ipv4/tcp_offload.c: tcp_gro_receive`,
//! `net/ipv4/udp_offload.c: udp_gro_receive_segment` do the same, but for fixed identifications other than 0).
//!
//! Of frames in the datagrams of a tunnel, [`Around`] compares what is around them.
//!
//! Only headers are looked at and made here, but for [checksums](Part::is_intact): where the payload lies is the caller's business.

mod tunnel;

use crate::checksum::{Sum, fold_half, ipv4_header_checksum20, ipv4_header_sum20};
use crate::segment::{Transport, array, put, word};
use crate::{EtherType, IpProtocol, TcpFlags, ethernet, ipv4, ipv6, tcp, udp, vlan};

pub use tunnel::Around;

/// What merging found in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// It may be merged with others of its flow.
    Part(Part),
    /// It can't be merged, and must not be overtaken by others of its flow, which has this hash.
    Alone(u32),
    /// It can't be merged, and is of no flow that others could be merged of.
    Other,
    /// It may be of any flow.
    Unclear,
}

/// A frame that may be merged with others: TCP with data, or UDP, over IPv4 or IPv6 without options, in at most one VLAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// A hash of addresses and ports.
    pub flow: u32,
    /// The protocol above IP.
    pub kind: Transport,
    /// It is IPv6, and not IPv4.
    pub is_ipv6: bool,
    /// Where the network header starts.
    pub network: u8,
    /// Where the transport header starts.
    pub transport: u8,
    /// Bytes of all headers.
    pub headers: u8,
    /// Bytes of payload.
    pub length: u16,
    flags: u8,
    identification: u16,
    identification_step: u16,
    sequence: u32,
    /// The sum of what is each frame's own in an IPv4 header: as its checksum is right, the same in all frames of a packet.
    own_words: u16,
}

/// Bytes of an IP packet that frames are merged to at most: a tunnel's headers around it still fit a length of 16 bits.
const MOST_BYTES: u32 = u16::MAX as u32 - 128;

/// TCP flags that frames of one packet may have; what a cut packet has in its last frame only, or in its first one.
const ALLOWED: u8 = TcpFlags::ACK.0 | TcpFlags::ECE.0 | LAST | FIRST;
const LAST: u8 = TcpFlags::FIN.0 | TcpFlags::PSH.0;
const FIRST: u8 = TcpFlags::CWR.0;

impl Look {
    /// Looks at a frame of `length` bytes that begins with `front`.
    #[inline]
    pub fn at(front: &[u8], length: usize) -> Self {
        let length = length.max(front.len());
        let mut network = ethernet::HEADER_LENGTH;
        let mut ether_type = ether_type_before(front, network);
        if ether_type == Some(EtherType::VLAN) {
            network += vlan::TAG_LENGTH;
            ether_type = ether_type_before(front, network);
        }
        let packet = front.get(network..).unwrap_or_default();
        let flow = flow_at(front).unwrap_or(0);
        match ether_type {
            Some(EtherType::IPV4) => Self::at_ipv4(packet, length - network, network as u8, flow),
            Some(EtherType::IPV6) => Self::at_ipv6(packet, length - network, network as u8, flow),
            Some(other) if !other.is_vlan() => Self::Other,
            _ => Self::Unclear,
        }
    }

    #[inline]
    fn at_ipv4(packet: &[u8], available: usize, network: u8, flow: u32) -> Self {
        let Some((header, transport)) = packet.split_first_chunk::<{ ipv4::HEADER_LENGTH }>() else {
            return Self::Unclear;
        };
        if header[0] != 0x45 || word(header, 6) & 0x3fff != 0 {
            return Self::Unclear;
        }
        let flow = Part {
            network,
            transport: network + ipv4::HEADER_LENGTH as u8,
            identification: word(header, 4),
            identification_step: ipv4::identification_step(word(header, 4), word(header, 6)),
            own_words: own_words(header),
            ..Part::of_flow(flow)
        };
        let is_whole = usize::from(word(header, 2)) == available && ipv4_header_sum20(header) == 0xffff;
        Self::at_transport(transport, IpProtocol(header[9]), available - header.len(), flow, is_whole)
    }

    #[inline]
    fn at_ipv6(packet: &[u8], available: usize, network: u8, flow: u32) -> Self {
        let Some((header, transport)) = packet.split_first_chunk::<{ ipv6::HEADER_LENGTH }>() else {
            return Self::Unclear;
        };
        if header[0] >> 4 != 6 {
            return Self::Unclear;
        }
        let flow = Part {
            network,
            transport: network + ipv6::HEADER_LENGTH as u8,
            is_ipv6: true,
            ..Part::of_flow(flow)
        };
        let available = available - header.len();
        let is_whole = usize::from(word(header, 4)) == available;
        Self::at_transport(transport, IpProtocol(header[6]), available, flow, is_whole)
    }

    /// Looks at what is behind the network header: `available` bytes, which are all of the packet if that `is_whole`.
    #[inline]
    fn at_transport(
        segment: &[u8],
        protocol: IpProtocol,
        available: usize,
        flow: Part,
        is_whole: bool,
    ) -> Self {
        match protocol {
            IpProtocol::TCP => {
                let Some(header) = segment.first_chunk::<{ tcp::HEADER_LENGTH }>() else {
                    return Self::Unclear;
                };
                let (bytes, flags) = (usize::from(header[12] >> 4) * 4, header[13]);
                let is_part = is_whole
                    && bytes >= header.len()
                    && bytes < segment.len()
                    && flags & !ALLOWED == 0
                    && flags & TcpFlags::ACK.0 != 0;
                if !is_part {
                    return Self::Alone(flow.flow);
                }
                Self::Part(Part {
                    kind: Transport::Tcp,
                    headers: flow.transport + bytes as u8,
                    length: (available - bytes) as u16,
                    flags,
                    sequence: u32::from_be_bytes([header[4], header[5], header[6], header[7]]),
                    ..flow
                })
            }
            IpProtocol::UDP => {
                let Some(header) = segment.first_chunk::<{ udp::HEADER_LENGTH }>() else {
                    return Self::Unclear;
                };
                // Without a checksum (RFC 768: zero) nobody could say whether it is what was sent.
                let is_part = is_whole
                    && usize::from(word(header, 4)) == available
                    && header.len() < segment.len()
                    && word(header, udp::CHECKSUM_OFFSET) != 0;
                if !is_part {
                    return Self::Alone(flow.flow);
                }
                Self::Part(Part {
                    kind: Transport::Udp,
                    headers: flow.transport + udp::HEADER_LENGTH as u8,
                    length: (available - header.len()) as u16,
                    ..flow
                })
            }
            // Extension headers of IPv6 among them, behind which there may be a flow.
            _ if flow.is_ipv6 => Self::Unclear,
            _ => Self::Other,
        }
    }
}

impl Part {
    /// Nothing is known yet but the flow.
    #[inline(always)]
    const fn of_flow(flow: u32) -> Self {
        Self {
            flow,
            kind: Transport::Udp,
            is_ipv6: false,
            network: 0,
            transport: 0,
            headers: 0,
            length: 0,
            flags: 0,
            identification: 0,
            identification_step: 0,
            sequence: 0,
            own_words: 0,
        }
    }

    /// The same frame in a tunnel, whose flow has this hash.
    #[must_use]
    pub const fn of_tunnel(self, flow: u32) -> Self {
        Self { flow, ..self }
    }

    /// Bytes of payload that an IP packet with these headers has at most.
    const fn most_payload(&self) -> u32 {
        MOST_BYTES - (self.headers - self.network) as u32
    }

    /// The bits of headers that are the same in all frames of the packet, or in those that are as long as this one.
    #[inline(always)]
    fn same_bits(&self, are_as_long: bool) -> &'static Bits {
        let is_tagged = usize::from(self.network) > ethernet::HEADER_LENGTH;
        &SAME[usize::from(are_as_long)][number_of(self.is_ipv6, self.kind, is_tagged)]
    }

    /// Whether the transport checksum is right; `payload` is the sum over what is behind the headers, which end `front`.
    pub fn is_intact(&self, front: &[u8], payload: Sum) -> bool {
        let headers = front.get(self.transport.into()..self.headers.into()).unwrap_or_default();
        self.pseudo_header(front, self.length.into()).bytes(headers).then(payload).is_valid()
    }

    /// The pseudo header's sum of a packet with so many bytes of payload.
    fn pseudo_header(&self, front: &[u8], payload: usize) -> Sum {
        let length = usize::from(self.headers - self.transport) + payload;
        let packet = front.get(self.network.into()..).unwrap_or_default();
        self.kind.pseudo_header(self.is_ipv6, packet, length)
    }
}

/// A packet that frames are merged into.
#[derive(Clone, Copy, Debug)]
pub struct Merged {
    first: Part,
    /// What the next frame has.
    sequence: u32,
    identification: u16,
    /// Bytes of payload that there is still room for in an IP packet.
    left: u32,
    /// Bytes of payload that the next frame has at most: as many as the first one, and none if nothing can follow.
    room: u16,
    /// Flags of TCP that the last frame had.
    flags: u8,
    /// Bits of headers that are the same in all frames as long as the first one.
    same: &'static Bits,
}

/// The frame behind those that were merged.
#[derive(Clone, Copy, Debug)]
pub struct Next {
    /// Bytes of payload.
    length: u16,
    flags: u8,
}

impl Merged {
    /// Begins with a frame.
    #[inline]
    pub fn new(first: Part) -> Self {
        let (sequence, identification, left) = (first.sequence, first.identification, first.most_payload());
        let same = first.same_bits(true);
        let mut merged = Self { first, sequence, identification, left, room: 0, flags: 0, same };
        merged.add(Next { length: first.length, flags: first.flags });
        merged
    }

    /// The first frame.
    pub const fn first(&self) -> &Part {
        &self.first
    }

    /// What the first frame was found to be, with the payload of `next`: that of all that counts.
    pub const fn part(&self, next: &Next) -> Part {
        Part { length: next.length, ..self.first }
    }

    /// Whether nothing can follow: the last frame is shorter, a bound of data (TCP's PSH), or the end of a connection, or there is no room.
    pub const fn is_complete(&self) -> bool {
        self.room == 0
    }

    /// The frame of `length` bytes that begins with `front`, if it is the one behind those that were merged. The first of them begins
    /// with `first`.
    #[inline(always)]
    pub fn next(&self, first: &[u8], front: &[u8], length: usize) -> Option<Next> {
        let own = &self.first;
        let headers = usize::from(own.headers);
        // There is payload in the first buffer, too.
        if front.len() <= headers {
            return None;
        }
        let (ours, theirs) = (first.get(..headers)?, &front[..headers]);
        let payload = length.checked_sub(headers)?;
        let is_as_long = payload == usize::from(own.length);
        let same = if is_as_long { self.same } else { own.same_bits(false) };
        if payload > usize::from(self.room) || !same_headers(same, ours, theirs) {
            return None;
        }
        // From here on all that isn't the frame's own is as in the first one: what is where, and that it may be merged.
        let packet = theirs.get(usize::from(own.network)..)?;
        let segment = theirs.get(usize::from(own.transport)..)?;
        let behind = length - usize::from(own.transport);
        let is_next = if own.is_ipv6 {
            let header = packet.first_chunk::<{ ipv6::HEADER_LENGTH }>()?;
            is_as_long || usize::from(word(header, 4)) == behind
        } else {
            let header = packet.first_chunk::<{ ipv4::HEADER_LENGTH }>()?;
            // The rest of the header has the same sum in both.
            (is_as_long || usize::from(word(header, 2)) == header.len() + behind)
                && word(header, 4) == self.identification
                && own_words(header) == own.own_words
        };
        let (is_next, flags) = match own.kind {
            Transport::Tcp => {
                let header = segment.first_chunk::<{ tcp::HEADER_LENGTH }>()?;
                let sequence = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
                (is_next && sequence == self.sequence && header[13] & FIRST == 0, header[13])
            }
            Transport::Udp => {
                let header = segment.first_chunk::<{ udp::HEADER_LENGTH }>()?;
                let has_checksum = word(header, udp::CHECKSUM_OFFSET) != 0;
                let is_whole = is_as_long || usize::from(word(header, 4)) == behind;
                (is_next && has_checksum && is_whole, 0)
            }
        };
        is_next.then_some(Next { length: payload as u16, flags })
    }

    /// Takes in the frame behind.
    #[inline]
    pub const fn add(&mut self, next: Next) {
        self.sequence = self.sequence.wrapping_add(next.length as u32);
        self.identification = self.identification.wrapping_add(self.first.identification_step);
        self.left = self.left.saturating_sub(next.length as u32);
        self.flags = next.flags;
        let (own, is_last) = (self.first.length, next.flags & LAST != 0 || next.length < self.first.length);
        self.room = if is_last {
            0
        } else if self.left < own as u32 {
            self.left as u16
        } else {
            own
        };
    }

    /// Whether the first frame says that the sender has answered to congestion (TCP's CWR, RFC 3168), which the others must not.
    pub const fn is_congestion_answered(&self) -> bool {
        self.first.flags & FIRST != 0
    }

    /// Makes the first frame's headers, which `front` begins with, those of the whole. The transport checksum is left to others: the
    /// field holds the pseudo header's sum.
    pub fn finish(&self, front: &mut [u8]) {
        let Part { network, transport, headers, .. } = self.first;
        let (network, transport, headers) =
            (usize::from(network), usize::from(transport), usize::from(headers));
        if front.len() < headers {
            return;
        }
        let payload = (self.first.most_payload() - self.left) as usize;
        let pseudo = self.first.pseudo_header(front, payload).fold();
        let behind = headers - transport + payload;
        if self.first.is_ipv6 {
            put(front, network + 4, behind as u16);
        } else if let Some(header) =
            front.get_mut(network..).and_then(|packet| packet.first_chunk_mut::<{ ipv4::HEADER_LENGTH }>())
        {
            put(header, 2, (ipv4::HEADER_LENGTH + behind) as u16);
            let checksum = ipv4_header_checksum20(header);
            put(header, 10, checksum);
        }
        match self.first.kind {
            Transport::Tcp => front[transport + 13] |= self.flags & LAST,
            Transport::Udp => put(front, transport + 4, behind as u16),
        }
        put(front, transport + self.first.kind.checksum_offset(), pseudo);
    }
}

/// The ones' complement sum of length, identification and checksum.
#[inline(always)]
fn own_words(header: &[u8; ipv4::HEADER_LENGTH]) -> u16 {
    // In the machine's order, which changes nothing but the order of the sum's own bytes (RFC 1071 section 2 (B)).
    let word = |offset| u32::from(u16::from_ne_bytes(array(header, offset)));
    fold_half(word(2) + word(4) + word(10))
}

/// A bit for each of the headers, as many as [`Part::headers`] can say: no length has to be checked against this one.
type Bits = [u8; 1 << u8::BITS];

/// Kinds of frames that can be merged: [`number_of`] has their numbers.
const KINDS: usize = 8;

/// The bits that are the same in all frames of a packet, by number of their kind: all but lengths, checksums, the identification, the
/// sequence number, and flags that only the first or the last has. The second half is for frames of one length, whose lengths are the
/// same as well.
static SAME: [[Bits; KINDS]; 2] = [same_bits(false), same_bits(true)];

const fn same_bits(is_as_long: bool) -> [Bits; KINDS] {
    let mut all = [[0xff; 1 << u8::BITS]; KINDS];
    let mut number = 0;
    while number < all.len() {
        let (is_tagged, is_tcp, is_ipv6) = (number & 1 != 0, number & 2 != 0, number & 4 != 0);
        let network = ethernet::HEADER_LENGTH + if is_tagged { vlan::TAG_LENGTH } else { 0 };
        let transport = network + if is_ipv6 { ipv6::HEADER_LENGTH } else { ipv4::HEADER_LENGTH };
        let own = &mut all[number];
        if !is_as_long {
            clear(own, network + if is_ipv6 { 4 } else { 2 }, 2);
        }
        if !is_ipv6 {
            clear(own, network + 4, 2);
            clear(own, network + 10, 2);
        }
        if is_tcp {
            clear(own, transport + 4, 4);
            own[transport + 13] = !(LAST | FIRST);
            clear(own, transport + tcp::CHECKSUM_OFFSET, 2);
        } else {
            if !is_as_long {
                clear(own, transport + 4, 2);
            }
            clear(own, transport + udp::CHECKSUM_OFFSET, 2);
        }
        number += 1;
    }
    all
}

const fn clear(bits: &mut Bits, from: usize, count: usize) {
    let mut at = from;
    while at < from + count {
        bits[at] = 0;
        at += 1;
    }
}

/// The number of a kind of frames among [`SAME`].
const fn number_of(is_ipv6: bool, kind: Transport, is_tagged: bool) -> usize {
    (is_ipv6 as usize) << 2 | (matches!(kind, Transport::Tcp) as usize) << 1 | is_tagged as usize
}

/// Whether headers of one length are the same in bits of `mask`.
#[inline(always)]
fn same_headers(mask: &Bits, ours: &[u8], theirs: &[u8]) -> bool {
    let parts =
        ours.as_chunks::<PART>().0.iter().zip(theirs.as_chunks::<PART>().0).zip(mask.as_chunks::<PART>().0);
    let most = parts.fold([0; 4], |sum, ((ours, theirs), mask)| differences(sum, ours, theirs, mask));
    let last = ours.len().checked_sub(PART).and_then(|start| mask.get(start..)?.first_chunk::<PART>());
    let (Some(ours), Some(theirs), Some(mask)) =
        (ours.last_chunk::<PART>(), theirs.last_chunk::<PART>(), last)
    else {
        return false;
    };
    // The last ones, some of which were compared already.
    differences(most, ours, theirs, mask).iter().fold(0, |sum, bits| sum | bits) == 0
}

/// Bytes of headers that are compared at a time: there are at least so many.
const PART: usize = 32;

/// The bits of `mask` that differ, laid over those that did before.
#[inline(always)]
fn differences(before: [u64; 4], ours: &[u8; PART], theirs: &[u8; PART], mask: &[u8; PART]) -> [u64; 4] {
    let word = |bytes: &[u8; PART], at: usize| u64::from_ne_bytes(array(bytes, at * 8));
    let difference = |at| before[at] | (word(ours, at) ^ word(theirs, at)) & word(mask, at);
    // Not by `map`, which the compiler calls where the code around has grown.
    [difference(0), difference(1), difference(2), difference(3)]
}

/// A hash of the addresses and ports of a frame that begins with `front`: of IPv4 without options, or IPv6 without extension headers,
/// in at most one VLAN. That of others means nothing; `None` if it isn't IP, or too short.
#[inline]
pub fn flow_at(front: &[u8]) -> Option<u32> {
    let (mut ether_type, mut packet) = (front.get(12..14)?, front.get(14..)?);
    if ether_type == [0x81, 0] {
        (ether_type, packet) = (front.get(16..18)?, packet.get(vlan::TAG_LENGTH..)?);
    }
    let (addresses, ports) = match *ether_type {
        [0x08, 0x00] => {
            let header = packet.first_chunk::<{ ipv4::HEADER_LENGTH + 4 }>()?;
            (u64::from_le_bytes(array(header, 12)), u32::from_le_bytes(array(header, 20)))
        }
        [0x86, 0xdd] => {
            let header = packet.first_chunk::<{ ipv6::HEADER_LENGTH + 4 }>()?;
            let words = header[8..40].as_chunks::<8>().0.iter();
            let addresses = words.fold(0_u64, |sum, word| sum.rotate_left(13) ^ u64::from_le_bytes(*word));
            (addresses, u32::from_le_bytes(array(header, 40)))
        }
        _ => return None,
    };
    Some(mix(addresses.wrapping_mul(0xff51_afd7_ed55_8ccd) ^ u64::from(ports)))
}

/// Spreads what differs over all bits.
#[inline(always)]
const fn mix(bits: u64) -> u32 {
    (bits.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

/// The type of what begins at `offset`.
#[inline(always)]
fn ether_type_before(front: &[u8], offset: usize) -> Option<EtherType> {
    front.get(offset - 2..offset).map(|bytes| EtherType(word(bytes, 0)))
}
