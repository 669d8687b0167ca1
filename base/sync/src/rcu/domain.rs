//! Who reads, and how far each has come.

use super::reader::Registration;
use super::{ForeignReader, RcuError, Reader, StuckReaders};
use crate::backoff::Backoff;
use crate::padded::CachePadded;
use crate::primitive::{Arc, AtomicU64, Ordering, fence};
use crate::spin::SpinLock;
use std::fmt;
use std::time::{Duration, Instant};

/// The most readers that a domain can be made for; each takes 128 bytes, and a writer's look at them a line each.
pub const MAXIMUM_READERS: usize = 4_096;

/// What a reader that is offline, or nobody, has seen. Tokens start above.
pub(super) const OFFLINE: u64 = 0;
const FIRST_TOKEN: u64 = 1;

/// A set of readers, and the writers that wait for them. Clones are the same domain.
#[derive(Clone)]
pub struct Domain {
    pub(super) shared: Arc<Shared>,
}

pub(super) struct Shared {
    /// The last token that a writer took. Readers load it once a burst; a writer stores once a batch.
    ///
    /// 64 bits: at one a nanosecond it would take 584 years to wrap.
    pub(super) token: CachePadded<AtomicU64>,
    /// By registration: the token that each reader reported last, or `OFFLINE`. Each line is stored to by its reader.
    pub(super) seen: Box<[CachePadded<AtomicU64>]>,
    /// Who has which of `seen`.
    pub(super) names: SpinLock<Vec<Option<Box<str>>>>,
    /// What queues left behind that were dropped before their items were safe.
    orphans: SpinLock<Vec<Orphans>>,
}

/// Retired items without a queue, to be dropped when `token` is over.
struct Orphans {
    token: u64,
    items: Box<dyn Send>,
}

/// A point in time at which a writer had unlinked something; over when every reader has reported since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    number: u64,
    /// The address of the domain's shared part, so that no domain answers for another.
    domain: usize,
}

impl Domain {
    /// A domain for up to `maximum_readers`.
    ///
    /// # Errors
    /// [`RcuError`], if that is 0 or more than [`MAXIMUM_READERS`].
    pub fn new(maximum_readers: usize) -> Result<Self, RcuError> {
        if !(1..=MAXIMUM_READERS).contains(&maximum_readers) {
            return Err(RcuError::Readers { readers: maximum_readers });
        }
        let seen = (0..maximum_readers).map(|_| CachePadded::new(AtomicU64::new(OFFLINE))).collect();
        Ok(Self {
            shared: Arc::new(Shared {
                token: CachePadded::new(AtomicU64::new(FIRST_TOKEN)),
                seen,
                names: SpinLock::new(vec![None; maximum_readers]),
                orphans: SpinLock::new(Vec::new()),
            }),
        })
    }

    /// Registers a reader, online: from now on writers wait for its reports. `name` is what
    /// [`synchronize`](Self::synchronize) calls it when it is stuck. A reader for a lane that is yet to start goes there
    /// [offline](Reader::into_offline).
    ///
    /// # Errors
    /// [`RcuError::TooManyReaders`], if the domain has as many as it was made for.
    pub fn reader(&self, name: &str) -> Result<Reader, RcuError> {
        let mut names = self.shared.names.lock();
        let maximum = names.len();
        let free = names.iter_mut().enumerate().find(|(_, name)| name.is_none());
        let Some((index, entry)) = free else {
            return Err(RcuError::TooManyReaders { name: name.to_owned(), maximum });
        };
        *entry = Some(name.into());
        drop(names);
        Ok(Registration::new(Arc::clone(&self.shared), index).online())
    }

    /// Whether `reader` is of this domain: what a structure asks before it lets it read. One comparison.
    ///
    /// # Errors
    /// [`ForeignReader`], if it is not.
    #[inline(always)]
    pub fn check(&self, reader: &Reader) -> Result<(), ForeignReader> {
        if Arc::ptr_eq(&self.shared, reader.shared()) { Ok(()) } else { Err(ForeignReader) }
    }

    /// Whether `other` is this domain.
    pub fn is_same(&self, other: &Domain) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Starts a grace period: what this thread unlinked until now is out of every reader's sight once the token
    /// [is over](Self::is_over). Costs each reader one miss at its next report, so take one for many things.
    pub fn start(&self) -> Token {
        Token { number: self.shared.advance(), domain: self.address() }
    }

