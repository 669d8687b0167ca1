//! Any frames through the ends of a router's tunnels, and its forwarder: no panic, every packet accounted for, every buffer back, and what
//! the kernel gets of datagrams that were unpacked is what came in.
//!
//! The input is a list of frames: a byte of [`Flags`], two bytes of length (little endian), and the frame.

#![no_main]

mod frames;

use std::cell::RefCell;
use std::net::IpAddr;
use std::sync::OnceLock;

use frames::BURST;
use libfuzzer_sys::fuzz_target;
use warmlane_forward::control::IpTunnel;
use warmlane_forward::control::config::IcmpLimits;
use warmlane_forward::datapath::Forwarder;
use warmlane_lane::{KeptOutputs, Stage as _};
use warmlane_mem::{Burst, Pool};
use warmlane_router::control::kernel::{
    Address, Event, IpTunnelDevice, Link, Neighbour, NeighbourState, Placement, Route, RouteKey, RoutePath,
    StationKey, Target, TunnelEnd, View, Vxlan,
};
use warmlane_router::control::{Fib, RoutedPort};
use warmlane_router::datapath::{Entrances, Punt, TunnelEnds};
use warmlane_wire::{
    EtherType, Frame, IpProtocol, Ipv4Fields, Ipv6Fields, MacAddress, ethernet, gre, ipv4, vxlan,
};

/// What to do with a frame.
#[derive(Clone, Copy)]
struct Flags(u8);

impl Flags {
    /// Whether it comes in by the underlay, else by the LAN.
    fn underlay(self) -> bool {
        self.0 & 1 != 0
    }

    /// Whether it is a packet without a frame in a tunnel, behind GRE or not.
    fn packet(self) -> bool {
        self.0 & 2 != 0
    }

    /// Whether it is cut into a chain of short segments.
    fn chained(self) -> bool {
        self.0 & 4 != 0
    }

    /// Whether it comes in a tunnel of right headers, but for the first byte: that is their traffic class.
    fn tunnelled(self) -> bool {
        self.0 & 16 != 0
    }

    /// Whether that is the tunnel over IPv6, or GRE.
    fn other(self) -> bool {
        self.0 & 32 != 0
    }

    /// Whether the UDP header in the tunnel has a checksum.
    fn summed(self) -> bool {
        self.0 & 64 != 0
    }

    /// Whether the frame inside gets the addresses of the network and its station.
    fn addressed(self) -> bool {
        self.0 & 128 != 0
    }
}

const SEGMENT: usize = 160;
const PORTS: usize = 2;
/// The output that leads into tunnels, and the input that comes from there.
const TUNNELS: usize = Forwarder::FIRST_PORT + PORTS;
const ENTRANCE: usize = 1;

const LAN: u32 = 1;
const UNDERLAY: u32 = 2;
const BRIDGE: u32 = 3;
const DEVICE: u32 = 4;
const OTHER_BRIDGE: u32 = 5;
const OTHER_DEVICE: u32 = 6;
const PLAIN: u32 = 7;
const GRE: u32 = 8;
const KEY: u32 = 7;
const STATION: [u8; 6] = [2, 0, 0, 0, 0, 0x22];

fn mac(link: u32) -> [u8; 6] {
    [2, 0, 0, 0, 0, link as u8]
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// A router of two networks of stations, over IPv4 and IPv6, the second of which learns; and two behind tunnels without frames.
struct Router {
    stage: (TunnelEnds, Forwarder),
    punt: Punt,
    _fib: Fib,
}

fn pool() -> &'static Pool {
    static POOL: OnceLock<Pool> = OnceLock::new();
    POOL.get_or_init(frames::pool)
}

