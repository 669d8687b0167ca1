//! A port of one's own: one that receives a frame each time a clock ticks. A queue needs three methods; the counters
//! and drop reasons make it look like any other port to those who watch it.
//!
//! `cargo run --release --example custom_port`

use std::sync::Arc;
use std::time::{Duration, Instant};
use warmlane::drivers::memory::null;
use warmlane::prelude::*;

drop_reasons! {
    /// Why a tick is lost.
    pub enum TickDrop {
        /// There was no buffer to write the tick into.
        NoBuffer: "no-buffer", Loss, "the pool had no buffer when the clock ticked";
    }
}

/// Gives out one 60-byte frame a tick, numbered, until `left` is used up.
struct Ticker {
    pool: Pool,
    next: Instant,
    interval: Duration,
    number: u64,
    left: u64,
    counters: Arc<QueueCounters>,
}

impl ReceiveQueue for Ticker {
    fn receive(&mut self, burst: &mut Burst) -> usize {
        let now = Instant::now();
        let mut received = 0;
        while self.left > 0 && now >= self.next && burst.room() > 0 {
            self.next += self.interval;
            self.left -= 1;
            self.number += 1;
            if self.pool.take_burst(burst, 1) == 0 {
                self.counters.drops.count(TickDrop::NoBuffer.index(), 1);
                continue;
            }
            let mut frame = [0; 60];
            frame[14..22].copy_from_slice(&self.number.to_be_bytes());
            if let Some(packet) = burst.last_mut()
                && packet.fill(&frame).is_ok()
            {
                received += 1;
            }
        }
        self.counters.packets.add(received);
        self.counters.bytes.add(60 * received);
        received as usize
    }

    fn status(&self) -> QueueStatus {
        if self.left == 0 { QueueStatus::Finished } else { QueueStatus::Running }
    }

    fn counters(&self) -> &Arc<QueueCounters> {
        &self.counters
    }
}

fn main() -> anyhow::Result<()> {
    let pool = Pool::new(&PoolConfig { buffers: 256, ..Default::default() })?;
    let ticker = Ticker {
        pool: pool.clone(),
        next: Instant::now(),
        interval: Duration::from_micros(100),
        number: 0,
        left: 10_000,
        counters: QueueCounters::new(TickDrop::ALL),
    };
    let counters = Arc::clone(&ticker.counters);
    let input: Box<dyn ReceiveQueue> = Box::new(ticker);
    let pipeline = Pipeline::new(input, |_: &mut Burst| {}, null::sink("sink", 1).transmit.remove(0));
    let mut lanes = Lanes::new();
    lanes.spawn(
        LaneConfig { name: "ticker".into(), pools: vec![pool.clone()], ..Default::default() },
        pipeline,
    )?;
    lanes.join()?;
    println!("{} ticks carried, {} lost", counters.packets.get(), counters.drops.total());
    assert_eq!(pool.ledger().outstanding(), 0);
    Ok(())
}
