//! Stages of one's own before the forwarder and behind it, on each port: what they count is in the report by itself.
//!
//! `cargo run --release --example around_forwarder`

mod common;

use std::sync::Arc;
use warmlane::assembly::ports::Opener;
use warmlane::assembly::{Assembly, LaneSettings};
use warmlane::functions::forward::connect_ports_through;
use warmlane::functions::forward::control::config::IcmpLimits;
use warmlane::prelude::*;

counters! {
    /// What leaves by a port, as the forwarder has made it.
    struct EgressCounters => EgressCountersView {
        /// Packets at the end of their life: the next router drops them.
        last_hop: Note, "packets";
        /// Bytes of IPv4 packets, without their Ethernet headers.
        ip_bytes: Note, "bytes";
    }
}

#[derive(Default)]
struct Egress(EgressCounters);

impl Stage for Egress {
    fn process(&mut self, burst: &mut Burst, _outputs: &mut Outputs<'_>) {
        // Byte 22 of a frame is IPv4's time to live.
        let last = burst.iter().filter(|packet| packet.data().get(22) == Some(&1)).count();
        self.0.last_hop().add(last as u64);
        self.0.ip_bytes().add(burst.iter().map(|packet| packet.len() as u64 - 14).sum());
    }

    fn counters(&self) -> Vec<Box<dyn Source>> {
        vec![Box::new(self.0.view())]
    }
}

fn main() -> anyhow::Result<()> {
    let pool = Pool::new(&PoolConfig::default())?;
    let ports = common::ports(&mut Opener::new(&pool, 1), &pool)?;
    let routes = common::routes()?;
    let assembly = Assembly::start(pool, &LaneSettings::default(), ports, |lane| {
        let mut builder = Pipeline::builder();
        let ingress = per_packet(|packet| packet.data().get(29) != Some(&7));
        let forwarder = lane.forwarder(Arc::clone(&routes), IcmpLimits::default());
        let row = builder.stage("ingress and forwarder", (ingress, forwarder));
        connect_ports_through(&mut builder, row, lane.take_ports(), |builder, port, output| {
            let egress = builder.stage(format!("egress {port}"), Egress::default());
            builder.connect(egress, output);
            egress.into()
        });
        Ok(builder.build()?)
    })?;
    let outcome = common::run(assembly)?;
    assert_eq!(outcome.report.stages[1].counters["egress"]["last_hop"], 100_000);
    Ok(outcome.result?)
}
