//! Longest-prefix match, of both families.

use super::{MEBIBYTE, Memory, Operation, Row};
use crate::benches::lpm::{Feed, Live, Pace, lookups};
use crate::error::LabError;
use crate::measure::Measure;
use crate::plot::{Axis, Figure, Marks, Series};
use crate::random::Xorshift;
use crate::routes::{Family, Locality, random_hop};
use crate::setting::{Lanes, Setting};
use crate::statistics::median;
use crate::table_inputs::evenly;
use crate::verdict::Answer;
use std::fmt::Write as _;
use std::rc::Rc;
use warmlane_sys::clock;
use warmlane_table::{NextHopId, Prefix};

/// How much is measured.
pub(super) struct Sizes {
    /// Routes; more than there are stands for all.
    pub(super) routes: &'static [usize],
    /// Different addresses that are asked for, IPv4 and IPv6.
    pub(super) addresses: [usize; 2],
}

impl Sizes {
    /// Addresses fill 16 MiB, so that tables have to share the caches with packets as they do in a router.
    pub(super) const FULL: Self =
        Self { routes: &[1_000, 10_000, 100_000, usize::MAX], addresses: [1 << 22, 1 << 20] };
}

const BURST: usize = 64;
const BURSTS: [usize; 4] = [8, 32, 64, 256];
/// Changes at once.
const BATCHES: [usize; 2] = [1, 64];
/// Steps of a feed in a piece of work.
const STEPS: usize = 12;
/// How often a table is made of all its routes at most.
const MOST_LOADS: usize = 9;
/// That of a feed, or as near as the lane comes: what it makes is said.
const BESIDE: Pace = Pace { least: 0, ..Pace::FEED };
/// Beside lookups.
const PACES: [(Pace, Order); 5] = [
    (Pace::IDLE, Order::Feed),
    (BESIDE, Order::Feed),
    (Pace { batch: 1, ..BESIDE }, Order::Feed),
    (Pace { batch: 1, ..BESIDE }, Order::Scattered),
    (Pace { per_second: u64::MAX, ..BESIDE }, Order::Feed),
];
const FEED: &str = "feed";

/// In which order routes are changed.
#[derive(Clone, Copy, PartialEq)]
enum Order {
    /// That of the addresses.
    Feed,
    /// None.
    Scattered,
}

