//! Lanes that share a card with several queues.

use std::time::Instant;

use warmlane_system_tests::LONG;

use super::wire::Look::{After, Before};
use super::wire::flow;
use super::{Pair, TWO_LANES, UDP};

/// Flows, and frames of each.
const FLOWS: u16 = 32;
const FRAMES: usize = 20;

impl Pair<'_> {
    /// The card spreads flows over the queues of two lanes: all come out as they should, those of one flow in order, and each lane has some.
    pub(super) fn check_lanes(&self) {
        let flow_of = |frame: &[u8]| u16::from_be_bytes([frame[34], frame[35]]) - 10_000;
        self.forward(TWO_LANES);
        let mut next = [0; FLOWS as usize];
        for number in 0..FRAMES {
            for flow_number in 0..FLOWS {
                self.wires[0].send(&flow(flow_number, number, Before));
            }
            // No more at once than a ring has space for.
            let (mut left, end) = (FLOWS, Instant::now() + LONG);
            while left > 0 {
                assert!(
                    Instant::now() < end,
                    "{left} of round {number} were lost: {}",
                    self.tell("cat /notes")
                );
                let Some(frame) = self.wires[1].receive() else { continue };
                if frame.get(12..14) != Some(&[8, 0]) || frame.get(23) != Some(&UDP) {
                    continue;
                }
                let flow_number = flow_of(&frame);
                let place = &mut next[usize::from(flow_number)];
                assert_eq!(frame, flow(flow_number, *place, After), "flow {flow_number}");
                *place += 1;
                left -= 1;
            }
        }
        assert!(next.iter().all(|count| *count == FRAMES), "{next:?}");
        let report = self.lab.finish();
        let lanes = [0, 1].map(|lane| report.number(&format!("/lanes/{lane}/packets")));
        // Besides the questions. By chance all flows would be in one once in 2^31 times; they are the same flows each time.
        let all = u64::from(FLOWS) * FRAMES as u64;
        assert!(lanes.iter().all(|count| *count > all / 4) && lanes[0] + lanes[1] >= all, "{lanes:?}");
    }
}
