//! A forwarder with routes made in code, and a stage of one's own in front of it that drops what comes from a test network.
//!
//! `cargo run --release --example forwarder` forwards generated frames; with `west=xdp:eth0 east=xdp:eth1` behind `--` (and
//! root) it forwards between these interfaces for ten seconds.

use std::sync::Arc;
use std::time::Duration;
use warmlane::assembly::ports::Opener;
use warmlane::assembly::{Assembly, LaneSettings, RunLimits, Signals};
use warmlane::drivers::memory::{null, replay};
use warmlane::functions::forward::control::{Routes, config::IcmpLimits};
use warmlane::functions::forward::pipeline;
use warmlane::prelude::*;
use warmlane::wire::{Frame, Ipv4Fields, MacAddress};

fn main() -> anyhow::Result<()> {
    let pool = Pool::new(&PoolConfig::default())?;
    let mut opener = Opener::new(&pool, 1);
    let named = std::env::args().skip(1).map(|text| Ok(opener.open(&text.parse()?, None)?));
    let mut ports = named.collect::<anyhow::Result<Vec<_>>>()?;
    if ports.is_empty() {
        let mut frames = replay::Frames::new();
        for host in 0..200 {
            let source = if host < 50 { [198, 18, 0, host] } else { [192, 0, 2, host] };
            let fields = Ipv4Fields::new(source.into(), [203, 0, 113, host].into());
            let frame =
                Frame::new().ethernet(MacAddress([2, 0, 0, 0, 0, 1]), MacAddress([4; 6])).ipv4(fields);
            frames.push(&frame.udp(1, 2).to_vec()?)?;
        }
        let config = replay::ReplayConfig { rounds: Some(1_000), ..Default::default() };
        ports = vec![replay::open("west", &Arc::new(frames), &pool, config)?, null::sink("east", 1)];
    }
    let routes = Routes::builder()
        .port("02:00:00:00:00:01", ["192.0.2.1/24"])
        .port("02:00:00:00:00:02", ["198.51.100.1/24"])
        .neighbour("198.51.100.2", "02:00:00:00:01:02", 1)
        .route("0.0.0.0/0", "198.51.100.2");
    let routes = Arc::new(routes.build()?);
    let assembly = Assembly::start(pool, &LaneSettings::default(), ports, |lane| {
        // The benchmarking network of RFC 2544, appendix C.2.2: bytes 26 and 27 of a frame begin the IPv4 source.
        let no_tests = per_packet(|packet| packet.data().get(26..28) != Some(&[198, 18]));
        let forwarder = lane.forwarder(Arc::clone(&routes), IcmpLimits::default());
        Ok(pipeline((no_tests, forwarder), lane.take_ports())?)
    })?;
    let limits = RunLimits { duration: Some(Duration::from_secs(10)), count: None };
    assembly.run_quietly(limits, &Signals::catch()?);
    let outcome = assembly.finish();
    print!("{}", outcome.report.text());
    Ok(outcome.result?)
}
