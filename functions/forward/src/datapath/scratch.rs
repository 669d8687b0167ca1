//! What the passes over a burst tell each other.

use warmlane_mem::BURST_CAPACITY;
use warmlane_table::NextHopId;

use super::eight::EIGHT;
use super::reason::Reason;
use crate::control::{ALWAYS_TOO_LARGE, TableNumber};

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

/// The packets of one family in a burst, gathered for the lookup: by destinations, an `A` each. Of a packet that is sent on, `L` replaces the lifetime and the
/// checksum over it.
pub(super) struct Gathered<A, L> {
    pub(super) count: usize,
    /// The packet's index in the burst. Indices grow from slot to slot, which `eight_from` relies on.
    pub(super) indices: [u8; BURST_CAPACITY],
    /// Bytes of the IP packet; `TAGGED` if it has a tag, or `ALWAYS_TOO_LARGE` if it takes the long way whatever its next hop.
    pub(super) lengths: [u16; BURST_CAPACITY],
    pub(super) addresses: [A; BURST_CAPACITY],
    pub(super) lifetimes: [L; BURST_CAPACITY],
    pub(super) hops: [NextHopId; BURST_CAPACITY],
}

/// Those of IPv4, with the header's third word as it leaves (`fast::decremented`).
pub(super) type GatheredIpv4 = Gathered<u32, u32>;

/// Those of IPv6, where there is no checksum.
pub(super) type GatheredIpv6 = Gathered<[u8; 16], ()>;

/// What pass one finds of a plain packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Plain<A, L> {
    pub(super) address: A,
    /// Bytes of the IP packet.
    pub(super) length: u16,
    pub(super) lifetime: L,
}

/// The same of eight packets.
pub(super) struct Eight<A, L> {
    pub(super) addresses: [A; EIGHT],
    pub(super) lengths: [u16; EIGHT],
    pub(super) lifetimes: [L; EIGHT],
}

impl<A: Copy, L: Copy> Gathered<A, L> {
    pub(super) const fn new(zero: A, lifetime: L) -> Self {
        Self {
            count: 0,
            indices: [0; BURST_CAPACITY],
            lengths: [0; BURST_CAPACITY],
            addresses: [zero; BURST_CAPACITY],
            lifetimes: [lifetime; BURST_CAPACITY],
            hops: [NextHopId::NONE; BURST_CAPACITY],
        }
    }

    #[inline(always)]
    pub(super) fn put(&mut self, slot: usize, index: usize, plain: Plain<A, L>) {
        // A slot stays below the burst's length, which is at most the capacity: the remainder changes nothing but
        // the compiler's mind.
        let slot = slot % BURST_CAPACITY;
        self.indices[slot] = index as u8;
        self.addresses[slot] = plain.address;
        self.lengths[slot] = plain.length;
        self.lifetimes[slot] = plain.lifetime;
    }

    /// Puts a packet that takes the long way whatever its next hop; there it loses of its lifetime, too.
    pub(super) fn put_slow(&mut self, index: usize, address: A, lifetime: L) {
        self.put(self.count, index, Plain { address, length: ALWAYS_TOO_LARGE, lifetime });
        self.count += 1;
    }

    /// The index of the first of eight packets from a slot on, if they follow each other in the burst.
    #[inline(always)]
    pub(super) fn eight_from(&self, slot: usize) -> Option<usize> {
        let indices: &[u8; EIGHT] = self.indices.get(slot..self.count)?.first_chunk()?;
        debug_assert!(indices.is_sorted_by(|one, next| one < next), "{indices:?}");
        // As indices grow, none is left out if the last is seven above the first.
        let [first, .., last] = *indices;
        (last.wrapping_sub(first) as usize == EIGHT - 1).then_some(first.into())
    }
}

/// An index and the seven that follow it, as the bytes of a number. None may be above 255, so that nothing is carried from one to the next.
#[inline(always)]
fn eight_after(first: u8) -> u64 {
    u64::from(first).wrapping_mul(0x0101_0101_0101_0101).wrapping_add(0x0706_0504_0302_0100)
}

impl<A, L> Gathered<A, L> {
    /// Puts eight packets that follow each other from `index` on into slots. Says whether there was space, as there is for those of a burst.
    #[inline(always)]
    pub(super) fn put_eight(&mut self, slot: usize, index: usize, eight: Eight<A, L>) -> bool {
        let slots = slot..slot + EIGHT;
        let (Some(indices), Some(addresses), Some(lengths), Some(lifetimes)) = (
            self.indices.get_mut(slots.clone()).and_then(<[u8]>::first_chunk_mut::<EIGHT>),
            self.addresses.get_mut(slots.clone()).and_then(<[A]>::first_chunk_mut),
            self.lengths.get_mut(slots.clone()).and_then(<[u16]>::first_chunk_mut),
            self.lifetimes.get_mut(slots).and_then(<[L]>::first_chunk_mut),
        ) else {
            return false;
        };
        *indices = eight_after(index as u8).to_le_bytes();
        (*addresses, *lengths, *lifetimes) = (eight.addresses, eight.lengths, eight.lifetimes);
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
    pub(super) ipv4: GatheredIpv4,
    pub(super) ipv6: GatheredIpv6,
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
