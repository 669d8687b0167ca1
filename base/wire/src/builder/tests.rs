use super::*;
use crate::{LinkLayer, TcpFlags, Truncated};
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};

const HERE: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
const THERE: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);
const V4: Ipv4Fields<'static> = Ipv4Fields::new(Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(198, 51, 100, 2));
const V6: Ipv6Fields<'static> = Ipv6Fields::new(
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
    Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 2),
);

fn v4() -> Addresses {
    Addresses::V4 { source: V4.source, destination: V4.destination }
}

fn v6() -> Addresses {
    Addresses::V6 { source: V6.source, destination: V6.destination }
}

#[test]
fn layers_stand_in_their_order() {
    let bytes = Frame::new()
        .ethernet(THERE, HERE)
        .vlan(VlanTag::service(7))
        .vlan(VlanTag::customer(8))
        .ipv4(V4)
        .udp(1, 2)
        .payload(b"abc")
        .to_vec()
        .unwrap();
    assert_eq!(bytes.len(), 14 + 8 + 20 + 8 + 3);
    let link = LinkLayer::parse(&bytes).unwrap();
    assert_eq!((link.header.destination(), link.header.source()), (THERE, HERE));
    assert_eq!((link.outer, link.inner), (Some(VlanTag::service(7)), Some(VlanTag::customer(8))));
    assert_eq!(link.ethertype, EtherType::IPV4);
    let packet = ipv4::check(link.payload).unwrap();
    assert_eq!((packet.header.source(), packet.header.ttl()), (V4.source, 64));
    assert_eq!(packet.header.protocol(), IpProtocol::UDP);
    let (header, data) = udp::check(v4(), packet.payload).unwrap();
    assert_eq!((header.source_port(), header.destination_port(), data), (1, 2, &b"abc"[..]));
}

#[test]
fn arp_is_padded_with_zeros() {
    let request = ArpPacket::request(HERE, V4.source, V4.destination);
    let frame =
        Frame::new().ethernet(MacAddress::BROADCAST, HERE).arp(request).padded(ethernet::MINIMUM_FRAME);
    let mut buffer = [0xee; 64];
    assert_eq!(frame.write(&mut buffer), Ok(60));
    let link = LinkLayer::parse(&buffer).unwrap();
    assert_eq!((link.ethertype, ArpPacket::parse(link.payload)), (EtherType::ARP, Ok(request)));
    assert_eq!(buffer[42..], [[0; 18].as_slice(), &[0xee; 4]].concat());
}

#[test]
fn padding_is_outside_of_all_lengths() {
    let bytes = Frame::new().ethernet(THERE, HERE).ipv6(V6).udp(1, 2).padded(100).to_vec().unwrap();
    assert_eq!(bytes.len(), 100);
    let packet = ipv6::check(&bytes[14..]).unwrap();
    assert!(udp::check(v6(), packet.payload).unwrap().1.is_empty());
}

#[test]
fn any_ethertype_and_protocol() {
    let bytes =
        Frame::new().ethernet(THERE, HERE).ethertype(EtherType::LLDP).payload(&[1, 2]).to_vec().unwrap();
    assert_eq!(bytes[12..], [0x88, 0xcc, 1, 2]);
    let bytes = Frame::new().ipv4(V4).protocol(IpProtocol::OSPF).payload(&[1, 2]).to_vec().unwrap();
    let packet = ipv4::check(&bytes).unwrap();
    assert_eq!((packet.header.protocol(), packet.payload), (IpProtocol::OSPF, &[1, 2][..]));
}

#[test]
fn an_error_quotes_what_it_answers() {
    let original = Frame::new().ipv4(V4).udp(1, 2).payload(&[7; 1000]).to_vec().unwrap();
    let error = Frame::new()
        .ipv4(Ipv4Fields::new([203, 0, 113, 1].into(), V4.source))
        .icmpv4(Icmpv4Message::TimeExceeded { code: icmpv4::time_exceeded::IN_TRANSIT })
        .payload(icmpv4::quote(&original));
    let mut buffer = [0; 576];
    assert_eq!(error.write(&mut buffer), Ok(576));
    let packet = ipv4::check(&buffer).unwrap();
    let (message, data) = Icmpv4Message::parse(packet.payload).unwrap();
    assert_eq!((message, data), (Icmpv4Message::TimeExceeded { code: 0 }, &original[..548]));

    let original = Frame::new().ipv6(V6).udp(1, 2).payload(&[7; 1400]).to_vec().unwrap();
    let error = Frame::new()
        .ipv6(Ipv6Fields::new("2001:db8::ffff".parse().unwrap(), V6.source))
        .icmpv6(Icmpv6Message::PacketTooBig { mtu: 1400 })
        .payload(icmpv6::quote(&original));
    let bytes = error.to_vec().unwrap();
    assert_eq!(bytes.len(), 1280);
    let packet = ipv6::check(&bytes).unwrap();
    let read = Icmpv6Message::parse(packet.header.source(), packet.header.destination(), packet.payload);
    assert_eq!(read, Ok((Icmpv6Message::PacketTooBig { mtu: 1400 }, &original[..1232])));
}

