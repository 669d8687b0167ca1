//! A forwarder with a tap in front that copies every hundredth packet to `tap.pcapng` in the directory for temporary files.
//!
//! `cargo run --release --example tap`

mod common;

use std::sync::Arc;
use warmlane::assembly::ports::Opener;
use warmlane::assembly::{Assembly, LaneSettings};
use warmlane::functions::forward::connect_ports;
use warmlane::functions::forward::control::config::IcmpLimits;
use warmlane::lane::Tap;
use warmlane::prelude::*;

fn main() -> anyhow::Result<()> {
    let pool = Pool::new(&PoolConfig::default())?;
    let mut opener = Opener::new(&pool, 1);
    let ports = common::ports(&mut opener, &pool)?;
    let routes = common::routes()?;
    let copies = Pool::new(&PoolConfig { name: "copies".into(), buffers: 1_024, ..Default::default() })?;
    let file = std::env::temp_dir().join("tap.pcapng");
    let mut capture = opener.open(&format!("tap=pcap:write={}", file.display()).parse()?, None)?;
    let assembly = Assembly::start(pool, &LaneSettings::default(), ports, |lane| {
        let forwarder = lane.forwarder(Arc::clone(&routes), IcmpLimits::default());
        let mut builder = Pipeline::builder();
        let stage = builder.stage("forward", (Tap::new(&copies).one_in(100), forwarder));
        connect_ports(&mut builder, stage, lane.take_ports());
        let file = builder.output("file", capture.take_transmit()?);
        Ok(builder.connect((stage, "tap"), file).build()?)
    })?;
    Ok(common::run(assembly)?.result?)
}
