//! What the hardware counts while something is measured: cycles, instructions, misses, traffic of memory.
//!
//! Events of the core are counted for the calling thread, in user space; those of the last-level cache's complex and of the memory
//! controllers for all that use them. What a machine doesn't have or doesn't permit is [`Absent`] with its reason, and no
//! figure: a count of 0 always means that it was counted. Page faults, which the kernel counts, are there on every machine.
//!
//! Measurements happen deep inside experiments, while whoever wants the counts is far outside; so a thread has one
//! `Session` at a time that gathers them.

mod events;
pub(crate) mod traffic;

use crate::agreement::Agreement;
use crate::table::Cell;
use events::{EVENTS, Event};
use perf_event::{CountAndTime, Counter};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::BTreeMap;
use traffic::MemoryTraffic;

/// An event that can't be counted here.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Absent {
    /// What would be counted.
    pub name: String,
    /// Why it isn't.
    pub reason: String,
}

/// Counts of one thing that was measured, for each unit.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Counted {
    /// Which step of the experiment, in its own words; empty for a bench.
    pub step: String,
    /// Which of the variants that took turns, from 1, in the order of the table's columns or rows.
    #[serde(alias = "way")]
    pub variant: usize,
    /// Units that were done.
    pub units: u64,
    /// By event, for each unit. An event that the hardware had no time for is missing.
    pub per_unit: BTreeMap<String, f64>,
}

/// All counts of an experiment or a bench.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Report {
    /// What was counted.
    pub counted: Vec<Counted>,
    /// What could not be.
    pub absent: Vec<Absent>,
    /// What a model of the machine's caches says that would be counted; nothing if it wasn't asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modelled: Vec<Counted>,
    /// Whether that model has variants in the order in which they were measured, if the experiment compares them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agreement: Option<Agreement>,
}

impl Report {
    /// The hardware's events that were counted, in their usual order. Page faults are the kernel's.
    pub fn hardware_events(&self) -> Vec<&'static str> {
        let counted = |name: &&str| self.counted.iter().any(|row| row.per_unit.contains_key(*name));
        let of_hardware = EVENTS.iter().filter(|event| event.hardware).map(|event| event.name);
        of_hardware.chain([traffic::NAME]).filter(counted).collect()
    }

    /// One sentence on what isn't counted; `None` if all is.
    pub fn sentence(&self) -> Option<String> {
        let same = |a: &Absent, b: &Absent| a.reason == b.reason;
        let groups = self.absent.chunk_by(same).map(|group| {
            let names: Vec<&str> = group.iter().map(|absent| absent.name.as_str()).collect();
            format!("{} ({})", names.join(", "), group[0].reason)
        });
        let groups: Vec<String> = groups.collect();
        (!groups.is_empty()).then(|| format!("Not counted on this machine: {}.", groups.join("; ")))
    }
}

/// Rows of text with these events, below a row of heads.
pub fn table(rows: &[Counted], events: &[&str]) -> Vec<Vec<String>> {
    let heads = ["step", "variant"].iter().chain(events).map(|head| (*head).to_owned()).collect();
    let cells = rows.iter().map(|row| {
        let cells = events.iter().map(|event| Cell::from(row.per_unit.get(*event).copied()).to_string());
        [row.step.clone(), row.variant.to_string()].into_iter().chain(cells).collect()
    });
    std::iter::once(heads).chain(cells).collect()
}

/// A counter, and what it said when it was last started.
type Started = (Counter, Option<CountAndTime>);

/// Counters that are open.
struct Open {
    events: Vec<(&'static Event, Vec<Started>)>,
    traffic: Option<MemoryTraffic>,
    absent: Vec<Absent>,
}

impl Open {
    fn new(events: &'static [Event]) -> Self {
        let mut open = Self { events: Vec::new(), traffic: None, absent: Vec::new() };
        for event in events {
            match (event.open)() {
                Ok(counters) => {
                    let counters = counters.into_iter().map(|counter| (counter, None));
                    open.events.push((event, counters.collect()));
                }
                Err(error) => {
                    open.absent.push(Absent { name: event.name.to_owned(), reason: events::reason(&error) });
                }
            }
        }
        open
    }

    /// Counts the traffic of this thread and of those that it starts, too, if that can be had.
    fn watch_traffic(&mut self) {
        match MemoryTraffic::open() {
            Ok(traffic) => self.traffic = Some(traffic),
            Err(reason) => self.absent.push(Absent { name: traffic::NAME.to_owned(), reason }),
        }
    }

