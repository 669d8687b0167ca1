//! What the longest match costs, with the full tables of the Internet.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::bench::Bench;
use crate::error::LabError;
use crate::measure::Measure;
use crate::partner::Partner;
use crate::random::Xorshift;
use crate::routes::{Family, Locality, random_hop};
use crate::setting::Lanes;
use crate::setting::Setting;
use crate::table_inputs::evenly;
use warmlane_sync::rcu::{Domain, Reader};
use warmlane_sys::clock;
use warmlane_sys::pages::TableMemory;
use warmlane_sys::simd::{self, Level};
use warmlane_table::{Ipv4Lookup, Ipv4Prefix, Ipv4Table, Ipv6Table, NextHopId, Prefix};

pub(super) const BENCHES: &[Bench] = &[
    Bench {
        name: "lpm4",
        unit: "lookup",
        sentence: "look up IPv4 addresses inside random prefixes of the full table",
        lanes: Lanes::One,
        prepare: |setting| ipv4(setting, Locality::Inside, simd::detected()),
    },
    Bench {
        name: "lpm4-uniform",
        unit: "lookup",
        sentence: "look up random IPv4 addresses in the full table",
        lanes: Lanes::One,
        prepare: |setting| ipv4(setting, Locality::Uniform, simd::detected()),
    },
    Bench {
        name: "lpm4-portable",
        unit: "lookup",
        sentence: "the same as lpm4, by the portable code",
        lanes: Lanes::One,
        prepare: |setting| ipv4(setting, Locality::Inside, Level::Portable),
    },
    Bench {
        name: "lpm4-live",
        unit: "lookup",
        sentence: "the same as lpm4, while another lane makes a million changes a second in the order of a feed",
        lanes: Lanes::Two,
        prepare: |setting| live(setting, Pace::FEED),
    },
    Bench {
        name: "lpm4-live-idle",
        unit: "lookup",
        sentence: "the same as lpm4-live, while the other lane makes no change",
        lanes: Lanes::Two,
        prepare: |setting| live(setting, Pace::IDLE),
    },
    Bench {
        name: "lpm4-change",
        unit: "change",
        sentence: "give 64 neighbouring IPv4 routes other next hops, remove them, insert them again, in the full table",
        lanes: Lanes::One,
        prepare: change,
    },
    Bench {
        name: "lpm6",
        unit: "lookup",
        sentence: "look up IPv6 addresses inside random prefixes of the full table",
        lanes: Lanes::One,
        prepare: |setting| ipv6(setting, Locality::Inside),
    },
    Bench {
        name: "lpm6-uniform",
        unit: "lookup",
        sentence: "look up random IPv6 addresses of 2000::/3 in the full table",
        lanes: Lanes::One,
        prepare: |setting| ipv6(setting, Locality::Uniform),
    },
    Bench {
        name: "random-lines",
        unit: "line",
        sentence: "load random cache lines of 6 MiB that don't depend on each other: what bounds lookups in tables",
        lanes: Lanes::One,
        prepare: random_lines,
    },
];

