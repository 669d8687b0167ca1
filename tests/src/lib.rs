//! What the system tests share.

#![forbid(unsafe_code)]

mod command;
mod lab;

pub use command::{LONG, SHORT, assert_refused, forward};
pub use lab::{Driver, Lab, PROGRAMS};
