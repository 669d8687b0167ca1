//! `warmlane docsis`

mod figures;
mod group;
mod ports;

use crate::control_socket::ControlSocketFlags;
use crate::messages;
use anyhow::{Context as _, bail, ensure};
use figures::{Each, Figure};
use group::GroupFlags;
use serde::Serialize;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;
use warmlane::assembly::docsis::{Loopback, LoopbackResult};
use warmlane::assembly::{Signals, graphs, layout};
use warmlane::control::{Fixed, Graphs};
use warmlane::counters::{DropReason, DropView, DurationHistogramView, Labels, Registry};
use warmlane::functions::docsis::DownstreamViews;
use warmlane::functions::docsis::control::ServiceGroup;
use warmlane::functions::docsis::modem::ModemCountersView;
use warmlane::functions::docsis::upper::FlowCountersView;
use warmlane::functions::generator::control::{Sizes, cable};
use warmlane::functions::generator::{Received, TrialConfig};
use warmlane::mem::{Pool, PoolConfig, PoolKind};

/// Run a DOCSIS downstream in memory: encrypted MAC frames for 300 modems, taken apart again and compared.
///
/// The cable mix of `warmlane gen` goes through the upper and the lower MAC, each on a lane, over R-DEPI to simulated modems, and back to the
/// generator, which checks each packet. Ends with what each stage costs, and an account of every packet. Needs no
/// privilege and no network card. What is implemented: docs/docsis.md.
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Seconds to send for.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    duration: u64,
    #[command(flatten)]
    group: GroupFlags,
    /// Milliseconds from one change of all keys to the next; 0 for none.
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 500)]
    roll_keys: u64,
    /// The kind of pool that packets' buffers come from.
    #[arg(long, value_enum, default_value_t = PoolSetting::Depot)]
    pool: PoolSetting,
    /// Buffers that lanes exchange with the pool at a time; 0 for none of their own. As many as are best if not given.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(0..=256))]
    lane_cache: Option<u32>,
    /// The CPUs of the upper MAC, the lower MAC and the modems, as in 2,3,4: threads of one core for the first two, if they shall be siblings.
    #[arg(long, value_name = "CPUS", value_delimiter = ',', num_args = 3)]
    cpus: Vec<usize>,
    /// How many downstreams run side by side, each with a pool, a generator and modems of its own.
    #[arg(long, value_name = "COUNT", default_value_t = 1, conflicts_with = "cpus", value_parser = clap::value_parser!(u8).range(1..=12))]
    instances: u8,
    /// Print the account as one JSON object on standard output, and nothing else there; of several instances, a list under `instances`.
    #[arg(long)]
    json: bool,
    /// Add to that what the registry of counters has of each modem, service flow and channel, as a list under `figures`.
    #[arg(long, requires = "json")]
    figures: bool,
    #[command(flatten)]
    control: ControlSocketFlags,
}

/// One end between ports.
#[derive(clap::Subcommand, Debug)]
enum Command {
    Send(ports::SendArguments),
    Receive(ports::ReceiveArguments),
}

/// The order of reuse of buffers.
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
pub(crate) enum PoolSetting {
    /// Whole magazines go round.
    #[default]
    Depot,
    /// Last in, first out.
    Stack,
    /// First in, first out.
    Ring,
}

impl PoolSetting {
    pub(crate) const fn kind(self) -> PoolKind {
        match self {
            Self::Depot => PoolKind::Depot,
            Self::Stack => PoolKind::Stack,
            Self::Ring => PoolKind::Ring,
        }
    }
}

const EXAMPLES: &str = "\
Examples:
  What a downstream costs on this machine:
    warmlane docsis

  What it costs without encryption:
    warmlane docsis --no-encryption --duration 3

  300 modems on three OFDM and 32 SC-QAM channels, 5 Mbit/s each:
    warmlane docsis --ofdm 3 --sc-qam 32 --maximum-rate 5000000

  With the pool that Intel's reference data plane began with:
    warmlane docsis --pool ring --lane-cache 256";

/// Buffers: more than all queues, the channel between the lanes and the cables hold.
pub(crate) const BUFFERS: u32 = 98_304;
/// How long to wait for the last packets: a busy machine takes its time, and whoever dropped some says so.
const DRAIN: Duration = Duration::from_secs(300);
/// How long modems wait for a packet that is missing, and packets in queues for their turn.
const TIMEOUT: Duration = Duration::from_secs(2);

/// What came of a run.
#[derive(Default, Serialize)]
struct Account {
    /// Packets that the generator sent.
    sent: u64,
    /// Those that came back intact, each counted once.
    delivered: u64,
    /// Those that came back twice, damaged or behind a later one of their modem's.
    wrong: u64,
    /// Packets dropped, by who did it and why.
    drops: Vec<Drop>,
    /// How often all keys were changed.
    key_changes: u64,
    /// Packets delivered a second.
    packets_per_second: f64,
    /// Bits of the service flows delivered a second.
    bits_per_second: f64,
    /// Latency from the generator to the generator in nanoseconds: median, and 99 in 100.
    latency: Option<[u64; 2]>,
    /// What each stage has cost.
    stages: Vec<Stage>,
    /// By channel.
    channels: Vec<Channel>,
    /// Packets of each modem and of each service flow.
    each: Vec<Each>,
    /// Of each modem, service flow and channel, if asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    figures: Vec<Figure>,
}

