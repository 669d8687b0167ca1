//! What a trial came to, for people and for scripts.

use std::collections::BTreeMap;

use serde::Serialize;
use warmlane_sys::clock::Clock;

use crate::control::FCS;
use crate::control::rate::WIRE_OVERHEAD;
use crate::datapath::{Disorder, Histogram, Pattern, ReceiveReport, StreamTrack, TransmitReport};
use crate::judge;
use crate::samples::{self, Interval, Sample};
use crate::trial::TrialConfig;

/// A trial's counts: offered = sent + unsent, and sent = received + corrupted + lost.
#[derive(Clone, Debug, Serialize)]
pub struct TrialResult {
    /// Why this is no result; `None` if it is one.
    pub void: Option<String>,
    /// What a reader should know.
    pub notes: Vec<String>,
    /// Packets a second that were asked for; `None` for as many as possible.
    pub asked_packets_per_second: Option<f64>,
    /// Seconds of sending, by the clock; 0 if all packets left at once.
    pub seconds: f64,
    /// Packets that fell due.
    pub offered: u64,
    /// Packets that the port took.
    pub sent: u64,
    /// Packets that fell due and did not leave.
    pub unsent: Unsent,
    /// Packets sent a second.
    pub sent_packets_per_second: f64,
    /// Bits sent a second in frames, frame check sequence counted.
    pub sent_bits_per_second_l2: f64,
    /// Bits sent a second on the wire, with preamble and gap.
    pub sent_bits_per_second_l1: f64,
    /// What arrived; `None` if nobody listened.
    pub received: Option<Received>,
    /// Gaps between packets as they were handed to the port, in nanoseconds.
    pub departures: Departures,
    /// By stream.
    pub streams: Vec<StreamResult>,
    /// Counts over time.
    pub samples: Vec<Sample>,
}

/// Packets that did not leave, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Unsent {
    /// All of them.
    pub total: u64,
    /// Skipped because the sending lane was held up (by the system, or because it is too slow).
    pub late: u64,
    /// The port had no space for them until the end.
    pub refused: u64,
    /// The port took and dropped them.
    pub dropped: u64,
}

/// What arrived.
#[derive(Clone, Debug, Serialize)]
pub struct Received {
    /// Packets that arrived intact, each counted once.
    pub packets: u64,
    /// Their bytes, without frame check sequence.
    pub bytes: u64,
    /// The same a second of sending: RFC 2544's throughput if nothing was lost.
    pub packets_per_second: f64,
    /// Packets sent that did not arrive, not even damaged.
    pub lost: u64,
    /// (lost + corrupted) / sent.
    pub loss_ratio: f64,
    /// Packets that arrived again, or behind later ones, of all streams.
    #[serde(flatten)]
    pub disorder: Disorder,
    /// Packets that arrived damaged.
    pub corrupted: u64,
    /// Packets that arrived later than they may; they count as arrived.
    pub late: u64,
    /// Packets of an earlier trial.
    pub stale: u64,
    /// Packets that are none of ours.
    pub foreign: u64,
    /// Latency of all streams together; `None` if nothing was measured.
    pub latency: Option<Latency>,
}

/// Times from building a packet to receiving it, in nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Latency {
    /// The shortest.
    pub minimum: u64,
    /// The mean.
    pub mean: f64,
    /// Half took at most this long.
    pub median: u64,
    /// 99 in 100.
    pub p99: u64,
    /// 999 in 1,000.
    pub p99_9: u64,
    /// 9,999 in 10,000.
    pub p99_99: u64,
    /// The longest.
    pub maximum: u64,
    /// Interarrival jitter at the end (RFC 3550), the largest of all streams.
    pub jitter: u64,
    /// The histogram: upper ends of buckets in nanoseconds, and counts.
    pub histogram: Vec<(u64, u64)>,
}

/// Gaps between departures in nanoseconds. Packets handed over together are 0 apart.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Departures {
    /// What all gaps would be if packets were spaced evenly; `None` without a rate.
    pub ideal: Option<f64>,
    /// The mean.
    pub mean: f64,
    /// Half are at most this long.
    pub median: u64,
    /// 99 in 100.
    pub p99: u64,
    /// 999 in 1,000.
    pub p99_9: u64,
    /// The longest.
    pub maximum: u64,
    /// The part of packets that left together with the one before.
    pub together: f64,
    /// The histogram: upper ends of buckets in nanoseconds, and counts.
    pub histogram: Vec<(u64, u64)>,
}

