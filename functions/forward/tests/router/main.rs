//! A router on the workbench: real frames in, real frames out, rule by rule.

mod bench;
mod drops;
mod forwarding;
mod fragments;
mod local;
mod reference;
mod task;
