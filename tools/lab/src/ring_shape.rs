//! What the benches of rings have in common, ours and the peers'.

use warmlane_sync::spin::relax;

/// Elements that the ring holds: 8 KiB, so that it stays in any L1.
pub const CAPACITY: usize = 1024;

/// The longest burst.
pub const LONGEST: usize = 256;

/// Bursts between two looks at the clock, or at whether the round is over.
pub const BURSTS: u64 = 64;

/// Pauses after a look that found too little. An end that looks at once again takes the other's line away before there is
/// more than a burst to see; waiting as long as some bursts take ("temporal slipping", Giacomoni et al., "FastForward
/// for efficient pipeline parallelism", PPoPP 2008) lets it find several at once.
const PAUSES: usize = 16;

/// Waits so long.
#[inline]
pub fn pause() {
    for _ in 0..PAUSES {
        relax();
    }
}
