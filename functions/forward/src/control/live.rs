//! Routes that change while lanes forward by them, as a router's do.
//!
//! One writer has the tables and replaces ports and next hops as a whole; each lane reads both through its
//! registration in an RCU domain. A lane first looks addresses up, then asks what the next hops are that it found. So the writer
//! makes a next hop known before a route leads to it, and uses a number again only when no lane can have it from before.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use thiserror::Error;
use warmlane_sync::rcu::{
    Domain, ForeignReader, Protected, RcuError, Reader, ReplaceError, Replaced, Retired, StuckReaders,
};
use warmlane_table::{
    Ipv4Lookup, Ipv4Prefix, Ipv4Table, Ipv6Lookup, Ipv6Prefix, Ipv6Table, NextHopId, TableError,
};

use super::config::IcmpLimits;
use super::hops::{Beside, Hops, RouterPort};
use super::host::Host;
use super::next_hop::NextHop;
use super::routes::Routes;

/// Which of several tables; [`RouterPort::table`] refers to it.
pub type TableNumber = u16;

/// A prefix and its new next hop, or none to remove its route.
pub type TableChange<P> = (P, Option<NextHopId>);

/// Old sets of ports and next hops that may wait for lanes to finish their bursts.
const OLD_SETS: usize = 64;

/// How long a lane may take for a burst.
const TIMEOUT: Duration = Duration::from_secs(5);

static NOTHING: Hops = Hops::nothing();

