//! What generating a packet costs: cycles a packet into a port that frees what it gets.
//!
//! `cargo run --release -p warmlane-gen --example cost_of_sending [SECONDS]`

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;
use warmlane_gen::control::Config;
use warmlane_gen::datapath::{Pattern, TransmitOrder, TransmitOrders};
use warmlane_gen::{SendingSide, pipeline};
use warmlane_lane::{Poll, Task as _};
use warmlane_mem::{Pool, PoolConfig};
use warmlane_sys::clock::{self, Clock};
use warmlane_testkit::queues::Sink;

/// A stream of UDP, as a configuration file has it, of which these fields vary in this order.
fn stream(size: &str, order: &str, fields: &[&str]) -> String {
    let mut stream = format!(
        "[[stream]]\nsize = {size}\n[stream.packet]\nipv4 = {{ source = '198.18.0.0', destination = '198.19.0.1' }}\n\
         udp = {{ source = 1024, destination = 9 }}\n"
    );
    for field in fields {
        let _ = writeln!(stream, "[[stream.vary]]\nfield = '{field}'\norder = '{order}'\ncount = 65536");
    }
    stream
}

fn measure(name: &str, streams: &str, burst: usize, seconds: f64) -> Result<(), Box<dyn std::error::Error>> {
    let plan = Arc::new(Config::from_toml(streams)?.profile.plan()?);
    let pool = Pool::new(&PoolConfig { buffers: 4_096, ..PoolConfig::default() })?;
    let _lane = pool.attach()?;

    let orders = Arc::new(TransmitOrders::default());
    let queue = Box::new(Sink::new(usize::MAX));
    let sending = SendingSide { queue, pool: pool.clone(), orders: Arc::clone(&orders) };
    let mut transmitter = pipeline(Some(sending), None)?;
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
    let source = &["ipv4.source"][..];
    for burst in [32, 64, 128] {
        measure("64 bytes, random source, signed", &stream("64", "random", source), burst, seconds)?;
    }
    let plain = stream("64", "count", &[]);
    let unsigned = plain.replace("size = 64", "size = 64\nsignature = false");
    let both = stream("64", "random", &["ipv4.source", "ipv4.destination"]);
    let cases = [
        ("64 bytes, nothing varies, unsigned", unsigned),
        ("64 bytes, nothing varies, signed", plain.clone()),
        ("64 bytes, counted source, signed", stream("64", "count", source)),
        ("64 bytes, random source and destination, signed", both),
        ("imix, random source, signed", stream("'imix'", "random", source)),
        ("cable mix, random source, signed", stream("'cable'", "random", source)),
        ("1,000 streams of 64 bytes, signed", plain.repeat(1_000)),
    ];
    for (name, streams) in cases {
        measure(name, &streams, 64, seconds)?;
    }
    Ok(())
}
