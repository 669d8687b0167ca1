//! What happened when: counts at moments of a trial.

use std::time::Duration;

use serde::Serialize;

/// Counts at a moment of a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Sample {
    /// Seconds since the trial began.
    pub seconds: f64,
    /// Packets that the port took since then.
    pub sent: u64,
    /// Packets of the trial received since then, intact or damaged, each counted once.
    pub received: u64,
    /// Those of them whose latency is known.
    pub timed: u64,
    /// Nanoseconds that these took, all together.
    pub latency: u64,
    /// Nanoseconds that the slowest took since the sample before.
    pub worst: u64,
}

/// What happened from one moment of a trial to another.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// Seconds from the trial's beginning to the interval's end.
    pub seconds: f64,
    /// Its length in seconds.
    pub length: f64,
    /// Packets that the port took in it.
    pub sent: u64,
    /// Packets of the trial received in it.
    pub received: u64,
    /// Packets sent until its end and not received by then: under way, or lost.
    pub missing: u64,
    /// Mean nanoseconds that packets received in it took; `None` if nothing was measured.
    pub mean_latency: Option<u64>,
    /// Nanoseconds that the slowest of them took.
    pub worst_latency: Option<u64>,
}

/// Time from one sample to the next.
pub(crate) const SAMPLE: Duration = Duration::from_millis(100);

/// How many samples are kept.
const SAMPLES: usize = 4_000;

/// Keeps the samples of a trial: all of a short one, every second, fourth, ... of a long one.
#[derive(Debug)]
pub(crate) struct Sampler {
    kept: Vec<Sample>,
    kept_every: usize,
    looks: usize,
    /// The slowest packet since the last sample that was kept.
    worst: u64,
}

impl Sampler {
    pub(crate) const fn new() -> Self {
        Self { kept: Vec::new(), kept_every: 1, looks: 0, worst: 0 }
    }

    /// Notes what was seen [`SAMPLE`] after the last time.
    pub(crate) fn look(&mut self, sample: &Sample) {
        self.looks += 1;
        self.worst = self.worst.max(sample.worst);
        if !self.looks.is_multiple_of(self.kept_every) {
            return;
        }
        self.kept.push(Sample { worst: std::mem::take(&mut self.worst), ..*sample });
        if self.kept.len() >= SAMPLES {
            // The same number for each part of the trial.
            self.kept = self.kept.chunks(2).filter_map(joined).collect();
            self.kept_every *= 2;
        }
    }

    /// The samples, with a last one, which nothing is missing from any more.
    pub(crate) fn finish(mut self, last: &Sample) -> Vec<Sample> {
        let last = Sample { worst: self.worst.max(last.worst), ..*last };
        // So soon after another one it would show what came late as a rate that never was.
        let is_near = |before: &Sample| {
            last.seconds - before.seconds < SAMPLE.as_secs_f64() * self.kept_every as f64 / 2.0
        };
        match self.kept.last_mut() {
            Some(before) if is_near(before) => {
                *before = Sample { worst: before.worst.max(last.worst), ..last }
            }
            _ => self.kept.push(last),
        }
        self.kept
    }
}

/// Samples in a row as one.
fn joined(samples: &[Sample]) -> Option<Sample> {
    let worst = samples.iter().map(|sample| sample.worst).max()?;
    samples.last().map(|last| Sample { worst, ..*last })
}

/// What happened when, in at most so many intervals of about the same length.
pub(crate) fn intervals(samples: &[Sample], most: usize) -> Vec<Interval> {
    let step = samples.len().div_ceil(most.max(1)).max(1);
    let mut before = Sample::default();
    let mut intervals = Vec::new();
    for sample in samples.chunks(step).filter_map(joined) {
        let timed = sample.timed.saturating_sub(before.timed);
        let latency = sample.latency.saturating_sub(before.latency);
        intervals.push(Interval {
            seconds: sample.seconds,
            length: (sample.seconds - before.seconds).max(1e-9),
            sent: sample.sent.saturating_sub(before.sent),
            received: sample.received.saturating_sub(before.received),
            missing: sample.sent.saturating_sub(sample.received),
            mean_latency: latency.checked_div(timed),
            worst_latency: (timed > 0).then_some(sample.worst),
        });
        before = sample;
    }
    intervals
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1,000 packets in each tenth of a second, which take 500 ns; the slowest takes as many as samples were before.
    fn at(number: u64) -> Sample {
        Sample {
            seconds: number as f64 / 10.0,
            sent: number * 1_000,
            received: number * 1_000,
            timed: number * 1_000,
            latency: number * 500_000,
            worst: number,
        }
    }

    #[test]
    fn intervals_add_up_to_the_whole() {
        for (looks, most) in [(7, 3), (100, 60), (10_001, 60), (5, 500)] {
            let mut sampler = Sampler::new();
            (1..=looks).for_each(|number| sampler.look(&at(number)));
            let last = Sample { seconds: (looks as f64 + 0.7) / 10.0, worst: 3, ..at(looks + 1) };
            let samples = sampler.finish(&last);
            assert!(samples.len() <= SAMPLES);
            let intervals = intervals(&samples, most);
            assert!(intervals.len() <= most, "{looks} {most}");
            let sum = |count: fn(&Interval) -> u64| intervals.iter().map(count).sum::<u64>();
            let whole = (looks + 1) * 1_000;
            assert_eq!((sum(|part| part.sent), sum(|part| part.received)), (whole, whole), "{looks} {most}");
            assert!((intervals.iter().map(|part| part.length).sum::<f64>() - last.seconds).abs() < 1e-6);
            assert!(intervals.iter().all(|part| part.mean_latency == Some(500)), "{intervals:?}");
            // No moment's slowest packet is forgotten, whatever was joined.
            assert_eq!(intervals.iter().filter_map(|part| part.worst_latency).max(), Some(looks));
        }
    }

    #[test]
    fn a_last_sample_soon_after_another_takes_its_place() {
        let mut sampler = Sampler::new();
        sampler.look(&at(1));
        sampler.look(&at(2));
        let samples = sampler.finish(&Sample { seconds: 0.201, worst: 9, ..at(3) });
        assert_eq!(samples, [at(1), Sample { seconds: 0.201, worst: 9, ..at(3) }]);
    }
}
