//! What forwarding costs: replay, validate, look up in the full table or among flows, rewrite, drop.

use super::fixture::{self, POLLS, ToSink};
use crate::bench::Bench;
use crate::error::LabError;
use crate::measure::Measure;
use crate::partner::Partner;
use crate::setting::Lanes;
use crate::setting::Setting;
use crate::traffic::{self, Mix};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use warmlane_forward::control::config::{FullTableConfig, IcmpLimits, InterfaceAddress};
use warmlane_forward::control::{Routes, RoutesBuilder, RoutesError, Target};
use warmlane_forward::datapath::Forwarder;
use warmlane_forward::pipeline;
use warmlane_lane::{
    IdlePolicy, LaneCounters, LanePort, Pipeline, Point, Poll, ProbeConfig, ProbeReader, Task, run_here,
};
use warmlane_mem::{LaneCache, Pool, TooManyFrames};
use warmlane_memory::null;
use warmlane_memory::replay::{self, Frames, ReplayConfig};
use warmlane_sys::random::Random;
use warmlane_wire::{Flow, IpProtocol, MacAddress};

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
    Bench {
        name: "l3-forward-captured",
        unit: "packet",
        sentence: "the same as l3-forward-lane, while one packet in 1,000 is captured where it comes in and where it leaves, if it is of IP, and drops are",
        lanes: Lanes::One,
        prepare: l3_forward_captured,
    },
    Bench {
        name: "l3-forward-tagged",
        unit: "packet",
        sentence: "the same as l3-forward, of frames that come with a VLAN tag and leave with another one",
        lanes: Lanes::One,
        prepare: l3_forward_tagged,
    },
    Bench {
        name: "l3-forward-two-lanes",
        unit: "packet",
        sentence: "the same as l3-forward, while another lane does so, too: one table and one pool, a queue each; the first lane's cost",
        lanes: Lanes::Two,
        prepare: l3_forward_two_lanes,
    },
    Bench {
        name: "flows-forward",
        unit: "packet",
        sentence: "replay 60-byte frames, validate, find their flows among 1,000,000 by exact match, rewrite, drop",
        lanes: Lanes::One,
        prepare: flows_forward,
    },
];

const NAME: &str = "l3-forward";

/// Next hops that the table, or the flows, are spread over.
const NEIGHBOURS: u16 = 32;

/// Flows, the frames' among them.
const FLOWS: usize = 1_000_000;

/// Ours on the port.
const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);

fn l3_forward(setting: &Setting) -> Result<Box<dyn Measure>, LabError> {
    Ok(Box::new(forward(setting)?))
}

fn l3_forward_lane(setting: &Setting) -> Result<Box<dyn Measure>, LabError> {
    Ok(Box::new(InLane { forward: forward(setting)?, counters: LaneCounters::new() }))
}

fn l3_forward_captured(setting: &Setting) -> Result<Box<dyn Measure>, LabError> {
    Ok(Box::new(captured(setting)?))
}

fn captured(setting: &Setting) -> Result<Captured, LabError> {
    let forward = forward(setting)?;
    let graph = forward.task.graph();
    let is_ip = |data: &[u8], _: usize| matches!(data.get(12..14), Some([0x08, 0x00] | [0x86, 0xdd]));
    let config = ProbeConfig { one_in: 1_000, filter: Some(Arc::new(is_ip)), ..ProbeConfig::default() };
    let points = [Point::Input(0), Point::Output(0), Point::Drops];
    let probes = points.map(|point| graph.probe(point, config.clone()).map_err(LabError::setup));
    let probes = probes.into_iter().collect::<Result<_, _>>()?;
    Ok(Captured { lane: InLane { forward, counters: LaneCounters::new() }, probes })
}

fn l3_forward_tagged(setting: &Setting) -> Result<Box<dyn Measure>, LabError> {
    let neighbours = with_neighbours(|builder, address, mac| builder.tagged_neighbour(address, mac, 0, 7));
    let routes = to_full_table(neighbours).map_err(LabError::setup)?;
    let frames = frames(setting)?;
    let frames = tagged(&frames).map_err(LabError::setup)?;
    Ok(Box::new(by_routes(setting, &Arc::new(frames), routes)?))
}

/// The same frames with a tag.
fn tagged(frames: &Frames) -> Result<Frames, TooManyFrames> {
    let mut tagged = Frames::default();
    for number in 0..frames.len() {
        let Some((lines, length)) = frames.get(number) else { break };
        let mut frame: Vec<u8> = lines.iter().flat_map(|line| line.0).take(length).collect();
        frame.splice(12..12, [0x81, 0, 0, 3]);
        tagged.push(&frame)?;
    }
    Ok(tagged)
}

