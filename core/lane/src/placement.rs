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

/// The first `lanes` of these CPUs, one for each lane.
///
/// # Errors
/// [`LaneError::TooFewCpus`], if they are fewer than that; [`LaneError::SharedCpu`], if one is there twice. Whether the process
/// may use them shows when lanes are started.
pub fn place_on(cpus: &[usize], lanes: usize) -> Result<Vec<usize>, LaneError> {
    let chosen = cpus.get(..lanes).ok_or(LaneError::TooFewCpus { wanted: lanes, available: cpus.len() })?;
    for (number, &cpu) in chosen.iter().enumerate() {
        if chosen[..number].contains(&cpu) {
            return Err(LaneError::SharedCpu { cpu });
        }
    }
    Ok(chosen.to_vec())
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
        assert!(matches!(place_on(&[3, 3], 2), Err(LaneError::SharedCpu { cpu: 3 })));
        assert!(matches!(place_on(&[3], 2), Err(LaneError::TooFewCpus { wanted: 2, available: 1 })));
    }
}
