//! What was dropped, and why.

use std::any::TypeId;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use warmlane_sync::padded::CachePadded;

use crate::cell::{self, OneThread};
use crate::describe::{Description, Role};
use crate::registry::{Entry, Source};

/// How much a drop should worry the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Rightly dropped: policy, or a sender that is wrong.
    Notice,
    /// Something in the network is misconfigured or misbehaves.
    Warning,
    /// This machine lost what it should have carried: too little of something.
    Loss,
}

/// A reason to drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropReason {
    /// Short and stable, in lower case with hyphens: it is part of machine-readable output.
    pub name: &'static str,
    /// How much it should worry.
    pub severity: Severity,
    /// One sentence for people.
    pub sentence: &'static str,
}

/// An enum of drop reasons, as [`drop_reasons!`](crate::drop_reasons) declares them.
pub trait Reason: Copy + Send + Sync + 'static {
    /// All reasons, in the order of their index: at most [`MAXIMUM_REASONS`].
    const ALL: &'static [DropReason];

    /// Where the reason is in `ALL`.
    fn index(self) -> usize;
}

/// How many reasons one enum can have.
pub const MAXIMUM_REASONS: usize = 64;

/// For what never drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoDrops {}

impl Reason for NoDrops {
    const ALL: &'static [DropReason] = &[];

    fn index(self) -> usize {
        match self {}
    }
}

/// Declares an enum of drop reasons, each with its name and [`Severity`]; the doc comment is also its sentence for people.
///
/// ```
/// use warmlane_counters::{DropCounters, drop_reasons};
///
/// drop_reasons! {
///     /// Why the example drops.
///     pub enum Reason {
///         /// The frame is shorter than an Ethernet header.
///         Runt: "runt", Warning;
///     }
/// }
///
/// let drops = DropCounters::new();
/// drops.count(Reason::Runt, 3);
/// assert_eq!(drops.view().total(), 3);
/// let (reason, _) = drops.view().iter().next().unwrap();
/// assert_eq!(reason.sentence, "The frame is shorter than an Ethernet header.");
/// ```
#[macro_export]
macro_rules! drop_reasons {
    ($(#[$outer:meta])* $visibility:vis enum $enum:ident {
        $($(#[doc = $sentence:literal])+ $variant:ident: $name:literal, $severity:ident;)+
    }) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        $visibility enum $enum {
            $($(#[doc = $sentence])+ $variant,)+
        }

        impl $crate::Reason for $enum {
            const ALL: &'static [$crate::DropReason] = &[
                $($crate::DropReason {
                    name: $name,
                    severity: $crate::Severity::$severity,
                    sentence: concat!($($sentence),+).trim_ascii(),
                },)+
            ];

            #[inline(always)]
            fn index(self) -> usize {
                self as usize
            }
        }
    };
}

/// A power of two, so that an index is kept inside by a mask.
type Cells = Arc<CachePadded<[AtomicU64; MAXIMUM_REASONS]>>;

/// Drops counted by reason. One thread counts; it can move to another, but not be shared or cloned. Anyone reads by a
/// [`DropView`].
pub struct DropCounters<R> {
    cells: Cells,
    _one_thread: OneThread,
    _reason: PhantomData<fn(R)>,
}

impl<R: Reason> DropCounters<R> {
    /// All zero.
    pub fn new() -> Self {
        const { assert!(R::ALL.len() <= MAXIMUM_REASONS, "too many drop reasons in one enum") };
        let cells = Arc::new(CachePadded::new([const { AtomicU64::new(0) }; MAXIMUM_REASONS]));
        Self { cells, _one_thread: PhantomData, _reason: PhantomData }
    }

    /// Counts `packets` that were dropped for this reason.
    #[inline(always)]
    pub fn count(&self, reason: R, packets: u64) {
        cell::add(&self.cells[reason.index() % MAXIMUM_REASONS], packets);
    }

    /// How many were dropped for this reason.
    pub fn get(&self, reason: R) -> u64 {
        cell::get(&self.cells[reason.index() % MAXIMUM_REASONS])
    }

    /// The drops, to read.
    pub fn view(&self) -> DropView {
        DropView {
            parts: vec![Part { reasons: R::ALL, of: TypeId::of::<R>(), cells: Arc::clone(&self.cells) }],
        }
    }
}

impl<R: Reason> Default for DropCounters<R> {
    fn default() -> Self {
        Self::new()
    }
}

impl<R: Reason> fmt::Debug for DropCounters<R> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.view(), formatter)
    }
}