fn l3_forward_two_lanes(setting: &Setting) -> Result<Box<dyn Measure>, LabError> {
    let (second_cpu, burst) = (setting.second_cpu()?, burst(setting));
    let (routes, frames) = (Arc::new(routes().map_err(LabError::setup)?), frames(setting)?);
    let (pool, lane) = fixture::pool(NAME)?;
    let first = task(&frames, Arc::clone(&routes), &pool, lane, burst)?;
    let second = Partner::start(second_cpu, move || {
        let lane = pool.attach().map_err(|error| error.to_string())?;
        let mut second = task(&frames, routes, &pool, lane, burst).map_err(|error| error.to_string())?;
        Ok(move || {
            second.work();
        })
    });
    Ok(Box::new(TwoLanes { first, second: second.map_err(LabError::setup)? }))
}

/// One lane that is measured while another does the same.
struct TwoLanes {
    first: ToSink,
    second: Partner,
}

impl Measure for TwoLanes {
    fn work(&mut self) -> u64 {
        self.first.work()
    }

    fn begin(&mut self) {
        self.first.begin();
        self.second.resume();
    }

    fn end(&mut self) {
        self.second.pause();
    }

    fn forwarded(&self) -> Option<u64> {
        self.first.forwarded()
    }
}

fn flows_forward(setting: &Setting) -> Result<Box<dyn Measure>, LabError> {
    let frames = frames(setting)?;
    let routes = flows(&frames).map_err(LabError::setup)?;
    Ok(Box::new(by_routes(setting, &frames, routes)?))
}

fn forward(setting: &Setting) -> Result<ToSink, LabError> {
    let routes = routes().map_err(LabError::setup)?;
    // Frames last, so that they are not out of all caches again when the work begins.
    by_routes(setting, &frames(setting)?, routes)
}

fn frames(setting: &Setting) -> Result<Arc<Frames>, LabError> {
    match &setting.frames {
        Some(frames) => Ok(Arc::clone(frames)),
        None => traffic::generate(&Mix::shortest(65_536)).map(Arc::new).map_err(LabError::setup),
    }
}

fn by_routes(setting: &Setting, frames: &Arc<Frames>, routes: Routes) -> Result<ToSink, LabError> {
    let (pool, lane) = fixture::pool(NAME)?;
    task(frames, Arc::new(routes), &pool, lane, burst(setting))
}

fn burst(setting: &Setting) -> usize {
    setting.burst.unwrap_or(64)
}

/// The task that `warmlane forward` runs on its lanes.
fn task(
    frames: &Arc<Frames>,
    routes: Arc<Routes>,
    pool: &Pool,
    lane: LaneCache,
    burst: usize,
) -> Result<ToSink, LabError> {
    let source = replay::open(NAME, frames, pool, ReplayConfig::default()).map_err(LabError::setup)?;
    let out = fixture::transmit(null::sink(NAME, 1))?;
    let sink = out.counters();
    let forwarder = Forwarder::new(routes, pool.clone(), IcmpLimits::default());
    let port = LanePort { name: "out".to_owned(), receive: source.receive, transmit: Some(out) };
    let task = pipeline(forwarder, vec![port]).map_err(LabError::setup)?.with_burst(burst);
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

impl InLane {
    fn poll(&mut self) -> u64 {
        let counted = self.counters.view();
        let before = counted.packets();
        let mut polls = Polls { task: &mut self.forward.task, left: POLLS };
        // Nothing of it can break before the task itself ends.
        let _ = run_here(&mut polls, IdlePolicy::Balanced, &self.counters);
        counted.packets() - before
    }
}

impl Measure for InLane {
    fn work(&mut self) -> u64 {
        self.poll()
    }

    fn begin(&mut self) {
        self.forward.begin();
    }

    fn forwarded(&self) -> Option<u64> {
        self.forward.forwarded()
    }
}

/// The same while somebody captures.
struct Captured {
    lane: InLane,
    probes: Vec<ProbeReader>,
}

impl Measure for Captured {
    // Not by the lane's own: what is counted begins and ends where a function of this name does.
    fn work(&mut self) -> u64 {
        self.lane.poll()
    }

    fn begin(&mut self) {
        self.lane.begin();
        // What was copied before is read, as it is all the time.
        for probe in &mut self.probes {
            probe.read(usize::MAX, |_| {});
        }
    }

    fn forwarded(&self) -> Option<u64> {
        self.lane.forwarded()
    }
}

/// One port, and neighbours behind it: those with even numbers by IPv4, the others by IPv6.
fn neighbours() -> RoutesBuilder {
    with_neighbours(|builder, address, mac| builder.neighbour(address, mac, 0))
}

/// The same neighbours, with `add` adding each.
fn with_neighbours(add: impl Fn(RoutesBuilder, IpAddr, MacAddress) -> RoutesBuilder) -> RoutesBuilder {
    let none: [InterfaceAddress; 0] = [];
    let mut builder = Routes::builder().port(MAC, none);
    for host in 2..2 + NEIGHBOURS {
        let mac = MacAddress([2, 0, 0, 0, 1, host as u8]);
        // Read as a hexadecimal number, the last group is the decimal one that other programs with these addresses have.
        let last = host / 10 * 16 + host % 10;
        for address in [
            IpAddr::from(Ipv4Addr::new(10, 0, 0, host as u8)),
            IpAddr::from(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last)),
        ] {
            builder = add(builder, address, mac);
        }
    }
    builder
}

