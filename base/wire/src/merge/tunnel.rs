//! What is around frames that come in the datagrams of a tunnel, and are merged inside it.

use super::{ether_type_before, own_words};
use crate::checksum::{Sum, ipv4_header_checksum20, ipv4_header_sum20};
use crate::segment::{Transport, put, word};
use crate::{EtherType, IpProtocol, ethernet, geneve, ipv4, ipv6, udp, vlan, vxlan};

/// Bytes of a tunnel's headers at most: with those inside they are no more than a segment may have.
const MOST_HEADERS: usize = 120;

/// The headers around a frame in a tunnel: VXLAN or GENEVE, by their ports, over IPv4 or IPv6 without options, in at most one VLAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Around {
    is_ipv6: bool,
    is_checked: bool,
    /// Where the outer network header starts.
    pub network: u8,
    /// Where the UDP header starts.
    pub transport: u8,
    /// Where the frame inside starts.
    pub inside: u8,
    /// Of the last datagram, and by how much that of the next one is more.
    identification: u16,
    identification_step: u16,
    /// The sum of what is each datagram's own in an IPv4 header: as its checksum is right, the same in all of them.
    own_words: u16,
}

impl Around {
    /// Looks at a frame of `length` bytes that begins with `front`. `None` if there is no such tunnel, or anything wrong with its headers.
    #[inline]
    pub fn at(front: &[u8], length: usize) -> Option<Self> {
        let mut network = ethernet::HEADER_LENGTH;
        let mut ether_type = ether_type_before(front, network)?;
        if ether_type == EtherType::VLAN {
            network += vlan::TAG_LENGTH;
            ether_type = ether_type_before(front, network)?;
        }
        let packet = front.get(network..)?;
        let available = length.checked_sub(network)?;
        match ether_type {
            EtherType::IPV4 => {
                let (header, datagram) = packet.split_first_chunk::<{ ipv4::HEADER_LENGTH }>()?;
                let is_fragment = word(header, 6) & 0x3fff != 0;
                let is_udp = header[0] == 0x45 && !is_fragment && IpProtocol(header[9]) == IpProtocol::UDP;
                let around = Self {
                    network: network as u8,
                    transport: (network + header.len()) as u8,
                    identification: word(header, 4),
                    identification_step: ipv4::identification_step(word(header, 4), word(header, 6)),
                    own_words: own_words(header),
                    ..Self::NOTHING
                };
                let is_whole =
                    || usize::from(word(header, 2)) == available && ipv4_header_sum20(header) == 0xffff;
                around.of_datagram(datagram, available - header.len(), is_udp, is_whole)
            }
            EtherType::IPV6 => {
                let (header, datagram) = packet.split_first_chunk::<{ ipv6::HEADER_LENGTH }>()?;
                let is_udp = header[0] >> 4 == 6 && IpProtocol(header[6]) == IpProtocol::UDP;
                let around = Self {
                    is_ipv6: true,
                    network: network as u8,
                    transport: (network + header.len()) as u8,
                    ..Self::NOTHING
                };
                let available = available - header.len();
                let is_whole = || usize::from(word(header, 4)) == available;
                around.of_datagram(datagram, available, is_udp, is_whole)
            }
            _ => None,
        }
    }

    /// Nothing is known yet.
    const NOTHING: Self = Self {
        is_ipv6: false,
        is_checked: false,
        network: 0,
        transport: 0,
        inside: 0,
        identification: 0,
        identification_step: 0,
        own_words: 0,
    };

    /// Goes on with a datagram of `available` bytes that begins with `bytes`, if that `is_udp` at all, and `is_whole`.
    #[inline]
    fn of_datagram(
        self,
        bytes: &[u8],
        available: usize,
        is_udp: bool,
        is_whole: impl FnOnce() -> bool,
    ) -> Option<Self> {
        let (header, behind) = bytes.split_first_chunk::<{ udp::HEADER_LENGTH }>()?;
        let port = word(header, 2);
        // Most frames are in no tunnel.
        if !is_udp || !matches!(port, vxlan::PORT | geneve::PORT) || !is_whole() {
            return None;
        }
        let tunnel = if port == vxlan::PORT {
            vxlan::parse(behind).ok().map(|_| vxlan::HEADER_LENGTH)?
        } else {
            let (header, _) = geneve::parse(behind).ok()?;
            let is_frame = header.protocol() == EtherType::BRIDGED && !header.is_control();
            is_frame.then(|| geneve::HEADER_LENGTH + header.options_length())?
        };
        let inside = usize::from(self.transport) + header.len() + tunnel;
        let is_checked = word(header, udp::CHECKSUM_OFFSET) != 0;
        let is_right = usize::from(word(header, 4)) == available && inside <= MOST_HEADERS;
        is_right.then_some(Self { is_checked, inside: inside as u8, ..self })
    }

