//! Hashes of flows: all packets of a flow get the same.
//!
//! For picking a next hop of a group, a backend or a lane. They cover addresses, protocol and the ports of TCP, UDP and SCTP
//! (RFC 2992 section 1). Fragments other than the first have no ports, so all fragments are hashed by addresses and protocol
//! only: those of one packet stay together and in order.
//!
//! Another seed gives an unrelated hash; routers in a row need different ones, or they all choose alike. The same seed gives
//! the same hash on every machine. [`Flow`](crate::Flow) has the same hash for a frame, and a symmetric one.

use std::net::Ipv4Addr;

use crate::ipv6::Ipv6Packet;
use crate::{IpProtocol, Ipv4Header, Ipv6Header, ipv4, ipv6};

/// An odd constant with as many ones as zeros, from the fraction of the golden ratio.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// "More fragments", and the offset of a fragment, beside a flag.
const FRAGMENT: u16 = 0x3fff;

/// The hash of an IPv4 packet that was checked; `packet` starts at its header.
#[inline]
pub fn ipv4(seed: u64, packet: &[u8]) -> u32 {
    plain_ipv4(seed, packet).unwrap_or_else(|| any_ipv4(seed, packet))
}

/// The same hash, if the packet has no options and is not a fragment: all that counts is at a fixed place.
#[inline(always)]
pub fn plain_ipv4(seed: u64, packet: &[u8]) -> Option<u32> {
    if let Some([0x45, _, _, _, _, _, flags, offset, _, protocol, _, _, rest @ ..]) =
        packet.first_chunk::<24>()
        && u16::from_be_bytes([*flags, *offset]) & FRAGMENT == 0
        && let [a, b, c, d, e, f, g, h, ports @ ..] = *rest
    {
        let addresses = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
        let ports = if has_ports(IpProtocol(*protocol)) { u32::from_be_bytes(ports) } else { 0 };
        return Some(of_numbers(seed, addresses, *protocol, ports));
    }
    None
}

/// The same of a packet that may have options, or be a fragment.
#[cold]
#[inline(never)]
fn any_ipv4(seed: u64, packet: &[u8]) -> u32 {
    let Some((header, rest)) = packet.split_first_chunk() else { return 0 };
    let header = Ipv4Header(header);
    let options = header.header_length().saturating_sub(ipv4::HEADER_LENGTH);
    let transport = if header.is_fragment() { None } else { rest.get(options..) };
    of_ipv4(
        seed,
        header.source(),
        header.destination(),
        header.protocol(),
        ports(header.protocol(), transport),
    )
}

/// The hash of an IPv6 packet that was checked.
#[inline]
pub fn ipv6(seed: u64, packet: &Ipv6Packet<'_>) -> u32 {
    let (source, destination) = (packet.header.source().to_bits(), packet.header.destination().to_bits());
    let (protocol, ports) = match packet.upper_layer() {
        Ok(upper) => {
            let whole = upper.fragment.is_none();
            let transport = upper.offset.checked_sub(ipv6::HEADER_LENGTH).filter(|_| whole);
            (upper.protocol, ports(upper.protocol, transport.and_then(|offset| packet.payload.get(offset..))))
        }
        // Chains that can't be read are one flow for each pair of addresses.
        Err(_) => (IpProtocol(0), 0),
    };
    of_ipv6(seed, source, destination, protocol, ports)
}

/// The hash of an IPv4 packet by addresses alone, or of an ICMP error by those of the packet that it quotes, so that it goes the
/// way of what it tells of.
#[inline]
pub fn ipv4_addresses(seed: u64, packet: &[u8]) -> u32 {
    let Some((header, rest)) = packet.split_first_chunk() else { return 0 };
    let mut header = Ipv4Header(header);
    let options = header.header_length().saturating_sub(ipv4::HEADER_LENGTH);
    if header.protocol() == IpProtocol::ICMP
        && header.fragment_offset() == 0
        && let Some([3 | 4 | 5 | 11 | 12, _, _, _, _, _, _, _, quoted @ ..]) = rest.get(options..)
        && let Some(quoted) = quoted.first_chunk()
    {
        header = Ipv4Header(quoted);
    }
    of_ipv4(seed, header.source(), header.destination(), IpProtocol(0), 0)
}

