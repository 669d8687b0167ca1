//! What the longest match costs, with the full tables of the Internet.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::bench::{Bench, BenchError, Measure, Options};
use crate::partner::Partner;
use crate::routes::{Family, Locality, Random};
use warmlane_sync::rcu::{Domain, Reader};
use warmlane_sys::clock;
use warmlane_sys::simd::{self, Level};
use warmlane_table::{Ipv4Lookup, Ipv4Prefix, Ipv4Table, Ipv6Table, NextHopId, Prefix};

pub(super) const BENCHES: &[Bench] = &[
    Bench {
        name: "lpm4",
        unit: "lookup",
        sentence: "look up IPv4 addresses inside random prefixes of the full table",
        prepare: |options| ipv4("lpm4", options, Locality::Inside, simd::detected()),
    },
    Bench {
        name: "lpm4-uniform",
        unit: "lookup",
        sentence: "look up random IPv4 addresses in the full table",
        prepare: |options| ipv4("lpm4-uniform", options, Locality::Uniform, simd::detected()),
    },
    Bench {
        name: "lpm4-portable",
        unit: "lookup",
        sentence: "the same as lpm4, by the portable code",
        prepare: |options| ipv4("lpm4-portable", options, Locality::Inside, Level::Portable),
    },
    Bench {
        name: "lpm4-live",
        unit: "lookup",
        sentence: "the same as lpm4, while another lane makes a million changes a second in the order of a feed",
        prepare: live,
    },
    Bench {
        name: "lpm4-change",
        unit: "change",
        sentence: "give 64 neighbouring IPv4 routes other next hops, remove them, insert them again, in the full table",
        prepare: change,
    },
    Bench {
        name: "lpm6",
        unit: "lookup",
        sentence: "look up IPv6 addresses inside random prefixes of the full table",
        prepare: |options| ipv6("lpm6", options, Locality::Inside),
    },
    Bench {
        name: "lpm6-uniform",
        unit: "lookup",
        sentence: "look up random IPv6 addresses of 2000::/3 in the full table",
        prepare: |options| ipv6("lpm6-uniform", options, Locality::Uniform),
    },
];

/// Addresses that are asked for in turn: 16 MiB, so that neither what they lead to stays in the cache nor they do.
const IPV4_ADDRESSES: usize = 1 << 22;
const IPV6_ADDRESSES: usize = 1 << 20;
/// Lookups in a unit of work.
const LOOKUPS: usize = 1 << 12;
/// Routes that are changed together.
const BATCH: usize = 64;

/// A list that is gone through piece by piece, over and over.
struct Turns<T> {
    all: Vec<T>,
    next: usize,
}

impl<T> Turns<T> {
    fn piece(&mut self, size: usize) -> &[T] {
        if self.next + size > self.all.len() {
            self.next = 0;
        }
        let start = self.next;
        self.next += size;
        &self.all[start..(start + size).min(self.all.len())]
    }
}

/// Bursts of lookups, as a measurement.
pub(crate) fn lookups<A: 'static>(
    addresses: Vec<A>,
    burst: usize,
    look_up: impl Fn(&[A], &mut [NextHopId]) + 'static,
) -> Box<dyn Measure> {
    let mut hops = vec![NextHopId::NONE; burst];
    let mut turns = Turns { all: addresses, next: 0 };
    Box::new(move || {
        let mut count = 0;
        for burst in turns.piece(LOOKUPS).chunks(burst) {
            look_up(burst, &mut hops);
            std::hint::black_box(&hops);
            count += burst.len() as u64;
        }
        count
    })
}

fn ipv4_table(name: &'static str) -> Result<(Vec<Ipv4Prefix>, Ipv4Table), BenchError> {
    let prefixes = u32::full_table().map_err(|error| BenchError::setup(name, error))?;
    let mut random = Random(Random::SEED);
    let table = Ipv4Table::from_routes(prefixes.iter().map(|prefix| (*prefix, random.hop())))
        .map_err(|error| BenchError::setup(name, error))?;
    Ok((prefixes, table))
}

