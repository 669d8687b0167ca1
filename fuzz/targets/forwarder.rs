//! Any frames through the whole forwarder: no panic, every packet accounted for, every buffer back, and whatever is
//! sent is a correct packet.
//!
//! The input is a list of frames: a byte of [`Flags`], two bytes of length (little endian), and the frame.

#![no_main]

mod frames;

use std::sync::{Arc, OnceLock};

use frames::BURST;
use libfuzzer_sys::fuzz_target;
use warmlane_forward::control::config::IcmpLimits;
use warmlane_forward::control::{Config, Routes};
use warmlane_forward::datapath::Forwarder;
use warmlane_lane::{KeptOutputs, Stage as _};
use warmlane_mem::{Burst, Packet, Pool};
use warmlane_wire::{EtherType, LinkLayer, checksum, ipv4, ipv6};

/// What to do with a frame before it is forwarded.
#[derive(Clone, Copy)]
struct Flags(u8);

impl Flags {
    /// By which of the two ports it comes in.
    fn port(self) -> u16 {
        u16::from(self.0 & 1)
    }

    /// Whether it is cut into a chain of short segments.
    fn chained(self) -> bool {
        self.0 & 2 != 0
    }

    /// Whether its IPv4 header gets a right checksum, which chance does not find.
    fn repaired(self) -> bool {
        self.0 & 4 != 0
    }

    /// Whether the frames so far are forwarded after this one, as one burst.
    fn last(self) -> bool {
        self.0 & 8 != 0
    }

    /// Of the first frame: whether there are flows that don't go by their routes.
    fn with_flows(self) -> bool {
        self.0 & 16 != 0
    }
}

const SEGMENT: usize = 48;

struct World {
    routes: Arc<Routes>,
    /// The same without flows, which few have.
    only_routes: Arc<Routes>,
    limits: IcmpLimits,
    pool: Pool,
}

fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| {
        let mut config =
            Config::from_toml(include_str!("../seeds/config/router.toml")).expect("the seed is correct");
        let routes = Arc::new(Routes::from_config(&config).expect("the seed's routes are correct"));
        config.flows.clear();
        let only_routes =
            Arc::new(Routes::from_config(&config).expect("they are correct without flows, too"));
        World { routes, only_routes, limits: config.icmp, pool: frames::pool() }
    })
}

/// Corrects the header checksum, if there is an IPv4 header.
fn repair(frame: &mut [u8]) {
    let Ok(link) = LinkLayer::parse(frame) else { return };
    let (ethertype, start) = (link.ethertype, link.header_length());
    let Some(&first) = frame.get(start) else { return };
    if let Some(header) = frame.get_mut(start..start + 4 * usize::from(first & 15))
        && ethertype == EtherType::IPV4
        && header.len() >= ipv4::HEADER_LENGTH
    {
        header[10..12].fill(0);
        let sum = checksum::checksum(header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }
}

fn check_sent(packet: &Packet) {
    let mut frame = vec![0; packet.packet_length()];
    packet.copy_to(&mut frame);
    let link = LinkLayer::parse(&frame).expect("an Ethernet header is sent");
    match link.ethertype {
        EtherType::IPV4 => drop(ipv4::check(link.payload).expect("a correct IPv4 packet is sent")),
        EtherType::IPV6 => drop(ipv6::check(link.payload).expect("a correct IPv6 packet is sent")),
        _ => {}
    }
}

/// How many ports the world has.
const PORTS: usize = 2;

fn forward(world: &World, forwarder: &mut Forwarder, burst: &mut Burst) {
    let before = forwarder.view().sent();
    let received = forwarder.view().received() + burst.len() as u64;
    // As much space as a burst has: chance can fill it with fragments and answers.
    let mut kept = KeptOutputs::of(forwarder).without(Forwarder::PUNT).without(Forwarder::HOLD);
    forwarder.process(burst, &mut kept.outputs());
    assert!(burst.is_empty());
    let counters = forwarder.view();
    assert_eq!(counters.received(), received);
    assert_eq!(counters.balance(), 0, "{counters:?}");
    let mut sent = 0;
    for port in 0..PORTS {
        let burst = kept.burst(Forwarder::FIRST_PORT + port);
        sent += burst.len() as u64;
        burst.iter().for_each(check_sent);
    }
    assert_eq!(counters.sent() - before, sent, "{counters:?}");
    drop(kept);
    assert_eq!(world.pool.ledger().outstanding(), 0);
}

fuzz_target!(|bytes: &[u8]| {
    let world = world();
    let with_flows = bytes.first().is_some_and(|&flags| Flags(flags).with_flows());
    let routes = if with_flows { &world.routes } else { &world.only_routes };
    let mut forwarder = Forwarder::new(Arc::clone(routes), world.pool.clone(), world.limits);
    let mut burst = Burst::with_limit(BURST);
    for (flags, frame) in frames::list(bytes) {
        let flags = Flags(flags);
        let mut frame = frame.to_vec();
        if flags.repaired() {
            repair(&mut frame);
        }
        if let Some(mut packet) = frames::packet(&world.pool, &frame, flags.chained().then_some(SEGMENT)) {
            packet.set_port(flags.port());
            assert!(burst.push(packet).is_ok());
        }
        if burst.space() == 0 || flags.last() {
            forward(world, &mut forwarder, &mut burst);
        }
    }
    forward(world, &mut forwarder, &mut burst);
});
