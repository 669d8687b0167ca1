//! The generator as a user of the library sees it.

#![forbid(unsafe_code)]

mod common;
mod config;
mod frames;
mod oracle;
mod trials;
