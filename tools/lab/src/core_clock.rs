//! How fast a core's own clock runs, against the time-stamp counter.
//!
//! The counter runs at one rate while the core's clock follows load, heat and governors, and a virtual machine isn't told. A chain
//! of multiplications, each of which needs the one before, takes a fixed number of the core's cycles.

use std::hint::black_box;
use std::thread;
use warmlane_sys::{affinity, clock};

/// Multiplications in a try; some 0.1 ms.
const CHAIN: u32 = 100_000;
/// Tries, of which the fastest counts: the others were interrupted.
const TRIES: usize = 5;

/// Time-stamp-counter cycles per multiplication on `cpu`: the lower, the faster its clock. Takes about a millisecond.
///
/// # Errors
/// If no thread can run there.
pub fn measure(cpu: usize) -> Result<f64, affinity::AffinityError> {
    let tries = move || {
        affinity::pin_current_thread(cpu)?;
        Ok((0..TRIES).map(|_| once()).fold(f64::INFINITY, f64::min))
    };
    // A panic there would be a mistake in the lines above; the caller has then no figure to compare.
    thread::spawn(tries).join().unwrap_or(Ok(f64::NAN))
}

fn once() -> f64 {
    // Odd, so that the product never becomes 0. By itself, so that the compiler can't multiply some factors beforehand.
    let mut product = black_box(3_u64);
    let begin = clock::cycles_ordered();
    for _ in 0..CHAIN {
        product = product.wrapping_mul(product | 2);
    }
    black_box(product);
    (clock::cycles_ordered() - begin) as f64 / f64::from(CHAIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_multiplication_takes_some_cycles() {
        let cpu = affinity::allowed_cpus().unwrap()[0];
        let cycles = measure(cpu).unwrap();
        // Three to five of the core's, which may run at half or twice the counter's rate.
        assert!((0.5..50.0).contains(&cycles), "{cycles}");
    }

    #[test]
    fn a_cpu_that_is_not_there_is_an_error() {
        assert!(measure(100_000).is_err());
    }
}
