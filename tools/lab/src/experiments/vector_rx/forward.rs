//! Forwarding, as an example program of DPDK does it: look the destination up, write the Ethernet addresses, count the hop.

use super::WIDTH;
use super::receive::Quarter;
use crate::error::LabError;
use crate::experiments::lines::lines;
use crate::random::Xorshift;
use warmlane_sys::pages::TableMemory;
use warmlane_sys::vector::{self, Vector, Work, ZERO};

/// The first line of a frame.
type Start = [u8; 64];

const HOPS: usize = 16;
/// Where the IPv4 header behind an Ethernet one has its destination, its time to live, and its checksum.
const DESTINATION: usize = 30;
const TIME_TO_LIVE: usize = 22;
const CHECKSUM: usize = 24;
/// What stays of the first sixteen bytes: all behind the addresses.
const KEPT: Quarter =
    [ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, 12, 13, 14, 15];

pub(super) struct Forwarding {
    pub(super) frames: TableMemory<Start>,
    /// The next hop of each prefix of 16 bits.
    hops: Vec<u8>,
    /// The addresses of each next hop, and zeros behind.
    addresses: [Quarter; HOPS],
}

impl Forwarding {
    /// Frames to random destinations in so many buffers. Nobody writes them again: a card would, outside the time that counts.
    pub(super) fn new(buffers: usize) -> Result<Self, LabError> {
        let mut frames = lines::<Start>(buffers)?;
        let mut random = Xorshift(Xorshift::SEED);
        for frame in frames.iter_mut().take(buffers) {
            frame[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
            frame[TIME_TO_LIVE] = 64;
            frame[DESTINATION..DESTINATION + 4].copy_from_slice(&(random.upper() as u32).to_be_bytes());
        }
        let addresses = std::array::from_fn(|hop| {
            let mut addresses = [2; 16];
            (addresses[5], addresses[11]) = (hop as u8, 0xff);
            addresses[12..].fill(0);
            addresses
        });
        let hops = (0..1 << 16).map(|_| random.below(HOPS) as u8).collect();
        Ok(Self { frames, hops, addresses })
    }

    /// Packet after packet, field after field.
    #[inline(never)]
    pub(super) fn one_by_one(&mut self, buffers: &[u32]) {
        for &buffer in buffers {
            let frame = &mut self.frames[buffer as usize];
            let hop = self.hops[prefix(frame)];
            let addresses = &self.addresses[usize::from(hop)];
            frame[..6].copy_from_slice(&addresses[..6]);
            frame[6..12].copy_from_slice(&addresses[6..12]);
            count_hop(frame);
        }
    }

    /// Eight packets at once: all are looked up before the first is written.
    #[inline(never)]
    pub(super) fn by_vector(&mut self, buffers: &[u32]) {
        vector::run(Part { forwarding: self, buffers });
    }
}

#[inline(always)]
fn prefix(frame: &Start) -> usize {
    usize::from(u16::from_be_bytes([frame[DESTINATION], frame[DESTINATION + 1]]))
}

/// As DPDK's l3fwd does it, which lets the checksum grow without its carry.
#[inline(always)]
fn count_hop(frame: &mut Start) {
    frame[TIME_TO_LIVE] = frame[TIME_TO_LIVE].wrapping_sub(1);
    let sum = u16::from_le_bytes([frame[CHECKSUM], frame[CHECKSUM + 1]]).wrapping_add(1);
    frame[CHECKSUM..CHECKSUM + 2].copy_from_slice(&sum.to_le_bytes());
}

struct Part<'a> {
    forwarding: &'a mut Forwarding,
    buffers: &'a [u32],
}

impl Work for Part<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self, vector: V) {
        let Forwarding { frames, hops, addresses } = self.forwarding;
        let (eights, rest) = self.buffers.as_chunks::<WIDTH>();
        for eight in eights {
            let mut found = [0; WIDTH];
            for (hop, &buffer) in found.iter_mut().zip(eight) {
                *hop = hops[prefix(&frames[buffer as usize])];
            }
            for (hop, &buffer) in found.into_iter().zip(eight) {
                rewrite(vector, &mut frames[buffer as usize], &addresses[usize::from(hop)]);
            }
        }
        for &buffer in rest {
            let frame = &mut frames[buffer as usize];
            rewrite(vector, frame, &addresses[usize::from(hops[prefix(frame)])]);
        }
    }
}

/// No closure: it would not be compiled for the vector's instructions.
#[inline(always)]
fn rewrite<V: Vector>(vector: V, frame: &mut Start, addresses: &Quarter) {
    if let Some(start) = frame.first_chunk_mut::<16>() {
        let kept = vector.shuffle(*start, KEPT);
        *start = (u128::from_ne_bytes(kept) | u128::from_ne_bytes(*addresses)).to_ne_bytes();
    }
    count_hop(frame);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_forward_the_same() {
        let [mut scalar, mut vector] = [(); 2].map(|()| Forwarding::new(100).unwrap());
        for buffers in [vec![3, 1, 4, 15, 9, 2, 6, 5, 35], vec![3; 20], vec![], vec![99]] {
            scalar.one_by_one(&buffers);
            vector.by_vector(&buffers);
        }
        assert!(scalar.frames[..] == vector.frames[..]);
        let frame = &scalar.frames[3];
        assert_eq!((frame[0], frame[11], frame[14], frame[22], frame[24]), (2, 0xff, 0x45, 64 - 21, 21));
        assert_eq!(scalar.frames[0][..12], [0; 12], "it was not forwarded");
    }
}
