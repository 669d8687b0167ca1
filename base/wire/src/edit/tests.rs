//! Every edit against the frame built anew, and against checking all checksums.

use std::net::IpAddr;

use proptest::prelude::*;

use super::*;
use crate::{
    Addresses, Frame, Icmpv4Message, Icmpv6Message, IpProtocol, Ipv4Fields, Ipv6Fields, Layers, MacAddress,
    TcpFields, TcpFlags, VlanTag, checksum, icmpv6, ipv4, ipv6, tcp, udp,
};

/// What the transport is.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Udp,
    Tcp,
    Echo,
}

/// What a frame is built from.
#[derive(Clone, Debug)]
struct Recipe {
    ipv6: bool,
    kind: Kind,
    tags: usize,
    extended: bool,
    source: u128,
    destination: u128,
    ports: (u16, u16),
    class: u8,
    ttl: u8,
    data: Vec<u8>,
}

fn recipe() -> impl Strategy<Value = Recipe> {
    let shape = (any::<bool>(), 0..3_usize, 0..3_usize, any::<bool>());
    let fields = (any::<u128>(), any::<u128>(), any::<(u16, u16)>(), any::<u8>(), any::<u8>());
    (shape, fields, prop::collection::vec(any::<u8>(), 0..40)).prop_map(|(shape, fields, data)| Recipe {
        ipv6: shape.0,
        kind: [Kind::Udp, Kind::Tcp, Kind::Echo][shape.1],
        tags: shape.2,
        extended: shape.3,
        source: fields.0,
        destination: fields.1,
        ports: fields.2,
        class: fields.3,
        ttl: fields.4,
        data,
    })
}

impl Recipe {
    fn address(&self, bits: u128) -> IpAddr {
        if self.ipv6 { IpAddr::V6(bits.into()) } else { IpAddr::V4((bits as u32).into()) }
    }

    fn build(&self) -> Vec<u8> {
        let mut frame = Frame::new().ethernet(MacAddress::BROADCAST, MacAddress([2, 0, 0, 0, 0, 1]));
        for tag in [VlanTag::service(1), VlanTag::customer(2)].iter().take(self.tags) {
            frame = frame.vlan(*tag);
        }
        let extensions = [(IpProtocol::DESTINATION_OPTIONS, &[0, 0, 1, 4, 0, 0, 0, 0][..])];
        let frame = if self.ipv6 {
            frame.ipv6(Ipv6Fields {
                traffic_class: self.class,
                hop_limit: self.ttl,
                flow_label: 0x1_2345,
                extensions: if self.extended { &extensions } else { &[] },
                ..Ipv6Fields::new(self.source.into(), self.destination.into())
            })
        } else {
            frame.ipv4(Ipv4Fields {
                traffic_class: self.class,
                ttl: self.ttl,
                options: if self.extended { &[1; 4] } else { &[] },
                ..Ipv4Fields::new((self.source as u32).into(), (self.destination as u32).into())
            })
        };
        let (source_port, destination_port) = self.ports;
        let frame = match self.kind {
            Kind::Udp => frame.udp(source_port, destination_port),
            Kind::Tcp => {
                frame.tcp(TcpFields { flags: TcpFlags::ACK, ..TcpFields::new(source_port, destination_port) })
            }
            Kind::Echo if self.ipv6 => {
                frame.icmpv6(Icmpv6Message::EchoRequest { identifier: source_port, sequence: 1 })
            }
            Kind::Echo => frame.icmpv4(Icmpv4Message::EchoRequest { identifier: source_port, sequence: 1 }),
        };
        frame.payload(&self.data).padded(60).to_vec().unwrap()
    }
}

/// The sum over pseudo header and transport, checksum included: `0xffff` if it is right.
fn transport_sum(frame: &[u8]) -> u16 {
    let layers = Layers::find(frame).unwrap();
    let segment = &frame[layers.transport.unwrap()..layers.end];
    let length = segment.len() as u32;
    let packet = &frame[layers.network..];
    let pseudo = match layers.version {
        _ if layers.protocol == IpProtocol::ICMP => checksum::Sum::new(),
        crate::IpVersion::V4 => {
            let header = ipv4::check(packet).unwrap().header;
            Addresses::V4 { source: header.source(), destination: header.destination() }
                .pseudo_header(layers.protocol, length)
        }
        crate::IpVersion::V6 => {
            let header = ipv6::check(packet).unwrap().header;
            Addresses::V6 { source: header.source(), destination: header.destination() }
                .pseudo_header(layers.protocol, length)
        }
    };
    pseudo.bytes(segment).fold()
}

