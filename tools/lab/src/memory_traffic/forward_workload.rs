//! The forwarder as a program to be watched, as [`workload`](super::workload) is for the downstream.
//!
//! A lane's pipeline, as `warmlane forward` has it, forwards frames of one length from a card to a wire. With one route all addresses are in
//! one prefix; with many they are spread over a stretch of the full Internet table.

use super::workload::{BURST, Card, Part, WARM_UP, WATCHED, Wire, frames as watched_frames, pools};
use crate::error::LabError;
use crate::random::Xorshift;
use std::io::Write;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use warmlane_forward::control::Routes;
use warmlane_forward::control::config::{IcmpLimits, InterfaceAddress};
use warmlane_forward::control::full_table;
use warmlane_forward::datapath::Forwarder;
use warmlane_forward::pipeline;
use warmlane_lane::{LanePort, Pipeline, Task as _};
use warmlane_mem::Pool;
use warmlane_port::{QueueCounters, ReceiveQueue, TransmitQueue};
use warmlane_table::{Address, IpPrefix, Prefix};
use warmlane_wire::{Frame, Ipv4Fields, Ipv6Fields, MacAddress};

/// Routes of a stretch of the full table, and how many come before it: a part with many.
const ROUTES: usize = 16_384;
const BEFORE: [usize; 2] = [400_000, 60_000];

const OURS: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
const NEIGHBOUR: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);

/// Bytes of a frame check sequence, which lengths count and frames don't have.
const FCS: usize = 4;

/// Forwards frames of so many bytes, and writes to `output` where what is.
///
/// # Errors
/// [`LabError`].
pub fn run(bytes: u32, ipv6: bool, many: bool, mut output: impl Write) -> Result<(), LabError> {
    let (routes, frames) = routes_and_frames(bytes, ipv6, many)?;
    let [received, _sent] = pools(&mut output)?;
    let _lane = received.attach().map_err(LabError::setup)?;
    let due = Arc::<AtomicU32>::default();
    let card = Card::new(received.clone(), frames, &due);
    let sent = QueueCounters::new();
    let view = sent.view();
    let mut lane = lane(routes, received, Box::new(card), Box::new(Wire(sent)))?;
    for burst in 1..=u64::from(WARM_UP + WATCHED) {
        due.store(BURST, Ordering::Relaxed);
        Part::Upper.begin();
        lane.poll();
        Part::Nothing.begin();
        if view.packets() != burst * u64::from(BURST) {
            return Err(LabError::setup("the forwarder dropped a packet"));
        }
    }
    Ok(())
}

/// Routes, and a frame of so many bytes for each that is watched.
fn routes_and_frames(bytes: u32, ipv6: bool, many: bool) -> Result<(Routes, Vec<Vec<u8>>), LabError> {
    let least = if ipv6 { 14 + 40 + 8 } else { 14 + 20 + 8 };
    if !(64..=1_518).contains(&bytes) {
        return Err(LabError::setup(format!("frames of {bytes} bytes: there are from 64 to 1518 here")));
    }
    let (prefixes, addresses) = destinations(ipv6, many)?;
    let none: [InterfaceAddress; 0] = [];
    let mut routes = Routes::builder()
        .port(OURS, none)
        .neighbour("10.0.0.2", NEIGHBOUR, 0)
        .neighbour("fd00::2", NEIGHBOUR, 0);
    for prefix in prefixes {
        routes = routes.route(prefix, if ipv6 { "fd00::2" } else { "10.0.0.2" });
    }
    let routes = routes.build().map_err(LabError::setup)?;
    let payload = vec![0; (bytes as usize - FCS).saturating_sub(least)];
    let frame = |address: IpAddr| {
        let ethernet = Frame::new().ethernet(OURS, NEIGHBOUR);
        let network = match address {
            IpAddr::V4(address) => ethernet.ipv4(Ipv4Fields::new([16, 0, 0, 1].into(), address)),
            IpAddr::V6(address) => {
                ethernet.ipv6(Ipv6Fields::new([0x2600, 0, 0, 0, 0, 0, 0, 1].into(), address))
            }
        };
        network.udp(1_024, 53).payload(&payload).to_vec().map_err(LabError::setup)
    };
    let frames = addresses.into_iter().map(frame).collect::<Result<Vec<_>, _>>()?;
    Ok((routes, frames))
}

