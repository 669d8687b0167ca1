//! SCTP's checksum, which is no Internet checksum.

use std::ops::Range;

use warmlane_mem::{Checksum, Packet};
use warmlane_wire::sctp::{CHECKSUM_LENGTH, CHECKSUM_OFFSET, Crc, HEADER_LENGTH};

use super::pieces;

/// Whether a [partial checksum](Checksum::Partial) whose field is so far behind its start is SCTP's: no other protocol has it there.
pub const fn is_sctp(offset: usize) -> bool {
    offset == CHECKSUM_OFFSET
}

/// Whether the SCTP packet in this range, in bytes from the packet's start, has the right checksum.
pub fn is_sctp_intact(packet: &Packet, range: Range<usize>) -> bool {
    let Some(right) = sctp_checksum(packet, range.clone()) else { return false };
    let field = range.start + CHECKSUM_OFFSET;
    pieces(packet, field..field + CHECKSUM_LENGTH).flatten().eq(&right)
}

/// Completes the checksum of the SCTP packet that begins at `start` and ends with the packet, and notes that it is good. `false`, and all
/// as it was: there is no such header, or its field is not in the first buffer.
pub fn complete_sctp(packet: &mut Packet, start: usize) -> bool {
    let Some(checksum) = sctp_checksum(packet, start..packet.packet_length()) else { return false };
    let field = start + CHECKSUM_OFFSET;
    let Some(place) = packet.data_mut().get_mut(field..field + CHECKSUM_LENGTH) else { return false };
    place.copy_from_slice(&checksum);
    packet.set_checksum(Checksum::Good);
    true
}

/// What belongs in the field. `None` without a whole header.
fn sctp_checksum(packet: &Packet, range: Range<usize>) -> Option<[u8; CHECKSUM_LENGTH]> {
    if range.end > packet.packet_length() || range.start + HEADER_LENGTH > range.end {
        return None;
    }
    let field = range.start + CHECKSUM_OFFSET;
    let before = pieces(packet, range.start..field).fold(Crc::new(), Crc::bytes);
    let behind = field + CHECKSUM_LENGTH..range.end;
    Some(pieces(packet, behind).fold(before.bytes(&[0; CHECKSUM_LENGTH]), Crc::bytes).field())
}

#[cfg(test)]
mod tests {
    use warmlane_mem::{Pool, PoolConfig};

    use super::*;

    /// An INIT of port 7 to port 9, with zeros in its chunk; in buffers of so many bytes.
    fn packet(pool: &Pool, size: usize) -> Packet {
        let mut bytes = vec![0xaa; 34];
        bytes.extend([0, 7, 0, 9, 0, 0, 0, 0, 1, 2, 3, 4, 1, 0, 0, 20]);
        bytes.extend([0; 16]);
        let mut packets = bytes.chunks(size).map(|piece| {
            let mut packet = pool.take().unwrap();
            packet.fill(piece).unwrap();
            packet
        });
        let mut whole = packets.next().unwrap();
        whole.chain_all(packets).unwrap();
        whole
    }

    #[test]
    fn a_completed_one_is_right_however_it_is_divided() {
        let pool = Pool::new(&PoolConfig { buffers: 16, ..PoolConfig::default() }).unwrap();
        let mut whole = packet(&pool, 100);
        assert!(!is_sctp_intact(&whole, 34..66));
        assert!(complete_sctp(&mut whole, 34));
        assert!(is_sctp_intact(&whole, 34..66) && whole.checksum() == Checksum::Good);
        let right = whole.data().to_vec();
        for size in 46..66 {
            let mut divided = packet(&pool, size);
            assert!(complete_sctp(&mut divided, 34), "{size}");
            assert_eq!(divided.data(), &right[..size]);
        }
        // Padding is no part of it.
        let mut padded = packet(&pool, 100);
        padded.fill(&[&right[..], &[5; 3]].concat()).unwrap();
        assert!(is_sctp_intact(&padded, 34..66) && !is_sctp_intact(&padded, 34..67));
        padded.data_mut()[60] ^= 1;
        assert!(!is_sctp_intact(&padded, 34..66));
    }

    #[test]
    fn what_is_not_there_is_not_written_to() {
        let pool = Pool::new(&PoolConfig { buffers: 16, ..PoolConfig::default() }).unwrap();
        for (start, size) in [(55, 100), (usize::from(u16::MAX), 100), (34, 45)] {
            let mut short = packet(&pool, size);
            let before: Vec<u8> = short.segment_data().flatten().copied().collect();
            assert!(!complete_sctp(&mut short, start), "{start}, {size}");
            assert!(short.segment_data().flatten().eq(&before) && short.checksum() == Checksum::Unknown);
        }
    }
}
