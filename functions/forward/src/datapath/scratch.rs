//! What the passes over a burst tell each other.

use warmlane_mem::BURST_CAPACITY;
use warmlane_table::NextHopId;

use super::eight::EIGHT;
use super::reason::Reason;
use crate::control::TableNumber;

/// What is to be done with a packet.
#[derive(Debug, Clone, Copy)]
pub(super) enum Action {
    /// IPv4 with this next hop, and something about it that takes longer.
    Ipv4(NextHopId),
    /// IPv6 with this next hop, and something about it that takes longer.
    Ipv6(NextHopId),
    /// ARP.
    Arp,
    /// IPv6 that stays on its link.
    Ipv6OnLink(Reason),
    /// For someone else here, or to be dropped.
    Punt(Reason),
    /// To be dropped.
    Drop(Reason),
}

/// The packets of one family in a burst, gathered for the lookup.
pub(super) struct Gathered<A> {
    pub(super) count: usize,
    /// The packet's index in the burst.
    pub(super) indices: [u8; BURST_CAPACITY],
    /// Bytes of the IP packet, or `ALWAYS_TOO_LARGE` if it takes the long way whatever its next hop.
    pub(super) lengths: [u16; BURST_CAPACITY],
    pub(super) addresses: [A; BURST_CAPACITY],
    pub(super) hops: [NextHopId; BURST_CAPACITY],
}

impl<A: Copy> Gathered<A> {
    pub(super) const fn new(zero: A) -> Self {
        Self {
            count: 0,
            indices: [0; BURST_CAPACITY],
            lengths: [0; BURST_CAPACITY],
            addresses: [zero; BURST_CAPACITY],
            hops: [NextHopId::NONE; BURST_CAPACITY],
        }
    }

    #[inline(always)]
    pub(super) fn put(&mut self, slot: usize, index: usize, address: A, length: u16) {
        // A slot stays below the burst's length, which is at most the capacity: the remainder changes nothing but
        // the compiler's mind.
        let slot = slot % BURST_CAPACITY;
        self.indices[slot] = index as u8;
        self.addresses[slot] = address;
        self.lengths[slot] = length;
    }
}

impl<A> Gathered<A> {
    /// Puts eight packets that follow each other from `index` on into slots. Says whether there was space, as there is for those of a burst.
    #[inline(always)]
    pub(super) fn put_eight(
        &mut self,
        slot: usize,
        index: usize,
        addresses: [A; EIGHT],
        lengths: [u16; EIGHT],
    ) -> bool {
        let slots = slot..slot + EIGHT;
        let (Some(indices), Some(places), Some(all_lengths)) = (
            self.indices.get_mut(slots.clone()).and_then(<[u8]>::first_chunk_mut::<EIGHT>),
            self.addresses.get_mut(slots.clone()).and_then(<[A]>::first_chunk_mut),
            self.lengths.get_mut(slots).and_then(<[u16]>::first_chunk_mut),
        ) else {
            return false;
        };
        // All at once: none is above 255, so nothing is carried from one to the next.
        let first = u64::from(index as u8).wrapping_mul(0x0101_0101_0101_0101);
        *indices = first.wrapping_add(0x0706_0504_0302_0100).to_le_bytes();
        *places = addresses;
        *all_lengths = lengths;
        true
    }
}

const _: () = assert!(BURST_CAPACITY == 256, "indices are bytes");

/// Stands for "not ready to leave" where a port is expected.
pub(super) const SLOW: u16 = u16::MAX;

/// What the passes tell each other about one burst.
pub(super) struct Scratch {
    /// The port by which the packet with each index is ready to leave, or [`SLOW`].
    pub(super) ports: [u16; BURST_CAPACITY],
    /// What to do with packets that aren't ready.
    pub(super) actions: [Action; BURST_CAPACITY],
    /// Which table the gathered addresses are looked up in.
    pub(super) table: TableNumber,
    /// Whether what is punted gets somewhere.
    pub(super) has_kernel: bool,
    pub(super) ipv4: Gathered<u32>,
    pub(super) ipv6: Gathered<[u8; 16]>,
}

impl Scratch {
    /// The port by which all of the first `count` packets leave, if there is one.
    #[inline(always)]
    pub(super) fn common_port(&self, count: usize) -> Option<u16> {
        let ports = self.ports.get(..count)?;
        let first = *ports.first()?;
        // No early end: this way it is a few vector instructions.
        let difference = ports.iter().fold(0, |difference, port| difference | (port ^ first));
        (difference == 0 && first != SLOW).then_some(first)
    }
}
