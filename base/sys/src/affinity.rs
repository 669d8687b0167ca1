//! Which CPUs a thread may run on, and pinning it to one.

use std::io;
use std::thread;

use crate::text::format_list;

/// CPUs in the first affinity mask tried; the kernel says when its own mask is longer.
const FIRST_MASK_CPUS: usize = 1024;
/// The longest mask tried, far above what a kernel can be built for (8192).
const LONGEST_MASK_CPUS: usize = 1 << 20;
const WORD_BITS: usize = u64::BITS as usize;

/// Why a thread's CPUs couldn't be read or set.
#[derive(Debug, thiserror::Error)]
pub enum AffinityError {
    /// The CPU isn't there, is offline, or a cpuset (container, systemd slice) keeps it from this process.
    #[error(
        "cpu {cpu} can't be used by this process: its allowed cpus are {}; choose one of those, or widen the \
         cpuset (`docker --cpuset-cpus`, systemd `AllowedCPUs=`)",
        format_list(allowed)
    )]
    NotAllowed {
        /// The CPU asked for.
        cpu: usize,
        /// The CPUs that would have been possible.
        allowed: Vec<usize>,
    },
    /// The kernel refused the call for another reason, such as a seccomp filter.
    #[error("the kernel refused {call}: {source}; check that the sandbox or seccomp filter permits it")]
    System {
        /// The system call's name.
        call: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

/// The CPUs that the calling thread may run on now, in ascending order.
///
/// # Errors
/// [`AffinityError::System`] if `sched_getaffinity` isn't permitted.
pub fn allowed_cpus() -> Result<Vec<usize>, AffinityError> {
    let mut cpus = FIRST_MASK_CPUS;
    loop {
        let mut mask = vec![0_u64; cpus / WORD_BITS];
        // SAFETY: the kernel writes at most the number of bytes given, which `mask` has; pid 0 is this thread.
        let result = unsafe {
            libc::sched_getaffinity(0, std::mem::size_of_val(mask.as_slice()), mask.as_mut_ptr().cast())
        };
        if result == 0 {
            return Ok(set_bits(&mask));
        }
        let source = io::Error::last_os_error();
        // EINVAL: the kernel's mask is longer than ours (sched_getaffinity(2), "Handling systems with large CPU
        // affinity masks").
        if source.raw_os_error() != Some(libc::EINVAL) || cpus >= LONGEST_MASK_CPUS {
            return Err(AffinityError::System { call: "sched_getaffinity", source });
        }
        cpus *= 2;
    }
}

/// The number that the system gives the calling thread (gettid(2)).
pub fn current_thread() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}

/// Pins the calling thread to `cpu`. Threads that it starts from now on inherit that.
///
/// # Errors
/// [`AffinityError::NotAllowed`] names the CPU and those that would be possible.
pub fn pin_current_thread(cpu: usize) -> Result<(), AffinityError> {
    if cpu < LONGEST_MASK_CPUS {
        let mut mask = vec![0_u64; cpu / WORD_BITS + 1];
        mask[cpu / WORD_BITS] = 1 << (cpu % WORD_BITS);
        match set_mask(&mask) {
            Ok(()) => return Ok(()),
            Err(source) if source.raw_os_error() != Some(libc::EINVAL) => {
                return Err(AffinityError::System { call: "sched_setaffinity", source });
            }
            // EINVAL: no CPU of the mask is both online and in the process's cpuset.
            Err(_) => {}
        }
    }
    Err(AffinityError::NotAllowed { cpu, allowed: obtainable_cpus()? })
}

/// Lets the calling thread run on these CPUs, and on no others.
///
/// # Errors
/// [`AffinityError::System`] if none of them is there, or `sched_setaffinity` isn't permitted.
pub fn run_current_thread_on(cpus: &[usize]) -> Result<(), AffinityError> {
    let last = cpus.iter().copied().filter(|cpu| *cpu < LONGEST_MASK_CPUS).max().unwrap_or(0);
    let mut mask = vec![0_u64; last / WORD_BITS + 1];
    for cpu in cpus {
        if let Some(word) = mask.get_mut(cpu / WORD_BITS) {
            *word |= 1 << (cpu % WORD_BITS);
        }
    }
    set_mask(&mask).map_err(|source| AffinityError::System { call: "sched_setaffinity", source })
}

