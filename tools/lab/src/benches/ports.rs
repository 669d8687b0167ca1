//! What a port's burst path costs: of one with nothing but memory behind it, or of one that the caller names.

use super::fixture;
use crate::bench::Bench;
use crate::error::LabError;
use crate::measure::Measure;
use crate::setting::Lanes;
use crate::setting::Setting;
use crate::traffic;
use warmlane_mem::{Burst, LaneCache, Pool};
use warmlane_memory::{null, ring_pair};
use warmlane_port::{ReceiveQueue, TransmitQueue};

pub(super) const BENCHES: &[Bench] = &[
    Bench {
        name: NAME,
        unit: "packet",
        sentence: "send packets into one port of a ring pair and receive them from the other, on one lane",
        lanes: Lanes::One,
        prepare: ring_pair,
    },
    Bench {
        name: SEND,
        unit: "packet",
        sentence: "send frames of --frame-bytes bytes, of which only the headers are written, to --port, or away",
        lanes: Lanes::One,
        prepare: send,
    },
    Bench {
        name: RECEIVE,
        unit: "packet",
        sentence: "receive frames from --port, or replayed ones, and drop them",
        lanes: Lanes::One,
        prepare: receive,
    },
    Bench {
        name: ROUND,
        unit: "packet",
        sentence: "send frames as port-send, and receive those that come back by the same port",
        lanes: Lanes::One,
        prepare: round,
    },
    Bench {
        name: ECHO,
        unit: "packet",
        sentence: "receive frames from --port and send them back by it",
        lanes: Lanes::One,
        prepare: echo,
    },
];

const NAME: &str = "ring-pair";
const SEND: &str = "port-send";
const RECEIVE: &str = "port-receive";
const ROUND: &str = "port-round";
const ECHO: &str = "port-echo";
/// How often a unit of work repeats its burst, so that reading the clock is lost in it.
const REPEAT: usize = 100;

struct RingPair {
    burst: Burst,
    transmit: Box<dyn TransmitQueue>,
    receive: Box<dyn ReceiveQueue>,
    _lane: LaneCache,
}

fn ring_pair(setting: &Setting) -> Result<Box<dyn Measure>, LabError> {
    let size = setting.burst.unwrap_or(32);
    let (pool, lane) = fixture::pool(NAME)?;
    let [near, far] = ring_pair::open(["near", "far"], 512).map_err(LabError::setup)?;
    let (transmit, receive) = (fixture::transmit(near)?, fixture::receive(far)?);
    let mut burst = Burst::with_limit(size);
    pool.take_burst(&mut burst, size);
    Ok(Box::new(RingPair { burst, transmit, receive, _lane: lane }))
}

impl Measure for RingPair {
    fn work(&mut self) -> u64 {
        (0..REPEAT)
            .map(|_| {
                self.transmit.transmit(&mut self.burst);
                self.receive.receive(&mut self.burst) as u64
            })
            .sum()
    }
}

/// Ethernet, IPv4 and UDP headers: what a generator writes of each packet.
const HEADERS: usize = 42;

/// Makes frames and sends them.
struct Source {
    burst: Burst,
    headers: [u8; HEADERS],
    length: usize,
    pool: Pool,
    transmit: Box<dyn TransmitQueue>,
    _lane: LaneCache,
}

/// A source of frames, and the queue by which some may come back.
fn source(name: &str, setting: &Setting) -> Result<(Source, Option<Box<dyn ReceiveQueue>>), LabError> {
    let (pool, lane) = fixture::pool(name)?;
    let length = setting.frame_bytes.unwrap_or(60);
    if !(HEADERS..=pool.data_size()).contains(&length) {
        return Err(LabError::setup(format!(
            "frames of {length} bytes: use {HEADERS} to {}",
            pool.data_size()
        )));
    }
    let mut port = setting.port(&pool)?.unwrap_or_else(|| null::sink(name, 1));
    let receive = port.receive.pop();
    let transmit = fixture::transmit(port)?;
    let burst = Burst::with_limit(setting.burst.unwrap_or(64));
    Ok((Source { burst, headers: [0; HEADERS], length, pool, transmit, _lane: lane }, receive))
}

impl Source {
    /// Sends a burst, as far as there is room; returns how many.
    fn send(&mut self) -> u64 {
        let Self { burst, headers, length, pool, transmit, .. } = self;
        // What the port had no room for is still in front.
        let left = burst.len();
        pool.take_burst(burst, burst.space());
        for packet in &mut burst[left..] {
            // It fits: that was checked.
            if let Ok(data) = packet.append(*length) {
                data[..HEADERS].copy_from_slice(headers);
            }
        }
        transmit.transmit(burst) as u64
    }
}

struct PortSend(Source);

fn send(setting: &Setting) -> Result<Box<dyn Measure>, LabError> {
    Ok(Box::new(PortSend(source(SEND, setting)?.0)))
}

impl Measure for PortSend {
    fn work(&mut self) -> u64 {
        (0..REPEAT).map(|_| self.0.send()).sum()
    }
}

struct PortRound {
    source: Source,
    back: Burst,
    receive: Box<dyn ReceiveQueue>,
}

fn round(setting: &Setting) -> Result<Box<dyn Measure>, LabError> {
    let (source, receive) = source(ROUND, setting)?;
    let receive = receive.ok_or_else(|| LabError::setup("nothing comes back from this port"))?;
    let back = Burst::with_limit(setting.burst.unwrap_or(64));
    Ok(Box::new(PortRound { source, back, receive }))
}

impl Measure for PortRound {
    fn work(&mut self) -> u64 {
        (0..REPEAT)
            .map(|_| {
                self.source.send();
                let packets = self.receive.receive(&mut self.back);
                self.back.clear();
                packets as u64
            })
            .sum()
    }
}

fn echo(setting: &Setting) -> Result<Box<dyn Measure>, LabError> {
    let (pool, lane) = fixture::pool(ECHO)?;
    let nothing = || LabError::setup("there is nothing to send back: name a --port");
    let mut port = setting.port(&pool)?.ok_or_else(nothing)?;
    let receive = port.receive.pop().ok_or_else(nothing)?;
    let transmit = fixture::transmit(port)?;
    let burst = Burst::with_limit(setting.burst.unwrap_or(64));
    Ok(Box::new(fixture::Through { burst, receive, transmit, _lane: lane }))
}

struct PortReceive {
    burst: Burst,
    receive: Box<dyn ReceiveQueue>,
    _lane: LaneCache,
}

fn receive(setting: &Setting) -> Result<Box<dyn Measure>, LabError> {
    let (pool, lane) = fixture::pool(RECEIVE)?;
    let port = match setting.port(&pool)? {
        Some(port) => port,
        None => fixture::replayed(RECEIVE, setting, &pool, || traffic::zeros(65_536, 60))?,
    };
    let receive = fixture::receive(port)?;
    let burst = Burst::with_limit(setting.burst.unwrap_or(64));
    Ok(Box::new(PortReceive { burst, receive, _lane: lane }))
}

impl Measure for PortReceive {
    fn work(&mut self) -> u64 {
        (0..REPEAT)
            .map(|_| {
                let packets = self.receive.receive(&mut self.burst);
                self.burst.clear();
                packets as u64
            })
            .sum()
    }
}
