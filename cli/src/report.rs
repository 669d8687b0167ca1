//! What a forwarder did, for people and for scripts.

use crate::assembly::{Assembly, PortView};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;
use warmlane::lane::LaneView;
use warmlane::mem::Pool;
use warmlane::port::{DropCounters, QueueCounters};

/// Everything that is counted, at one moment. Its JSON form is described in docs/forward.md.
#[derive(Serialize)]
pub(crate) struct Report {
    pub(crate) seconds: f64,
    pub(crate) ports: Vec<PortReport>,
    /// The interfaces by which punted packets leave.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) punts: Vec<PortReport>,
    pub(crate) forward: ForwardReport,
    pub(crate) lanes: Vec<LaneReport>,
    pub(crate) pools: Vec<PoolReport>,
}

#[derive(Serialize)]
pub(crate) struct PortReport {
    pub(crate) name: String,
    pub(crate) driver: &'static str,
    pub(crate) received: Traffic,
    pub(crate) transmitted: Traffic,
}

#[derive(Default, Serialize)]
pub(crate) struct Traffic {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) drops: BTreeMap<&'static str, u64>,
}

#[derive(Default, Serialize)]
pub(crate) struct ForwardReport {
    pub(crate) received: u64,
    pub(crate) forwarded: u64,
    pub(crate) answered: u64,
    pub(crate) punted: u64,
    pub(crate) dropped: u64,
    pub(crate) unsent: u64,
    pub(crate) icmp_errors: u64,
    pub(crate) icmp_errors_limited: u64,
    pub(crate) icmp_errors_unsent: u64,
    pub(crate) fragmented: u64,
    pub(crate) fragments: u64,
    pub(crate) drops: BTreeMap<&'static str, u64>,
}

#[derive(Serialize)]
pub(crate) struct LaneReport {
    pub(crate) name: String,
    pub(crate) cpu: Option<usize>,
    pub(crate) packets: u64,
    pub(crate) cycles_per_packet: Option<f64>,
    pub(crate) packets_per_poll: Option<f64>,
    pub(crate) busy_percent: f64,
}

#[derive(Serialize)]
pub(crate) struct PoolReport {
    pub(crate) name: String,
    pub(crate) buffers: u32,
    pub(crate) taken: u64,
    pub(crate) freed: u64,
    pub(crate) outstanding: u64,
    pub(crate) available: u32,
    pub(crate) lowest: u32,
    pub(crate) refused: u64,
    pub(crate) pages: String,
}

impl Report {
    /// Reads all counters; the lanes need not stop for it.
    pub(crate) fn of(assembly: &Assembly, elapsed: Duration) -> Self {
        let lanes = assembly.lanes.views().iter().map(lane).collect();
        let mut forward = ForwardReport::default();
        for counters in &assembly.forwarders {
            forward.received += counters.received.get();
            forward.forwarded += counters.forwarded.get();
            forward.answered += counters.answered.get();
            forward.punted += counters.punted.get();
            forward.dropped += counters.drops.total();
            forward.icmp_errors += counters.errors_sent.get();
            forward.icmp_errors_limited += counters.errors_limited.get();
            forward.icmp_errors_unsent += counters.errors_unsent.get();
            forward.fragmented += counters.fragmented.get();
            forward.fragments += counters.fragmented.get() + counters.extra_fragments.get();
            add_drops(&mut forward.drops, &counters.drops);
        }
        forward.unsent = assembly.notes.iter().map(|notes| notes.unsent.get()).sum();
        Self {
            seconds: elapsed.as_secs_f64(),
            ports: assembly.ports.iter().map(port).collect(),
            punts: assembly.punts.iter().map(port).collect(),
            forward,
            lanes,
            pools: vec![pool(&assembly.pool)],
        }
    }

