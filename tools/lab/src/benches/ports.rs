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
];

const NAME: &str = "ring-pair";
const SEND: &str = "port-send";
const RECEIVE: &str = "port-receive";
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

struct PortSend {
    burst: Burst,
    headers: [u8; HEADERS],
    length: usize,
    pool: Pool,
    transmit: Box<dyn TransmitQueue>,
    _lane: LaneCache,
}

fn send(setting: &Setting) -> Result<Box<dyn Measure>, LabError> {
    let (pool, lane) = fixture::pool(SEND)?;
    let length = setting.frame_bytes.unwrap_or(60);
    if !(HEADERS..=pool.data_size()).contains(&length) {
        return Err(LabError::setup(format!(
            "frames of {length} bytes: use {HEADERS} to {}",
            pool.data_size()
        )));
    }
    let port = setting.port(&pool)?.unwrap_or_else(|| null::sink(SEND, 1));
    let transmit = fixture::transmit(port)?;
    let burst = Burst::with_limit(setting.burst.unwrap_or(64));
    Ok(Box::new(PortSend { burst, headers: [0; HEADERS], length, pool, transmit, _lane: lane }))
}

impl Measure for PortSend {
    fn work(&mut self) -> u64 {
        let Self { burst, headers, length, pool, transmit, .. } = self;
        (0..REPEAT)
            .map(|_| {
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
            })
            .sum()
    }
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
