use std::net::IpAddr;

use proptest::prelude::*;
use warmlane_forward::control::config::IcmpLimits;
use warmlane_forward::datapath::Forwarder;
use warmlane_lane::{KeptOutputs, Stage as _};
use warmlane_mem::{Burst, Checksum, LayerOffsets, Packet, Pool, PoolConfig, Segmentation, SegmentationKind};
use warmlane_port::software_offload::Segments;
use warmlane_vxlan::Reason;
use warmlane_wire::{Frame, Ipv4Fields, Ipv4Header, MacAddress, TcpFields, checksum, ethernet, udp, vxlan};

use super::{ENTRANCE, TunnelEnds};
use crate::control::kernel::{
    Address, Event, Link, Neighbour, NeighbourState, Placement, Route, RouteKey, RoutePath, StationKey,
    Target, TunnelEnd, View, Vxlan,
};
use crate::control::{Fib, RoutedPort};
use crate::datapath::{Entrances, Punt};

const LAN: u32 = 1;
const UNDERLAY: u32 = 2;
const BRIDGE: u32 = 3;
const DEVICE: u32 = 4;
/// The output of the forwarder that leads into tunnels, and the network that these lead to.
const TUNNELS: u16 = 2;
const NETWORK: u16 = 3;

const fn mac(last: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, last]
}
const HOST: [u8; 6] = mac(0x11);
const FAR_UNDERLAY: [u8; 6] = mac(0x12);
const STATION: [u8; 6] = mac(0x22);
const VNI: u32 = 10;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn link(index: u32, name: &str) -> Link {
    Link {
        index,
        name: name.to_owned(),
        is_up: true,
        has_carrier: true,
        mac: Some(mac(index as u8)),
        mtu: 1500,
        ..Link::default()
    }
}

fn device(change: impl FnOnce(&mut Vxlan)) -> Link {
    let mut vxlan = Vxlan {
        identifier: VNI,
        local: Some(ip("198.51.100.1")),
        lower: None,
        udp_port: 4789,
        ttl: 0,
        tos: 0,
        learns: false,
        source_ports: None,
        udp_checksum: true,
        no_checksum_over_ipv6: false,
        takes_no_checksum_over_ipv6: false,
        dont_fragment: false,
        kernel_only: None,
    };
    change(&mut vxlan);
    Link { vxlan: Some(vxlan), master: Some(BRIDGE), ..link(DEVICE, "vx10") }
}

fn route(prefix: &str, target: Target) -> Event {
    let table = if matches!(target, Target::Local) { 255 } else { 254 };
    let key = RouteKey { table, prefix: prefix.parse().unwrap() };
    let route = Route { metric: 0, tos: 0, source: None, protocol: 2, mtu: 0, target: target.into() };
    Event::Route(key, route, Placement::Append)
}

fn on(link: u32) -> Target {
    Target::Paths(vec![RoutePath { link, gateway: None, weight: 1, is_dead: false }])
}

fn neighbour(link: u32, address: &str, mac: [u8; 6]) -> Event {
    Event::Neighbour(Neighbour { link, address: ip(address), state: NeighbourState::Known(mac) })
}

fn end(address: &str) -> TunnelEnd {
    TunnelEnd { address: ip(address), udp_port: None, identifier: None, has_link: false }
}

/// A router between a LAN (192.0.2.0/24) and a network behind a tunnel (10.9.0.0/24) through 198.51.100.0/24.
struct Router {
    view: View,
    fib: Fib,
    stage: (TunnelEnds, Forwarder),
    outputs: KeptOutputs,
    pool: Pool,
}

