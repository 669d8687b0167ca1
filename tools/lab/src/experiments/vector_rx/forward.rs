//! Forwarding, as an example program of DPDK does it: look the destination up, write the Ethernet addresses, count the hop.

use crate::random::Xorshift;
use warmlane_mem::Packet;
use warmlane_sys::vector::{self, Vector, Work, ZERO};

/// What forwarding looks at and writes: the first line of a frame.
pub(super) type Start = [u8; 64];
/// Sixteen bytes, which one vector instruction loads, shuffles or stores.
type Quarter = [u8; 16];

const HOPS: usize = 16;
/// Packets that are looked up before the first of them is written.
const WIDTH: usize = 8;
/// Where the IPv4 header behind an Ethernet one has its destination, its time to live, and its checksum.
const DESTINATION: usize = 30;
const TIME_TO_LIVE: usize = 22;
const CHECKSUM: usize = 24;
/// What stays of the first sixteen bytes: all behind the addresses.
const KEPT: Quarter =
    [ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, 12, 13, 14, 15];

/// A frame to a random destination.
pub(super) fn frame(random: &mut Xorshift) -> Start {
    let mut frame = [0; size_of::<Start>()];
    frame[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
    frame[TIME_TO_LIVE] = 64;
    frame[DESTINATION..DESTINATION + 4].copy_from_slice(&(random.upper() as u32).to_be_bytes());
    frame
}

pub(super) struct Forwarding {
    /// The next hop of each prefix of 16 bits.
    hops: Vec<u8>,
    /// The addresses of each next hop, and zeros behind.
    addresses: [Quarter; HOPS],
}

impl Forwarding {
    pub(super) fn new() -> Self {
        let addresses = std::array::from_fn(|hop| {
            let mut addresses = [2; 16];
            (addresses[5], addresses[11]) = (hop as u8, 0xff);
            addresses[12..].fill(0);
            addresses
        });
        let mut random = Xorshift(Xorshift::SEED);
        Self { hops: (0..1 << 16).map(|_| random.below(HOPS) as u8).collect(), addresses }
    }

    /// Packet after packet, field after field.
    #[inline(never)]
    pub(super) fn one_by_one(&self, packets: &mut [Packet]) {
        for packet in packets {
            let Some(frame) = start(packet) else { continue };
            let addresses = &self.addresses[usize::from(self.hops[prefix(frame)])];
            frame[..6].copy_from_slice(&addresses[..6]);
            frame[6..12].copy_from_slice(&addresses[6..12]);
            count_hop(frame);
        }
    }

    /// Eight packets at once: all are looked up before the first is written.
    #[inline(never)]
    pub(super) fn by_vector(&self, packets: &mut [Packet]) {
        vector::run(Part { forwarding: self, packets });
    }
}

/// Shorter packets are left as they are.
#[inline(always)]
fn start(packet: &mut Packet) -> Option<&mut Start> {
    packet.data_mut().first_chunk_mut()
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
    forwarding: &'a Forwarding,
    packets: &'a mut [Packet],
}

impl Work for Part<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self, vector: V) {
        let Forwarding { hops, addresses } = self.forwarding;
        let (eights, rest) = self.packets.as_chunks_mut::<WIDTH>();
        for eight in eights {
            let mut found = [0; WIDTH];
            for (hop, packet) in found.iter_mut().zip(&mut *eight) {
                *hop = start(packet).map_or(0, |frame| hops[prefix(frame)]);
            }
            for (hop, packet) in found.into_iter().zip(eight) {
                rewrite(vector, packet, &addresses[usize::from(hop)]);
            }
        }
        for packet in rest {
            let hop = start(packet).map_or(0, |frame| hops[prefix(frame)]);
            rewrite(vector, packet, &addresses[usize::from(hop)]);
        }
    }
}

/// No closure: it would not be compiled for the vector's instructions.
#[inline(always)]
fn rewrite<V: Vector>(vector: V, packet: &mut Packet, addresses: &Quarter) {
    let Some(frame) = start(packet) else { return };
    if let Some(start) = frame.first_chunk_mut::<16>() {
        let kept = vector.shuffle(*start, KEPT);
        *start = (u128::from_ne_bytes(kept) | u128::from_ne_bytes(*addresses)).to_ne_bytes();
    }
    count_hop(frame);
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmlane_mem::{Burst, Pool, PoolConfig};

    #[test]
    fn both_ways_forward_the_same() {
        let pool = Pool::new(&PoolConfig { buffers: 64, ..PoolConfig::default() }).unwrap();
        let forwarding = Forwarding::new();
        for count in [0, 1, 7, 8, 20] {
            let mut random = Xorshift(Xorshift::SEED);
            let frames: Vec<Start> = (0..count).map(|_| frame(&mut random)).collect();
            let [scalar, vector] = [Forwarding::one_by_one, Forwarding::by_vector].map(|forward| {
                let mut burst = Burst::new();
                pool.take_burst(&mut burst, count);
                burst.iter_mut().zip(&frames).for_each(|(packet, frame)| packet.fill(frame).unwrap());
                for _ in 0..21 {
                    forward(&forwarding, &mut burst);
                }
                burst.iter().map(|packet| packet.data().to_vec()).collect::<Vec<_>>()
            });
            assert_eq!(scalar, vector);
            for (frame, before) in scalar.iter().zip(&frames) {
                assert_eq!(
                    (frame[0], frame[11], frame[14], frame[22], frame[24]),
                    (2, 0xff, 0x45, 64 - 21, 21)
                );
                assert_eq!(frame[DESTINATION..], before[DESTINATION..]);
            }
        }
    }
}
