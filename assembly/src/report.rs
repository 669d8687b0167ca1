//! What a program did, at one moment: for people and for scripts.

mod read;
mod text;

use serde::Serialize;
use std::collections::BTreeMap;

use warmlane_router::paths::PathReport;

use crate::lanes::Assembly;
use crate::machine::MachineReport;

/// Drops by reason; only what is not zero.
pub type Drops = BTreeMap<&'static str, u64>;

/// What sets of counters say, by their names and those of their values, with underscores for hyphens.
pub type Sets = BTreeMap<String, BTreeMap<String, u64>>;

/// Everything that is in the [registry](Assembly::registry). Its JSON form is described in docs/forward.md.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// How long the lanes have run.
    pub seconds: f64,
    /// By port.
    pub ports: Vec<PortReport>,
    /// The interfaces by which punted packets leave.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub punts: Vec<PortReport>,
    /// What came in by interfaces whose packets are forwarded inside the kernel.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathReport>,
    /// What became of the packets, where forwarders run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forward: Option<ForwardReport>,
    /// By stage, all lanes together.
    pub stages: Vec<StageReport>,
    /// By lane.
    pub lanes: Vec<LaneReport>,
    /// What the machine did to the lanes, if there are some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<MachineReport>,
    /// By pool.
    pub pools: Vec<PoolReport>,
    /// What functions count apart from their stages.
    #[serde(flatten)]
    pub functions: Sets,
}

/// What a port's queues have moved.
#[derive(Debug, Default, Serialize)]
pub struct PortReport {
    /// Its name.
    pub name: String,
    /// Its driver's.
    pub driver: String,
    /// By its receive queues.
    pub received: Traffic,
    /// By its transmit queues.
    pub transmitted: Traffic,
    /// What only this kind of port counts, by set.
    #[serde(skip_serializing_if = "Sets::is_empty")]
    pub counters: Sets,
}

/// Packets one way.
#[derive(Debug, Default, Serialize)]
pub struct Traffic {
    /// How many.
    pub packets: u64,
    /// Their bytes, without frame check sequences.
    pub bytes: u64,
    /// Packets dropped, by reason.
    pub drops: Drops,
}

/// What became of the packets that forwarders were given: `received = forwarded + answered + punted + held + dropped`, which is the
/// balance of their [set of counters](warmlane_forward::datapath::ForwardCounters).
#[derive(Debug, Default, Serialize)]
pub struct ForwardReport {
    /// Packets that came in.
    pub received: u64,
    /// Packets passed on to a port.
    pub forwarded: u64,
    /// Packets that were questions to us, and became the answers.
    pub answered: u64,
    /// Packets given to what punts them to the kernel.
    pub punted: u64,
    /// Packets that wait until their neighbour's Ethernet address is known.
    pub held: u64,
    /// Packets dropped.
    pub dropped: u64,
    /// Packets passed on that lanes then had to drop, before a port or stage took them.
    pub unsent: u64,
    /// ICMP errors sent.
    pub icmp_errors: u64,
    /// ICMP errors not sent because there were too many.
    pub icmp_errors_limited: u64,
    /// ICMP errors not sent for want of a buffer, an address or space.
    pub icmp_errors_unsent: u64,
    /// Packets of flows that have next hops of their own.
    pub flow_hits: u64,
    /// Packets that were looked up by route because no flow matched; 0 without flows.
    pub flow_misses: u64,
    /// Packets that were cut into fragments.
    pub fragmented: u64,
    /// Fragments.
    pub fragments: u64,
    /// What was dropped, by reason.
    pub drops: Drops,
}

/// What a stage did, on all lanes together.
#[derive(Debug, Default, Serialize)]
pub struct StageReport {
    /// Its name.
    pub name: String,
    /// Packets that it was given.
    pub packets: u64,
    /// Packets that it made, or let go after having held them.
    pub made: u64,
    /// What else it counts, by set.
    #[serde(skip_serializing_if = "Sets::is_empty")]
    pub counters: Sets,
    /// What it dropped, by reason.
    pub drops: Drops,
    /// A forwarder is in it, whose counters are in [`ForwardReport`] instead.
    #[serde(skip)]
    pub is_forwarder: bool,
}