fn ipv4(
    name: &'static str,
    options: &Options,
    locality: Locality,
    level: Level,
) -> Result<Box<dyn Measure>, BenchError> {
    let (prefixes, mut table) = ipv4_table(name)?;
    if !table.use_level(level) {
        return Err(BenchError::setup(name, format!("this processor has no {level}")));
    }
    let addresses = locality.addresses(&prefixes, IPV4_ADDRESSES);
    let look_up = move |addresses: &[u32], hops: &mut [NextHopId]| table.lookup_burst(addresses, hops);
    Ok(lookups(addresses, options.burst.unwrap_or(64), look_up))
}

fn ipv6(name: &'static str, options: &Options, locality: Locality) -> Result<Box<dyn Measure>, BenchError> {
    let prefixes = u128::full_table().map_err(|error| BenchError::setup(name, error))?;
    let mut random = Random(Random::SEED);
    let table = Ipv6Table::from_routes(prefixes.iter().map(|prefix| (*prefix, random.hop())))
        .map_err(|error| BenchError::setup(name, error))?;
    let addresses =
        locality.addresses(&prefixes, IPV6_ADDRESSES).into_iter().map(u128::to_be_bytes).collect();
    let look_up = move |addresses: &[[u8; 16]], hops: &mut [NextHopId]| table.lookup_burst(addresses, hops);
    Ok(lookups(addresses, options.burst.unwrap_or(64), look_up))
}

fn live(options: &Options) -> Result<Box<dyn Measure>, BenchError> {
    let name = "lpm4-live";
    let second_cpu = BenchError::second_cpu(name, options)?;
    let (prefixes, table) = ipv4_table(name)?;
    let addresses = Locality::Inside.addresses(&prefixes, IPV4_ADDRESSES);
    let feed = move || Ok(Feed::new(table, prefixes));
    let live = Live::start(feed, addresses, options.burst.unwrap_or(64), second_cpu, Pace::FEED);
    Ok(Box::new(live.map_err(|reason| BenchError::setup(name, reason))?))
}

/// The owner of a table, who changes it as a feed that starts anew does: in the order of addresses, all with another next
/// hop, then gone, then back.
pub(crate) struct Feed<A: Family> {
    table: A::Table,
    prefixes: Vec<Prefix<A>>,
    next: usize,
    phase: u32,
    random: Random,
}

impl<A: Family> Feed<A> {
    pub(crate) fn new(table: A::Table, prefixes: Vec<Prefix<A>>) -> Self {
        Self { table, prefixes, next: 0, phase: 0, random: Random(Random::SEED) }
    }

    /// Makes so many changes, or as many as there are routes left before the last; says how many
    pub(crate) fn step(&mut self, count: usize) -> Result<u64, String> {
        let Self { table, prefixes, next, phase, random } = self;
        let batch = &prefixes[*next..(*next + count).min(prefixes.len())];
        let changes = batch.iter().map(|prefix| (*prefix, (*phase != 1).then(|| random.hop())));
        A::apply(table, changes).map_err(|error| error.to_string())?;
        let count = batch.len();
        *phase = (*phase + 1) % 3;
        if *phase == 0 {
            *next = if *next + count < prefixes.len() { *next + count } else { 0 };
        }
        Ok(count as u64)
    }
}

fn change(options: &Options) -> Result<Box<dyn Measure>, BenchError> {
    let (prefixes, table) = ipv4_table("lpm4-change")?;
    let batch = options.burst.unwrap_or(BATCH);
    let mut feed = Feed::<u32>::new(table, prefixes);
    // Memory that runs out ends the count, and so shows.
    Ok(Box::new(move || (0..12).map(|_| feed.step(batch).unwrap_or(0)).sum()))
}

