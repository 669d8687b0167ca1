//! Packets that come in several buffers.

use crate::drops::ReceiveDrop;
use warmlane_mem::Packet;

/// Puts packets together from the buffers that they come in, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    /// The beginning of a packet whose other buffers have yet to come.
    partial: Option<Packet>,
    /// The rest of a packet that was dropped has yet to come.
    skipping: bool,
}

impl Pieces {
    /// Whether the next buffer belongs to a packet that has begun.
    #[inline]
    pub(crate) const fn has_begun(&self) -> bool {
        self.partial.is_some() || self.skipping
    }

    /// Takes the next buffer, or `None` where it can't be used. Gives the packet of which it is the last.
    ///
    /// # Errors
    /// Why the packet is dropped, with what there is of it: told once, and then its other buffers are freed as they come.
    pub(crate) fn add(
        &mut self,
        piece: Option<Packet>,
        is_last: bool,
    ) -> Result<Option<Packet>, (ReceiveDrop, Option<Packet>)> {
        if self.skipping {
            self.skipping = !is_last;
            return Ok(None);
        }
        let begun = self.partial.take();
        let joined = match (begun, piece) {
            (begun, None) => Err((ReceiveDrop::BadDescriptor, begun)),
            (None, Some(piece)) => Ok(piece),
            (Some(mut packet), Some(piece)) => match packet.chain(piece) {
                Ok(()) => Ok(packet),
                Err(_) => Err((ReceiveDrop::TooManyBuffers, Some(packet))),
            },
        };
        match joined {
            Ok(packet) if is_last => Ok(Some(packet)),
            Ok(packet) => {
                self.partial = Some(packet);
                Ok(None)
            }
            Err(wrong) => {
                self.skipping = !is_last;
                Err(wrong)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmlane_mem::{Pool, PoolConfig};

    fn piece(pool: &Pool, text: &[u8]) -> Option<Packet> {
        let mut packet = pool.take()?;
        packet.fill(text).ok()?;
        Some(packet)
    }

    /// Adds a packet of three buffers, and checks that it comes out whole.
    fn assert_next_is_whole(pieces: &mut Pieces, pool: &Pool) {
        assert!(!pieces.has_begun());
        for text in [b"one", b"two"] {
            assert!(matches!(pieces.add(piece(pool, text), false), Ok(None)));
            assert!(pieces.has_begun());
        }
        let whole = pieces.add(piece(pool, b"three"), true).unwrap().unwrap();
        assert_eq!(whole.segment_data().collect::<Vec<_>>().concat(), b"onetwothree");
        assert!(!pieces.has_begun());
    }

    /// What follows a buffer that can't be used is neither a packet nor the beginning of one.
    #[test]
    fn the_rest_of_a_dropped_packet_is_dropped_with_it() {
        let pool = Pool::new(&PoolConfig { buffers: 512, ..PoolConfig::default() }).unwrap();
        let mut pieces = Pieces::default();
        assert_next_is_whole(&mut pieces, &pool);
        for bad in 0..4 {
            let mut reasons = Vec::new();
            for number in 0..4 {
                let piece = if number == bad { None } else { piece(&pool, b"piece") };
                match pieces.add(piece, number == 3) {
                    Ok(None) => {}
                    Ok(Some(packet)) => panic!("{bad}: {packet:?}"),
                    Err((reason, _)) => reasons.push(reason),
                }
            }
            assert_eq!(reasons, [ReceiveDrop::BadDescriptor], "{bad}");
            assert_eq!(pool.ledger().outstanding(), 0, "{bad}");
            assert_next_is_whole(&mut pieces, &pool);
        }
    }

    #[test]
    fn a_packet_of_more_buffers_than_a_chain_has_is_dropped_whole() {
        let pool = Pool::new(&PoolConfig { buffers: 512, ..PoolConfig::default() }).unwrap();
        let mut pieces = Pieces::default();
        for number in 0..300 {
            match pieces.add(piece(&pool, b"piece"), number == 299) {
                Ok(None) => assert_ne!(number, 255),
                Err((reason, found)) => {
                    assert_eq!((number, reason), (255, ReceiveDrop::TooManyBuffers));
                    assert_eq!(found.map(|packet| packet.segments()), Some(255));
                }
                Ok(Some(packet)) => panic!("{packet:?}"),
            }
        }
        assert_eq!(pool.ledger().outstanding(), 0);
        assert_next_is_whole(&mut pieces, &pool);
    }
}
