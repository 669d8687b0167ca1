//! What is decided before packets flow: configuration, tables, next hops.

pub mod config;
pub mod full_table;
pub mod groups;
mod next_hop;
mod routes;

pub use config::Config;
pub(crate) use next_hop::{ALWAYS_TOO_LARGE, Rewrite};
pub use next_hop::{Adjacency, NextHop};
pub(crate) use routes::Admission;
pub use routes::{RouterPort, Routes, RoutesBuilder, RoutesError};