    /// Whether the sender of the datagram computed a checksum over all of it.
    pub const fn is_checked(&self) -> bool {
        self.is_checked
    }

    /// Whether that is right. `headers` are all up to a payload, which has the sum `payload` and so many bytes.
    pub fn is_intact(&self, headers: &[u8], payload: Sum, bytes: usize) -> bool {
        let datagram = headers.get(self.transport.into()..).unwrap_or_default();
        self.pseudo_header(headers, datagram.len() + bytes).bytes(datagram).then(payload).is_valid()
    }

    fn pseudo_header(&self, front: &[u8], length: usize) -> Sum {
        let packet = front.get(self.network.into()..).unwrap_or_default();
        Transport::Udp.pseudo_header(self.is_ipv6, packet, length)
    }

    /// Whether around a frame of `length` bytes that begins with `front` there is the next datagram behind those that were merged: it differs
    /// from the first one, which begins with `first`, in nothing but what is each one's own.
    #[inline]
    pub fn is_next(&self, first: &[u8], front: &[u8], length: usize) -> bool {
        const CHECKSUM: usize = udp::CHECKSUM_OFFSET;
        let (network, transport, inside) =
            (usize::from(self.network), usize::from(self.transport), usize::from(self.inside));
        let (Some(ours), Some(theirs)) = (first.get(..inside), front.get(..inside)) else { return false };
        let (Some(packet), Some(datagram)) = (length.checked_sub(network), length.checked_sub(transport))
        else {
            return false;
        };
        let same = |start: usize, end: usize| ours[start..end] == theirs[start..end];
        let is_next = if self.is_ipv6 {
            usize::from(word(theirs, network + 4)) == datagram
                && same(0, network + 4)
                && same(network + 6, transport + 4)
        } else {
            let Some(header) = theirs[network..].first_chunk::<{ ipv4::HEADER_LENGTH }>() else {
                return false;
            };
            usize::from(word(header, 2)) == packet
                && word(header, 4) == self.identification.wrapping_add(self.identification_step)
                // The rest of the header has the same sum in both.
                && own_words(header) == self.own_words
                && same(0, network + 2)
                && same(network + 6, network + 10)
                && same(network + 12, transport + 4)
        };
        is_next
            && usize::from(word(theirs, transport + 4)) == datagram
            && (word(theirs, transport + CHECKSUM) != 0) == self.is_checked
            && same(transport + udp::HEADER_LENGTH, inside)
    }

    /// Takes in the next datagram.
    #[inline]
    pub const fn add(&mut self) {
        self.identification = self.identification.wrapping_add(self.identification_step);
    }

    /// Makes the first datagram's headers those of the whole, a frame of `length` bytes that begins with `front`. The checksum inside is left
    /// to others: it covers all from `start` on, and its `field` holds the pseudo header's sum.
    pub fn finish(&self, front: &mut [u8], length: usize, start: usize, field: usize) {
        let (network, transport) = (usize::from(self.network), usize::from(self.transport));
        let datagram = length - transport;
        if front.len() < field + 2 {
            return;
        }
        if self.is_ipv6 {
            put(front, network + 4, datagram as u16);
        } else if let Some(header) = front[network..].first_chunk_mut::<{ ipv4::HEADER_LENGTH }>() {
            put(header, 2, (ipv4::HEADER_LENGTH + datagram) as u16);
            let checksum = ipv4_header_checksum20(header);
            put(header, 10, checksum);
        }
        put(front, transport + 4, datagram as u16);
        if self.is_checked {
            put(front, transport + udp::CHECKSUM_OFFSET, 0);
            // What the checksum inside covers sums up to the complement of what its field holds, once it is there.
            let sum = self.pseudo_header(front, datagram).bytes(&front[transport..start]);
            let checksum = sum.word(!word(front, field)).checksum();
            put(front, transport + udp::CHECKSUM_OFFSET, udp::sendable(checksum));
        }
    }
}
