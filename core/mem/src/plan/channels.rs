//! Memory channels and ranks, as far as a stride decides about them.

use super::{Layout, PlanError};

/// More than any machine has.
const MOST_BANKS: usize = 1_024;

/// How memory is cut up. No machine tells it to a program, so it is given by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryChannels {
    /// Channels that addresses are spread over.
    pub channels: usize,
    /// Ranks on each channel.
    pub ranks: usize,
    /// Bytes that stay on one channel before the next one's turn comes: 64 in DPDK's model; 256 to 4,096 where the
    /// memory controller is set up so.
    pub interleave: usize,
}

impl MemoryChannels {
    /// Channels times ranks: how many accesses can be under way.
    pub const fn banks(&self) -> usize {
        self.channels * self.ranks
    }

    /// # Errors
    /// [`PlanError::Channels`].
    pub(super) fn check(&self) -> Result<(), PlanError> {
        let banks = self.channels.checked_mul(self.ranks).filter(|banks| (1..=MOST_BANKS).contains(banks));
        let interleave = self.interleave >= 64 && self.interleave.is_power_of_two();
        if banks.is_none() || !interleave {
            return Err(PlanError::Channels {
                channels: self.channels,
                ranks: self.ranks,
                interleave: self.interleave,
            });
        }
        Ok(())
    }
}

/// How the headers of a pool are spread over channels and ranks, if these take turns with consecutive addresses.
///
/// That is the model of DPDK's `rte_mempool`, which enlarges objects until their length in lines has no factor in common
/// with channels × ranks (`optimize_object_size` in lib/mempool/rte_mempool.c). Memory controllers since hash more
/// address bits into the choice, so a bad spread here may be harmless there; a good one never hurts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelSpread {
    /// The memory.
    pub memory: MemoryChannels,
    /// Headers in each bank of each channel.
    pub histogram: Vec<u32>,
}

impl ChannelSpread {
    /// The spread of so many headers as show every period.
    pub(super) fn of(memory: MemoryChannels, layout: Layout) -> Self {
        let banks = memory.banks();
        let mut histogram = vec![0; banks];
        // After banks × interleave / 64 buffers any stride is back where it began.
        for buffer in 0..banks * (memory.interleave / 64) {
            histogram[layout.offset(buffer) / memory.interleave % banks] += 1;
        }
        Self { memory, histogram }
    }

    /// The share of the memory's parallelism that is used, 0 to 1: mean over fullest.
    pub fn used(&self) -> f64 {
        let fullest = self.histogram.iter().copied().max().unwrap_or(0);
        let sum: u32 = self.histogram.iter().sum();
        if fullest == 0 {
            return 1.0;
        }
        f64::from(sum) / (self.histogram.len() as f64 * f64::from(fullest))
    }
}
