//! What the tables of both families offer alike.
//!
//! Written once as a macro and not as a trait, which callers would have to import.

/// What becomes of the removal of a route that isn't there
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Absent {
    Refused,
    Ignored,
}

/// Methods of a table that has `from_routes`, `apply_all`, `view`, `len` and a field `level`.
macro_rules! table_methods {
    (
        $table:ident of $prefix:ident, looked up by $address:ty, seen as $view:literal,
        takes $bytes:literal, insert takes $(#[doc = $time:literal])+
    ) => {
        impl $table {
            #[doc = concat!("A table without routes; takes ", $bytes)]
            ///
            /// # Errors
            /// [`TableError::Memory`] when the system gives none.
            pub fn new() -> Result<Self, TableError> {
                Self::from_routes([])
            }

            /// Adds a route or gives it another next hop; returns the next hop it had before
            ///
            $(#[doc = $time])+
            ///
            /// # Errors
            /// [`TableError::NoNextHop`], [`TableError::Memory`], [`TableError::Full`]; the table is then unchanged.
            pub fn insert(&mut self, prefix: $prefix, hop: NextHopId) -> Result<Option<NextHopId>, TableError> {
                self.apply_all([(prefix, Some(hop))], Absent::Refused)
            }

            /// Takes a route away; returns the next hop it had
            ///
            /// # Errors
            /// [`TableError::NotFound`] when this very prefix has no route, [`TableError::Memory`], [`TableError::Full`]; the
            /// table is then unchanged.
            pub fn remove(&mut self, prefix: $prefix) -> Result<NextHopId, TableError> {
                // What is not there is refused.
                self.apply_all([(prefix, None)], Absent::Refused).map(Option::unwrap_or_default)
            }

            /// Makes several changes, each a prefix and its new next hop, or `None` to remove its route; all of them or, with
            /// an error, none. Of those with the same prefix each sees what the one before left. Costs less than one by one
            /// where they are near each other.
            ///
            /// Readers see each address's change by itself, not all at once.
            ///
            /// # Errors
            /// [`TableError::NoNextHop`], [`TableError::NotFound`], [`TableError::Memory`], [`TableError::Full`]; the table is
            /// then unchanged.
            pub fn apply(
                &mut self,
                changes: impl IntoIterator<Item = ($prefix, Option<NextHopId>)>,
            ) -> Result<(), TableError> {
                self.apply_all(changes, Absent::Refused).map(drop)
            }

            /// The same, but routes to be removed needn't be there.
            ///
            /// # Errors
            /// Those of [`apply`](Self::apply) without [`TableError::NotFound`].
            pub fn set_all(
                &mut self,
                changes: impl IntoIterator<Item = ($prefix, Option<NextHopId>)>,
            ) -> Result<(), TableError> {
                self.apply_all(changes, Absent::Ignored).map(drop)
            }

            #[doc = concat!("As [`", $view, "::lookup`]")]
            pub fn lookup(&self, address: $address) -> NextHopId {
                self.view().lookup(address)
            }

            #[doc = concat!("As [`", $view, "::lookup_burst`]")]
            #[inline]
            pub fn lookup_burst(&self, addresses: &[$address], hops: &mut [NextHopId]) {
                self.view().lookup_burst(addresses, hops);
            }

            /// Chooses the instructions of [`lookup_burst`](Self::lookup_burst), to measure or to test; returns false and
            /// changes nothing when this machine has not got them. A new table takes [`simd::detected`]. Handles keep what
            /// they have.
            pub fn use_level(&mut self, level: Level) -> bool {
                let available = Level::available().contains(&level);
                if available {
                    self.level = level;
                }
                available
            }

            /// Whether there is no route
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }
        }
    };
}

pub(crate) use table_methods;
