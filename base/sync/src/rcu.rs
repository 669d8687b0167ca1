//! Quiescent-state RCU: readers pay nothing to read, writers wait until nobody can still be reading.
//!
//! A writer takes something out of sight (unlinks it), and must not free it before every reader that may have seen it
//! is done. Readers say so by *quiescent* reports: between two of its bursts a lane refers to nothing, and says that
//! with one load, and one store to a line of its own if a writer asked (McKenney and Slingwine, "Read-Copy Update:
//! Using Execution History to Solve Concurrency Problems", PDCS 1998; the variant with counters in user space is in
//! Desnoyers et al., "User-Level Implementations of Read-Copy Update", IEEE TPDS 23(2), 2012, section 5.1).
//!
//! - A [`Domain`] is a set of readers and the writers that wait for them.
//! - A [`Reader`] is a lane's registration. What is read borrows it, and a report needs it mutably, so that nothing
//!   read before a report can be used after it: the compiler checks what DPDK leaves to the programmer.
//! - A [`Token`] is a point in time: [`Domain::start`] takes one, [`Domain::is_over`] says whether all readers have
//!   reported since, [`Domain::synchronize`] waits for that, and names the readers it waited for in vain.
//! - [`Retired`] is the bounded queue of what was unlinked; it returns what is safe to free or to use again.
//! - [`Protected`] is the simplest structure on top: one value that is read as a whole and replaced as a whole.
//!
//! ```
//! use warmlane_sync::rcu::{Domain, Protected, Retired};
//!
//! let domain = Domain::new(4)?;
//! let mut replaced = Retired::new(&domain, 16)?;
//! let routes = Protected::new(&domain, vec!["10.0.0.0/8"]);
//!
//! let mut reader = domain.reader("lane 0")?;
//! let burst = routes.read(&reader)?;
//! routes.replace(vec!["192.0.2.0/24"], &mut replaced)?;
//! assert_eq!(burst[0], "10.0.0.0/8"); // The burst goes on with what it began with,
//! assert_eq!(replaced.reclaim().count(), 0); // and that stays.
//!
//! reader.quiescent(); // From here on the compiler refuses `burst`,
//! assert_eq!(replaced.reclaim().count(), 1); // so the old routes can go.
//! assert_eq!(routes.read(&reader)?[0], "192.0.2.0/24");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What was read cannot outlive a report:
//!
//! ```compile_fail,E0502
//! # use warmlane_sync::rcu::{Domain, Protected};
//! # let domain = Domain::new(1).unwrap();
//! # let value = Protected::new(&domain, 1);
//! let mut reader = domain.reader("lane 0").unwrap();
//! let read = value.read(&reader).unwrap();
//! reader.quiescent();
//! assert_eq!(*read, 1);
//! ```
//!
//! Nor can an offline reader read, or a reader be on two threads:
//!
//! ```compile_fail,E0502
//! # use warmlane_sync::rcu::{Domain, Protected};
//! # let domain = Domain::new(1).unwrap();
//! # let value = Protected::new(&domain, 1);
//! let mut reader = domain.reader("lane 0").unwrap();
//! reader.offline(|| *value.read(&reader).unwrap());
//! ```
//!
//! ```compile_fail,E0277
//! # use warmlane_sync::rcu::Domain;
//! let reader = Domain::new(1).unwrap().reader("lane 0").unwrap();
//! std::thread::scope(|scope| {
//!     scope.spawn(|| reader.name());
//! });
//! ```
//!
//! # The edges
//! | edge | from | to | without it |
//! |---|---|---|---|
//! | update | R1, the writer's new token | A1, the reader's look at it | a reader reports a token, and then still finds what was unlinked before it |
//! | report | R2, the reader's report | A2, the writer's look at it | memory is reused while a read from before the report is still to come |
//! | leave | R3, going offline | A2 | the same, for the reads before going offline |
//! | return | R4, coming online | A2 | the same, if the writer sees the reader only after its return |
//! | meet | F1, after coming online | F2, before the writer looks | the writer finds the reader offline, and the reader what was unlinked: each looks before the other's store |
//!
//! "Meet" is the one case where acquire and release are not enough (each side stores, then loads what the other
//! stores): two sequentially consistent fences, one of which a reader meets only when it comes online.

mod domain;
mod protected;
mod reader;
mod retired;

pub use self::domain::{Domain, MAXIMUM_READERS, Token};
pub use self::protected::{Protected, ReplaceError, Replaced};
pub use self::reader::{OfflineReader, Reader};
pub use self::retired::{Full, Reclaim, Retired};

use std::time::Duration;

/// Why a domain, a reader or a queue could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RcuError {
    /// A domain for nobody, or for too many.
    #[error("an RCU domain cannot have {readers} readers; use 1 to {MAXIMUM_READERS}")]
    Readers {
        /// Readers asked for.
        readers: usize,
    },
    /// As many readers as the domain was made for.
    #[error(
        "no space for reader '{name}': the RCU domain was made for {maximum} readers and has as many; \
         make it for more or drop one"
    )]
    TooManyReaders {
        /// Who wanted to join.
        name: String,
        /// Readers that the domain was made for.
        maximum: usize,
    },
    /// A queue for nothing.
    #[error("a queue of retired items cannot have capacity 0; use 1 or more")]
    NoCapacity,
    /// The memory for a queue's items or a domain's readers could not be had.
    #[error("no memory for {count} entries of {bytes} bytes; use fewer")]
    OutOfMemory {
        /// Entries asked for.
        count: usize,
        /// Size of one.
        bytes: usize,
    },
}

/// A reader was used on data of another domain, whose writers don't wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the reader belongs to another RCU domain than the data; use one from the domain that the data was made in"
)]
pub struct ForeignReader;

/// Readers did not report in time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no quiescent report within {waited:?} from {}; a lane reports once a burst and goes offline before it blocks",
    .readers.join(", ")
)]
pub struct StuckReaders {
    /// Their names, in the order in which they registered.
    pub readers: Vec<String>,
    /// How long the writer waited.
    pub waited: Duration,
}
