//! Cycles that forwarding takes, per packet, on one lane: where they go.
//!
//! `cargo run --release -p warmlane-forward --example cost -- [ipv4|ipv6|mixed] [frames] [ports]`
//!
//! Frames of 64 bytes to random addresses inside the embedded Internet table are copied into buffers (as a replay
//! port does), forwarded, and freed (as a drop port does). Each line is the least of many rounds. "Pool and copy" does
//! all but the forwarding; "forwarding" is the difference; "lookup" is the table alone on the same addresses.

use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;

use warmlane_forward::control::Routes;
use warmlane_forward::control::config::{FullTableConfig, IcmpLimits};
use warmlane_forward::datapath::Forwarder;
use warmlane_lane::{KeptOutputs, Stage as _};
use warmlane_mem::{Burst, Line, Pool, PoolConfig};
use warmlane_sys::clock::cycles;
use warmlane_sys::random::Random;
use warmlane_table::NextHopId;
use warmlane_wire::{Frame, Ipv4Fields, Ipv6Fields, MacAddress};

const BURST: usize = 64;
const BURSTS_PER_ROUND: usize = 1024;
const ROUNDS: usize = 60;
const STATION: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let family = arguments.next().unwrap_or_else(|| "ipv4".to_owned());
    let count: usize = arguments.next().map_or(Ok(65_536), |text| text.parse())?;
    let ports: usize = arguments.next().map_or(Ok(1), |text| text.parse())?;

    let routes = Arc::new(routes(ports)?);
    let frames = frames(&routes, &family, count)?;
    let pool = Pool::new(&PoolConfig { buffers: 8192, ..PoolConfig::default() })?;
    let _lane = pool.attach()?;
    let mut forwarder = Forwarder::new(Arc::clone(&routes), pool.clone(), IcmpLimits::default());
    let mut outputs = KeptOutputs::of(&forwarder);
    let mut burst = Burst::with_limit(BURST);

    let (mut copying, mut both) = (f64::MAX, f64::MAX);
    for _ in 0..ROUNDS {
        for forward in [false, true] {
            let mut next = 0;
            let start = cycles();
            for _ in 0..BURSTS_PER_ROUND {
                pool.take_burst(&mut burst, BURST);
                for packet in burst.iter_mut() {
                    packet.set_port(0);
                    packet.fill_lines(&frames[next..=next], 64)?;
                    next = if next + 1 == frames.len() { 0 } else { next + 1 };
                }
                if forward {
                    forwarder.process(&mut burst, &mut outputs.outputs());
                    outputs.clear();
                }
                burst.clear();
            }
            let each = (cycles() - start) as f64 / (BURST * BURSTS_PER_ROUND) as f64;
            let least = if forward { &mut both } else { &mut copying };
            *least = least.min(each);
        }
    }
    let counters = forwarder.view();
    println!("{both:>8.1} cycles a packet in all");
    println!("{copying:>8.1} pool and copy");
    println!("{:>8.1} forwarding, of which", both - copying);
    println!("{:>8.1} lookup", lookup(&routes, &frames));
    println!("{} of {} packets forwarded", counters.forwarded(), counters.received());
    for (reason, drops) in counters.drops().iter().filter(|(_, drops)| *drops > 0) {
        println!("{drops} dropped: {}", reason.sentence);
    }
    Ok(())
}

/// The full table over a neighbour on each port.
fn routes(ports: usize) -> Result<Routes, Box<dyn Error>> {
    let mut builder = Routes::builder();
    for port in 0..ports {
        let mac = MacAddress([2, 0, 0, 0, 1, port as u8]);
        let address = std::net::Ipv4Addr::from_bits(0x0a00_0001 + port as u32);
        let none: [&str; 0] = [];
        builder = builder.port(STATION, none).neighbour(address, mac, port as u16);
    }
    let all: Vec<usize> = (0..ports).collect();
    Ok(builder.full_table(FullTableConfig { ipv4: all.clone(), ipv6: all }).build()?)
}

fn frames(routes: &Routes, family: &str, count: usize) -> Result<Vec<Line>, Box<dyn Error>> {
    let ipv4: Vec<_> = routes.ipv4().routes().map(|(prefix, _)| prefix).collect();
    let ipv6: Vec<_> = routes.ipv6().routes().map(|(prefix, _)| prefix).collect();
    let mut random = Random::new(1);
    let mut frames = Vec::with_capacity(count);
    while frames.len() < count {
        let (choice, host) = (random.bits() as usize, random.bits());
        let frame = Frame::new().ethernet(STATION, MacAddress([2, 0, 0, 0, 9, 9]));
        let mut line = Line([0; 64]);
        if family == "ipv6" || (family == "mixed" && frames.len() % 2 == 1) {
            let prefix = ipv6[choice % ipv6.len()];
            let destination = prefix.first() | (u128::from(host) & (prefix.first() ^ prefix.last()));
            let fields = Ipv6Fields::new("2001:db8::1".parse()?, destination.into());
            frame.ipv6(fields).payload(&[0; 10]).write(&mut line.0)?;
        } else {
            let prefix = ipv4[choice % ipv4.len()];
            let destination = prefix.first() | (host as u32 & (prefix.first() ^ prefix.last()));
            let fields = Ipv4Fields::new([198, 51, 100, 1].into(), destination.into());
            frame.ipv4(fields).udp(1000, 2000).payload(&[0; 22]).write(&mut line.0)?;
        }
        frames.push(line);
    }
    Ok(frames)
}

fn lookup(routes: &Routes, frames: &[Line]) -> f64 {
    let mut ipv4: Vec<u32> = Vec::new();
    let mut ipv6: Vec<[u8; 16]> = Vec::new();
    for Line(bytes) in frames {
        match bytes[12..14] {
            [0x08, 0x00] => ipv4.extend(bytes[30..34].first_chunk().map(|bytes| u32::from_be_bytes(*bytes))),
            _ => ipv6.extend(bytes[38..54].first_chunk().copied()),
        }
    }
    let mut hops = [NextHopId::NONE; BURST];
    let mut least = f64::MAX;
    for _ in 0..ROUNDS {
        let start = cycles();
        for addresses in ipv4.chunks(BURST) {
            routes.ipv4().lookup_burst(addresses, &mut hops);
            black_box(&mut hops);
        }
        for addresses in ipv6.chunks(BURST) {
            routes.ipv6().lookup_burst(addresses, &mut hops);
            black_box(&mut hops);
        }
        least = least.min((cycles() - start) as f64 / frames.len() as f64);
    }
    least
}
