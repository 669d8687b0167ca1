//! What a program says to valgrind's callgrind, where it runs under that.
//!
//! Preparation takes a hundred times as long where each of its instructions is counted, so a program that is to be counted says where
//! counting begins. On a processor a request is five instructions that change nothing. The sequence is that of `valgrind.h`
//! (<https://valgrind.org/docs/manual/manual-core-adv.html>, "The Client Request mechanism"), the numbers are those of `callgrind.h`.

/// What callgrind can be asked for, by `callgrind.h`: 'C' and 'T' in the upper bytes, then the number.
#[derive(Clone, Copy)]
#[repr(u64)]
enum Request {
    ZeroStatistics = 0x4354_0001,
    StartInstrumentation = 0x4354_0004,
}

/// Observes from here on, if callgrind was started with `--instr-atstart=no`. Its caches are empty then.
pub fn observe() {
    say(Request::StartInstrumentation);
}

/// Forgets what was counted so far; what lies in its caches stays.
pub fn forget() {
    say(Request::ZeroStatistics);
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
fn say(request: Request) {
    // The request and up to five arguments.
    let words: [u64; 6] = [request as u64, 0, 0, 0, 0, 0];
    // SAFETY: rotated by 128 bits in all, rdi is as before, and rbx exchanged with itself, too; rdx takes an answer that nobody
    // needs. Valgrind reads the words, which live until the end of this function.
    unsafe {
        core::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") words.as_ptr(),
            inout("rdx") 0_u64 => _,
            options(nostack),
        );
    }
}

/// Nobody counts there.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn say(_: Request) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_a_processor_requests_change_nothing() {
        let before: Vec<u64> = (0..64).collect();
        observe();
        forget();
        assert_eq!(before.iter().sum::<u64>(), 63 * 32);
    }
}