#[derive(Serialize)]
struct Drop {
    by: &'static str,
    reason: &'static str,
    packets: u64,
}

#[derive(Serialize)]
struct Stage {
    name: &'static str,
    packets: u64,
    cycles_per_packet: f64,
}

#[derive(Serialize)]
struct Channel {
    name: String,
    packets: u64,
    bits_per_second: f64,
    /// Nanoseconds from the upper lane to a packet to the remote PHY: median, and 99 in 100.
    latency: Option<[u64; 2]>,
    /// By how much that differs from the packet before in the same service flow: the same.
    jitter: Option<[u64; 2]>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let socket = arguments.control.open("docsis")?;
    match &arguments.command {
        Some(Command::Send(arguments)) => return ports::send(arguments, socket),
        Some(Command::Receive(arguments)) => return ports::receive(arguments, socket),
        None => {}
    }
    let signals = Signals::catch()?;
    let group = arguments.group.read_patient(TIMEOUT)?;
    let started = (0..arguments.instances).map(|_| start(&group, arguments));
    let mut runs = started.collect::<anyhow::Result<Vec<_>>>()?;
    let registry = Registry::new();
    let (mut lanes, mut all, mut pools) = (Vec::new(), Graphs::default(), Vec::new());
    for (number, run) in runs.iter().enumerate() {
        let several = (arguments.instances > 1).then(|| Labels::new().with("downstream", number));
        let labels = several.unwrap_or_default();
        registry.add_all(&labels, &run.registry());
        let views = run.lanes();
        all.lanes.extend(graphs(&labels, &views).lanes);
        lanes.extend(views);
        pools.push((labels, run.pool().clone()));
    }
    let fixed = Fixed { graphs: all, layout: layout(&pools) };
    let pool = pools.first().map(|(_, pool)| pool);
    let _service = socket.serve_fixed(&registry, &lanes, fixed, pool)?;
    let accounts = match runs.pop() {
        Some(only) if runs.is_empty() => vec![trial(only, &group, arguments, &signals)?],
        last => std::thread::scope(|scope| {
            let (group, signals) = (&group, &signals);
            let spawn = |run| scope.spawn(move || trial(run, group, arguments, signals));
            let threads: Vec<_> = runs.into_iter().chain(last).map(spawn).collect();
            let ended = threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|_| bail!("an instance has panicked")));
            ended.collect::<anyhow::Result<Vec<_>>>()
        })?,
    };
    let text = match &accounts[..] {
        [account] if arguments.json => format!("{}\n", serde_json::to_string(account)?),
        accounts if arguments.json => format!("{}\n", serde_json::json!({ "instances": accounts })),
        accounts => accounts.iter().map(Account::text).collect(),
    };
    messages::print(text)?;
    accounts.iter().try_for_each(Account::check)
}

fn start<'a>(group: &'a ServiceGroup, arguments: &Arguments) -> anyhow::Result<Loopback<'a>> {
    let (kind, magazine) = (arguments.pool.kind(), arguments.lane_cache);
    let pool = Pool::new(&PoolConfig { buffers: BUFFERS, kind, magazine, ..PoolConfig::default() })?;
    if let Some(fallback) = pool.fallback() {
        messages::note(format_args!("packet memory: {fallback}"));
    }
    Ok(Loopback::start(group, pool, &arguments.cpus)?)
}

fn trial(
    loopback: Loopback<'_>,
    group: &ServiceGroup,
    arguments: &Arguments,
    signals: &Signals,
) -> anyhow::Result<Account> {
    let sizes: Sizes = "cable".parse().map_err(|error| anyhow::anyhow!("{error}"))?;
    let plan = Arc::new(cable::downstream(group.modems.len() as u32, &sizes).plan()?);
    let config = TrialConfig {
        duration: Duration::from_secs(arguments.duration),
        drain: DRAIN,
        ..TrialConfig::new(plan)
    };
    let pause = Duration::from_millis(arguments.roll_keys);
    messages::line(format_args!("a downstream for {} modems; Ctrl-C ends it earlier", group.modems.len()));
    let result = loopback.run(&config, pause, &mut |_| !signals.is_stopped())?;
    let mut account = account(group, &result)?;
    let registry = Registry::new();
    result.views.register(&registry, group);
    account.each = Each::of(&registry);
    if arguments.figures {
        account.figures = Figure::all(&registry);
    }
    Ok(account)
}

/// What has been dropped so far.
fn drops(views: &DownstreamViews, modems: &ModemCountersView) -> Vec<Drop> {
    let parts: [(_, &DropView); 3] =
        [("upper MAC", views.upper.drops()), ("lower MAC", views.lower.drops()), ("modems", modems.drops())];
    let of = |(by, view): (_, &DropView)| {
        let drop = |(reason, packets): (&DropReason, _)| Drop { by, reason: reason.name, packets };
        view.iter().map(drop).filter(|drop| drop.packets > 0).collect::<Vec<_>>()
    };
    parts.into_iter().flat_map(of).collect()
}

