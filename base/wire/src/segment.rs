//! Cuts super-frames into frames that fit the link, as a NIC with segmentation offload would.
//!
//! A Linux host hands TCP data (TSO) and batched UDP datagrams (UDP GSO) down as one frame of up to 64 KiB and
//! leaves the cutting to the NIC; a TAP or a veth shows that frame as it is. What belongs in each segment follows
//! `Documentation/networking/segmentation-offloads.rst` of the kernel, and what the kernel's own software
//! segmentation does (`net/ipv4/tcp_offload.c: tcp_gso_segment`, `net/ipv4/udp_offload.c: __udp_gso_segment`,
//! `net/ipv4/af_inet.c: inet_gso_segment`).
//!
//! Only headers are looked at and made here: where the payload lies, in one piece or in many, is the caller's business.

mod header;
mod tunnel;

use std::ops::Range;

use crate::checksum::Sum;
use crate::{EtherType, IpProtocol, TcpFlags, ethernet, tcp, udp};

use header::Network;
use tunnel::Around;
pub use tunnel::Tunnel;

/// Bytes of headers, Ethernet to TCP with all options and a few IPv6 extension headers, that a segment may have.
pub const MAXIMUM_HEADERS: usize = 256;

/// Payload bytes that a segment has at least (`TCP_MIN_SND_MSS` in `include/net/tcp.h`), unless there are few of them:
/// as many as the kernel makes of one UDP super-frame (`UDP_MAX_SEGMENTS` in `include/linux/udp.h`).
const MINIMUM_SIZE: usize = 48;
const FEW_SEGMENTS: usize = 128;

/// What a super-frame carries, according to who made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP over IPv4 or IPv6.
    Tcp,
    /// Several UDP datagrams of one flow, all but the last of the same size.
    Udp,
}

impl Transport {
    /// Where the checksum is in the header.
    pub const fn checksum_offset(self) -> usize {
        match self {
            Self::Tcp => tcp::CHECKSUM_OFFSET,
            Self::Udp => udp::CHECKSUM_OFFSET,
        }
    }

    /// The pseudo header's sum of a packet that begins with `packet`, a whole network header, and has `length` bytes behind it.
    pub(crate) fn pseudo_header(self, is_ipv6: bool, packet: &[u8], length: usize) -> Sum {
        let protocol = match self {
            Self::Tcp => IpProtocol::TCP,
            Self::Udp => IpProtocol::UDP,
        };
        header::pseudo_header(is_ipv6, packet, protocol, length)
    }

    /// What goes into the header's checksum field for a computed `checksum`: in UDP all ones stand for zero, because zero means
    /// that there is none (RFC 768). In TCP all ones would be the wrong one of the two zeros (RFC 1624 section 3): receivers
    /// accept it, and analysers report it.
    pub const fn checksum_to_send(self, checksum: u16) -> u16 {
        match self {
            Self::Udp if checksum == 0 => 0xffff,
            _ => checksum,
        }
    }
}

/// How a super-frame is to be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The protocol whose header each segment gets a copy of.
    pub transport: Transport,
    /// Payload bytes of each segment but the last (TCP: the maximum segment size).
    pub size: u16,
    /// Where the transport header starts, in bytes from the start of the frame, if the maker of the frame said so
    /// and left the checksum to us.
    pub checksum_start: Option<u16>,
    /// The tunnel that it is in, if it is the frame inside that is cut: each segment gets what is around that as well.
    pub tunnel: Option<Tunnel>,
}

/// Why a frame can't be cut. All of them mean the same to the operator: we don't know how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uncuttable;

/// A super-frame that was found to be cuttable: where its parts are.
#[derive(Clone, Copy, Debug)]
pub struct SuperFrame {
    /// The innermost network header.
    network: Network,
    payload: usize,
    end: usize,
    size: usize,
    kind: Transport,
    /// A UDP datagram over IPv4 whose sender computed no checksum (RFC 768: field zero); its segments get none.
    without_checksum: bool,
    /// What is the same in all segments of what their transport checksums are made of: the transport header and its pseudo header
    /// without what [`write_headers`](Self::write_headers) changes.
    transport_sum: Sum,
    /// What is around the frame that is cut.
    around: Option<Around>,
}

