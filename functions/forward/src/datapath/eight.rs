//! Pass one for eight IPv4 packets at once: what [`fast::plain_ipv4`](super::fast::plain_ipv4) looks at in each, by vector.

use std::array;

use warmlane_mem::{Packet, starts_of_eight};
use warmlane_sys::vector::{Vector, Work};
use warmlane_wire::ethernet;

use super::fast::{self, IPV4_HEADERS};
use super::scratch::{Eight, GatheredIpv4};
use crate::control::Admission;

/// How many packets there are at once.
pub(super) const EIGHT: usize = 8;

/// A word of each of the packets.
type Words = [u32; EIGHT];

/// EtherType IPv4, in the order of the wire.
const ETHER_TYPE: u32 = u16::from_le_bytes([0x08, 0x00]) as u32;

/// The first byte of a header without options.
const VERSION_AND_LENGTH: u32 = 0x45;

/// Gathers packets as long as there are eight more that are plain. Gives the index of what isn't gathered.
pub(super) struct Eights<'a> {
    pub(super) packets: &'a [Packet],
    pub(super) start: usize,
    pub(super) port: u16,
    pub(super) admission: Admission,
    pub(super) gathered: &'a mut GatheredIpv4,
}

impl Work for Eights<'_> {
    type Output = usize;

    #[inline(always)]
    fn run<V: Vector>(self, vector: V) -> usize {
        let Self { packets, start, port, admission, gathered } = self;
        let (mut index, mut count) = (start, gathered.count);
        while V::HAS_COLUMNS
            && let Some(eight) = packets.get(index..).and_then(<[Packet]>::first_chunk)
            && let Some((headers, frames)) = starts_of_eight(vector, eight, port)
            && let Some(plain) = plain_ipv4(vector, headers, frames, admission)
            && gathered.put_eight(count, index, plain)
        {
            (index, count) = (index + EIGHT, count + EIGHT);
        }
        gathered.count = count;
        index
    }
}

/// What eight packets are, if all are plain. Without branches, so that vectors do it.
#[inline(always)]
fn plain_ipv4<V: Vector>(
    vector: V,
    headers: [&[u8; IPV4_HEADERS]; EIGHT],
    frames: Words,
    admission: Admission,
) -> Option<Eight<u32, u32>> {
    // Rows start at a frame's third byte, so that their words are those of the IP header. The two bytes before are read on their own.
    let rows = array::from_fn(|packet| bytes_from_third(headers[packet]));
    let [middle, _, start, first, second, lifetime, source, destination] = vector.columns(rows);
    let begin: Words =
        array::from_fn(|packet| u16::from_le_bytes([headers[packet][0], headers[packet][1]]).into());
    let Admission { mac, mask: mac_mask } = admission;
    let ([begin_mac, middle_mac], [begin_mask, middle_mask]) = (halves(mac), halves(mac_mask));
    let lengths: Words = array::from_fn(|packet| first[packet] >> 24 | first[packet] >> 8 & 0xff00);
    // Not zero where something is wrong.
    let wrong: Words = array::from_fn(|packet| {
        let words = [first[packet], second[packet], lifetime[packet], source[packet], destination[packet]];
        let [mut whole, mut upper] = [0_u32; 2];
        for word in words {
            whole = whole.wrapping_add(word);
            upper = upper.wrapping_add(word >> 16);
        }
        // The sum of the lower halves is what the whole has besides the upper ones, in as many bits as it takes.
        let sum = upper.wrapping_add(whole.wrapping_sub(upper << 16));
        // Of ten halves, a multiple of 0xffff folds to just that, as the sum of a right header does (see `fast`).
        let folded = (sum & 0xffff).wrapping_add(sum >> 16);
        (folded ^ 0xffff)
            | (begin[packet] & begin_mask[packet] ^ begin_mac[packet])
            | (middle[packet] & middle_mask[packet] ^ middle_mac[packet])
            | (start[packet] >> 16 ^ ETHER_TYPE)
            | (first[packet] & 0xff ^ VERSION_AND_LENGTH)
            | mask(lifetime[packet] & 0xfe == 0)
            | mask(!fills(frames[packet], lengths[packet]))
    });
    let special: Words = array::from_fn(|packet| {
        mask(distance_to_special(source[packet]).min(distance_to_special(destination[packet])) == 0)
    });
    let is_plain = !any(wrong)
        && (!any(special)
            || (0..EIGHT).all(|packet| fast::ordinary_ipv4(source[packet], destination[packet])));
    is_plain.then(|| Eight {
        addresses: array::from_fn(|packet| destination[packet].swap_bytes()),
        lengths: array::from_fn(|packet| lengths[packet] as u16),
        lifetimes: array::from_fn(|packet| fast::decremented(lifetime[packet])),
    })
}

const _: () = assert!(IPV4_HEADERS == 2 + 32, "a row is all but the first two bytes");

#[inline(always)]
fn bytes_from_third(headers: &[u8; IPV4_HEADERS]) -> &[u8; 32] {
    match headers.last_chunk() {
        Some(row) => row,
        None => &[0; 32],
    }
}

/// The first two bytes of an Ethernet address and the four behind them, once for each packet: compared with a single number, the compiler finds
/// a longer way.
#[inline(always)]
const fn halves(address: u64) -> [Words; 2] {
    [[address as u32 & 0xffff; EIGHT], [(address >> 16) as u32; EIGHT]]
}

#[inline(always)]
fn any(words: Words) -> bool {
    words.into_iter().fold(0, |all, word| all | word) != 0
}

/// All bits or none, which is what comparisons of vectors give.
#[inline(always)]
fn mask(condition: bool) -> u32 {
    0_u32.wrapping_sub(condition.into())
}

