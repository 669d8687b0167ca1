//! What was predicted, for people, for programs and as pictures.

use super::parameters::Parameters;
use super::published::{TESTS, Test};
use super::question::{Bandwidth, Load, Question};
use super::study::{self, Cell, DepotAgainstStack};
use super::touches::Touches;
use crate::error::LabError;
use crate::plot::{Axis, Figure, Marks, PlotError, figures};
use crate::verdict::Verdict;
use serde::Serialize;
use std::fmt;

/// The traffic under one load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Gbit/s of each instance.
    pub gbps: f64,
    /// Whether frames get CRCs.
    pub crc: bool,
    /// Side by side.
    pub instances: usize,
    /// By how much the second pool's traffic is less than the first's, in per cent, if there are two.
    pub drop: Option<f64>,
    /// What each pool's traffic is.
    pub pools: Vec<(String, Bandwidth)>,
}

/// What becomes of the modelled drops if one parameter is a fifth smaller or larger.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Changed {
    /// Which, and to what.
    pub parameter: String,
    /// The average drop.
    pub average: f64,
    /// The cell of a test that nothing was fitted to that is farthest from what was published, if there is one.
    pub farthest: Option<Farthest>,
    /// How many cells of such tests are within the 10 points that they may be off, and how many there are.
    pub within: [usize; 2],
    /// What the verdict would be.
    pub verdict: String,
}

/// The cell that is farthest from what was published.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Farthest {
    /// The test's number.
    pub test: usize,
    /// Instances side by side.
    pub instances: usize,
    /// In points.
    pub difference: f64,
}

/// What was predicted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// For which machine.
    pub machine: String,
    /// What the paper doesn't say.
    pub parameters: Parameters,
    /// The cells of the published tests.
    pub cells: Vec<Cell>,
    /// The traffic under other loads.
    pub rows: Vec<Row>,
    /// The average of the modelled drops.
    pub average: f64,
    /// Whether the published figures come out; nothing without them.
    pub verdict: Option<String>,
    /// Whether a depot's traffic is at most the stack's, if both were asked for.
    pub depot: Option<DepotAgainstStack>,
    /// What changes with other parameters.
    pub sensitivity: Vec<Changed>,
    /// What else is to be known.
    pub notes: Vec<String>,
}

/// As a sentence.
fn told(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Reproduced => "reproduced".to_owned(),
        Verdict::NotReproduced(reason) => format!("not reproduced: {reason}"),
        Verdict::CannotTell(reason) => format!("cannot tell here: {reason}"),
    }
}

impl Prediction {
    fn new(question: &Question, instances: &[usize]) -> Self {
        Self {
            machine: question.model.name.clone(),
            parameters: question.parameters,
            cells: Vec::new(),
            rows: Vec::new(),
            average: f64::NAN,
            verdict: None,
            depot: None,
            sensitivity: Vec::new(),
            notes: question.notes(instances),
        }
    }

    /// Of published tests.
    ///
    /// # Errors
    /// [`LabError`].
    pub fn of_tests(
        question: &Question,
        tests: &[Test],
        instances: &[usize],
        touches: &Touches,
        progress: &(dyn Fn(&str) + Sync),
    ) -> Result<Self, LabError> {
        let cells = question.cells(tests, instances, touches, progress)?;
        if cells.is_empty() {
            return Err(LabError::setup(
                "the published tests have 1, 2, 4, 8 and 12 instances: name some of them",
            ));
        }
        let (average, verdict) = (study::average(&cells), Some(told(&study::verdict(&cells))));
        let depot = DepotAgainstStack::of(cells.iter().map(|cell| &*cell.pools));
        Ok(Self { cells, average, verdict, depot, ..Self::new(question, instances) })
    }

    /// Of other loads.
    ///
    /// # Errors
    /// [`LabError`].
    pub fn of_loads(
        question: &Question,
        loads: &[Load],
        touches: &Touches,
        progress: &(dyn Fn(&str) + Sync),
    ) -> Result<Self, LabError> {
        let traffic = question.traffic(loads, touches, progress)?;
        let row = |(load, pools): (&Load, Vec<Bandwidth>)| Row {
            gbps: load.gbps,
            crc: load.crc,
            instances: load.instances,
            drop: Some(study::drop(&pools)).filter(|drop| drop.is_finite()),
            pools: question.named(pools),
        };
        let instances: Vec<_> = loads.iter().map(|load| load.instances).collect();
        let rows: Vec<_> = loads.iter().zip(traffic).map(row).collect();
        let depot = DepotAgainstStack::of(rows.iter().map(|row| &*row.pools));
        Ok(Self { rows, depot, ..Self::new(question, &instances) })
    }