impl SuperFrame {
    /// Looks at the headers of a frame of `length` bytes, outermost first. `front` is its beginning: all of it, or at least
    /// [`MAXIMUM_HEADERS`] bytes.
    ///
    /// # Errors
    /// [`Uncuttable`]
    pub fn parse(front: &[u8], length: usize, cut: Cut) -> Result<Self, Uncuttable> {
        let (start, is_ipv6) = match cut.tunnel {
            None => skip_tags(front).map(|(start, is_ipv6)| (start, Some(is_ipv6)))?,
            Some(tunnel) => (tunnel.inside, None),
        };
        let packet = front.get(start..).ok_or(Uncuttable)?;
        let length = length.checked_sub(start).filter(|&length| length >= packet.len()).ok_or(Uncuttable)?;
        let (network, protocol, length) = Network::parse(packet, start, length)?;
        if is_ipv6.is_some_and(|is_ipv6| is_ipv6 != network.is_ipv6) {
            return Err(Uncuttable);
        }
        let (transport, end) = (network.end, start + length);
        // A tunnel's super-frame says where the *inner* transport header is. Cutting it at the outer one would
        // make garbage.
        if cut.checksum_start.is_some_and(|start| usize::from(start) != transport) {
            return Err(Uncuttable);
        }
        let segment = front.get(transport..end.min(front.len())).ok_or(Uncuttable)?;
        let (expected, header) = match cut.transport {
            Transport::Tcp => {
                let offset = segment.get(12).map_or(0, |byte| usize::from(byte >> 4) * 4);
                (IpProtocol::TCP, offset.max(tcp::HEADER_LENGTH))
            }
            Transport::Udp => (IpProtocol::UDP, udp::HEADER_LENGTH),
        };
        let payload = transport + header;
        if protocol != expected || header > segment.len() || payload > MAXIMUM_HEADERS || cut.size == 0 {
            return Err(Uncuttable);
        }
        let field = cut.transport.checksum_offset();
        let without_checksum = cut.transport == Transport::Udp
            && !network.is_ipv6
            && cut.checksum_start.is_none()
            && segment[field..field + 2] == [0, 0];
        let size = usize::from(cut.size);
        // Else a peer on this host, who chooses the size, could turn each frame into tens of thousands.
        if size < MINIMUM_SIZE && (end - payload).div_ceil(size) > FEW_SEGMENTS {
            return Err(Uncuttable);
        }
        let around = match cut.tunnel {
            None => None,
            Some(tunnel) => Some(Around::parse(front, tunnel)?),
        };
        let kind = cut.transport;
        let transport_sum = Sum::new();
        let mut whole = Self { network, payload, end, size, kind, without_checksum, transport_sum, around };
        whole.sum_up(front);
        Ok(whole)
    }

    /// Sums up what is the same in all segments, of a frame that begins with `front`.
    fn sum_up(&mut self, front: &[u8]) {
        let mut headers = [0; MAXIMUM_HEADERS];
        headers[..self.payload].copy_from_slice(&front[..self.payload]);
        self.transport_sum = self.pseudo_header(&headers[self.network.start..self.payload], 0);
        let transport = &mut headers[self.network.end..self.payload];
        let changed: &[usize] = match self.kind {
            Transport::Tcp => &[4, 6, 12, tcp::CHECKSUM_OFFSET],
            Transport::Udp => &[4, udp::CHECKSUM_OFFSET],
        };
        for field in changed {
            put(transport, *field, 0);
        }
        self.transport_sum = self.transport_sum.bytes(transport);
    }

    /// Where the network header starts: in a tunnel, the one inside.
    pub const fn network(&self) -> usize {
        self.network.start
    }

    /// Where the transport header starts.
    pub const fn transport(&self) -> usize {
        self.network.end
    }

    /// Bytes of all headers, which each segment gets a copy of.
    pub const fn headers(&self) -> usize {
        self.payload
    }

    /// Where the packet ends, behind which there may be padding.
    pub const fn end(&self) -> usize {
        self.end
    }

    /// Whether it is IPv6, and not IPv4.
    pub const fn is_ipv6(&self) -> bool {
        self.network.is_ipv6
    }

    /// What a sender that leaves the checksum to others puts into its field: the sum of the pseudo header, with the length of
    /// the whole. `None` if there is to be no checksum.
    pub fn pseudo_header_sum(&self, front: &[u8]) -> Option<u16> {
        let length = self.end - self.network.end;
        (!self.without_checksum).then(|| {
            !self.pseudo_header(front.get(self.network.start..).unwrap_or_default(), length).checksum()
        })
    }

