//! Whether a trial is a result, how long it really took, and what is unusual about it.

use warmlane_sys::clock::Clock;

use crate::datapath::{Pattern, TransmitReport};
use crate::result::TrialResult;
use crate::trial::TrialConfig;

/// Seconds by which a packet may leave late without telling anything: about as long as a poll takes.
const POLL: f64 = 1e-6;

/// How long was sent for, by the clock; 0 if all packets left at once, which tells no rate.
pub(crate) fn seconds(config: &TrialConfig, sent: &TransmitReport, clock: &Clock) -> f64 {
    // What left in the span is all but the last burst, which stands at its end.
    let departed = sent.sent + sent.dropped;
    let measured = match departed.saturating_sub(sent.last_burst) {
        0 => 0.0,
        before => span(sent, clock) * departed as f64 / before as f64,
    };
    // A pause at the end of the duration belongs to it; a count or a signal leaves none.
    let is_timed = sent.is_whole && config.count.is_none_or(|count| sent.offered < count);
    if is_timed { measured.max(config.duration.as_secs_f64()) } else { measured }
}

/// Seconds from the first departure to the last.
fn span(sent: &TransmitReport, clock: &Clock) -> f64 {
    clock.nanoseconds(sent.span) as f64 / 1e9
}

impl TrialResult {
    /// Says whether it is a result, and what is unusual about it.
    pub(crate) fn judge(&mut self, config: &TrialConfig, sent: &TransmitReport, clock: &Clock) {
        self.void = self.failure(config, sent).or_else(|| self.too_slow(config, sent, clock));
        self.note_sending(config, sent);
        let Some(arrived) = self.received.as_ref() else { return };
        if self.is_silent() {
            self.notes.push(format!(
                "the receiver got nothing of {} packets sent ({} damaged, {} foreign): is the device under test up, does it know the way, and are the destination addresses right?",
                self.sent, arrived.corrupted, arrived.foreign
            ));
        }
        if arrived.disorder.unjudged > 0 {
            self.notes.push(format!(
                "{} packets came so far behind their order that nobody knows whether they are duplicates; they count as lost",
                arrived.disorder.unjudged
            ));
        }
        if self.unsent.dropped > 0 && self.streams.len() > 1 {
            self.notes.push(format!(
                "the sending port dropped {} packets, nobody knows of which streams: the lost packets of streams include them",
                self.unsent.dropped
            ));
        }
        if !config.plan.is_signed() {
            self.notes.push(
                "packets carry no signature: received counts all packets, also those of others, and neither order nor latency is known".to_owned(),
            );
        }
    }

    /// Whether somebody listened and got nothing of what was sent.
    pub fn is_silent(&self) -> bool {
        self.sent > 0 && self.received.as_ref().is_some_and(|received| received.packets == 0)
    }

    /// Why it is no result because of packets that were not sent.
    fn failure(&self, config: &TrialConfig, sent: &TransmitReport) -> Option<String> {
        let unsent = self.unsent;
        let part = unsent.total as f64 / self.offered.max(1) as f64;
        if let Some(why) = &sent.failure
            && (unsent.total > 0 || config.count.is_none_or(|count| sent.sent < count))
        {
            return Some(format!("the transmitting port failed: {why}"));
        }
        if self.sent == 0 {
            return Some("nothing was sent: the port took no packet".to_owned());
        }
        if part <= config.tolerance {
            return None;
        }
        let parts = [
            (unsent.late, "skipped because the lane was held up"),
            (unsent.refused, "refused by the port"),
            (unsent.dropped, "dropped by the port"),
        ];
        let parts = parts.iter().filter(|(count, _)| *count > 0);
        let parts: Vec<String> = parts.map(|(count, how)| format!("{count} {how}")).collect();
        Some(format!(
            "the generator did not keep the rate: {:.3} % of {} packets were not sent ({}); ask for less, or for a quieter machine",
            part * 100.0,
            self.offered,
            parts.join(", ")
        ))
    }

    /// Why it is no result because packets were sent more slowly than asked. One delay that the generator may make up for
    /// is forgiven: it may have come too near the end.
    fn too_slow(&self, config: &TrialConfig, sent: &TransmitReport, clock: &Clock) -> Option<String> {
        let gap = 1.0 / config.packets_per_second;
        // Packets that leave together, and by how much the last one's time is open.
        let (together, open) = match config.pattern {
            Pattern::Unpaced | Pattern::Recorded(_) => return None,
            Pattern::Constant => (1.0, 0.0),
            Pattern::Bursts(packets) => (f64::from(packets), f64::from(packets) * gap),
            // Six standard deviations of a sum of exponentially distributed gaps.
            Pattern::Poisson => (1.0, 6.0 * (self.offered as f64).sqrt() * gap),
        };
        let due = (self.offered as f64 - together).max(0.0) * gap;
        let longest = sent.gaps.maximum().map_or(0, |longest| clock.nanoseconds(longest)) as f64 / 1e9;
        let forgiven = (longest - together * gap).clamp(0.0, config.patience.as_secs_f64());
        let span = span(sent, clock);
        (span > due * (1.0 + config.tolerance) + open + forgiven + POLL).then(|| {
            format!(
                "the generator did not keep the rate: from the first packet to the last it took {:.3} ms, and the rate asks for {:.3} ms; ask for less, or for a quieter machine",
                span * 1e3,
                due * 1e3
            )
        })
    }

    fn note_sending(&mut self, config: &TrialConfig, sent: &TransmitReport) {
        if !sent.is_whole && sent.failure.is_none() {
            self.notes.push(match config.count {
                Some(count) => format!("ended early: after {} packets of {count}", self.offered),
                None => format!(
                    "ended early: after {:.1} s of {:.1}",
                    self.seconds,
                    config.duration.as_secs_f64()
                ),
            });
        }
        if self.sent > 0 && self.seconds <= 0.0 {
            self.notes.push("all packets left at once, which tells no rate: send more of them".to_owned());
        }
        if sent.starved > 0 {
            self.notes.push(format!(
                "the pool had no buffer {} times: packets were held by ports for longer than the pool lasts; give it more buffers",
                sent.starved
            ));
        }
    }
}
