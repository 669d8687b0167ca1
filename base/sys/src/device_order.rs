//! Memory and the registers of devices, in order.
//!
//! A device reads memory when a register tells it to, and has written to memory what a register says. So what was stored to memory has to be there before the
//! register is written, and what is loaded from memory has to be loaded behind the register. The orderings of atomics are about processors, and promise none of that.
//!
//! On x86 there is nothing for the processor to do: stores to ordinary memory and to registers stay in their order, as do loads (SDM volume 3A,
//! "Memory Ordering in P6 and More Recent Processor Families", and "Strong Uncacheable"). On Arm it takes a barrier for the outer shareable domain, where devices
//! are; `fence(Release)` is one for the inner one, where processors are (Arm ARM, "DMB"). Linux does the same in `writel` and `readl`, of which each is an access
//! behind `dma_wmb` or before `dma_rmb`, while `writel_relaxed` and `readl_relaxed` are accesses alone (`Documentation/memory-barriers.txt`, "Kernel I/O barrier
//! effects"; `arch/arm64/include/asm/io.h` and `barrier.h`, `arch/x86/include/asm/barrier.h`).

/// Keeps accesses to memory on their sides: the compiler by an empty instruction, and on Arm the processor by a barrier.
macro_rules! barrier {
    ($on_arm:literal) => {
        // SAFETY: no instruction; the compiler moves no access to memory across.
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        unsafe {
            core::arch::asm!("", options(nostack, preserves_flags));
        }
        // SAFETY: a barrier, which changes nothing; the compiler moves no access to memory across.
        #[cfg(all(target_arch = "aarch64", not(miri)))]
        unsafe {
            core::arch::asm!($on_arm, options(nostack, preserves_flags));
        }
        #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
        core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
    };
}

/// What this thread stored to memory before is there for a device that learns of what it writes to a register behind this.
#[inline(always)]
pub fn before_write() {
    barrier!("dmb oshst");
}

/// What this thread loads from memory behind this is no older than what it read from a register before.
#[inline(always)]
pub fn after_read() {
    barrier!("dmb oshld");
}

#[cfg(all(test, not(miri)))]
mod tests {
    use crate::skipped::skipped;
    use std::io::Write as _;
    use std::path::Path;
    use std::process::{Command, Stdio};

    /// Functions that access memory twice, with a register in between. Without anything to keep them in order, once would do.
    const PROBE: &str = r#"
        #![crate_type = "lib"]
        #[path = "device_order.rs"]
        mod device_order;

        #[unsafe(no_mangle)]
        pub unsafe fn store_and_write(memory: *mut u64, register: *mut u32) {
            // SAFETY: nobody calls it; only its instructions are looked at.
            unsafe {
                memory.write(7);
                device_order::before_write();
                register.write_volatile(1);
                memory.write(8);
            }
        }

        #[unsafe(no_mangle)]
        pub unsafe fn read_and_load(memory: *const u64, register: *const u32) -> u64 {
            // SAFETY: as above.
            unsafe {
                let before = memory.read();
                let said = register.read_volatile();
                device_order::after_read();
                before + memory.read() + u64::from(said)
            }
        }
    "#;

    /// What rustc makes of a function of the probe for a processor: its accesses and barriers. `None` without the standard library for that processor.
    fn emitted(target: &str, function: &str, is_it: fn(&str) -> bool) -> Option<Vec<String>> {
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let libraries = Command::new(&rustc).args(["--print", "target-libdir", "--target", target]).output();
        let libraries = String::from_utf8(libraries.unwrap().stdout).unwrap();
        if !Path::new(libraries.trim()).exists() {
            skipped(&format!("rustup target add {target}"));
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("probe.s");
        let mut process = Command::new(rustc)
            .args(["--edition", "2024", "--target", target, "--emit", "asm", "-C", "opt-level=3", "-o"])
            .arg(&output)
            .arg("-")
            .stdin(Stdio::piped())
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src"))
            .spawn()
            .unwrap();
        process.stdin.take().unwrap().write_all(PROBE.as_bytes()).unwrap();
        assert!(process.wait().unwrap().success());
        let listing = std::fs::read_to_string(output).unwrap();
        let label = format!("{function}:");
        let lines = listing.lines().skip_while(|line| **line != label).skip(1);
        let body = lines.take_while(|line| !line.starts_with(".Lfunc_end"));
        let words = body.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        Some(words.filter(|line| is_it(line)).collect())
    }

    #[test]
    fn on_arm_barriers_for_devices_are_between_memory_and_registers() {
        let is_it =
            |line: &str| ["str", "ldr", "dmb", "stlr", "ldar"].iter().any(|word| line.starts_with(word));
        for (function, expected) in [
            ("store_and_write", ["str x", "dmb oshst", "str w", "str x"]),
            ("read_and_load", ["ldr x", "ldr w", "dmb oshld", "ldr x"]),
        ] {
            let Some(found) = emitted("aarch64-unknown-linux-gnu", function, is_it) else { return };
            assert_eq!(found.len(), expected.len(), "{found:?}");
            assert!(found.iter().zip(expected).all(|(line, start)| line.starts_with(start)), "{found:?}");
        }
    }

    #[test]
    fn on_x86_the_compiler_keeps_the_order() {
        let is_it = |line: &str| line.contains('(') || line.contains("fence") || line.starts_with("lock");
        for (function, expected) in [
            ("store_and_write", ["(%rdi)", "(%rsi)", "(%rdi)"]),
            ("read_and_load", ["(%rdi)", "(%rsi)", "(%rdi)"]),
        ] {
            let Some(found) = emitted("x86_64-unknown-linux-gnu", function, is_it) else { return };
            assert_eq!(found.len(), expected.len(), "{found:?}");
            assert!(found.iter().zip(expected).all(|(line, part)| line.contains(part)), "{found:?}");
        }
    }
}
