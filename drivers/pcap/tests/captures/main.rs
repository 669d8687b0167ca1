//! Captures, read and written.

mod common;
mod formats;
mod ports;
mod writer;
