//! A forwarder with routes made in code, and a stage of one's own in front of it that drops what comes from a test network.
//!
//! `cargo run --release --example forwarder` forwards generated frames; with `west=xdp:eth0 east=xdp:eth1` behind `--` (and
//! root) it forwards between these interfaces for ten seconds.

mod common;

use std::sync::Arc;
use warmlane::assembly::ports::Opener;
use warmlane::assembly::{Assembly, LaneSettings};
use warmlane::functions::forward::control::config::IcmpLimits;
use warmlane::functions::forward::pipeline;
use warmlane::prelude::*;

fn main() -> anyhow::Result<()> {
    let pool = Pool::new(&PoolConfig::default())?;
    let ports = common::ports(&mut Opener::new(&pool, 1), &pool)?;
    let routes = common::routes()?;
    let assembly = Assembly::start(pool, &LaneSettings::default(), ports, |lane| {
        // The benchmarking network of RFC 2544, appendix C.2.2: bytes 26 and 27 of a frame begin the IPv4 source.
        let no_tests = per_packet(|packet| packet.data().get(26..28) != Some(&[198, 18]));
        let forwarder = lane.forwarder(Arc::clone(&routes), IcmpLimits::default());
        Ok(pipeline((no_tests, forwarder), lane.take_ports())?)
    })?;
    Ok(common::run(assembly)?.result?)
}
