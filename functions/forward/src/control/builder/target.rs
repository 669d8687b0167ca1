//! Which way a route goes, as code says it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::control::config::{OrText, ValueError};
use crate::control::next_hop::{Adjacency, NextHop};

/// Which way a route goes: a [`NextHop`], or neighbours by their addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// To this next hop.
    Hop(NextHop),
    /// Through the neighbours with these addresses, in the ratio of the weights.
    Via(Vec<(IpAddr, u16)>),
    /// Through the neighbours with these numbers, in the order in which they were added.
    Neighbours(Vec<(usize, u16)>),
}

impl Target {
    /// How many next hops it may lead to.
    pub(super) fn members(&self) -> usize {
        match self {
            Self::Hop(_) => 1,
            Self::Via(list) => list.len(),
            Self::Neighbours(list) => list.len(),
        }
    }
}

/// What [`RoutesBuilder::route`](super::RoutesBuilder::route) takes: a [`Target`], a next hop, an address, or a list of addresses with or without
/// weights.
pub trait IntoTarget {
    /// The target.
    ///
    /// # Errors
    /// [`ValueError`]: a text is no address.
    fn into_target(self) -> Result<Target, ValueError>;
}

macro_rules! into_target {
    ($($address:ty),*) => {$(
        impl IntoTarget for $address {
            fn into_target(self) -> Result<Target, ValueError> {
                [(self, 1)].into_target()
            }
        }

        impl<const N: usize> IntoTarget for [$address; N] {
            fn into_target(self) -> Result<Target, ValueError> {
                self.map(|address| (address, 1)).into_target()
            }
        }
    )*};
}

into_target!(&str, IpAddr, Ipv4Addr, Ipv6Addr);

impl<A: OrText<IpAddr>, const N: usize> IntoTarget for [(A, u16); N] {
    fn into_target(self) -> Result<Target, ValueError> {
        self.into_iter()
            .map(|(address, weight)| Ok((address.value()?, weight)))
            .collect::<Result<_, _>>()
            .map(Target::Via)
    }
}

impl IntoTarget for NextHop {
    fn into_target(self) -> Result<Target, ValueError> {
        Ok(Target::Hop(self))
    }
}

impl IntoTarget for Adjacency {
    fn into_target(self) -> Result<Target, ValueError> {
        Ok(Target::Hop(NextHop::Forward(self)))
    }
}

impl IntoTarget for Target {
    fn into_target(self) -> Result<Target, ValueError> {
        Ok(self)
    }
}