fn routes() -> Result<Routes, RoutesError> {
    to_full_table(neighbours())
}

/// The full table spread over the neighbours.
fn to_full_table(neighbours: RoutesBuilder) -> Result<Routes, RoutesError> {
    let ipv4 = (0..usize::from(NEIGHBOURS)).map(|neighbour| 2 * neighbour).collect::<Vec<_>>();
    let ipv6 = ipv4.iter().map(|number| number + 1).collect();
    neighbours.full_table(FullTableConfig { ipv4, ipv6 }).build()
}

/// The frames' flows and random others spread over the neighbours. No prefix is routed: a packet that is missed among the flows doesn't arrive.
fn flows(frames: &Frames) -> Result<Routes, RoutesError> {
    let of_frames = (0..frames.len()).filter_map(|number| {
        let (lines, length) = frames.get(number)?;
        let frame: Vec<u8> = lines.iter().flat_map(|line| line.0).take(length).collect();
        Flow::of_frame(&frame).ok()
    });
    let mut random = Random::new(1);
    // Their destinations are others than those of the generated frames.
    let others = std::iter::repeat_with(|| {
        let mut address =
            |first: u32| IpAddr::from(Ipv4Addr::from_bits(first | random.bits() as u32 & 0x0fff_ffff));
        let (source, destination) = (address(0x1000_0000), address(0x2000_0000));
        let ports = Some((random.bits() as u16, random.bits() as u16));
        Flow { source, destination, protocol: IpProtocol::UDP, ports }
    });
    let mut builder = neighbours();
    for (number, flow) in of_frames.chain(others).take(FLOWS.max(frames.len())).enumerate() {
        let Some((from, to)) = flow.ports else { continue };
        let (from, to) = (SocketAddr::new(flow.source, from), SocketAddr::new(flow.destination, to));
        let neighbour = 2 * (number % usize::from(NEIGHBOURS));
        builder = builder.flow(flow.protocol, from, to, Target::Neighbours(vec![(neighbour, 1)]));
    }
    builder.build()
}

#[cfg(test)]
mod tests {
    use super::*;

    type Prepare = fn(&Setting) -> Result<Box<dyn Measure>, LabError>;

    #[test]
    fn one_packet_in_a_thousand_is_captured_at_both_ends() {
        let mut captured = captured(&Setting::default()).unwrap();
        let packets = captured.work();
        assert!(packets > 1_000, "{packets}");
        for probe in &captured.probes[..2] {
            assert_eq!((probe.counters().copied(), probe.counters().missed()), (packets / 1_000, 0));
        }
    }

    #[test]
    fn what_does_not_arrive_is_seen() {
        // A hundred frames that are forwarded, and one of zeros that can't be.
        let mut frames = traffic::generate(&Mix::shortest(100)).unwrap();
        let forwarded = |frames: &Frames, prepare: Prepare| {
            let setting = Setting { frames: Some(Arc::new(frames.clone())), ..Setting::default() };
            let mut measure = prepare(&setting).unwrap();
            measure.work();
            measure.begin();
            (measure.work(), measure.forwarded())
        };
        let benches: [Prepare; 3] = [l3_forward, l3_forward_tagged, flows_forward];
        for prepare in benches {
            let (packets, arrived) = forwarded(&frames, prepare);
            assert!(packets > 0 && arrived == Some(packets), "{packets} {arrived:?}");
        }
        frames.push(&[0; 60]).unwrap();
        for prepare in benches {
            let (packets, arrived) = forwarded(&frames, prepare);
            assert!(arrived < Some(packets), "{packets} {arrived:?}");
        }
    }
}
