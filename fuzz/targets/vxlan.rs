//! Any frames through a VXLAN and GENEVE gateway: no panic, every packet accounted for, every buffer back, and whatever is sent to a tunnel end is right
//! there and has the same frame in it.
//!
//! The input is a list of frames: a byte of [`Flags`], two bytes of length (little endian), and the frame.

#![no_main]

mod frames;

use std::cell::RefCell;
use std::net::IpAddr;
use std::sync::OnceLock;

use frames::BURST;
use libfuzzer_sys::fuzz_target;
use warmlane::port::software_offload::complete_checksum;
use warmlane_forward::control::TunnelProtocol::{self, Geneve, Vxlan};
use warmlane_forward::control::config::{GroupConfig, IcmpLimits, OverlayConfig};
use warmlane_lane::{KeptOutputs, Stage as _};
use warmlane_mem::{Burst, Checksum, Packet, Pool, Vlan, VlanTci};
use warmlane_vxlan::{Gateway, PortFacts, Reason};
use warmlane_wire::{
    Frame, Ipv4Fields, Ipv6Fields, LinkLayer, MacAddress, checksum, ethernet, geneve, ipv4, udp, vxlan,
};

/// What to do with a frame before the gateway gets it.
#[derive(Clone, Copy)]
struct Flags(u8);

impl Flags {
    /// By which of the ports it comes in: the underlay, an access, one whose VLAN 7 is an access, and none that there is. What comes in a tunnel
    /// does so by one of the first two.
    fn port(self) -> u16 {
        u16::from(self.0 & if self.tunnelled() { 1 } else { 3 })
    }

    /// Whether it is cut into a chain of short segments.
    fn chained(self) -> bool {
        self.0 & 4 != 0
    }

    /// Whether the frames so far pass the gateway after this one, as one burst.
    fn last(self) -> bool {
        self.0 & 8 != 0
    }

    /// Whether it comes in a tunnel of right headers, but for the first byte: that is their traffic class. Of GENEVE, two more bytes begin the
    /// header: version, length of options, and flags.
    fn tunnelled(self) -> bool {
        self.0 & 16 != 0
    }

    /// By which protocol it comes in a tunnel.
    fn protocol(self) -> TunnelProtocol {
        if self.0 & 2 != 0 { Geneve } else { Vxlan }
    }

    /// Whether that is the tunnel over IPv6; of another frame, whether its IPv4 header gets a right checksum.
    fn other(self) -> bool {
        self.0 & 32 != 0
    }

    /// Whether the tunnel is one of several. Of another frame, whether a tag of VLAN 7 is beside it.
    fn second(self) -> bool {
        self.0 & 64 != 0
    }

    /// Whether the UDP header in the tunnel has a checksum.
    fn summed(self) -> bool {
        self.0 & 128 != 0
    }

    /// Of another frame, whether its transport checksum is left to hardware; its last two bytes say where that is.
    fn left(self) -> bool {
        self.summed() && !self.tunnelled()
    }
}

const SEGMENT: usize = 96;
const PORTS: usize = 3;
const US: MacAddress = MacAddress([2, 0, 0, 0, 0, 0xee]);
const VLAN: u16 = 7;

/// What the other end may never find wrong with a packet of ours. It may drop frames that hosts made wrong.
const OUR_FAULTS: [Reason; 10] = [
    Reason::OuterLength,
    Reason::OuterChecksum,
    Reason::NoIdentifier,
    Reason::Version,
    Reason::CriticalOption,
    Reason::ControlMessage,
    Reason::NotEthernet,
    Reason::UnknownNetwork,
    Reason::UnknownRemote,
    Reason::NoSpace,
];

fn address(ipv6: bool, number: u8) -> IpAddr {
    if ipv6 {
        IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(number)])
    } else {
        IpAddr::from([192, 0, 2, number])
    }
}

const fn identifier(ipv6: bool) -> u32 {
    if ipv6 { 6 } else { 0x40_0004 }
}

/// A network between tunnel ends, the first of which is at home.
fn network(
    protocol: TunnelProtocol,
    ipv6: bool,
    local: u8,
    remotes: &[u8],
    access: (usize, Option<u16>),
) -> OverlayConfig {
    OverlayConfig {
        protocol,
        identifier: identifier(ipv6),
        local: address(ipv6, local),
        remotes: remotes.iter().map(|number| address(ipv6, *number)).collect(),
        group: None,
        access: vec![access],
        stations: vec![(MacAddress([2, 0, 0, 0, 0, 0xb]), 0)],
        udp_port: protocol.udp_port(),
        mtu: 1450,
        ttl: 64,
        udp_checksum: ipv6,
        inner_checksums: ipv6,
        neighbour_suppression: false,
        hosts: Vec::new(),
        age_seconds: 300,
    }
}

