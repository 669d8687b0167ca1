//! Which CPUs lanes run on.

use crate::error::LaneError;
use warmlane_sys::affinity;
use warmlane_sys::topology::Topology;

/// Chooses a CPU for each of `lanes` lanes: isolated ones first (the kernel keeps other work away from them), and
/// the lowest last, where the kernel's own work tends to run.
///
/// # Errors
/// [`LaneError::TooFewCpus`], if the process may not use that many.
pub fn place(lanes: usize) -> Result<Vec<usize>, LaneError> {
    let mut allowed = affinity::allowed_cpus().unwrap_or_default();
    let isolated: Vec<usize> = Topology::read().map_or_else(
        |_| Vec::new(),
        |topology| topology.cpus.iter().filter(|cpu| cpu.isolated).map(|cpu| cpu.id).collect(),
    );
    allowed.sort_unstable_by_key(|cpu| (!isolated.contains(cpu), std::cmp::Reverse(*cpu)));
    if lanes > allowed.len() {
        return Err(LaneError::TooFewCpus { wanted: lanes, available: allowed.len() });
    }
    allowed.truncate(lanes);
    Ok(allowed)
}

/// The first `lanes` of these CPUs, one for each lane. One that is there several times is shared by as many lanes
/// ([`LaneConfig::shares_cpu`](crate::LaneConfig::shares_cpu)).
///
/// # Errors
/// [`LaneError::TooFewCpus`], if they are fewer than that. Whether the process may use them shows when lanes are started.
pub fn place_on(cpus: &[usize], lanes: usize) -> Result<Vec<usize>, LaneError> {
    let chosen = cpus.get(..lanes).ok_or(LaneError::TooFewCpus { wanted: lanes, available: cpus.len() })?;
    Ok(chosen.to_vec())
}

/// How many of these lanes, given by their CPUs, share the fullest CPU; 1 if each has its own.
pub fn most_on_one_cpu(cpus: &[usize]) -> usize {
    cpus.iter().map(|cpu| cpus.iter().filter(|other| *other == cpu).count()).max().unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_cpu_per_lane_and_no_more() {
        assert_eq!(place(1).map(|cpus| cpus.len()).ok(), Some(1));
        let error = place(100_000).map_err(|error| error.to_string()).expect_err("no machine has that many");
        assert!(error.contains("100000 lanes"), "{error}");
        assert_eq!(place_on(&[3, 1, 2], 2).ok(), Some(vec![3, 1]));
        assert_eq!(place_on(&[3, 3], 2).ok(), Some(vec![3, 3]));
        assert_eq!([&[][..], &[1, 2], &[3, 1, 3]].map(most_on_one_cpu), [1, 1, 2]);
        assert!(matches!(place_on(&[3], 2), Err(LaneError::TooFewCpus { wanted: 2, available: 1 })));
    }
}
