//! What stages of a running program take: asked for on its control socket.
//!
//! Lanes time their stages ([`Graph::time_stages`]) as long as a client that has asked for it keeps its connection. What they count is among the
//! counters that everybody can read.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use warmlane_control::{Answer, TakeOver};
use warmlane_lane::{Graph, LaneView, StageTiming, TIMED_ONE_IN};

use crate::asked::{answer, parse};
use crate::turns::{MOST, Turn, Turns, has_enough};

const CYCLES: &str = "cycles";

/// How long after the program's end that is noticed at the latest. A client's end is noticed at once.
const LOOK: Duration = Duration::from_millis(250);

/// How a refusal begins that is for now only.
const TOO_MANY: &str = "stages are timed for";

/// Time stages as long as this connection is open: `{"ask":"cycles"}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CyclesRequest {
    /// `cycles`.
    pub ask: String,
}

impl Default for CyclesRequest {
    fn default() -> Self {
        Self { ask: CYCLES.to_owned() }
    }
}

/// The answer to [`CyclesRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimingStages {
    /// Of so many bursts of a stage, one is timed.
    pub one_in: u32,
}

/// Lets lanes time their stages.
pub struct StageTimer {
    graphs: Vec<Arc<Graph>>,
    cpus: Vec<usize>,
    turns: Turns,
}

impl StageTimer {
    /// Of these lanes.
    pub fn new(lanes: &[LaneView]) -> Self {
        Self {
            graphs: lanes.iter().flat_map(|lane| lane.graphs.iter().cloned()).collect(),
            cpus: lanes.iter().filter_map(|lane| lane.cpu).collect(),
            turns: Turns::default(),
        }
    }

    /// Answers a request on the control socket, a line without its newline, if it is this one.
    pub fn try_answer<L>(&self, line: &[u8]) -> Option<Answer<L>> {
        let request = parse::<CyclesRequest>(line, CYCLES)?;
        Some(answer(request.and_then(|_| self.time())))
    }

    fn time(&self) -> Result<(TimingStages, TakeOver), String> {
        if self.graphs.iter().all(|graph| graph.stages.is_empty()) {
            return Err("no lane of this instance has stages".to_owned());
        }
        let turn = self.turns.begin().ok_or_else(too_many)?;
        let timings: Vec<StageTiming> = self.graphs.iter().map(Graph::time_stages).collect();
        let take_over = turn.serve("cycles", self.cpus.clone(), move |client, turn| {
            wait(client, turn);
            drop(timings);
        });
        Ok((TimingStages { one_in: TIMED_ONE_IN }, take_over))
    }
}

/// What one client more than there may be is told.
fn too_many() -> String {
    format!("{TOO_MANY} {MOST} clients already, and that is the most: `stats` has the figures for all")
}

/// Whether an instance that says so may answer otherwise later: others have stages timed, and may end.
pub fn is_for_now(refusal: &str) -> bool {
    refusal.starts_with(TOO_MANY)
}

/// Until the client or the program ends.
fn wait(client: &UnixStream, turn: &Turn) {
    if client.set_read_timeout(Some(LOOK)).is_err() {
        return;
    }
    while !turn.is_ending() && matches!(has_enough(client), Ok(false)) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    /// What an instance without lanes says to a request.
    fn said(line: &[u8]) -> Option<String> {
        StageTimer::new(&[]).try_answer::<Infallible>(line).map(|answer| match answer {
            Answer::Whole(line) | Answer::TakeOver(line, _) => line,
            Answer::List(list) => match list {},
        })
    }

    #[test]
    fn requests_with_unknown_fields_are_refused_and_others_left_to_others() {
        let wrong = said(br#"{"ask":"cycles","lane":"lane0"}"#).expect("it is this request");
        assert!(wrong.contains("that is not how") && wrong.contains("`lane`"), "{wrong}");
        assert_eq!(said(br#"{"ask":"stats"}"#), None);
        let line = serde_json::to_vec(&CyclesRequest::default()).expect("a request");
        let refused = said(&line).expect("it is this request");
        assert!(refused.contains("no lane of this instance has stages"), "{refused}");
    }

    #[test]
    fn only_a_want_of_turns_may_end() {
        let too_many = too_many();
        assert!(too_many.contains("4 clients") && is_for_now(&too_many), "{too_many}");
        assert!(!is_for_now("no lane of this instance has stages"));
        assert!(!is_for_now("that is no request"));
    }
}
