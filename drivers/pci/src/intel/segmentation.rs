//! Long packets, which the card segments (7.3; 7.2.4), or software where the card can't.

use super::descriptor::{Context, Tso};
use super::drops::TransmitDrop;
use super::memory::BUFFER_BYTES;
use super::queue::Queue;
use std::net::Ipv4Addr;
use std::ops::Range;
use warmlane_mem::{Checksum, Packet, Segmentation, SegmentationKind};
use warmlane_port::software_offload::pieces;
use warmlane_wire::checksum::{Sum, pseudo_ipv4};
use warmlane_wire::segment::{self, MAXIMUM_HEADERS, SuperFrame, Transport};
use warmlane_wire::{IpProtocol, TcpFlags};

/// Payload bytes of a segment at least, as Linux's TCP sends them (`TCP_MIN_SND_MSS` in `include/net/tcp.h`): nobody makes less in earnest, and the card is not
/// tried with it.
const LEAST: u16 = 48;

/// What the length of the headers has to fit in.
const MOST_HEADERS: usize = u8::MAX as usize;

// The card wants all headers in the first buffer, and something to be cut behind them.
const _: () = assert!(MOST_HEADERS < BUFFER_BYTES as usize);

/// Where fields are in their headers.
const IPV4_LENGTH: usize = 2;
const IPV4_NUMBER: usize = 4;
const IPV4_CHECKSUM: usize = 10;
const IPV4_ADDRESSES: usize = 12;
const TCP_SEQUENCE: usize = 4;
const TCP_FLAGS: usize = 13;
const TCP_CHECKSUM: usize = 16;

/// One frame, or one to be segmented: its headers, and where the rest is in the packet.
pub(crate) struct Part {
    headers: [u8; MAXIMUM_HEADERS],
    length: usize,
    pub(crate) payload: Range<usize>,
}

impl Part {
    pub(crate) fn headers(&self) -> &[u8] {
        &self.headers[..self.length]
    }

    /// Bytes of all of it.
    pub(crate) fn bytes(&self) -> usize {
        self.length + self.payload.len()
    }

    /// Buffers that it takes.
    fn buffers(&self) -> usize {
        self.bytes().div_ceil(BUFFER_BYTES.into())
    }
}

/// A packet that is to be segmented: its beginning, and where its parts are.
struct Parsed {
    front: [u8; MAXIMUM_HEADERS],
    plan: SuperFrame,
}

impl Parsed {
    /// Looks at a packet whose frames may have `limit` bytes.
    fn new(packet: &Packet, wanted: Segmentation, limit: usize) -> Result<Self, TransmitDrop> {
        let mut front = [0; MAXIMUM_HEADERS];
        let count = packet.copy_to(&mut front);
        let checksum_start = match packet.checksum() {
            Checksum::Partial { start, .. } => Some(start),
            _ => None,
        };
        let transport = match wanted.kind {
            SegmentationKind::Tcp4 | SegmentationKind::Tcp6 => Transport::Tcp,
            SegmentationKind::Udp => Transport::Udp,
        };
        let cut = segment::Cut { transport, size: wanted.size, checksum_start, tunnel: None };
        let plan = SuperFrame::parse(&front[..count], packet.packet_length(), cut)
            .map_err(|_| TransmitDrop::NotDone)?;
        // The first is as long as any.
        if plan.headers() + plan.payload(0).len() > limit {
            return Err(TransmitDrop::TooLarge);
        }
        Ok(Self { front, plan })
    }

    /// Bytes behind the headers, of all segments together.
    fn payload(&self) -> usize {
        self.plan.end() - self.plan.headers()
    }

    /// A whole segment.
    fn segment(&self, packet: &Packet, index: usize) -> Part {
        let payload = self.plan.payload(index);
        let sum = pieces(packet, payload.clone()).fold(Sum::new(), Sum::bytes);
        let mut headers = [0; MAXIMUM_HEADERS];
        self.plan.write_headers(&self.front, index, sum, &mut headers);
        Part { headers, length: self.plan.headers(), payload }
    }
}

/// What the card segments.
pub(crate) struct Rest {
    /// How.
    pub(crate) context: Context,
    /// Bytes behind the headers.
    pub(crate) payload: u32,
    pub(crate) part: Part,
}

/// A packet that the card can segment.
pub(crate) struct TsoPacket {
    /// The first segment, if that is to be made here: the card would repeat what only the first one says of congestion, and a single segment is none to be cut.
    pub(crate) first: Option<Part>,
    /// The rest, for the card.
    pub(crate) rest: Option<Rest>,
}