#[test]
fn no_space_leaves_the_buffer_alone() {
    let frame = Frame::new().ethernet(THERE, HERE).ipv4(V4).udp(1, 2).payload(b"abc");
    let mut buffer = [0xee; 44];
    assert_eq!(frame.write(&mut buffer), Err(BuildError::NoSpace { needed: 45, available: 44 }));
    assert_eq!(buffer, [0xee; 44]);
}

#[test]
fn lengths_that_no_field_holds() {
    let payload = vec![0; 65536];
    let most = |frame: Frame<'_>| frame.to_vec().map(|bytes| bytes.len());
    assert_eq!(most(Frame::new().ipv4(V4).udp(1, 2).payload(&payload[..65507])), Ok(65535));
    assert_eq!(
        most(Frame::new().ipv4(V4).udp(1, 2).payload(&payload[..65508])),
        Err(BuildError::TooLong { what: "IPv4 packet", length: 65536, maximum: 65535 })
    );
    assert_eq!(most(Frame::new().ipv6(V6).udp(1, 2).payload(&payload[..65527])), Ok(65575));
    assert_eq!(
        most(Frame::new().ipv6(V6).udp(1, 2).payload(&payload[..65528])),
        Err(BuildError::TooLong { what: "IPv6 payload", length: 65536, maximum: 65535 })
    );
}

#[test]
fn options_and_extensions_of_impossible_length() {
    for length in [3, 44] {
        let options = vec![1; length];
        let frame = Frame::new().ipv4(Ipv4Fields { options: &options, ..V4 });
        assert_eq!(frame.to_vec(), Err(BuildError::OptionLength { header: "IPv4", length }));
        let frame = Frame::new().ipv4(V4).tcp(TcpFields { options: &options, ..TcpFields::default() });
        assert_eq!(frame.to_vec(), Err(BuildError::OptionLength { header: "TCP", length }));
    }
    for (protocol, length, unit, maximum) in [
        (IpProtocol::DESTINATION_OPTIONS, 0, 8, 2048),
        (IpProtocol::ROUTING, 12, 8, 2048),
        (IpProtocol::AUTHENTICATION, 10, 4, 1028),
        (IpProtocol::FRAGMENT, 16, 8, 8),
    ] {
        let body = vec![0; length];
        let extensions = [(protocol, &body[..])];
        let frame = Frame::new().ipv6(Ipv6Fields { extensions: &extensions, ..V6 });
        assert_eq!(frame.to_vec(), Err(BuildError::ExtensionLength { protocol, length, unit, maximum }));
    }
}

#[test]
fn layers_that_do_not_fit_together() {
    let tag = VlanTag::customer(1);
    let frame = Frame::new().ethernet(THERE, HERE).vlan(tag).vlan(tag).vlan(tag);
    assert_eq!(frame.to_vec(), Err(BuildError::TooManyTags { tags: 3 }));

    let echo4 = Icmpv4Message::EchoRequest { identifier: 1, sequence: 1 };
    let echo6 = Icmpv6Message::EchoRequest { identifier: 1, sequence: 1 };
    let discovery = NeighbourMessage::Solicitation { target: V6.destination, source_link_layer: None };
    let arp = ArpPacket::request(HERE, V4.source, V4.destination);
    for (frame, upper, lower) in [
        (Frame::new().vlan(tag).ipv4(V4), "a VLAN tag", "nothing"),
        (Frame::new().arp(arp).payload(&[1]), "a payload", "ARP"),
        (Frame::new().ipv6(V6).neighbour(discovery).payload(&[1]), "a payload", "neighbour discovery"),
        (Frame::new().ipv6(V6).icmpv4(echo4), "ICMP", "IPv6"),
        (Frame::new().ipv4(V4).icmpv6(echo6), "ICMPv6", "IPv4"),
        (Frame::new().ipv4(V4).neighbour(discovery), "ICMPv6", "IPv4"),
        (Frame::new().ethernet(THERE, HERE).udp(1, 2), "UDP", "Ethernet alone"),
        (Frame::new().arp(arp).tcp(TcpFields::default()), "TCP", "ARP"),
        (Frame::new().arp(arp).protocol(IpProtocol::TCP), "an IP protocol", "ARP"),
    ] {
        let error = frame.to_vec().unwrap_err();
        assert!(
            matches!(error, BuildError::Mismatch { upper: u, lower: l, .. } if (u, l) == (upper, lower)),
            "{error}"
        );
    }
    assert_eq!(
        Frame::new().arp(arp).udp(1, 2).to_vec().unwrap_err().to_string(),
        "UDP cannot go over ARP: give the frame an IPv4 or IPv6 layer"
    );
}