/// How fast a table is changed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Routes that are changed together.
    pub(crate) batch: usize,
    /// Changes a second: 0 for none, `u64::MAX` for as many as can be made.
    pub(crate) per_second: u64,
}

impl Pace {
    /// More than feeds bring.
    pub(crate) const FEED: Self = Self { batch: BATCH, per_second: 1_000_000 };
}

/// What was done beside lookups, in all rounds together.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    changes: AtomicU64,
    cycles: AtomicU64,
}

impl Tally {
    pub(crate) fn changes_per_second(&self) -> f64 {
        let cycles = self.cycles.load(Ordering::Relaxed).max(1) as f64;
        let second = clock::Clock::calibrated().cycles_per_second() as f64;
        self.changes.load(Ordering::Relaxed) as f64 * second / cycles
    }
}

/// Lookups in a table that the second lane changes.
pub(crate) struct Live {
    lookup: Ipv4Lookup,
    reader: Reader,
    addresses: Turns<u32>,
    hops: Vec<NextHopId>,
    tally: Arc<Tally>,
    begun: u64,
    partner: Partner,
}

impl Live {
    /// Takes the feed to `second_cpu` and starts it in `begin`.
    pub(crate) fn start(
        feed: impl FnOnce() -> Result<Feed<u32>, String> + Send + 'static,
        addresses: Vec<u32>,
        burst: usize,
        second_cpu: usize,
        pace: Pace,
    ) -> Result<Self, String> {
        let domain = Domain::new(1).map_err(|error| error.to_string())?;
        let (send, receive) = std::sync::mpsc::channel();
        let shared = domain.clone();
        let tally = Arc::new(Tally::default());
        let made = Arc::clone(&tally);
        let partner = Partner::start(second_cpu, move || {
            let mut feed = feed()?;
            let lookup = feed.table.share(&shared).map_err(|error| error.to_string())?;
            send.send(lookup).map_err(|error| error.to_string())?;
            let second = clock::Clock::calibrated().cycles_per_second();
            let pause = (second * pace.batch as u64).checked_div(pace.per_second);
            let mut due = if pause.is_some() { clock::cycles() } else { u64::MAX };
            let pause = pause.unwrap_or_default();
            Ok(move || {
                let now = clock::cycles();
                if now < due {
                    std::hint::spin_loop();
                    return;
                }
                // A short delay is made up for; the time between rounds is not.
                due = if now - due < 100 * pause { due } else { now } + pause;
                // A table that is full answers lookups as before, and says so here.
                made.changes.fetch_add(feed.step(pace.batch).unwrap_or(0), Ordering::Relaxed);
            })
        })?;
        let lookup = receive.recv().map_err(|error| error.to_string())?;
        let reader = domain.reader("lookups").map_err(|error| error.to_string())?;
        let addresses = Turns { all: addresses, next: 0 };
        let hops = vec![NextHopId::NONE; burst];
        Ok(Self { lookup, reader, addresses, hops, tally, begun: 0, partner })
    }

    pub(crate) fn tally(&self) -> Arc<Tally> {
        Arc::clone(&self.tally)
    }
}

impl Measure for Live {
    fn work(&mut self) -> u64 {
        let mut count = 0;
        let size = self.hops.len();
        for burst in self.addresses.piece(LOOKUPS).chunks(size) {
            // The reader was made of the table's own domain.
            let Ok(view) = self.lookup.read(&self.reader) else { return 0 };
            view.lookup_burst(burst, &mut self.hops);
            std::hint::black_box(&self.hops);
            self.reader.quiescent();
            count += burst.len() as u64;
        }
        count
    }

    fn begin(&mut self) {
        self.begun = clock::cycles();
        self.partner.resume();
    }

    fn end(&mut self) {
        self.partner.pause();
        self.tally.cycles.fetch_add(clock::cycles().saturating_sub(self.begun), Ordering::Relaxed);
    }
}