/// One stream.
#[derive(Clone, Debug, Serialize)]
pub struct StreamResult {
    /// Its name.
    pub name: String,
    /// Packets handed to the port, without those that it dropped if there is only this stream.
    pub sent: u64,
    /// Packets that arrived intact.
    pub received: u64,
    /// Packets that did not arrive with a readable signature.
    pub lost: u64,
    /// Packets that arrived again.
    pub duplicated: u64,
    /// Packets that arrived behind a later one.
    pub reordered: u64,
    /// Packets with damage outside their signature.
    pub corrupted: u64,
    /// Packets that arrived later than they may.
    pub late: u64,
    /// Its latency.
    pub latency: Option<Latency>,
}

impl TrialResult {
    pub(crate) fn new(
        config: &TrialConfig,
        sent: &TransmitReport,
        received: Option<&ReceiveReport>,
        samples: Vec<Sample>,
        clock: &Clock,
    ) -> Self {
        let has_rate = !matches!(config.pattern, Pattern::Unpaced | Pattern::Recorded(_));
        let seconds = judge::seconds(config, sent, clock);
        let bytes = sent.bytes as f64 / sent.built.max(1) as f64;
        let frame_bits = (bytes + FCS as f64) * 8.0;
        let rate = per_second(sent.sent, seconds);
        let unsent = Unsent {
            total: sent.offered.saturating_sub(sent.sent),
            late: sent.slipped,
            refused: sent.refused,
            dropped: sent.dropped,
        };
        let arrived = received.map(|report| Received::new(report, sent, seconds, clock));
        let mut result = Self {
            void: None,
            notes: Vec::new(),
            asked_packets_per_second: has_rate.then_some(config.packets_per_second),
            seconds,
            offered: sent.offered,
            sent: sent.sent,
            unsent,
            sent_packets_per_second: rate,
            sent_bits_per_second_l2: rate * frame_bits,
            sent_bits_per_second_l1: rate * (frame_bits + WIRE_OVERHEAD * 8.0),
            received: arrived,
            departures: Departures::new(
                &sent.gaps,
                has_rate.then_some(1e9 / config.packets_per_second),
                clock,
            ),
            streams: streams(config, sent, received, clock),
            samples,
        };
        result.judge(config, sent, clock);
        result
    }

    /// What happened when, in at most so many intervals of about the same length.
    pub fn intervals(&self, most: usize) -> Vec<Interval> {
        samples::intervals(&self.samples, most)
    }
}

