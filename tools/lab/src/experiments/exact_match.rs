//! What exact match costs by size, by locality, by burst, and for keys that aren't there.

mod late_acquire;

use std::fmt::Write as _;
use std::hint::black_box;

use warmlane_sys::clock;
use warmlane_table::{ExactReader, ExactTable};

use crate::benches::exact::{Key, key};
use crate::error::LabError;
use crate::experiment::Experiment;
use crate::measure::Measure;
use crate::plot::{Axis, Figure, Marks, Series};
use crate::random::Xorshift;
use crate::record::{Claim, Findings};
use crate::setting::{Lanes, Setting};
use crate::table::{Cell, Column};
use crate::verdict::{Answer, Prediction};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "exact-match",
    question: "What does an exact-match lookup cost by number of flows, by which flows come, and by burst?",
    claim: Claim {
        source: super::sources::ARM,
        says: "l3fwd finds the way of a packet by exact match (DPDK's hash library) or by longest prefix; in the lock-free lookup of that \
               hash, the acquire load of the value belongs behind the comparison of the key, not before it; the gain is given without a figure",
        predictions: &PREDICTIONS,
    },
    method: "Tables of 16-byte keys are filled one by one to what they were made for. Then three kinds of lookups take turns, in \
             bursts of 64: each flow as likely as any other; few flows often and many seldom (Zipf's law, exponent 1); and \
             keys that are not in the table. At a million flows and equally likely ones, the burst's size varies too. The claim's own step is a loop \
             of the lab's own after DPDK's lookup: of 65,536 keys in buckets of eight, the value is loaded with acquire before the key is compared, as \
             it was, or after, as it is. On AArch64 that is where an ldar stands; on x86-64 every load is an acquire one.",
    steps: None,
    run,
};

const PREDICTIONS: [Prediction; 2] = [
    Prediction::at_least(
        "a late acquire against an early one",
        "%",
        1.0,
        "an early acquire that costs nothing",
    ),
    Prediction::at_least("the same, not slower", "%", -3.0, "a late acquire that is slower"),
];

const SIZES: &[u64] = &[1_000, 10_000, 100_000, 1_000_000, 4_000_000, 16_000_000];
const BURSTS: &[usize] = &[1, 4, 8, 16, 32, 64, 256];
const USUAL_BURST: usize = 64;
/// The table of which the burst varies.
const USUAL_SIZE: u64 = 1_000_000;
/// Lookups until they repeat: so many that they don't touch only what a cache holds.
const LOOKUPS: usize = 1 << 21;
/// Bursts between two looks at the clock.
const BURSTS_OF_WORK: usize = 64;

#[derive(Clone, Copy, PartialEq)]
enum Locality {
    Uniform,
    Zipf,
    Missing,
}

const LOCALITIES: [(Locality, &str); 3] =
    [(Locality::Uniform, "uniform"), (Locality::Zipf, "Zipf"), (Locality::Missing, "missing keys")];

/// The number of the flow that comes, from a random number of 32 bits.
fn flow(locality: Locality, flows: u64, random: u64) -> u64 {
    match locality {
        Locality::Uniform => (random * flows) >> 32,
        // With exponent 1, ranks are spread evenly over their logarithms, but for the rounding of the first few.
        Locality::Zipf => {
            let rank = (flows as f64).powf(random as f64 / (1_u64 << 32) as f64);
            #[expect(clippy::cast_sign_loss, reason = "a power of a positive number is positive")]
            let rank = rank as u64;
            rank.clamp(1, flows) - 1
        }
        Locality::Missing => flows + ((random * flows) >> 32),
    }
}

struct Lookups {
    reader: ExactReader<Key>,
    keys: Vec<Key>,
    next: usize,
    burst: usize,
    values: Vec<u32>,
}

impl Lookups {
    fn new(table: &ExactTable<Key>, locality: Locality, flows: u64, lookups: usize, burst: usize) -> Self {
        let mut random = Xorshift(Xorshift::SEED);
        let keys = (0..lookups.max(burst)).map(|_| key(flow(locality, flows, random.upper())));
        Self { reader: table.reader(), keys: keys.collect(), next: 0, burst, values: vec![0; burst] }
    }
}

impl Measure for Lookups {
    fn work(&mut self) -> u64 {
        for _ in 0..BURSTS_OF_WORK {
            if self.next + self.burst > self.keys.len() {
                self.next = 0;
            }
            self.reader.lookup_burst(&self.keys[self.next..self.next + self.burst], &mut self.values);
            black_box(&mut self.values);
            self.next += self.burst;
        }
        (BURSTS_OF_WORK * self.burst) as u64
    }
}