impl Router {
    fn new(device: Link) -> Self {
        let port = |link, name: &str| RoutedPort { name: name.to_owned(), link, mtu_limit: 1500 };
        let fib = Fib::new(vec![port(LAN, "w0"), port(UNDERLAY, "e0")], 3, 0).unwrap();
        let bridge = Link { kind: "bridge".to_owned(), ..link(BRIDGE, "br10") };
        let address = |link, text: &str| Event::Address(Address { link, address: ip(text), length: 24 });
        let pool = Pool::new(&PoolConfig { buffers: 64, ..PoolConfig::default() }).unwrap();
        let mut view = View::default();
        let key = StationKey { bridge: BRIDGE, mac: STATION, vlan: 0 };
        for event in [
            Event::Link(link(LAN, "w0")),
            Event::Link(link(UNDERLAY, "e0")),
            Event::Link(bridge),
            Event::Link(device),
            address(LAN, "192.0.2.1"),
            address(UNDERLAY, "198.51.100.1"),
            address(BRIDGE, "10.9.0.1"),
            route("192.0.2.0/24", on(LAN)),
            route("198.51.100.0/24", on(UNDERLAY)),
            route("10.9.0.0/24", on(BRIDGE)),
            route("192.0.2.1/32", Target::Local),
            route("198.51.100.1/32", Target::Local),
            route("10.9.0.1/32", Target::Local),
            neighbour(LAN, "192.0.2.2", HOST),
            neighbour(UNDERLAY, "198.51.100.2", FAR_UNDERLAY),
            neighbour(UNDERLAY, "198.51.100.3", mac(0x13)),
            neighbour(BRIDGE, "10.9.0.2", STATION),
            Event::Station(key, DEVICE),
            Event::Behind(DEVICE, STATION, Some(end("198.51.100.2"))),
        ] {
            view.apply(event);
        }
        let mut router = {
            let mut fib = fib;
            let changes = view.take_changes();
            fib.update(&view, &changes).unwrap();
            let tunnels = TunnelEnds::new(fib.lane("tunnels").unwrap(), 0);
            let limits = IcmpLimits { rate: 1_000, burst: 1_000 };
            let forwarder = Forwarder::new(fib.lane("lane").unwrap(), pool.clone(), limits);
            let stage = (tunnels, forwarder);
            let outputs = KeptOutputs::of(&stage).without(Forwarder::HOLD);
            Self { view, fib, stage, outputs, pool }
        };
        router.poll();
        router
    }

    fn poll(&mut self) {
        self.stage.poll(0, &mut Burst::new(), &mut self.outputs.outputs());
    }

    fn apply(&mut self, event: Event) {
        self.view.apply(event);
        let changes = self.view.take_changes();
        self.fib.update(&self.view, &changes).unwrap();
        self.poll();
    }

    fn packet(&self, frame: &[u8], port: u16) -> Packet {
        let mut packet = self.pool.take().unwrap();
        packet.fill(frame).unwrap();
        packet.set_port(port);
        packet
    }

    fn run(&mut self, input: usize, packet: Packet) {
        let mut burst = Burst::new();
        burst.push(packet).unwrap();
        self.stage.process_input(input, &mut burst, &mut self.outputs.outputs());
        assert!(burst.is_empty());
    }

    fn take(&mut self, output: usize) -> Option<Packet> {
        self.outputs.burst(output).take_first()
    }

    /// What leaves by which port for a frame that comes in, and what the kernel gets.
    fn send(&mut self, port: u16, frame: &[u8]) -> Result<(u16, Packet), Option<Packet>> {
        let packet = self.packet(frame, port);
        self.run(0, packet);
        if let Some(packet) = self.take(Forwarder::FIRST_PORT + usize::from(TUNNELS)) {
            self.run(ENTRANCE, packet);
        }
        for port in [0, 1] {
            if let Some(packet) = self.take(Forwarder::FIRST_PORT + usize::from(port)) {
                return Ok((port, packet));
            }
        }
        Err(self.take(Forwarder::PUNT))
    }

    fn drops(&self, reason: Reason) -> u64 {
        let view = self.stage.0.counters_view();
        assert_eq!(view.balance(), 0);
        view.drops().get(reason)
    }
}

/// A frame to the router's MAC, with a payload.
fn frame(to_mac: [u8; 6], from_mac: [u8; 6], fields: Ipv4Fields, payload: &[u8]) -> Vec<u8> {
    let frame = Frame::new().ethernet(MacAddress(to_mac), MacAddress(from_mac)).ipv4(fields).udp(7, 4242);
    frame.payload(payload).to_vec().unwrap()
}

fn from_lan(class: u8, payload: &[u8]) -> Vec<u8> {
    let fields =
        Ipv4Fields { traffic_class: class, ..Ipv4Fields::new([192, 0, 2, 2].into(), [10, 9, 0, 2].into()) };
    frame(mac(LAN as u8), HOST, fields, payload)
}

fn from_station(to: [u8; 4], ttl: u8, payload: &[u8]) -> Vec<u8> {
    let fields = Ipv4Fields { ttl, ..Ipv4Fields::new([10, 9, 0, 2].into(), to.into()) };
    frame(mac(BRIDGE as u8), STATION, fields, payload)
}

