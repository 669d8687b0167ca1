//! A load balancer: connections to one address and port are spread over backends, each connection always to the same one.
//! The table is filled as in Maglev (Eisenbud et al., NSDI 2016, section 3.4), so few connections move when a backend goes.
//!
//! `cargo run --release --example load_balancer`

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use warmlane::drivers::memory::{null, replay};
use warmlane::prelude::*;
use warmlane::wire::{Frame, Ipv4Fields, MacAddress, PacketMut};

/// Entries of the table: a prime much larger than the number of backends.
const ENTRIES: usize = 65_537;
const SERVICE: (IpAddr, u16) = (IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1)), 443);
const BACKENDS: [&str; 5] = ["backend-1", "backend-2", "backend-3", "backend-4", "backend-5"];

drop_reasons! {
    /// Why the balancer drops.
    pub enum BalancerDrop {
        /// The frame carries no well-formed IP packet.
        NoFlow: "no-flow", Warning;
        /// The packet is not for the address and port that are balanced.
        NotOurs: "not-ours", Notice;
    }
}

struct Balancer {
    table: Vec<u8>,
    sent: [Counter; BACKENDS.len()],
    drops: DropCounters<BalancerDrop>,
}

impl Balancer {
    fn new() -> Self {
        // Each backend goes through the entries in an order of its own and takes turns to claim the next free one.
        let order = |number: usize, turn: usize| {
            let (offset, skip) = (number * 7_919 + 1, number * 104_729 % (ENTRIES - 1) + 1);
            (offset + turn * skip) % ENTRIES
        };
        let (mut table, mut turns) = (vec![u8::MAX; ENTRIES], [0; BACKENDS.len()]);
        for claimed in 0..ENTRIES {
            let number = claimed % BACKENDS.len();
            while table[order(number, turns[number])] != u8::MAX {
                turns[number] += 1;
            }
            table[order(number, turns[number])] = number as u8;
        }
        Self { table, sent: BACKENDS.map(|_| Counter::new()), drops: DropCounters::new() }
    }
}

impl Stage for Balancer {
    fn process(&mut self, burst: &mut Burst, _outputs: &mut Outputs<'_>) {
        burst.keep(&self.drops, |packet| {
            let mut packet = PacketMut::parse(packet.data_mut()).map_err(|_| BalancerDrop::NoFlow)?;
            let flow = packet.flow();
            if (flow.destination, flow.ports.map(|ports| ports.1)) != (SERVICE.0, Some(SERVICE.1)) {
                return Err(BalancerDrop::NotOurs);
            }
            let number = self.table[flow.hash(1) as usize % ENTRIES];
            self.sent[usize::from(number)].add(1);
            packet.set_destination([10, 0, 0, number + 1].into()).map_err(|_| BalancerDrop::NoFlow)
        });
    }

    fn counters(&self) -> Vec<Box<dyn Source>> {
        let (set, unit, help, role) = ("balancer", "packets", "Sent to this backend", Role::Note);
        let what = |name| Description { set, name, unit, help, role };
        let sent = BACKENDS.iter().zip(&self.sent).map(|(name, sent)| (what(name), sent.view()));
        vec![Box::new(sent.collect::<Vec<_>>()), Box::new(self.drops.view())]
    }
}

fn main() -> anyhow::Result<()> {
    let pool = Pool::new(&PoolConfig::default())?;
    let mut frames = replay::Frames::new();
    for client in 0..10_000_u16 {
        let fields = Ipv4Fields::new(Ipv4Addr::new(198, 51, 100, client as u8), [203, 0, 113, 1].into());
        let frame = Frame::new().ethernet(MacAddress([2; 6]), MacAddress([4; 6])).ipv4(fields);
        frames.push(&frame.udp(client, if client % 10 == 0 { 80 } else { 443 }).to_vec()?)?;
    }
    let config = replay::ReplayConfig { rounds: Some(10), ..Default::default() };
    let mut clients = replay::open("clients", &Arc::new(frames), &pool, config)?;
    let balancer = Balancer::new();
    let counters = balancer.counters();
    let pipeline =
        Pipeline::new(clients.take_receive()?, balancer, null::sink("servers", 1).take_transmit()?);
    let mut lanes = Lanes::new();
    lanes.spawn(LaneConfig { name: "balancer".into(), ..Default::default() }, pipeline)?;
    lanes.join()?;
    let mut counts = Vec::new();
    for source in counters {
        source.read(&mut |entry| counts.push(entry.value));
    }
    let (sent, drops) = counts.split_at(BACKENDS.len());
    println!("per backend: {sent:?}; dropped: {drops:?}");
    assert!(drops == [0, 10_000] && sent.iter().all(|count| (16_000..20_000).contains(count)));
    Ok(())
}