/// Lets the calling thread run only while no other has anything to do on its CPU (`SCHED_IDLE`, sched(7): about a third of
/// a percent of the time of a CPU that others want).
///
/// # Errors
/// [`AffinityError::System`] if `sched_setscheduler` isn't permitted.
pub fn run_current_thread_when_idle() -> Result<(), AffinityError> {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the kernel reads the parameters, which live; pid 0 is this thread.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameters) } == 0 {
        return Ok(());
    }
    Err(AffinityError::System { call: "sched_setscheduler", source: io::Error::last_os_error() })
}

/// The CPU that the calling thread runs on at this moment; `None` where the kernel doesn't tell.
pub fn current_cpu() -> Option<usize> {
    // SAFETY: takes no argument and only returns a number, negative if it failed.
    usize::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// The CPUs that this process could pin a thread to, even when the calling thread is pinned already: a fresh thread
/// asks for all, and the kernel leaves those that the cpuset permits.
fn obtainable_cpus() -> Result<Vec<usize>, AffinityError> {
    let probe = thread::Builder::new().spawn(|| {
        // If that is refused, what the thread inherited is the answer.
        let _ = set_mask(&[u64::MAX; FIRST_MASK_CPUS / WORD_BITS]);
        allowed_cpus()
    });
    match probe.map(thread::JoinHandle::join) {
        Ok(Ok(cpus)) => cpus,
        _ => allowed_cpus(),
    }
}

fn set_mask(mask: &[u64]) -> io::Result<()> {
    // SAFETY: the kernel reads the number of bytes given, which `mask` has; pid 0 is this thread.
    let result = unsafe { libc::sched_setaffinity(0, std::mem::size_of_val(mask), mask.as_ptr().cast()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn set_bits(mask: &[u64]) -> Vec<usize> {
    (0..mask.len() * WORD_BITS).filter(|cpu| mask[cpu / WORD_BITS] >> (cpu % WORD_BITS) & 1 == 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_can_stand_back_behind_all_others() {
        thread::spawn(|| {
            run_current_thread_when_idle().unwrap();
            // The 41st field, counted from after the name (proc_pid_stat(5)): 5 is SCHED_IDLE.
            let statistics = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            let fields = statistics.rsplit_once(") ").unwrap().1;
            assert_eq!(fields.split_whitespace().nth(41 - 3), Some("5"));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_can_be_kept_on_some_cpus() {
        thread::spawn(|| {
            let all = allowed_cpus().unwrap();
            run_current_thread_on(&all[1..]).map_or_else(
                |_| assert_eq!(all.len(), 1),
                |()| {
                    assert_eq!(allowed_cpus().unwrap(), all[1..]);
                },
            );
            run_current_thread_on(&all[..1]).unwrap();
            assert_eq!(allowed_cpus().unwrap(), all[..1]);
            assert!(run_current_thread_on(&[LONGEST_MASK_CPUS]).is_err());
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_pinned_thread_stays_on_its_cpu() {
        for cpu in allowed_cpus().unwrap() {
            thread::spawn(move || {
                pin_current_thread(cpu).unwrap();
                assert_eq!(current_cpu(), Some(cpu));
                assert_eq!(allowed_cpus().unwrap(), [cpu]);
            })
            .join()
            .unwrap();
        }
    }

    #[test]
    fn the_error_names_the_cpu_and_the_choice_even_from_a_pinned_thread() {
        thread::spawn(|| {
            let allowed = allowed_cpus().unwrap();
            pin_current_thread(allowed[0]).unwrap();
            for cpu in [60_000, usize::MAX] {
                let error = pin_current_thread(cpu).unwrap_err().to_string();
                assert!(error.starts_with(&format!("cpu {cpu} can't be used")), "{error}");
                assert!(error.contains(&format!("allowed cpus are {};", format_list(&allowed))), "{error}");
            }
            assert_eq!(allowed_cpus().unwrap(), [allowed[0]], "a refusal changes nothing");
        })
        .join()
        .unwrap();
    }

    #[test]
    fn bits_are_numbered_from_the_lowest() {
        assert_eq!(set_bits(&[0b101, 1 << 63]), [0, 2, 127]);
    }
}
