//! The stage that holds packets while the kernel finds out a neighbour's Ethernet address.

use warmlane_forward::control::{LaneRoutes, NextHop, Unresolved};
use warmlane_lane::{Explanation, Outputs, Rehearsed, Stage, WakeUps, polled_stage};
use warmlane_mem::{Burst, Packet};
use warmlane_port::TransmitOffloads;
use warmlane_sync::mailbox::Sender;
use warmlane_sys::clock::{self, Clock};
use warmlane_table::NextHopId;

use super::held::{Forecast, HeldPackets, HoldLimits, Kept, NeighbourKey};
use super::waker::Waker;

/// What may go on: the forwarder tries it again.
const RESUMED: usize = 0;
/// What waited in vain: the forwarder drops it and tells the sender.
const GIVEN_UP: usize = 1;
/// What there is no space for: the forwarder drops it.
const REFUSED: usize = 2;
const OUTPUTS: &[&str] = &["resumed", "given-up", "refused"];

/// Holds what the forwarder can't send on until the control side knows the neighbour; its outputs `resumed`, `given-up` and
/// `refused` lead back to the forwarder.
pub struct Hold {
    held: HeldPackets,
    /// The marks of packets are indices of next hops of these.
    routes: LaneRoutes,
    requests: Sender<NeighbourKey>,
    waker: Waker,
    /// Space for what comes out.
    resumed: Burst,
    given_up: Burst,
}

impl Hold {
    pub(crate) fn new(
        routes: LaneRoutes,
        requests: Sender<NeighbourKey>,
        waker: Waker,
        limits: HoldLimits,
        ports: usize,
    ) -> Self {
        let held = HeldPackets::new(limits, ports, Clock::calibrated().cycles_per_second());
        Self { held, routes, requests, waker, resumed: Burst::new(), given_up: Burst::new() }
    }

    /// Whom a packet waits for, as the forwarder marked it; `None` if the next hops were replaced since.
    fn whom(&self, packet: &Packet) -> Option<Unresolved> {
        match NextHopId::new(packet.mark()).and_then(|hop| self.routes.hops().next_hop(hop)) {
            Some(NextHop::Unresolved(whom)) => Some(*whom),
            _ => None,
        }
    }

    fn push_out(&mut self, outputs: &mut Outputs<'_>) -> usize {
        let count = self.resumed.len() + self.given_up.len();
        for (output, burst) in [(RESUMED, &mut self.resumed), (GIVEN_UP, &mut self.given_up)] {
            for packet in burst.drain() {
                outputs.send(output, packet);
            }
        }
        count
    }
}

fn request(requests: &mut Sender<NeighbourKey>, waker: &Waker, neighbour: NeighbourKey) {
    // If there is no space, control has hundreds to ask for: this one is given up in time.
    let _ = requests.send(neighbour);
    waker.wake();
}

impl Stage for Hold {
    polled_stage!("hold", outputs: OUTPUTS);

    #[cold]
    fn process(&mut self, burst: &mut Burst, outputs: &mut Outputs<'_>) {
        let now = clock::cycles();
        for packet in burst.drain() {
            let Some(whom) = self.whom(&packet) else {
                outputs.send(RESUMED, packet);
                continue;
            };
            let Kept { ask, refused, evicted } = self.held.keep(packet, whom, now);
            if let Some(neighbour) = ask {
                request(&mut self.requests, &self.waker, neighbour);
            }
            for packet in [refused, evicted].into_iter().flatten() {
                outputs.send(REFUSED, packet);
            }
        }
    }

    fn accepts(&self) -> TransmitOffloads {
        TransmitOffloads::ALL
    }

    #[inline]
    fn poll(&mut self, now: u64, _burst: &mut Burst, outputs: &mut Outputs<'_>) -> usize {
        self.routes.quiescent();
        if self.held.is_empty() || outputs.must_wait() {
            return 0;
        }
        let (requests, waker) = (&mut self.requests, &self.waker);
        let ask = |neighbour| request(requests, waker, neighbour);
        let version = self.routes.version();
        self.held.release(version, now, &mut self.resumed, &mut self.given_up, ask);
        self.push_out(outputs)
    }

    fn sleep(&mut self, wake_ups: WakeUps<'_>, then: &mut dyn FnMut(WakeUps<'_>)) {
        // What is held waits for news from control, which don't wake lanes.
        if self.held.is_empty() {
            self.routes.offline(|| then(wake_ups));
        }
    }

    fn finish(&mut self, _burst: &mut Burst, outputs: &mut Outputs<'_>) -> usize {
        self.held.finish(&mut self.given_up);
        self.push_out(outputs)
    }

    fn explain(&self, _input: usize, packet: &Packet, explanation: &mut Explanation) {
        let Some(whom) = self.whom(packet) else {
            explanation.note("neighbour", "known by now");
            return;
        };
        let Forecast { neighbour, waiting, buffers, limit, is_kept } = self.held.forecast(packet, whom);
        match neighbour {
            Some(address) => explanation.note("neighbour", format_args!("{address}, not known yet")),
            None => explanation.note("neighbour", "the packet has no destination"),
        }
        let room = if is_kept { "" } else { ": no space" };
        let held = format_args!("{waiting} packets for it, {buffers} of {limit} buffers for all{room}");
        explanation.note("waiting", held);
    }

    /// What is kept stays here; nobody is asked for.
    fn rehearse(&mut self, _input: usize, burst: &mut Burst, outputs: &mut Outputs<'_>) -> Option<Rehearsed> {
        for packet in burst.drain() {
            match self.whom(&packet).map(|whom| self.held.forecast(&packet, whom).is_kept) {
                None => outputs.send(RESUMED, packet),
                Some(false) => outputs.send(REFUSED, packet),
                Some(true) => drop(packet),
            }
        }
        Some(Vec::new())
    }
}
