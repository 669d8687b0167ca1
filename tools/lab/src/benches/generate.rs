//! What generating a packet costs.

use super::fixture;
use crate::bench::Bench;
use crate::error::LabError;
use crate::measure::Measure;
use crate::setting::Lanes;
use crate::setting::Setting;
use std::net::Ipv4Addr;
use std::sync::Arc;
use warmlane_gen::control::{
    Network, Payload, Profile, Rule, RuleOrder, RuleValues, Sizes, Stream, Template, Transport,
};
use warmlane_gen::datapath::{Pattern, TransmitOrder, TransmitOrders};
use warmlane_gen::{SendingSide, pipeline};
use warmlane_lane::{Pipeline, Poll, Task as _};
use warmlane_mem::LaneCache;
use warmlane_memory::null;
use warmlane_wire::{EtherType, MacAddress};

pub(super) const BENCHES: &[Bench] = &[
    Bench {
        name: NAME,
        unit: "packet",
        sentence: "generate 64-byte UDP from random sources, each with sequence number, time and checksums, and drop it",
        lanes: Lanes::One,
        prepare: |setting| generate(setting, &profile(RuleOrder::Random, true)),
    },
    Bench {
        name: "gen-null-counted",
        unit: "packet",
        sentence: "the same from one source after the other, with checksums only",
        lanes: Lanes::One,
        prepare: |setting| generate(setting, &profile(RuleOrder::Turn, false)),
    },
];

const NAME: &str = "gen-null";

/// Frames of 64 bytes, checksum included, whose source address differs: what testpmd's `--txonly-multi-flow` varies, too.
fn profile(order: RuleOrder, signed: bool) -> Profile {
    let network = Network::Ipv4 {
        source: Ipv4Addr::new(198, 18, 0, 0),
        destination: Ipv4Addr::new(198, 19, 0, 1),
        traffic_class: 0,
        ttl: 64,
        identification: 0,
        dont_fragment: false,
    };
    let template = Template {
        source: MacAddress([2, 0, 0, 0, 0, 1]),
        destination: MacAddress([2, 0, 0, 0, 0, 2]),
        ethertype: EtherType::IPV4,
        tags: Vec::new(),
        network,
        transport: Transport::Udp { source: 1024, destination: 9 },
    };
    let sources =
        Rule { field: "ipv4.source".to_owned(), values: RuleValues::Steps { count: 65_536, step: 1 }, order };
    let stream = Stream {
        name: NAME.to_owned(),
        share: 1,
        template,
        sizes: Sizes::fixed(64),
        payload: Payload::default(),
        signed,
        rules: vec![sources],
    };
    Profile { streams: vec![stream] }
}

/// The task that `warmlane gen` runs on its sending lane.
struct Generate {
    task: Pipeline,
    _lane: LaneCache,
}

fn generate(setting: &Setting, profile: &Profile) -> Result<Box<dyn Measure>, LabError> {
    let plan = profile.plan().map_err(LabError::setup)?;
    let (pool, lane) = fixture::pool(NAME)?;
    let sink = fixture::transmit(null::sink(NAME, 1))?;
    let orders = Arc::new(TransmitOrders::default());
    let sending = SendingSide { queue: sink, pool, orders: Arc::clone(&orders) };
    let mut task = pipeline(Some(sending), None).map_err(LabError::setup)?;
    orders.give(TransmitOrder {
        plan: Arc::new(plan),
        trial: 1,
        pattern: Pattern::Unpaced,
        packets_per_cycle: 0.0,
        duration: u64::MAX >> 1,
        count: u64::MAX,
        burst: setting.burst.unwrap_or(64),
        patience: 0,
        seed: 1,
    });
    // Takes the order up, which allocates.
    task.poll();
    Ok(Box::new(Generate { task, _lane: lane }))
}

impl Measure for Generate {
    fn work(&mut self) -> u64 {
        let moved = |poll| if let Poll::Worked(packets) = poll { packets as u64 } else { 0 };
        (0..100).map(|_| moved(self.task.poll())).sum()
    }
}
