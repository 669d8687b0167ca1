//! Waiting for some time, in the way that takes least of the processor.
//!
//! A loop of pauses keeps the core awake. Where the processor can wait for a time by itself, the core, and the hardware thread beside
//! it, get what this one doesn't use, and the package needs less power: Intel's TPAUSE (SDM volume 2, "TPAUSE"; what UMWAIT does, without
//! an address to watch), AMD's MWAITX with a timer (APM volume 3, "MWAITX"), and Arm's WFET (Arm ARM, FEAT_WFxT). None of them is a
//! system call. A lane waits for several queues at once, and these watch one address at most, so only the time ends the wait.

use std::sync::OnceLock;

use warmlane_sync::spin::relax;

use crate::clock;

/// What a thread can rest by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// Intel's TPAUSE.
    TimedPause,
    /// AMD's MWAITX with a timer.
    MonitorWait,
    /// Arm's WFET.
    WaitForEvent,
    /// A loop of pauses, which every processor has.
    Pause,
}

impl Instruction {
    /// The best that this processor has.
    pub fn best() -> Self {
        static BEST: OnceLock<Instruction> = OnceLock::new();
        *BEST.get_or_init(best)
    }

    /// Its name in the processor's manual.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TimedPause => "tpause",
            Self::MonitorWait => "mwaitx",
            Self::WaitForEvent => "wfet",
            Self::Pause => "pause",
        }
    }
}

/// Rests until the cycle counter ([`clock::cycles`]) has gone on by `cycles`, or a bit less: an interrupt ends it, too.
#[inline]
pub fn rest(cycles: u64) {
    match Instruction::best() {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        Instruction::TimedPause => x86::timed_pause(clock::cycles().saturating_add(cycles)),
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        Instruction::MonitorWait => x86::monitor_wait(cycles),
        #[cfg(all(target_arch = "aarch64", not(miri)))]
        Instruction::WaitForEvent => arm::wait_for_event(clock::cycles().saturating_add(cycles)),
        _ => pauses(cycles),
    }
}

/// The portable way.
fn pauses(cycles: u64) {
    let begin = clock::cycles();
    while clock::cycles().saturating_sub(begin) < cycles {
        relax();
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
fn best() -> Instruction {
    use crate::cpuid::leaf;
    // SDM volume 2, CPUID.(EAX=07H,ECX=0):ECX.WAITPKG[bit 5]; APM volume 3, Fn8000_0001_ECX[MONITORX], bit 29.
    if leaf(7, 0).is_some_and(|registers| registers.ecx >> 5 & 1 == 1) {
        Instruction::TimedPause
    } else if leaf(0x8000_0001, 0).is_some_and(|registers| registers.ecx >> 29 & 1 == 1) {
        Instruction::MonitorWait
    } else {
        Instruction::Pause
    }
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
fn best() -> Instruction {
    // HWCAP2_WFXT of Linux (Documentation/arch/arm64/elf_hwcaps.rst).
    const WFXT: libc::c_ulong = 1 << 31;
    // SAFETY: getauxval(3) reads a table of the process and has no preconditions.
    let capabilities = unsafe { libc::getauxval(libc::AT_HWCAP2) };
    if capabilities & WFXT != 0 { Instruction::WaitForEvent } else { Instruction::Pause }
}

#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
const fn best() -> Instruction {
    Instruction::Pause
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86 {
    use std::arch::asm;

    /// TPAUSE until the time-stamp counter gets there, in the state that is left the faster (C0.1). Called where CPUID has WAITPKG.
    pub(super) fn timed_pause(until: u64) {
        // SAFETY: `best` found the instruction. It reads its three registers, changes flags, and no memory.
        unsafe {
            asm!(
                "tpause {state:e}",
                state = in(reg) 1_u32,
                in("eax") until as u32,
                in("edx") (until >> 32) as u32,
                options(nomem, nostack),
            );
        }
    }

    /// MWAITX for so many cycles, without a deeper state. Called where CPUID has MONITORX.
    pub(super) fn monitor_wait(cycles: u64) {
        /// EAX: "disable C-states" is F in bits 7:4 (as Linux has it, MWAITX_DISABLE_CSTATES).
        const NO_DEEPER_STATE: u32 = 0xf0;
        /// ECX: EBX is the longest wait.
        const TIMER: u32 = 1 << 1;
        // Something must be watched. Nobody writes to this.
        let word = 0_u64;
        let cycles = u32::try_from(cycles).unwrap_or(u32::MAX);
        // SAFETY: `best` found both instructions. They read a word of this function's and registers; RBX, which the compiler keeps for
        // itself, is put back.
        unsafe {
            asm!("monitorx", in("rax") &raw const word, in("ecx") 0, in("edx") 0, options(nostack, preserves_flags));
            asm!(
                "xchg {limit:r}, rbx",
                "mwaitx",
                "xchg {limit:r}, rbx",
                limit = inout(reg) u64::from(cycles) => _,
                in("eax") NO_DEEPER_STATE,
                in("ecx") TIMER,
                options(nomem, nostack, preserves_flags),
            );
        }
    }
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
mod arm {
    /// WFET until the virtual counter gets there. Called where the kernel tells of FEAT_WFxT.
    pub(super) fn wait_for_event(until: u64) {
        // SAFETY: `best` found the instruction, here as a number since assemblers want a target that has it: WFET X0. It reads that register
        // and nothing else.
        unsafe {
            std::arch::asm!(".inst 0xd5031000", in("x0") until, options(nomem, nostack, preserves_flags));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_portable_way_waits_as_long_as_it_should() {
        let begin = clock::cycles();
        pauses(10_000);
        assert!(clock::cycles() - begin >= 10_000);
    }

    /// Runs what this processor has: an instruction that it lacks, or that is encoded wrongly, would end the process.
    #[test]
    fn the_best_way_comes_back() {
        let begin = clock::cycles();
        for cycles in [0, 1, 100, 10_000] {
            rest(cycles);
        }
        assert!(clock::cycles() > begin);
        eprintln!("rests by {}", Instruction::best().name());
        #[cfg(target_arch = "x86_64")]
        {
            let flags = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
            let has = |flag: &str| flags.split_whitespace().any(|word| word == flag);
            assert_eq!(Instruction::best() == Instruction::TimedPause, has("waitpkg"));
            assert_eq!(Instruction::best() == Instruction::MonitorWait, has("mwaitx") && !has("waitpkg"));
        }
    }
}
