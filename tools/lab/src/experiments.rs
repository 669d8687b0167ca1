//! The experiments, each in a file of its own.

mod barriers;
mod crowded_rings;
mod zero_copy_ring;

use crate::experiment::Experiment;

pub(crate) const ALL: &[&Experiment] =
    &[&barriers::EXPERIMENT, &crowded_rings::EXPERIMENT, &zero_copy_ring::EXPERIMENT];