/// 0 if it took no time that anybody could measure.
fn per_second(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

/// Packets that arrived intact, of all streams.
fn intact(report: &ReceiveReport) -> u64 {
    report.unsigned + report.streams.iter().map(|stream| stream.received).sum::<u64>()
}

impl Received {
    fn new(report: &ReceiveReport, sent: &TransmitReport, seconds: f64, clock: &Clock) -> Self {
        let sum = |count: fn(&StreamTrack) -> u64| report.streams.iter().map(count).sum::<u64>();
        let packets = intact(report);
        let missing = sent.sent.saturating_sub(packets);
        // Of packets with a damaged signature nobody knows which ones they are; what is too many were copies.
        let corrupted = (report.unreadable + sum(|stream| stream.corrupted)).min(missing);
        let mut all: Option<Histogram> = report.latency.clone();
        for latency in report.streams.iter().filter_map(|stream| stream.latency.as_ref()) {
            all.get_or_insert_with(|| Histogram::new(7)).add(latency);
        }
        let jitter = report.streams.iter().map(StreamTrack::jitter).max().unwrap_or(0);
        Self {
            packets,
            bytes: report.unsigned_bytes + sum(|stream| stream.bytes),
            packets_per_second: per_second(packets, seconds),
            lost: missing - corrupted,
            loss_ratio: missing as f64 / sent.sent.max(1) as f64,
            disorder: report
                .streams
                .iter()
                .map(|stream| stream.disorder)
                .fold(Disorder::default(), Disorder::and),
            corrupted,
            late: sum(|stream| stream.late),
            stale: report.stale,
            foreign: report.foreign,
            latency: all.and_then(|all| Latency::new(&all, jitter, clock)),
        }
    }
}

impl Latency {
    fn new(histogram: &Histogram, jitter: u64, clock: &Clock) -> Option<Self> {
        let time = |cycles: u64| clock.nanoseconds(cycles);
        let quantile = |part| histogram.quantile(part).map(time);
        Some(Self {
            minimum: time(histogram.minimum()?),
            mean: histogram.mean()? * 1e9 / clock.cycles_per_second() as f64,
            median: quantile(0.5)?,
            p99: quantile(0.99)?,
            p99_9: quantile(0.999)?,
            p99_99: quantile(0.9999)?,
            maximum: time(histogram.maximum()?),
            jitter: time(jitter),
            histogram: histogram.buckets().map(|(upper, count)| (time(upper), count)).collect(),
        })
    }
}

impl Latency {
    /// That of all packets of several trials together; `None` of none.
    pub fn merged(parts: &[Self]) -> Option<Self> {
        let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
        for &(upper, count) in parts.iter().flat_map(|part| &part.histogram) {
            *counts.entry(upper).or_default() += count;
        }
        let total: u64 = counts.values().sum();
        let minimum = parts.iter().map(|part| part.minimum).min()?;
        let maximum = parts.iter().map(|part| part.maximum).max()?;
        let weighted =
            |part: &Self| part.mean * part.histogram.iter().map(|(_, count)| *count as f64).sum::<f64>();
        let quantile = |part: f64| {
            let wanted = part * total as f64;
            let mut seen = 0;
            let found = counts.iter().find(|(_, count)| {
                seen += **count;
                seen as f64 >= wanted
            });
            found.map_or(maximum, |(upper, _)| (*upper).clamp(minimum, maximum))
        };
        Some(Self {
            minimum,
            mean: parts.iter().map(weighted).sum::<f64>() / total.max(1) as f64,
            median: quantile(0.5),
            p99: quantile(0.99),
            p99_9: quantile(0.999),
            p99_99: quantile(0.9999),
            maximum,
            jitter: parts.iter().map(|part| part.jitter).max()?,
            histogram: counts.into_iter().collect(),
        })
    }
}

impl Departures {
    fn new(gaps: &Histogram, ideal: Option<f64>, clock: &Clock) -> Self {
        let time = |cycles: u64| clock.nanoseconds(cycles);
        let quantile = |part| gaps.quantile(part).map_or(0, time);
        let zeros = gaps.buckets().next().filter(|(upper, _)| *upper == 0).map_or(0, |(_, count)| count);
        Self {
            ideal,
            mean: gaps.mean().unwrap_or(0.0) * 1e9 / clock.cycles_per_second() as f64,
            median: quantile(0.5),
            p99: quantile(0.99),
            p99_9: quantile(0.999),
            maximum: gaps.maximum().map_or(0, time),
            together: zeros as f64 / gaps.count().max(1) as f64,
            histogram: gaps.buckets().map(|(upper, count)| (time(upper), count)).collect(),
        }
    }
}

fn streams(
    config: &TrialConfig,
    sent: &TransmitReport,
    received: Option<&ReceiveReport>,
    clock: &Clock,
) -> Vec<StreamResult> {
    let dropped = if sent.streams.len() == 1 { sent.dropped } else { 0 };
    let stream = |(number, &sent): (usize, &u64)| {
        let sent = sent.saturating_sub(dropped);
        let track = received.and_then(|report| report.streams.get(number));
        let count = |count: fn(&StreamTrack) -> u64| track.map_or(0, count);
        let arrived = count(|track| track.received);
        let corrupted = count(|track| track.corrupted);
        StreamResult {
            name: config.plan.name(number).unwrap_or_default().to_owned(),
            sent,
            received: arrived,
            lost: if track.is_some() { sent.saturating_sub(arrived + corrupted) } else { 0 },
            duplicated: count(|track| track.disorder.duplicated),
            reordered: count(|track| track.disorder.reordered),
            corrupted,
            late: count(|track| track.late),
            latency: track.and_then(|track| {
                let jitter = track.jitter();
                track.latency.as_ref().and_then(|latency| Latency::new(latency, jitter, clock))
            }),
        }
    };
    sent.streams.iter().enumerate().map(stream).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trials_add_up_to_one_latency() {
        let of = |times: &[u64]| {
            let mut histogram = Histogram::new(10);
            for &time in times {
                histogram.record(time);
            }
            Latency {
                minimum: histogram.minimum().unwrap(),
                mean: histogram.mean().unwrap(),
                median: 0,
                p99: 0,
                p99_9: 0,
                p99_99: 0,
                maximum: histogram.maximum().unwrap(),
                jitter: times[0],
                histogram: histogram.buckets().collect(),
            }
        };
        let all = Latency::merged(&[of(&[10, 20, 30]), of(&[20; 6]), of(&[500])]).unwrap();
        assert_eq!((all.minimum, all.median, all.p99, all.maximum, all.jitter), (10, 20, 500, 500, 500));
        assert!((all.mean - 68.0).abs() < 1e-9, "{}", all.mean);
        assert_eq!(all.histogram, [(10, 1), (20, 7), (30, 1), (500, 1)]);
        assert!(Latency::merged(&[]).is_none());
    }
}
