//! A port of one's own, which receives a numbered frame each time a clock ticks: `cargo run --release --example custom_port`

use std::time::{Duration, Instant};
use warmlane::drivers::memory::null;
use warmlane::prelude::*;

drop_reasons! {
    /// Why a tick is lost.
    pub enum TickDrop {
        /// The pool had no buffer when the clock ticked.
        NoBuffer: "no-buffer", Loss;
    }
}

struct Ticker {
    pool: Pool,
    next: Instant,
    ticks: std::ops::Range<u64>,
    counters: QueueCounters<TickDrop>,
}

impl ReceiveQueue for Ticker {
    fn receive(&mut self, burst: &mut Burst) -> usize {
        let before = burst.len();
        while Instant::now() >= self.next && burst.space() > 0 {
            let Some(number) = self.ticks.next() else { break };
            self.next += Duration::from_micros(100);
            let mut frame = [0; 60];
            frame[14..22].copy_from_slice(&number.to_be_bytes());
            match self.pool.take().and_then(|mut packet| packet.fill(&frame).ok().map(|()| packet)) {
                Some(packet) => drop(burst.push(packet)),
                None => self.counters.drops().count(TickDrop::NoBuffer, 1),
            }
        }
        self.counters.packets().add((burst.len() - before) as u64);
        burst.len() - before
    }

    fn status(&self) -> QueueStatus {
        if self.ticks.is_empty() { QueueStatus::Finished } else { QueueStatus::Running }
    }

    fn counters(&self) -> QueueCountersView {
        self.counters.view()
    }
}

fn main() -> anyhow::Result<()> {
    let pool = Pool::new(&PoolConfig { buffers: 256, ..Default::default() })?;
    let ticker = Ticker { pool, next: Instant::now(), ticks: 0..10_000, counters: QueueCounters::new() };
    let seen = ticker.counters.view();
    let pipeline = Pipeline::new(Box::new(ticker), PassThrough, null::sink("sink", 1).take_transmit()?);
    let mut lanes = Lanes::new();
    lanes.spawn(LaneConfig { name: "ticker".into(), ..Default::default() }, pipeline)?;
    lanes.join()?;
    println!("{} ticks carried, {} lost", seen.packets(), seen.drops().total());
    Ok(())
}
