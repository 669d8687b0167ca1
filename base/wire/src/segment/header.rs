//! The network header of a packet that is cut: what each segment's has of its own.

use super::{Uncuttable, array, put, word};
use crate::checksum::{Sum, pseudo_ipv4, pseudo_ipv6};
use crate::{IpProtocol, ipv4, ipv6};

/// A network header, with its extensions, that each segment gets a copy of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Network {
    /// Where it starts, and where what it carries does.
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) is_ipv6: bool,
    /// IPv4: the identification of the first segment, and by how much that of each other one is more.
    identification: u16,
    step: u16,
    /// What is the same in all segments: the IPv4 header without length, identification and checksum.
    sum: Sum,
}

/// A network header, the protocol that it carries, and the packet's length in bytes.
type Parsed = (Network, IpProtocol, usize);

impl Network {
    /// Looks at a packet that is `start` bytes behind the frame's beginning and may have `available` bytes.
    pub(super) fn parse(packet: &[u8], start: usize, available: usize) -> Result<Parsed, Uncuttable> {
        match packet.first().map(|byte| byte >> 4) {
            Some(4) => Self::parse_ipv4(packet, start, available),
            Some(6) => Self::parse_ipv6(packet, start, available),
            _ => Err(Uncuttable),
        }
    }

    fn parse_ipv4(packet: &[u8], start: usize, available: usize) -> Result<Parsed, Uncuttable> {
        let fixed = packet.first_chunk::<{ ipv4::HEADER_LENGTH }>().ok_or(Uncuttable)?;
        let header = usize::from(fixed[0] & 0x0f) * 4;
        let total = usize::from(word(fixed, 2));
        // A total length of zero is how packets of more than 64 KiB travel inside one host (BIG TCP).
        let length = if total == 0 { available } else { total };
        let is_fragment = word(fixed, 6) & 0x3fff != 0;
        if header < ipv4::HEADER_LENGTH || length > available || header > length || is_fragment {
            return Err(Uncuttable);
        }
        let sum = Sum::new().bytes(packet.get(..header).ok_or(Uncuttable)?);
        // Without the words that are each segment's own: adding the complement takes away.
        let sum = sum.word(!word(fixed, 2)).word(!word(fixed, 4)).word(!word(fixed, 10));
        let network = Self {
            start,
            end: start + header,
            is_ipv6: false,
            identification: word(fixed, 4),
            step: ipv4::identification_step(word(fixed, 4), word(fixed, 6)),
            sum,
        };
        Ok((network, IpProtocol(fixed[9]), length))
    }

    fn parse_ipv6(packet: &[u8], start: usize, available: usize) -> Result<Parsed, Uncuttable> {
        let fixed = packet.first_chunk::<{ ipv6::HEADER_LENGTH }>().ok_or(Uncuttable)?;
        let payload = usize::from(word(fixed, 4));
        let is_jumbo = payload == 0;
        let length = if is_jumbo { available } else { ipv6::HEADER_LENGTH + payload };
        if length > available {
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
            if is_jumbo {
                return Err(Uncuttable);
            }
        }
        if header > length {
            return Err(Uncuttable);
        }
        let network =
            Self { start, end: start + header, is_ipv6: true, identification: 0, step: 0, sum: Sum::new() };
        Ok((network, protocol, length))
    }

    /// Completes the header of segment `index`, among headers that go on at least until it ends. It carries `length` bytes.
    #[inline]
    pub(super) fn write(&self, headers: &mut [u8], index: usize, length: usize) {
        let packet = &mut headers[self.start..self.end];
        let length = packet.len() + length;
        if self.is_ipv6 {
            return put(packet, 4, (length - ipv6::HEADER_LENGTH) as u16);
        }
        let Some(header) = packet.first_chunk_mut::<{ ipv4::HEADER_LENGTH }>() else { return };
        let length = length as u16;
        let identification = self.identification.wrapping_add((index as u16).wrapping_mul(self.step));
        put(header, 2, length);
        put(header, 4, identification);
        put(header, 10, self.sum.word(length).word(identification).checksum());
    }

    /// The pseudo header's sum of what it carries, by this protocol, in so many bytes; of headers that go on at least until it ends.
    pub(super) fn pseudo_header(&self, headers: &[u8], protocol: IpProtocol, length: usize) -> Sum {
        pseudo_header(self.is_ipv6, &headers[self.start..self.end], protocol, length)
    }
}

/// The pseudo header's sum of a packet that begins with `packet`, a whole network header, and has `length` bytes of this protocol behind it.
pub(super) fn pseudo_header(is_ipv6: bool, packet: &[u8], protocol: IpProtocol, length: usize) -> Sum {
    if is_ipv6 {
        let (source, destination) = (array::<16>(packet, 8), array::<16>(packet, 24));
        pseudo_ipv6(source.into(), destination.into(), protocol, length as u32)
    } else {
        let (source, destination) = (array::<4>(packet, 12), array::<4>(packet, 16));
        pseudo_ipv4(source.into(), destination.into(), protocol, length as u16)
    }
}