/// Why live routes could not be made or changed.
#[derive(Debug, Error)]
pub enum LiveError {
    /// No space or no memory for lanes' registrations.
    #[error(transparent)]
    Rcu(#[from] RcuError),
    /// The table has no space or no memory.
    #[error(transparent)]
    Table(#[from] TableError),
    /// A table that was not made.
    #[error("there is no table {table}: this is a defect in Warmlane, please report it")]
    NoTable {
        /// Its number.
        table: TableNumber,
    },
    /// As many tables as can be numbered.
    #[error("there are {count} tables, and there can't be more: use fewer VRFs")]
    TooManyTables {
        /// How many there are.
        count: usize,
    },
    /// As many next hops as a table can number.
    #[error("there are {count} next hops, and tables can't number more: let routes share some")]
    TooManyNextHops {
        /// How many there are.
        count: u32,
    },
    /// A lane hangs.
    #[error(transparent)]
    Stuck(#[from] StuckReaders),
}

/// What lanes read.
struct Shared {
    snapshot: Protected<Snapshot>,
    /// Grows with each change.
    version: AtomicU64,
}

struct Snapshot {
    tables: Vec<(Ipv4Lookup, Ipv6Lookup)>,
    hops: Hops,
}

struct Tables {
    ipv4: Ipv4Table,
    ipv6: Ipv6Table,
    lookups: (Ipv4Lookup, Ipv6Lookup),
}

/// The writer's end. Table 0 is there from the beginning.
pub struct LiveRoutes {
    domain: Domain,
    tables: Vec<Tables>,
    shared: Arc<Shared>,
    replaced: Retired<Replaced<Snapshot>>,
    /// Next hops' numbers from here on were never used.
    fresh: u32,
    free: Vec<NextHopId>,
    freed: Retired<NextHopId>,
    icmp: Option<IcmpLimits>,
    host: Host,
    beside: Option<Beside>,
    hash_seed: u64,
}

impl LiveRoutes {
    /// Empty tables without ports, for up to this many lanes.
    ///
    /// # Errors
    /// [`LiveError::Rcu`], [`LiveError::Table`].
    pub fn new(lanes: usize, hash_seed: u64) -> Result<Self, LiveError> {
        let domain = Domain::new(lanes)?;
        let tables = vec![Tables::new(&domain)?];
        let snapshot = Snapshot { tables: lookups(&tables), hops: Hops::default() };
        let shared = Shared { snapshot: Protected::new(&domain, snapshot), version: AtomicU64::new(0) };
        Ok(Self {
            tables,
            shared: Arc::new(shared),
            replaced: Retired::new(&domain, OLD_SETS)?,
            fresh: 0,
            free: Vec::new(),
            freed: Retired::new(&domain, NextHopId::MAXIMUM as usize + 1)?,
            icmp: None,
            host: Host::default(),
            beside: None,
            hash_seed,
            domain,
        })
    }

    /// A lane's end. It must be polled soon, or be dropped: what it could still refer to isn't used again.
    ///
    /// # Errors
    /// [`LiveError::Rcu`]: more lanes than this was made for.
    pub fn lane(&self, name: &str) -> Result<LaneRoutes, LiveError> {
        let reader = self.domain.reader(name)?;
        Ok(LaneRoutes(Source::Live { reader, shared: Arc::clone(&self.shared) }))
    }

    /// Adds an empty table. Lanes can use it after the next [`set_hops`](Self::set_hops).
    ///
    /// # Errors
    /// [`LiveError::TooManyTables`], [`LiveError::Table`].
    pub fn add_table(&mut self) -> Result<TableNumber, LiveError> {
        let count = self.tables.len();
        let number = TableNumber::try_from(count).map_err(|_| LiveError::TooManyTables { count })?;
        self.tables.push(Tables::new(&self.domain)?);
        Ok(number)
    }

    /// The IPv4 table with this number.
    pub fn ipv4(&self, table: TableNumber) -> Option<&Ipv4Table> {
        self.tables.get(usize::from(table)).map(|tables| &tables.ipv4)
    }

    /// The IPv6 table with this number.
    pub fn ipv6(&self, table: TableNumber) -> Option<&Ipv6Table> {
        self.tables.get(usize::from(table)).map(|tables| &tables.ipv6)
    }

    /// Changes routes: all of them or, with an error, none.
    ///
    /// # Errors
    /// [`LiveError::Table`], [`LiveError::NoTable`].
    pub fn change_ipv4(
        &mut self,
        table: TableNumber,
        changes: impl IntoIterator<Item = TableChange<Ipv4Prefix>>,
    ) -> Result<(), LiveError> {
        self.table(table)?.ipv4.apply(changes)?;
        self.touch();
        Ok(())
    }

    /// As [`change_ipv4`](Self::change_ipv4).
    ///
    /// # Errors
    /// The same.
    pub fn change_ipv6(
        &mut self,
        table: TableNumber,
        changes: impl IntoIterator<Item = TableChange<Ipv6Prefix>>,
    ) -> Result<(), LiveError> {
        self.table(table)?.ipv6.apply(changes)?;
        self.touch();
        Ok(())
    }

    fn table(&mut self, table: TableNumber) -> Result<&mut Tables, LiveError> {
        self.tables.get_mut(usize::from(table)).ok_or(LiveError::NoTable { table })
    }

    /// Lets lanes go on with these ports and next hops.
    ///
    /// # Errors
    /// [`LiveError::Stuck`]: a lane hangs in a burst from long ago; nothing has changed.
    pub fn set_hops(&mut self, ports: Vec<RouterPort>, hops: Vec<NextHop>) -> Result<(), LiveError> {
        self.replaced.reclaim().for_each(drop);
        if self.replaced.is_full() {
            self.replaced.synchronize(TIMEOUT)?;
            self.replaced.reclaim().for_each(drop);
        }
        let hops = Hops::new(ports, hops, self.hash_seed);
        let hops =
            hops.with_icmp_limits(self.icmp).with_host(self.host.clone()).with_beside(self.beside.clone());
        let snapshot = Snapshot { tables: lookups(&self.tables), hops };
        match self.shared.snapshot.replace(snapshot, &mut self.replaced) {
            // The queue is of the same domain, and has space.
            Ok(()) | Err(ReplaceError::Full { .. } | ReplaceError::ForeignQueue { .. }) => {}
        }
        self.touch();
        Ok(())
    }

    /// How many ICMP errors each lane may send, from the next [`set_hops`](Self::set_hops) on; before that, what its forwarder
    /// was made with.
    pub fn set_icmp_limits(&mut self, limits: IcmpLimits) {
        self.icmp = Some(limits);
    }

    /// What the host is like, from the next [`set_hops`](Self::set_hops) on.
    pub fn set_host(&mut self, host: Host) {
        self.host = host;
    }

    /// What stages beside the forwarder go by, from the next [`set_hops`](Self::set_hops) on.
    pub fn set_beside(&mut self, beside: Option<Beside>) {
        self.beside = beside;
    }

    /// A number for a new next hop.
    ///
    /// # Errors
    /// [`LiveError::TooManyNextHops`].
    pub fn take_number(&mut self) -> Result<NextHopId, LiveError> {
        if self.free.is_empty() {
            self.free.extend(self.freed.reclaim());
        }
        if let Some(number) = self.free.pop() {
            return Ok(number);
        }
        let count = self.fresh;
        let number = NextHopId::new(count).ok_or(LiveError::TooManyNextHops { count })?;
        self.fresh += 1;
        Ok(number)
    }

    /// Frees a number that no route and no group leads to any more.
    pub fn free_number(&mut self, number: NextHopId) {
        // There is space for all numbers there are, so each fits once.
        let _ = self.freed.retire(number);
    }

    /// Uses memory of what lanes are done with again. To be called when nothing else is to be done.
    pub fn reclaim(&mut self) {
        self.replaced.reclaim().for_each(drop);
        self.free.extend(self.freed.reclaim());
        for tables in &mut self.tables {
            tables.ipv4.reclaim();
            tables.ipv6.reclaim();
        }
    }

    fn touch(&self) {
        // Only says that looking again may be worth it; the tables order their own changes.
        self.shared.version.fetch_add(1, Ordering::Release);
    }
}

impl std::fmt::Debug for LiveRoutes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LiveRoutes").field("tables", &self.tables.len()).finish_non_exhaustive()
    }
}

impl Tables {
    fn new(domain: &Domain) -> Result<Self, TableError> {
        let (mut ipv4, mut ipv6) = (Ipv4Table::new()?, Ipv6Table::new()?);
        let lookups = (ipv4.share(domain)?, ipv6.share(domain)?);
        Ok(Self { ipv4, ipv6, lookups })
    }
}

fn lookups(tables: &[Tables]) -> Vec<(Ipv4Lookup, Ipv6Lookup)> {
    tables.iter().map(|tables| tables.lookups.clone()).collect()
}

/// What a lane forwards by.
pub struct LaneRoutes(Source);

enum Source {
    /// Routes that don't change.
    Fixed(Arc<Routes>),
    /// Routes that a [`LiveRoutes`] changes.
    Live { reader: Reader, shared: Arc<Shared> },
}

impl LaneRoutes {
    /// The ports and next hops of this moment.
    #[inline]
    pub fn hops(&self) -> &Hops {
        match &self.0 {
            Source::Fixed(routes) => routes.hops(),
            // The reader is of the value's domain: `LiveRoutes::lane` made it so.
            Source::Live { reader, shared } => {
                shared.snapshot.read(reader).map_or(&NOTHING, |snapshot| &snapshot.hops)
            }
        }
    }

