//! Programs at a side of tc that aren't this process's, as far as the kernel has links for them (Linux 6.6 or later).

use std::io;
use std::sync::{Mutex, PoisonError};

use libc::{c_int, c_long};

use crate::attachment::AttachPoint;

/// The numbers of programs that this process has at a side of tc, each once for each place.
static OURS: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// Says that a program is this process's, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Own(u32);

impl Own {
    pub(crate) fn new(program: u32) -> Self {
        OURS.lock().unwrap_or_else(PoisonError::into_inner).push(program);
        Self(program)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let mut ours = OURS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = ours.iter().position(|program| *program == self.0) {
            ours.swap_remove(place);
        }
    }
}

/// What the kernel asks and answers (`union bpf_attr` of `include/uapi/linux/bpf.h`, the part for `BPF_PROG_QUERY`).
#[repr(C)]
#[derive(Debug, Default)]
struct Query {
    interface: u32,
    attach_type: u32,
    flags: u32,
    attach_flags: u32,
    programs: u64,
    count: u32,
    _padding: u32,
    program_attach_flags: u64,
    links: u64,
    link_attach_flags: u64,
    revision: u64,
}

const PROG_QUERY: c_int = 16;
const TCX_INGRESS: u32 = 46;
const TCX_EGRESS: u32 = 47;
/// As many programs as a side has space for (`BPF_MPROG_MAX`).
const MOST: usize = 64;

/// Whether programs of others are at a side of tc of an interface of the calling thread's network namespace, given by its number. Filters
/// of tc, which the kernel tells of by netlink, are not among them. None are where there is no such interface, and before Linux 6.6.
///
/// # Errors
/// The kernel refuses: it needs `CAP_NET_ADMIN`.
pub fn has_others(interface: u32, hook: AttachPoint) -> io::Result<bool> {
    let mut found = [0_u32; MOST];
    let mut query = Query {
        interface,
        attach_type: if hook == AttachPoint::TcEgress { TCX_EGRESS } else { TCX_INGRESS },
        programs: found.as_mut_ptr().expose_provenance() as u64,
        count: MOST as u32,
        ..Query::default()
    };
    // SAFETY: the kernel reads and writes a structure of the size that it is told, and writes at most `count` numbers to `found`; both
    // live across the call.
    let result: c_long =
        unsafe { libc::syscall(libc::SYS_bpf, PROG_QUERY, &raw mut query, size_of::<Query>()) };
    if result != 0 {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::EINVAL | libc::ENODEV | libc::ENOENT) => Ok(false),
            _ => Err(error),
        };
    }
    let ours = OURS.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(found.iter().take(query.count as usize).any(|program| !ours.contains(program)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_has_no_programs() {
        match has_others(u32::MAX, AttachPoint::Tc) {
            Ok(has) => assert!(!has),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EPERM)),
        }
    }

    #[test]
    fn a_program_is_ours_as_long_as_one_of_its_places() {
        const PROGRAM: u32 = u32::MAX;
        let count = || OURS.lock().unwrap().iter().filter(|program| **program == PROGRAM).count();
        let places = [Own::new(PROGRAM), Own::new(PROGRAM)];
        assert_eq!(count(), 2);
        let [first, second] = places;
        drop(first);
        assert_eq!(count(), 1);
        drop(second);
        assert_eq!(count(), 0);
    }
}