fn total(drops: &[Drop]) -> u64 {
    drops.iter().map(|drop| drop.packets).sum()
}

fn account(group: &ServiceGroup, result: &LoopbackResult) -> anyhow::Result<Account> {
    let LoopbackResult { trial, views, modems, key_changes } = result;
    let received: &Received = trial.received.as_ref().context("the generator has received nothing")?;
    let seconds = trial.seconds.max(f64::MIN_POSITIVE);
    let stages = views.stages().into_iter().map(|stage| Stage {
        name: stage.name,
        packets: stage.packets,
        cycles_per_packet: stage.cycles as f64 / stage.packets.max(1) as f64,
    });
    let channels = group.channels.iter().zip(&views.channels).zip(&views.channel_delays);
    let channels = channels.map(|((channel, view), delays)| Channel {
        name: channel.name.clone(),
        packets: view.packets(),
        bits_per_second: view.bytes() as f64 * 8.0 / seconds,
        latency: median_and_p99(&delays.latency),
        jitter: median_and_p99(&delays.jitter),
    });
    Ok(Account {
        sent: trial.sent,
        delivered: received.packets,
        wrong: received.disorder.duplicated
            + received.corrupted
            + received.disorder.reordered
            + received.foreign,
        drops: drops(views, modems),
        key_changes: *key_changes,
        packets_per_second: received.packets as f64 / seconds,
        bits_per_second: views.flows.iter().map(FlowCountersView::bytes).sum::<u64>() as f64 * 8.0 / seconds,
        latency: received.latency.as_ref().map(|latency| [latency.median, latency.p99]),
        stages: stages.collect(),
        channels: channels.collect(),
        each: Vec::new(),
        figures: Vec::new(),
    })
}

fn median_and_p99(histogram: &DurationHistogramView) -> Option<[u64; 2]> {
    let times = histogram.times();
    Some([times.quantile(0.5)?, times.quantile(0.99)?])
}

impl Account {
    /// Whether each packet was delivered once, whole and in order, or dropped for a reason that is named.
    fn check(&self) -> anyhow::Result<()> {
        let dropped = total(&self.drops);
        ensure!(
            self.wrong == 0 && self.delivered + dropped == self.sent,
            "{} packets were sent, {} came back, {dropped} were dropped, {} came back wrong: this is a defect in Warmlane, please report it",
            self.sent,
            self.delivered,
            self.wrong
        );
        Ok(())
    }

    fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "{:<16} {:>14} {:>16}", "stage", "packets", "cycles a packet")?;
        for stage in &self.stages {
            writeln!(text, "{:<16} {:>14} {:>16.1}", stage.name, stage.packets, stage.cycles_per_packet)?;
        }
        writeln!(
            text,
            "\n{:<16} {:>14} {:>16} {:>23} {:>23}",
            "channel", "packets", "Mbit/s", "latency, 50/99 % (µs)", "jitter, 50/99 % (µs)"
        )?;
        let pair = |times: Option<[u64; 2]>| {
            times.map_or_else(
                || "-".to_owned(),
                |times| times.map(|time| format!("{:.1}", time as f64 / 1e3)).join("/"),
            )
        };
        for channel in &self.channels {
            writeln!(
                text,
                "{:<16} {:>14} {:>16.1} {:>23} {:>23}",
                channel.name,
                channel.packets,
                channel.bits_per_second / 1e6,
                pair(channel.latency),
                pair(channel.jitter)
            )?;
        }
        writeln!(
            text,
            "\n{:<16} {:>14} {:>16} {:>23} {:>23}",
            "packets each", "count", "least", "median", "most"
        )?;
        for Each { name, count, packets: [least, median, most] } in &self.each {
            writeln!(text, "{name:<16} {count:>14} {least:>16} {median:>23} {most:>23}")?;
        }
        writeln!(
            text,
            "\n{:.3} Mpps, {:.3} Gbit/s; keys of all modems changed {} times",
            self.packets_per_second / 1e6,
            self.bits_per_second / 1e9,
            self.key_changes
        )?;
        if let Some([median, p99]) = self.latency {
            writeln!(
                text,
                "latency: {:.1} µs in the median, 99 in 100 within {:.1} µs",
                median as f64 / 1e3,
                p99 as f64 / 1e3
            )?;
        }
        writeln!(text, "{} sent = {} delivered, byte for byte and in order", self.sent, self.delivered)?;
        for drop in &self.drops {
            writeln!(text, "  + {} dropped by {}: {}", drop.packets, drop.by, drop.reason)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_that_nobody_accounts_for_is_a_defect() {
        let drops = || vec![Drop { by: "upper MAC", reason: "queue-full", packets: 3 }];
        let account =
            |sent, delivered, wrong| Account { sent, delivered, wrong, drops: drops(), ..Account::default() };
        account(10, 7, 0).check().unwrap();
        for (sent, delivered, wrong) in [(10, 6, 0), (10, 8, 0), (10, 7, 1)] {
            account(sent, delivered, wrong).check().unwrap_err();
        }
    }
}