fn events() -> Vec<Event> {
    let link = |index| Link {
        index,
        name: format!("link{index}"),
        is_up: true,
        has_carrier: true,
        mac: Some(mac(index)),
        mtu: 1500,
        ..Link::default()
    };
    let bridge = |index| Event::Link(Link { kind: "bridge".to_owned(), ..link(index) });
    let device = |index, master, identifier, local: &str| {
        let vxlan = Vxlan {
            identifier,
            local: Some(ip(local)),
            lower: None,
            udp_port: vxlan::PORT,
            ttl: 0,
            tos: 1,
            learns: identifier == 6,
            source_ports: None,
            udp_checksum: true,
            no_checksum_over_ipv6: false,
            takes_no_checksum_over_ipv6: true,
            dont_fragment: false,
            kernel_only: None,
        };
        Event::Link(Link { vxlan: Some(vxlan), master: Some(master), ..link(index) })
    };
    let packets = |index, tunnel| {
        let device = IpTunnelDevice {
            local: [192, 0, 2, 1].into(),
            remote: [192, 0, 2, 2].into(),
            lower: None,
            tunnel: [tunnel; 2],
            carries: [true; 2],
            ttl: 0,
            tos: 1,
            kernel_only: None,
        };
        Event::Link(Link { ip_tunnel: Some(device), mac: None, ..link(index) })
    };
    let address = |link, text: &str, length| Event::Address(Address { link, address: ip(text), length });
    let route = |prefix: &str, target: Target| {
        let table = if target == Target::Local { 255 } else { 254 };
        let key = RouteKey { table, prefix: prefix.parse().expect("a prefix") };
        let route = Route { metric: 0, tos: 0, source: None, protocol: 2, mtu: 0, target: target.into() };
        Event::Route(key, route, Placement::Append)
    };
    let on = |link| Target::Paths(vec![RoutePath { link, gateway: None, weight: 1, is_dead: false }]);
    let neighbour = |link, address: &str, mac| {
        Event::Neighbour(Neighbour { link, address: ip(address), state: NeighbourState::Known(mac) })
    };
    let behind = |device, address: &str| {
        let end = TunnelEnd { address: ip(address), udp_port: None, identifier: None, has_link: false };
        Event::Behind(device, STATION, Some(end))
    };
    let station = |bridge, member| Event::Station(StationKey { bridge, mac: STATION, vlan: 0 }, member);
    vec![
        Event::Link(link(LAN)),
        Event::Link(link(UNDERLAY)),
        bridge(BRIDGE),
        bridge(OTHER_BRIDGE),
        device(DEVICE, BRIDGE, 4, "192.0.2.1"),
        device(OTHER_DEVICE, OTHER_BRIDGE, 6, "2001:db8::1"),
        packets(PLAIN, IpTunnel::Plain),
        packets(GRE, IpTunnel::Gre(Some(KEY))),
        address(LAN, "10.1.0.1", 24),
        address(UNDERLAY, "192.0.2.1", 24),
        address(UNDERLAY, "2001:db8::1", 64),
        address(BRIDGE, "10.9.0.1", 24),
        address(OTHER_BRIDGE, "2001:db8:9::1", 64),
        route("10.1.0.0/16", on(LAN)),
        route("192.0.2.0/24", on(UNDERLAY)),
        route("2001:db8::/64", on(UNDERLAY)),
        route("10.9.0.0/16", on(BRIDGE)),
        route("2001:db8:9::/64", on(OTHER_BRIDGE)),
        route("10.10.0.0/16", on(PLAIN)),
        route("2001:db8:10::/64", on(PLAIN)),
        route("10.11.0.0/16", on(GRE)),
        route("2001:db8:11::/64", on(GRE)),
        route("192.0.2.1/32", Target::Local),
        route("2001:db8::1/128", Target::Local),
        route("10.9.0.1/32", Target::Local),
        neighbour(LAN, "10.1.0.2", STATION),
        neighbour(UNDERLAY, "192.0.2.2", STATION),
        neighbour(UNDERLAY, "2001:db8::2", STATION),
        neighbour(BRIDGE, "10.9.0.2", STATION),
        neighbour(OTHER_BRIDGE, "2001:db8:9::2", STATION),
        station(BRIDGE, DEVICE),
        station(OTHER_BRIDGE, OTHER_DEVICE),
        behind(DEVICE, "192.0.2.2"),
        behind(OTHER_DEVICE, "2001:db8::2"),
    ]
}

impl Router {
    fn new() -> Self {
        let port = |link| RoutedPort { name: format!("link{link}"), link, mtu_limit: 1500 };
        let mut fib = Fib::new(vec![port(LAN), port(UNDERLAY)], 3, 0).expect("empty tables");
        let mut view = View::default();
        events().into_iter().for_each(|event| view.apply(event));
        let changes = view.take_changes();
        fib.update(&view, &changes).expect("a few routes");
        let lane = |name| fib.lane(name).expect("lanes are few");
        let tunnels = TunnelEnds::new(lane("tunnels"), 0);
        let limits = IcmpLimits { rate: u32::MAX, burst: u32::MAX };
        let stage = (tunnels, Forwarder::new(lane("forwarder"), pool().clone(), limits));
        Self { stage, punt: Punt::new(Entrances::new(PORTS)), _fib: fib }
    }
}

thread_local! {
    static ROUTER: RefCell<Router> = RefCell::new(Router::new());
}

