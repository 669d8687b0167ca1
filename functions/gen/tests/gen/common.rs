//! What the tests of this crate share: ports without drivers, and streams.

use std::sync::{Arc, Mutex};
use warmlane_gen::control::{Network, Payload, Profile, Rule, Sizes, Stream, Template, Transport};
use warmlane_mem::{Burst, PacketReceiver, PacketSender, Pool, PoolConfig, channel};
use warmlane_port::{QueueCounters, QueueStatus, ReceiveQueue, TransmitQueue};
use warmlane_wire::{EtherType, MacAddress};

pub(crate) fn pool() -> Pool {
    Pool::new(&PoolConfig { buffers: 8_192, room: 1_536, ..PoolConfig::default() }).unwrap()
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
    (
        Box::new(Send { sender, counters: QueueCounters::new(&[]) }),
        Box::new(Receive { receiver, counters: QueueCounters::new(&[]) }),
    )
}

struct Send {
    sender: PacketSender,
    counters: Arc<QueueCounters>,
}

impl TransmitQueue for Send {
    fn transmit(&mut self, burst: &mut Burst) -> usize {
        let sent = self.sender.send(burst);
        self.counters.packets.add(sent as u64);
        sent
    }

    fn status(&self) -> QueueStatus {
        QueueStatus::Running
    }

    fn counters(&self) -> &Arc<QueueCounters> {
        &self.counters
    }
}

struct Receive {
    receiver: PacketReceiver,
    counters: Arc<QueueCounters>,
}

impl ReceiveQueue for Receive {
    fn receive(&mut self, burst: &mut Burst) -> usize {
        self.receiver.receive(burst)
    }

    fn status(&self) -> QueueStatus {
        QueueStatus::Running
    }

    fn counters(&self) -> &Arc<QueueCounters> {
        &self.counters
    }
}

/// Keeps what is sent to it.
pub(crate) struct Keep {
    pub(crate) frames: Arc<Mutex<Vec<Vec<u8>>>>,
    pub(crate) counters: Arc<QueueCounters>,
}

impl TransmitQueue for Keep {
    fn transmit(&mut self, burst: &mut Burst) -> usize {
        let count = burst.len();
        self.frames.lock().unwrap().extend(burst.drain().map(|packet| packet.data().to_vec()));
        self.counters.packets.add(count as u64);
        count
    }

    fn status(&self) -> QueueStatus {
        QueueStatus::Running
    }

    fn counters(&self) -> &Arc<QueueCounters> {
        &self.counters
    }
}
