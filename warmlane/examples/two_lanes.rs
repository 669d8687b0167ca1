//! A pipeline over two lanes: one receives and classifies, the other transmits and frees. Buffers are taken on the
//! first and freed on the second; the pool's depot brings them back while they are warm.
//!
//! `cargo run --release --example two_lanes`

use std::sync::Arc;
use warmlane::drivers::memory::{null, replay};
use warmlane::lane::{PassThrough, place};
use warmlane::mem::channel;
use warmlane::prelude::*;

fn main() -> anyhow::Result<()> {
    let pool = Pool::new(&PoolConfig::default())?;
    let mut frames = replay::Frames::new();
    for length in 60..=1_514 {
        frames.push(&vec![0; length])?;
    }
    let config = replay::ReplayConfig { rounds: Some(2_000), ..Default::default() };
    let mut source = replay::open("source", &Arc::new(frames), &pool, config)?;
    let mut sink = null::sink("sink", 1);

    // What joins the lanes: a ring of 32-bit buffer numbers.
    let (sender, receiver) = channel(1_024)?;
    let classify = |burst: &mut Burst| {
        for packet in burst.iter_mut() {
            let class = u32::from(packet.len() > 1_000);
            *packet.application_mut::<u32>() = class;
        }
    };
    let long = Arc::new(Counter::default());
    let count = {
        let long = Arc::clone(&long);
        move |burst: &mut Burst| {
            let classes = burst.iter().map(|packet| u64::from(*packet.application::<u32>()));
            long.add(classes.sum());
        }
    };

    let first = Pipeline::new(source.receive.remove(0), classify, sender);
    let second = Pipeline::new(receiver, (count, PassThrough), sink.transmit.remove(0));

    // Two CPUs if there are two; else the system shares one out.
    let cpus = place(2).map_or([None; 2], |cpus| [Some(cpus[0]), Some(cpus[1])]);
    let lane = |name: &str, cpu| LaneConfig {
        name: name.into(),
        cpu,
        pools: vec![pool.clone()],
        ..Default::default()
    };
    let mut lanes = Lanes::new();
    lanes.spawn(lane("receive", cpus[0]), first)?;
    lanes.spawn(lane("transmit", cpus[1]), second)?;
    for report in lanes.join()? {
        let cycles = report.counters.cycles_per_packet().unwrap_or(0.0);
        println!("{:>8}: {} packets, {cycles:.1} cycles each", report.name, report.counters.packets.get());
    }
    println!("{} were longer than 1,000 bytes", long.get());
    assert_eq!(pool.ledger().outstanding(), 0);
    Ok(())
}
