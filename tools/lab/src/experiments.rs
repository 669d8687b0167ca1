//! The experiments, each in a file of its own.

use crate::experiment::Experiment;

pub(crate) const ALL: &[&Experiment] = &[];
