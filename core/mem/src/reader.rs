//! Reading a packet's data from front to back.

use crate::chain::SegmentData;
use crate::header::Header;
use crate::packet::Packet;
use std::ptr::NonNull;

/// A packet of any number of segments that is read from front to back, and remembers how far: so nobody walks along the chain again
/// for each part.
///
/// ```
/// # use warmlane_mem::{PacketReader, Pool, PoolConfig};
/// # let pool = Pool::new(&PoolConfig { buffers: 4, ..PoolConfig::default() })?;
/// let mut packet = pool.take().ok_or("a buffer")?;
/// packet.fill(b"abcd")?;
/// let mut rest = pool.take().ok_or("a buffer")?;
/// rest.fill(b"efgh")?;
/// packet.chain(rest).map_err(|_| "too many segments")?;
/// let mut reader = PacketReader::new(packet);
/// reader.skip(3);
/// assert_eq!(reader.peek(3).collect::<Vec<_>>(), [b"d".as_slice(), b"ef"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct PacketReader {
    packet: Packet,
    /// The segment that the next byte is in, or the last one.
    segment: NonNull<Header>,
    /// Bytes of that segment that were skipped.
    skipped: usize,
}

// SAFETY: the segment is one of the packet's own, which may go to another thread, and nothing else points there.
unsafe impl Send for PacketReader {}

impl PacketReader {
    /// Begins at the packet's first byte.
    pub const fn new(packet: Packet) -> Self {
        let segment = packet.as_header();
        Self { packet, segment, skipped: 0 }
    }

    /// The packet, all of it.
    pub const fn packet(&self) -> &Packet {
        &self.packet
    }

    /// Goes on by so many bytes, or to the end.
    #[inline]
    pub fn skip(&mut self, count: usize) {
        self.skipped += count;
        let mut rest = SegmentData::at(self.segment);
        while let Some(data) = rest.next()
            && self.skipped >= data.len()
            && let Some(next) = rest.place()
        {
            self.skipped -= data.len();
            self.segment = next;
        }
    }

    /// The next bytes, as many as asked for if there are so many, in pieces of which none is empty.
    #[inline]
    pub fn peek(&self, count: usize) -> impl Iterator<Item = &[u8]> {
        let (mut skip, mut left) = (self.skipped, count);
        let pieces = SegmentData::at(self.segment).map_while(move |data| {
            if left == 0 {
                return None;
            }
            let piece = data.get(std::mem::take(&mut skip)..).unwrap_or_default();
            let piece = &piece[..piece.len().min(left)];
            left -= piece.len();
            Some(piece)
        });
        pieces.filter(|piece| !piece.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Pool, PoolConfig};

    #[test]
    fn any_part_from_anywhere() {
        let pool = Pool::new(&PoolConfig { buffers: 16, ..PoolConfig::default() }).unwrap();
        let bytes: Vec<u8> = (0..30).collect();
        for lengths in [&[30][..], &[10, 20], &[1, 0, 28, 1], &[0, 5, 0, 25, 0], &[10, 10, 10]] {
            let (mut whole, mut from) = (None::<Packet>, 0);
            for length in lengths {
                let mut part = pool.take().unwrap();
                part.fill(&bytes[from..from + length]).unwrap();
                from += length;
                match &mut whole {
                    None => whole = Some(part),
                    Some(whole) => whole.chain(part).unwrap(),
                }
            }
            let mut whole = whole.unwrap();
            for steps in [&[0][..], &[1; 30], &[3, 0, 9, 11, 7], &[30], &[29, 5]] {
                let mut reader = PacketReader::new(whole);
                let mut at = 0;
                for step in steps {
                    reader.skip(*step);
                    at = (at + step).min(30);
                    for count in [0, 1, 7, 40] {
                        let read: Vec<u8> = reader.peek(count).flatten().copied().collect();
                        assert_eq!(read, bytes[at..(at + count).min(30)], "{lengths:?} {steps:?} {at}");
                        assert!(reader.peek(count).all(|piece| !piece.is_empty()));
                    }
                }
                assert_eq!(reader.packet().packet_length(), 30);
                whole = reader.packet;
            }
        }
    }
}
