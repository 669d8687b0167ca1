//! What `bench` and `lab` have in common on the command line.

use crate::cpus;
use std::fmt::Write as _;
use std::time::Duration;
use warmlane_lab::setting::Setting;
use warmlane_lab::subject::Subject;
use warmlane_lab::turns;

/// How long to measure, and where.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Flags {
    /// How many rounds count for each figure [default: 15 for a bench, 9 for an experiment].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rounds: Option<u32>,
    /// How long a round takes, in seconds [default: 0.05 for a bench, 0.1 for an experiment].
    #[arg(long, value_name = "S", value_parser = seconds)]
    seconds: Option<f64>,
    /// Draws the order of what takes turns; another one each time if not given. Results tell it.
    #[arg(long, value_name = "N")]
    seed: Option<u32>,
    /// The CPU of the first lane; the last one that this process may use if not given (the first serves most interrupts).
    #[arg(long, value_name = "N")]
    cpu: Option<usize>,
    /// The CPU of the second lane, where there is one; the first other one that this process may use if not given.
    #[arg(long, value_name = "N")]
    second_cpu: Option<usize>,
}

/// What is done if nothing else is asked for.
#[derive(Clone, Copy)]
pub(crate) struct Defaults {
    pub(crate) rounds: u32,
    pub(crate) seconds: f64,
}

/// The longest round that makes sense; a day would be a mistyped number.
const LONGEST_SECONDS: f64 = 3_600.0;

fn seconds(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|seconds| *seconds > 0.0 && *seconds <= LONGEST_SECONDS).ok_or_else(|| {
        format!("a round takes more than 0 and at most {LONGEST_SECONDS} seconds, such as 0.05")
    })
}

impl Flags {
    /// Binds this thread to the first lane's CPU, and makes a setting of the flags.
    pub(crate) fn bind(self, defaults: Defaults) -> anyhow::Result<Setting> {
        let (cpu, second_cpu) = cpus::bind(self.cpu, self.second_cpu)?;
        Ok(Setting {
            cpu,
            second_cpu,
            length: Duration::from_secs_f64(self.seconds.unwrap_or(defaults.seconds)),
            rounds: self.rounds.unwrap_or(defaults.rounds) as usize,
            seed: self.seed.map_or_else(turns::any_seed, u64::from),
            ..Setting::default()
        })
    }
}

/// Names and what they find out, for people.
pub(crate) fn list<'a, S: Subject + 'a>(all: impl Iterator<Item = &'a S> + Clone) -> String {
    let width = all.clone().map(|subject| subject.name().len()).max().unwrap_or(0);
    all.fold(String::new(), |mut text, subject| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{:<width$}  {}", subject.name(), subject.question());
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_rounds() {
        assert_eq!(seconds("0.05"), Ok(0.05));
        for bad in ["0", "-1", "nan", "inf", "1e9", "x"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }
}
