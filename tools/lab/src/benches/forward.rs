//! What forwarding costs: replay, validate, look up in the full table, rewrite, drop.

use super::fixture::{self, POLLS, ToSink};
use crate::bench::Bench;
use crate::error::LabError;
use crate::measure::Measure;
use crate::setting::Lanes;
use crate::setting::Setting;
use crate::traffic::{self, Mix};
use std::net::Ipv4Addr;
use std::sync::Arc;
use warmlane_forward::control::config::{FullTableConfig, IcmpLimits, InterfaceAddress};
use warmlane_forward::control::{Routes, RoutesError};
use warmlane_forward::datapath::Forwarder;
use warmlane_forward::pipeline;
use warmlane_lane::{IdlePolicy, LaneCounters, LanePort, Pipeline, Poll, Task, run_here};
use warmlane_memory::null;
use warmlane_wire::MacAddress;

pub(super) const BENCHES: &[Bench] = &[
    Bench {
        name: "l3-forward",
        unit: "packet",
        sentence: "replay 60-byte frames, validate, look up in the full table, rewrite, drop",
        lanes: Lanes::One,
        prepare: l3_forward,
    },
    Bench {
        name: "l3-forward-lane",
        unit: "packet",
        sentence: "the same in the loop of a lane, which counts, and would sleep if nothing came",
        lanes: Lanes::One,
        prepare: l3_forward_lane,
    },
];

const NAME: &str = "l3-forward";

/// Next hops that the table is spread over.
const NEIGHBOURS: u16 = 32;

/// Ours on the port.
const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);

fn l3_forward(setting: &Setting) -> Result<Box<dyn Measure>, LabError> {
    Ok(Box::new(forward(setting)?))
}

fn l3_forward_lane(setting: &Setting) -> Result<Box<dyn Measure>, LabError> {
    Ok(Box::new(InLane { forward: forward(setting)?, counters: LaneCounters::new() }))
}

/// The task that `warmlane forward` runs on its lanes.
fn forward(setting: &Setting) -> Result<ToSink, LabError> {
    let routes = routes().map_err(LabError::setup)?;
    let (pool, lane) = fixture::pool(NAME)?;
    let source = fixture::replayed(NAME, setting, &pool, || traffic::generate(&Mix::shortest(65_536)))?;
    let out = fixture::transmit(null::sink(NAME, 1))?;
    let sink = out.counters();
    let forwarder = Forwarder::new(Arc::new(routes), pool, IcmpLimits::default());
    let port = LanePort { name: "out".to_owned(), receive: source.receive, transmit: Some(out) };
    let task =
        pipeline(forwarder, vec![port]).map_err(LabError::setup)?.with_burst(setting.burst.unwrap_or(64));
    Ok(ToSink::new(task, sink, lane))
}

/// The same task, polled by a lane's loop.
struct InLane {
    forward: ToSink,
    counters: LaneCounters,
}

/// So many polls of a task, which goes on afterwards.
struct Polls<'a> {
    task: &'a mut Pipeline,
    left: usize,
}

impl Task for Polls<'_> {
    fn poll(&mut self) -> Poll {
        if self.left == 0 {
            return Poll::Finished;
        }
        self.left -= 1;
        self.task.poll()
    }

    fn stop(&mut self) {}
}

impl Measure for InLane {
    fn work(&mut self) -> u64 {
        let counted = self.counters.view();
        let before = counted.packets();
        let mut polls = Polls { task: &mut self.forward.task, left: POLLS };
        // Nothing of it can break before the task itself ends.
        let _ = run_here(&mut polls, IdlePolicy::Balanced, &self.counters);
        counted.packets() - before
    }

    fn begin(&mut self) {
        self.forward.begin();
    }

    fn forwarded(&self) -> Option<u64> {
        self.forward.forwarded()
    }
}

/// One port, and the full table spread over neighbours behind it.
fn routes() -> Result<Routes, RoutesError> {
    let none: [InterfaceAddress; 0] = [];
    let mut builder = Routes::builder().port(MAC, none);
    let mut spread = FullTableConfig::default();
    for host in 2..2 + NEIGHBOURS {
        let mac = MacAddress([2, 0, 0, 0, 1, host as u8]);
        let number = 2 * (usize::from(host) - 2);
        // In text the last group is a decimal number, as other programs with these addresses have it.
        builder = builder.neighbour(Ipv4Addr::new(10, 0, 0, host as u8), mac, 0).neighbour(
            format!("fd00::{host}").as_str(),
            mac,
            0,
        );
        spread.ipv4.push(number);
        spread.ipv6.push(number + 1);
    }
    builder.full_table(spread).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_arrive_is_seen() {
        // A hundred frames that are forwarded, and one of zeros that can't be.
        let mut frames = traffic::generate(&Mix::shortest(100)).unwrap();
        let forwarded = |frames: &warmlane_memory::replay::Frames| {
            let setting = Setting { frames: Some(Arc::new(frames.clone())), ..Setting::default() };
            let mut measure = l3_forward(&setting).unwrap();
            measure.work();
            measure.begin();
            (measure.work(), measure.forwarded())
        };
        let (packets, arrived) = forwarded(&frames);
        assert!(packets > 0 && arrived == Some(packets), "{packets} {arrived:?}");
        frames.push(&[0; 60]).unwrap();
        let (packets, arrived) = forwarded(&frames);
        assert!(arrived < Some(packets), "{packets} {arrived:?}");
    }
}