fn tunnelled(from: u8, class: u8, vni: u32, inside: &[u8]) -> Vec<u8> {
    let fields = Ipv4Fields {
        traffic_class: class,
        ..Ipv4Fields::new([198, 51, 100, from].into(), [198, 51, 100, 1].into())
    };
    let data = [&vxlan::header(vni)[..], inside].concat();
    let around =
        Frame::new().ethernet(MacAddress(mac(UNDERLAY as u8)), MacAddress(FAR_UNDERLAY)).ipv4(fields);
    around.udp(50_000, vxlan::PORT).payload(&data).to_vec().unwrap()
}

/// The headers around a frame and that frame, of what leaves by the underlay.
fn unwrap(packet: &Packet) -> (Vec<u8>, Vec<u8>) {
    let (around, inside) = packet.data().split_at(50);
    assert!(checksum::ipv4_header_sum20(around[14..34].first_chunk().unwrap()) == 0xffff);
    let total = usize::from(Ipv4Header(around[14..34].first_chunk().unwrap()).total_length());
    assert_eq!((total + 14, around[42..50].to_vec()), (packet.len(), vxlan::header(VNI).to_vec()));
    (around.to_vec(), inside.to_vec())
}

#[test]
fn what_is_routed_to_a_network_leaves_in_datagrams() {
    let mut router = Router::new(device(|_| {}));
    let sent = from_lan(0xb9, b"who reads this?");
    let (port, packet) = router.send(0, &sent).unwrap();
    assert_eq!(port, 1);
    let (around, inside) = unwrap(&packet);
    assert_eq!((&around[..6], &around[6..12]), (&FAR_UNDERLAY[..], &mac(UNDERLAY as u8)[..]));
    // The usual TTL, no DSCP, and the congestion bits of the packet inside.
    assert_eq!((around[22], around[15], &around[20..22]), (64, 0x01, &[0, 0][..]));
    assert_eq!((&around[26..30], &around[30..34]), (&[198, 51, 100, 1][..], &[198, 51, 100, 2][..]));
    assert!(around[34..36] >= [0xc0, 0][..] && around[36..38] == [0x12, 0xb5] && around[40..42] != [0, 0]);
    // Routed once.
    assert_eq!((&inside[..6], &inside[6..12]), (&STATION[..], &mac(BRIDGE as u8)[..]));
    assert_eq!((inside[22], &inside[26..]), (sent[22] - 1, &sent[26..]));
    assert_eq!(router.stage.1.view().balance(), 0);
}

#[test]
fn datagrams_are_as_the_device_is_set_up() {
    let mut router = Router::new(device(|vxlan| {
        (vxlan.ttl, vxlan.tos, vxlan.udp_port, vxlan.dont_fragment) = (9, 0x28, 8472, true);
        (vxlan.source_ports, vxlan.udp_checksum) = (Some((30_000, 30_003)), false);
    }));
    let (_, packet) = router.send(0, &from_lan(0xb8, b"")).unwrap();
    let (around, _) = unwrap(&packet);
    assert_eq!((around[22], around[15], around[20]), (9, 0x28, 0x40));
    let source = u16::from_be_bytes([around[34], around[35]]);
    assert!((30_000..=30_003).contains(&source), "{source}");
    assert_eq!((&around[36..38], &around[40..42]), (&8472_u16.to_be_bytes()[..], &[0, 0][..]));
    // As the packet inside is.
    let mut router = Router::new(device(|vxlan| vxlan.tos = 1));
    let (_, packet) = router.send(0, &from_lan(0xb9, b"")).unwrap();
    assert_eq!(unwrap(&packet).0[15], 0xb9);
    // Datagrams that may be cut are told apart.
    let (_, other) = router.send(0, &from_lan(0xb9, b"")).unwrap();
    assert_ne!(packet.data()[18..20], other.data()[18..20]);
}

