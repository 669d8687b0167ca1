//! Captures, read and written.

mod blocks;
mod common;
mod formats;
mod ports;
mod writer;
