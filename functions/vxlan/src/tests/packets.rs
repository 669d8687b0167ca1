//! Tunnels that carry IP packets without frames.

use super::*;
use crate::{OuterIpv4, PacketEncapsulation};
use warmlane_forward::control::{AroundPacket, Class, IpTunnel};
use warmlane_wire::{LinkLayer, gre};

const NEAR: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const FAR: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const TUNNELS: [IpTunnel; 3] = [IpTunnel::Plain, IpTunnel::Gre(None), IpTunnel::Gre(Some(0x0102_0304))];
const ADDRESSES: [u8; 12] = [2, 0, 0, 0, 0, 0xee, 2, 9, 9, 9, 9, 2];

fn around(tunnel: IpTunnel) -> AroundPacket {
    let class = Class::Inherited;
    AroundPacket { local: NEAR, remote: FAR, tunnel, carries: [true; 2], ttl: None, class }
}

fn pool() -> Pool {
    Pool::new(&PoolConfig { buffers: 16, ..PoolConfig::default() }).unwrap()
}

fn filled(pool: &Pool, frame: &[u8]) -> Packet {
    let mut packet = pool.take().unwrap();
    packet.fill(frame).unwrap();
    packet
}

/// A frame with an IP packet of this class, TTL 9.
fn frame(ipv6: bool, class: u8) -> Vec<u8> {
    let link = Frame::new().ethernet(B, A);
    let network = if ipv6 {
        let [source, destination] = [1, 2].map(std::net::Ipv6Addr::from_bits);
        link.ipv6(Ipv6Fields { traffic_class: class, hop_limit: 9, ..Ipv6Fields::new(source, destination) })
    } else {
        let [source, destination] = [1, 2].map(|last| Ipv4Addr::new(10, 0, 0, last));
        link.ipv4(Ipv4Fields { traffic_class: class, ttl: 9, ..Ipv4Fields::new(source, destination) })
    };
    network.udp(1000, 2000).payload(b"data").to_vec().unwrap()
}

/// What is sent for a frame.
fn wrapped(around: &AroundPacket, frame: &[u8]) -> Result<Vec<u8>, Reason> {
    let mut packet = filled(&pool(), frame);
    PacketEncapsulation::new(around).wrap(&mut packet, &ADDRESSES)?;
    Ok(packet.data().to_vec())
}

/// What is taken out of a packet, with the headers that were found.
fn stripped(bytes: &[u8]) -> Option<(OuterIpv4, Result<Vec<u8>, Reason>)> {
    let mut packet = filled(&pool(), bytes);
    let outer = OuterIpv4::of(&packet, &LinkLayer::parse(packet.data()).ok()?)?;
    let inside = outer.strip(&mut packet, ADDRESSES);
    Some((outer, inside.map(|_| packet.data().to_vec())))
}

#[test]
fn what_goes_in_comes_out() {
    for tunnel in TUNNELS {
        for ipv6 in [false, true] {
            let frame = frame(ipv6, 0b1011_1010);
            let sent = wrapped(&around(tunnel), &frame).unwrap();
            assert_eq!(sent[..12], ADDRESSES);
            let ip = ipv4::check(&sent[14..]).unwrap();
            let header = ip.header;
            assert_eq!((header.source(), header.destination()), (NEAR, FAR));
            // One more than inside: it is routed like what comes in.
            assert_eq!((header.ttl(), header.dont_fragment(), sent[15]), (10, true, 0b1011_1010));
            let inner = if ipv6 { EtherType::IPV6 } else { EtherType::IPV4 };
            let between = match tunnel {
                IpTunnel::Plain => {
                    assert_eq!(header.protocol(), if ipv6 { IpProtocol::IPV6 } else { IpProtocol::IPV4 });
                    Vec::new()
                }
                IpTunnel::Gre(None) => gre::header(inner).to_vec(),
                IpTunnel::Gre(Some(key)) => gre::header_with_key(inner, key).to_vec(),
            };
            assert_eq!(ip.payload, [&between, &frame[14..]].concat());
            // With padding behind.
            let (outer, inside) = stripped(&[&sent[..], &[0; 5]].concat()).unwrap();
            assert_eq!((outer.tunnel, outer.inside, outer.source), (tunnel, inner, NEAR));
            assert_eq!(inside.unwrap(), [&ADDRESSES[..], &frame[12..]].concat());
        }
    }
}