#[test]
fn a_station_that_moves_is_followed_and_one_that_is_not_behind_a_tunnel_is_the_kernel_s() {
    let mut router = Router::new(device(|_| {}));
    let goes_to = |router: &mut Router| match router.send(0, &from_lan(0, b"")) {
        Ok((1, packet)) => Some(packet.data()[33]),
        Err(Some(_)) => None,
        other => panic!("{other:?}"),
    };
    assert_eq!(goes_to(&mut router), Some(2));
    router.apply(Event::Behind(DEVICE, STATION, Some(end("198.51.100.3"))));
    assert_eq!(goes_to(&mut router), Some(3));
    router.apply(Event::BehindGone(DEVICE, STATION, Some(end("198.51.100.3"))));
    assert_eq!(goes_to(&mut router), None);
    router.apply(Event::Behind(DEVICE, [0; 6], Some(end("198.51.100.2"))));
    assert_eq!(goes_to(&mut router), Some(2));
    let key = StationKey { bridge: BRIDGE, mac: STATION, vlan: 0 };
    router.apply(Event::Station(key, LAN));
    assert_eq!(goes_to(&mut router), None, "behind another member of the bridge");
    router.apply(Event::Station(key, DEVICE));
    assert_eq!(goes_to(&mut router), Some(2));
    // A way that isn't by lanes' ports.
    router.apply(route("198.51.100.2/32", on(BRIDGE)));
    assert_eq!(goes_to(&mut router), None);
    router.apply(route("198.51.100.2/32", on(UNDERLAY)));
    router.apply(Event::LinkGone(DEVICE));
    assert_eq!(goes_to(&mut router), None);
}

#[test]
fn what_is_routed_from_a_network_is_taken_out_of_datagrams() {
    let mut router = Router::new(device(|_| {}));
    let sent = from_station([192, 0, 2, 2], 64, b"who reads this?");
    let (port, packet) = router.send(1, &tunnelled(2, 0, VNI, &sent)).unwrap();
    assert_eq!((port, packet.data()[22], &packet.data()[26..]), (0, 63, &sent[26..]));
    assert_eq!(packet.data()[..6], HOST);
    // Congestion on the way is told (RFC 6040 figure 4), where that can be said.
    let mut capable = sent.clone();
    capable[15] = 0x02;
    capable[24..26].fill(0);
    let sum = checksum::ipv4_header_checksum20(capable[14..34].first_chunk().unwrap()).to_be_bytes();
    capable[24..26].copy_from_slice(&sum);
    let (_, packet) = router.send(1, &tunnelled(2, 3, VNI, &capable)).unwrap();
    assert_eq!(packet.data()[15], 0x03);
    assert!(router.send(1, &tunnelled(2, 3, VNI, &sent)).unwrap_err().is_none());
    assert_eq!(router.drops(Reason::CongestionNotCapable), 1);
    // From network to network.
    let back = from_station([10, 9, 0, 2], 64, b"round");
    let (port, packet) = router.send(1, &tunnelled(2, 0, VNI, &back)).unwrap();
    assert_eq!((port, &unwrap(&packet).1[26..]), (1, &back[26..]));
}

#[test]
fn what_is_wrong_is_dropped_and_what_is_not_for_lanes_is_the_kernel_s() {
    let mut router = Router::new(device(|vxlan| vxlan.learns = true));
    let right = tunnelled(2, 0, VNI, &from_station([192, 0, 2, 2], 64, b"who reads this?"));
    assert!(router.send(1, &right).is_ok());
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = right.clone();
        change(&mut frame);
        frame
    };
    for (frame, reason) in [
        (with(&|frame| frame[90] ^= 1), Reason::OuterChecksum),
        (with(&|frame| frame[39] = 9), Reason::OuterLength),
    ] {
        assert!(router.send(1, &frame).unwrap_err().is_none());
        assert_eq!(router.drops(reason), 1, "{reason:?}");
    }
    for (what, frame) in [
        ("another network", with(&|frame| frame[48] ^= 1)),
        ("an extension", with(&|frame| frame[42] |= 0x80)),
        ("another tunnel end", tunnelled(3, 0, VNI, &right[50..])),
        ("to be bridged", with(&|frame| frame[55] ^= 1)),
        ("to all", with(&|frame| frame[50..56].fill(0xff))),
        ("an unknown station", with(&|frame| frame[61] ^= 1)),
        ("no IP", with(&|frame| frame[63] = 6)),
        ("a tag", with(&|frame| frame[62..64].copy_from_slice(&[0x81, 0]))),
    ] {
        let punted = router.send(1, &frame).unwrap_err().unwrap_or_else(|| panic!("{what}"));
        assert_eq!((punted.port(), punted.data()), (1, &frame[..]), "{what}");
    }
    // Of a device that is down nothing is taken.
    router.apply(Event::Link(Link { is_up: false, ..device(|_| {}) }));
    assert!(router.send(1, &right).unwrap_err().is_some());
}

