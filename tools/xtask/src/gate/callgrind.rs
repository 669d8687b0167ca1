//! What callgrind wrote: how many instructions each function took.
//!
//! The format is described in the valgrind manual, chapter "Callgrind Format Specification". Names are written once, with a
//! number that is used for them later; costs of a call are on the line after it and belong to the callee.

use std::collections::{BTreeMap, HashMap};

use anyhow::Context;

/// The events that are counted, in callgrind's words.
const INSTRUCTIONS: &str = "Ir";
/// Misses of the modelled first level, of data: reads and writes.
const FIRST_LEVEL: [&str; 2] = ["D1mr", "D1mw"];
/// Misses of the modelled last level.
const LAST_LEVEL: [&str; 2] = ["DLmr", "DLmw"];

/// All costs of a run.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Counts {
    pub(crate) instructions: u64,
    pub(crate) first_level_misses: u64,
    pub(crate) last_level_misses: u64,
    /// Instructions of each function, its callees excepted.
    pub(crate) functions: BTreeMap<String, u64>,
}

/// Reads the text of a `callgrind.out` file.
pub(crate) fn parse(text: &str) -> anyhow::Result<Counts> {
    let mut events: Vec<&str> = Vec::new();
    let mut positions = 1;
    let mut names: HashMap<&str, String> = HashMap::new();
    let mut counts = Counts::default();
    let mut function = String::new();
    let mut of_a_call = false;
    for line in text.lines() {
        if let Some(list) = line.strip_prefix("events:") {
            events = list.split_whitespace().collect();
        } else if let Some(list) = line.strip_prefix("positions:") {
            positions = list.split_whitespace().count();
        } else if let Some(name) = line.strip_prefix("fn=") {
            name_of(name, &mut names).clone_into(&mut function);
        } else if let Some(name) = line.strip_prefix("cfn=") {
            name_of(name, &mut names);
        } else if line.starts_with("calls=") {
            of_a_call = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
            if std::mem::take(&mut of_a_call) {
                continue;
            }
            let mut costs = line.split_whitespace().skip(positions);
            for event in &events {
                let Some(cost) = costs.next() else { break };
                let cost: u64 = cost.parse().with_context(|| format!("'{line}' holds no costs"))?;
                if *event == INSTRUCTIONS {
                    counts.instructions += cost;
                    *counts.functions.entry(function.clone()).or_default() += cost;
                } else if FIRST_LEVEL.contains(event) {
                    counts.first_level_misses += cost;
                } else if LAST_LEVEL.contains(event) {
                    counts.last_level_misses += cost;
                }
            }
        }
    }
    anyhow::ensure!(events.contains(&INSTRUCTIONS), "callgrind's file doesn't say what it counted");
    Ok(counts)
}

/// The name in "(NUMBER) NAME", or the one that stood with this number before.
fn name_of<'a, 'n>(text: &'a str, names: &'n mut HashMap<&'a str, String>) -> &'n str {
    let (number, name) = text.split_once(' ').unwrap_or((text, ""));
    let known = names.entry(number).or_default();
    if !name.is_empty() {
        name.clone_into(known);
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# callgrind format\nversion: 1\npositions: line\nevents: Ir Dr Dw I1mr D1mr D1mw ILmr DLmr DLmw\n\n\
        ob=(1) /bin/warmlane\nfl=(1) a.rs\nfn=(1) take\n10 5 1 1 0 1 0 0 1\n+1 3\n\
        cfi=(2) b.rs\ncfn=(2) refill\ncalls=2 50\n* 40 9 9 0 9 9 0 9 9\n-2 2 0 0 0 0 2\n\n\
        fn=(2)\n50 40 0 0 0 4 3 0 2 1\n\nfn=(1)\n12 1\ntotals: 51\n";

    #[test]
    fn costs_belong_to_the_function_that_has_them() {
        let counts = parse(FILE).unwrap();
        let functions = BTreeMap::from([("take".to_owned(), 11), ("refill".to_owned(), 40)]);
        assert_eq!(
            counts,
            Counts { instructions: 51, first_level_misses: 10, last_level_misses: 4, functions }
        );
    }

    #[test]
    fn what_is_no_such_file_is_told() {
        assert!(parse("").is_err());
        assert!(parse("events: Dr\n").is_err());
        assert!(parse("events: Ir\nfn=(1) a\n5 many\n").unwrap_err().to_string().contains("'5 many'"));
    }
}
