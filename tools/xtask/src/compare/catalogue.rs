//! What we promise to do better than others, subject by subject.

mod copy;
mod exact;
mod forward;
mod generate;
mod locks;
mod lpm;
mod pool;
mod rcu;
mod rings;
mod router;

use anyhow::Context;

use super::setting::{Setting, Sides};

/// Something that we promise to do better than a peer.
pub(crate) struct Comparison {
    /// Its name on the command line, most often that of the bench that is our side.
    pub(crate) name: &'static str,
    /// What both sides count, such as "cycles/packet"; fewer are better.
    pub(crate) unit: &'static str,
    /// The ratio that we promise to the best of the peers.
    pub(crate) promise: f64,
    /// What physics allows at best, in words.
    pub(crate) bound: &'static str,
    pub(crate) lanes: Lanes,
    /// Builds what is needed and says how to start it.
    pub(crate) prepare: fn(&Setting) -> anyhow::Result<Sides>,
}

/// How many CPUs each side keeps busy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Lanes {
    One,
    /// One, to which a program on another CPU sends.
    Fed,
    /// Two, between which so many cache lines must move for each unit, however it is done.
    Two {
        lines: f64,
    },
}

const SUBJECTS: &[&[Comparison]] = &[
    forward::COMPARISONS,
    generate::COMPARISONS,
    pool::COMPARISONS,
    rings::COMPARISONS,
    locks::COMPARISONS,
    rcu::COMPARISONS,
    lpm::COMPARISONS,
    exact::COMPARISONS,
    copy::COMPARISONS,
    router::COMPARISONS,
];

/// All comparisons.
pub(crate) fn all() -> impl Iterator<Item = &'static Comparison> {
    SUBJECTS.iter().copied().flatten()
}

/// The comparison called `name`.
pub(crate) fn find(name: &str) -> anyhow::Result<&'static Comparison> {
    let known = || all().map(|comparison| comparison.name).collect::<Vec<_>>().join(", ");
    all()
        .find(|comparison| comparison.name == name)
        .with_context(|| format!("there is no comparison '{name}': known are {}", known()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_names_are_told_what_is_known() {
        let error = find("warp-drive").err().unwrap().to_string();
        assert!(error.starts_with("there is no comparison 'warp-drive': known are l3-forward"), "{error}");
        assert!(find("l3-forward").is_ok());
    }

    #[test]
    fn names_are_unique_and_units_start_with_cycles() {
        let mut names: Vec<_> = all().map(|comparison| comparison.name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
        for comparison in all() {
            assert!(comparison.unit.starts_with("cycles/"), "{}", comparison.name);
        }
    }
}