#[test]
fn over_ipv6_a_missing_checksum_needs_leave() {
    const UDP_CHECKSUM: usize = ethernet::HEADER_LENGTH + 40 + udp::HEADER_LENGTH - 2;
    for takes in [false, true] {
        let mut router = Router::new(device(|vxlan| {
            vxlan.local = Some(ip("2001:db8:2::1"));
            vxlan.takes_no_checksum_over_ipv6 = takes;
        }));
        router.apply(Event::Behind(DEVICE, STATION, Some(end("2001:db8:2::2"))));
        router.apply(route("2001:db8:2::1/128", Target::Local));
        let inside = from_station([192, 0, 2, 2], 64, b"who reads this?");
        let data = [&vxlan::header(VNI)[..], &inside].concat();
        let fields = warmlane_wire::Ipv6Fields::new(
            "2001:db8:2::2".parse().unwrap(),
            "2001:db8:2::1".parse().unwrap(),
        );
        let around =
            Frame::new().ethernet(MacAddress(mac(UNDERLAY as u8)), MacAddress(FAR_UNDERLAY)).ipv6(fields);
        let mut frame = around.udp(50_000, vxlan::PORT).payload(&data).to_vec().unwrap();
        assert!(router.send(1, &frame).is_ok());
        frame[UDP_CHECKSUM..UDP_CHECKSUM + 2].fill(0);
        assert_eq!(router.send(1, &frame).is_ok(), takes);
    }
}

/// The kernel gets what is for itself, or has expired, as it came: in its datagram, by the port that this came in by.
fn check_put_back(inside: &[u8], padding: usize) {
    let mut router = Router::new(device(|_| {}));
    let frame = tunnelled(2, 0, VNI, &[inside, &vec![0; padding][..]].concat());
    let punted = router.send(1, &frame).unwrap_err().unwrap();
    assert_eq!(punted.port(), NETWORK, "it was taken out");
    let packet = put_back_by_punt(punted);
    assert_eq!((packet.port(), packet.data()), (1, &frame[..]));
}

/// What the kernel gets by the underlay's port.
fn put_back_by_punt(punted: Packet) -> Packet {
    let mut punt = Punt::new(Entrances::new(2));
    let mut kept = KeptOutputs::of(&punt);
    let mut burst = Burst::new();
    burst.push(punted).unwrap();
    punt.process(&mut burst, &mut kept.outputs());
    kept.burst(1).take_first().unwrap()
}

/// A packet of TCP, its checksum left to hardware, to be cut into segments with so many bytes of data.
fn to_be_cut(router: &Router, port: u16, frame: &[u8], around: usize, size: u16) -> Packet {
    let mut packet = router.packet(frame, port);
    let (l3, l4, payload) = (around as u16 + 14, around as u16 + 34, around as u16 + 54);
    packet.set_checksum(Checksum::Partial { start: l4, offset: 16 });
    let kind = SegmentationKind::Tcp4;
    packet.set_segmentation(Some(Segmentation { kind, size, congestion: false }));
    packet.set_layer_offsets(if around == 0 {
        LayerOffsets { l3, l4, payload, ..LayerOffsets::default() }
    } else {
        LayerOffsets { l3: 14, l4: 34, inner_l3: l3, inner_l4: l4, payload }
    });
    packet
}

/// A frame with 1,000 bytes of TCP from there to there.
fn tcp(to_mac: [u8; 6], from_mac: [u8; 6], source: [u8; 4], destination: [u8; 4]) -> Vec<u8> {
    let fields = Ipv4Fields { identification: 9, ..Ipv4Fields::new(source.into(), destination.into()) };
    let frame = Frame::new().ethernet(MacAddress(to_mac), MacAddress(from_mac)).ipv4(fields);
    frame.tcp(TcpFields::new(7, 80)).payload(&[5; 1000]).to_vec().unwrap()
}

fn cut(packet: Packet) -> Vec<Vec<u8>> {
    let mut segments = Segments::new(packet).expect("it can be cut");
    std::iter::from_fn(|| segments.make_next()).map(|segment| segment.data().to_vec()).collect()
}

