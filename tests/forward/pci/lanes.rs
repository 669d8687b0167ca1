//! Lanes that share a card with several queues.

use std::time::Instant;

use warmlane::wire::toeplitz::{MICROSOFT_KEY, Toeplitz};
use warmlane::wire::{Flow, IpProtocol};
use warmlane_system_tests::LONG;

use super::wire::Look::{After, Before};
use super::wire::flow;
use super::{HOST_ADDRESSES, Pair, TWO_LANES, UDP};

/// Lanes, and flows and frames of each flow.
const LANES: usize = 2;
const FLOWS: usize = 32;
const FRAMES: usize = 20;

/// How many of the flows a card with RSS gives to each lane: not halves, as any other hash would be likely to make of them.
const SPREAD: [usize; LANES] = [24, 8];

/// The first of the ports that flows come from, and the one that they go to.
const FIRST_PORT: u16 = 10_000;
const TO_PORT: u16 = 53;

/// To which lane a card with RSS gives a flow: by the last bits of its hash, and there are two.
fn lane(from: usize, port: u16) -> usize {
    let [source, destination] = [from, 1 - from].map(|side| HOST_ADDRESSES[side].into());
    let flow = Flow { source, destination, protocol: IpProtocol::UDP, ports: Some((port, TO_PORT)) };
    Toeplitz::new(&MICROSOFT_KEY).flow(&flow) as usize % LANES
}

/// The ports of flows that a card with RSS spreads like that.
fn ports(from: usize) -> Vec<u16> {
    let mut left = SPREAD;
    let fits = |port: &u16| {
        let left = &mut left[lane(from, *port)];
        let fits = *left > 0;
        *left -= usize::from(fits);
        fits
    };
    (FIRST_PORT..).filter(fits).take(FLOWS).collect()
}

impl Pair<'_> {
    /// The cards spread flows over the queues of two lanes, also when they have been started again.
    pub(super) fn check_lanes(&self) {
        for from in [0, 1] {
            self.forward(TWO_LANES);
            self.check_flows(from);
            self.check_shares(from);
        }
        self.forward(TWO_LANES);
        if self.kind.resets {
            self.reset_under_load();
        }
        self.check_flows(0);
        self.check_shares(0);
    }

    /// Frames of all flows come out as they should, those of one flow in order.
    fn check_flows(&self, from: usize) {
        let ports = ports(from);
        let wires = [&self.wires[from], &self.wires[1 - from]];
        let mut next = [0; FLOWS];
        for number in 0..FRAMES {
            for port in &ports {
                wires[0].send(&flow(from, (*port, TO_PORT), number, Before));
            }
            // No more at once than a ring has space for.
            let (mut left, end) = (FLOWS, Instant::now() + LONG);
            while left > 0 {
                assert!(
                    Instant::now() < end,
                    "{left} of round {number} were lost: {}",
                    self.tell("cat /notes")
                );
                let Some(frame) = wires[1].receive() else { continue };
                if frame.get(12..14) != Some(&[8, 0]) || frame.get(23) != Some(&UDP) {
                    continue;
                }
                let port = u16::from_be_bytes([frame[34], frame[35]]);
                let place = ports.iter().position(|there| *there == port);
                let place = &mut next[place.unwrap_or_else(|| panic!("a flow from port {port}"))];
                assert_eq!(frame, flow(from, (port, TO_PORT), *place, After), "port {port}");
                *place += 1;
                left -= 1;
            }
        }
        assert!(next.iter().all(|count| *count == FRAMES), "{next:?}");
    }

    /// Each lane has had its share of the flows that came from this side.
    fn check_shares(&self, from: usize) {
        let report = self.lab.finish();
        let lanes = [0, 1].map(|lane| report.number(&format!("/lanes/{lane}/packets")) as usize);
        // Besides them there were questions. Who spreads flows as he likes leaves a lane less than two of them once in many million times.
        let least = if self.kind.has_rss[from] { SPREAD } else { [2; LANES] };
        let is_share = |(count, least): (&usize, usize)| *count >= least * FRAMES;
        assert!(lanes.iter().zip(least).all(is_share), "{lanes:?} of {least:?} flows: {report:#?}");
        assert!(lanes.iter().sum::<usize>() >= FLOWS * FRAMES, "{lanes:?}");
    }
}
