//! The processor's cycle counter, and what a cycle of it is worth in time.
//!
//! On x86_64 it is the time-stamp counter, on aarch64 the virtual counter (which ticks far slower than the core),
//! elsewhere the monotonic clock in nanoseconds. It costs some 20 cycles to read, without a system call.

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::affinity::{self, AffinityError};
use crate::text::read_text;

/// How long the counter is compared with the kernel's clock: reading either is uncertain by some 50 ns, so 20 ms give
/// a few parts per million.
const CALIBRATION: Duration = Duration::from_millis(20);
/// Tries at each end of the calibration; the one with the least time between two counter reads is kept.
const CALIBRATION_TRIES: usize = 16;
/// Binary places of the nanoseconds-per-cycle factor. The slowest counter that Linux runs on (1 MHz: 1000 ns a tick)
/// still fits into 64 bits with 48 places.
const FRACTION_BITS: u32 = 48;
const NANOSECONDS: u64 = 1_000_000_000;

/// The cycle counter now. The processor may execute this earlier or later than the instructions around it; for an
/// exact order use [`cycles_ordered`].
#[inline(always)]
pub fn cycles() -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        // SAFETY: RDTSC reads a counter into registers; Linux leaves it enabled in user mode.
        unsafe { std::arch::x86_64::_rdtsc() }
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    {
        let counter: u64;
        // SAFETY: reads a counter that Linux enables in user mode (CNTKCTL_EL1.EL0VCTEN); nothing else changes.
        unsafe {
            std::arch::asm!("mrs {0}, cntvct_el0", out(reg) counter, options(nomem, nostack, preserves_flags));
        }
        counter
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    {
        monotonic_nanoseconds()
    }
}

/// The cycle counter, read after every earlier load of this thread has its value and before any later instruction
/// starts (LFENCE on both sides, Intel SDM volume 2, RDTSC; ISB on Arm). For measuring, not for the data path.
#[inline]
pub fn cycles_ordered() -> u64 {
    order();
    let now = cycles();
    order();
    now
}

#[inline]
fn order() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: LFENCE is part of SSE2, which every x86_64 processor has.
    unsafe {
        std::arch::x86_64::_mm_lfence();
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: ISB flushes the pipeline and changes no state of the program. It isn't `nomem`: loads before it must
    // stay before it.
    unsafe {
        std::arch::asm!("isb", options(nostack, preserves_flags));
    }
}

/// What the cycle counter is worth in time on this machine.
#[derive(Debug, Clone)]
pub struct Clock {
    cycles_per_second: u64,
    /// Nanoseconds per cycle with [`FRACTION_BITS`] binary places, and the reverse.
    nanoseconds_per_cycle: u64,
    cycles_per_nanosecond: u64,
    counter_promised: bool,
    kernel_source: Option<String>,
}

