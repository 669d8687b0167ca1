//! What is counted: single-writer counters, drops by reason, and the registry that shows them all.
//!
//! [`counters!`] declares a set of counters once, with what each of them means: the set, which one thread writes, and
//! its view, which anyone may keep and read. [`drop_reasons!`] declares why something is dropped, and [`DropCounters`]
//! counts it by reason. A single [`Counter`] is for where a set is too much, and a list of them for counts
//! per backend or per prefix. A [`DurationHistogram`] is for how long things take. A [`Registry`] collects views under [`Labels`] (port, queue, lane, ...), so that reports,
//! control sockets and metrics read one list: any view, or all of one type.
//!
//! Promises: counting is a plain load, add and store at a fixed offset from one pointer, on cache lines that only the
//! writer writes. The types keep it at one writer: it can be neither cloned nor shared. Readers see whole values that
//! never go backwards, a little late; two counters read together may disagree by what happened in between. Counters wrap
//! at 2⁶⁴. Registering and reading cost the writer nothing.
//!
//! Must not: know packets, print, allocate where something is counted.

#![forbid(unsafe_code)]

mod cell;
mod describe;
mod drops;
mod histogram;
mod registry;
mod set;

pub use cell::{Counter, CounterRef, CounterView, GaugeRef, PeakRef};
pub use describe::{Description, Kind, Role};
pub use drops::{DropCounters, DropReason, DropView, MAXIMUM_REASONS, NoDrops, Reason, Severity};
pub use histogram::{DurationHistogram, DurationHistogramView, Times};
pub use registry::{Entry, Labels, Registry, Sample, Source, view_as};

/// What the macros of this crate expand to. Nothing here is for other use.
#[doc(hidden)]
pub mod macros {
    pub use crate::cell::role;
    pub use crate::cell::{Cells, CellsView};
    pub use crate::describe::{kebab, position, role_of_drops, set_name, set_name_length};
    pub use crate::registry::debug;
}