    /// Looks IPv4 addresses (in host order) up in a table; in none, if there is no such table.
    #[inline]
    pub fn lookup_ipv4(&self, table: TableNumber, addresses: &[u32], hops: &mut [NextHopId]) {
        match self.view(table, |routes| routes.ipv4().view(), |(ipv4, _), reader| ipv4.read(reader)) {
            Some(view) => view.lookup_burst(addresses, hops),
            None => hops.fill(NextHopId::NONE),
        }
    }

    /// The same for IPv6.
    #[inline]
    pub fn lookup_ipv6(&self, table: TableNumber, addresses: &[[u8; 16]], hops: &mut [NextHopId]) {
        match self.view(table, |routes| routes.ipv6().view(), |(_, ipv6), reader| ipv6.read(reader)) {
            Some(view) => view.lookup_burst(addresses, hops),
            None => hops.fill(NextHopId::NONE),
        }
    }

    /// One family's table as it is now, if there is one of that number. Fixed routes have a single one, whatever its number.
    #[inline(always)]
    fn view<'a, V>(
        &'a self,
        table: TableNumber,
        fixed: impl FnOnce(&'a Routes) -> V,
        live: impl FnOnce(&'a (Ipv4Lookup, Ipv6Lookup), &'a Reader) -> Result<V, ForeignReader>,
    ) -> Option<V> {
        match &self.0 {
            Source::Fixed(routes) => Some(fixed(routes)),
            Source::Live { reader, shared } => {
                let tables = &shared.snapshot.read(reader).ok()?.tables;
                live(tables.get(usize::from(table))?, reader).ok()
            }
        }
    }

    /// The routes, if they don't change.
    pub(crate) fn fixed(&self) -> Option<&Routes> {
        match &self.0 {
            Source::Fixed(routes) => Some(routes),
            Source::Live { .. } => None,
        }
    }

    /// Reports that nothing looked up before is still in use, so that replaced routes can be freed. Call it once a burst.
    #[inline]
    pub fn quiescent(&mut self) {
        if let Source::Live { reader, .. } = &mut self.0 {
            reader.quiescent();
        }
    }