impl Clock {
    /// The machine's clock, measured once per process against the kernel's `CLOCK_MONOTONIC_RAW`; the first call
    /// takes 20 ms.
    pub fn calibrated() -> &'static Self {
        static CLOCK: OnceLock<Clock> = OnceLock::new();
        CLOCK.get_or_init(|| {
            let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
            Self::new(measure(CALIBRATION), counter_promised(), read_text(Path::new(source)))
        })
    }

    fn new(cycles_per_second: u64, counter_promised: bool, kernel_source: Option<String>) -> Self {
        let cycles_per_second = cycles_per_second.max(1);
        let ratio = |a: u64, b: u64| {
            u64::try_from((u128::from(a) << FRACTION_BITS) / u128::from(b)).unwrap_or(u64::MAX)
        };
        Self {
            cycles_per_second,
            nanoseconds_per_cycle: ratio(NANOSECONDS, cycles_per_second),
            cycles_per_nanosecond: ratio(cycles_per_second, NANOSECONDS),
            counter_promised,
            kernel_source,
        }
    }

    /// Counter ticks in a second.
    pub fn cycles_per_second(&self) -> u64 {
        self.cycles_per_second
    }

    /// The nanoseconds that `cycles` take.
    #[inline]
    pub fn nanoseconds(&self, cycles: u64) -> u64 {
        scale(cycles, self.nanoseconds_per_cycle)
    }

    /// The cycles that `nanoseconds` take.
    #[inline]
    pub fn cycles_for(&self, nanoseconds: u64) -> u64 {
        scale(nanoseconds, self.cycles_per_nanosecond)
    }

    /// Does the counter tick at one rate in all power states, and does the kernel still trust it? Without that,
    /// cycle counts can't be turned into time.
    pub fn invariant(&self) -> bool {
        // The kernel's watchdog falls back to these when it has found the counter unstable. A paravirtual source
        // (kvm-clock, hyperv_clocksource_tsc_page, xen) says nothing against it.
        let distrusted = ["hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit"];
        self.counter_promised
            && self.kernel_source.as_deref().is_none_or(|source| !distrusted.contains(&source))
    }

    /// One sentence with what [`invariant`](Self::invariant) rests on.
    pub fn evidence(&self) -> String {
        let promise = if self.counter_promised { "promises" } else { "doesn't promise" };
        let source = self.kernel_source.as_deref().unwrap_or("unknown");
        format!(
            "the processor {promise} a constant rate in all power states; the kernel's clock source is {source}"
        )
    }
}

/// `value` times a factor with [`FRACTION_BITS`] binary places; a result beyond 64 bits stays at the largest.
#[inline]
fn scale(value: u64, factor: u64) -> u64 {
    u64::try_from((u128::from(value) * u128::from(factor)) >> FRACTION_BITS).unwrap_or(u64::MAX)
}

/// CPUID leaf 8000_0007h, EDX bit 8: the time-stamp counter runs at one rate in all P-, C- and T-states (AMD APM
/// volume 3; Intel SDM volume 3, "Invariant TSC"). The Arm and portable counters are constant by definition.
fn counter_promised() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        crate::cpuid::leaf(0x8000_0007, 0).is_some_and(|registers| registers.edx >> 8 & 1 == 1)
    }
    #[cfg(not(target_arch = "x86_64"))]
    true
}

/// Counter ticks in a second, by comparison with the kernel's clock over `duration`.
fn measure(duration: Duration) -> u64 {
    let (first_cycles, first_time) = paired_read();
    let until = Instant::now() + duration;
    while Instant::now() < until {
        std::hint::spin_loop();
    }
    let (last_cycles, last_time) = paired_read();
    let ticks = u128::from(last_cycles.saturating_sub(first_cycles)) * u128::from(NANOSECONDS);
    let time = u128::from(last_time.saturating_sub(first_time).max(1));
    u64::try_from(ticks / time).unwrap_or(u64::MAX)
}

/// The counter and the kernel's clock (nanoseconds) at the same moment, as near as a few tries come.
fn paired_read() -> (u64, u64) {
    let mut best = (u64::MAX, 0, 0);
    for _ in 0..CALIBRATION_TRIES {
        let before = cycles_ordered();
        let time = monotonic_nanoseconds();
        let after = cycles_ordered();
        let gap = after.saturating_sub(before);
        if gap < best.0 {
            best = (gap, before + gap / 2, time);
        }
    }
    (best.1, best.2)
}

/// `CLOCK_MONOTONIC_RAW`, which time servers don't bend.
fn monotonic_nanoseconds() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // Not by rustix: it looks for the vDSO where the kernel has put it, and under valgrind, which counts for `cargo xtask gate`,
    // nothing is mapped there.
    // SAFETY: the kernel writes one timespec to the address, which is ours. The clock exists since Linux 2.6.28; were
    // it refused, the time would stay zero.
    unsafe {
        libc::clock_gettime(libc::CLOCK_MONOTONIC_RAW, &raw mut time);
    }
    // A monotonic clock is never negative.
    time.tv_sec.unsigned_abs() * NANOSECONDS + time.tv_nsec.unsigned_abs()
}

