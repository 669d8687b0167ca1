//! The XDP program: written, loaded, attached.

mod assembler;
#[cfg(test)]
mod interpreter;
mod kernel;
mod steering;

pub(crate) use kernel::{Attachment, Program, Redirection, Way, is_ours};
pub(crate) use steering::Choice;
pub use steering::{LeftFamilies, Steering};
