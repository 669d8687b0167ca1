//! What a VXLAN tunnel end costs: replay, find and learn stations, encapsulate or decapsulate, drop.

use super::fixture::{self, ToSink};
use crate::bench::Bench;
use crate::error::LabError;
use crate::measure::Measure;
use crate::setting::{Lanes, Setting};
use std::net::{IpAddr, Ipv4Addr};
use warmlane_forward::control::TunnelProtocol;
use warmlane_forward::control::config::{IcmpLimits, OverlayConfig};
use warmlane_lane::{KeptOutputs, Pipeline, Stage as _};
use warmlane_mem::{Burst, Frames, Pool};
use warmlane_memory::null;
use warmlane_vxlan::{Gateway, PortFacts};
use warmlane_wire::{BuildError, Frame, Ipv4Fields, MacAddress, vxlan};

pub(super) const BENCHES: &[Bench] = &[
    Bench {
        name: "vxlan",
        unit: "packet",
        sentence: "replay 60-byte frames, find and learn stations, encapsulate in VXLAN over IPv4, drop",
        lanes: Lanes::One,
        prepare: |setting| prepare(setting, Way::Encapsulate),
    },
    Bench {
        name: "vxlan-decapsulate",
        unit: "packet",
        sentence: "the same of tunnelled frames: check what is around them, decapsulate, find and learn stations, drop",
        lanes: Lanes::One,
        prepare: |setting| prepare(setting, Way::Decapsulate),
    },
];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Encapsulate,
    Decapsulate,
}

impl Way {
    /// The port that frames come in by.
    const fn port(self) -> u16 {
        match self {
            Self::Encapsulate => ACCESS,
            Self::Decapsulate => UNDERLAY,
        }
    }
}

const NAME: &str = "vxlan";

/// Stations behind the tunnel ends, tunnel ends, and stations here; a frame for each pair of stations. `peers/vxlan.c` has the same.
const STATIONS: usize = 256;
const REMOTES: usize = 16;
const HOSTS: usize = 16;
const LENGTH: usize = 60;

const IDENTIFIER: u32 = 0x12_3456;
const OWN: MacAddress = MacAddress([2, 0, 0, 0, 0, 0xee]);
const LOCAL: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// Numbers of the ports: tunnels come in by the first.
const UNDERLAY: u16 = 0;
pub(crate) const ACCESS: u16 = 1;

fn prepare(setting: &Setting, way: Way) -> Result<Box<dyn Measure>, LabError> {
    let (pool, lane) = fixture::pool(NAME)?;
    let gateway = gateway(&pool)?;
    let source = fixture::replayed(NAME, setting, &pool, || frames(way))?;
    let out = fixture::transmit(null::sink("out", 1))?;
    let sink = out.counters();
    let mut builder = Pipeline::builder();
    let input = builder.port_input("in", way.port(), fixture::receive(source)?);
    let gateway = builder.stage("vxlan", gateway);
    let output = builder.output("out", out);
    builder.connect(input, gateway);
    match way {
        Way::Encapsulate => builder.connect(gateway, output),
        Way::Decapsulate => builder.connect((gateway, format!("bridge{ACCESS}")), output),
    };
    let task = builder.build().map_err(LabError::setup)?.with_burst(setting.burst.unwrap_or(64));
    Ok(Box::new(ToSink::new(task, sink, lane)))
}

/// A gateway that has seen all stations.
pub(crate) fn gateway(pool: &Pool) -> Result<Gateway, LabError> {
    let network = OverlayConfig {
        protocol: TunnelProtocol::Vxlan,
        identifier: IDENTIFIER,
        local: LOCAL.into(),
        remotes: (0..REMOTES).map(|number| IpAddr::V4(remote(number))).collect(),
        group: None,
        access: vec![(usize::from(ACCESS), None)],
        stations: Vec::new(),
        udp_port: vxlan::PORT,
        mtu: 1450,
        ttl: 64,
        udp_checksum: false,
        inner_checksums: false,
        neighbour_suppression: false,
        hosts: Vec::new(),
        age_seconds: 1_000_000,
    };
    let facts = PortFacts { mac: Some(OWN), mtu: 1500 };
    let mut gateway = Gateway::new(vec![network], vec![facts; 2], pool.clone(), IcmpLimits::default());
    let mut outputs = KeptOutputs::of(&gateway);
    for way in [Way::Decapsulate, Way::Encapsulate] {
        for number in 0..STATIONS * HOSTS {
            gateway.process(&mut burst(pool, way, number)?, &mut outputs.outputs());
            outputs.clear();
        }
    }
    Ok(gateway)
}

