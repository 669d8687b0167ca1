//! What the tests of this crate share: ports without drivers, and streams.

use std::collections::VecDeque;
use warmlane_gen::control::{Network, Payload, Profile, Rule, Sizes, Stream, Template, Transport};
use warmlane_mem::{Burst, Packet, Pool, PoolConfig, channel};
use warmlane_port::channel::{ChannelReceive, ChannelTransmit};
use warmlane_port::{QueueCounters, QueueCountersView, QueueStatus, ReceiveQueue, TransmitQueue};
use warmlane_wire::{EtherType, MacAddress};

pub(crate) fn pool() -> Pool {
    Pool::new(&PoolConfig { buffers: 8_192, data_size: 1_536, ..PoolConfig::default() }).unwrap()
}

pub(crate) fn template() -> Template {
    Template {
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
    }
}

pub(crate) fn stream(name: &str, template: Template, sizes: &str, rules: Vec<Rule>) -> Stream {
    Stream {
        name: name.to_owned(),
        share: 1,
        template,
        sizes: sizes.parse::<Sizes>().unwrap(),
        payload: Payload::Counting,
        signed: true,
        rules,
    }
}

pub(crate) fn profile(streams: Vec<Stream>) -> Profile {
    Profile { streams }
}

/// A cable from one lane to another.
pub(crate) fn cable(capacity: usize) -> (Box<dyn TransmitQueue>, Box<dyn ReceiveQueue>) {
    let (sender, receiver) = channel(capacity).unwrap();
    (Box::new(ChannelTransmit::new(sender)), Box::new(ChannelReceive::new(receiver)))
}

warmlane_port::drop_reasons! {
    /// Why an awkward port drops.
    enum AwkwardDrop {
        /// Every tenth packet is dropped.
        Tenth: "tenth", Notice;
    }
}

/// How a port makes it hard to send.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Awkward {
    /// It takes so many packets, and then has no space.
    Takes(usize),
    /// It takes everything and drops every tenth packet.
    DropsTenths,
    /// It takes everything and sends 8 packets whenever it is asked to, as a kernel that has no more space.
    SendsEights,
    /// It takes everything, and breaks once it has sent so many packets.
    BreaksAfter(usize),
}

/// Puts an awkward port before another.
pub(crate) fn awkward(queue: Box<dyn TransmitQueue>, how: Awkward) -> Box<dyn TransmitQueue> {
    let counters = QueueCounters::new();
    Box::new(AwkwardPort { queue, how, taken: 0, waiting: VecDeque::new(), counters })
}

struct AwkwardPort {
    queue: Box<dyn TransmitQueue>,
    how: Awkward,
    taken: usize,
    waiting: VecDeque<Packet>,
    counters: QueueCounters<AwkwardDrop>,
}

impl AwkwardPort {
    fn push_out(&mut self, count: usize) {
        let mut burst = Burst::new();
        for packet in self.waiting.drain(..count.min(self.waiting.len())) {
            burst.push(packet).unwrap();
        }
        self.queue.transmit(&mut burst);
        assert!(burst.is_empty(), "the cable is long enough");
    }
}

impl TransmitQueue for AwkwardPort {
    fn transmit(&mut self, burst: &mut Burst) -> usize {
        let space = match self.how {
            Awkward::Takes(most) => most - self.taken,
            Awkward::DropsTenths | Awkward::SendsEights | Awkward::BreaksAfter(_) => burst.len(),
        };
        let count = space.min(burst.len());
        let packets: Vec<Packet> = burst.drain().collect();
        for (place, packet) in packets.into_iter().enumerate() {
            if place >= count {
                burst.push(packet).unwrap();
                continue;
            }
            self.taken += 1;
            if self.how == Awkward::DropsTenths && self.taken.is_multiple_of(10) {
                self.counters.drops().count(AwkwardDrop::Tenth, 1);
            } else {
                self.counters.packets().add(1);
                self.waiting.push_back(packet);
            }
        }
        self.push_out(if self.how == Awkward::SendsEights { 8 } else { count });
        count
    }

    fn flush(&mut self) {
        self.push_out(8);
    }

    fn status(&self) -> QueueStatus {
        match self.how {
            Awkward::BreaksAfter(count) if self.taken >= count => QueueStatus::Failed("cut".to_owned()),
            _ => QueueStatus::Running,
        }
    }

    fn counters(&self) -> QueueCountersView {
        self.counters.view()
    }
}

/// A receiving port with a neighbour who never stops talking.
pub(crate) struct Noisy {
    pub(crate) queue: Box<dyn ReceiveQueue>,
    pub(crate) pool: Pool,
}

impl ReceiveQueue for Noisy {
    fn receive(&mut self, burst: &mut Burst) -> usize {
        let count = self.queue.receive(burst);
        let mut noise = self.pool.take().unwrap();
        noise.append(60).unwrap().fill(0);
        count + usize::from(burst.push(noise).is_ok())
    }

    fn status(&self) -> QueueStatus {
        self.queue.status()
    }

    fn counters(&self) -> QueueCountersView {
        self.queue.counters()
    }
}