    /// As tables.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        writeln!(
            text,
            "{:<12} {:<8} {:>14} {:>10} {:>14} {:>10}",
            "port", "driver", "received", "Mpps", "transmitted", "Mpps"
        )?;
        for port in self.ports.iter().chain(&self.punts) {
            writeln!(
                text,
                "{:<12} {:<8} {:>14} {:>10.2} {:>14} {:>10.2}",
                port.name,
                port.driver,
                port.received.packets,
                self.rate(port.received.packets),
                port.transmitted.packets,
                self.rate(port.transmitted.packets),
            )?;
            for (direction, traffic) in [("receive", &port.received), ("transmit", &port.transmitted)] {
                for (reason, count) in &traffic.drops {
                    writeln!(text, "{:<12} {direction} drop {reason}: {count}", "")?;
                }
            }
        }
        let forward = &self.forward;
        writeln!(text)?;
        writeln!(text, "packets")?;
        for (name, count) in [
            ("received", forward.received),
            ("= forwarded", forward.forwarded),
            ("+ answered (ARP, ND, echo)", forward.answered),
            ("+ punted", forward.punted),
            ("+ dropped", forward.dropped),
        ] {
            writeln!(text, "  {name:<32} {count:>14}")?;
        }
        for (reason, count) in &forward.drops {
            writeln!(text, "      {reason:<28} {count:>14}")?;
        }
        for (name, count) in [
            ("ICMP errors sent", forward.icmp_errors),
            ("ICMP errors held back by limit", forward.icmp_errors_limited),
            ("ICMP errors that couldn't leave", forward.icmp_errors_unsent),
            ("packets fragmented", forward.fragmented),
            ("left behind as their port ended", forward.unsent),
        ] {
            if count > 0 {
                writeln!(text, "  {name:<32} {count:>14}")?;
            }
        }
        writeln!(text)?;
        for lane in &self.lanes {
            writeln!(
                text,
                "{} on CPU {}: {} packets, {} cycles each, {} a poll, {:.0} % busy",
                lane.name,
                lane.cpu.map_or_else(|| "any".to_owned(), |cpu| cpu.to_string()),
                lane.packets,
                lane.cycles_per_packet.map_or_else(|| "-".to_owned(), |cycles| format!("{cycles:.1}")),
                lane.packets_per_poll.map_or_else(|| "-".to_owned(), |packets| format!("{packets:.1}")),
                lane.busy_percent,
            )?;
        }
        for pool in &self.pools {
            writeln!(
                text,
                "pool '{}': {} buffers in {}; taken {}, freed {}, outstanding {}; available {}, at the lowest {}, refused {}",
                pool.name,
                pool.buffers,
                pool.pages,
                pool.taken,
                pool.freed,
                pool.outstanding,
                pool.available,
                pool.lowest,
                pool.refused
            )?;
        }
        Ok(())
    }

    fn rate(&self, packets: u64) -> f64 {
        packets as f64 / self.seconds.max(f64::MIN_POSITIVE) / 1e6
    }
}

fn port(view: &PortView) -> PortReport {
    PortReport {
        name: view.name.clone(),
        driver: view.driver,
        received: traffic(&view.receive),
        transmitted: traffic(&view.transmit),
    }
}

fn traffic(queues: &[Arc<QueueCounters>]) -> Traffic {
    let mut traffic = Traffic::default();
    for queue in queues {
        traffic.packets += queue.packets.get();
        traffic.bytes += queue.bytes.get();
        add_drops(&mut traffic.drops, &queue.drops);
    }
    traffic
}

/// Adds what is not zero.
fn add_drops(sums: &mut BTreeMap<&'static str, u64>, drops: &DropCounters) {
    for (reason, count) in drops.iter().filter(|&(_, count)| count > 0) {
        *sums.entry(reason.name).or_default() += count;
    }
}

fn lane(view: &LaneView) -> LaneReport {
    let counters = &view.counters;
    let (busy, idle) = (counters.busy_cycles.get(), counters.idle_cycles.get());
    LaneReport {
        name: view.name.clone(),
        cpu: view.cpu,
        packets: counters.packets.get(),
        cycles_per_packet: counters.cycles_per_packet(),
        packets_per_poll: counters.packets_per_poll(),
        busy_percent: 100.0 * busy as f64 / (busy + idle).max(1) as f64,
    }
}

fn pool(pool: &Pool) -> PoolReport {
    let (ledger, occupancy) = (pool.ledger(), pool.occupancy());
    PoolReport {
        name: pool.name().to_owned(),
        buffers: ledger.buffers,
        taken: ledger.taken,
        freed: ledger.freed,
        outstanding: ledger.outstanding(),
        available: occupancy.available,
        lowest: occupancy.lowest,
        refused: occupancy.refused,
        pages: pool.page_size().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmlane::mem::PoolConfig;

    #[test]
    fn every_count_is_shown_and_in_line() {
        let forward = ForwardReport {
            received: 1,
            unsent: 2,
            icmp_errors: 3,
            icmp_errors_limited: 4,
            icmp_errors_unsent: 5,
            fragmented: 6,
            ..ForwardReport::default()
        };
        let report =
            Report { seconds: 1.0, ports: vec![], punts: vec![], forward, lanes: vec![], pools: vec![] };
        let text = report.text();
        let (_, packets) = text.split_once("packets\n").unwrap();
        let counts: Vec<_> = packets.trim_end().lines().collect();
        assert_eq!(counts.len(), 10, "{text}");
        assert!(counts.iter().all(|line| line.len() == counts[0].len()), "{text}");
    }

    #[test]
    fn a_pool_that_ran_dry_says_so_afterwards() {
        let small = PoolConfig { buffers: 64, ..PoolConfig::default() };
        let made = Pool::new(&small).unwrap();
        let held: Vec<_> = std::iter::from_fn(|| made.take()).collect();
        assert_eq!((held.len(), pool(&made).available), (64, 0));
        drop(held);
        let after = pool(&made);
        assert_eq!((after.available, after.lowest, after.refused), (64, 0, 1));
        let report = Report {
            seconds: 1.0,
            ports: vec![],
            punts: vec![],
            forward: ForwardReport::default(),
            lanes: vec![],
            pools: vec![after],
        };
        assert!(report.text().contains("; available 64, at the lowest 0, refused 1\n"), "{}", report.text());
    }
}
