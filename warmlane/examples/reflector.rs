//! A network function of one's own: sends every frame back to where it came from, and counts frames per sender.
//!
//! `cargo run --release --example reflector` reflects 25 million generated frames; with an interface's name
//! behind `--` (and root) it reflects what arrives there, for ten seconds.

use std::sync::Arc;
use std::time::{Duration, Instant};
use warmlane::drivers::kernel::packet::{self, PacketOptions};
use warmlane::drivers::memory::{null, replay};
use warmlane::prelude::*;

/// Swaps the two Ethernet addresses of each frame and counts senders by the last byte of theirs.
struct Reflector {
    senders: Vec<Counter>,
}

impl Stage for Reflector {
    fn process(&mut self, burst: &mut Burst, _outputs: &mut Outputs<'_>) {
        for packet in burst.iter_mut() {
            // A frame too short to have addresses goes back as it came.
            if let Some(addresses) = packet.data_mut().first_chunk_mut::<12>() {
                self.senders[usize::from(addresses[11])].add(1);
                addresses.rotate_left(6);
            }
        }
    }
}

fn generated(pool: &Pool) -> anyhow::Result<Port> {
    let mut frames = replay::Frames::new();
    for sender in 0..=255 {
        let mut frame = [0; 60];
        frame[11] = sender;
        frames.push(&frame)?;
    }
    let config = replay::ReplayConfig { rounds: Some(100_000), ..Default::default() };
    let source = replay::open("generated", &Arc::new(frames), pool, config)?;
    Ok(Port { transmit: null::sink("sink", 1).transmit, ..source })
}

fn main() -> anyhow::Result<()> {
    let pool = Pool::new(&PoolConfig::default())?;
    let mut port = match std::env::args().nth(1) {
        Some(interface) => packet::open(&PacketOptions { interface, ..Default::default() }, 1, &pool)?,
        None => generated(&pool)?,
    };
    let reflector = Reflector { senders: (0..256).map(|_| Counter::new()).collect() };
    let senders: Vec<_> = reflector.senders.iter().map(Counter::view).collect();
    let pipeline = Pipeline::new(port.take_receive()?, reflector, port.take_transmit()?);

    let mut lanes = Lanes::new();
    let lane = LaneConfig { name: "reflector".into(), ..Default::default() };
    lanes.spawn(lane, pipeline)?;
    let begin = Instant::now();
    while !lanes.are_finished() && begin.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(50));
    }
    lanes.stop();
    for report in lanes.join()? {
        let cycles = report.counters.cycles_per_packet().unwrap_or(0.0);
        println!("{} frames at {cycles:.1} cycles each", report.counters.packets());
    }
    let busiest = (0..256).max_by_key(|&sender| senders[sender].get()).unwrap_or(0);
    println!("busiest sender: ..:{busiest:02x} with {} frames", senders[busiest].get());
    assert_eq!(pool.ledger().outstanding(), 0);
    Ok(())
}