    fn start(&mut self) {
        if let Some(traffic) = &mut self.traffic {
            traffic.start();
        }
        for (counter, before) in self.events.iter_mut().flat_map(|(_, counters)| counters) {
            *before = counter.read_count_and_time().ok().filter(|_| counter.enable().is_ok());
        }
    }

    /// What each event came to since `start`, `None` for one that the hardware never had a counter for.
    fn stop(&mut self) -> Vec<(&'static str, Option<f64>)> {
        let sums = self.events.iter_mut().map(|(event, counters)| {
            let counts = counters.iter_mut().map(|(counter, before)| {
                counter.disable().ok()?;
                let (before, after) = (before.take()?, counter.read_count_and_time().ok()?);
                scaled(
                    after.count.saturating_sub(before.count),
                    after.time_enabled.saturating_sub(before.time_enabled),
                    after.time_running.saturating_sub(before.time_running),
                )
            });
            (event.name, counts.sum::<Option<f64>>().map(|sum| sum * event.factor))
        });
        let mut sums: Vec<_> = sums.collect();
        sums.extend(self.traffic.as_mut().map(|traffic| (traffic::NAME, traffic.stop())));
        sums
    }
}

/// A count for the whole time, if the event shared its counter with others (perf_event_open(2), "time_running").
fn scaled(count: u64, enabled: u64, running: u64) -> Option<f64> {
    (running > 0).then(|| count as f64 * (enabled as f64 / running as f64))
}

/// What one thing came to so far.
struct Row {
    step: String,
    variant: usize,
    units: u64,
    /// By event, and of how many units.
    sums: BTreeMap<&'static str, (f64, u64)>,
}

struct Session {
    open: Open,
    step: String,
    variant: usize,
    rows: Vec<Row>,
    modelled: Vec<Counted>,
    agreement: Option<Agreement>,
}

thread_local! {
    static SESSION: RefCell<Option<Session>> = const { RefCell::new(None) };
}

fn with_session(act: impl FnOnce(&mut Session)) {
    SESSION.with_borrow_mut(|session| session.as_mut().map(act));
}

/// Counts all that this thread measures inside `work`.
pub(crate) fn gather<T>(work: impl FnOnce() -> T) -> (T, Report) {
    let mut open = Open::new(EVENTS);
    open.watch_traffic();
    gather_opened(open, work)
}

fn gather_opened<T>(open: Open, work: impl FnOnce() -> T) -> (T, Report) {
    let session = Session {
        open,
        step: String::new(),
        variant: 1,
        rows: Vec::new(),
        modelled: Vec::new(),
        agreement: None,
    };
    let outer = SESSION.replace(Some(session));
    let result = work();
    let report = SESSION.replace(outer).map(Session::report).unwrap_or_default();
    (result, report)
}

/// What is measured inside `work` is not counted.
pub(crate) fn uncounted<T>(work: impl FnOnce() -> T) -> T {
    let session = SESSION.take();
    let result = work();
    SESSION.set(session);
    result
}

/// The step that was told last; empty outside an experiment.
pub(crate) fn current_step() -> String {
    SESSION.with_borrow(|session| session.as_ref().map_or_else(String::new, |session| session.step.clone()))
}

/// What an event came to so far, for each unit, of a variant (from 0) of a step. `None` if it isn't counted.
pub(crate) fn so_far(step: &str, variant: usize, event: &str) -> Option<f64> {
    SESSION.with_borrow(|session| {
        let row = session.as_ref()?.rows.iter().find(|row| row.step == step && row.variant == variant + 1)?;
        row.sums.get(event).filter(|(_, units)| *units > 0).map(|(sum, units)| sum / *units as f64)
    })
}

/// What is measured from now on belongs to this step.
pub(crate) fn step(name: &str) {
    with_session(|session| {
        name.clone_into(&mut session.step);
        session.variant = 1;
    });
}

/// What is measured from now on is this variant, counted from 0.
pub(crate) fn variant(number: usize) {
    with_session(|session| session.variant = number + 1);
}

/// Notes what a model says of a variant (from 0) of this step, for each unit.
pub(crate) fn modelled(variant: usize, per_unit: impl IntoIterator<Item = (&'static str, f64)>) {
    with_session(|session| {
        let per_unit = per_unit.into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
        let (step, variant) = (session.step.clone(), variant + 1);
        session.modelled.push(Counted { step, variant, units: 1, per_unit });
    });
}

/// Notes how a model's order of variants compares to the measured one.
pub(crate) fn agree(agreement: Agreement) {
    with_session(|session| session.agreement = Some(agreement));
}

/// A round begins.
pub(crate) fn start() {
    with_session(|session| session.open.start());
}

/// A round of so many units has ended.
pub(crate) fn stop(units: u64) {
    with_session(|session| {
        let counts = session.open.stop();
        let (step, variant) = (&session.step, session.variant);
        let known = session.rows.iter().position(|row| row.step == *step && row.variant == variant);
        let index = known.unwrap_or(session.rows.len());
        if known.is_none() {
            session.rows.push(Row { step: step.clone(), variant, units: 0, sums: BTreeMap::new() });
        }
        let row = &mut session.rows[index];
        row.units += units;
        for (name, count) in counts.into_iter().filter_map(|(name, count)| Some((name, count?))) {
            let sum = row.sums.entry(name).or_default();
            sum.0 += count;
            sum.1 += units;
        }
    });
}

/// Events that every round has some of: where they stand still, so does all that the same hardware is said to count.
const ALWAYS_MOVE: [&str; 2] = ["cycles", "instructions"];
const STANDS_STILL: &str =
    "there is a counter, but it does not move; the hypervisor does not offer it in earnest";
const NO_COUNTER: &str = "other events had its counter in the hardware all the time";

impl Session {
    /// Takes out what was opened and still not counted, with the reason.
    fn drop_dead_events(&mut self) {
        let rows = &mut self.rows;
        if rows.is_empty() {
            return;
        }
        let totals: Vec<(&Event, Option<f64>)> = self
            .open
            .events
            .iter()
            .map(|(event, _)| {
                let sums = rows.iter().filter_map(|row| row.sums.get(event.name));
                (*event, sums.map(|(sum, _)| *sum).reduce(|a, b| a + b))
            })
            .collect();
        let still =
            totals.iter().any(|(event, total)| ALWAYS_MOVE.contains(&event.name) && *total == Some(0.0));
        for (event, total) in totals {
            let reason = match total {
                None => NO_COUNTER,
                Some(0.0) if still && event.hardware => STANDS_STILL,
                Some(_) => continue,
            };
            self.open.absent.push(Absent { name: event.name.to_owned(), reason: reason.to_owned() });
            for row in &mut *rows {
                row.sums.remove(event.name);
            }
        }
    }

    fn report(mut self) -> Report {
        self.drop_dead_events();
        let counted = self.rows.into_iter().map(|row| Counted {
            step: row.step,
            variant: row.variant,
            units: row.units,
            per_unit: row
                .sums
                .into_iter()
                .filter(|(_, (_, units))| *units > 0)
                .map(|(name, (sum, units))| (name.to_owned(), sum / units as f64))
                .collect(),
        });
        let Self { modelled, agreement, .. } = self;
        Report { counted: counted.collect(), absent: self.open.absent, modelled, agreement }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes to as many pages that were never touched.
    fn touch(pages: usize) {
        let memory = warmlane_sys::pages::TableMemory::<[u8; 4096]>::zeroed(pages).unwrap();
        let mut memory = memory;
        for page in memory.iter_mut() {
            page[0] = 1;
        }
    }

    #[test]
    fn older_records_call_a_variant_a_way() {
        let written = |key: &str| format!(r#"{{"step":"one","{key}":2,"units":3,"per_unit":{{}}}}"#);
        let read = |key| serde_json::from_str::<Counted>(&written(key)).unwrap();
        assert_eq!((read("way").variant, read("way")), (2, read("variant")));
        assert_eq!(serde_json::to_string(&read("way")).unwrap(), written("variant"));
    }

    #[test]
    fn what_the_kernel_counts_is_counted_by_step_and_way() {
        let ((), report) = gather(|| {
            for (step_name, variants) in [("one", 1), ("two", 2)] {
                step(step_name);
                for number in 0..variants {
                    variant(number);
                    for _ in 0..2 {
                        start();
                        // 2 MiB and more, so that there is a fault even where pages are huge.
                        touch(1_024);
                        stop(8);
                    }
                }
            }
        });
        let ((), uncounted) = gather(|| uncounted(|| stop(8)));
        assert!(uncounted.counted.is_empty(), "{uncounted:?}");
        let rows: Vec<_> =
            report.counted.iter().map(|row| (row.step.as_str(), row.variant, row.units)).collect();
        assert_eq!(rows, [("one", 1, 16), ("two", 1, 16), ("two", 2, 16)]);
        assert!(report.counted.iter().all(|row| row.per_unit["page faults"] >= 0.1), "{report:?}");
    }

    #[test]
    fn an_event_is_counted_or_absent_with_its_reason() {
        let ((), report) = gather(|| {
            start();
            stop(1);
        });
        for name in EVENTS.iter().map(|event| event.name).chain([traffic::NAME]) {
            let counted = report.counted[0].per_unit.contains_key(name);
            let absent = report.absent.iter().any(|absent| absent.name == name && !absent.reason.is_empty());
            assert!(counted != absent, "{name}: {report:?}");
        }
    }

    static NEVER: [Event; 1] = [Event {
        name: "wonders",
        hardware: true,
        factor: 1.0,
        open: || Err(std::io::Error::from_raw_os_error(libc::ENOENT)),
    }];

    #[test]
    fn what_is_absent_is_said_and_no_figure() {
        let ((), report) = gather_opened(Open::new(&NEVER), || {
            start();
            stop(5);
        });
        assert!(report.counted[0].per_unit.is_empty() && report.hardware_events().is_empty());
        assert_eq!(
            report.sentence().unwrap(),
            "Not counted on this machine: wonders (this processor, or its hypervisor, does not offer it)."
        );
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["counted"][0]["per_unit"], serde_json::json!({}));
    }

    /// Counters that can be had everywhere and stay at 0.
    static STILL: [Event; 3] = [
        Event { name: "cycles", hardware: true, factor: 1.0, open: never_moves },
        Event { name: "L1 misses", hardware: true, factor: 1.0, open: never_moves },
        Event { name: "page faults", hardware: false, factor: 1.0, open: never_moves },
    ];
    static MOVING: [Event; 2] = [
        Event { name: "cycles", hardware: true, factor: 1.0, open: moves },
        Event { name: "L1 misses", hardware: true, factor: 1.0, open: never_moves },
    ];

    fn never_moves() -> std::io::Result<Vec<Counter>> {
        Ok(vec![perf_event::Builder::new(perf_event::events::Software::EMULATION_FAULTS).build()?])
    }

    fn moves() -> std::io::Result<Vec<Counter>> {
        Ok(vec![perf_event::Builder::new(perf_event::events::Software::PAGE_FAULTS).build()?])
    }

    #[test]
    fn a_counter_that_stands_still_is_absent_and_no_zero() {
        let round = || {
            start();
            touch(1_024);
            stop(8);
        };
        let ((), report) = gather_opened(Open::new(&STILL), round);
        assert_eq!(report.counted[0].per_unit.keys().collect::<Vec<_>>(), ["page faults"]);
        let sentence = report.sentence().unwrap();
        assert_eq!(sentence, format!("Not counted on this machine: cycles, L1 misses ({STANDS_STILL})."));
        // Where others move, a zero is a count.
        let ((), report) = gather_opened(Open::new(&MOVING), round);
        assert_eq!(report.counted[0].per_unit.get("L1 misses"), Some(&0.0));
        assert_eq!(report.sentence(), None);
    }

    #[test]
    fn a_counter_without_a_place_is_absent() {
        let ((), report) = gather_opened(Open::new(&MOVING), || {
            start();
            touch(1_024);
            stop(8);
            with_session(|session| {
                for row in &mut session.rows {
                    row.sums.remove("L1 misses");
                }
            });
        });
        assert_eq!(
            report.sentence().unwrap(),
            format!("Not counted on this machine: L1 misses ({NO_COUNTER}).")
        );
    }

    #[test]
    fn outside_a_session_nothing_is_counted() {
        start();
        stop(1);
        let ((), report) = gather(|| ());
        assert!(report.counted.is_empty());
    }

    #[test]
    fn counts_are_for_the_whole_time_or_none() {
        assert_eq!(scaled(100, 10, 5), Some(200.0));
        assert_eq!(scaled(0, 10, 10), Some(0.0));
        assert_eq!(scaled(0, 10, 0), None);
    }
}
