//! What senders are told of packets that are too long for a tunnel or a link: a bridge has no address of its own, and so says it in
//! the name of the packet's destination, as Linux does for its tunnels. Without it path MTU discovery finds a black hole.

use warmlane_mem::{Packet, Pool};
use warmlane_port::software_offload::copy_completed;
use warmlane_wire::checksum::Sum;
use warmlane_wire::icmpv4::{self, Icmpv4Message};
use warmlane_wire::icmpv6::{self, Icmpv6Message};
use warmlane_wire::{
    EtherType, EthernetHeader, IpProtocol, Ipv4Fields, Ipv4Header, Ipv4Packet, Ipv6Fields, Ipv6Header,
    Ipv6Packet, ethernet, ipv4, ipv6, martian,
};

/// TTL or hop limit of errors: the sender may be some routers away.
const TTL: u8 = 64;

/// Precedence "internetwork control" (RFC 1812 section 4.3.2.5).
const CONTROL_PRECEDENCE: u8 = 0xc0;

/// As much of a frame as an error looks at or quotes.
const LOOK: usize = ethernet::HEADER_LENGTH + icmpv6::MAXIMUM_QUOTE;

/// Longest error: an IPv6 one that quotes as much as it may.
const LONGEST: usize = LOOK + ipv6::HEADER_LENGTH + icmpv6::HEADER_LENGTH;

/// What the sender of an untagged frame is to be told, ready to go back to where the frame came from: that no more than `mtu` bytes of IP
/// fit (RFC 1191 section 4, RFC 8201 section 3). `None` if it isn't owed that, if `may` says no, and without a buffer.
pub(crate) fn error(frame: &Packet, mtu: u16, pool: &Pool, may: impl FnOnce() -> bool) -> Option<Packet> {
    let mut look = [0; LOOK];
    let count = copy_completed(frame, &mut look);
    let (header, bytes) = EthernetHeader::parse(&look[..count]).ok()?;
    if !header.destination().is_unicast() {
        return None;
    }
    let mut answer = [0; LONGEST];
    let (link, rest) = answer.split_at_mut(ethernet::HEADER_LENGTH);
    ethernet::write(link.first_chunk_mut()?, header.source(), header.destination(), header.ethertype());
    let length = match header.ethertype() {
        EtherType::IPV4 => ipv4_error(bytes, mtu, rest)?,
        EtherType::IPV6 => ipv6_error(bytes, mtu, rest)?,
        _ => return None,
    };
    let bytes = answer.get(..ethernet::HEADER_LENGTH + length)?;
    let mut packet = may().then(|| pool.take())??;
    packet.append(bytes.len()).ok()?.copy_from_slice(bytes);
    packet.set_port(frame.port());
    Some(packet)
}

/// Writes the error that a packet with the flag DF deserves, and gives its length.
fn ipv4_error(bytes: &[u8], mtu: u16, to: &mut [u8]) -> Option<usize> {
    let (fixed, rest) = bytes.split_first_chunk()?;
    let header = Ipv4Header(fixed);
    let options = header.header_length().checked_sub(ipv4::HEADER_LENGTH)?;
    let (options, payload) = rest.split_at_checked(options)?;
    let is_right = header.version() == 4 && Sum::new().bytes(fixed).bytes(options).is_valid();
    let may_answer = icmpv4::may_answer(&Ipv4Packet { header, options, payload });
    // A frame may also be long by what is behind the packet; and nobody can speak for what is no host's address.
    let is_owed = header.total_length() > mtu && !martian::ipv4_source_is_martian(header.destination());
    if !is_right || !is_owed || !header.dont_fragment() || !may_answer {
        return None;
    }
    let quote = icmpv4::quote(bytes.get(..usize::from(header.total_length())).unwrap_or(bytes));
    let message = Icmpv4Message::Unreachable { code: icmpv4::unreachable::FRAGMENTATION_NEEDED, mtu };
    let length = ipv4::HEADER_LENGTH + icmpv4::HEADER_LENGTH + quote.len();
    let fields = Ipv4Fields {
        traffic_class: CONTROL_PRECEDENCE,
        // Without an identification of its own it must not be cut (RFC 6864 section 4.1).
        dont_fragment: true,
        ttl: TTL,
        ..Ipv4Fields::new(header.destination(), header.source())
    };
    let ip = fields.header(IpProtocol::ICMP, length as u16);
    write(to, &[&ip, &message.header(quote), quote])
}

/// The same for IPv6.
fn ipv6_error(bytes: &[u8], mtu: u16, to: &mut [u8]) -> Option<usize> {
    let (fixed, payload) = bytes.split_first_chunk()?;
    let header = Ipv6Header(fixed);
    let message = Icmpv6Message::PacketTooBig { mtu: mtu.into() };
    let end = ipv6::HEADER_LENGTH + usize::from(header.payload_length());
    let is_owed = end > usize::from(mtu) && !martian::ipv6_source_is_martian(header.destination());
    if header.version() != 6 || !is_owed || !icmpv6::may_answer(&Ipv6Packet { header, payload }, &message) {
        return None;
    }
    let quote = icmpv6::quote(bytes.get(..end).unwrap_or(bytes));
    let (source, destination) = (header.destination(), header.source());
    let fields = Ipv6Fields { hop_limit: TTL, ..Ipv6Fields::new(source, destination) };
    let length = (icmpv6::HEADER_LENGTH + quote.len()) as u16;
    let ip = fields.header(IpProtocol::ICMPV6, length);
    write(to, &[&ip, &message.header(source, destination, quote), quote])
}

/// Writes these parts one behind the other.
pub(crate) fn write(mut to: &mut [u8], parts: &[&[u8]]) -> Option<usize> {
    for part in parts {
        let (here, rest) = to.split_at_mut_checked(part.len())?;
        here.copy_from_slice(part);
        to = rest;
    }
    Some(parts.iter().map(|part| part.len()).sum())
}