/// The same as `fast::fills`, without branches, of frames that hold the headers.
#[inline(always)]
fn fills(frame_length: u32, length: u32) -> bool {
    const HEADERS: u32 = IPV4_HEADERS as u32;
    // Wraps to more than any limit where the packet is longer than the frame.
    let padding = frame_length.wrapping_sub(length.wrapping_add(ethernet::HEADER_LENGTH as u32));
    // None is allowed in long frames; in short ones, as much as leaves room for the headers.
    padding <= frame_length.wrapping_sub(HEADERS) & mask(frame_length <= fast::PADDED as u32)
}

/// Zero if the address's first byte is in the table of `fast`. Computed, as eight lookups take longer; and as a minimum of numbers: for
/// conditions that are put together by "or", the compiler needs a dozen instructions more.
#[inline(always)]
fn distance_to_special(address: u32) -> u32 {
    let first = address & 0xff;
    // Zero from 224 on and for 0: with 32 more they are 0 to 32.
    let large = (first.wrapping_add(32) & 0xff).saturating_sub(32);
    large.min(first ^ 0x7f).min(first ^ 0xa9)
}

#[cfg(test)]
mod tests {
    use super::super::scratch::Plain;
    use super::*;
    use crate::control::RouterPort;
    use warmlane_mem::{Pool, PoolConfig};
    use warmlane_sys::random::Random;
    use warmlane_sys::simd::Level;
    use warmlane_sys::vector;
    use warmlane_testkit::bytes;
    use warmlane_wire::MacAddress;

    const US: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const PORT: u16 = 3;

    /// A frame that is plain in most cases, and nearly so in the others.
    fn frame(random: &mut Random) -> Vec<u8> {
        let mut address = || match random.below(40) {
            0 => [0, 127, 169, 224, 255][random.below(5)] << 24 | random.bits() as u32 >> 8,
            1 => 0xa9fe_0000 | random.bits() as u32 & 0xffff,
            2 => u32::from_be_bytes([[1, 126, 128, 168, 170, 223][random.below(6)], 0, 0, 1]),
            _ => 0x0a00_0000 | random.bits() as u32 >> 8,
        };
        let (source, destination) = (address(), address());
        let ttl = if random.below(40) == 0 { random.below(3) as u8 } else { 64 };
        let payload = vec![0; [8, 26, 27, 400][random.below(4)]];
        let mut packet = bytes::ipv4(random, source, destination, ttl, bytes::UDP, &payload);
        if random.below(40) == 0 {
            packet[2..4].copy_from_slice(&(random.below(600) as u16).to_be_bytes());
            bytes::seal_ipv4(&mut packet);
        }
        let mut frame = bytes::frame(US, [2, 0, 0, 0, 0, 9], &[], bytes::IPV4, &packet);
        match random.below(160) {
            0..=3 => frame[random.below(34)] ^= 1 << random.below(8),
            4 => frame.resize(frame.len() + random.below(6), 0),
            5 => frame.truncate(33 + random.below(3)),
            _ => {}
        }
        frame
    }

    #[test]
    fn the_same_first_bytes_are_special() {
        for first in 0..=u8::MAX {
            let special = distance_to_special(0x0a00_0000 | u32::from(first)) == 0;
            assert_eq!(special, fast::SPECIAL_FIRST_BYTE[usize::from(first)], "{first}");
        }
    }

    #[test]
    fn eight_at_once_are_found_plain_as_one_by_one() {
        let pool = Pool::new(&PoolConfig { buffers: 256, ..PoolConfig::default() }).unwrap();
        let admission = Admission::of(&RouterPort { mac: Some(MacAddress(US)), ..RouterPort::default() });
        let taken = |frame: &[u8]| {
            let mut packet = pool.take().unwrap();
            packet.fill(frame).unwrap();
            packet
        };
        let mut random = Random::new(8);
        let mut all = 0;
        for _ in 0..3000 {
            let mut packets: Vec<Packet> = (0..8 + random.below(40))
                .map(|_| {
                    let mut packet = taken(&frame(&mut random));
                    packet.set_port(if random.below(400) == 0 { 4 } else { PORT });
                    packet
                })
                .collect();
            if random.below(8) == 0 {
                let index = random.below(packets.len());
                packets[index].chain(taken(&[0; 60])).unwrap();
            }
            let start = random.below(3);
            let plain = |packet: &Packet| {
                let data = packet.data();
                let is_whole = packet.port() == PORT && data.len() == packet.packet_length();
                data.first_chunk()
                    .filter(|_| is_whole)
                    .and_then(|headers| fast::plain_ipv4(headers, data.len(), admission))
            };
            let one_by_one: Vec<_> = packets[start..].iter().map_while(plain).collect();
            let expected = one_by_one.len() / EIGHT * EIGHT;
            for level in [Level::Portable, Level::Avx2] {
                let mut gathered = GatheredIpv4::new(0, 0);
                gathered.count = 5;
                let eights =
                    Eights { packets: &packets, start, port: PORT, admission, gathered: &mut gathered };
                let index = vector::run_at(level, eights);
                let has_columns = level == Level::Avx2 && Level::available().contains(&level);
                let expected = if has_columns { expected } else { 0 };
                assert_eq!((index, gathered.count), (start + expected, 5 + expected), "{level}");
                for (place, expected) in one_by_one[..expected].iter().enumerate() {
                    let slot = 5 + place;
                    assert_eq!(usize::from(gathered.indices[slot]), start + place);
                    let (address, length) = (gathered.addresses[slot], gathered.lengths[slot]);
                    assert_eq!(Plain { address, length, lifetime: gathered.lifetimes[slot] }, *expected);
                }
            }
            all += expected;
        }
        assert!(all > 5_000, "{all} of which were plain");
    }
}
