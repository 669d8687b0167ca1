//! Packets whose data comes from several places.

use warmlane_mem::{Packet, Pool};

/// A packet that is put together from data in several places, in as many buffers as that takes.
#[derive(Debug)]
pub struct Gather<'a> {
    pool: &'a Pool,
    whole: Packet,
    /// The segment that is being filled, if it isn't the first.
    last: Option<Packet>,
}

/// Why a packet can't be put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ungathered {
    /// The pool is empty.
    NoBuffer,
    /// It takes more buffers than a packet can have.
    TooLarge,
}

impl<'a> Gather<'a> {
    /// An empty packet; `None` if the pool is empty.
    pub fn new(pool: &'a Pool) -> Option<Self> {
        Some(Self { pool, whole: pool.take()?, last: None })
    }

    /// Puts data behind what is there.
    ///
    /// # Errors
    /// [`Ungathered`]; then it has only a part of the data.
    pub fn append(&mut self, mut data: &[u8]) -> Result<(), Ungathered> {
        while !data.is_empty() {
            let segment = self.last.as_mut().unwrap_or(&mut self.whole);
            let (now, later) = data.split_at(data.len().min(segment.tailroom()));
            if let Ok(target) = segment.append(now.len()) {
                warmlane_sys::copy::copy(target, now);
            }
            data = later;
            if data.is_empty() {
                break;
            }
            let fresh = self.pool.take().ok_or(Ungathered::NoBuffer)?;
            if let Some(full) = self.last.replace(fresh) {
                self.whole.chain(full).map_err(|_| Ungathered::TooLarge)?;
            }
        }
        Ok(())
    }

    /// The packet.
    ///
    /// # Errors
    /// [`Ungathered::TooLarge`].
    pub fn finish(mut self) -> Result<Packet, Ungathered> {
        if let Some(last) = self.last {
            self.whole.chain(last).map_err(|_| Ungathered::TooLarge)?;
        }
        Ok(self.whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmlane_mem::PoolConfig;

    fn pool(buffers: u32) -> Pool {
        let config =
            PoolConfig { name: "gather".to_owned(), buffers, data_size: 64, ..PoolConfig::default() };
        Pool::new(&config).unwrap()
    }

    #[test]
    fn data_of_any_lengths_is_one_packet() {
        let pool = pool(64);
        let data: Vec<u8> = (0..=255).cycle().take(1_000).collect();
        for lengths in [&[1_000][..], &[64, 64, 1, 871], &[1, 62, 2, 935], &[0, 128, 0, 872]] {
            let mut gather = Gather::new(&pool).unwrap();
            let mut rest = &data[..];
            for &length in lengths {
                let (now, later) = rest.split_at(length);
                gather.append(now).unwrap();
                rest = later;
            }
            let packet = gather.finish().unwrap();
            let bytes: Vec<u8> = packet.segment_data().flatten().copied().collect();
            assert_eq!(bytes, data, "{lengths:?}");
            assert_eq!(packet.segment_data().count(), 1_000_usize.div_ceil(64));
        }
        assert_eq!(pool.ledger().outstanding(), 0);
    }

    #[test]
    fn what_is_too_much_is_refused_and_nothing_is_kept() {
        let few = pool(2);
        let mut gather = Gather::new(&few).unwrap();
        assert_eq!(gather.append(&[0; 129]), Err(Ungathered::NoBuffer));
        assert!(Gather::new(&few).is_none());
        drop(gather);
        assert_eq!(few.ledger().outstanding(), 0);
        let many = pool(1024);
        let mut gather = Gather::new(&many).unwrap();
        gather.append(&vec![0; 255 * 64]).unwrap();
        gather.append(&[0]).unwrap();
        assert_eq!(gather.finish().err(), Some(Ungathered::TooLarge));
        let mut gather = Gather::new(&many).unwrap();
        assert_eq!(gather.append(&vec![0; 257 * 64]), Err(Ungathered::TooLarge));
        drop(gather);
        assert_eq!(many.ledger().outstanding(), 0);
    }
}