/// The frame in the middle of right headers from another tunnel end.
fn in_tunnel(bytes: &[u8], flags: Flags) -> Option<Vec<u8>> {
    let (class, inside) = bytes.split_first()?;
    let mut inside = inside.to_vec();
    let (identifier, network) = if flags.other() { (6, OTHER_BRIDGE) } else { (4, BRIDGE) };
    if flags.addressed()
        && let Some(addresses) = inside.first_chunk_mut::<12>()
    {
        addresses[..6].copy_from_slice(&mac(network));
        addresses[6..].copy_from_slice(&STATION);
    }
    let data = [&vxlan::header(identifier)[..], &inside].concat();
    let link = Frame::new().ethernet(MacAddress(mac(UNDERLAY)), MacAddress(STATION));
    let packet = if flags.other() {
        let fields = Ipv6Fields::new("2001:db8::2".parse().ok()?, "2001:db8::1".parse().ok()?);
        link.ipv6(Ipv6Fields { traffic_class: *class, ..fields })
    } else {
        let fields = Ipv4Fields::new([192, 0, 2, 2].into(), [192, 0, 2, 1].into());
        link.ipv4(Ipv4Fields { traffic_class: *class, ..fields })
    };
    let mut packet = packet.udp(50_000, vxlan::PORT).payload(&data).to_vec().ok()?;
    if !flags.summed() {
        let at = packet.len().checked_sub(data.len() + 2)?;
        packet[at..at + 2].fill(0);
    }
    Some(packet)
}

/// The packet behind right headers without a frame of its own.
fn in_packet(bytes: &[u8], flags: Flags) -> Option<Vec<u8>> {
    let (class, inside) = bytes.split_first()?;
    let is_ipv6 = inside.first()? >> 4 == 6;
    let (mut between, protocol) = (Vec::new(), if is_ipv6 { IpProtocol::IPV6 } else { IpProtocol::IPV4 });
    let protocol = if flags.other() {
        let inner = if is_ipv6 { EtherType::IPV6 } else { EtherType::IPV4 };
        between.extend(gre::header_with_key(inner, KEY));
        IpProtocol::GRE
    } else {
        protocol
    };
    let fields = Ipv4Fields::new([192, 0, 2, 2].into(), [192, 0, 2, 1].into());
    let total = u16::try_from(ipv4::HEADER_LENGTH + between.len() + inside.len()).ok()?;
    let header = Ipv4Fields { traffic_class: *class, ..fields }.header(protocol, total);
    let mut link = [0; ethernet::HEADER_LENGTH];
    ethernet::write(&mut link, MacAddress(mac(UNDERLAY)), MacAddress(STATION), EtherType::IPV4);
    Some([&link[..], &header, &between, inside].concat())
}

fn bytes(packet: &warmlane_mem::Packet) -> Vec<u8> {
    packet.segment_data().flatten().copied().collect()
}

/// DSCP and ECN of what is around.
fn says_congestion(frame: &[u8]) -> bool {
    match frame.get(14).map(|first| first >> 4) {
        Some(4) => frame[15] & 3 != 0,
        Some(6) => frame[15] & 0x30 != 0,
        _ => false,
    }
}

fn pass(router: &mut Router, frame: &[u8], flags: Flags) {
    let Some(mut packet) = frames::packet(pool(), frame, flags.chained().then_some(SEGMENT)) else { return };
    packet.set_port(u16::from(flags.underlay()));
    let mut burst = Burst::with_limit(BURST);
    assert!(burst.push(packet).is_ok());
    let Router { stage, punt, .. } = router;
    let view = stage.0.counters_view();
    let before = view.arrived();
    let mut kept = KeptOutputs::of(stage);
    stage.poll(0, &mut Burst::new(), &mut kept.outputs());
    stage.process(&mut burst, &mut kept.outputs());
    // What goes into tunnels comes back; in fragments there may be several.
    for _ in 0..4 {
        let mut entering = Burst::new();
        kept.burst(TUNNELS).move_to(&mut entering);
        if !entering.is_empty() {
            stage.process_input(ENTRANCE, &mut entering, &mut kept.outputs());
        }
    }
    assert!(kept.burst(TUNNELS).is_empty(), "tunnels don't lead into tunnels");
    assert_eq!((view.balance(), stage.1.view().balance()), (0, 0), "{view:?}");
    // What came out of a tunnel, and is the kernel's, gets there as it came.
    let mut punted = Burst::new();
    kept.burst(Forwarder::PUNT).move_to(&mut punted);
    if !punted.is_empty() {
        let mut to_kernel = KeptOutputs::of(punt);
        punt.process(&mut punted, &mut to_kernel.outputs());
        for port in 0..PORTS {
            for packet in to_kernel.burst(port).iter() {
                assert_eq!(usize::from(packet.port()), port);
                // Congestion that was told on the way is inside by now.
                if view.arrived() > before && !says_congestion(frame) {
                    assert_eq!(bytes(packet), frame);
                }
            }
        }
    }
    drop(kept);
    assert_eq!(pool().ledger().outstanding(), 0);
}

fuzz_target!(|input: &[u8]| {
    ROUTER.with_borrow_mut(|router| {
        for (flags, frame) in frames::list(input) {
            let flags = Flags(flags);
            if !flags.tunnelled() {
                pass(router, frame, flags);
            } else if let Some(frame) =
                if flags.packet() { in_packet(frame, flags) } else { in_tunnel(frame, flags) }
            {
                pass(router, &frame, Flags(flags.0 | 1));
            }
        }
    });
});