/// What was found out about one table.
struct Point {
    flows: u64,
    bytes_of_flow: f64,
    cycles_of_insertion: f64,
    /// In the order of [`LOCALITIES`].
    cycles: Vec<f64>,
}

fn run(setting: &Setting, progress: &mut dyn FnMut(&str)) -> Result<Findings, LabError> {
    let mut points = Vec::new();
    let mut bursts = Vec::new();
    for &flows in SIZES {
        progress(&format!("{flows} flows"));
        let (table, point) = measure(setting, flows, LOOKUPS)?;
        points.push(point);
        if flows == USUAL_SIZE {
            progress("by burst");
            bursts = by_burst(setting, &table, flows, LOOKUPS)?;
        }
    }
    progress("early and late acquire");
    let acquire = |late| Box::new(late_acquire::Lookups::new(late)) as Box<dyn Measure>;
    let medians = setting.take_turns(Lanes::One, &mut [acquire(false), acquire(true)])?.medians;
    Ok(findings(&points, &bursts, [medians[0], medians[1]]))
}

fn measure(setting: &Setting, flows: u64, lookups: usize) -> Result<(ExactTable<Key>, Point), LabError> {
    let mut table = ExactTable::new(flows as usize).map_err(LabError::setup)?;
    let start = clock::cycles_ordered();
    for index in 0..flows {
        table.insert(&key(index), index as u32).map_err(LabError::setup)?;
    }
    let cycles_of_insertion = (clock::cycles_ordered() - start) as f64 / flows as f64;
    let variant = |(locality, _): &(Locality, &str)| -> Box<dyn Measure> {
        Box::new(Lookups::new(&table, *locality, flows, lookups, USUAL_BURST))
    };
    let cycles =
        setting.take_turns(Lanes::One, &mut LOCALITIES.iter().map(variant).collect::<Vec<_>>())?.medians;
    let bytes_of_flow = table.memory_bytes() as f64 / flows as f64;
    Ok((table, Point { flows, bytes_of_flow, cycles_of_insertion, cycles }))
}

fn by_burst(
    setting: &Setting,
    table: &ExactTable<Key>,
    flows: u64,
    lookups: usize,
) -> Result<Vec<(usize, f64)>, LabError> {
    let variant = |burst: &usize| -> Box<dyn Measure> {
        Box::new(Lookups::new(table, Locality::Uniform, flows, lookups, *burst))
    };
    let medians =
        setting.take_turns(Lanes::One, &mut BURSTS.iter().map(variant).collect::<Vec<_>>())?.medians;
    Ok(BURSTS.iter().copied().zip(medians).collect())
}

/// Cycles of a lookup with an early acquire, and with a late one.
type Acquires = [f64; 2];

/// What a late acquire gains, in percent.
fn gain([early, late]: Acquires) -> f64 {
    (early / late - 1.0) * 100.0
}

fn answers(acquires: Acquires, on_arm: bool) -> [Answer; 2] {
    let gained = Answer::from(gain(acquires));
    let elsewhere = "every load is an acquire load on this processor, so that the claim's instruction is not there to be moved";
    [if on_arm { gained.clone() } else { gained.clone().but_cannot_tell(elsewhere) }, gained]
}

