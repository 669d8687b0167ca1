//! Waiting for an event on aarch64.

use super::Watched;
use std::arch::asm;
use std::ffi::c_ulong;
use std::sync::atomic::{AtomicU8, Ordering};

/// At once: an event is no slower to notice than a pause is to end.
pub(super) const AFTER: u32 = 0;
/// Linux makes an event happen every 100 µs at the latest (its arch-timer event stream), so a thread that has lost its CPU
/// is not waited for longer than twice that.
pub(super) const TIMES: u32 = 2;

unsafe extern "C" {
    /// getauxval(3): only looks something up that the kernel has told the process.
    safe fn getauxval(kind: c_ulong) -> c_ulong;
}

/// Whether events come by themselves, so that a sleep ends when nobody writes: Linux says so by HWCAP_EVTSTRM
/// (Documentation/arch/arm64/elf_hwcaps.rst).
fn has_event_stream() -> bool {
    const AT_HWCAP: c_ulong = 16;
    const HWCAP_EVTSTRM: c_ulong = 1 << 2;
    const UNKNOWN: u8 = 2;
    static KNOWN: AtomicU8 = AtomicU8::new(UNKNOWN);
    // Relaxed: a number that stands for itself; whoever does not see it yet finds the same one.
    match KNOWN.load(Ordering::Relaxed) {
        UNKNOWN => {
            let has = getauxval(AT_HWCAP) & HWCAP_EVTSTRM != 0;
            KNOWN.store(u8::from(has), Ordering::Relaxed);
            has
        }
        known => known == 1,
    }
}

/// Sleeps until another core writes to the line of `watched`, if it is `seen` now: the load-exclusive watches the line, and
/// losing it is an event ("Wait for Event mechanism", Arm Architecture Reference Manual, D1.6), as if the writer had said
/// `sev`. Linux waits for its locks so (`__cmpwait` in arch/arm64/include/asm/cmpxchg.h). The event that may be left from
/// before is taken first. `false` if a sleep might never end here.
#[inline(always)]
pub(super) fn sleep<W: Watched>(watched: &W, seen: W::Value) -> bool {
    if !has_event_stream() {
        return false;
    }
    // The exclusive load may be of one byte of what is watched: it is the line that counts. Whether there is still something
    // to wait for is looked at after it, which its acquire sees to, so that a write in between is either seen or an event.
    // SAFETY: reads a byte of `watched`, which lives, and touches nothing but the register named and the monitor.
    unsafe {
        asm!(
            "sevl",
            "wfe",
            "ldaxrb {value:w}, [{watched}]",
            value = out(reg) _,
            watched = in(reg) std::ptr::from_ref(watched),
            options(nostack, preserves_flags, readonly)
        );
    }
    if watched.look() == seen {
        // SAFETY: sleeps until an event, of which Linux sends one each 100 µs at the latest; touches nothing.
        unsafe { asm!("wfe", options(nostack, preserves_flags, nomem)) };
    }
    true
}
