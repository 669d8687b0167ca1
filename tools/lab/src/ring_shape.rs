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

/// Puts in bursts of `size` by `push`, which says whether the ring had space for all. The first and the last element are stamped.
pub fn pushing(size: usize, mut push: impl FnMut(&[u64]) -> bool) -> impl FnMut() {
    let mut values = [0; LONGEST];
    move || {
        let values = &mut values[..size];
        for stamp in 0..BURSTS {
            values[0] = stamp;
            values[size - 1] = stamp;
            if !push(values) {
                pause();
            }
        }
    }
}

/// Puts in so many bursts by `fill`, which says how many elements there was space for.
pub fn filling(bursts: usize, mut fill: impl FnMut() -> usize) -> impl FnMut() {
    move || {
        for _ in 0..bursts {
            if fill() == 0 {
                pause();
            }
        }
    }
}

/// Takes out bursts of `size` by `pop`, which says whether there were so many. Says how many elements came.
pub fn popping(size: usize, mut pop: impl FnMut(&mut [u64]) -> bool) -> impl FnMut() -> u64 {
    move || {
        let (mut values, mut sum, mut done) = ([0; LONGEST], 0_u64, 0);
        let values = &mut values[..size];
        for _ in 0..BURSTS {
            if pop(values) {
                sum = sum.wrapping_add(values[0]).wrapping_add(values[size - 1]);
                done += size as u64;
            } else {
                pause();
            }
        }
        std::hint::black_box(sum);
        done
    }
}

/// Waits so long.
#[inline]
pub fn pause() {
    for _ in 0..PAUSES {
        relax();
    }
}