/// The lane that `warmlane forward` has, with one port.
fn lane(
    routes: Routes,
    pool: Pool,
    receive: Box<dyn ReceiveQueue>,
    transmit: Box<dyn TransmitQueue>,
) -> Result<Pipeline, LabError> {
    let port = LanePort { name: "port".to_owned(), receive: vec![receive], transmit: Some(transmit) };
    let forwarder = Forwarder::new(Arc::new(routes), pool, IcmpLimits::default());
    Ok(pipeline(forwarder, vec![port]).map_err(LabError::setup)?.with_burst(BURST as usize))
}

/// Prefixes that have a route, and an address in one of them for each frame.
fn destinations(ipv6: bool, many: bool) -> Result<(Vec<IpPrefix>, Vec<IpAddr>), LabError> {
    if ipv6 {
        let all = if many { full_table::ipv6().map_err(LabError::setup)? } else { Vec::new() };
        let few = Prefix::new(std::net::Ipv6Addr::from([0x2a00, 0, 0, 0, 0, 0, 0, 0]), 48);
        let chosen = stretch(all, BEFORE[1], few.map_err(LabError::setup)?);
        let addresses = within(&chosen).into_iter().map(|address: u128| IpAddr::V6(address.into()));
        return Ok((chosen.iter().copied().map(IpPrefix::V6).collect(), addresses.collect()));
    }
    let all = if many { full_table::ipv4().map_err(LabError::setup)? } else { Vec::new() };
    let few = Prefix::new(std::net::Ipv4Addr::new(203, 0, 112, 0), 24).map_err(LabError::setup)?;
    let chosen = stretch(all, BEFORE[0], few);
    let addresses = within(&chosen).into_iter().map(|address: u32| IpAddr::V4(address.into()));
    Ok((chosen.iter().copied().map(IpPrefix::V4).collect(), addresses.collect()))
}

fn stretch<A: Address>(all: Vec<Prefix<A>>, before: usize, only: Prefix<A>) -> Vec<Prefix<A>> {
    let some: Vec<_> = all.into_iter().skip(before).take(ROUTES).collect();
    if some.is_empty() { vec![only] } else { some }
}

/// An address for each frame that is watched, and for those before.
fn within<A: Address>(prefixes: &[Prefix<A>]) -> Vec<A> {
    let mut random = Xorshift(Xorshift::SEED);
    (0..watched_frames()).map(|_| prefixes[random.below(prefixes.len())].first()).collect()
}

#[cfg(test)]
pub(super) use changed::lines as changed_lines;

/// What forwarding changes of a frame.
#[cfg(test)]
mod changed {
    use super::*;
    use std::sync::Mutex;
    use warmlane_mem::Burst;
    use warmlane_port::{QueueCountersView, QueueStatus};

    /// Keeps the bytes of what it is given.
    struct Kept(QueueCounters, Arc<Mutex<Vec<Vec<u8>>>>);

    impl TransmitQueue for Kept {
        fn transmit(&mut self, burst: &mut Burst) -> usize {
            let count = burst.len();
            self.1.lock().unwrap().extend(burst.drain().map(|packet| packet.data().to_vec()));
            count
        }

        fn is_lossless(&self) -> bool {
            true
        }

        fn status(&self) -> QueueStatus {
            QueueStatus::Running
        }

        fn counters(&self) -> QueueCountersView {
            self.0.view()
        }
    }

    /// Lines of a frame, from its first byte, in which forwarding changes something.
    pub(in super::super) fn lines(bytes: u32, ipv6: bool) -> Result<Vec<usize>, LabError> {
        let (routes, frames) = routes_and_frames(bytes, ipv6, false)?;
        let [received, _sent] = pools(std::io::sink())?;
        let _lane = received.attach().map_err(LabError::setup)?;
        let due = Arc::new(AtomicU32::new(BURST));
        let card = Card::new(received.clone(), frames.clone(), &due);
        let kept = Arc::<Mutex<Vec<Vec<u8>>>>::default();
        let wire = Kept(QueueCounters::new(), Arc::clone(&kept));
        lane(routes, received, Box::new(card), Box::new(wire))?.poll();
        let kept = kept.lock().unwrap();
        assert_eq!(kept.len(), BURST as usize);
        let mut changed = Vec::new();
        for (before, after) in frames.iter().zip(&*kept) {
            assert_eq!(before.len(), after.len());
            let places = before.iter().zip(after).enumerate().filter(|(_, (before, after))| before != after);
            changed.extend(places.map(|(place, _)| place / 64));
        }
        changed.sort_unstable();
        changed.dedup();
        Ok(changed)
    }
}
