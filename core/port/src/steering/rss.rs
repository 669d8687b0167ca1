//! Spreading flows over queues by their hash.

use warmlane_wire::Flow;
use warmlane_wire::toeplitz::{KEY_LENGTH, LONGEST_INPUT, Toeplitz};

use super::MOST_QUEUES;
use super::classifier::GROUP;

/// Entries of the usual redirection table.
const ENTRIES: usize = 128;

/// Receive-side scaling: by a Toeplitz hash of addresses and ports, whose low bits choose an entry of a redirection table (Microsoft,
/// "Introduction to receive side scaling"). Packets of a flow, and all fragments of a packet, go to one queue; what isn't IP stays
/// where it came in.
#[derive(Clone)]
pub struct Rss {
    toeplitz: Toeplitz,
    /// As many entries as a power of two: the queue of each.
    table: Vec<u16>,
}

impl Rss {
    /// Spreads evenly over as many queues, with this [key](warmlane_wire::toeplitz).
    pub fn even(key: &[u8; KEY_LENGTH], queues: usize) -> Self {
        let queues = queues.clamp(1, MOST_QUEUES);
        let entries = ENTRIES.max(queues.next_power_of_two());
        let table = (0..entries).map(|entry| (entry % queues) as u16).collect();
        Self { toeplitz: Toeplitz::new(key), table }
    }

    /// With a table of one's own: the queue for each value of the hash's low bits. It is repeated until its length is a power of two, and
    /// says nothing of queues that aren't there: their packets stay where they came in.
    #[must_use]
    pub fn with_table(mut self, queues: &[u16]) -> Self {
        let entries = queues.len().next_power_of_two();
        self.table =
            queues.iter().copied().cycle().take(if queues.is_empty() { 0 } else { entries }).collect();
        self
    }

    fn queue(&self, hash: u32) -> Option<u16> {
        let mask = self.table.len().wrapping_sub(1);
        self.table.get(hash as usize & mask).copied()
    }
}

/// Flows that are hashed together.
pub(super) struct Hashing {
    inputs: [[u8; LONGEST_INPUT]; GROUP],
    /// The packets they are of.
    packets: [u8; GROUP],
    hashes: [u32; GROUP],
    count: usize,
}

impl Hashing {
    pub(super) const fn new() -> Self {
        Self { inputs: [[0; LONGEST_INPUT]; GROUP], packets: [0; GROUP], hashes: [0; GROUP], count: 0 }
    }

    /// Adds the flow of a packet; there is space for [`GROUP`].
    #[inline]
    pub(super) fn add(&mut self, packet: usize, flow: &Flow) {
        if let (Some(input), Some(number)) =
            (self.inputs.get_mut(self.count), self.packets.get_mut(self.count))
        {
            *input = Toeplitz::input(flow);
            *number = packet as u8;
            self.count += 1;
        }
    }

    /// Tells of each packet which queue it goes to, and forgets them.
    #[inline]
    pub(super) fn finish(&mut self, rss: &Rss, mut tell: impl FnMut(usize, u16)) {
        let count = std::mem::take(&mut self.count);
        let hashes = &mut self.hashes[..count];
        rss.toeplitz.hash_burst(&self.inputs[..count], hashes);
        for (packet, hash) in self.packets.iter().zip(hashes) {
            if let Some(queue) = rss.queue(*hash) {
                tell(usize::from(*packet), queue);
            }
        }
    }
}
