//! `warmlane gen replay`: a capture instead of streams.

use super::output::ResultFlags;
use super::ports::PortFlags;
use super::trial::{RateFlags, TrialFlags, send};
use super::{report, values};
use crate::control_socket::ControlSocket;
use anyhow::{Context as _, bail};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use warmlane::assembly::Signals;
use warmlane::drivers::pcap::{PcapError, read_frames};
use warmlane::functions::generator::TrialConfig;
use warmlane::functions::generator::control::{Endpoints, Recording, Rewrite};
use warmlane::sys::clock::Clock;
use warmlane::wire::MacAddress;

/// Send the packets of a capture again.
///
/// When they were recorded, or --speed times as fast, or at --rate. Once, or until --loops, --count or --duration end it.
/// Recorded packets carry no signature, so only their number is measured.
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Arguments {
    /// The capture (pcap or pcapng).
    #[arg(value_name = "FILE")]
    capture: PathBuf,
    #[command(flatten)]
    ports: PortFlags,
    /// How many times as fast as it was recorded.
    #[arg(long, value_name = "FACTOR", conflicts_with = "rate", value_parser = values::speed)]
    speed: Option<f64>,
    #[command(flatten)]
    rate: RateFlags,
    /// How many times over.
    #[arg(long, value_name = "N", conflicts_with = "count", value_parser = clap::value_parser!(u64).range(1..))]
    loops: Option<u64>,
    /// Packets to send, if that ends it earlier.
    #[arg(long, value_name = "PACKETS")]
    count: Option<u64>,
    /// Seconds to send for, if that ends it earlier.
    #[arg(long, value_name = "SECONDS", value_parser = values::seconds, allow_hyphen_values = true)]
    duration: Option<Duration>,
    /// An address, or a prefix, that becomes another, as source and as destination: `10.0.0.0/8=198.0.0.0/8`.
    #[arg(long, value_name = "FROM=TO")]
    rewrite: Vec<Rewrite>,
    /// Source Ethernet address of all frames.
    #[arg(long, value_name = "MAC")]
    from_mac: Option<MacAddress>,
    /// Destination Ethernet address of all frames.
    #[arg(long, value_name = "MAC")]
    to_mac: Option<MacAddress>,
    #[command(flatten)]
    trial: TrialFlags,
    #[command(flatten)]
    result: ResultFlags,
}

pub(super) const EXAMPLES: &str = "\
Examples:
  Three times over, twice as fast as recorded, between other addresses:
    warmlane gen replay capture.pcap --transmit packet:eth0 --speed 2 \\
      --loops 3 --rewrite 10.0.0.0/8=198.0.0.0/8

  At a rate, for a minute, to a device under test:
    warmlane gen replay capture.pcap --transmit xdp:eth0 \\
      --to-mac 02:00:00:00:01:01 --rate 1Mpps --duration 60";

/// A round may take long: what ends it is a count.
const LONG: Duration = Duration::from_secs(86_400 * 365);

impl Arguments {
    pub(super) fn run(&self, signals: &Signals, socket: ControlSocket) -> anyhow::Result<()> {
        send(&self.trial()?, &self.ports, (signals, socket), &self.result, report::text)
    }

    fn trial(&self) -> anyhow::Result<TrialConfig> {
        let path = self.capture.display();
        let mut recording = Recording::new();
        read_frames(&self.capture, |time, frame| {
            recording.push(time, frame);
            Ok::<_, PcapError>(())
        })?;
        if recording.is_empty() {
            bail!("{path}: no packets to send");
        }
        recording.rewrite(&Endpoints {
            source: self.from_mac,
            destination: self.to_mac,
            addresses: self.rewrite.clone(),
        });
        let plan = Arc::new(recording.plan().with_context(|| path.to_string())?);
        let trial = self.rate.trial(plan, (None, None), &self.trial)?;
        let ends = self.count.is_some() || (self.duration.is_some() && self.loops.is_none());
        let loops = self.loops.or((!ends).then_some(1));
        let count = loops.map(|loops| loops.saturating_mul(recording.len() as u64)).or(self.count);
        let trial = TrialConfig { count, duration: self.duration.unwrap_or(LONG), ..trial };
        if self.rate.rate.is_some() {
            return Ok(trial);
        }
        if !recording.has_times() {
            bail!("{path}: its packets have no times: say how fast with --rate");
        }
        let pattern = recording.pattern(self.speed.unwrap_or(1.0), Clock::calibrated().cycles_per_second());
        Ok(TrialConfig { pattern, ..trial })
    }
}
