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

pub(super) const BENIGN: &[Benign] = &[];