/// Where the transport checksum stands.
fn checksum_at(frame: &[u8]) -> usize {
    let layers = Layers::find(frame).unwrap();
    let offset = match layers.protocol {
        IpProtocol::TCP => 16,
        IpProtocol::UDP => 6,
        _ => 2,
    };
    layers.transport.unwrap() + offset
}

/// Changes all that `new` has another value of.
fn edit(packet: &mut PacketMut<'_>, new: &Recipe) {
    packet.set_source(new.address(new.source)).unwrap();
    packet.set_destination(new.address(new.destination)).unwrap();
    if matches!(new.kind, Kind::Echo) {
        packet.set_echo_identifier(new.ports.0).unwrap();
        assert!(matches!(packet.set_source_port(1), Err(EditError::NoPorts { .. })));
    } else {
        packet.set_source_port(new.ports.0).unwrap();
        packet.set_destination_port(new.ports.1).unwrap();
        assert!(matches!(packet.set_echo_identifier(1), Err(EditError::NoEcho { .. })));
    }
    packet.set_ttl(new.ttl);
    packet.set_dscp(new.class >> 2);
    packet.set_ecn(new.class);
}

proptest! {
    #[test]
    fn an_edited_frame_is_one_built_anew(old in recipe(), new in recipe()) {
        let new = Recipe { ipv6: old.ipv6, kind: old.kind, tags: old.tags, extended: old.extended, data: old.data.clone(), ..new };
        let mut frame = old.build();
        let mut packet = PacketMut::parse(&mut frame).unwrap();
        edit(&mut packet, &new);
        prop_assert_eq!((packet.ttl(), packet.dscp()), (new.ttl, new.class >> 2));
        prop_assert_eq!(packet.destination(), new.address(new.destination));
        prop_assert_eq!(packet.flow(), crate::Flow::of_frame(&new.build()).unwrap());
        prop_assert_eq!(frame, new.build());
    }

    #[test]
    fn a_partial_checksum_is_completed_right(old in recipe(), new in recipe()) {
        let new = Recipe { ipv6: old.ipv6, kind: old.kind, tags: old.tags, extended: old.extended, data: old.data.clone(), ..new };
        prop_assume!(!matches!(old.kind, Kind::Echo));
        let mut frame = old.build();
        let at = checksum_at(&frame);
        // The sum of the pseudo header: everything but the segment, whose checksum counts as 0.
        frame[at..at + 2].fill(0);
        let layers = Layers::find(&frame).unwrap();
        let segment = checksum::sum(&frame[layers.transport.unwrap()..layers.end]);
        let pseudo = checksum::Sum::new().word(transport_sum(&frame)).word(!segment).fold();
        frame[at..at + 2].copy_from_slice(&pseudo.to_be_bytes());
        edit(&mut PacketMut::parse(&mut frame).unwrap().partial_checksum(true), &new);
        // What the device does (virtio 1.3 section 5.1.6.2.1): sum up the segment with what is in the field.
        let completed = checksum::checksum(&frame[layers.transport.unwrap()..layers.end]);
        frame[at..at + 2].copy_from_slice(&completed.to_be_bytes());
        prop_assert_eq!(transport_sum(&frame), 0xffff);
    }

    #[test]
    fn no_udp_checksum_stays_none_and_a_wrong_one_stays_wrong(old in recipe(), new in recipe(), flipped in 1..=0xffff_u16) {
        let old = Recipe { kind: Kind::Udp, ..old };
        let new = Recipe { ipv6: old.ipv6, kind: old.kind, ..new };
        let mut frame = old.build();
        let at = checksum_at(&frame);
        let right = u16::from_be_bytes([frame[at], frame[at + 1]]);
        frame[at..at + 2].fill(0);
        edit(&mut PacketMut::parse(&mut frame).unwrap(), &new);
        prop_assert_eq!(&frame[at..at + 2], &[0, 0]);

        let wrong = right ^ flipped;
        // Both zeros are the same number, and 0 is no checksum.
        prop_assume!(wrong != 0 && wrong != 0xffff && right != 0xffff);
        let mut frame = old.build();
        frame[at..at + 2].copy_from_slice(&wrong.to_be_bytes());
        edit(&mut PacketMut::parse(&mut frame).unwrap(), &new);
        prop_assert_ne!(transport_sum(&frame), 0xffff);
    }

    #[test]
    fn header_views_agree_with_headers_built_anew(
        source: u32, destination: u32, class: u8, ttl: u8, identification: u16, dont_fragment: bool, label in 0..1_u32 << 20,
    ) {
        let mut header = *Frame::new().ipv4(Ipv4Fields::new(1.into(), 2.into())).to_vec().unwrap().first_chunk().unwrap();
        let mut view = Ipv4HeaderMut(&mut header);
        view.set_source(source.into());
        view.set_destination(destination.into());
        view.set_dscp(class >> 2);
        view.set_ecn(class);
        view.set_identification(identification);
        view.set_dont_fragment(dont_fragment);
        view.set_ttl(ttl);
        view.decrement_ttl();
        let fields = Ipv4Fields {
            traffic_class: class, identification, dont_fragment, ttl: ttl.saturating_sub(1),
            ..Ipv4Fields::new(source.into(), destination.into())
        };
        prop_assert_eq!(&header[..], &Frame::new().ipv4(fields).to_vec().unwrap());

        let (source, destination) = (u128::from(source) << 64, u128::from(destination) << 90);
        let mut header = *Frame::new().ipv6(Ipv6Fields::new(1.into(), 2.into())).to_vec().unwrap().first_chunk().unwrap();
        let mut view = Ipv6HeaderMut(&mut header);
        view.set_source(source.into());
        view.set_destination(destination.into());
        view.set_flow_label(label);
        view.set_dscp(class >> 2);
        view.set_ecn(class);
        view.set_hop_limit(ttl);
        view.decrement_hop_limit();
        let fields = Ipv6Fields {
            traffic_class: class, flow_label: label, hop_limit: ttl.saturating_sub(1),
            ..Ipv6Fields::new(source.into(), destination.into())
        };
        let built = Frame::new().ipv6(fields).protocol(IpProtocol::HOP_BY_HOP).to_vec().unwrap();
        prop_assert_eq!(&header[8..], &built[8..]);
        prop_assert_eq!((&header[..4], header[7]), (&built[..4], built[7]));
    }

    #[test]
    fn transport_views_keep_the_checksum(ports: (u16, u16), window: u16, data in prop::collection::vec(any::<u8>(), 0..20)) {
        let addresses = Addresses::V4 { source: 1.into(), destination: 2.into() };
        let ip = Frame::new().ipv4(Ipv4Fields::new(1.into(), 2.into())).payload(&data);
        let mut bytes = ip.udp(1, 2).to_vec().unwrap();
        let mut view = UdpHeaderMut(bytes[20..].first_chunk_mut().unwrap());
        view.set_source_port(ports.0);
        view.set_destination_port(ports.1);
        let (header, _) = udp::check(addresses, &bytes[20..]).unwrap();
        prop_assert_eq!((header.source_port(), header.destination_port()), ports);

        let fields = TcpFields { flags: TcpFlags::SYN, ..TcpFields::new(1, 2) };
        let mut bytes = ip.tcp(fields).to_vec().unwrap();
        let mut view = TcpHeaderMut(bytes[20..].first_chunk_mut().unwrap());
        view.set_source_port(ports.0);
        view.set_destination_port(ports.1);
        view.set_window(window);
        let segment = tcp::check(addresses, &bytes[20..]).unwrap();
        prop_assert_eq!((segment.header.source_port(), segment.header.destination_port()), ports);
        prop_assert_eq!(segment.header.window(), window);
    }

    #[test]
    fn any_bytes_can_be_edited_or_are_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..120), ipv6: bool, port: u16) {
        if bytes.len() > 20 {
            let (ethertype, first) = if ipv6 { (0x86dd_u16, 0x60) } else { (0x0800, 0x45) };
            bytes[12..14].copy_from_slice(&ethertype.to_be_bytes());
            bytes[14] = first;
            bytes[16] = 0;
            bytes[18] = 0;
        }
        let length = bytes.len();
        let flow = crate::Flow::of_frame(&bytes);
        if let Ok(mut packet) = PacketMut::parse(&mut bytes) {
            prop_assert_eq!(Ok(packet.flow()), flow);
            packet.set_mac_addresses(MacAddress([1; 6]), MacAddress([2; 6]));
            packet.set_source(IpAddr::from([1, 2, 3, 4])).ok();
            packet.set_destination(IpAddr::from([9; 16])).ok();
            packet.set_source_port(port).ok();
            packet.set_destination_port(port).ok();
            packet.set_echo_identifier(port).ok();
            packet.set_ttl(port as u8);
            packet.set_dscp(port as u8);
            let _ = packet.flow();
        }
        prop_assert_eq!(bytes.len(), length);
    }
}

