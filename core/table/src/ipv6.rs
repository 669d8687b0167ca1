//! The IPv6 table

use crate::prefix::{Address, Ipv6Prefix};
use crate::rib::Rib;
use crate::{NextHopId, TableError};

/// IPv6 routes, found by longest match
#[derive(Debug)]
pub struct Ipv6Table {
    rib: Rib<u128>,
}

impl Ipv6Table {
    /// A table without routes
    ///
    /// # Errors
    /// [`TableError::Memory`] when the system gives none.
    pub fn new() -> Result<Self, TableError> {
        Ok(Self { rib: Rib::new() })
    }

    /// A table with all `routes` at once; of two routes with the same prefix the later one stands
    ///
    /// # Errors
    /// [`TableError::NoNextHop`], [`TableError::Memory`].
    pub fn from_routes(
        routes: impl IntoIterator<Item = (Ipv6Prefix, NextHopId)>,
    ) -> Result<Self, TableError> {
        let rib = Rib::from_routes(routes);
        if let Some((prefix, _)) = rib.iter().find(|(_, hop)| hop.is_none()) {
            return Err(TableError::NoNextHop { prefix: u128::either(prefix) });
        }
        Ok(Self { rib })
    }

    /// Adds a route or gives it another next hop; returns the next hop it had before
    ///
    /// # Errors
    /// [`TableError::NoNextHop`], [`TableError::Memory`]; the table is then unchanged.
    pub fn insert(&mut self, prefix: Ipv6Prefix, hop: NextHopId) -> Result<Option<NextHopId>, TableError> {
        if hop.is_none() {
            return Err(TableError::NoNextHop { prefix: u128::either(prefix) });
        }
        Ok(self.rib.insert(prefix, hop))
    }

    /// Takes a route away; returns the next hop it had
    ///
    /// # Errors
    /// [`TableError::NotFound`] when this very prefix has no route, [`TableError::Memory`]; the table is then unchanged.
    pub fn remove(&mut self, prefix: Ipv6Prefix) -> Result<NextHopId, TableError> {
        self.rib.remove(prefix).ok_or(TableError::NotFound { prefix: u128::either(prefix) })
    }

    /// The next hop of the route to exactly this prefix
    pub fn route(&self, prefix: Ipv6Prefix) -> Option<NextHopId> {
        self.rib.get(prefix)
    }

    /// The next hop of the longest route that `address` (host order) lies in
    pub fn lookup(&self, address: u128) -> NextHopId {
        self.rib.longest_match(address).map_or(NextHopId::NONE, |(_, hop)| hop)
    }

    /// Looks up many addresses at once, the way of the data path; `hops[i]` becomes the answer to `addresses[i]`
    ///
    /// Of slices of different lengths, only the shorter length is processed. Addresses are
    /// in network order, as they stand in a packet.
    pub fn lookup_burst(&self, addresses: &[[u8; 16]], hops: &mut [NextHopId]) {
        for (address, hop) in addresses.iter().zip(hops) {
            *hop = self.lookup(u128::from_be_bytes(*address));
        }
    }

    /// x
    pub fn use_kernel(&mut self, kernel: crate::Kernel) -> bool {
        kernel.is_available()
    }
    /// x
    pub fn lookup_bytes(&self) -> usize {
        0
    }
    /// All routes, sorted by address, then length
    pub fn routes(&self) -> impl Iterator<Item = (Ipv6Prefix, NextHopId)> + '_ {
        self.rib.iter()
    }

    /// Number of routes
    pub fn len(&self) -> usize {
        self.rib.len()
    }

    /// Bytes the table takes, control side included (estimated where the standard library does not say)
    pub fn memory_bytes(&self) -> usize {
        self.rib.memory_bytes()
    }

    /// Whether there is no route
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
