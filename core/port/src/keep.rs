//! Drops with their reason, in one line.

use crate::watched::CountDropped as _;
use warmlane_counters::{DropCounters, Reason};
use warmlane_mem::{Burst, Packet};

/// What a burst can do with drop reasons.
pub trait BurstExt {
    /// Keeps the packets for which `check` says `Ok`, in their order. The others are counted under the reason that it
    /// gives, and freed together. Returns how many those are.
    ///
    /// ```
    /// use warmlane_mem::{Burst, Pool, PoolConfig};
    /// use warmlane_port::{BurstExt as _, DropCounters, drop_reasons};
    ///
    /// drop_reasons! {
    ///     /// Why the example drops.
    ///     pub enum Why {
    ///         /// The frame is shorter than an Ethernet header.
    ///         Runt: "runt", Warning;
    ///     }
    /// }
    ///
    /// let pool = Pool::new(&PoolConfig { buffers: 64, ..PoolConfig::default() })?;
    /// let (mut burst, drops) = (Burst::new(), DropCounters::new());
    /// pool.take_burst(&mut burst, 2);
    /// burst[0].fill(&[0; 60])?;
    ///
    /// burst.keep(&drops, |packet| if packet.len() < 14 { Err(Why::Runt) } else { Ok(()) });
    /// assert_eq!((burst.len(), drops.get(Why::Runt)), (1, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn keep<R: Reason>(
        &mut self,
        drops: &DropCounters<R>,
        check: impl FnMut(&mut Packet) -> Result<(), R>,
    ) -> usize;
}

impl BurstExt for Burst {
    #[inline]
    fn keep<R: Reason>(
        &mut self,
        drops: &DropCounters<R>,
        mut check: impl FnMut(&mut Packet) -> Result<(), R>,
    ) -> usize {
        let (mut kept, all) = (0, self.len());
        for index in 0..all {
            let dropped = self.get_mut(index).and_then(|packet| Some((check(packet).err()?, packet)));
            match dropped {
                Some((reason, packet)) => drops.count_packet(reason, packet),
                // Packets that stay keep their order; those that go gather behind them.
                _ if kept < index => {
                    self.swap(kept, index);
                    kept += 1;
                }
                _ => kept += 1,
            }
        }
        self.truncate(kept);
        all - kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_queue::Numbers;
    use crate::{ReceiveQueue as _, drop_reasons};
    use warmlane_mem::{Pool, PoolConfig};

    drop_reasons! {
        /// Why the tests drop.
        enum Why {
            /// The number is odd.
            Odd: "odd", Notice;
            /// The number is six.
            Six: "six", Notice;
        }
    }

    #[test]
    fn what_is_kept_keeps_its_order_and_the_rest_is_counted_and_freed() {
        let pool = Pool::new(&PoolConfig { buffers: 64, ..PoolConfig::default() }).unwrap();
        let (mut queue, mut burst, drops) = (Numbers::new(&pool, 10), Burst::new(), DropCounters::new());
        while queue.receive(&mut burst) > 0 {}
        let dropped = burst.keep(&drops, |packet| match packet.data()[0] {
            6 => Err(Why::Six),
            number if number % 2 == 1 => Err(Why::Odd),
            _ => Ok(()),
        });
        let left: Vec<_> = burst.iter().map(|packet| packet.data()[0]).collect();
        assert_eq!((left, dropped), (vec![0, 2, 4, 8], 6));
        assert_eq!((drops.get(Why::Odd), drops.get(Why::Six)), (5, 1));
        assert_eq!(pool.ledger().outstanding(), 4);
        assert_eq!(burst.keep(&drops, |_| Err(Why::Odd)), 4);
        assert_eq!((pool.ledger().outstanding(), drops.get(Why::Odd)), (0, 9));
    }
}
