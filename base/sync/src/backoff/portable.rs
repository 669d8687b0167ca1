//! CPUs that can only pause.

use super::Watched;

/// Never: then come the yields.
pub(super) const AFTER: u32 = super::SPINS;
/// None.
pub(super) const TIMES: u32 = 1;

/// Can't.
pub(super) fn sleep<W: Watched>(_: &W, _: W::Value) -> bool {
    false
}
