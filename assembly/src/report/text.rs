//! The report as tables.

use std::fmt::Write as _;

use super::{ForwardReport, Report, StageReport};

pub(super) fn of(report: &Report) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = report.write(&mut text);
    text
}

impl Report {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        self.write_paths(text)?;
        if !self.paths.is_empty() && self.ports.is_empty() {
            return Ok(());
        }
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
        if let Some(forward) = &self.forward {
            forward.write(text)?;
        }
        for stage in self.stages.iter().filter(|stage| stage.has_news()) {
            writeln!(text, "  stage {:<26} {:>14}", stage.name, stage.packets)?;
            for (name, count) in stage.counters.values().flatten().filter(|(_, count)| **count > 0) {
                writeln!(text, "      {:<28} {count:>14}", name.replace('_', " "))?;
            }
            for (reason, count) in &stage.drops {
                writeln!(text, "      dropped: {reason:<19} {count:>14}")?;
            }
        }
        writeln!(text)?;
        for lane in &self.lanes {
            writeln!(
                text,
                "{} on CPU {}: {} packets, {} cycles each, {} a poll, {:.0} % busy, {:.1} % asleep",
                lane.name,
                lane.cpu.map_or_else(|| "any".to_owned(), |cpu| cpu.to_string()),
                lane.packets,
                lane.cycles_per_packet.map_or_else(|| "-".to_owned(), |cycles| format!("{cycles:.1}")),
                lane.packets_per_poll.map_or_else(|| "-".to_owned(), |packets| format!("{packets:.1}")),
                lane.busy_percent,
                lane.asleep_percent,
            )?;
            for (reason, count) in &lane.drops {
                writeln!(text, "{} drop {reason}: {count}", lane.name)?;
            }
            for (name, count) in lane.counters.values().flatten() {
                writeln!(text, "{} cache {}: {count} bytes", lane.name, name.replace('_', " "))?;
            }
        }
        if let Some(machine) = &self.machine {
            machine.write(text)?;
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

    /// What was forwarded inside the kernel.
    fn write_paths(&self, text: &mut String) -> std::fmt::Result {
        if self.paths.is_empty() {
            return Ok(());
        }
        writeln!(
            text,
            "{:<12} {:<8} {:>14} {:>14} {:>14} {:>10}",
            "interface", "path", "received", "= forwarded", "+ passed", "+ dropped"
        )?;
        for path in &self.paths {
            writeln!(
                text,
                "{:<12} {:<8} {:>14} {:>14} {:>14} {:>10}",
                path.interface, path.path, path.received, path.forwarded, path.passed, path.dropped
            )?;
            for (reason, count) in &path.passes {
                writeln!(text, "{:<12} passed {reason}: {count}", "")?;
            }
            for (reason, count) in &path.drops {
                writeln!(text, "{:<12} drop {reason}: {count}", "")?;
            }
        }
        writeln!(text)
    }

    fn rate(&self, packets: u64) -> f64 {
        packets as f64 / self.seconds.max(f64::MIN_POSITIVE) / 1e6
    }
}

impl ForwardReport {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text)?;
        writeln!(text, "packets at the forwarder")?;
        for (name, count) in [
            ("received", self.received),
            ("= forwarded", self.forwarded),
            ("+ answered (ARP, ND, echo)", self.answered),
            ("+ punted", self.punted),
            ("+ dropped", self.dropped),
        ] {
            writeln!(text, "  {name:<32} {count:>14}")?;
        }
        if self.held > 0 {
            writeln!(text, "  {:<32} {:>14}", "+ held for a neighbour", self.held)?;
        }
        for (reason, count) in &self.drops {
            writeln!(text, "      {reason:<28} {count:>14}")?;
        }
        for (name, count) in [
            ("ICMP errors sent", self.icmp_errors),
            ("ICMP errors held back by limit", self.icmp_errors_limited),
            ("ICMP errors that couldn't leave", self.icmp_errors_unsent),
            ("next hop found by flow", self.flow_hits),
            ("next hop found by route instead", self.flow_misses),
            ("packets fragmented", self.fragmented),
            ("passed on, and dropped by lanes", self.unsent),
        ] {
            if count > 0 {
                writeln!(text, "  {name:<32} {count:>14}")?;
            }
        }
        Ok(())
    }
}

impl StageReport {
    /// Whether there is something to say of it that isn't said of the forwarder in it.
    fn has_news(&self) -> bool {
        let has_counted = self.counters.values().any(|set| set.values().any(|&value| value > 0));
        has_counted || !self.drops.is_empty() || self.packets + self.made > 0 && !self.is_forwarder
    }
}