/// A burst of one frame.
fn burst(pool: &Pool, way: Way, number: usize) -> Result<Burst, LabError> {
    let mut packet = pool.take().ok_or_else(|| LabError::setup("there is no buffer"))?;
    packet.fill(&frame(way, number).map_err(LabError::setup)?).map_err(LabError::setup)?;
    packet.set_port(way.port());
    let mut burst = Burst::new();
    // It is empty.
    drop(burst.push(packet));
    Ok(burst)
}

fn remote(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, 2 + number as u8)
}

fn frames(way: Way) -> Result<Frames, LabError> {
    let mut frames = Frames::default();
    for number in 0..STATIONS * HOSTS {
        frames.push(&frame(way, number).map_err(LabError::setup)?).map_err(LabError::setup)?;
    }
    Ok(frames)
}

fn frame(way: Way, number: usize) -> Result<Vec<u8>, BuildError> {
    frame_of(way, number, LENGTH)
}

/// A frame of `length` bytes that is to be encapsulated: UDP between a pair of stations.
pub(crate) fn frame_to_encapsulate(number: usize, length: usize) -> Result<Vec<u8>, BuildError> {
    frame_of(Way::Encapsulate, number, length)
}

fn frame_of(way: Way, number: usize, length: usize) -> Result<Vec<u8>, BuildError> {
    let (station, host) = (number % STATIONS, number / STATIONS);
    let far = (MacAddress([2, 0, 0, 1, 0, station as u8]), Ipv4Addr::new(10, 1, 0, station as u8));
    let near = (MacAddress([2, 0, 0, 0, 0, host as u8]), Ipv4Addr::new(10, 0, 0, host as u8));
    let (from, to) = if way == Way::Encapsulate { (near, far) } else { (far, near) };
    let inside = Frame::new().ethernet(to.0, from.0).ipv4(Ipv4Fields::new(from.1, to.1));
    let payload = vec![0; length.saturating_sub(42)];
    let inside = inside.udp(1_024 + number as u16, 53).payload(&payload).padded(length).to_vec()?;
    if way == Way::Encapsulate {
        return Ok(inside);
    }
    let data = [&vxlan::header(IDENTIFIER)[..], &inside].concat();
    let around = Ipv4Fields { dont_fragment: true, ..Ipv4Fields::new(remote(station % REMOTES), LOCAL) };
    let around = Frame::new().ethernet(OWN, OWN).ipv4(around).udp(0xc000 + number as u16, vxlan::PORT);
    let mut packet = around.payload(&data).to_vec()?;
    // No checksum of UDP, as tunnel ends send it over IPv4.
    packet[40..42].fill(0);
    Ok(packet)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    #[test]
    fn all_goes_through_both_ways() {
        for way in [Way::Encapsulate, Way::Decapsulate] {
            let mut measure = prepare(&Setting::default(), way).unwrap();
            measure.work();
            measure.begin();
            let packets = measure.work();
            assert!(packets > 0 && measure.forwarded() == Some(packets));
        }
    }

    /// The peer refuses to begin unless its frames, and what it makes of them, have these hashes (FNV-1a). Source ports of tunnels are
    /// everyone's own choice.
    #[test]
    fn the_peer_has_the_same_frames_and_makes_the_same_of_them() {
        let peer = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../peers/vxlan.c");
        let peer = fs::read_to_string(peer).unwrap();
        for way in [Way::Encapsulate, Way::Decapsulate] {
            let (pool, _lane) = fixture::pool(NAME).unwrap();
            let mut gateway = gateway(&pool).unwrap();
            let mut outputs = KeptOutputs::of(&gateway);
            let mut hash = 0xcbf2_9ce4_8422_2325_u64;
            let mut add = |bytes: &[u8]| {
                for byte in bytes {
                    hash = (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
                }
            };
            for number in 0..STATIONS * HOSTS {
                add(&frame(way, number).unwrap());
                let mut burst = burst(&pool, way, number).unwrap();
                gateway.process(&mut burst, &mut outputs.outputs());
                let made =
                    if way == Way::Encapsulate { &mut burst } else { outputs.burst(usize::from(ACCESS)) };
                assert_eq!(made.len(), 1, "{way:?} {number}");
                let mut bytes = made[0].data().to_vec();
                if way == Way::Encapsulate {
                    bytes[34..36].fill(0);
                }
                add(&bytes);
                outputs.clear();
            }
            assert!(peer.contains(&format!("{hash:#018x}")), "{way:?}: {hash:#018x}");
        }
    }
}
