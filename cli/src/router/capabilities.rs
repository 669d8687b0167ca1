//! What a running router may do of what only root may: no more than it needs.

use caps::errors::CapsError;
use caps::{CapSet, Capability, CapsHashSet};

/// Those that are kept by the thread that follows the kernel. Both are for programs at interfaces that come later, and what they are told;
/// CAP_NET_ADMIN besides to ask the kernel for neighbours, and what netfilter has.
const KEPT: [Capability; 2] = [Capability::CAP_NET_ADMIN, Capability::CAP_BPF];

/// The same for sockets of interfaces on path user that are made again.
const KEPT_FOR_SOCKETS: [Capability; 2] = [Capability::CAP_NET_RAW, Capability::CAP_IPC_LOCK];

/// Drops what isn't needed any more once all is set up.
///
/// # Errors
/// The system refuses.
pub(super) fn drop_most(has_user_path: bool) -> Result<(), CapsError> {
    let for_sockets = if has_user_path { &KEPT_FOR_SOCKETS[..] } else { &[] };
    keep(&KEPT.iter().chain(for_sockets).copied().collect())
}

/// Does something on a thread without capabilities, which those have not either that it starts.
///
/// # Errors
/// The system refuses to take them; nothing is done then.
pub(super) fn without<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, CapsError> {
    with_only(&[], work)
}

/// Does something on a thread that may only look into BPF maps: what the programs of interfaces have counted.
///
/// # Errors
/// As [`without`].
pub(super) fn to_read_maps<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, CapsError> {
    with_only(&[Capability::CAP_BPF], work)
}

fn with_only<T: Send>(kept: &[Capability], work: impl FnOnce() -> T + Send) -> Result<T, CapsError> {
    let on_thread = || keep(&kept.iter().copied().collect()).map(|()| work());
    std::thread::scope(|scope| match scope.spawn(on_thread).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// For the calling thread, and those that it starts from now on. A program that it would run can't have others either.
fn keep(kept: &CapsHashSet) -> Result<(), CapsError> {
    // Only who has this may, and who hasn't isn't root: a program that it ran would have none.
    if caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP)? {
        for capability in caps::read(None, CapSet::Bounding)?.difference(kept) {
            caps::drop(None, CapSet::Bounding, *capability)?;
        }
    }
    caps::clear(None, CapSet::Ambient)?;
    caps::clear(None, CapSet::Inheritable)?;
    for set in [CapSet::Effective, CapSet::Permitted] {
        let left: CapsHashSet = caps::read(None, set)?.intersection(kept).copied().collect();
        caps::set(None, set, &left)?;
    }
    Ok(())
}
