//! Watches running lanes until they are done or told to stop, and accounts for every packet at the end.

use std::time::{Duration, Instant};

use thiserror::Error;
use warmlane_lane::{InputNode, LaneError, LaneView};

use crate::lanes::Assembly;
use crate::report::Report;
use crate::signals::Signals;

/// How often the end conditions are looked at while packets come.
const TURN: Duration = Duration::from_millis(20);

/// It grows to this while none come, or there are no lanes. A signal ends the wait before, if this is the main thread.
const QUIET_TURN: Duration = Duration::from_millis(500);

/// When to stop, if not before by a signal or as all lanes end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunLimits {
    /// After this long.
    pub duration: Option<Duration>,
    /// Once this many packets were received, give or take the bursts under way.
    pub count: Option<u64>,
}

/// What happens while lanes run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// There is nothing to do for this long: sleep ([`Signals::sleep`]), or do something that takes no longer.
    Wait(Duration),
    /// Somebody asked for a report (SIGUSR1).
    ReportAsked,
    /// Something broke while the rest goes on; each is said once.
    Failure(&'a str),
}

/// How a run ended.
#[derive(Debug)]
pub struct Outcome {
    /// What was counted.
    pub report: Report,
    /// Names of lanes that were ended before they were done (`warmlane_lane::LaneConfig::stop_within`); what had not left is counted as drops.
    pub cut_short: Vec<String>,
    /// Whether all went well.
    pub result: Result<(), RunError>,
}

/// What went wrong in a run.
#[derive(Debug, Error)]
pub enum RunError {
    /// Parts of it broke.
    #[error("{}", .reasons.join("; "))]
    Failed {
        /// A sentence each.
        reasons: Vec<String>,
    },
    /// A lane broke.
    #[error(transparent)]
    Lane(LaneError),
    /// Packets are missing from somebody's books.
    #[error("{what}: {inside} packets more came in than went out or were dropped: this is a defect there")]
    Unbalanced {
        /// Whose: what the registry calls it.
        what: String,
        /// What came in less what went out, which may be below zero.
        inside: i64,
    },
    /// Buffers are missing.
    #[error("{outstanding} buffers were not given back: this is a defect in Warmlane, please report it")]
    Leak {
        /// How many.
        outstanding: u64,
    },
}

impl Assembly {
    /// Watches until the lanes are done, a limit is reached or a signal says so. `each` is told what happens.
    pub fn run(&self, limits: RunLimits, signals: &Signals, mut each: impl FnMut(&Self, Event<'_>)) {
        let begin = Instant::now();
        let mut told = Vec::new();
        let is_idle = self.lanes.views().is_empty();
        let (mut received, mut turn) = (0, TURN);
        while is_idle || !self.lanes.are_finished() {
            let before = std::mem::replace(&mut received, self.received());
            turn = if received == before { (turn * 2).min(QUIET_TURN) } else { TURN };
            let left = limits.duration.map_or(turn, |limit| limit.saturating_sub(begin.elapsed()));
            each(self, Event::Wait(turn.min(left)));
            if signals.is_stopped()
                || limits.duration.is_some_and(|limit| begin.elapsed() >= limit)
                || limits.count.is_some_and(|count| self.received() >= count)
            {
                break;
            }
            if signals.take_report() {
                each(self, Event::ReportAsked);
            }
            for failure in self.failures() {
                if !told.contains(&failure) {
                    each(self, Event::Failure(&failure));
                    told.push(failure);
                }
            }
        }
    }

    /// As [`run`](Self::run), for whoever has nothing to do meanwhile and is told everything at the end.
    pub fn run_quietly(&self, limits: RunLimits, signals: &Signals) {
        self.run(limits, signals, |_, event| {
            if let Event::Wait(time) = event {
                signals.sleep(time);
            }
        });
    }

    /// Packets that came in so far.
    pub fn received(&self) -> u64 {
        // What comes by a channel was received by another lane.
        let inputs = self.graphs().flat_map(|graph| &graph.inputs);
        inputs.filter(|input| input.counters.is_some()).map(InputNode::received).sum()
    }

    /// Drains and joins the lanes, and checks that nothing is missing.
    pub fn finish(mut self) -> Outcome {
        self.lanes.stop();
        let joined = self.lanes.join().map(<[LaneView]>::to_vec);
        let report = Report::of(&self);
        let lanes = self.lanes.views();
        let cut_short = lanes.iter().filter(|lane| lane.cut_short).map(|lane| lane.name.clone()).collect();
        let reasons = self.failures();
        let outstanding = self.pool.ledger().outstanding();
        let result = match joined {
            Err(LaneError::Failed { .. }) | Ok(_) if !reasons.is_empty() => Err(RunError::Failed { reasons }),
            Err(error) => Err(RunError::Lane(error)),
            Ok(_) if outstanding > 0 => Err(RunError::Leak { outstanding }),
            Ok(_) => self.unbalanced().map_or(Ok(()), Err),
        };
        Outcome { report, cut_short, result }
    }

    /// The first set of counters by which something is still inside.
    fn unbalanced(&self) -> Option<RunError> {
        let mut found = None;
        self.registry.each(|labels, source| {
            let inside = source.balance();
            if inside != 0 && found.is_none() {
                let what = labels.iter().map(|(name, value)| format!("{name} '{value}'"));
                found = Some(RunError::Unbalanced { what: what.collect::<Vec<_>>().join(", "), inside });
            }
        });
        found
    }
}
