//! A lane's side: registered, online or offline.

use super::domain::{OFFLINE, Shared};
use crate::primitive::{Arc, AtomicU64, Ordering, fence};
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

/// A registered reader, online: writers wait for its reports. One lane has it; it can move to another thread, but not
/// be shared or cloned. Dropping it unregisters; leaking it (`mem::forget`) leaves a reader that never reports, which
/// [`Domain::synchronize`](super::Domain::synchronize) names.
pub struct Reader {
    /// The token reported last: what this reader's entry of `seen` holds.
    seen: u64,
    registration: Registration,
    /// Not Sync: a reader is one thread's.
    not_sync: PhantomData<Cell<()>>,
}

impl Reader {
    /// Reports that this reader refers to nothing it has read: `&mut` ends all borrows. Once a burst: a load, and a
    /// store to a line of its own if a writer has taken a token since.
    #[inline(always)]
    pub fn quiescent(&mut self) {
        // A1: acquire, pairs with R1 in the writer's start. Without it this reader could report the token and then
        // still find what was unlinked before it.
        let token = self.registration.shared.token.load(Ordering::Acquire);
        if token != self.seen {
            self.report(token);
        }
    }

    /// Cold, so that it is compiled out of line: a reader with nothing to report falls through without a jump.
    #[cold]
    fn report(&mut self, token: u64) {
        self.seen = token;
        // R2: release, pairs with A2 in the writer's look. Without it reads from before this report could happen
        // after the memory has a new owner.
        self.registration.entry().store(token, Ordering::Release);
    }

    /// Runs `work`, which may block, offline: writers don't wait for this reader meanwhile.
    pub fn offline<R>(&mut self, work: impl FnOnce() -> R) -> R {
        /// Comes back online at the end, also if the work panics.
        struct Return<'a>(&'a mut Reader);

        impl Drop for Return<'_> {
            fn drop(&mut self) {
                self.0.seen = self.0.registration.come_online();
            }
        }

        let back = Return(self);
        back.0.registration.go_offline();
        work()
    }

    /// Goes offline until [`OfflineReader::online`]: for a lane that is yet to start, or stops for long.
    pub fn into_offline(self) -> OfflineReader {
        self.registration.go_offline();
        OfflineReader { registration: self.registration }
    }

    /// What it was registered as.
    pub fn name(&self) -> String {
        self.registration.name()
    }

    #[inline(always)]
    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.registration.shared
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("name", &self.name()).field("seen", &self.seen).finish_non_exhaustive()
    }
}

/// A registered reader that is offline: it keeps its entry, can't read, and no writer waits for it.
pub struct OfflineReader {
    registration: Registration,
}

impl OfflineReader {
    /// Comes online.
    pub fn online(self) -> Reader {
        self.registration.online()
    }

    /// What it was registered as.
    pub fn name(&self) -> String {
        self.registration.name()
    }
}

impl fmt::Debug for OfflineReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OfflineReader").field("name", &self.name()).finish_non_exhaustive()
    }
}

/// An entry of a domain, free again when dropped.
pub(super) struct Registration {
    shared: Arc<Shared>,
    index: usize,
}

impl Registration {
    /// The entry `index`, which `shared.names` says is taken, by this.
    pub(super) fn new(shared: Arc<Shared>, index: usize) -> Self {
        Self { shared, index }
    }

    pub(super) fn online(self) -> Reader {
        Reader { seen: self.come_online(), registration: self, not_sync: PhantomData }
    }

    /// The one who stores to it is this registration's reader; the index came with the registration.
    #[inline(always)]
    fn entry(&self) -> &AtomicU64 {
        &self.shared.seen[self.index]
    }

    /// Returns the token that it comes online with. If that is older than the newest, writers wait for the first report
    /// without need, and no harm is done.
    fn come_online(&self) -> u64 {
        // Relaxed: F1 makes it an acquire, so that this reader finds nothing that was unlinked before the token.
        let token = self.shared.token.load(Ordering::Relaxed);
        // R4: release, pairs with A2. A writer that sees this token, and never saw `OFFLINE`, must have the reads before
        // that too: a plain store ends R3's release sequence.
        self.entry().store(token, Ordering::Release);
        // F1: sequentially consistent, pairs with F2 in the writer's look. Without it this reader's first read could
        // find what a writer unlinked who then saw it offline.
        fence(Ordering::SeqCst);
        token
    }

    fn go_offline(&self) {
        // R3: release, pairs with A2. Without it reads from before could happen after the memory has a new owner.
        self.entry().store(OFFLINE, Ordering::Release);
    }

    fn name(&self) -> String {
        self.shared.names.lock()[self.index].as_deref().unwrap_or_default().to_owned()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.go_offline();
        // After that: whoever gets the index stores to the same entry.
        self.shared.names.lock()[self.index] = None;
    }
}