fn findings(points: &[Point], bursts: &[(usize, f64)], acquires: Acquires) -> Findings {
    let columns =
        Column::list("flows | lookups | burst | lookup [cycles] | insertion [cycles] | memory [bytes/flow]");
    let mut rows = Vec::new();
    for point in points {
        for ((_, name), cycles) in LOCALITIES.iter().zip(&point.cycles) {
            rows.push(vec![
                Cell::from(point.flows as usize),
                (*name).into(),
                USUAL_BURST.into(),
                (*cycles).into(),
                point.cycles_of_insertion.into(),
                point.bytes_of_flow.into(),
            ]);
        }
    }
    for (burst, cycles) in bursts {
        rows.push(vec![
            Cell::from(USUAL_SIZE as usize),
            LOCALITIES[0].1.into(),
            (*burst).into(),
            (*cycles).into(),
            Cell::Missing,
            Cell::Missing,
        ]);
    }
    for (name, cycles) in ["own loop, early acquire", "own loop, late acquire"].into_iter().zip(acquires) {
        let flows = Cell::from(1_usize << 16);
        rows.push(vec![flows, name.into(), 1_usize.into(), cycles.into(), Cell::Missing, Cell::Missing]);
    }
    let line = |(variant, (_, name)): (usize, &(Locality, &str))| Series {
        name: (*name).to_owned(),
        points: points.iter().map(|point| (point.flows as f64, point.cycles[variant])).collect(),
    };
    let by_size = Figure {
        title: "What a lookup costs, 64 at a time".to_owned(),
        x: Axis::logarithmic("flows"),
        y: Axis::linear("cycles per lookup"),
        marks: Marks::Lines(LOCALITIES.iter().enumerate().map(line).collect()),
    };
    let by_burst = Figure {
        title: "What a lookup costs among a million flows".to_owned(),
        x: Axis::logarithmic("keys at a time"),
        y: Axis::linear("cycles per lookup"),
        marks: Marks::Lines(vec![Series {
            name: LOCALITIES[0].1.to_owned(),
            points: bursts.iter().map(|(burst, cycles)| (*burst as f64, *cycles)).collect(),
        }]),
    };
    let figures = if bursts.is_empty() { vec![by_size] } else { vec![by_size, by_burst] };
    Findings {
        columns,
        rows,
        figures,
        answers: answers(acquires, cfg!(target_arch = "aarch64")).to_vec(),
        conclusion: conclusion(points, bursts, acquires),
    }
}

fn conclusion(points: &[Point], bursts: &[(usize, f64)], acquires: Acquires) -> String {
    let (Some(least), Some(most)) = (points.first(), points.last()) else { return String::new() };
    let mut sentences = format!(
        "From {} to {} flows a lookup goes from {:.0} to {:.0} cycles, with Zipf's law to {:.0}, and for missing keys to {:.0}: \
         instructions where the table stays in the first caches, the rate of random lines where it doesn't. An insertion, \
         whose line nothing asks for early, goes from {:.0} to {:.0}.",
        least.flows,
        most.flows,
        least.cycles[0],
        most.cycles[0],
        most.cycles[1],
        most.cycles[2],
        least.cycles_of_insertion,
        most.cycles_of_insertion,
    );
    if let (Some((_, single)), Some((_, usual))) =
        (bursts.first(), bursts.iter().find(|(burst, _)| *burst == USUAL_BURST))
    {
        let _ = write!(
            sentences,
            " Among a million flows, {USUAL_BURST} keys at a time cost {:.1} times less than one at a time, because their lines \
             are waited for together.",
            single / usual
        );
    }
    let _ = write!(
        sentences,
        " In the claim's own step, a late acquire gains {:+.1} %: {:.1} cycles instead of {:.1}.",
        gain(acquires),
        acquires[1],
        acquires[0]
    );
    sentences
        + " The article gives no figure for the hash; ours stand beside DPDK's in `cargo xtask compare exact`."
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::tests::assert_judged;

    #[test]
    fn there_is_a_row_for_each_table_and_each_way() {
        let setting = Setting::tiny();
        let (table, point) = measure(&setting, 1000, 1000).unwrap();
        let bursts = by_burst(&setting, &table, 1000, 1000).unwrap();
        let findings = findings(&[point], &bursts, [30.0, 20.0]);
        findings.assert_rows(LOCALITIES.len() + BURSTS.len() + 2);
        assert!(findings.conclusion.contains("gains +50.0 %: 20.0 cycles instead of 30.0"));
        assert_eq!(findings.figures.len(), 2);
    }

    #[test]
    fn turned_figures_refute_the_claim() {
        assert_judged(&PREDICTIONS, &answers([11.0, 10.0], true), &answers([10.0, 11.0], true));
        let told = answers([10.0, 11.0], false).map(|answer| answer.cannot_tell.is_none());
        assert_eq!(told, [false, true]);
    }

    #[test]
    fn flows_are_drawn_as_the_names_say() {
        let last = u64::from(u32::MAX);
        for locality in [Locality::Uniform, Locality::Zipf] {
            assert_eq!(flow(locality, 1000, 0), 0);
            assert!(flow(locality, 1000, last) >= 998);
        }
        assert!(flow(Locality::Zipf, 1000, last / 2) < 32, "half of all lookups go to the first 31 of 1000");
        assert!((1000..2000).contains(&flow(Locality::Missing, 1000, last)));
    }
}