#[test]
fn a_udp_checksum_of_zero_is_sent_as_ones() {
    // The payload word brings the sum to 0xffff, whose complement is 0.
    let blank = Frame::new().ipv4(V4).udp(1, 2).payload(&[0, 0]).to_vec().unwrap();
    let word = [blank[26], blank[27]];
    let bytes = Frame::new().ipv4(V4).udp(1, 2).payload(&word).to_vec().unwrap();
    assert_eq!(bytes[26..28], [0xff, 0xff]);
    assert!(udp::check(v4(), &bytes[20..]).is_ok());
}

proptest! {
    #[test]
    fn what_is_built_passes_every_check(
        payload in prop::collection::vec(any::<u8>(), 0..100),
        words in 0..=10_usize,
        ports: (u16, u16),
        flags: u8,
        fill in any::<u8>(),
    ) {
        let options = vec![fill; words * 4];
        let udp = Frame::new().udp(ports.0, ports.1).payload(&payload);
        let tcp = TcpFields {
            source_port: ports.0, destination_port: ports.1, flags: TcpFlags(flags), options: &options,
            ..TcpFields::default()
        };
        let tcp = Frame::new().tcp(tcp).payload(&payload);
        let extensions = [(IpProtocol::DESTINATION_OPTIONS, &[0, 0, 1, 4, 0, 0, 0, 0][..])];
        let (fields4, fields6) = (Ipv4Fields { options: &options, ..V4 }, Ipv6Fields { extensions: &extensions, ..V6 });

        let bytes = udp.ipv4(fields4).to_vec().unwrap();
        let packet = ipv4::check(&bytes).unwrap();
        prop_assert_eq!(packet.options, &options[..]);
        prop_assert_eq!(udp::check(v4(), packet.payload).unwrap().1, &payload[..]);

        let bytes = tcp.ipv4(V4).to_vec().unwrap();
        let segment = tcp::check(v4(), ipv4::check(&bytes).unwrap().payload).unwrap();
        prop_assert_eq!((segment.options, segment.payload), (&options[..], &payload[..]));
        prop_assert_eq!(segment.header.flags(), TcpFlags(flags));

        for (frame, protocol) in [(udp, IpProtocol::UDP), (tcp, IpProtocol::TCP)] {
            let bytes = frame.ipv6(fields6).to_vec().unwrap();
            let upper = ipv6::check(&bytes).unwrap().upper_layer().unwrap();
            prop_assert_eq!((upper.protocol, upper.offset), (protocol, 48));
            let message = &bytes[48..];
            let read = match protocol {
                IpProtocol::UDP => udp::check(v6(), message).is_ok(),
                _ => tcp::check(v6(), message).is_ok(),
            };
            prop_assert!(read);
        }
    }

    #[test]
    fn a_cut_frame_is_found_out(payload in prop::collection::vec(any::<u8>(), 0..40), cut: prop::sample::Index) {
        let bytes = Frame::new().ethernet(THERE, HERE).ipv4(V4).udp(1, 2).payload(&payload).to_vec().unwrap();
        let cut = cut.index(bytes.len());
        match LinkLayer::parse(&bytes[..cut]) {
            Ok(link) => prop_assert!(ipv4::check(link.payload).is_err()),
            Err(Truncated { available, .. }) => prop_assert_eq!(available, cut),
        }
    }
}