/// The same for IPv6, whose flow label and next header count as well.
#[inline]
pub fn ipv6_addresses(seed: u64, packet: &Ipv6Packet<'_>) -> u32 {
    let mut header = packet.header;
    if header.next_header() == IpProtocol::ICMPV6
        && let [0..=127, _, _, _, _, _, _, _, quoted @ ..] = packet.payload
        && let Some(quoted) = quoted.first_chunk()
    {
        header = Ipv6Header(quoted);
    }
    let (source, destination) = (header.source().to_bits(), header.destination().to_bits());
    of_ipv6(seed, source, destination, header.next_header(), header.flow_label())
}

/// The hash of these fields; `ports` has the source port in its upper half.
#[inline(always)]
pub(crate) fn of_ipv4(
    seed: u64,
    source: Ipv4Addr,
    destination: Ipv4Addr,
    protocol: IpProtocol,
    ports: u32,
) -> u32 {
    let addresses = (u64::from(source.to_bits()) << 32) | u64::from(destination.to_bits());
    of_numbers(seed, addresses, protocol.0, ports)
}

/// The same, of both addresses as they are in a header.
#[inline(always)]
fn of_numbers(seed: u64, addresses: u64, protocol: u8, ports: u32) -> u32 {
    mix(mix(seed, addresses), (u64::from(protocol) << 32) | u64::from(ports)) as u32
}

/// The same for IPv6.
#[inline(always)]
pub(crate) fn of_ipv6(seed: u64, source: u128, destination: u128, protocol: IpProtocol, ports: u32) -> u32 {
    let parts = [(source >> 64) as u64, source as u64, (destination >> 64) as u64, destination as u64];
    let addresses = parts.into_iter().fold(seed, mix);
    mix(addresses, (u64::from(protocol.0) << 32) | u64::from(ports)) as u32
}

/// Whether headers of this protocol begin with a source and a destination port that belong to the flow.
#[inline(always)]
const fn has_ports(protocol: IpProtocol) -> bool {
    matches!(protocol, IpProtocol::TCP | IpProtocol::UDP | IpProtocol::SCTP)
}

/// Source and destination port, if they are there and belong to the flow.
#[inline]
pub(crate) fn flow_ports(protocol: IpProtocol, transport: &[u8]) -> Option<(u16, u16)> {
    let &[a, b, c, d] = transport.first_chunk().filter(|_| has_ports(protocol))?;
    Some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
}

/// The ports in their order, 0 if there are none.
#[inline]
fn ports(protocol: IpProtocol, transport: Option<&[u8]>) -> u32 {
    let bytes = transport.filter(|_| has_ports(protocol)).and_then(|bytes| bytes.first_chunk().copied());
    bytes.map_or(0, u32::from_be_bytes)
}

