//! A pool as a source of the registry of counters.

use warmlane_counters::{Description, Entry, Labels, Registry, Role, Source};

use crate::pool::Pool;

const fn buffers(name: &'static str, help: &'static str, role: Role) -> Description {
    Description { set: "pool", name, unit: "buffers", help, role }
}

const SIZE: Description = buffers("buffers", "Buffers that the pool was made with.", Role::Gauge);
const TAKEN: Description = buffers("taken", "Buffers taken since the pool was made.", Role::Note);
const FREED: Description = buffers("freed", "Buffers freed since the pool was made.", Role::Note);
const OUTSTANDING: Description = buffers("outstanding", "Buffers that packets hold.", Role::Gauge);
const AVAILABLE: Description =
    buffers("available", "Buffers neither in a packet nor held in reserve by a lane.", Role::Gauge);
const LOWEST: Description = buffers("lowest", "The fewest buffers that were seen available.", Role::Gauge);
const REFUSED: Description = Description {
    set: "pool",
    name: "refused",
    unit: "packets",
    help: "Packets that somebody wanted and the pool did not have.",
    role: Role::Note,
};

impl Pool {
    /// Shows what the pool counts, under the label `pool`.
    pub fn register(&self, registry: &Registry) {
        registry.add(Labels::new().with("pool", self.name()), self.clone());
    }
}

/// A registry that has a handle keeps the pool's memory mapped.
impl Source for Pool {
    fn read(&self, each: &mut dyn FnMut(Entry)) {
        let (ledger, occupancy) = (self.ledger(), self.occupancy());
        for (description, value) in [
            (SIZE, ledger.buffers.into()),
            (TAKEN, ledger.taken),
            (FREED, ledger.freed),
            (OUTSTANDING, ledger.outstanding()),
            (AVAILABLE, occupancy.available.into()),
            (LOWEST, occupancy.lowest.into()),
            (REFUSED, occupancy.refused),
        ] {
            each(Entry::of(description, value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PoolConfig;

    #[test]
    fn a_pool_shows_what_its_ledger_says() {
        let pool =
            Pool::new(&PoolConfig { buffers: 8, stride: Some(2_304), ..PoolConfig::default() }).unwrap();
        let mut held: Vec<_> = (0..9).map_while(|_| pool.take()).collect();
        held.truncate(3);
        let mut seen = Vec::new();
        pool.read(&mut |entry| seen.push((entry.description.name, entry.value)));
        assert_eq!(seen[..4], [("buffers", 8), ("taken", 8), ("freed", 5), ("outstanding", 3)]);
        assert_eq!(seen[6], ("refused", 1));
    }
}
