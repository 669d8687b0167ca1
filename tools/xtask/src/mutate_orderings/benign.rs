//! Orderings that can be weakened without a test noticing, and why each stays as it is.

use super::mutant::Mutant;

/// A change that is known to survive.
pub(super) struct Benign {
    pub(super) file: &'static str,
    /// Part of its line, enough to tell it from others of the file.
    pub(super) line: &'static str,
    becomes: &'static str,
    pub(super) reason: &'static str,
}

impl Benign {
    pub(super) fn is(&self, mutant: &Mutant) -> bool {
        self.file == mutant.file && mutant.line.contains(self.line) && mutant.becomes == self.becomes
    }
}

pub(super) const BENIGN: &[Benign] = &[
    Benign {
        file: "index_stack.rs",
        line: "let head = self.head.load(Ordering::Acquire);",
        becomes: "Ordering::Relaxed",
        reason: "of an estimate: with links not yet visible it counts too few, and the walk ends at the bound in any case",
    },
    Benign {
        file: "rcu/protected.rs",
        line: "let old = self.value.swap(",
        becomes: "Ordering::Release",
        reason: "the fence before the writer looks at its readers acquires, too, before the old value is dropped; but a box of \
             it is made here, and that should not exist before what is in it",
    },
];
