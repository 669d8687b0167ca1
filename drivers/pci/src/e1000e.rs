//! Intel's 82574 (e1000e), by its datasheet: "Intel 82574 GbE Controller Family Datasheet", revision 3.4. Sections of that are in parentheses.
//!
//! One queue each way. What it has in common with others is in [`intel`](crate::intel).

mod chip;
mod descriptor;
mod registers;

#[cfg(any(test, fuzzing))]
mod model;
#[cfg(test)]
mod tests;

pub(crate) use chip::E1000e;

/// The 82574L, which QEMU's `e1000e` is, and the 82574IT.
pub(crate) const DEVICES: [u16; 2] = [0x10d3, 0x10f6];