    /// Runs `work`, which may block, while changes of the routes don't wait for this lane.
    pub fn offline<R>(&mut self, work: impl FnOnce() -> R) -> R {
        match &mut self.0 {
            Source::Live { reader, .. } => reader.offline(work),
            Source::Fixed(_) => work(),
        }
    }

    /// Whether the routes may change, so that [`quiescent`](Self::quiescent) has to be called.
    pub const fn can_change(&self) -> bool {
        matches!(self.0, Source::Live { .. })
    }

    /// A number that grows with each change.
    #[inline]
    pub fn version(&self) -> u64 {
        match &self.0 {
            Source::Fixed(_) => 0,
            Source::Live { shared, .. } => shared.version.load(Ordering::Acquire),
        }
    }
}

impl From<Arc<Routes>> for LaneRoutes {
    fn from(routes: Arc<Routes>) -> Self {
        Self(Source::Fixed(routes))
    }
}

impl std::fmt::Debug for LaneRoutes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match &self.0 {
            Source::Fixed(_) => "fixed",
            Source::Live { .. } => "live",
        };
        f.debug_tuple("LaneRoutes").field(&kind).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Adjacency;
    use warmlane_table::Prefix;
    use warmlane_wire::MacAddress;

    fn forward(last: u8) -> NextHop {
        NextHop::Forward(Adjacency {
            destination: MacAddress([2, 0, 0, 0, 0, last]),
            source: MacAddress([2, 0, 0, 0, 1, 0]),
            port: 0,
            mtu: 1500,
            vlan: None,
        })
    }

    fn found(lane: &LaneRoutes, table: TableNumber, address: u32) -> Option<NextHop> {
        let mut hops = [NextHopId::NONE];
        lane.lookup_ipv4(table, &[address], &mut hops);
        lane.hops().next_hop(hops[0]).cloned()
    }

    /// More changes than can wait for a lane to finish its burst.
    #[test]
    fn a_lane_that_sleeps_holds_no_change_up() {
        let mut routes = LiveRoutes::new(1, 0).unwrap();
        let mut lane = routes.lane("lane0").unwrap();
        lane.offline(|| {
            for _ in 0..2 * OLD_SETS {
                routes.set_hops(Vec::new(), vec![forward(1)]).unwrap();
            }
        });
    }

    #[test]
    fn lanes_see_changes_and_tables_are_apart() {
        let mut routes = LiveRoutes::new(1, 0).unwrap();
        let mut lane = routes.lane("lane0").unwrap();
        let (first, second) = (routes.take_number().unwrap(), routes.take_number().unwrap());
        let other = routes.add_table().unwrap();
        routes.set_hops(Vec::new(), vec![forward(1), forward(2)]).unwrap();
        let prefix = Prefix::containing(0x0a00_0000, 8);
        let before = lane.version();
        routes.change_ipv4(0, [(prefix, Some(first))]).unwrap();
        routes.change_ipv4(other, [(prefix, Some(second))]).unwrap();
        assert!(lane.version() > before);
        assert_eq!(found(&lane, 0, 0x0a00_0001), Some(forward(1)));
        assert_eq!(found(&lane, other, 0x0a00_0001), Some(forward(2)));
        assert_eq!(found(&lane, 7, 0x0a00_0001), None);
        routes.change_ipv4(0, [(prefix, None)]).unwrap();
        assert_eq!(found(&lane, 0, 0x0a00_0001), None);
        assert!(matches!(routes.change_ipv4(7, []), Err(LiveError::NoTable { table: 7 })));
        lane.quiescent();
    }

    #[test]
    fn a_number_is_used_again_only_when_no_lane_can_have_it() {
        let mut routes = LiveRoutes::new(1, 0).unwrap();
        let mut lane = routes.lane("lane0").unwrap();
        let first = routes.take_number().unwrap();
        routes.free_number(first);
        let second = routes.take_number().unwrap();
        assert_ne!(first, second);
        lane.quiescent();
        assert_eq!(routes.take_number().unwrap(), first);
    }

    #[test]
    fn old_sets_go_once_the_lane_is_done_with_them() {
        let mut routes = LiveRoutes::new(1, 0).unwrap();
        let lane = routes.lane("lane0").unwrap();
        for _ in 0..OLD_SETS {
            routes.set_hops(Vec::new(), Vec::new()).unwrap();
        }
        drop(lane);
        routes.set_hops(Vec::new(), Vec::new()).unwrap();
        routes.reclaim();
        assert!(routes.replaced.len() <= 1);
    }
}