/// The largest number of cycles by which the counter of one CPU was behind a value that another had read before; 0
/// if the counters agree. Runs a pinned thread on each of `cpus` for `duration`.
///
/// # Errors
/// [`AffinityError`] if a thread can't be pinned to one of the CPUs.
pub fn worst_backward_step(cpus: &[usize], duration: Duration) -> Result<u64, AffinityError> {
    let latest = AtomicU64::new(0);
    let watch = |cpu: usize| {
        affinity::pin_current_thread(cpu)?;
        let until = Instant::now() + duration;
        let mut worst = 0_u64;
        while Instant::now() < until {
            for _ in 0..64 {
                // Relaxed is enough: the fence in `cycles_ordered` waits until the load has its value, and that value
                // was in `latest` only after another CPU had read it from its counter.
                let seen = latest.load(Ordering::Relaxed);
                let now = cycles_ordered();
                worst = worst.max(seen.saturating_sub(now));
                latest.fetch_max(now, Ordering::Relaxed);
            }
        }
        Ok(worst)
    };
    thread::scope(|scope| {
        let watchers: Vec<_> = cpus
            .iter()
            .map(|&cpu| {
                thread::Builder::new()
                    .spawn_scoped(scope, move || watch(cpu))
                    .map_err(|source| AffinityError::System { call: "clone (a new thread)", source })
            })
            .collect::<Result<_, _>>()?;
        let mut worst = 0;
        for watcher in watchers {
            // The watcher has nothing in it that panics; if it did all the same, it is passed on.
            worst = worst.max(watcher.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        Ok(worst)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_kernel_within_a_hundredth() {
        let clock = Clock::calibrated();
        // The machine may be busy: a preemption between the two reads of one end spoils a round, not the clock.
        let error = (0..5)
            .map(|_| {
                let (start, start_cycles) = (Instant::now(), cycles_ordered());
                thread::sleep(Duration::from_millis(50));
                let ours = clock.nanoseconds(cycles_ordered() - start_cycles) as f64;
                let theirs = start.elapsed().as_nanos() as f64;
                (ours / theirs - 1.0).abs()
            })
            .fold(f64::INFINITY, f64::min);
        assert!(error < 0.01, "off by {error}");
    }

    #[test]
    fn conversion_is_exact_at_the_ends() {
        let clock = Clock::new(2_500_000_000, true, None);
        assert_eq!(clock.nanoseconds(0), 0);
        assert_eq!(clock.nanoseconds(2_500_000_000), 999_999_999, "rounded down");
        assert_eq!(clock.cycles_for(1_000_000_000), 2_500_000_000);
        assert_eq!(Clock::new(1, true, None).nanoseconds(u64::MAX), u64::MAX, "saturates");
        // A year of cycles is right to the microsecond.
        let year = 365 * 86_400 * 2_500_000_000;
        assert!(clock.nanoseconds(year).abs_diff(365 * 86_400 * NANOSECONDS) < 1_000_000);
        // A slow Arm counter keeps its fraction.
        assert_eq!(Clock::new(24_000_000, true, None).nanoseconds(24), 999);
    }

    #[test]
    fn the_kernels_distrust_outweighs_the_processors_promise() {
        let with = |promised, source: &str| Clock::new(1_000_000_000, promised, Some(source.to_owned()));
        assert!(with(true, "tsc").invariant());
        assert!(with(true, "kvm-clock").invariant());
        assert!(!with(true, "hpet").invariant());
        assert!(!with(false, "tsc").invariant());
        assert!(with(true, "hpet").evidence().ends_with("the kernel's clock source is hpet"));
    }

    #[test]
    fn counters_of_all_cpus_agree() {
        let cpus = affinity::allowed_cpus().unwrap();
        let worst = worst_backward_step(&cpus, Duration::from_millis(30)).unwrap();
        assert!(!Clock::calibrated().invariant() || worst == 0, "{worst} cycles back");
        assert!(worst_backward_step(&[60_000], Duration::ZERO).is_err());
    }
}
