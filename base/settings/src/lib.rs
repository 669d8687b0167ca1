//! Settings that files and flags both fill: values that remember where they were written.
//!
//! A crate describes its settings as structs with [`Located`] values. A TOML file fills them by serde, a command line or a
//! program by hand. What is wrong with a value is often known only later, next to others; the [`Fault`] then knows the
//! value's [`Origin`], and [`SettingsError`] names it: a line and column, or a flag.

#![forbid(unsafe_code)]

mod error;
mod located;

pub use error::{Fault, OutOfRange, Position, SettingsError, from_toml};
pub use located::{Located, Origin, from_text, list_from_text, optional_from_text};
