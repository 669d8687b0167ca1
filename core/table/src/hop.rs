//! The number a lookup answers with

use std::fmt::{self, Debug, Formatter};

/// Which next hop a route leads to: a small number that its user gives a meaning, or no route at all
///
/// Users number their next hops from zero without large gaps, as indices of an array.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct NextHopId(u32);

impl NextHopId {
    /// No route. Its [index](Self::index) is beyond that of every next hop.
    pub const NONE: Self = Self(0xffff);

    /// The largest number a next hop may have. The one after it is for tables' own use.
    pub const MAXIMUM: u32 = Self::NONE.0 - 2;

    /// The next hop with this number, or `None` above [`NextHopId::MAXIMUM`]
    pub const fn new(number: u32) -> Option<Self> {
        if number <= Self::MAXIMUM { Some(Self(number)) } else { None }
    }

    /// As tables store it: 16 bits, NONE among them
    pub(crate) const fn from_stored(stored: u16) -> Self {
        Self(stored as u32)
    }

    /// What no next hop is stored as: tables may give it a meaning
    pub(crate) const UNUSED: u16 = Self::MAXIMUM as u16 + 1;

    /// As tables store it
    pub(crate) const fn stored(self) -> u16 {
        self.0 as u16
    }

    /// Where the next hop stands in its user's array. For [`NextHopId::NONE`] that is an index which no array
    /// of next hops reaches, so `hops.get(id.index())` answers both questions at once.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Whether this is [`NextHopId::NONE`]
    pub const fn is_none(self) -> bool {
        self.0 == Self::NONE.0
    }

    /// Whether this is a next hop
    pub const fn is_some(self) -> bool {
        !self.is_none()
    }
}

impl Default for NextHopId {
    fn default() -> Self {
        Self::NONE
    }
}

impl Debug for NextHopId {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        if self.is_none() { formatter.write_str("NONE") } else { write!(formatter, "NextHopId({})", self.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_end_below_none() {
        assert_eq!(NextHopId::default(), NextHopId::NONE);
        assert_eq!(NextHopId::new(NextHopId::MAXIMUM).map(NextHopId::is_some), Some(true));
        assert_eq!(NextHopId::new(NextHopId::MAXIMUM + 1), None);
        assert_eq!(NextHopId::new(7).map(NextHopId::index), Some(7));
        assert!(NextHopId::NONE.index() > NextHopId::MAXIMUM as usize);
        assert!(u32::from(NextHopId::UNUSED) > NextHopId::MAXIMUM);
        assert_ne!(NextHopId::UNUSED, NextHopId::NONE.stored());
    }
}
