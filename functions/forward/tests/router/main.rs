//! A router on the workbench: real frames in, real frames out, rule by rule.

mod bench;
mod config;
mod drops;
mod explain;
mod flows;
mod forwarding;
mod fragments;
mod full_table;
mod interfaces;
mod local;
mod offloads;
mod reference;
mod task;
