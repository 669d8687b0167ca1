//! What generating a packet costs: cycles a packet into a port that frees what it gets.
//!
//! `cargo run --release -p warmlane-gen --example cost_of_sending [SECONDS]`

use std::sync::Arc;
use std::time::Duration;
use warmlane_gen::control::{
    Network, Payload, Profile, Rule, RuleOrder, RuleValues, Sizes, Stream, Template, Transport,
};
use warmlane_gen::datapath::{Pattern, TransmitOrder, TransmitOrders, Transmitter};
use warmlane_lane::{Poll, Task};
use warmlane_mem::{Burst, Pool, PoolConfig};
use warmlane_port::{QueueCounters, QueueStatus, TransmitQueue};
use warmlane_sys::clock::{self, Clock};
use warmlane_wire::{EtherType, MacAddress};

/// Frees what it gets, as a null port does.
struct Sink(Arc<QueueCounters>);

impl TransmitQueue for Sink {
    fn transmit(&mut self, burst: &mut Burst) -> usize {
        let (count, bytes) = (burst.len(), burst.bytes());
        burst.clear();
        self.0.packets.add(count as u64);
        self.0.bytes.add(bytes);
        count
    }

    fn status(&self) -> QueueStatus {
        QueueStatus::Running
    }

    fn counters(&self) -> &Arc<QueueCounters> {
        &self.0
    }
}

fn stream(number: u32, sizes: &str, rules: Vec<Rule>) -> Stream {
    Stream {
        name: format!("stream{number}"),
        share: 1,
        template: Template {
            source: MacAddress([2, 0, 0, 0, 0, 1]),
            destination: MacAddress([2, 0, 0, 0, 0, 2]),
            ethertype: EtherType(0x88b5),
            tags: Vec::new(),
            network: Network::Ipv4 {
                source: [198, 18, 0, 0].into(),
                destination: [198, 19, 0, 1].into(),
                traffic_class: 0,
                ttl: 64,
                identification: 0,
                dont_fragment: false,
            },
            transport: Transport::Udp { source: 1024, destination: 9 },
        },
        sizes: sizes.parse().unwrap_or_else(|_| Sizes::fixed(64)),
        payload: Payload::Zeros,
        signed: true,
        rules,
    }
}

fn rule(field: &str, order: RuleOrder) -> Rule {
    Rule { field: field.to_owned(), values: RuleValues::Steps { count: 65_536, step: 1 }, order }
}

fn measure(
    name: &str,
    streams: Vec<Stream>,
    burst: usize,
    seconds: f64,
) -> Result<(), Box<dyn std::error::Error>> {
    let plan = Arc::new(Profile { streams }.plan()?);
    let pool = Pool::new(&PoolConfig { buffers: 4_096, ..PoolConfig::default() })?;
    let _lane = pool.attach()?;
    let counters = QueueCounters::new(&[]);
    let orders = Arc::new(TransmitOrders::default());
    let mut transmitter =
        Transmitter::new(Box::new(Sink(Arc::clone(&counters))), pool.clone(), Arc::clone(&orders));
    let clock = Clock::calibrated();
    let mut best = f64::INFINITY;
    let round = clock.cycles_for(Duration::from_secs_f64(seconds / 20.0).as_nanos() as u64);
    for _ in 0..20 {
        orders.give(TransmitOrder {
            plan: Arc::clone(&plan),
            trial: 1,
            pattern: Pattern::Unpaced,
            packets_per_cycle: 0.0,
            duration: round,
            count: u64::MAX,
            burst,
            patience: round,
            seed: 1,
        });
        let report = loop {
            while let Poll::Worked(_) = transmitter.poll() {}
            if let Some(report) = orders.report() {
                break report;
            }
        };
        best = best.min(report.span as f64 / report.sent as f64);
    }
    let rate = clock.cycles_per_second() as f64 / best / 1e6;
    println!("{name:<48} burst {burst:>3}: {best:>6.2} cycles a packet, {rate:>7.1} Mpps");
    let _ = clock::cycles();
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(0.5);
    let source = |order| vec![rule("ipv4.source", order)];
    for burst in [32, 64, 128] {
        measure(
            "64 bytes, random source, signed",
            vec![stream(0, "64", source(RuleOrder::Random))],
            burst,
            seconds,
        )?;
    }
    let unsigned = Stream { signed: false, ..stream(0, "64", Vec::new()) };
    measure("64 bytes, nothing varies, unsigned", vec![unsigned], 64, seconds)?;
    measure("64 bytes, nothing varies, signed", vec![stream(0, "64", Vec::new())], 64, seconds)?;
    measure("64 bytes, counted source, signed", vec![stream(0, "64", source(RuleOrder::Turn))], 64, seconds)?;
    let both = vec![rule("ipv4.source", RuleOrder::Random), rule("ipv4.destination", RuleOrder::Random)];
    measure("64 bytes, random source and destination, signed", vec![stream(0, "64", both)], 64, seconds)?;
    measure("imix, random source, signed", vec![stream(0, "imix", source(RuleOrder::Random))], 64, seconds)?;
    measure(
        "cable mix, random source, signed",
        vec![stream(0, "cable", source(RuleOrder::Random))],
        64,
        seconds,
    )?;
    let many = (0..1_000).map(|number| stream(number, "64", Vec::new())).collect();
    measure("1,000 streams of 64 bytes, signed", many, 64, seconds)?;
    Ok(())
}
