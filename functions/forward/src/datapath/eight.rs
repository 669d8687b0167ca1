//! Pass one for eight IPv4 packets at once: what [`fast::plain_ipv4`](super::fast::plain_ipv4) looks at in each, by vector.

use std::array;

use warmlane_mem::Packet;
use warmlane_sys::vector::{Vector, Work};
use warmlane_wire::ethernet;

use super::fast::{self, IPV4_HEADERS};
use super::scratch::{Eight, GatheredIpv4};
use crate::control::Admission;

/// How many packets there are at once.
pub(super) const EIGHT: usize = 8;

/// A word of each of the packets.
type Words = [u32; EIGHT];

/// Bytes of a frame up to the end of a plain IPv4 header, without the first two, so that the words of the header are words of this.
type Row = [u8; 32];

const _: () = assert!(size_of::<Row>() + 2 == IPV4_HEADERS);

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
            && let Some((rows, frames)) = rows(eight, port, admission)
            && let Some(plain) = plain_ipv4(vector, rows, frames)
            && gathered.put_eight(count, index, plain)
        {
            (index, count) = (index + EIGHT, count + EIGHT);
        }
        gathered.count = count;
        index
    }
}

/// The rows of eight packets for us, each in one buffer, and the lengths of their frames; `None` if one is something else.
#[inline(always)]
fn rows(packets: &[Packet; EIGHT], port: u16, admission: Admission) -> Option<([&Row; EIGHT], Words)> {
    let (mut rows, mut frames) = ([&[0; size_of::<Row>()]; EIGHT], [0; EIGHT]);
    for (packet, (row, frame)) in packets.iter().zip(rows.iter_mut().zip(&mut frames)) {
        let (data, length) = (packet.data(), packet.packet_length());
        let headers: &[u8; IPV4_HEADERS] = data.first_chunk()?;
        if packet.port() != port || data.len() != length || !admission.admits(fast::first_bytes(headers)) {
            return None;
        }
        *row = headers.last_chunk()?;
        *frame = length as u32;
    }
    Some((rows, frames))
}

/// What eight packets are, if all are plain. Without branches, so that vectors do it.
#[inline(always)]
fn plain_ipv4<V: Vector>(vector: V, rows: [&Row; EIGHT], frames: Words) -> Option<Eight<u32, u32>> {
    let [_, _, start, first, second, lifetime, source, destination] = vector.columns(rows);
    let lengths: Words = array::from_fn(|packet| first[packet] >> 24 | first[packet] >> 8 & 0xff00);
    // Not zero where something is wrong.
    let mut wrong: Words = [0; EIGHT];
    let mut special: Words = [0; EIGHT];
    for packet in 0..EIGHT {
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
        let (end, frame) = (lengths[packet].wrapping_add(ethernet::HEADER_LENGTH as u32), frames[packet]);
        wrong[packet] = (folded ^ 0xffff)
            | (start[packet] >> 16 ^ ETHER_TYPE)
            | (first[packet] & 0xff ^ VERSION_AND_LENGTH)
            | u32::from(lifetime[packet] & 0xfe == 0)
            | u32::from(!fills(frame, end));
        special[packet] =
            u32::from(is_special(source[packet] & 0xff) | is_special(destination[packet] & 0xff));
    }
    let any = |words: Words| words.into_iter().fold(0, |all, word| all | word) != 0;
    let is_plain = !any(wrong)
        && (!any(special)
            || (0..EIGHT).all(|packet| fast::ordinary_ipv4(source[packet], destination[packet])));
    is_plain.then(|| Eight {
        addresses: destination.map(u32::swap_bytes),
        lengths: lengths.map(|length| length as u16),
        lifetimes: lifetime.map(fast::decremented),
    })
}

/// What `fast` asks as well, without branches.
#[inline(always)]
#[expect(clippy::needless_bitwise_bool, reason = "for eight packets at once there are to be no branches")]
fn fills(frame_length: u32, end: u32) -> bool {
    (end == frame_length)
        | ((end < frame_length) & (frame_length <= fast::PADDED as u32) & (end >= IPV4_HEADERS as u32))
}

/// What the table in `fast` has, computed: looking up eight bytes takes longer.
#[inline(always)]
#[expect(clippy::needless_bitwise_bool, reason = "for eight packets at once there are to be no branches")]
const fn is_special(first: u32) -> bool {
    (first == 0) | (first == 127) | (first == 169) | (first >= 224)
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
            assert_eq!(is_special(first.into()), fast::SPECIAL_FIRST_BYTE[usize::from(first)], "{first}");
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
