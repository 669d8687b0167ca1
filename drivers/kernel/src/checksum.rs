//! Completes checksums that were left to hardware.
//!
//! It needs no protocol: the field holds the sum of the pseudo header, so the sum over everything from `start` to
//! the end, field included, is the sum that the checksum is the complement of.

use warmlane_mem::{Checksum, Packet};
use warmlane_wire::checksum::Sum;

use crate::offload::Partial;

/// The place of the checksum is not inside the packet's first segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutOfPlace;

/// Completes the checksum of `packet` and notes that it is good.
pub(crate) fn complete(packet: &mut Packet, partial: Partial) -> Result<(), OutOfPlace> {
    let start = usize::from(partial.start);
    let field = start + usize::from(partial.offset);
    if field + 2 > packet.len() {
        return Err(OutOfPlace);
    }
    let mut sum = Sum::new();
    let mut skip = start;
    for segment in packet.segment_data() {
        // `start` is inside the first segment, so only there something is skipped.
        sum = sum.bytes(&segment[skip..]);
        skip = 0;
    }
    // Zero means "no checksum" in UDP (RFC 768) and is the same number as all ones elsewhere, so hardware writes
    // all ones whatever the protocol, and so does the kernel (`net/core/dev.c: skb_checksum_help`).
    let sum = match sum.checksum() {
        0 => 0xffff,
        sum => sum,
    };
    packet.data_mut()[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    packet.set_checksum(Checksum::Good);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use warmlane_mem::{Pool, PoolConfig};

    fn pool() -> Pool {
        Pool::new(&PoolConfig { buffers: 64, room: 256, ..PoolConfig::default() }).unwrap()
    }

    fn packet(pool: &Pool, bytes: &[u8], pieces: usize) -> Packet {
        let mut chunks = bytes.chunks(bytes.len().div_ceil(pieces));
        let mut packet = pool.take().unwrap();
        packet.fill(chunks.next().unwrap()).unwrap();
        for chunk in chunks {
            let mut next = pool.take().unwrap();
            next.fill(chunk).unwrap();
            packet.chain(next).unwrap();
        }
        packet
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn completed_data_verifies(
            mut bytes in prop::collection::vec(any::<u8>(), 60..240),
            pieces in 1..3_usize, start in 0_u16..14, offset in 0_u16..8, pseudo: u16,
        ) {
            let offset = offset * 2;
            let field = usize::from(start + offset);
            // What the sender leaves: the pseudo header's sum in the field.
            bytes[field..field + 2].copy_from_slice(&pseudo.to_be_bytes());
            let pool = pool();
            let mut packet = packet(&pool, &bytes, pieces);
            complete(&mut packet, Partial { start, offset }).unwrap();
            let mut whole = vec![0; bytes.len()];
            packet.copy_to(&mut whole);
            prop_assert!(Sum::new().word(pseudo).bytes(&whole[usize::from(start)..]).is_valid());
            prop_assert_eq!(packet.checksum(), Checksum::Good);
            prop_assert_ne!(&whole[field..field + 2], &[0, 0]);
        }
    }

    #[test]
    fn zero_is_written_as_all_ones() {
        let pool = pool();
        let mut packet = packet(&pool, &[&[0; 50][..], &[0xff; 2], &[0; 8]].concat(), 1);
        complete(&mut packet, Partial { start: 34, offset: 16 }).unwrap();
        assert_eq!(packet.data()[50..52], [0xff, 0xff]);
    }

    #[test]
    fn refuses_a_field_outside() {
        let pool = pool();
        let mut packet = packet(&pool, &[0; 60], 1);
        assert_eq!(complete(&mut packet, Partial { start: 50, offset: 9 }), Err(OutOfPlace));
        assert_eq!(complete(&mut packet, Partial { start: u16::MAX, offset: u16::MAX }), Err(OutOfPlace));
        assert!(complete(&mut packet, Partial { start: 50, offset: 8 }).is_ok());
    }
}