    /// Adds what changes if each parameter is a fifth smaller or larger: of the same cells.
    ///
    /// # Errors
    /// [`LabError`].
    pub fn add_sensitivity(
        &mut self,
        question: &Question,
        tests: &[Test],
        instances: &[usize],
        touches: &Touches,
        progress: &(dyn Fn(&str) + Sync),
    ) -> Result<(), LabError> {
        for (name, parameters) in question.parameters.a_fifth_off() {
            let changed = Question { parameters, ..question.clone() };
            let cells = changed.cells(tests, instances, touches, progress)?;
            self.sensitivity.push(Changed {
                parameter: name,
                average: study::average(&cells),
                farthest: study::farthest(&cells).map(|&Cell { test, instances, difference, .. }| Farthest {
                    test,
                    instances,
                    difference,
                }),
                within: study::within(&cells),
                verdict: told(&study::verdict(&cells)),
            });
        }
        Ok(())
    }

    /// One picture for each test or rate: each pool's traffic over the number of instances.
    ///
    /// # Errors
    /// [`PlotError`].
    pub fn plot(&self) -> Result<String, PlotError> {
        let groups = self.groups();
        let pictures: Vec<_> = groups
            .iter()
            .map(|(title, rows)| Figure {
                title: title.clone(),
                x: Axis::linear("instances"),
                y: Axis::linear("GB/s of memory, read and written"),
                marks: Marks::Bars {
                    groups: rows.iter().map(|row| row.instances.to_string()).collect(),
                    series: bars(rows),
                },
            })
            .collect();
        figures(&pictures, Some(&format!("Memory traffic, modelled: {}", self.machine)))
    }

    /// Rows under the title of their picture, with their instances.
    fn groups(&self) -> Vec<(String, Vec<Bars<'_>>)> {
        let mut groups: Vec<(String, Vec<Bars<'_>>)> = Vec::new();
        let bars =
            |instances, gbps: f64, pools| Bars { instances, frames: gbps / 8.0 * instances as f64, pools };
        let of_cells = self.cells.iter().map(|cell| {
            let gbps = TESTS.iter().find(|test| test.number == cell.test).map_or(f64::NAN, |test| test.gbps);
            (format!("Test {}", cell.test), bars(cell.instances, gbps, &*cell.pools))
        });
        let of_rows = self.rows.iter().map(|row| {
            let title = format!("{} Gbit/s an instance{}", row.gbps, if row.crc { ", CRC" } else { "" });
            (title, bars(row.instances, row.gbps, &*row.pools))
        });
        for (title, row) in of_cells.chain(of_rows) {
            match groups.iter_mut().find(|(known, _)| *known == title) {
                Some((_, rows)) => rows.push(row),
                None => groups.push((title, vec![row])),
            }
        }
        groups
    }
}

/// What a group of bars shows.
struct Bars<'a> {
    instances: usize,
    /// GB/s of frames that all instances have, to compare with.
    frames: f64,
    /// Each pool's traffic.
    pools: &'a [(String, Bandwidth)],
}

