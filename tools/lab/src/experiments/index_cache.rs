//! What carrying indices instead of pointers saves.

use super::lines::lines;
use crate::error::LabError;
use crate::experiment::Experiment;
use crate::measure::Measure;
use crate::partner::Partner;
use crate::plot::{Axis, Figure, Marks};
use crate::record::{Claim, Findings};
use crate::setting::{Lanes, Setting};
use crate::table::{Cell, Column};
use crate::verdict::{Answer, Prediction};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use warmlane_sync::spsc::{self, Consumer, Producer};
use warmlane_sys::pages::TableMemory;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "index-cache",
    question: "should rings and lane caches carry 64-bit pointers or 32-bit indices?",
    claim: Claim {
        source: super::sources::ARM,
        says: "a lane cache of indices instead of 64-bit pointers needs less memory and less cache; no figure is given",
        predictions: &PREDICTIONS,
    },
    method: "Bursts of 32 go round, once as 64-bit positions in memory (a pointer: nothing to compute) and once as 32-bit indices (one \
             multiplication to the address), in turns. One lane: from the front of a FIFO ring of all buffers through a LIFO \
             cache of 512 and back to the ring's end. Two lanes: one sends through a ring, the other one sends back through another. Each is done \
             without looking at the buffers, which shows what carrying costs, and with each header written by \
             every lane, which shows what is left of it. Entries are half as long, so half as many lines of the ring move.",
    steps: None,
    run,
};

const PREDICTIONS: [Prediction; 2] = [
    Prediction::at_least(
        "indices against pointers, one lane, headers untouched, 262,144 buffers",
        "%",
        3.0,
        "pointers that are carried as fast where their ring is as large as a cache",
    ),
    Prediction::at_least(
        "indices against pointers, one lane, headers written, 262,144 buffers",
        "%",
        -3.0,
        "indices whose multiplication costs more than they save",
    ),
];

const BURST: usize = 32;
/// Entries of a lane cache: DPDK's largest.
const CACHE: usize = 512;
/// Buffers that go round on one lane.
const ONE_LANE: [usize; 3] = [4_096, 65_536, 262_144];
/// Buffers that go round between two lanes, and entries of each ring.
const TWO_LANES: [usize; 3] = [256, 4_096, 65_536];
/// Lines from one header to the next: odd, and short enough for many buffers.
const STRIDE: usize = 3;
/// Bursts in a unit of work.
const BURSTS: usize = 50;
const LINE: f64 = 64.0;

type Headers = TableMemory<[AtomicU64; 8]>;

/// What names a buffer.
trait Name: Copy + Default + Send + 'static {
    fn of(index: usize) -> Self;
    /// The number of its header's line, if headers stand `stride` lines apart.
    fn line(self, stride: usize) -> usize;
}

impl Name for u32 {
    fn of(index: usize) -> Self {
        index as u32
    }

    #[inline(always)]
    fn line(self, stride: usize) -> usize {
        self as usize * stride
    }
}

/// In a pointer's stead: as long, and the index itself.
impl Name for u64 {
    fn of(index: usize) -> Self {
        (index * STRIDE) as u64
    }

    #[inline(always)]
    fn line(self, _: usize) -> usize {
        usize::try_from(self).unwrap_or_default()
    }
}

fn headers(buffers: usize) -> Result<Arc<Headers>, LabError> {
    Ok(Arc::new(lines(buffers * STRIDE)?))
}