    /// How many segments there are: at least one.
    pub fn count(&self) -> usize {
        (self.end - self.payload).div_ceil(self.size).max(1)
    }

    /// Where the payload of segment `index` is in the super-frame.
    pub fn payload(&self, index: usize) -> Range<usize> {
        let start = (self.payload + index * self.size).min(self.end);
        start..(start + self.size).min(self.end)
    }

    /// Writes the headers of segment `index`, checksums included, to the front of `headers`, which has space for [them](Self::headers),
    /// and returns as many bytes as they are. `front` is what was parsed, `payload_sum` the sum over the segment's
    /// [payload](Self::payload).
    pub fn write_headers<'a>(
        &self,
        front: &[u8],
        index: usize,
        payload_sum: Sum,
        headers: &'a mut [u8],
    ) -> &'a [u8] {
        let headers = &mut headers[..self.payload];
        headers.copy_from_slice(&front[..self.payload]);
        let payload = self.payload(index);
        // Behind both there is space for what is written: it was parsed.
        let (front, transport) = headers.split_at_mut(self.network.end);
        let length = transport.len() + payload.len();
        self.network.write(front, index, length);
        let is_last = payload.end == self.end;
        let sum = self.finish_transport(transport, index, is_last, length);
        if !self.without_checksum {
            // The pseudo header has the length, too.
            let sum = self.transport_sum.word(length as u16).then(sum).then(payload_sum).checksum();
            put(transport, self.kind.checksum_offset(), self.kind.checksum_to_send(sum));
        }
        if let Some(around) = &self.around {
            around.write(headers, index, payload.len(), payload_sum);
        }
        headers
    }

    /// Completes what segments have a value of their own for; returns its sum.
    #[inline]
    fn finish_transport(&self, header: &mut [u8], index: usize, is_last: bool, length: usize) -> Sum {
        if self.kind == Transport::Udp {
            put(header, 4, length as u16);
            return Sum::new().word(length as u16);
        }
        let Some(header) = header.first_chunk_mut::<{ tcp::HEADER_LENGTH }>() else { return Sum::new() };
        let sequence = u32::from_be_bytes(array::<4>(header, 4)).wrapping_add((index * self.size) as u32);
        header[4..8].copy_from_slice(&sequence.to_be_bytes());
        if !is_last {
            header[13] &= !(TcpFlags::FIN | TcpFlags::PSH).0;
        }
        if index > 0 {
            header[13] &= !TcpFlags::CWR.0;
        }
        Sum::new().word((sequence >> 16) as u16).word(sequence as u16).word(word(header, 12))
    }

    /// The pseudo header's sum, of a packet that begins with `packet`.
    fn pseudo_header(&self, packet: &[u8], transport_length: usize) -> Sum {
        self.kind.pseudo_header(self.is_ipv6(), packet, transport_length)
    }
}

/// Where the network header starts, behind any VLAN tags, and whether it is IPv6.
fn skip_tags(frame: &[u8]) -> Result<(usize, bool), Uncuttable> {
    let mut offset = ethernet::HEADER_LENGTH;
    loop {
        let ether_type = frame.get(offset - 2..offset).ok_or(Uncuttable)?;
        match EtherType(word(ether_type, 0)) {
            EtherType::IPV4 => return Ok((offset, false)),
            EtherType::IPV6 => return Ok((offset, true)),
            tag if tag.is_vlan() => offset += 4,
            _ => return Err(Uncuttable),
        }
    }
}

/// The 16-bit field at `offset`, which the caller has checked to be there.
#[inline(always)]
pub(crate) fn word(bytes: &[u8], offset: usize) -> u16 {
    u16::from_be_bytes([bytes[offset], bytes[offset + 1]])
}

/// Writes the 16-bit field at `offset`, which the caller has checked to be there.
pub(crate) fn put(bytes: &mut [u8], offset: usize, value: u16) {
    bytes[offset..offset + 2].copy_from_slice(&value.to_be_bytes());
}

/// The `N` bytes at `offset`, which the caller has checked to be there.
pub(crate) fn array<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[offset..offset + N]);
    array
}

#[cfg(test)]
mod tests;