/// Reads and writes of each pool, in each row, and the frames beside them.
fn bars(rows: &[Bars<'_>]) -> Vec<(String, Vec<f64>)> {
    let Some(Bars { pools, .. }) = rows.first() else { return Vec::new() };
    let of_pools = (0..pools.len()).flat_map(|pool| {
        let series = |what: &str, figure: fn(&Bandwidth) -> f64| {
            let name = format!("{}, {what}", pools[pool].0);
            (name, rows.iter().map(|row| figure(&row.pools[pool].1)).collect())
        };
        [series("read", |bandwidth| bandwidth.read), series("written", |bandwidth| bandwidth.written)]
    });
    of_pools.chain([("frames".to_owned(), rows.iter().map(|row| row.frames).collect())]).collect()
}

fn write_pools(formatter: &mut fmt::Formatter<'_>, pools: &[(String, Bandwidth)]) -> fmt::Result {
    for (_, Bandwidth { read, written, .. }) in pools {
        write!(formatter, "  {read:>7.2} {written:>7.2}")?;
    }
    writeln!(formatter)
}

/// For people.
impl fmt::Display for Prediction {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Parameters { ways, under_way, cold_lines } = self.parameters;
        writeln!(
            formatter,
            "Modelled on {}: {ways} ways of the shared level for the instances, {under_way} buffers under way, {cold_lines} lines of state a frame that no \
             cache keeps.\n",
            self.machine
        )?;
        let pools = self.cells.first().map(|cell| &cell.pools).or(self.rows.first().map(|row| &row.pools));
        let heads: Vec<_> = pools
            .into_iter()
            .flatten()
            .map(|(name, _)| format!("  {:>15}", format!("{name} r, w")))
            .collect();
        let heads = heads.concat();
        if !self.cells.is_empty() {
            writeln!(formatter, "test  instances  published  modelled  points{heads}  [GB/s]")?;
            for Cell { test, instances, published, modelled, difference, pools } in &self.cells {
                write!(
                    formatter,
                    "{test:>4}  {instances:>9}  {published:>7.0} %  {modelled:>6.1} %  {difference:>+6.1}"
                )?;
                write_pools(formatter, pools)?;
            }
            writeln!(formatter, "\nAverage drop: {:.1} %", self.average)?;
        }
        if !self.rows.is_empty() {
            writeln!(formatter, "Gbit/s  CRC  instances    drop{heads}  [GB/s]")?;
            for Row { gbps, crc, instances, drop, pools } in &self.rows {
                let crc = if *crc { "yes" } else { "no" };
                let drop = drop.map_or_else(|| "-".to_owned(), |drop| format!("{drop:.1} %"));
                write!(formatter, "{gbps:>6}  {crc:>3}  {instances:>9}  {drop:>6}")?;
                write_pools(formatter, pools)?;
            }
        }
        if let Some(verdict) = &self.verdict {
            writeln!(formatter, "Against the published drops: {verdict}.")?;
        }
        if let Some(depot) = &self.depot {
            writeln!(formatter, "{depot}")?;
        }
        if !self.sensitivity.is_empty() {
            writeln!(
                formatter,
                "\n{:<34}  average drop  within 10 points  farthest",
                "one parameter a fifth off"
            )?;
        }
        for Changed { parameter, average, farthest, within: [near, all], .. } in &self.sensitivity {
            let farthest = farthest.map_or_else(
                || "-".to_owned(),
                |Farthest { test, instances, difference }| {
                    format!("{difference:+.1}, test {test} with {instances}")
                },
            );
            writeln!(
                formatter,
                "{parameter:<34}  {average:>10.1} %  {:>16}  {farthest}",
                format!("{near} of {all}")
            )?;
        }
        for note in &self.notes {
            writeln!(formatter, "{note}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_predicted_is_told_and_drawn() {
        let bandwidth = |read| Bandwidth { read, written: 2.0 * read, lines: 1.0 };
        let pools = vec![("ring".to_owned(), bandwidth(1.0)), ("stack".to_owned(), bandwidth(0.25))];
        let prediction = Prediction {
            machine: "m".to_owned(),
            parameters: Parameters::FITTED,
            cells: vec![Cell {
                test: 2,
                instances: 8,
                published: 65.0,
                modelled: 75.5,
                difference: 10.5,
                pools,
            }],
            rows: Vec::new(),
            average: 75.5,
            verdict: Some(told(&Verdict::NotReproduced("it is not".to_owned()))),
            depot: None,
            sensitivity: vec![Changed {
                parameter: "ways of the shared level: 2".to_owned(),
                average: 70.25,
                farthest: Some(Farthest { test: 4, instances: 8, difference: -19.5 }),
                within: [13, 15],
                verdict: String::new(),
            }],
            notes: vec!["A note.".to_owned()],
        };
        let text = prediction.to_string();
        assert!(
            text.contains("   2          8       65 %    75.5 %   +10.5     1.00    2.00     0.25    0.50"),
            "{text}"
        );
        assert!(text.contains("not reproduced: it is not") && text.ends_with("A note.\n"), "{text}");
        assert!(text.contains("13 of 15  -19.5, test 4 with 8"), "{text}");
        let picture = prediction.plot().unwrap();
        assert!(
            picture.contains("Test 2") && picture.contains("stack, written") && picture.contains("frames"),
            "{picture:.500}"
        );
        let json = serde_json::to_value(&prediction).unwrap();
        assert_eq!(json["cells"][0]["difference"], 10.5);
    }
}
