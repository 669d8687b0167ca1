//! What it costs to change routes to hosts near each other, as neighbours on a link are.

use crate::bench::Bench;
use crate::error::LabError;
use crate::measure::Measure;
use crate::random::Xorshift;
use crate::routes::{Family, random_hop};
use crate::setting::Lanes;
use warmlane_sys::clock;
use warmlane_table::Prefix;

pub(super) const BENCHES: &[Bench] = &[
    Bench {
        name: "lpm4-neighbours",
        unit: "change",
        sentence: "remove or insert one of 8,192 IPv4 routes to hosts side by side",
        lanes: Lanes::One,
        prepare: |_| change(SUBNET_HOSTS, side_by_side_ipv4),
    },
    Bench {
        name: "lpm6-neighbours",
        unit: "change",
        sentence: "remove or insert one of 8,192 IPv6 routes to hosts anywhere in a /64",
        lanes: Lanes::One,
        prepare: |_| change(SUBNET_HOSTS, anywhere),
    },
    Bench {
        name: "lpm6-neighbours-adjacent",
        unit: "change",
        sentence: "remove or insert one of 8,192 IPv6 routes to hosts side by side",
        lanes: Lanes::One,
        prepare: |_| change(SUBNET_HOSTS, side_by_side_ipv6),
    },
    Bench {
        name: "lpm4-fill",
        unit: "insertion",
        sentence: "fill an empty table with 8,192 IPv4 routes to hosts side by side, one by one; emptying it is not counted",
        lanes: Lanes::One,
        prepare: |_| fill(SUBNET_HOSTS, side_by_side_ipv4),
    },
    Bench {
        name: "lpm6-fill",
        unit: "insertion",
        sentence: "the same with 8,192 IPv6 routes to hosts anywhere in a /64",
        lanes: Lanes::One,
        prepare: |_| fill(SUBNET_HOSTS, anywhere),
    },
    Bench {
        name: "lpm6-fill-adjacent",
        unit: "insertion",
        sentence: "the same with 65,534 IPv6 routes to hosts side by side",
        lanes: Lanes::One,
        prepare: |_| fill(65_534, side_by_side_ipv6),
    },
];

/// Hosts of a /19, of which the IPv4 table keeps the routes together.
const SUBNET_HOSTS: usize = 8192;
/// Changes in a unit of work.
const BATCH: usize = 64;
/// A /64 of the prefix for documentation (RFC 3849).
const SITE: u128 = 0x2001_0db8 << 96;

fn side_by_side_ipv4(number: usize, _: &mut Xorshift) -> u32 {
    0x0a01_2000 | number as u32
}

fn side_by_side_ipv6(number: usize, _: &mut Xorshift) -> u128 {
    SITE | number as u128
}

fn anywhere(_: usize, random: &mut Xorshift) -> u128 {
    SITE | u128::from(random.next())
}

/// Routes to so many hosts, in the order of their numbers.
fn routes<A: Family>(
    count: usize,
    random: &mut Xorshift,
    host: impl Fn(usize, &mut Xorshift) -> A,
) -> Vec<Prefix<A>> {
    (0..count).map(|number| Prefix::containing(host(number, random), A::BITS)).collect()
}

/// Changes of a table of routes to hosts, made one by one, of which each is removed and inserted again.
fn change<A: Family>(
    count: usize,
    host: impl Fn(usize, &mut Xorshift) -> A,
) -> Result<Box<dyn Measure>, LabError> {
    let mut random = Xorshift(Xorshift::SEED);
    let hosts = routes(count, &mut random, host);
    let mut table = A::table([]).map_err(LabError::setup)?;
    for host in &hosts {
        A::apply(&mut table, [(*host, Some(random_hop(&mut random)))]).map_err(LabError::setup)?;
    }
    Ok(Box::new(move || {
        let mut count = 0;
        for _ in 0..BATCH {
            let host = hosts[random.below(hosts.len())];
            for hop in [None, Some(random_hop(&mut random))] {
                // Memory that runs out ends the count, and so shows.
                count += u64::from(A::apply(&mut table, [(host, hop)]).is_ok());
            }
        }
        count
    }))
}

/// Insertions alone, and those that make the table grow among them.
struct Fill<A: Family> {
    table: A::Table,
    hosts: Vec<Prefix<A>>,
    next: usize,
    random: Xorshift,
    /// Cycles of the insertions in this round.
    cycles: u64,
}

fn fill<A: Family>(
    count: usize,
    host: impl Fn(usize, &mut Xorshift) -> A,
) -> Result<Box<dyn Measure>, LabError> {
    let mut random = Xorshift(Xorshift::SEED);
    let hosts = routes(count, &mut random, host);
    let table = A::table([]).map_err(LabError::setup)?;
    Ok(Box::new(Fill { table, hosts, next: 0, random, cycles: 0 }))
}

impl<A: Family> Measure for Fill<A> {
    fn work(&mut self) -> u64 {
        let Self { table, hosts, next, random, cycles } = self;
        if *next == hosts.len() {
            let Ok(empty) = A::table([]) else { return 0 };
            (*table, *next) = (empty, 0);
        }
        let some = &hosts[*next..hosts.len().min(*next + BATCH)];
        let begin = clock::cycles_ordered();
        let inserted =
            some.iter().filter(|host| A::apply(table, [(**host, Some(random_hop(random)))]).is_ok()).count();
        *cycles += clock::cycles_ordered().saturating_sub(begin);
        *next += some.len();
        inserted as u64
    }

    fn begin(&mut self) {
        self.cycles = 0;
    }

    fn counted_cycles(&self) -> Option<u64> {
        Some(self.cycles)
    }
}