    /// Whether every reader that was online at [`start`](Self::start) has reported, or has been offline, since. Does not
    /// block. `false` for a token of another domain.
    pub fn is_over(&self, token: Token) -> bool {
        token.domain == self.address() && self.shared.oldest_seen() >= token.number
    }

    /// Takes a token and waits until it is over, but not longer than `timeout`. Spins, then yields its CPU between
    /// looks. The calling thread's own readers must be offline, else it waits for itself.
    ///
    /// # Errors
    /// [`StuckReaders`] with the names of those that have not reported. Nothing that was unlinked may be freed then.
    pub fn synchronize(&self, timeout: Duration) -> Result<(), StuckReaders> {
        let token = self.shared.advance();
        self.shared.wait(token, timeout)?;
        self.shared.drop_orphans();
        Ok(())
    }

    fn address(&self) -> usize {
        Arc::as_ptr(&self.shared).addr()
    }
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Domain").field("maximum_readers", &self.shared.seen.len()).finish_non_exhaustive()
    }
}

impl Shared {
    /// Takes the next token.
    pub(super) fn advance(&self) -> u64 {
        // R1: release, pairs with A1 in the reader's report. A read-modify-write, not a store, so that a reader that
        // sees a later writer's token has this one's unlinking too (a release sequence goes on through it).
        self.token.fetch_add(1, Ordering::Release) + 1
    }

    /// The oldest token that a reader is at; all up to it are over. `u64::MAX` if nobody is online.
    ///
    /// This holds for tokens that the caller took, or was given by who took them: it is their unlinking that comes
    /// before F2.
    pub(super) fn oldest_seen(&self) -> u64 {
        // F2: sequentially consistent, pairs with F1 in the reader's return. The caller's unlinking is before it and
        // the looks at the readers after it; without it a reader could be found offline that has just come back and
        // found what was unlinked.
        fence(Ordering::SeqCst);
        let mut oldest = u64::MAX;
        for seen in &self.seen {
            // A2: acquire, pairs with R2, R3 and R4. Without it what a reader read before could be read after the
            // memory has a new owner.
            let seen = seen.load(Ordering::Acquire);
            if seen != OFFLINE {
                oldest = oldest.min(seen);
            }
        }
        oldest
    }

    /// Waits until `token` is over.
    pub(super) fn wait(&self, token: u64, timeout: Duration) -> Result<(), StuckReaders> {
        let start = Instant::now();
        let mut backoff = Backoff::default();
        while self.oldest_seen() < token {
            let waited = start.elapsed();
            if waited >= timeout {
                let readers = self.stuck(token);
                // None, if the last of them has reported in between: then this looks again.
                if !readers.is_empty() {
                    return Err(StuckReaders { readers, waited });
                }
            }
            backoff.wait();
        }
        Ok(())
    }

    /// The names of the readers that have not come to `token`.
    fn stuck(&self, token: u64) -> Vec<String> {
        let names = self.names.lock();
        let readers = self.seen.iter().zip(names.iter()).filter(|(seen, _)| {
            // Relaxed: nothing is freed on the strength of this.
            let seen = seen.load(Ordering::Relaxed);
            seen != OFFLINE && seen < token
        });
        readers.map(|(_, name)| name.as_deref().unwrap_or("a reader that just left").to_owned()).collect()
    }

    /// Takes `items`, that were unlinked before now, to drop them when no reader can see them any more.
    pub(super) fn adopt(&self, items: Box<dyn Send>) {
        let token = self.advance();
        self.orphans.lock().push(Orphans { token, items });
    }

    /// Drops the orphans that are safe.
    pub(super) fn drop_orphans(&self) {
        // Locked before looking: who left them unlinked them before, and that has to come before F2.
        let mut orphans = self.orphans.lock();
        if orphans.is_empty() {
            return;
        }
        let over = self.oldest_seen();
        let safe: Vec<_> = orphans.extract_if(.., |orphans| orphans.token <= over).map(|o| o.items).collect();
        drop(orphans);
        // Not under the lock: what they do when dropped is not known here.
        drop(safe);
    }
}
