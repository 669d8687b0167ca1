//! Lanes and what runs on them.

mod lanes;
mod offloads;
mod pipelines;
mod sleep;
