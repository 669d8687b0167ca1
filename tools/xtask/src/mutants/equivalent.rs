//! Mutants that no test can notice, since they do the same as the code, or as much as anybody is promised, and why.

/// A change that makes no difference. Line numbers are left out: they change with every commit.
pub(super) struct Equivalent {
    pub(super) file: &'static str,
    /// What becomes what, such as `replace > with >=`.
    pub(super) change: &'static str,
    /// Where, as `cargo-mutants` says it: `Packet::truncate`.
    pub(super) function: &'static str,
    pub(super) reason: &'static str,
}

impl Equivalent {
    /// Whether the mutant of this name is the one.
    pub(super) fn is(&self, name: &str) -> bool {
        // `FILE:LINE:COLUMN: CHANGE in FUNCTION`, or `FILE:LINE:COLUMN: replace FUNCTION with VALUE`.
        let Some((place, change)) = name.split_once(": ") else { return false };
        let whole = if self.change.contains(self.function) {
            self.change.to_owned()
        } else {
            format!("{} in {}", self.change, self.function)
        };
        place.split(':').next() == Some(self.file) && change == whole
    }
}

pub(super) const EQUIVALENT: &[Equivalent] = &[Equivalent {
    file: "core/mem/src/chain.rs",
    change: "replace >= with >",
    function: "Packet::truncate",
    reason: "to cut a packet to the length that it has leaves it as it is, on a longer way",
}];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mutant_is_known_by_file_change_and_function() {
        let known = |change, function| Equivalent { file: "a/src/b.rs", change, function, reason: "" };
        let operator = known("replace > with >=", "B::c");
        assert!(operator.is("a/src/b.rs:10:4: replace > with >= in B::c"));
        assert!(!operator.is("a/src/b.rs:10:4: replace > with >= in B::cut"));
        assert!(!operator.is("a/src/c.rs:10:4: replace > with >= in B::c"));
        assert!(!operator.is("a/src/b.rs:10:4: replace > with == in B::c"));
        let value = known("replace B::c -> bool with true", "B::c");
        assert!(value.is("a/src/b.rs:9:1: replace B::c -> bool with true"));
        assert!(!value.is("a/src/b.rs:9:1: replace B::c -> bool with false"));
    }
}