pub(super) fn rows(
    setting: &Setting,
    sizes: &Sizes,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<Row>, LabError> {
    let [ipv4_addresses, ipv6_addresses] = sizes.addresses;
    let mut rows = of_family::<u32>(setting, sizes.routes, ipv4_addresses, progress)?;
    rows.extend(of_family::<u128>(setting, sizes.routes, ipv6_addresses, progress)?);
    if let Some(cpu) = setting.second_cpu {
        progress("IPv4, lookups beside changes");
        rows.extend(beside_changes(setting, cpu, sizes)?);
    }
    Ok(rows)
}

fn table<A: Family>(prefixes: &[Prefix<A>]) -> Result<A::Table, LabError> {
    let mut random = Xorshift(Xorshift::SEED);
    A::table(prefixes.iter().map(|prefix| (*prefix, random_hop(&mut random)))).map_err(LabError::setup)
}

fn of_family<A: Family>(
    setting: &Setting,
    sizes: &[usize],
    addresses: usize,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<Row>, LabError> {
    let all = A::full_table().map_err(LabError::setup)?;
    let mut rows = Vec::new();
    let row = |operation, entries, order, burst, cycles, memory| Row {
        table: A::NAME,
        operation,
        entries,
        order,
        burst,
        cycles,
        memory,
    };
    let variant = |table: &Rc<A::Table>, prefixes: &[Prefix<A>], locality: Locality, burst| {
        let keys = locality.addresses(prefixes, addresses).into_iter().map(A::key).collect();
        let table = Rc::clone(table);
        lookups(keys, burst, NextHopId::NONE, move |keys: &[A::Key], hops: &mut [NextHopId]| {
            A::look_up(&table, keys, hops);
        })
    };
    for &size in sizes {
        let prefixes = evenly(&all, size);
        let entries = prefixes.len();
        progress(&format!("{}, {entries} routes", A::NAME));
        let table = Rc::new(table(&prefixes)?);
        let (lookup_bytes, all_bytes) = A::bytes(&table);
        let memory = Some(Memory { lookup_bytes, all_bytes });
        let mut variants = Locality::ALL.map(|locality| variant(&table, &prefixes, locality, BURST));
        let medians = setting.take_turns(Lanes::One, &mut variants)?.medians;
        for (locality, cycles) in Locality::ALL.into_iter().zip(medians) {
            rows.push(row(Operation::Lookup, entries, locality.name(), BURST, cycles, memory));
        }
    }
    let prefixes = evenly(&all, sizes.iter().copied().max().unwrap_or_default());
    let entries = prefixes.len();
    progress(&format!("{}, loads", A::NAME));
    let (cycles, memory) = load(setting, &prefixes)?;
    rows.push(row(Operation::Load, entries, "sorted", entries, cycles, Some(memory)));
    progress(&format!("{}, bursts", A::NAME));
    let shared = Rc::new(table(&prefixes)?);
    let mut variants = BURSTS.map(|burst| variant(&shared, &prefixes, Locality::Inside, burst));
    for (burst, cycles) in BURSTS.into_iter().zip(setting.take_turns(Lanes::One, &mut variants)?.medians) {
        rows.push(row(Operation::Lookup, entries, Locality::Inside.name(), burst, cycles, None));
    }
    progress(&format!("{}, changes", A::NAME));
    let mut variants = Vec::new();
    for batch in BATCHES {
        let mut feed = Feed::<A>::new(table(&prefixes)?, prefixes.clone());
        // Memory that runs out ends the count, and so shows.
        let step = move || (0..STEPS).map(|_| feed.step(batch).unwrap_or(0)).sum();
        variants.push(Box::new(step) as Box<dyn Measure>);
    }
    for (batch, cycles) in BATCHES.into_iter().zip(setting.take_turns(Lanes::One, &mut variants)?.medians) {
        rows.push(row(Operation::Change, entries, FEED, batch, cycles, None));
    }
    Ok(rows)
}

/// Cycles for each route to make the table of all of them, the middle of so many rounds, and what it takes.
fn load<A: Family>(setting: &Setting, prefixes: &[Prefix<A>]) -> Result<(f64, Memory), LabError> {
    let (mut cycles, mut memory) = (Vec::new(), Memory { lookup_bytes: 0, all_bytes: 0 });
    for _ in 0..setting.rounds.clamp(1, MOST_LOADS) {
        let begin = clock::cycles_ordered();
        let table = table(prefixes)?;
        cycles.push((clock::cycles_ordered() - begin) as f64 / prefixes.len().max(1) as f64);
        (memory.lookup_bytes, memory.all_bytes) = A::bytes(&table);
    }
    Ok((median(&cycles), memory))
}

fn beside_changes(setting: &Setting, cpu: usize, sizes: &Sizes) -> Result<Vec<Row>, LabError> {
    let all = u32::full_table().map_err(LabError::setup)?;
    let prefixes = evenly(&all, sizes.routes.iter().copied().max().unwrap_or_default());
    let addresses = Locality::Inside.addresses(&prefixes, sizes.addresses[0]);
    let (mut variants, mut tallies) = (Vec::new(), Vec::new());
    for (pace, order) in PACES {
        let (feed_table, mut feed_prefixes) = (table(&prefixes)?, prefixes.clone());
        if order == Order::Scattered {
            let mut random = Xorshift(Xorshift::SEED);
            // Fisher and Yates.
            (1..feed_prefixes.len()).rev().for_each(|last| feed_prefixes.swap(last, random.below(last + 1)));
        }
        let feed = move || Ok(Feed::new(feed_table, feed_prefixes));
        let live = Live::start(feed, addresses.clone(), BURST, cpu, pace).map_err(LabError::setup)?;
        tallies.push(live.tally());
        variants.push(Box::new(live) as Box<dyn Measure>);
    }
    let medians = setting.take_turns(Lanes::Two, &mut variants)?.medians;
    let rows = PACES.into_iter().zip(tallies).zip(medians).map(|(((pace, order), tally), cycles)| Row {
        table: u32::NAME,
        operation: Operation::LookupBeside {
            changes: tally.changes_per_second(),
            batch: pace.batch,
            scattered: order == Order::Scattered,
        },
        entries: prefixes.len(),
        order: Locality::Inside.name(),
        burst: BURST,
        cycles,
        memory: None,
    });
    Ok(rows.collect())
}

/// Rows about the size of a family's table: those with what it takes.
fn by_size<'a>(rows: &'a [Row], name: &'a str, locality: Locality) -> impl Iterator<Item = &'a Row> {
    let lookup = |row: &Row| row.operation == Operation::Lookup && row.memory.is_some();
    rows.iter().filter(move |row| row.table == name && row.order == locality.name() && lookup(row))
}

/// How long it took to make the tables of all routes, in seconds, and what they take.
fn loads(rows: &[Row], second: f64) -> (f64, Vec<String>) {
    let loads = || rows.iter().filter(|row| row.operation == Operation::Load);
    let seconds = loads().map(|row| row.cycles * row.entries as f64 / second).sum();
    let takes = |row: &Row| {
        let bytes = row.memory.map_or(f64::NAN, |memory| memory.all_bytes as f64);
        format!("{} {:.1} MiB", row.table, bytes / MEBIBYTE)
    };
    (seconds, loads().map(takes).collect())
}

fn by_burst<'a>(rows: &'a [Row], name: &'a str) -> impl Iterator<Item = &'a Row> {
    rows.iter()
        .filter(move |row| row.table == name && row.operation == Operation::Lookup && row.memory.is_none())
}

fn changes(rows: &[Row]) -> impl Iterator<Item = &Row> {
    rows.iter().filter(|row| row.operation == Operation::Change)
}

/// Of lookups beside changes: how many changes a second, how they come, cycles for a lookup.
fn beside(rows: &[Row]) -> Vec<(f64, String, f64)> {
    let beside = |row: &Row| match row.operation {
        Operation::LookupBeside { changes, batch, scattered } => {
            let order = if scattered { ", scattered" } else { "" };
            Some((changes, format!("by {batch}{order}"), row.cycles))
        }
        Operation::Lookup | Operation::Change | Operation::Load => None,
    };
    rows.iter().filter_map(beside).collect()
}

const FAMILIES: [&str; 2] = [u32::NAME, u128::NAME];

pub(super) fn figures(rows: &[Row], second: f64) -> Vec<Figure> {
    let mut figures = Vec::new();
    for name in FAMILIES {
        let series = Locality::ALL.map(|locality| Series {
            name: locality.name().to_owned(),
            points: by_size(rows, name, locality).map(|row| (row.entries as f64, row.cycles)).collect(),
        });
        figures.push(Figure {
            title: format!("{name} lookups, bursts of {BURST}"),
            x: Axis::logarithmic("routes"),
            y: Axis::linear("cycles per lookup"),
            marks: Marks::Lines(series.into()),
        });
    }
    let series = |points: fn(&Row) -> (f64, f64), rows: &mut dyn Iterator<Item = &Row>, name: &str| Series {
        name: name.to_owned(),
        points: rows.map(points).collect(),
    };
    let bursts =
        FAMILIES.map(|name| series(|row| (row.burst as f64, row.cycles), &mut by_burst(rows, name), name));
    figures.push(Figure {
        title: "Lookups inside prefixes of the full tables".to_owned(),
        x: Axis::logarithmic("lookups in a burst"),
        y: Axis::linear("cycles per lookup"),
        marks: Marks::Lines(bursts.into()),
    });
    let size = |row: &Row| {
        let bytes = row.memory.map_or(f64::NAN, |memory| memory.lookup_bytes as f64);
        (row.entries as f64, bytes / MEBIBYTE)
    };
    let memory = FAMILIES.map(|name| series(size, &mut by_size(rows, name, Locality::Inside), name));
    figures.push(Figure {
        title: "What lookups read".to_owned(),
        x: Axis::logarithmic("routes"),
        y: Axis::linear("MiB"),
        marks: Marks::Lines(memory.into()),
    });
    let name = |row: &Row| format!("{}, {} at once", row.table, row.burst);
    figures.push(Figure {
        title: "Changes of the full tables, one lane".to_owned(),
        x: Axis::linear("table and changes at once"),
        y: Axis::linear("million changes per second"),
        marks: Marks::Bars {
            groups: changes(rows).map(name).collect(),
            series: vec![(
                "changes".to_owned(),
                changes(rows).map(|row| second / row.cycles / 1e6).collect(),
            )],
        },
    });
    let beside = beside(rows);
    if !beside.is_empty() {
        figures.push(Figure {
            title: "IPv4 lookups while another lane changes the table".to_owned(),
            x: Axis::linear("changes by the other lane"),
            y: Axis::linear("cycles per lookup"),
            marks: Marks::Bars {
                groups: beside
                    .iter()
                    .map(|(changes, order, _)| format!("{:.2} M/s {order}", changes / 1e6))
                    .collect(),
                series: vec![("lookups".to_owned(), beside.iter().map(|(.., cycles)| *cycles).collect())],
            },
        });
    }
    figures
}

/// What a feed's pace costs lookups: the first of [`PACES`] is idle, the second one a feed.
pub(super) fn answers(rows: &[Row]) -> [Answer; 1] {
    [match beside(rows)[..] {
        [(_, _, alone), (_, _, feed), ..] => ((feed / alone - 1.0) * 100.0).into(),
        _ => Answer::none("there is no second CPU for a lane that changes the table"),
    }]
}

pub(super) fn conclusion(rows: &[Row], second: f64) -> String {
    let mut text = format!("Inside prefixes, in bursts of {BURST},");
    for name in FAMILIES {
        let mut sizes = by_size(rows, name, Locality::Inside);
        let Some((least, most)) = sizes.next().and_then(|least| Some((least, sizes.last()?))) else {
            continue;
        };
        let memory = most.memory.map_or(f64::NAN, |memory| memory.lookup_bytes as f64 / MEBIBYTE);
        // Writing to a string can't fail.
        let _ = write!(
            text,
            " an {name} lookup among {} routes takes {:.1} cycles, among {} {:.1} of {memory:.1} MiB;",
            least.entries, least.cycles, most.entries, most.cycles
        );
    }
    for row in changes(rows) {
        let rate = second / row.cycles / 1e6;
        let _ = write!(text, " {} changes {} at once: {rate:.2} million a second;", row.table, row.burst);
    }
    text.pop();
    match beside(rows)[..] {
        [(_, _, alone), ref others @ ..] => {
            text.push_str(". Beside an IPv4 lookup lane another one makes");
            for (changes, order, cycles) in others {
                let _ = write!(
                    text,
                    " {:.2} million changes a second {order}, and lookups take {:+.1} %;",
                    changes / 1e6,
                    (cycles / alone - 1.0) * 100.0
                );
            }
            text.pop();
        }
        [] => text
            .push_str(". What changes cost a lane that looks up was not measured for want of a second CPU"),
    }
    let (seconds, takes) = loads(rows, second);
    let _ = write!(
        text,
        ". Both tables are made of all their routes in {seconds:.2} s and take, with their control side: {}",
        takes.join(", ")
    );
    text.push_str(
        ". The claim has no figure to set beside these. Readers take no lock: each reports once a burst, and beyond that pays \
         only for lines of the table that the writer has just changed and for the memory's time that it takes. Exact match, \
         from a thousand to sixteen million flows, is an experiment of its own: exact-match.",
    );
    text
}
