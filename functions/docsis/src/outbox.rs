//! Packets of stages that make more of them than they get: what an output doesn't take at once waits here, and nothing is lost.

use std::collections::VecDeque;

use warmlane_lane::Outputs;
use warmlane_mem::{BURST_CAPACITY, Packet};

/// Packets that wait at most: what a burst can become, if each packet holds the shortest frames only.
const CAPACITY: usize = 128 * BURST_CAPACITY;

/// The only output of such a stage.
const OUTPUT: usize = 0;

/// What an output hasn't taken.
pub(crate) struct Outbox {
    waiting: VecDeque<Packet>,
}

impl Default for Outbox {
    fn default() -> Self {
        Self { waiting: VecDeque::with_capacity(CAPACITY) }
    }
}

impl Outbox {
    /// Sends a packet, or keeps it for later.
    ///
    /// # Errors
    /// The packet, if there is no output or no space.
    #[inline]
    pub(crate) fn send(&mut self, packet: Packet, outputs: &mut Outputs<'_>) -> Result<(), Packet> {
        let packet = if self.waiting.is_empty() {
            match outputs.push(OUTPUT, packet) {
                Ok(()) => return Ok(()),
                Err(packet) => packet,
            }
        } else {
            packet
        };
        if self.waiting.len() == CAPACITY || !outputs.is_connected(OUTPUT) {
            return Err(packet);
        }
        self.waiting.push_back(packet);
        Ok(())
    }

    /// Sends what waits, as far as it is taken; says how many packets were.
    #[inline]
    pub(crate) fn drain(&mut self, outputs: &mut Outputs<'_>) -> usize {
        let mut sent = 0;
        while let Some(packet) = self.waiting.pop_front() {
            if let Err(packet) = outputs.push(OUTPUT, packet) {
                self.waiting.push_front(packet);
                break;
            }
            sent += 1;
        }
        sent
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}
