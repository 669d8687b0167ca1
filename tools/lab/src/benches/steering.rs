//! What finding out which lane a packet is for takes.

use super::fixture;
use crate::bench::Bench;
use crate::error::LabError;
use crate::measure::Measure;
use crate::setting::{Lanes, Setting};
use warmlane_mem::Burst;
use warmlane_memory::null;
use warmlane_memory::replay::Frames;
use warmlane_port::steering::{Action, Match, Rss, Rule, Steering};
use warmlane_wire::toeplitz::MICROSOFT_KEY;
use warmlane_wire::{Frame, IpProtocol, Ipv4Fields, MacAddress};

pub(super) const BENCHES: &[Bench] = &[Bench {
    name: NAME,
    unit: "packet",
    sentence: "replay datagrams of 1,024 flows, by rules for 64 of them and for a prefix, none of which fits, and by hash find out which lane they are for, and drop them",
    lanes: Lanes::One,
    prepare,
}];

const NAME: &str = "steer-drop";

const FLOWS: u16 = 1_024;

fn prepare(setting: &Setting) -> Result<Box<dyn Measure>, LabError> {
    let (pool, lane) = fixture::pool(NAME)?;
    let source = fixture::replayed(NAME, setting, &pool, frames)?;
    let steering =
        Steering::new(&rules()?, Some(Rss::even(&MICROSOFT_KEY, 1)), 1).map_err(LabError::setup)?;
    let receive = fixture::receive(source.steered(&steering))?;
    let transmit = fixture::transmit(null::sink(NAME, 1))?;
    let burst = Burst::with_limit(setting.burst.unwrap_or(64));
    Ok(Box::new(fixture::Through { burst, receive, transmit, _lane: lane }))
}

fn frames() -> Result<Frames, LabError> {
    let mut frames = Frames::new();
    let link = Frame::new().ethernet(MacAddress([2, 0, 0, 0, 0, 1]), MacAddress([2, 0, 0, 0, 0, 2]));
    let ip = link.ipv4(Ipv4Fields::new([192, 0, 2, 1].into(), [198, 51, 100, 2].into()));
    for number in 0..u16::MAX {
        // All flows in an order that no branch can learn.
        let port = number.wrapping_mul(0x6f35) % FLOWS;
        let frame = ip.udp(1_024 + port, 53).payload(&[0; 18]).to_vec().map_err(LabError::setup)?;
        frames.push(&frame).map_err(LabError::setup)?;
    }
    Ok(frames)
}

fn rules() -> Result<Vec<Rule>, LabError> {
    let action = Action::Receive { queue: Some(0), mark: None };
    let other = "203.0.113.0/24".parse().map_err(LabError::setup)?;
    let of_flow = |number: u16| Match {
        protocol: Some(IpProtocol::UDP),
        source: Some(other),
        source_port: Some(1_024 + number),
        destination_port: Some(53),
        ..Match::default()
    };
    let mut rules: Vec<Rule> = (0..64_u16).map(|number| Rule { of: of_flow(number), action }).collect();
    rules.push(Rule { of: Match { destination: Some(other), ..Match::default() }, action });
    Ok(rules)
}