/// What a lane did.
#[derive(Debug, Default, Serialize)]
pub struct LaneReport {
    /// Its name.
    pub name: String,
    /// Its CPU.
    pub cpu: Option<usize>,
    /// Packets it moved.
    pub packets: u64,
    /// Cycles each, of the polls that moved some.
    pub cycles_per_packet: Option<f64>,
    /// Packets each poll that moved some.
    pub packets_per_poll: Option<f64>,
    /// The share of its time spent in such polls.
    pub busy_percent: f64,
    /// The share of its time in which it left its CPU alone, and so its cycles to others or halted: naps, sleeps and pauses.
    pub asleep_percent: f64,
    /// Times it slept for a set time, and until something woke it.
    pub naps: u64,
    /// See `naps`.
    pub sleeps: u64,
    /// What else is counted of it, by set.
    #[serde(skip_serializing_if = "Sets::is_empty")]
    pub counters: Sets,
    /// What it had to drop on the way between stages and ports, by reason.
    pub drops: Drops,
}

/// How a pool is used.
#[derive(Debug, Default, Serialize)]
pub struct PoolReport {
    /// Its name.
    pub name: String,
    /// How many buffers it has.
    pub buffers: u32,
    /// Buffers taken so far.
    pub taken: u64,
    /// Buffers freed so far.
    pub freed: u64,
    /// Their difference.
    pub outstanding: u64,
    /// Buffers that can be taken now.
    pub available: u32,
    /// The fewest that could be taken.
    pub lowest: u32,
    /// Times that there was none.
    pub refused: u64,
    /// What pages it lies in.
    pub pages: String,
}

impl Report {
    /// Reads all counters; the lanes need not stop for it.
    pub fn of(assembly: &Assembly) -> Self {
        let registry = assembly.registry();
        let of_punts = assembly.punts().clone();
        let is_punt = |port: &PortReport| of_punts.contains(&port.name);
        let (punts, ports) = read::ports(registry).into_iter().partition(is_punt);
        let seconds = assembly.began.elapsed().as_secs_f64();
        let has_lanes = !assembly.lanes().views().is_empty();
        Self {
            seconds,
            ports,
            punts,
            paths: read::paths(registry),
            forward: read::forward(registry),
            stages: read::stages(registry),
            lanes: read::lanes(registry, assembly.lanes().views()),
            machine: has_lanes.then(|| assembly.machine.report(seconds, registry)),
            pools: read::pools(registry),
            functions: read::functions(registry),
        }
    }

    /// As tables.
    pub fn text(&self) -> String {
        text::of(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmlane_mem::{Pool, PoolConfig};

    #[test]
    fn every_count_is_shown_and_in_line() {
        let forward = ForwardReport {
            received: 1,
            unsent: 2,
            icmp_errors: 3,
            icmp_errors_limited: 4,
            icmp_errors_unsent: 5,
            fragmented: 6,
            flow_hits: 7,
            flow_misses: 8,
            ..ForwardReport::default()
        };
        let report = Report { seconds: 1.0, forward: Some(forward), ..Report::default() };
        let text = report.text();
        let (_, packets) = text.split_once("packets at the forwarder\n").unwrap();
        let counts: Vec<_> = packets.trim_end().lines().collect();
        assert_eq!(counts.len(), 12, "{text}");
        assert!(counts.iter().all(|line| line.len() == counts[0].len()), "{text}");
    }

    #[test]
    fn a_pool_that_ran_dry_says_so_afterwards() {
        let pool = read::pool;
        let small = PoolConfig { buffers: 64, ..PoolConfig::default() };
        let made = Pool::new(&small).unwrap();
        let held: Vec<_> = std::iter::from_fn(|| made.take()).collect();
        assert_eq!((held.len(), pool(&made).available), (64, 0));
        drop(held);
        let after = pool(&made);
        assert_eq!((after.available, after.lowest, after.refused), (64, 0, 1));
        let report = Report { seconds: 1.0, pools: vec![after], ..Report::default() };
        assert!(report.text().contains("; available 64, at the lowest 0, refused 1\n"), "{}", report.text());
    }
}
