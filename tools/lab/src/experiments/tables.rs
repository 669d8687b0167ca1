//! What tables cost by size, by what is asked, and while they change.

mod lpm;

use crate::error::LabError;
use crate::experiment::Experiment;
use crate::record::{Claim, Findings};
use crate::setting::Setting;
use crate::table::{Cell, Column};
use crate::verdict::Prediction;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "tables",
    question: "what do lookups cost by size of the table, by addresses and by burst, and what do changes cost them?",
    claim: Claim {
        source: super::sources::ARM,
        says: "reclamation by quiescent states, which DPDK's LPM is integrated with, is for tables that are changed less often \
               than read, like the routing table; no figure is given",
        predictions: &PREDICTIONS,
    },
    method: "The prefixes of a full Internet table of each family, or every n-th of them, are looked up in bursts: addresses drawn evenly, inside \
             prefixes drawn evenly, and inside prefixes of which the n-th most popular is drawn n times less often than the first. \
             Changes go through the full table as a feed that starts anew: in the order of addresses each route gets another next hop, \
             is taken away, and comes back, one by one or 64 at a time. A load makes the table of all routes. With a second CPU, one lane looks up while \
             the other one changes. What is compared takes turns.",
    steps: None,
    run,
};

const PREDICTIONS: [Prediction; 1] = [Prediction::at_most(
    "IPv4 lookups beside a feed by 64 against lookups beside an idle writer",
    "%",
    10.0,
    "readers that pay for changes as they would with a lock",
)];

const MEBIBYTE: f64 = 1_048_576.0;

/// One measurement of a kind of table.
struct Row {
    table: &'static str,
    operation: Operation,
    /// Routes in the table.
    entries: usize,
    order: &'static str,
    /// Lookups or changes at once.
    burst: usize,
    /// Cycles for each of them.
    cycles: f64,
    memory: Option<Memory>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Operation {
    Lookup,
    /// All routes at once, into a new table.
    Load,
    Change,
    /// While another lane makes so many changes a second, so many of them at once.
    LookupBeside {
        changes: f64,
        batch: usize,
        /// In no order, rather than that of the addresses.
        scattered: bool,
    },
}

#[derive(Clone, Copy, Debug)]
struct Memory {
    lookup_bytes: usize,
    all_bytes: usize,
}

impl Row {
    fn columns() -> Vec<Column> {
        Column::list(
            "table | operation | entries | order | at once | cost [cycles] | rate [M/s] | changes beside [M/s] | lookups read [MiB] | table takes [MiB]",
        )
    }

    fn cells(&self, cycles_per_second: f64) -> Vec<Cell> {
        let mebibytes =
            |bytes: fn(&Memory) -> usize| self.memory.as_ref().map(|memory| bytes(memory) as f64 / MEBIBYTE);
        let (operation, changes) = match self.operation {
            Operation::Lookup => ("lookup".to_owned(), None),
            Operation::Load => ("load".to_owned(), None),
            Operation::Change => ("change".to_owned(), None),
            Operation::LookupBeside { changes, batch, scattered } => {
                let kind = if scattered { "scattered changes" } else { "changes" };
                (format!("lookup beside {kind} by {batch}"), Some(changes / 1e6))
            }
        };
        vec![
            self.table.into(),
            operation.into(),
            self.entries.into(),
            self.order.into(),
            self.burst.into(),
            self.cycles.into(),
            (cycles_per_second / self.cycles / 1e6).into(),
            changes.into(),
            mebibytes(|memory| memory.lookup_bytes).into(),
            mebibytes(|memory| memory.all_bytes).into(),
        ]
    }
}

fn run(setting: &Setting, progress: &mut dyn FnMut(&str)) -> Result<Findings, LabError> {
    Ok(findings(&lpm::rows(setting, &lpm::Sizes::FULL, progress)?))
}

fn findings(rows: &[Row]) -> Findings {
    let second = warmlane_sys::clock::Clock::calibrated().cycles_per_second() as f64;
    Findings {
        columns: Row::columns(),
        rows: rows.iter().map(|row| row.cells(second)).collect(),
        figures: lpm::figures(rows, second),
        answers: lpm::answers(rows).to_vec(),
        conclusion: lpm::conclusion(rows, second),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::tests::assert_judged;

    #[test]
    fn turned_figures_refute_the_claim() {
        let row = |cycles, changes| Row {
            table: "IPv4",
            operation: Operation::LookupBeside { changes, batch: 64, scattered: false },
            entries: 1_000,
            order: "inside",
            burst: 64,
            cycles,
            memory: None,
        };
        let as_claimed = lpm::answers(&[row(10.0, 0.0), row(10.5, 1e6)]);
        assert_judged(&PREDICTIONS, &as_claimed, &lpm::answers(&[row(10.0, 0.0), row(20.0, 1e6)]));
        assert!(lpm::answers(&[])[0].cannot_tell.as_ref().unwrap().contains("second CPU"));
    }

    #[test]
    fn a_tiny_run_has_a_row_for_every_combination() {
        let setting = Setting::tiny();
        let sizes = lpm::Sizes { routes: &[100, 1_000], addresses: [1 << 13; 2] };
        let findings = findings(&lpm::rows(&setting, &sizes, &mut |_| ()).unwrap());
        // By family: sizes by locality, the load, other bursts, batches; then the paces beside which IPv4 is looked up.
        let paces = if setting.second_cpu.is_some() { 5 } else { 0 };
        assert_eq!(findings.rows.len(), 2 * (2 * 3 + 1 + 4 + 2) + paces);
        for row in &findings.rows {
            assert_eq!(row.len(), findings.columns.len());
            // Between two lanes no turn may be of one regime.
            let beside = matches!(&row[1], Cell::Text(operation) if operation.starts_with("lookup beside"));
            let counts = matches!(row[5], Cell::Figure(cycles) if cycles > 0.5);
            assert!(counts || beside && row[5] == Cell::Missing, "{row:?}");
        }
        assert_eq!(findings.figures.len(), 5 + usize::from(setting.second_cpu.is_some()));
        assert!(findings.conclusion.starts_with("Inside prefixes"), "{}", findings.conclusion);
    }
}