/// Addresses that are asked for in turn: 16 MiB, so that neither what they lead to stays in the cache nor they do.
pub(crate) const IPV4_ADDRESSES: usize = 1 << 22;
pub(crate) const IPV6_ADDRESSES: usize = 1 << 20;
/// Lookups in a unit of work.
const LOOKUPS: usize = 1 << 12;
/// Answers that are compared before a measurement.
const CHECKED: usize = 256;
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
pub(crate) fn lookups<A: 'static, V: Clone + 'static>(
    addresses: Vec<A>,
    burst: usize,
    empty: V,
    look_up: impl Fn(&[A], &mut [V]) + 'static,
) -> Box<dyn Measure> {
    let mut hops = vec![empty; burst];
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

/// Compares some answers with those of the control side, as peers do with those of a search: a table that holds half of
/// the routes would be fast.
fn answers_are_right<A: Family>(table: &A::Table, addresses: &[A]) -> Result<(), LabError> {
    let some = &addresses[..addresses.len().min(CHECKED)];
    let keys: Vec<_> = some.iter().map(|address| A::key(*address)).collect();
    let mut hops = vec![NextHopId::NONE; keys.len()];
    A::look_up(table, &keys, &mut hops);
    match some.iter().zip(hops).find(|(address, hop)| A::longest_match(table, **address) != *hop) {
        None => Ok(()),
        Some((address, hop)) => Err(LabError::setup(format!("{address:?} leads to {hop:?}"))),
    }
}

/// Those of the full table, or as many of them as the setting says.
fn prefixes<A: Family>(setting: &Setting) -> Result<Vec<Prefix<A>>, LabError> {
    let all = A::full_table().map_err(LabError::setup)?;
    Ok(match setting.entries {
        Some(entries) => evenly(&all, entries),
        None => all,
    })
}

fn ipv4_table(setting: &Setting) -> Result<(Vec<Ipv4Prefix>, Ipv4Table), LabError> {
    let prefixes = prefixes::<u32>(setting)?;
    let mut random = Xorshift(Xorshift::SEED);
    let table = Ipv4Table::from_routes(prefixes.iter().map(|prefix| (*prefix, random_hop(&mut random))))
        .map_err(LabError::setup)?;
    Ok((prefixes, table))
}

fn ipv4(setting: &Setting, locality: Locality, level: Level) -> Result<Box<dyn Measure>, LabError> {
    let (prefixes, mut table) = ipv4_table(setting)?;
    if !table.use_level(level) {
        return Err(LabError::setup(format!("this processor has no {level}")));
    }
    let addresses = locality.addresses(&prefixes, IPV4_ADDRESSES);
    answers_are_right(&table, &addresses)?;
    let look_up = move |addresses: &[u32], hops: &mut [NextHopId]| table.lookup_burst(addresses, hops);
    Ok(lookups(addresses, setting.burst.unwrap_or(64), NextHopId::NONE, look_up))
}

fn ipv6(setting: &Setting, locality: Locality) -> Result<Box<dyn Measure>, LabError> {
    let prefixes = prefixes::<u128>(setting)?;
    let mut random = Xorshift(Xorshift::SEED);
    let table = Ipv6Table::from_routes(prefixes.iter().map(|prefix| (*prefix, random_hop(&mut random))))
        .map_err(LabError::setup)?;
    let addresses = locality.addresses(&prefixes, IPV6_ADDRESSES);
    answers_are_right(&table, &addresses)?;
    let addresses = addresses.into_iter().map(u128::to_be_bytes).collect();
    let look_up = move |addresses: &[[u8; 16]], hops: &mut [NextHopId]| table.lookup_burst(addresses, hops);
    Ok(lookups(addresses, setting.burst.unwrap_or(64), NextHopId::NONE, look_up))
}

/// 64-bit words in a cache line.
const WORDS: usize = 8;
/// As many as lookups of IPv4 read.
const LINES: usize = (6 << 20) / (8 * WORDS);

fn random_lines(_: &Setting) -> Result<Box<dyn Measure>, LabError> {
    let mut lines = TableMemory::<u64>::zeroed(LINES * WORDS).map_err(LabError::setup)?;
    lines.fill(1);
    let mut random = Xorshift(Xorshift::SEED);
    let mut turns = Turns { all: (0..IPV4_ADDRESSES).map(|_| random.below(LINES) as u32).collect(), next: 0 };
    Ok(Box::new(move || {
        let sum: u64 = turns.piece(LOOKUPS).iter().map(|line| lines[*line as usize * WORDS]).sum();
        std::hint::black_box(sum)
    }))
}

fn live(setting: &Setting, pace: Pace) -> Result<Box<dyn Measure>, LabError> {
    let second_cpu = setting.second_cpu()?;
    let (prefixes, table) = ipv4_table(setting)?;
    let addresses = Locality::Inside.addresses(&prefixes, IPV4_ADDRESSES);
    let feed = move || Ok(Feed::new(table, prefixes));
    let live = Live::start(feed, addresses, setting.burst.unwrap_or(64), second_cpu, pace);
    Ok(Box::new(live.map_err(LabError::setup)?))
}

/// The owner of a table, who changes it as a feed that starts anew does: in the order of addresses, all with another next
/// hop, then gone, then back.
pub(crate) struct Feed<A: Family> {
    table: A::Table,
    prefixes: Vec<Prefix<A>>,
    next: usize,
    phase: u32,
    random: Xorshift,
}

impl<A: Family> Feed<A> {
    pub(crate) fn new(table: A::Table, prefixes: Vec<Prefix<A>>) -> Self {
        Self { table, prefixes, next: 0, phase: 0, random: Xorshift(Xorshift::SEED) }
    }

    /// Makes so many changes, or as many as there are routes left before the last; says how many
    pub(crate) fn step(&mut self, count: usize) -> Result<u64, String> {
        let Self { table, prefixes, next, phase, random } = self;
        let batch = &prefixes[*next..(*next + count).min(prefixes.len())];
        let changes = batch.iter().map(|prefix| (*prefix, (*phase != 1).then(|| random_hop(random))));
        A::apply(table, changes).map_err(|error| error.to_string())?;
        let count = batch.len();
        *phase = (*phase + 1) % 3;
        if *phase == 0 {
            *next = if *next + count < prefixes.len() { *next + count } else { 0 };
        }
        Ok(count as u64)
    }
}

fn change(setting: &Setting) -> Result<Box<dyn Measure>, LabError> {
    let (prefixes, table) = ipv4_table(setting)?;
    let batch = setting.burst.unwrap_or(BATCH);
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
    /// Lookups beside fewer changes a second count for nothing.
    pub(crate) least: u64,
}

impl Pace {
    /// More than feeds bring. The lane has to wake up at the start of a round, so it aims higher than it must come.
    pub(crate) const FEED: Self = Self { batch: BATCH, per_second: 1_030_000, least: 1_000_000 };
    /// The lane is there, but changes nothing.
    pub(crate) const IDLE: Self = Self { batch: BATCH, per_second: 0, least: 0 };
}

/// What was done beside lookups, in all rounds together.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    changes: AtomicU64,
    cycles: AtomicU64,
    /// A change could not be made, and none were tried since.
    failed: AtomicBool,
}