fn pool() -> &'static Pool {
    static POOL: OnceLock<Pool> = OnceLock::new();
    POOL.get_or_init(frames::pool)
}

fn gateway(networks: Vec<OverlayConfig>, ports: Vec<PortFacts>) -> Gateway {
    Gateway::new(networks, ports, pool().clone(), IcmpLimits { rate: u32::MAX, burst: 1 })
}

/// The gateway under test: two networks by each protocol, and three ports.
fn near() -> Gateway {
    let here = |protocol, ipv6, access| network(protocol, ipv6, 1, &[2, 3], access);
    let mut networks = vec![
        here(Vxlan, false, (1, None)),
        here(Vxlan, true, (2, Some(VLAN + 1))),
        here(Geneve, false, (2, Some(VLAN + 2))),
        here(Geneve, true, (2, Some(VLAN + 3))),
    ];
    networks[0].access.push((2, Some(VLAN)));
    // Questions of its hosts are answered here, for a station that is known from the start and for those that were heard of.
    networks[0].neighbour_suppression = true;
    networks[0].hosts = vec![(IpAddr::from([10, 0, 0, 2]), MacAddress([2, 0, 0, 0, 0, 0xb]))];
    // What is for all goes to a group, and whoever sends is a tunnel end.
    for network in &mut networks[2..] {
        network.group = group(network);
        (network.remotes, network.stations) = (Vec::new(), Vec::new());
    }
    gateway(networks, vec![PortFacts { mac: Some(US), mtu: 1500 }; PORTS])
}

/// All tunnel ends of these networks, in one; whatever is unpacked leaves by its second port.
fn far() -> Gateway {
    let ends = [(false, 2), (false, 3), (true, 2), (true, 3)];
    let of = |protocol| ends.map(|(ipv6, local)| network(protocol, ipv6, local, &[1], (1, None)));
    let mut networks = [of(Vxlan), of(Geneve)].concat();
    for network in &mut networks[ends.len()..] {
        network.group = group(network);
    }
    gateway(networks, vec![PortFacts { mac: None, mtu: 1500 }; 2])
}

fn group(network: &OverlayConfig) -> Option<GroupConfig> {
    let is_ipv4 = network.local.is_ipv4();
    let address = if is_ipv4 { [239, 1, 1, 1].into() } else { [0xff0e, 0, 0, 0, 0, 0, 0, 1].into() };
    Some(GroupConfig { address, port: 0, source: network.local })
}

thread_local! {
    /// It is the same for all inputs: no promise here depends on what it has learned.
    static FAR: RefCell<Gateway> = RefCell::new(far());
}

/// The frame in the middle of right headers from another tunnel end.
fn in_tunnel(bytes: &[u8], flags: Flags) -> Option<Vec<u8>> {
    let (class, mut inside) = bytes.split_first()?;
    let (ipv6, remote) = (flags.other(), if flags.second() { 3 } else { 2 });
    let mut header = flags.protocol().header(identifier(ipv6));
    if flags.protocol() == Geneve {
        let (begin, rest) = inside.split_first_chunk::<2>()?;
        header[..2].copy_from_slice(begin);
        inside = rest;
    }
    let data = [&header[..], inside].concat();
    let link = Frame::new().ethernet(US, MacAddress([2, 0, 0, 0, 1, remote]));
    let packet = match (address(ipv6, remote), address(ipv6, 1)) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            link.ipv4(Ipv4Fields { traffic_class: *class, ..Ipv4Fields::new(source, destination) })
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            link.ipv6(Ipv6Fields { traffic_class: *class, ..Ipv6Fields::new(source, destination) })
        }
        _ => return None,
    };
    let mut packet = packet.udp(50_000, flags.protocol().udp_port()).payload(&data).to_vec().ok()?;
    if !flags.summed() {
        let at = packet.len().checked_sub(data.len() + 2)?;
        packet[at..at + 2].fill(0);
    }
    Some(packet)
}

