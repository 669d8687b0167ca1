//! All parsers of headers, on any bytes, the way a packet is taken apart: none panics, and what was understood can be
//! written and understood again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use warmlane_wire::checksum::{self, Addresses};
use warmlane_wire::edit::PacketMut;
use warmlane_wire::merge::{Around, Look, Merged};
use warmlane_wire::neighbour;
use warmlane_wire::segment::{Cut, MAXIMUM_HEADERS, SuperFrame, Transport, Tunnel};
use warmlane_wire::{
    ArpPacket, EtherType, EthernetHeader, Flow, Icmpv4Message, Icmpv6Message, IgmpQuery, IpProtocol,
    Ipv4Packet, Ipv6Packet, LinkLayer, MacAddress, MldQuery, NeighbourMessage, icmpv4, icmpv6, ipv4, ipv6,
    tcp, udp,
};

fuzz_target!(|bytes: &[u8]| {
    // Each parser on the bytes as they are, and on what the layers below leave of them.
    let _ = EthernetHeader::parse(bytes);
    network(EtherType::ARP, bytes);
    network(EtherType::IPV4, bytes);
    network(EtherType::IPV6, bytes);
    if let Ok(link) = LinkLayer::parse(bytes) {
        assert_eq!(link.header_length() + link.payload.len(), bytes.len());
        network(link.ethertype, link.payload);
    }
    edit(bytes);
    merge(bytes);
    cut(bytes);
    let _ = checksum::checksum(bytes);
    if let Ok(text) = str::from_utf8(bytes)
        && let Ok(address) = text.parse::<MacAddress>()
    {
        assert_eq!(address.to_string().parse(), Ok(address));
    }
});

/// Two frames, of which the second may go on where the first ends.
fn merge(bytes: &[u8]) {
    let (first, second) = bytes.split_at(bytes.len() / 2);
    if let Some(around) = Around::at(first, first.len()) {
        around.is_next(first, second, second.len());
        let start = usize::from(around.inside);
        around.finish(&mut first.to_vec(), first.len(), start, start + 16);
    }
    let Look::Part(part) = Look::at(first, first.len()) else { return };
    assert_eq!(usize::from(part.headers) + usize::from(part.length), first.len());
    let mut merged = Merged::new(part);
    let mut front = first.to_vec();
    if let Some(next) = merged.next(first, second, second.len()) {
        merged.add(next);
        assert!(second.len() <= first.len(), "only the last one may be shorter");
    }
    merged.finish(&mut front);
}

/// A frame that somebody says is to be cut, perhaps in a tunnel: the first bytes say how.
fn cut(bytes: &[u8]) {
    let Some((&[kind, size, network, transport, inside], front)) = bytes.split_first_chunk() else { return };
    let tunnel = Tunnel { network: network.into(), transport: transport.into(), inside: inside.into() };
    let cut = Cut {
        transport: if kind & 1 == 0 { Transport::Tcp } else { Transport::Udp },
        size: size.into(),
        checksum_start: None,
        tunnel: (kind & 2 != 0).then_some(tunnel),
    };
    let Ok(plan) = SuperFrame::parse(front, front.len(), cut) else { return };
    let mut headers = [0; MAXIMUM_HEADERS];
    let mut behind = plan.headers();
    for index in 0..plan.count() {
        let payload = plan.payload(index);
        assert_eq!(payload.start, behind, "each begins where the one before ends");
        behind = payload.end;
        let sum = checksum::Sum::new().bytes(&front[payload]);
        assert_eq!(plan.write_headers(front, index, sum, &mut headers).len(), plan.headers());
    }
    assert_eq!(behind, plan.end());
}