impl Tally {
    pub(crate) fn changes_per_second(&self) -> f64 {
        per_second(self.changes.load(Ordering::Relaxed), self.cycles.load(Ordering::Relaxed))
    }
}

fn per_second(count: u64, cycles: u64) -> f64 {
    let second = clock::Clock::calibrated().cycles_per_second() as f64;
    count as f64 * second / cycles.max(1) as f64
}

/// Lookups in a table that the second lane changes.
pub(crate) struct Live {
    lookup: Ipv4Lookup,
    reader: Reader,
    addresses: Turns<u32>,
    hops: Vec<NextHopId>,
    tally: Arc<Tally>,
    /// When the round began, and after how many changes.
    begun: (u64, u64),
    least: u64,
    /// The last complete round had too few changes.
    too_slow: bool,
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
                // A delay is made up for; the time between rounds is not.
                due = if now - due < second / 50 { due } else { now } + pause;
                // A table that is full answers lookups as before, so only this tells.
                if let Ok(count) = feed.step(pace.batch) {
                    made.changes.fetch_add(count, Ordering::Relaxed);
                } else {
                    made.failed.store(true, Ordering::Relaxed);
                    due = u64::MAX;
                }
            })
        })?;
        let lookup = receive.recv().map_err(|error| error.to_string())?;
        let reader = domain.reader("lookups").map_err(|error| error.to_string())?;
        let addresses = Turns { all: addresses, next: 0 };
        let hops = vec![NextHopId::NONE; burst];
        let (begun, too_slow) = ((0, 0), false);
        Ok(Self { lookup, reader, addresses, hops, tally, begun, least: pace.least, too_slow, partner })
    }

    pub(crate) fn tally(&self) -> Arc<Tally> {
        Arc::clone(&self.tally)
    }
}

impl Measure for Live {
    fn work(&mut self) -> u64 {
        // What makes no changes could not slow lookups down, so it must not pass.
        if self.too_slow || self.tally.failed.load(Ordering::Relaxed) {
            return 0;
        }
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
        self.begun = (clock::cycles(), self.tally.changes.load(Ordering::Relaxed));
        self.partner.resume();
    }

    fn end(&mut self) {
        self.partner.pause();
        let (begin, before) = self.begun;
        let cycles = clock::cycles().saturating_sub(begin);
        self.tally.cycles.fetch_add(cycles, Ordering::Relaxed);
        let made = self.tally.changes.load(Ordering::Relaxed) - before;
        self.too_slow = per_second(made, cycles) < self.least as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};
    use warmlane_sys::affinity;

    /// Lookups in each of two rounds beside a lane that changes 1,024 routes at this pace, or tries to where `phase` of the feed
    /// asks for something impossible.
    fn lookups_beside(pace: Pace, phase: u32) -> Option<[u64; 2]> {
        let second_cpu = *affinity::allowed_cpus().unwrap().get(1)?;
        let prefixes = (0..1024_u32).map(|site| Ipv4Prefix::containing(site << 12, 24)).collect();
        let feed = Feed { phase, ..Feed::new(Ipv4Table::new().unwrap(), prefixes) };
        let mut live = Live::start(move || Ok(feed), vec![0; LOOKUPS], 64, second_cpu, pace).unwrap();
        Some([(); 2].map(|()| {
            live.begin();
            let count = live.work();
            // On a busy machine the other lane gets its CPU late.
            let (start, before) = (Instant::now(), live.tally.changes.load(Ordering::Relaxed));
            let waits = || {
                pace.per_second > 0
                    && !live.tally.failed.load(Ordering::Relaxed)
                    && live.tally.changes.load(Ordering::Relaxed) == before
            };
            while start.elapsed() < Duration::from_millis(20)
                || waits() && start.elapsed() < Duration::from_secs(20)
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            live.end();
            count
        }))
    }

    #[test]
    fn lookups_count_only_beside_changes() {
        let all = [LOOKUPS as u64; 2];
        let slow = Pace { per_second: 100_000, least: 1, ..Pace::FEED };
        let Some(counts) = lookups_beside(slow, 0) else { return };
        assert_eq!(counts, all);
        assert_eq!(lookups_beside(Pace { least: 200_000, ..slow }, 0), Some([LOOKUPS as u64, 0]));
        // An empty table has nothing to be removed.
        assert_eq!(lookups_beside(Pace { least: 0, ..slow }, 1).map(|counts| counts[1]), Some(0));
        assert_eq!(lookups_beside(Pace::IDLE, 1), Some(all));
    }
}
