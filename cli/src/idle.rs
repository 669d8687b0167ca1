//! How lanes wait when little arrives: flags, and keys of a file.

use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use serde::Deserialize;
use warmlane::lane::{IdlePolicy, wake_up_time};

/// No machine wakes a thread within less.
const SHORTEST_BOUND: Duration = Duration::from_micros(1);

/// How lanes wait.
#[derive(clap::Args, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct IdleFlags {
    /// Poll without rest, also when there is no traffic: the lowest latency, and a whole core for each lane.
    #[arg(long)]
    pub(crate) spin: bool,
    /// What lanes do when there is nothing to do: poll on for two seconds and then sleep (latency), poll on as long as packets come
    /// at short intervals and else sleep (balanced), or sleep at once (power). Usually balanced.
    #[arg(long, value_enum, conflicts_with = "spin")]
    pub(crate) idle: Option<Preset>,
    /// How long a packet may wait for its lane to wake up, as in 50us. Lanes sleep where this machine keeps that, and else poll.
    #[arg(long, value_name = "TIME", conflicts_with_all = ["spin", "idle"])]
    pub(crate) wake_within: Option<String>,
}

/// A policy by its name.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Preset {
    Latency,
    Balanced,
    Power,
}

impl IdleFlags {
    /// Whether they say something.
    pub(crate) fn is_given(&self) -> bool {
        *self != Self::default()
    }

    /// What they come to.
    ///
    /// # Errors
    /// A time that is none, a bound that no machine keeps, or two that contradict each other.
    pub(crate) fn policy(&self) -> anyhow::Result<IdlePolicy> {
        match (self.spin, self.idle, &self.wake_within) {
            (true, None, None) => Ok(IdlePolicy::Spin),
            (false, Some(Preset::Latency), None) => Ok(IdlePolicy::Latency),
            (false, Some(Preset::Power), None) => Ok(IdlePolicy::Power),
            (false, Some(Preset::Balanced) | None, None) => Ok(IdlePolicy::Balanced),
            (false, None, Some(text)) => {
                let bound = humantime::parse_duration(text)
                    .with_context(|| format!("`{text}` is no time to wake up within: say 50us or 1ms"))?;
                if bound < SHORTEST_BOUND {
                    bail!("no machine wakes a thread within {text}: say --spin, so that lanes never sleep");
                }
                Ok(IdlePolicy::WakeWithin(bound))
            }
            _ => bail!("say one of spin, idle and wake-within"),
        }
    }

    /// A line for whoever asked for a bound that sleepers don't keep here.
    pub(crate) fn note(&self) -> Option<String> {
        let Ok(IdlePolicy::WakeWithin(bound)) = self.policy() else { return None };
        not_kept(bound, wake_up_time())
    }
}

/// Says so, if sleepers usually take longer than that.
fn not_kept(bound: Duration, usual: Duration) -> Option<String> {
    (bound < usual).then(|| {
        let usual = usual.as_micros();
        format!("this machine wakes a sleeper after {usual} us: for {bound:?} lanes poll on instead, and sleep after 2 s")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(text: &str) -> anyhow::Result<IdlePolicy> {
        #[derive(clap::Parser)]
        struct Command {
            #[command(flatten)]
            idle: IdleFlags,
        }
        let words = ["command"].into_iter().chain(text.split_whitespace());
        <Command as clap::Parser>::try_parse_from(words)?.idle.policy()
    }

    #[test]
    fn presets_and_bounds_are_read() {
        assert_eq!(policy("").unwrap(), IdlePolicy::Balanced);
        assert_eq!(policy("--spin").unwrap(), IdlePolicy::Spin);
        assert_eq!(policy("--idle power").unwrap(), IdlePolicy::Power);
        let within = IdlePolicy::WakeWithin(Duration::from_micros(20));
        assert_eq!(policy("--wake-within 20us").unwrap(), within);
    }

    #[test]
    fn a_bound_that_sleepers_do_not_keep_here_is_told() {
        let micros = Duration::from_micros;
        assert_eq!(not_kept(micros(50), micros(50)), None);
        let told = not_kept(micros(20), micros(63)).unwrap();
        assert!(told.contains("after 63 us") && told.contains("for 20µs lanes poll on"), "{told}");
        // Without a bound there is nothing to tell.
        assert_eq!(IdleFlags::default().note(), None);
    }

    #[test]
    fn what_can_not_be_is_refused_with_the_remedy() {
        for (text, remedy) in [
            ("--wake-within 20", "say 50us"),
            ("--wake-within 1ns", "say --spin"),
            ("--wake-within 20us --spin", "cannot be used with"),
            ("--idle deep", "possible values"),
        ] {
            let error = format!("{:#}", policy(text).unwrap_err());
            assert!(error.contains(remedy), "{text}: {error}");
        }
    }
}
