//! `warmlane gen --replay`: a capture instead of streams.

use super::{Arguments, Method};
use crate::drivers;
use anyhow::{Context as _, bail};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use warmlane::functions::generator::TrialConfig;
use warmlane::functions::generator::control::{Recording, Rewrite, Stations};
use warmlane::sys::clock::Clock;

#[derive(clap::Args, Debug)]
pub(super) struct RecordingFlags {
    /// Send the packets of this capture (pcap or pcapng) instead, when they were recorded, or at --rate if that is given.
    ///
    /// Once, or until --loops, --count or --duration end it. --from-mac and --to-mac are put into all of them.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["config", "cable", "size", "from", "to", "protocol", "ports",
        "vlan", "payload", "vary", "unsigned", "self_test"])]
    replay: Option<PathBuf>,
    /// How many times as fast as it was recorded.
    #[arg(long, value_name = "FACTOR", requires = "replay", conflicts_with = "rate", value_parser = speed)]
    speed: Option<f64>,
    /// How many times over.
    #[arg(long, value_name = "N", requires = "replay", conflicts_with = "count", value_parser = clap::value_parser!(u64).range(1..))]
    loops: Option<u64>,
    /// An address, or a prefix, that becomes another, as source and as destination: `10.0.0.0/8=198.0.0.0/8`.
    #[arg(long, value_name = "FROM=TO", requires = "replay")]
    rewrite: Vec<Rewrite>,
}

fn speed(text: &str) -> Result<f64, String> {
    let factor = text.parse::<f64>().ok().filter(|factor| (1e-6..=1e6).contains(factor));
    factor.ok_or_else(|| "give a factor from 0.000001 to 1000000, as in 2.5".to_owned())
}

/// A round may take long: what ends it is a count.
const LONG: Duration = Duration::from_secs(86_400 * 365);

impl RecordingFlags {
    pub(super) const fn is_given(&self) -> bool {
        self.replay.is_some()
    }

    /// The trial, if a recording is to be sent.
    pub(super) fn read(&self, arguments: &Arguments) -> anyhow::Result<Option<TrialConfig>> {
        let Some(path) = &self.replay else { return Ok(None) };
        let mut recording = Recording::new();
        drivers::read_frames(path, |time, frame| {
            recording.push(time, frame);
            Ok(())
        })?;
        if recording.is_empty() {
            bail!("{}: no packets to send", path.display());
        }
        let mac = |text: &Option<String>, flag| text.as_deref().map(str::parse).transpose().context(flag);
        recording.rewrite(&Stations {
            source: mac(&arguments.traffic.from_mac, "--from-mac")?,
            destination: mac(&arguments.traffic.to_mac, "--to-mac")?,
            addresses: self.rewrite.clone(),
        });
        let plan = recording.plan().with_context(|| path.display().to_string())?;
        let flags = &arguments.trial;
        let trial = flags.config((None, None), Arc::new(plan), Method::Trial)?;
        let ends = flags.count.is_some() || (flags.duration.is_some() && self.loops.is_none());
        let loops = self.loops.or((!ends).then_some(1));
        let count = loops.map(|loops| loops.saturating_mul(recording.len() as u64)).or(flags.count);
        let duration = if flags.duration.is_none() { LONG } else { trial.duration };
        if flags.rate.is_some() {
            return Ok(Some(TrialConfig { count, duration, ..trial }));
        }
        if !recording.has_times() {
            bail!("{}: its packets have no times: say how fast with --rate", path.display());
        }
        let pattern = recording.pattern(self.speed.unwrap_or(1.0), Clock::calibrated().cycles_per_second());
        Ok(Some(TrialConfig { pattern, count, duration, ..trial }))
    }
}
