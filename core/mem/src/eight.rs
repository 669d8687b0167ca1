//! What eight packets begin with, found for all of them at once.

use std::array;

use warmlane_sys::vector::Vector;

use crate::header::Header;
use crate::packet::Packet;

/// How many packets there are at once.
const EIGHT: usize = 8;

/// The first `N` bytes of eight packets, and the bytes of each: by vector, what [`Packet::data`], [`Packet::packet_length`] and
/// [`Packet::port`] say one by one.
///
/// `None` if one of them came in by another port than `port`, doesn't lie in one buffer, or is shorter than `N`.
#[inline(always)]
pub fn starts_of_eight<V: Vector, const N: usize>(
    vector: V,
    packets: &[Packet; EIGHT],
    port: u16,
) -> Option<([&[u8; N]; EIGHT], [u32; EIGHT])> {
    const { assert!(N <= u16::MAX as usize, "as long as a buffer's data may be") };
    // On such machines the fields are in other places of the words.
    if cfg!(target_endian = "big") {
        return None;
    }
    let [data, lengths, origins, _] =
        vector.short_columns(array::from_fn(|packet| first_half(&packets[packet])));
    // As vectors, like what they are compared with.
    let (ports, least) = ([u32::from(port); EIGHT], [N as u32; EIGHT]);
    // Not zero where something is wrong. Of a chain, the first buffer is shorter than the packet.
    let wrong: [u32; EIGHT] = array::from_fn(|packet| {
        let (length, whole) = (data[packet] >> 16, lengths[packet]);
        let short = 0_u32.wrapping_sub(u32::from(whole < least[packet]));
        (length ^ whole) | (origins[packet] >> 16 ^ ports[packet]) | short
    });
    if wrong.into_iter().fold(0, |all, word| all | word) != 0 {
        return None;
    }
    let starts = array::from_fn(|packet| {
        // SAFETY: the packet's first buffer has at least `N` bytes of data, as was just seen, and nobody writes them while `packets` is borrowed.
        unsafe { &*packets[packet].data().as_ptr().cast() }
    });
    Some((starts, lengths))
}

/// The first words of a header: where data starts and how much there is, then the bytes of the packet, then its segments, where layer 3
/// starts, and the port.
#[inline(always)]
fn first_half(packet: &Packet) -> &[u8; 16] {
    // SAFETY: a header is plain data without padding, and longer than that; it lives as long as the packet.
    unsafe { &*std::ptr::from_ref::<Header>(packet.header()).cast() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Pool, PoolConfig};
    use warmlane_sys::random::Random;
    use warmlane_sys::simd::Level;
    use warmlane_sys::vector::{self, Work};

    struct Starts<'a>(&'a [Packet; EIGHT]);

    impl<'a> Work for Starts<'a> {
        type Output = Option<([&'a [u8; 34]; EIGHT], [u32; EIGHT])>;
        #[inline(always)]
        fn run<V: Vector>(self, vector: V) -> Self::Output {
            starts_of_eight(vector, self.0, 7)
        }
    }

    #[test]
    fn starts_are_what_packets_say_one_by_one() {
        let pool = Pool::new(&PoolConfig { buffers: 256, ..PoolConfig::default() }).unwrap();
        let mut random = Random::new(1);
        let mut found = 0;
        let rounds = if cfg!(miri) { 50 } else { 2_000 };
        for _ in 0..rounds {
            let packets: [Packet; EIGHT] = array::from_fn(|number| {
                let length =
                    if random.below(30) == 0 { 30 + random.below(5) } else { 34 + random.below(1_500) };
                let mut packet = pool.take().unwrap();
                packet.fill(&vec![number as u8; length]).unwrap();
                packet.set_port(if random.below(40) == 0 { random.below(9) as u16 } else { 7 });
                if random.below(40) == 0 {
                    packet.chain(pool.take().unwrap()).unwrap();
                    let mut more = pool.take().unwrap();
                    more.fill(&[0; 9]).unwrap();
                    packet.chain(more).unwrap();
                }
                if random.below(4) == 0 && packet.len() > 60 {
                    packet.trim_front(random.below(20)).unwrap();
                }
                packet
            });
            let fits = |packet: &Packet| {
                packet.port() == 7 && packet.len() == packet.packet_length() && packet.len() >= 34
            };
            let expected = packets.iter().all(fits).then(|| {
                let starts = packets.each_ref().map(|packet| packet.data().first_chunk().unwrap());
                (starts, packets.each_ref().map(|packet| packet.packet_length() as u32))
            });
            found += usize::from(expected.is_some());
            for level in [Level::Portable, Level::Avx2] {
                assert_eq!(vector::run_at(level, Starts(&packets)), expected, "{level}");
            }
        }
        assert!((rounds / 10..rounds * 9 / 10).contains(&found), "{found}");
    }
}