/// Writes every header as a lane does that takes or passes on its buffer.
#[inline(always)]
fn touch<N: Name>(headers: &Headers, names: &[N]) {
    // A pool knows its stride when it is made, not when it is compiled.
    let stride = std::hint::black_box(STRIDE);
    for name in names {
        let word = &headers[name.line(stride)][0];
        word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

/// A ring of all buffers, and a cache in front of it.
struct OneLane<N> {
    ring: Vec<N>,
    front: usize,
    cache: Vec<N>,
    headers: Option<Arc<Headers>>,
}

impl<N: Name> OneLane<N> {
    fn new(buffers: usize, touched: bool) -> Result<Self, LabError> {
        Ok(Self {
            ring: (0..buffers).map(N::of).collect(),
            front: 0,
            cache: Vec::with_capacity(CACHE),
            headers: touched.then(|| headers(buffers)).transpose()?,
        })
    }
}

impl<N: Name> Measure for OneLane<N> {
    fn work(&mut self) -> u64 {
        for _ in 0..BURSTS {
            // A slot of the ring is empty from the time its entry is taken until one is put there.
            let slots = &mut self.ring[self.front..self.front + BURST];
            self.cache.extend_from_slice(slots);
            let names = &self.cache[self.cache.len() - BURST..];
            if let Some(headers) = &self.headers {
                touch(headers, names);
            }
            slots.copy_from_slice(std::hint::black_box(names));
            self.cache.truncate(self.cache.len() - BURST);
            self.front += BURST;
            if self.front == self.ring.len() {
                self.front = 0;
            }
        }
        (BURSTS * BURST) as u64
    }
}

/// One end of a pair of rings; the partner sends back what it gets.
struct TwoLanes<N> {
    out: Producer<N>,
    back: Consumer<N>,
    names: Vec<N>,
    headers: Option<Arc<Headers>>,
    partner: Partner,
}

impl<N: Name> TwoLanes<N> {
    fn new(cpu: usize, buffers: usize, touched: bool) -> Result<Self, LabError> {
        let ring = || spsc::ring::<N>(buffers).map_err(LabError::setup);
        let ((out, mut there), (mut home, back)) = (ring()?, ring()?);
        let headers = touched.then(|| headers(buffers)).transpose()?;
        let theirs = headers.clone();
        let partner = Partner::start(cpu, move || {
            let mut names = [N::default(); BURST];
            let mut held = 0;
            Ok(move || {
                if held == 0 {
                    held = there.pop_burst(&mut names);
                    if let Some(headers) = &theirs {
                        touch(headers, &names[..held]);
                    }
                }
                let sent = home.push_burst(&names[..held]);
                names.copy_within(sent..held, 0);
                held -= sent;
            })
        })
        .map_err(LabError::setup)?;
        Ok(Self { out, back, names: (0..buffers).map(N::of).collect(), headers, partner })
    }
}

impl<N: Name> Measure for TwoLanes<N> {
    fn begin(&mut self) {
        self.partner.resume();
    }

    fn end(&mut self) {
        self.partner.pause();
    }

    fn work(&mut self) -> u64 {
        let mut moved = 0;
        for _ in 0..BURSTS {
            let first = self.names.len() - BURST.min(self.names.len());
            let names = &self.names[first..];
            if let Some(headers) = &self.headers {
                touch(headers, names);
            }
            // The ring has space for all names there are.
            let sent = self.out.push_burst(names);
            let rest = names.len() - sent;
            self.names.copy_within(first + sent.., first);
            self.names.truncate(first + rest);
            let mut came = [N::default(); BURST];
            let count = self.back.pop_burst(&mut came);
            self.names.extend_from_slice(&came[..count]);
            moved += count as u64;
        }
        moved
    }
}

/// One comparison.
struct Row {
    lanes: usize,
    buffers: usize,
    touched: bool,
    pointers: f64,
    indices: f64,
    line_transfer: Option<f64>,
}

fn run(setting: &Setting, progress: &mut dyn FnMut(&str)) -> Result<Findings, LabError> {
    let mut rows = Vec::new();
    for touched in [false, true] {
        for buffers in ONE_LANE {
            progress(&format!("one lane, {buffers} buffers"));
            let variants: [Box<dyn Measure>; 2] = [
                Box::new(OneLane::<u64>::new(buffers, touched)?),
                Box::new(OneLane::<u32>::new(buffers, touched)?),
            ];
            rows.push(compare(setting, variants, 1, buffers, touched)?);
        }
        // Without a second CPU there are no such rows, and the conclusion says so.
        for buffers in TWO_LANES {
            let Some(cpu) = setting.second_cpu else { break };
            progress(&format!("two lanes, {buffers} buffers"));
            let variants: [Box<dyn Measure>; 2] = [
                Box::new(TwoLanes::<u64>::new(cpu, buffers, touched)?),
                Box::new(TwoLanes::<u32>::new(cpu, buffers, touched)?),
            ];
            rows.push(compare(setting, variants, 2, buffers, touched)?);
        }
    }
    let mut columns = Column::list(
        "lanes | buffers | headers | pointers [cycles/packet] | indices [cycles/packet] | indices are faster by [%]",
    );
    columns.push(Column::figures("lines with pointers", "lines/packet"));
    columns.push(Column::figures("lines with indices", "lines/packet"));
    columns.push(Column::figures("line transfer", "cycles/line"));
    Ok(Findings {
        columns,
        rows: rows.iter().map(Row::cells).collect(),
        figures: figures(&rows),
        answers: answers(&rows).to_vec(),
        conclusion: conclusion(&rows),
    })
}

fn compare(
    setting: &Setting,
    mut variants: [Box<dyn Measure>; 2],
    lanes: usize,
    buffers: usize,
    touched: bool,
) -> Result<Row, LabError> {
    let turns = setting.take_turns(if lanes == 1 { Lanes::One } else { Lanes::Two }, &mut variants)?;
    let [pointers, indices] = turns.medians[..] else {
        return Err(LabError::setup("a way is missing"));
    };
    Ok(Row { lanes, buffers, touched, pointers, indices, line_transfer: turns.line_transfer })
}

impl Row {
    /// Lines of rings that pass a lane for each packet: out of the one and into the other.
    fn lines<N>() -> f64 {
        2.0 * size_of::<N>() as f64 / LINE
    }

    fn gain(&self) -> f64 {
        (self.pointers / self.indices - 1.0) * 100.0
    }

    fn cells(&self) -> Vec<Cell> {
        vec![
            self.lanes.into(),
            self.buffers.into(),
            if self.touched { "written" } else { "untouched" }.into(),
            self.pointers.into(),
            self.indices.into(),
            self.gain().into(),
            Self::lines::<u64>().into(),
            Self::lines::<u32>().into(),
            self.line_transfer.into(),
        ]
    }
}

fn figures(rows: &[Row]) -> Vec<Figure> {
    let cases = [(1, false), (1, true), (2, false), (2, true)];
    cases
        .into_iter()
        .filter_map(|(lanes, touched)| {
            let rows: Vec<&Row> =
                rows.iter().filter(|row| (row.lanes, row.touched) == (lanes, touched)).collect();
            let headers = if touched { "written" } else { "untouched" };
            let lanes = if lanes == 1 { "One lane" } else { "Two lanes" };
            (!rows.is_empty()).then(|| Figure {
                title: format!("{lanes}, headers {headers}"),
                x: Axis::linear("buffers"),
                y: Axis::linear("cycles per packet"),
                marks: Marks::Bars {
                    groups: rows.iter().map(|row| row.buffers.to_string()).collect(),
                    series: vec![
                        ("64-bit pointers".to_owned(), rows.iter().map(|row| row.pointers).collect()),
                        ("32-bit indices".to_owned(), rows.iter().map(|row| row.indices).collect()),
                    ],
                },
            })
        })
        .collect()
}

/// With the most buffers of one lane, where what names them needs most cache.
fn answers(rows: &[Row]) -> [Answer; 2] {
    [false, true].map(|touched| {
        let most = ONE_LANE[ONE_LANE.len() - 1];
        let row = rows.iter().find(|row| (row.lanes, row.buffers, row.touched) == (1, most, touched));
        row.map_or(f64::NAN, Row::gain).into()
    })
}

fn conclusion(rows: &[Row]) -> String {
    let range = |lanes, touched| {
        let gains = rows.iter().filter(|row| (row.lanes, row.touched) == (lanes, touched)).map(Row::gain);
        let (low, high) = gains
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), gain| (low.min(gain), high.max(gain)));
        if low > high { "not measured".to_owned() } else { format!("{low:+.0} to {high:+.0} %") }
    };
    format!(
        "Indices move {:.3} lines of rings a packet where pointers move {:.3}. Carrying alone is faster with them by: one lane {}, two lanes {}; \
         with headers written by every lane: one lane {}, two lanes {}. The claim gives no figure. What is left of the \
         gain when headers are touched says how much of a packet's cost was its name: a header is a whole line for each lane, a name a sixteenth \
         of one. An index costs a multiplication that a pointer does not, and needs no address that two processes agree on.",
        Row::lines::<u32>(),
        Row::lines::<u64>(),
        range(1, false),
        range(2, false),
        range(1, true),
        range(2, true),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::tests::assert_judged;

    #[test]
    fn a_tiny_run_compares_every_case() {
        let setting = Setting::tiny();
        let findings = setting.try_out(run);
        let lanes =
            if setting.second_cpu.is_some() { ONE_LANE.len() + TWO_LANES.len() } else { ONE_LANE.len() };
        findings.assert_rows(2 * lanes);
        assert!(findings.conclusion.starts_with("Indices move 0.125 lines"), "{}", findings.conclusion);
    }

    #[test]
    fn turned_figures_refute_the_claim() {
        let rows = |pointers, indices| {
            [false, true].map(|touched| Row {
                lanes: 1,
                buffers: 262_144,
                touched,
                pointers,
                indices,
                line_transfer: None,
            })
        };
        assert_judged(&PREDICTIONS, &answers(&rows(2.0, 1.5)), &answers(&rows(1.5, 2.0)));
    }

    #[test]
    fn every_name_comes_round() {
        let mut lane = OneLane::<u32>::new(4_096, true).unwrap();
        for _ in 0..10 {
            lane.work();
        }
        let mut all = lane.ring.clone();
        all.sort_unstable();
        assert_eq!(all, (0..4_096).collect::<Vec<u32>>());
        let written: u64 = (0..4_096_u32)
            .map(|index| lane.headers.as_ref().unwrap()[index.line(STRIDE)][0].load(Ordering::Relaxed))
            .sum();
        assert_eq!(written, 10 * (BURSTS * BURST) as u64);
    }
}
