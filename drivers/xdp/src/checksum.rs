//! Completes checksums that were left to hardware: AF_XDP tells the kernel nothing about a packet but its bytes.

use warmlane_mem::{Checksum, Packet};
use warmlane_wire::checksum::Sum;

/// The place of the checksum is not inside the packet's first segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutOfPlace;

/// Completes the checksum if it is partial. The field holds the pseudo header's sum, so the sum from `start` to the
/// packet's end, field included, is what the checksum is the complement of.
pub(crate) fn make_complete(packet: &mut Packet) -> Result<(), OutOfPlace> {
    let Checksum::Partial { start, offset } = packet.checksum() else { return Ok(()) };
    let start = usize::from(start);
    let field = start + usize::from(offset);
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
    // Zero means "no checksum" in UDP (RFC 768), and all ones are the same number everywhere else.
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
    use warmlane_mem::{Pool, PoolConfig};

    #[test]
    fn partial_checksums_are_completed() {
        let pool = Pool::new(&PoolConfig { buffers: 16, ..PoolConfig::default() }).unwrap();
        let mut packet = pool.take().unwrap();
        packet.fill(&[0x11; 61]).unwrap();
        packet.data_mut()[40..42].copy_from_slice(&[0x12, 0x34]);
        packet
            .chain({
                let mut tail = pool.take().unwrap();
                tail.fill(&[0x22; 33]).unwrap();
                tail
            })
            .unwrap();
        packet.set_checksum(Checksum::Partial { start: 34, offset: 6 });
        make_complete(&mut packet).unwrap();
        assert_eq!(packet.checksum(), Checksum::Good);
        let mut whole = vec![0; packet.packet_length()];
        packet.copy_to(&mut whole);
        // The pseudo header's sum was in the field.
        assert!(Sum::new().word(0x1234).bytes(&whole[34..]).is_valid());
        packet.set_checksum(Checksum::Partial { start: 34, offset: 60 });
        assert_eq!(make_complete(&mut packet), Err(OutOfPlace));
    }
}
