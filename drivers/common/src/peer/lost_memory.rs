//! What happens when another process cuts a file short that is mapped here.
//!
//! An access to a page that the file no longer has raises SIGBUS, which ends the process. Seals forbid that, but not all memory can have
//! them: that of a virtual machine, for instance, is made by its monitor, which doesn't seal, and files of hugetlbfs can't be. So a handler looks
//! whether the address is in one of the ranges that are watched; if so, it puts empty memory in place of the whole range, which is what
//! libwayland does with buffers of clients, and who had the access goes on and reads zeros. All else goes to the handler that was there before.

use super::Event;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd as _;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::sync::{Mutex, Once, OnceLock, PoisonError};

/// A range that is watched, or none.
struct Slot {
    /// Its address; 0 if the slot is free. Written last when a range comes and first when it goes.
    start: AtomicUsize,
    length: AtomicUsize,
    lost: AtomicBool,
    /// The descriptor of an event.
    alarm: AtomicI32,
}

/// Ranges of all ports together. A table of fixed size, because a signal handler can't wait for one that grows.
const SLOTS: usize = 4096;

static TABLE: [Slot; SLOTS] = [const {
    Slot {
        start: AtomicUsize::new(0),
        length: AtomicUsize::new(0),
        lost: AtomicBool::new(false),
        alarm: AtomicI32::new(-1),
    }
}; SLOTS];

/// For those who change the table.
static CHANGE: Mutex<()> = Mutex::new(());

/// What was there before.
static FORMER: OnceLock<libc::sigaction> = OnceLock::new();

/// Watches a range.
#[derive(Debug)]
pub(super) struct Watch {
    slot: Option<usize>,
    /// So that its descriptor stays open.
    _alarm: Event,
}

impl Watch {
    /// From now on, if there is a slot.
    pub(super) fn new(start: NonNull<u8>, length: usize, alarm: &Event) -> Self {
        static INSTALLED: Once = Once::new();
        INSTALLED.call_once(install);
        let _changing = CHANGE.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = TABLE.iter().position(|slot| slot.start.load(Ordering::Relaxed) == 0);
        if let Some(slot) = slot {
            let slot = &TABLE[slot];
            slot.length.store(length, Ordering::Relaxed);
            slot.lost.store(false, Ordering::Relaxed);
            slot.alarm.store(alarm.fd().as_raw_fd(), Ordering::Relaxed);
            // Release, pairs with the acquire in `find`: who sees the address sees the rest.
            slot.start.store(start.as_ptr().expose_provenance(), Ordering::Release);
        }
        Self { slot, _alarm: alarm.clone() }
    }

    pub(super) const fn is_registered(&self) -> bool {
        self.slot.is_some()
    }

    pub(super) fn is_lost(&self) -> bool {
        self.slot.is_some_and(|slot| TABLE[slot].lost.load(Ordering::Relaxed))
    }

    /// No longer. Nobody uses the range any more.
    pub(super) fn end(&mut self) {
        if let Some(slot) = self.slot.take() {
            let _changing = CHANGE.lock().unwrap_or_else(PoisonError::into_inner);
            // Release, pairs with the acquire in `find`: who sees what the slot is used for next sees that it was free.
            TABLE[slot].start.store(0, Ordering::Release);
        }
    }
}

/// The slot of the range that an address is in.
///
/// The range of an address that is being accessed does not go away meanwhile. Other slots may change while they are looked at, and then a
/// length could be taken for one of another range: so the start is read again.
fn find(address: usize) -> Option<(&'static Slot, usize, usize)> {
    TABLE.iter().find_map(|slot| {
        let start = slot.start.load(Ordering::Acquire);
        let length = slot.length.load(Ordering::Acquire);
        let is_inside = start != 0 && address.wrapping_sub(start) < length;
        (is_inside && slot.start.load(Ordering::Relaxed) == start).then_some((slot, start, length))
    })
}

fn install() {
    // SAFETY: all zero is a value of this C struct.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handle as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    let mut former = MaybeUninit::uninit();
    // SAFETY: the handler only does what a handler may (`handle`), and both pointers are good for the call.
    let result = unsafe { libc::sigaction(libc::SIGBUS, &raw const action, former.as_mut_ptr()) };
    if result == 0 {
        // SAFETY: the call has filled it in.
        let _ = FORMER.set(unsafe { former.assume_init() });
    }
}

/// Only what signal-safety(7) allows is done: atomics, `mmap` and `write`, which are system calls and nothing else.
extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel gives a handler with SA_SIGINFO a good pointer, and SIGBUS has an address.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr().addr()) };
    // A page that is missing; broken hardware has other codes.
    if code == libc::BUS_ADRERR
        && let Some((slot, start, length)) = find(address)
    {
        // SAFETY: the address of this thread's own errno.
        let error = unsafe { *libc::__errno_location() };
        let place = std::ptr::with_exposed_provenance_mut(start);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: the range is a mapping of `PeerMapping`, which is there as long as it is in the table; all who access it expect any
        // contents at any time, since another process could write them.
        let mapped = unsafe { libc::mmap(place, length, protection, flags, -1, 0) };
        if mapped == place {
            slot.lost.store(true, Ordering::Relaxed);
            let one = 1_u64.to_ne_bytes();
            // SAFETY: eight bytes that live through the call. The descriptor is open as long as the slot is used.
            unsafe {
                libc::write(slot.alarm.load(Ordering::Relaxed), one.as_ptr().cast(), one.len());
                *libc::__errno_location() = error;
            }
            return;
        }
    }
    hand_on(signal, info, context);
}

/// It is not ours: what was there before decides.
fn hand_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    match FORMER.get() {
        Some(former) if former.sa_sigaction != libc::SIG_DFL && former.sa_sigaction != libc::SIG_IGN => {
            if former.sa_flags & libc::SA_SIGINFO != 0 {
                // SAFETY: with that flag it is a handler of this type, and was installed as such.
                let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                    unsafe { std::mem::transmute(former.sa_sigaction) };
                handler(signal, info, context);
            } else {
                // SAFETY: without that flag it is a handler of this type.
                let handler: extern "C" fn(c_int) = unsafe { std::mem::transmute(former.sa_sigaction) };
                handler(signal);
            }
        }
        _ => {
            // SAFETY: the default is put back; the access happens again and ends the process, as it would have.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    }
}
