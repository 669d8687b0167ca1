//! Stages of one's own before the forwarder and behind it, on each port: what they count is in the report by itself.
//!
//! `cargo run --release --example around_forwarder`

use std::sync::Arc;
use warmlane::assembly::{Assembly, Event, LaneSettings, RunLimits, Signals};
use warmlane::drivers::memory::{null, replay};
use warmlane::functions::forward::connect_ports_through;
use warmlane::functions::forward::control::{Routes, config::IcmpLimits};
use warmlane::prelude::*;
use warmlane::wire::{Frame, Ipv4Fields, MacAddress};

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
    let mut frames = replay::Frames::new();
    for host in 2..202 {
        let fields = Ipv4Fields {
            ttl: 2 + host % 2,
            ..Ipv4Fields::new([192, 0, 2, host].into(), [203, 0, 113, 1].into())
        };
        let frame = Frame::new().ethernet(MacAddress([2, 0, 0, 0, 0, 1]), MacAddress([4; 6])).ipv4(fields);
        frames.push(&frame.udp(1, 2).to_vec()?)?;
    }
    let config = replay::ReplayConfig { rounds: Some(1_000), ..Default::default() };
    let ports = vec![replay::open("west", &Arc::new(frames), &pool, config)?, null::sink("east", 1)];
    let routes = Routes::builder()
        .port("02:00:00:00:00:01", ["192.0.2.1/24"])
        .port("02:00:00:00:00:02", ["198.51.100.1/24"])
        .neighbour("198.51.100.2", "02:00:00:00:01:02", 1)
        .route("0.0.0.0/0", "198.51.100.2");
    let routes = Arc::new(routes.build()?);

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
    assembly.run(RunLimits::default(), &Signals::catch()?, |_, event| {
        if let Event::Wait(time) = event {
            std::thread::sleep(time);
        }
    });
    let outcome = assembly.finish();
    print!("{}", outcome.report.text());
    assert_eq!(outcome.report.stages[1].counters["egress"]["last_hop"], 100_000);
    Ok(outcome.result?)
}
