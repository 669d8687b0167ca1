//! Waiting for a write to a line on x86_64, where the CPU lets programs do so: `umwait` on Intel since Tremont and Alder
//! Lake, `mwaitx` on AMD since Excavator. Hypervisors often hide both.

use super::Watched;
use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count, _rdtsc};
use std::sync::atomic::{AtomicU8, Ordering};

/// After so many pauses, about what a short critical section takes: waking up takes longer than a pause.
pub(super) const AFTER: u32 = 16;
/// Sleeps before the yields begin.
pub(super) const TIMES: u32 = 2;
/// Cycles of the time-stamp counter that a sleep may last: some ten microseconds, and below the limit that Linux sets for
/// `umwait` (100,000; `/sys/devices/system/cpu/umwait_control/max_time`).
const LONGEST: u32 = 50_000;

/// How this CPU can wait for a write, if it can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// WAITPKG: `umonitor` and `umwait`.
    Umwait,
    /// MONITORX: `monitorx` and `mwaitx`.
    Mwaitx,
    Neither,
}

impl Way {
    /// By CPUID: WAITPKG is bit 5 of ECX in leaf 7 (Intel 64 and IA-32 Architectures Software Developer's Manual, volume
    /// 2A, CPUID), MONITORX bit 29 of ECX in leaf 8000_0001h (AMD64 Architecture Programmer's Manual, volume 3, E.4.2).
    fn of_this_cpu() -> Self {
        let extended = __cpuid(0x8000_0000).eax;
        if __cpuid(0).eax >= 7 && __cpuid_count(7, 0).ecx & 1 << 5 != 0 {
            Self::Umwait
        } else if extended >= 0x8000_0001 && __cpuid(0x8000_0001).ecx & 1 << 29 != 0 {
            Self::Mwaitx
        } else {
            Self::Neither
        }
    }

    /// The same from memory: CPUID makes a virtual machine exit to its hypervisor.
    fn known() -> Self {
        const UNKNOWN: u8 = u8::MAX;
        static KNOWN: AtomicU8 = AtomicU8::new(UNKNOWN);
        const WAYS: [Way; 3] = [Way::Umwait, Way::Mwaitx, Way::Neither];
        // Relaxed: a number that stands for itself; whoever does not see it yet finds the same one.
        WAYS.get(usize::from(KNOWN.load(Ordering::Relaxed))).copied().unwrap_or_else(|| {
            let way = Self::of_this_cpu();
            KNOWN.store(way as u8, Ordering::Relaxed);
            way
        })
    }
}

/// Sleeps until the line of `watched` is written, if it is `seen` now, for [`LONGEST`] at most. `false` if this CPU can't.
pub(super) fn sleep<W: Watched>(watched: &W, seen: W::Value) -> bool {
    let address = std::ptr::from_ref(watched).cast();
    // In each case the look comes after the monitor is armed, so that a write in between is either seen or ends the sleep.
    match Way::known() {
        Way::Umwait => {
            // SAFETY: the CPU has the instruction; `watched` lives.
            unsafe { umonitor(address) };
            if watched.look() == seen {
                // SAFETY: the CPU has the instruction.
                unsafe { umwait(_rdtsc() + u64::from(LONGEST)) };
            }
            true
        }
        Way::Mwaitx => {
            // SAFETY: the CPU has the instruction; `watched` lives.
            unsafe { monitorx(address) };
            if watched.look() == seen {
                // SAFETY: the CPU has the instruction.
                unsafe { mwaitx(LONGEST) };
            }
            true
        }
        Way::Neither => false,
    }
}

/// # Safety
/// The CPU has WAITPKG, and the address can be read.
unsafe fn umonitor(line: *const u8) {
    // SAFETY: reads what the caller vouches for; touches nothing else.
    unsafe { asm!("umonitor {}", in(reg) line, options(nostack, preserves_flags)) };
}

/// Until the line is written or the time-stamp counter is at `deadline`; in C0.1, the state that is left sooner (bit 0 set).
///
/// # Safety
/// The CPU has WAITPKG.
unsafe fn umwait(deadline: u64) {
    // SAFETY: changes the flags only.
    unsafe {
        asm!("umwait {:e}", in(reg) 1_u32, in("eax") deadline as u32, in("edx") (deadline >> 32) as u32, options(nostack));
    }
}

/// # Safety
/// The CPU has MONITORX, and the address can be read.
unsafe fn monitorx(line: *const u8) {
    // SAFETY: reads what the caller vouches for; no extensions (ECX) and no hints (EDX).
    unsafe { asm!("monitorx", in("rax") line, in("ecx") 0, in("edx") 0, options(nostack, preserves_flags)) };
}

/// Until the line is written or so many cycles have passed (ECX bit 1: the timer in EBX counts); in C0 (EAX bits 7 to 4 all
/// set), the state that is left soonest.
///
/// # Safety
/// The CPU has MONITORX.
unsafe fn mwaitx(cycles: u32) {
    // SAFETY: touches the registers named only. The compiler keeps RBX for itself, hence the exchange.
    unsafe {
        asm!(
            "xchg {cycles}, rbx",
            "mwaitx",
            "xchg {cycles}, rbx",
            cycles = inout(reg) u64::from(cycles) => _,
            in("eax") 0xf0,
            in("ecx") 2,
            options(nostack, preserves_flags)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn the_way_is_what_linux_finds() {
        let flags = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let has = |flag| flags.split_whitespace().any(|word| word == flag);
        let expected = if has("waitpkg") {
            Way::Umwait
        } else if has("monitorx") || has("mwaitx") {
            Way::Mwaitx
        } else {
            Way::Neither
        };
        assert_eq!((Way::of_this_cpu(), Way::known(), Way::known()), (expected, expected, expected));
    }

    #[test]
    fn a_sleep_ends_whether_or_not_somebody_has_written() {
        let watched = AtomicU32::new(1);
        for seen in [1, 2] {
            assert_eq!(sleep(&watched, seen), Way::known() != Way::Neither);
        }
    }
}
