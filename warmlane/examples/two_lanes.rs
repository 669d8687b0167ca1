//! A pipeline over two lanes: one receives and looks up each packet's flow, the other spreads packets over two outputs and
//! reports once in a while. Buffers are taken on the first lane and freed on the second; the pool's depot brings them back
//! while they are warm.
//!
//! `cargo run --release --example two_lanes`

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use warmlane::drivers::memory::{null, replay};
use warmlane::lane::place;
use warmlane::mem::channel;
use warmlane::prelude::*;
use warmlane::wire::{Flow, Frame, Ipv4Fields, MacAddress};

drop_reasons! {
    /// Why the first lane drops.
    pub enum LookupDrop {
        /// The frame carries no well-formed IP packet.
        NoFlow: "no-flow", Warning;
    }
}

/// Writes the flow's hash into the packet, so that the next lane needs no look at its headers.
struct Lookup {
    drops: DropCounters<LookupDrop>,
}

impl Stage for Lookup {
    fn process(&mut self, burst: &mut Burst, _outputs: &mut Outputs<'_>) {
        burst.keep(&self.drops, |packet| {
            let flow = Flow::of_frame(packet.data()).map_err(|_| LookupDrop::NoFlow)?;
            packet.set_mark(flow.hash(7));
            Ok(())
        });
    }

    fn counters(&self) -> Vec<Box<dyn Source>> {
        vec![Box::new(self.drops.view())]
    }
}

/// Sends a flow's first packets by the output `new`, all others on; flows that are quiet for two periods are forgotten.
struct FlowTable {
    /// By hash: packets seen, and periods since the last one.
    flows: HashMap<u32, (u64, u32)>,
    expired: Counter,
}

impl FlowTable {
    const NEW: usize = 0;
    /// Packets of a flow that count as its first.
    const FIRST: u64 = 3;

    fn expire(&mut self) {
        let before = self.flows.len();
        self.flows.retain(|_, (_, quiet)| {
            *quiet += 1;
            *quiet <= 2
        });
        self.expired.add((before - self.flows.len()) as u64);
    }
}

impl Stage for FlowTable {
    fn process(&mut self, burst: &mut Burst, outputs: &mut Outputs<'_>) {
        let mut known = Burst::with_limit(burst.limit());
        for packet in burst.drain() {
            let (seen, quiet) = self.flows.entry(packet.mark()).or_default();
            (*seen, *quiet) = (*seen + 1, 0);
            let is_new = *seen <= Self::FIRST;
            let leaves = if is_new { Err(packet) } else { known.push(packet) };
            leaves.unwrap_or_else(|packet| outputs.send(Self::NEW, packet));
        }
        std::mem::swap(burst, &mut known);
    }

    fn outputs(&self) -> &'static [&'static str] {
        &["new"]
    }
}

fn main() -> anyhow::Result<()> {
    let pool = Pool::new(&PoolConfig::default())?;
    let mut frames = replay::Frames::new();
    for port in 0..1_000 {
        let fields = Ipv4Fields::new([192, 0, 2, 1].into(), [203, 0, 113, 1].into());
        let frame = Frame::new().ethernet(MacAddress([2; 6]), MacAddress([4; 6])).ipv4(fields);
        frames.push(&frame.udp(port, 53).to_vec()?)?;
    }
    let config = replay::ReplayConfig { rounds: Some(1_000), ..Default::default() };
    let mut source = replay::open("source", &Arc::new(frames), &pool, config)?;
    let (mut new, mut known) = (null::sink("new", 1), null::sink("known", 1));

    // What joins the lanes: a ring of 32-bit buffer numbers.
    let (sender, receiver) = channel(1_024)?;
    let first = Pipeline::new(source.take_receive()?, Lookup { drops: DropCounters::new() }, sender);
    let table = FlowTable { flows: HashMap::new(), expired: Counter::new() };
    let expired = table.expired.view();
    let mut builder = Pipeline::builder();
    let input = builder.input("channel", receiver);
    let table = builder.stage("flows", table.every(Duration::from_millis(100), |table, _| table.expire()));
    let new = builder.output("new", new.take_transmit()?);
    let known = builder.output("known", known.take_transmit()?);
    let second = builder.connect(input, table).connect((table, "new"), new).connect(table, known).build()?;
    let graph = Arc::clone(second.graph());

    // Two CPUs if there are two; else the system shares one out.
    let cpus = place(2).map_or([None; 2], |cpus| [Some(cpus[0]), Some(cpus[1])]);
    let lane = |name: &str, cpu| LaneConfig { name: name.into(), cpu, ..Default::default() };
    let mut lanes = Lanes::new();
    lanes.spawn(lane("lookup", cpus[0]), first)?;
    lanes.spawn(lane("flows", cpus[1]), second)?;
    for report in lanes.join()? {
        let cycles = report.counters.cycles_per_packet().unwrap_or(0.0);
        println!("{:>8}: {} packets, {cycles:.1} cycles each", report.name, report.counters.packets());
    }
    let sent: Vec<_> = graph.outputs.iter().map(|output| (output.name.as_str(), output.sent())).collect();
    println!("{sent:?}, {} flows expired", expired.get());
    assert_eq!(graph.sent(), 1_000_000);
    assert_eq!(pool.ledger().outstanding(), 0);
    Ok(())
}
