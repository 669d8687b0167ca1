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

/// How long after its end a client is missed at the latest.
const LOOK: Duration = Duration::from_millis(50);

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
pub struct Timing {
    /// Of so many bursts of a stage, one is timed.
    pub one_in: u32,
}

/// Lets lanes time their stages.
pub struct Timer {
    graphs: Vec<Arc<Graph>>,
    cpus: Vec<usize>,
    turns: Turns,
}

impl Timer {
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

    fn time(&self) -> Result<(Timing, TakeOver), String> {
        if self.graphs.iter().all(|graph| graph.stages.is_empty()) {
            return Err("no lane of this instance has stages".to_owned());
        }
        let turn = self.turns.begin();
        let turn =
            turn.ok_or_else(|| format!("{MOST} clients have stages timed already, and that is the most"))?;
        let timings: Vec<StageTiming> = self.graphs.iter().map(Graph::time_stages).collect();
        let take_over = turn.serve("cycles", self.cpus.clone(), move |client, turn| {
            wait(client, turn);
            drop(timings);
        });
        Ok((Timing { one_in: TIMED_ONE_IN }, take_over))
    }
}

/// Until the client or the program ends.
fn wait(client: &UnixStream, turn: &Turn) {
    if client.set_read_timeout(Some(LOOK)).is_err() {
        return;
    }
    while !turn.is_ending() && matches!(has_enough(client), Ok(false)) {}
}