#[test]
fn the_other_version_and_later_fragments_are_refused() {
    let fields = Ipv4Fields { fragment_offset: 64, ..Ipv4Fields::new(1.into(), 2.into()) };
    let ethernet = Frame::new().ethernet(MacAddress::BROADCAST, MacAddress([2, 0, 0, 0, 0, 1]));
    let mut frame = ethernet.ipv4(fields).protocol(IpProtocol::UDP).payload(&[7; 16]).to_vec().unwrap();
    let mut packet = PacketMut::parse(&mut frame).unwrap();
    let error = packet.set_source(IpAddr::from([0; 16])).unwrap_err();
    assert_eq!(error.to_string(), ":: can't be put in an IPv4 packet: give an address of the same version");
    assert_eq!(packet.set_source_port(1), Err(EditError::NoPorts { protocol: IpProtocol::UDP }));
    packet.set_source(IpAddr::from([10, 0, 0, 1])).unwrap();
    assert_eq!(frame[34..], [7; 16], "the payload is not taken for a header");
    assert!(ipv4::check(&frame[14..]).is_ok());
}

#[test]
fn with_segments_left_the_destination_is_not_in_the_checksum() {
    let last = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
    let routing = [&[0, 2, 0, 1, 0, 0, 0, 0][..], &last].concat();
    let extensions = [(IpProtocol::ROUTING, &routing[..])];
    let fields =
        Ipv6Fields { extensions: &extensions, ..Ipv6Fields::new(1.into(), u128::from_be_bytes(last).into()) };
    let ethernet = Frame::new().ethernet(MacAddress::BROADCAST, MacAddress([2, 0, 0, 0, 0, 1]));
    let mut frame = ethernet.ipv6(fields).udp(1, 2).payload(b"data").to_vec().unwrap();
    let mut packet = PacketMut::parse(&mut frame).unwrap();
    packet.set_destination(IpAddr::from([5; 16])).unwrap();
    packet.set_source(IpAddr::from([6; 16])).unwrap();
    let addresses = Addresses::V6 { source: [6; 16].into(), destination: last.into() };
    assert!(udp::check(addresses, &frame[14 + 40 + 24..]).is_ok());
}

#[test]
fn the_checksum_of_icmpv6_covers_the_addresses() {
    let ethernet = Frame::new().ethernet(MacAddress::BROADCAST, MacAddress([2, 0, 0, 0, 0, 1]));
    let echo = Icmpv6Message::EchoRequest { identifier: 1, sequence: 2 };
    let mut frame = ethernet.ipv6(Ipv6Fields::new(1.into(), 2.into())).icmpv6(echo).to_vec().unwrap();
    let mut packet = PacketMut::parse(&mut frame).unwrap();
    packet.set_source(IpAddr::from([7; 16])).unwrap();
    assert_eq!(packet.echo_identifier(), Some(1));
    let parsed = icmpv6::Icmpv6Message::parse([7; 16].into(), 2.into(), &frame[54..]);
    assert!(parsed.is_ok(), "{parsed:?}");
}
