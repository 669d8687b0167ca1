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
        self.table.get(hash as usize & mask).copied().filter(|queue| usize::from(*queue) < MOST_QUEUES)
    }
}

/// Bytes of two IPv4 addresses and two ports.
const IPV4_INPUT: usize = 12;

/// Flows that are hashed together.
pub(super) struct Hashing {
    ipv4: Hashed<IPV4_INPUT>,
    ipv6: Hashed<LONGEST_INPUT>,
}

impl Hashing {
    pub(super) const fn new() -> Self {
        Self { ipv4: Hashed::new(), ipv6: Hashed::new() }
    }

    /// Adds the flow of a packet; there is space for [`GROUP`].
    #[inline]
    pub(super) fn add(&mut self, packet: usize, flow: &Flow) {
        let input = Toeplitz::input(flow);
        match input.first_chunk() {
            Some(input) if flow.source.is_ipv4() => self.ipv4.add(packet, input),
            _ => self.ipv6.add(packet, &input),
        }
    }

    /// Tells of each packet which queue it goes to, and forgets them.
    #[inline]
    pub(super) fn finish(&mut self, rss: &Rss, mut tell: impl FnMut(usize, u16)) {
        self.ipv4.finish(rss, &mut tell);
        self.ipv6.finish(rss, &mut tell);
    }
}

/// What is hashed of flows.
struct Hashed<const BYTES: usize> {
    inputs: [[u8; BYTES]; GROUP],
    /// The packets they are of.
    packets: [u8; GROUP],
    hashes: [u32; GROUP],
    count: usize,
}

impl<const BYTES: usize> Hashed<BYTES> {
    const fn new() -> Self {
        Self { inputs: [[0; BYTES]; GROUP], packets: [0; GROUP], hashes: [0; GROUP], count: 0 }
    }

    #[inline]
    fn add(&mut self, packet: usize, bytes: &[u8; BYTES]) {
        let at = self.count;
        if let (Some(input), Some(number)) = (self.inputs.get_mut(at), self.packets.get_mut(at)) {
            (*input, *number) = (*bytes, packet as u8);
            self.count += 1;
        }
    }

    #[inline]
    fn finish(&mut self, rss: &Rss, tell: &mut impl FnMut(usize, u16)) {
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