#[test]
fn what_is_fixed_is_not_inherited() {
    let fixed = AroundPacket { ttl: Some(99), class: Class::Fixed(0b0101_0100), ..around(IpTunnel::Plain) };
    let sent = wrapped(&fixed, &frame(false, 0b1011_1010)).unwrap();
    // But for congestion (RFC 6040 section 4.1).
    assert_eq!((sent[15], sent[22]), (0b0101_0110, 100));
}

#[test]
fn what_is_not_carried_is_dropped() {
    for ipv6 in [false, true] {
        let around = AroundPacket { carries: [ipv6, !ipv6], ..around(IpTunnel::Plain) };
        assert_eq!(wrapped(&around, &frame(ipv6, 0)), Err(Reason::NotCarried));
        assert!(wrapped(&around, &frame(!ipv6, 0)).is_ok());
    }
    let arp = [&frame(false, 0)[..12], &[8, 6], &[0; 28]].concat();
    assert_eq!(wrapped(&around(IpTunnel::Plain), &arp), Err(Reason::InnerLength));
}

#[test]
fn congestion_is_told_inwards() {
    for (outer, inner, expected) in [(3, 2, Ok(3)), (3, 0, Err(Reason::CongestionNotCapable)), (0, 2, Ok(2))]
    {
        let mut sent = wrapped(&around(IpTunnel::Gre(None)), &frame(false, inner)).unwrap();
        sent[15] = outer;
        mend(&mut sent, 14);
        let (_, inside) = stripped(&sent).unwrap();
        assert_eq!(inside.map(|frame| frame[15]), expected);
    }
}

/// Puts the right checksum into the IPv4 header at this place.
fn mend(bytes: &mut [u8], at: usize) {
    let header = bytes[at..].first_chunk_mut::<20>().unwrap();
    let checksum = warmlane_wire::checksum::ipv4_header_checksum20(header);
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
}

#[test]
fn broken_packets_have_reasons_or_are_nobody_s() {
    let sent = wrapped(&around(IpTunnel::Gre(Some(7))), &frame(false, 0)).unwrap();
    let inside = 14 + 20 + 8;
    let changed = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = sent.clone();
        change(&mut bytes);
        stripped(&bytes).map(|(_, frame)| frame.map(|_| ()))
    };
    assert_eq!(changed(&|_| {}), Some(Ok(())));
    assert_eq!(changed(&|bytes| bytes[inside + 10] ^= 1), Some(Err(Reason::InnerChecksum)));
    for (at, value) in [(inside, 0x55), (inside, 0x44), (inside + 3, 99)] {
        let broken = changed(&|bytes| {
            bytes[at] = value;
            mend(bytes, inside);
        });
        assert_eq!(broken, Some(Err(Reason::InnerLength)), "{at} {value}");
    }
    // Of the header around: its checksum, options, fragments, a length beyond the packet or below the headers.
    assert_eq!(changed(&|bytes| bytes[24] ^= 1), None);
    let around: [(usize, u8); 6] = [(14, 0x46), (20, 0x20), (21, 1), (17, 255), (17, 20), (17, 27)];
    for (at, value) in around {
        let left = changed(&|bytes| {
            bytes[at] = value;
            mend(bytes, 14);
        });
        assert_eq!(left, None, "{at} {value}");
    }
    // Of GRE: a checksum, a sequence number, a flag of RFC 1701, another version, and something other than IP.
    for (at, value) in [(34, 0xa0), (34, 0x30), (34, 0x60), (35, 1), (36, 0x65)] {
        assert_eq!(changed(&|bytes| bytes[at] = value), None, "{at} {value}");
    }
    // No more than headers: there is nothing inside.
    let empty = changed(&|bytes| {
        bytes[17] = 28;
        mend(bytes, 14);
    });
    assert_eq!(empty, Some(Err(Reason::InnerLength)));
}
