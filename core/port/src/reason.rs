//! Why a packet went nowhere.

use warmlane_sync::counter::Counter;

/// How much a drop should worry the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The packet was rightly dropped: policy, or a sender that is wrong.
    Notice,
    /// Something in the network is misconfigured or misbehaves.
    Warning,
    /// This machine lost a packet that it should have carried: too little of something.
    Loss,
}

/// A reason to drop packets, counted in packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropReason {
    /// Short and stable, in lower case with hyphens: it is part of machine-readable output.
    pub name: &'static str,
    /// How much it should worry.
    pub severity: Severity,
    /// One sentence for people.
    pub sentence: &'static str,
}

/// Declares an enum of drop reasons; its `ALL` lists them for [`DropCounters::new`], its `index()` is the place
/// to count at.
///
/// ```
/// use warmlane_port::{DropCounters, drop_reasons};
///
/// drop_reasons! {
///     /// Why the example drops.
///     pub enum Reason {
///         /// The frame is shorter than an Ethernet header.
///         Runt: "runt", Warning, "the frame is shorter than an Ethernet header";
///     }
/// }
///
/// let drops = DropCounters::new(Reason::ALL);
/// drops.count(Reason::Runt.index(), 3);
/// assert_eq!(drops.total(), 3);
/// ```
#[macro_export]
macro_rules! drop_reasons {
    ($(#[$outer:meta])* $visibility:vis enum $enum:ident {
        $($(#[$inner:meta])* $variant:ident: $name:literal, $severity:ident, $sentence:literal;)+
    }) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        $visibility enum $enum {
            $($(#[$inner])* $variant,)+
        }

        impl $enum {
            /// All reasons, in the order of their index.
            $visibility const ALL: &'static [$crate::DropReason] = &[
                $($crate::DropReason {
                    name: $name,
                    severity: $crate::Severity::$severity,
                    sentence: $sentence,
                },)+
            ];

            /// The reason's place in `ALL`.
            $visibility const fn index(self) -> usize {
                self as usize
            }
        }
    };
}

/// Drops counted by reason. One thread counts, any thread reads.
#[derive(Debug)]
pub struct DropCounters {
    reasons: &'static [DropReason],
    counts: Box<[Counter]>,
}

impl DropCounters {
    /// All zero.
    pub fn new(reasons: &'static [DropReason]) -> Self {
        Self { reasons, counts: reasons.iter().map(|_| Counter::default()).collect() }
    }

    /// Adds `packets` to the reason at `index`; an index beyond the table counts for its last reason, so that
    /// nothing is lost silently.
    #[inline]
    pub fn count(&self, index: usize, packets: u64) {
        if let Some(counter) = self.counts.get(index).or(self.counts.last()) {
            counter.add(packets);
        }
    }

    /// The count of the reason at `index`.
    pub fn get(&self, index: usize) -> u64 {
        self.counts.get(index).map_or(0, Counter::get)
    }

    /// Every reason with its count, also those with zero.
    pub fn iter(&self) -> impl Iterator<Item = (&'static DropReason, u64)> {
        self.reasons.iter().zip(self.counts.iter().map(Counter::get))
    }

    /// All drops together.
    pub fn total(&self) -> u64 {
        self.counts.iter().map(Counter::get).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    drop_reasons! {
        /// Two reasons.
        enum Reason {
            /// One.
            First: "first", Notice, "the first";
            /// Two.
            Second: "second", Loss, "the second";
        }
    }

    #[test]
    fn counts_by_reason() {
        let drops = DropCounters::new(Reason::ALL);
        drops.count(Reason::First.index(), 2);
        drops.count(Reason::Second.index(), 3);
        drops.count(99, 1);
        let seen: Vec<_> =
            drops.iter().map(|(reason, count)| (reason.name, reason.severity, count)).collect();
        assert_eq!(seen, [("first", Severity::Notice, 2), ("second", Severity::Loss, 4)]);
        assert_eq!(drops.total(), 6);
        assert_eq!(drops.get(0), 2);
    }
}