/// Corrects the header checksum, if there is an IPv4 header.
fn repair(frame: &mut [u8]) {
    if let Some(header) = frame.get_mut(ethernet::HEADER_LENGTH..).and_then(<[u8]>::first_chunk_mut)
        && header[0] == 0x45
    {
        header[10..12].fill(0);
        let header: &mut [u8; ipv4::HEADER_LENGTH] = header;
        let sum = checksum::checksum(header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }
}

fn packet(bytes: &[u8], flags: Flags) -> Option<Packet> {
    let mut packet = frames::packet(pool(), bytes, flags.chained().then_some(SEGMENT))?;
    packet.set_port(flags.port());
    if flags.second() && !flags.tunnelled() {
        packet.set_vlan(Vlan::Stripped(VlanTci { control: VLAN, is_service: false }));
    }
    if flags.left()
        && let [.., start, offset] = *bytes
        // Drivers refuse it elsewhere.
        && usize::from(start) + usize::from(offset) + 2 <= packet.len()
    {
        packet.set_checksum(Checksum::Partial { start: start.into(), offset });
    }
    Some(packet)
}

fn bytes(packet: &Packet) -> Vec<u8> {
    packet.segment_data().flatten().copied().collect()
}

/// What is made of one frame for tunnel ends is the frame itself, once they have unpacked it, and nothing of it is our fault.
fn check_far(made: &mut Burst) {
    FAR.with_borrow_mut(|far| {
        let view = far.counters_view();
        let faults = || OUR_FAULTS.map(|reason| view.drops().get(reason));
        let before = (faults(), view.from_tunnels());
        let frames: Vec<_> = made.iter().map(|packet| inside(&bytes(packet)).to_vec()).collect();
        let count = made.len() as u64;
        made.iter_mut().for_each(|packet| packet.set_port(0));
        let mut kept = KeptOutputs::of(far);
        far.process(made, &mut kept.outputs());
        assert_eq!((faults(), view.from_tunnels()), (before.0, before.1 + count), "{view:?}");
        assert_eq!(view.balance(), 0, "{view:?}");
        for packet in kept.burst(1).iter_mut() {
            assert!(frames.contains(&bytes(packet)), "{packet:?}");
            assert_eq!(complete_checksum(packet), Ok(()), "{packet:?}");
        }
    });
}

/// The frame in a packet to a tunnel end, whose headers we wrote: they have no options.
fn inside(packet: &[u8]) -> &[u8] {
    let link = LinkLayer::parse(packet).expect("an Ethernet header is sent");
    let ip = if link.payload[0] >> 4 == 4 { 20 } else { 40 };
    let (udp, data) = udp::parse(&link.payload[ip..]).expect("a UDP header is sent");
    if udp.destination_port() == geneve::PORT {
        geneve::parse(data).expect("a GENEVE header is sent").1
    } else {
        vxlan::parse(data).expect("a VXLAN header is sent").1
    }
}

fn pass(near: &mut Gateway, burst: &mut Burst) {
    let view = near.counters_view();
    let taken = || view.from_access() + view.from_tunnels();
    let before = (taken(), view.to_tunnels(), view.to_access() + view.to_groups());
    let alone = burst.len() == 1;
    let given = burst.len() as u64;
    let mut kept = KeptOutputs::of(near);
    near.process(burst, &mut kept.outputs());
    assert_eq!(view.balance(), 0, "{view:?}");
    let made = view.to_tunnels() - before.1;
    assert_eq!(burst.len() as u64, given - (taken() - before.0) + made, "{view:?}");
    let left: usize = (0..PORTS).map(|port| kept.burst(port).len()).sum();
    assert_eq!(left as u64, view.to_access() + view.to_groups() - before.2, "{view:?}");
    // One that passed would be among those that were made.
    if alone && made > 0 {
        check_far(burst);
    }
    // Nothing else goes there: the port is no access.
    check_far(kept.burst(0));
    burst.clear();
    drop(kept);
    assert_eq!(pool().ledger().outstanding(), 0);
}

fuzz_target!(|bytes: &[u8]| {
    let mut near = near();
    let mut burst = Burst::with_limit(BURST);
    for (flags, frame) in frames::list(bytes) {
        let flags = Flags(flags);
        let mut frame = frame.to_vec();
        if flags.tunnelled() {
            let Some(packet) = in_tunnel(&frame, flags) else { continue };
            frame = packet;
        } else if flags.other() {
            repair(&mut frame);
        }
        if let Some(packet) = packet(&frame, flags) {
            assert!(burst.push(packet).is_ok());
        }
        if burst.space() == 0 || flags.last() {
            pass(&mut near, &mut burst);
        }
    }
    pass(&mut near, &mut burst);
});