#[test]
fn what_is_to_be_cut_enters_and_leaves_tunnels_as_one() {
    let mut router = Router::new(device(|_| {}));
    let frame = tcp(mac(LAN as u8), HOST, [192, 0, 2, 2], [10, 9, 0, 2]);
    router.run(0, to_be_cut(&router, 0, &frame, 0, 400));
    let packet = router.take(Forwarder::FIRST_PORT + usize::from(TUNNELS)).unwrap();
    router.run(ENTRANCE, packet);
    let datagrams = cut(router.take(Forwarder::FIRST_PORT + 1).unwrap());
    let identification = |datagram: &[u8]| u16::from_be_bytes([datagram[18], datagram[19]]);
    assert_eq!(datagrams.len(), 3);
    assert!(datagrams.windows(2).all(|two| identification(&two[1]) == identification(&two[0]) + 1));
    // The next one's are not among those.
    let (_, next) = router.send(0, &from_lan(0, b"")).unwrap();
    let used = identification(&datagrams[0])..=identification(&datagrams[2]);
    assert!(!used.contains(&identification(next.data())));

    // As one it comes out of a tunnel, and goes on.
    let back = tcp(mac(BRIDGE as u8), STATION, [10, 9, 0, 2], [192, 0, 2, 2]);
    router.run(0, to_be_cut(&router, 1, &tunnelled_without_checksum(&back), 50, 400));
    let segments = cut(router.take(Forwarder::FIRST_PORT).unwrap());
    assert_eq!(segments.iter().map(Vec::len).collect::<Vec<_>>(), [454, 454, 254]);
    for segment in &segments {
        let flow = warmlane_wire::Flow::of_frame(segment).unwrap();
        assert_eq!(flow.destination, ip("192.0.2.2"));
    }
}

fn tunnelled_without_checksum(inside: &[u8]) -> Vec<u8> {
    let mut frame = tunnelled(2, 0, VNI, inside);
    frame[40..42].fill(0);
    frame
}

/// For itself the kernel gets the datagram as it came, to be cut in the tunnel.
#[test]
fn what_is_to_be_cut_is_put_back_as_that() {
    let mut router = Router::new(device(|_| {}));
    let inside = tcp(mac(BRIDGE as u8), STATION, [10, 9, 0, 2], [10, 9, 0, 1]);
    let packet = to_be_cut(&router, 1, &tunnelled_without_checksum(&inside), 50, 400);
    let (layers, came) = (packet.layer_offsets(), packet.data().to_vec());
    router.run(0, packet);
    let punted = router.take(Forwarder::PUNT).unwrap();
    assert_eq!(punted.port(), NETWORK, "it was taken out");
    let packet = put_back_by_punt(punted);
    assert_eq!((packet.data(), packet.layer_offsets()), (&came[..], layers));
    assert_eq!(packet.checksum(), Checksum::Partial { start: 84, offset: 16 });
    assert_eq!(cut(packet).len(), 3);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn the_kernel_gets_datagrams_as_they_came(
        payload in prop::collection::vec(any::<u8>(), 0..200),
        padding in 0_usize..30,
        expires: bool,
    ) {
        let (to, ttl) = if expires { ([192, 0, 2, 2], 1) } else { ([10, 9, 0, 1], 64) };
        check_put_back(&from_station(to, ttl, &payload), padding);
    }

    /// Two routers, of which one sends and the other receives: but for addresses and TTL all of a packet arrives.
    #[test]
    fn what_goes_in_comes_out(payload in prop::collection::vec(any::<u8>(), 0..600), class: u8) {
        let mut router = Router::new(device(|vxlan| vxlan.tos = 1));
        let (_, packet) = router.send(0, &from_lan(class, &payload)).unwrap();
        let (_, mut inside) = unwrap(&packet);
        // As the other router would send it back.
        inside[..6].copy_from_slice(&mac(BRIDGE as u8));
        inside[6..12].copy_from_slice(&STATION);
        inside[26..30].copy_from_slice(&[10, 9, 0, 2]);
        inside[30..34].copy_from_slice(&[192, 0, 2, 2]);
        let (port, packet) = router.send(1, &tunnelled(2, class & 3, VNI, &inside)).unwrap();
        prop_assert_eq!((port, &packet.data()[34..]), (0, &inside[34..]));
        prop_assert_eq!(packet.data()[15], class);
    }
}