/// Whatever is changed, an IPv4 header checksum that was right stays right, and the flow is the one that was set.
fn edit(bytes: &[u8]) {
    let mut frame = bytes.to_vec();
    let Ok(mut packet) = PacketMut::parse(&mut frame) else {
        // As a card would look at it, it may have one.
        let _ = Flow::of_front(bytes);
        return;
    };
    assert_eq!(Ok(packet.flow()), Flow::of_frame(bytes));
    assert_eq!(Some(packet.flow()), Flow::of_front(bytes).map(|(flow, _)| flow));
    let network = packet.layers().network;
    let reversed = packet.flow().reversed();
    for result in [packet.set_source(reversed.source), packet.set_destination(reversed.destination)] {
        result.expect("an address of the same version");
    }
    assert_eq!(packet.set_source_port(1).is_ok(), packet.ports().is_some());
    packet.set_ttl(9);
    packet.set_dscp(0x2e);
    assert_eq!((packet.source(), packet.ttl(), packet.dscp()), (reversed.source, 9, 0x2e));
    if ipv4::check(&bytes[network..]).is_ok() {
        assert!(ipv4::check(&frame[network..]).is_ok());
    }
}

fn network(ethertype: EtherType, bytes: &[u8]) {
    match ethertype {
        EtherType::ARP => {
            if let Ok(packet) = ArpPacket::parse(bytes) {
                assert_eq!(ArpPacket::parse(&packet.to_bytes()), Ok(packet));
            }
        }
        EtherType::IPV4 => {
            let checked = ipv4::check(bytes);
            if let Ok(packet) = ipv4::check_lengths(bytes) {
                assert!(packet.options.len() + packet.payload.len() + ipv4::HEADER_LENGTH <= bytes.len());
                internet4(&packet);
            }
            if checked.is_ok_and(|packet| packet.header.ttl() > 0) {
                let mut next = bytes.to_vec();
                ipv4::decrement_ttl(next.first_chunk_mut().expect("a checked header is there"));
                assert!(ipv4::check(&next).is_ok(), "the checksum stays right");
            }
        }
        EtherType::IPV6 => {
            if let Ok(packet) = ipv6::check(bytes) {
                assert!(packet.payload.len() + ipv6::HEADER_LENGTH <= bytes.len());
                internet6(&packet, bytes);
            }
        }
        _ => {}
    }
}

fn internet4(packet: &Ipv4Packet<'_>) {
    let header = packet.header;
    let addresses = Addresses::V4 { source: header.source(), destination: header.destination() };
    let _ = icmpv4::may_answer(packet);
    if header.protocol() == IpProtocol::IGMP {
        let _ = IgmpQuery::parse(packet.payload);
    }
    upper(addresses, header.protocol(), packet.payload);
}

fn internet6(packet: &Ipv6Packet<'_>, bytes: &[u8]) {
    let (source, destination) = (packet.header.source(), packet.header.destination());
    let Ok(layer) = packet.upper_layer() else { return };
    let end = ipv6::HEADER_LENGTH + packet.payload.len();
    assert!((ipv6::HEADER_LENGTH..=end).contains(&layer.offset));
    let rest = &bytes[layer.offset..end];
    upper(Addresses::V6 { source, destination }, layer.protocol, rest);
    if layer.protocol == IpProtocol::ICMPV6 {
        if let Ok((message, _)) = Icmpv6Message::parse(source, destination, rest) {
            let _ = icmpv6::may_answer(packet, &message);
        }
        if let Ok(message) = NeighbourMessage::parse(packet.header, rest) {
            let written = message.to_bytes(source, destination);
            assert_eq!(NeighbourMessage::parse(packet.header, &written[..message.length()]), Ok(message));
        }
        let _ = MldQuery::parse(packet.header, rest);
        let _ = neighbour::is_solicited_node(destination);
    }
}

fn upper(addresses: Addresses, protocol: IpProtocol, bytes: &[u8]) {
    match protocol {
        IpProtocol::UDP => {
            assert!(udp::check(addresses, bytes).is_err() || udp::parse(bytes).is_ok());
        }
        IpProtocol::TCP => {
            assert!(tcp::check(addresses, bytes).is_err() || tcp::parse(bytes).is_ok());
        }
        IpProtocol::ICMP => {
            if let Ok((message, data)) = Icmpv4Message::parse(bytes) {
                let written = [&message.header(data), data].concat();
                assert_eq!(Icmpv4Message::parse(&written), Ok((message, data)));
            }
        }
        _ => {}
    }
}