/// Takes 64 more bits into a hash: multiplied to 128 bits and folded, so that every bit reaches every other.
#[inline]
fn mix(hash: u64, bits: u64) -> u64 {
    let product = u128::from(hash ^ bits ^ MULTIPLIER) * u128::from(MULTIPLIER.rotate_left(32));
    let folded = (product >> 64) as u64 ^ product as u64;
    // A second round: the fold of one product is linear enough in its low bits to show.
    let product = u128::from(folded) * u128::from(MULTIPLIER);
    (product >> 64) as u64 ^ product as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(source: u32, destination: u32, ports: u32) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0];
        packet.extend(source.to_be_bytes());
        packet.extend(destination.to_be_bytes());
        packet.extend(ports.to_be_bytes());
        packet.extend([0; 4]);
        packet
    }

    #[test]
    fn counting_flows_spread_evenly() {
        // The hard cases for a hash: only one field counts up.
        for field in 0..3 {
            for buckets in [3_u32, 8, 10, 256] {
                let per_bucket = 1000;
                let mut counts = vec![0; buckets as usize];
                for n in 0..buckets * per_bucket {
                    let packet = match field {
                        0 => header(0x0a00_0000 + n, 0xc000_0201, 0x0400_0050),
                        1 => header(0xc000_0201, 0x0a00_0000 + n, 0x0400_0050),
                        _ => header(0xc000_0201, 0xc000_0202, n),
                    };
                    counts[(ipv4(0, &packet) % buckets) as usize] += 1;
                }
                let expected = f64::from(per_bucket);
                let squares: f64 =
                    counts.iter().map(|&count| (f64::from(count) - expected).powi(2) / expected).sum();
                // Chi squared: mean k - 1, deviation sqrt(2 (k - 1)); six deviations are never by chance.
                let freedom = f64::from(buckets - 1);
                assert!(squares < freedom + 6.0 * (2.0 * freedom).sqrt(), "{field} {buckets}: {squares}");
            }
        }
    }

    #[test]
    fn by_addresses_ports_do_not_count_and_errors_go_by_what_they_quote() {
        let flow = header(1, 2, 0x1234_5678);
        assert_eq!(ipv4_addresses(7, &flow), ipv4_addresses(7, &header(1, 2, 0x9abc_def0)));
        assert_ne!(ipv4_addresses(7, &flow), ipv4_addresses(7, &header(1, 3, 0x1234_5678)));
        for (kind, alike) in [(3, true), (11, true), (0, false), (8, false)] {
            let mut error = header(9, 1, 0);
            error[9] = 1;
            error.truncate(20);
            error.extend([kind, 0, 0, 0, 0, 0, 0, 0]);
            error.extend(&flow);
            assert_eq!(ipv4_addresses(7, &error) == ipv4_addresses(7, &flow), alike, "{kind}");
        }
        let packet = |next: u8, label: u8, last: u8, payload: &[u8]| {
            let mut packet = vec![0x60, 0, 0, label, 0, payload.len() as u8, next, 64];
            packet.extend([0x20; 31]);
            packet.push(last);
            packet.extend(payload);
            packet
        };
        let hash = |packet: &[u8]| {
            let (header, payload) = packet.split_first_chunk().unwrap();
            ipv6_addresses(7, &Ipv6Packet { header: Ipv6Header(header), payload })
        };
        let flow = packet(17, 1, 1, &[0; 8]);
        assert_eq!(hash(&flow), hash(&packet(17, 1, 1, &[9; 8])));
        for other in [packet(17, 2, 1, &[0; 8]), packet(17, 1, 2, &[0; 8]), packet(6, 1, 1, &[0; 8])] {
            assert_ne!(hash(&flow), hash(&other));
        }
        let error = |kind: u8| packet(58, 3, 5, &[&[kind, 0, 0, 0, 0, 0, 0, 0], &flow[..]].concat());
        assert_eq!(hash(&error(1)), hash(&flow));
        assert_ne!(hash(&error(128)), hash(&flow));
    }

    /// Headers with options are read in another way.
    #[test]
    fn options_change_nothing() {
        for protocol in 0..=255 {
            let mut plain = header(1, 2, 0x1234_5678);
            plain[9] = protocol;
            let mut options = [&plain[..20], &[1; 4], &plain[20..]].concat();
            options[0] = 0x46;
            assert_eq!(ipv4(7, &plain), ipv4(7, &options), "{protocol}");
            // No more than the header is there.
            assert_eq!(ipv4(7, &plain[..20]), ipv4(7, &options[..24]), "{protocol}");
            let has_ports = has_ports(IpProtocol(protocol));
            assert_eq!(ipv4(7, &plain) != ipv4(7, &plain[..20]), has_ports, "{protocol}");
        }
    }

    #[test]
    fn fragments_stay_together() {
        let mut first = header(1, 2, 0x1234_5678);
        let mut second = header(1, 2, 0x9abc_def0);
        assert_ne!(ipv4(7, &first), ipv4(7, &second));
        first[6] = 0x20;
        second[7] = 0x01;
        assert_eq!(ipv4(7, &first), ipv4(7, &second));
        assert_ne!(ipv4(7, &first), ipv4(8, &first));
    }

    #[test]
    fn ipv6_fragments_stay_together() {
        let hash = |protocol: u8, payload: &[u8]| {
            let mut packet = vec![0x60, 0, 0, 0, 0, payload.len() as u8, protocol, 64];
            packet.extend([0x20; 32]);
            packet.extend(payload);
            let (header, payload) = packet.split_first_chunk().unwrap();
            ipv6(7, &Ipv6Packet { header: Ipv6Header(header), payload })
        };
        let datagram = [0x12, 0x34, 0x56, 0x78, 0, 24, 0, 0, 0x9a, 0xbc, 0xde, 0xf0, 1, 2, 3, 4];
        assert_ne!(hash(17, &datagram[..8]), hash(17, &datagram[8..]));
        // A fragment header (RFC 8200 section 4.5): of UDP, offset and whether more follow, identification.
        let fragment = |offset: u8, more: u8, data: &[u8]| {
            hash(44, &[&[17, 0, 0, offset | more, 0, 0, 0, 9], data].concat())
        };
        let (first, last) = (fragment(0, 1, &datagram[..8]), fragment(8, 0, &datagram[8..]));
        assert_eq!(first, last);
        // One that is a whole packet goes the same way: it may have been cut by half of its senders only.
        assert_eq!(first, fragment(0, 0, &datagram));
    }
}