/// Reads drops from any thread, whatever their reasons: of one [`DropCounters`], or of several that follow each other
/// on the way of the same packets.
#[derive(Clone, Default)]
pub struct DropView {
    parts: Vec<Part>,
}

#[derive(Clone)]
struct Part {
    reasons: &'static [DropReason],
    of: TypeId,
    cells: Cells,
}

impl Part {
    fn counts(&self) -> impl Iterator<Item = (&'static DropReason, u64)> {
        self.reasons.iter().zip(self.cells.iter().map(cell::get))
    }
}

impl DropView {
    /// Every reason with its count, also those with zero.
    pub fn iter(&self) -> impl Iterator<Item = (&'static DropReason, u64)> {
        self.parts.iter().flat_map(Part::counts)
    }

    /// How many were dropped for this reason; zero if it is none of theirs.
    pub fn get<R: Reason>(&self, reason: R) -> u64 {
        let of_its_type = self.parts.iter().filter(|part| part.of == TypeId::of::<R>());
        of_its_type.filter_map(|part| part.cells.get(reason.index())).map(cell::get).sum()
    }

    /// All drops together.
    pub fn total(&self) -> u64 {
        self.iter().map(|(_, count)| count).sum()
    }

    /// Reads every reason's count as an entry of this role in what contains them.
    #[doc(hidden)]
    pub fn read_as(&self, set: &'static str, role: Role, each: &mut dyn FnMut(Entry)) {
        let description =
            Description { set, name: "drops", unit: "packets", help: "Drops, by reason.", role };
        for (reason, value) in self.iter() {
            each(Entry { description, reason: Some(reason), value });
        }
    }

    /// These drops and those of another place on the same way.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        self.parts.extend_from_slice(&other.parts);
        self
    }
}

impl Source for DropView {
    fn read(&self, each: &mut dyn FnMut(Entry)) {
        self.read_as("", Role::Note, each);
    }
}

impl fmt::Debug for DropView {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seen = self.iter().filter(|&(_, count)| count > 0);
        formatter.debug_map().entries(seen.map(|(reason, count)| (reason.name, count))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    drop_reasons! {
        /// Two reasons.
        enum Two {
            /// The first.
            First: "first", Notice;
            /// The second.
            Second: "second", Loss;
        }
    }

    drop_reasons! {
        /// Another, of the same name and index.
        enum Other {
            /// Another first.
            First: "first", Warning;
        }
    }

    #[test]
    fn counts_by_reason() {
        let drops = DropCounters::new();
        drops.count(Two::First, 2);
        drops.count(Two::Second, 3);
        let view = drops.view();
        drops.count(Two::Second, 1);
        let seen: Vec<_> = view.iter().map(|(reason, count)| (reason.name, reason.severity, count)).collect();
        assert_eq!(seen, [("first", Severity::Notice, 2), ("second", Severity::Loss, 4)]);
        assert_eq!((view.total(), view.get(Two::First), drops.get(Two::Second)), (6, 2, 4));
        assert_eq!(format!("{drops:?}"), r#"{"first": 2, "second": 4}"#);
    }

    #[test]
    fn views_of_several_places_keep_them_apart() {
        let (outer, inner) = (DropCounters::new(), DropCounters::new());
        let both = outer.view().and(&inner.view());
        outer.count(Two::First, 2);
        inner.count(Other::First, 5);
        assert_eq!((both.get(Two::First), both.get(Other::First), both.total()), (2, 5, 7));
        assert_eq!(both.iter().count(), 3);
        assert_eq!(outer.view().get(Other::First), 0);
    }

    #[test]
    fn nothing_is_dropped_for_no_reason() {
        let view = DropCounters::<NoDrops>::new().view();
        assert_eq!((view.total(), view.iter().count()), (0, 0));
    }
}