impl TsoPacket {
    /// Looks at a packet whose frames may have `limit` bytes. `None`: [`SoftwareSegments`] can do it, and the card can't.
    pub(crate) fn new<Q: Queue>(
        packet: &Packet,
        wanted: Segmentation,
        limit: usize,
    ) -> Result<Option<Self>, TransmitDrop> {
        let parsed = Parsed::new(packet, wanted, limit)?;
        let Parsed { front, plan } = &parsed;
        if wanted.kind != SegmentationKind::Tcp4
            || plan.is_ipv6()
            || wanted.size < LEAST
            || plan.headers() > MOST_HEADERS
            || parsed.payload() > Q::MOST_PAYLOAD
        {
            return Ok(None);
        }
        let says_once = TcpFlags(front[plan.transport() + TCP_FLAGS]).contains(TcpFlags::CWR);
        let is_apart = says_once || plan.count() == 1;
        let first = is_apart.then(|| parsed.segment(packet, 0));
        let begin = usize::from(is_apart);
        if begin == plan.count() {
            return Ok(Some(Self { first, rest: None }));
        }
        let (tso, part) = rest(front, plan, begin, wanted.size);
        let rest = Q::segmentation(tso).map(|context| Rest { context, payload: tso.payload, part });
        Ok(rest.map(|rest| Self { first, rest: Some(rest) }))
    }

    /// Descriptors that it takes.
    pub(crate) fn descriptors(&self) -> usize {
        let first = self.first.as_ref().map_or(0, Part::buffers);
        // One is for the context.
        first + self.rest.as_ref().map_or(0, |rest| 1 + rest.part.buffers())
    }
}

/// A packet that is segmented here: its segments one by one, each made in the card's buffers.
pub(crate) struct SoftwareSegments {
    packet: Packet,
    parsed: Parsed,
    next: usize,
}

impl SoftwareSegments {
    /// Of a packet whose frames may have `limit` bytes.
    ///
    /// # Errors
    /// Why it can't be, and the packet.
    pub(crate) fn new(packet: Packet, limit: usize) -> Result<Self, (TransmitDrop, Packet)> {
        let wanted = packet.segmentation().ok_or(TransmitDrop::NotDone);
        match wanted.and_then(|wanted| Parsed::new(&packet, wanted, limit)) {
            Ok(parsed) => Ok(Self { packet, parsed, next: 0 }),
            Err(reason) => Err((reason, packet)),
        }
    }

    /// How many are still to come.
    pub(crate) fn remaining(&self) -> usize {
        self.parsed.plan.count() - self.next
    }

    pub(crate) const fn packet(&self) -> &Packet {
        &self.packet
    }

    /// Buffers that the next one takes; `None` if there is none.
    pub(crate) fn next_buffers(&self) -> Option<usize> {
        let plan = &self.parsed.plan;
        let bytes = plan.headers() + plan.payload(self.next).len();
        (self.remaining() > 0).then_some(bytes.div_ceil(BUFFER_BYTES.into()))
    }

    /// The next one, of those that remain.
    pub(crate) fn make_next(&mut self) -> Part {
        let part = self.parsed.segment(&self.packet, self.next);
        self.next += 1;
        part
    }
}

/// The segments from `begin` on, which is none or one, as the card wants them: the length and the checksum of the IP header are zero, and that of TCP is the sum
/// of the pseudo header without a length, all of which it completes for each segment.
fn rest(front: &[u8; MAXIMUM_HEADERS], plan: &SuperFrame, begin: usize, size: u16) -> (Tso, Part) {
    let (network, transport) = (plan.network(), plan.transport());
    let payload = plan.payload(begin).start..plan.end();
    let mut headers = *front;
    put(&mut headers, network + IPV4_LENGTH, 0);
    put(&mut headers, network + IPV4_CHECKSUM, 0);
    let address = |place: usize| {
        let at = network + IPV4_ADDRESSES + place;
        Ipv4Addr::new(front[at], front[at + 1], front[at + 2], front[at + 3])
    };
    let pseudo = !pseudo_ipv4(address(0), address(4), IpProtocol::TCP, 0).checksum();
    put(&mut headers, transport + TCP_CHECKSUM, pseudo);
    if begin > 0 {
        let number = word(front, network + IPV4_NUMBER).wrapping_add(1);
        put(&mut headers, network + IPV4_NUMBER, number);
        let at = transport + TCP_SEQUENCE;
        let (high, low) = (word(front, at), word(front, at + 2));
        let sequence = (u32::from(high) << 16 | u32::from(low)).wrapping_add(size.into());
        put(&mut headers, at, (sequence >> 16) as u16);
        put(&mut headers, at + 2, sequence as u16);
        headers[transport + TCP_FLAGS] &= !TcpFlags::CWR.0;
    }
    let tso = Tso {
        network: network as u8,
        transport: transport as u8,
        headers: plan.headers() as u8,
        size,
        payload: payload.len() as u32,
    };
    (tso, Part { headers, length: plan.headers(), payload })
}

fn word(bytes: &[u8; MAXIMUM_HEADERS], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn put(bytes: &mut [u8; MAXIMUM_HEADERS], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}
