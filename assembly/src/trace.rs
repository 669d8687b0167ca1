//! What becomes of single packets in a running program, and what would become of others: asked for on its control socket.
//!
//! A [`Tracer`] asks lanes to follow packets ([`Graph::trace`]), or what they would do with some ([`Graph::rehearse`]), and writes what they say as one JSON
//! object a packet. [`rehearse`] does the latter without a running program.

mod answer;
mod fields;
mod request;
mod stream;

pub use crate::forwarder::offline;
pub use answer::{Counted, Others, TracedPacket, TracedStep};
pub use fields::fields;
pub use request::{Frame, Places, RehearseRequest, Rehearsed, TraceRequest, Tracing};
pub use stream::rehearse;

use std::sync::Arc;

use warmlane_control::{Answer, TakeOver};
use warmlane_lane::{Graph, LaneView, TraceConfig};
use warmlane_mem::Pool;

use crate::asked::answer;
use crate::capture::{Filter, FilterError};
use crate::turns::{MOST, Turns};

/// Traces packets through lanes.
pub struct Tracer {
    lanes: Vec<(String, Vec<Arc<Graph>>)>,
    cpus: Vec<usize>,
    pool: Option<Pool>,
    turns: Turns,
}

impl Tracer {
    /// Through these lanes. Frames that never came are put in buffers of `pool`; without it they can't be asked about.
    pub fn new(lanes: &[LaneView], pool: Option<Pool>) -> Self {
        Self {
            lanes: lanes.iter().map(|lane| (lane.name.clone(), lane.graphs.clone())).collect(),
            cpus: lanes.iter().filter_map(|lane| lane.cpu).collect(),
            pool,
            turns: Turns::default(),
        }
    }

    /// Answers a request on the control socket, a line without its newline, if it is one of these.
    pub fn try_answer<L>(&self, line: &[u8]) -> Option<Answer<L>> {
        if let Some(request) = TraceRequest::parse(line) {
            return Some(answer(request.and_then(|request| self.trace(&request))));
        }
        let request = RehearseRequest::parse(line)?;
        Some(answer(request.and_then(|_| self.rehearse())))
    }

    fn trace(&self, request: &TraceRequest) -> Result<(Tracing, TakeOver), String> {
        let turn = self.turns.begin();
        let turn = turn.ok_or_else(|| format!("{MOST} traces run already, and that is the most"))?;
        let filter: Filter = request.filter.parse().map_err(|error: FilterError| error.to_string())?;
        let filter: warmlane_lane::Filter = Arc::new(move |data: &[u8], length| filter.matches(data, length));
        let mut places = Vec::new();
        let mut readers = Vec::new();
        for (lane, graph) in self.graphs() {
            let inputs: Vec<usize> = request::inputs(graph)
                .filter(|(_, name)| {
                    request.ports.is_empty() || request.ports.iter().any(|port| is_of(name, port))
                })
                .map(|(input, name)| {
                    places.push(Places { lane: lane.to_owned(), port: name.to_owned() });
                    input
                })
                .collect();
            if inputs.is_empty() {
                continue;
            }
            let config =
                TraceConfig { filter: Some(Arc::clone(&filter)), inputs, count: request.count as usize };
            readers.push((lane.to_owned(), Arc::clone(graph), graph.trace(config)));
        }
        if places.is_empty() {
            return Err(self.nothing_there());
        }
        let stream = stream::TraceStream::new(readers, request.count);
        Ok((
            Tracing { places },
            turn.serve("trace", self.cpus.clone(), |client, turn| stream.run(client, turn)),
        ))
    }

    fn rehearse(&self) -> Result<(Rehearsed, TakeOver), String> {
        let turn = self.turns.begin();
        let turn = turn.ok_or_else(|| format!("{MOST} traces run already, and that is the most"))?;
        let pool = self.pool.clone().ok_or("this instance forwards nothing that could be asked about")?;
        let mut places: Vec<Places> = Vec::new();
        let mut doors = Vec::new();
        for (lane, graph) in self.graphs() {
            for (input, name) in request::inputs(graph) {
                places.push(Places { lane: lane.to_owned(), port: name.to_owned() });
                doors.push(stream::Door {
                    lane: lane.to_owned(),
                    port: name.to_owned(),
                    graph: Arc::clone(graph),
                    input,
                });
            }
        }
        if places.is_empty() {
            return Err(self.nothing_there());
        }
        let take_over = turn.serve("rehearse", self.cpus.clone(), move |client, turn| {
            stream::answer_frames(client, turn, &doors, &pool);
        });
        Ok((Rehearsed { places }, take_over))
    }

    fn graphs(&self) -> impl Iterator<Item = (&str, &Arc<Graph>)> {
        self.lanes.iter().flat_map(|(lane, graphs)| graphs.iter().map(move |graph| (lane.as_str(), graph)))
    }

    fn nothing_there(&self) -> String {
        let mut ports: Vec<&str> =
            self.graphs().flat_map(|(_, graph)| request::inputs(graph)).map(|(_, name)| name).collect();
        if ports.is_empty() {
            return "packets come in by no lane of this instance: what the kernel forwards is not seen"
                .to_owned();
        }
        ports.sort_unstable();
        ports.dedup();
        format!("packets don't come in by that port, but by {}", ports.join(", "))
    }
}

/// Whether an input is of a port: it has the port's name, and behind that the number of the queue if there are several.
pub(crate) fn is_of(input: &str, port: &str) -> bool {
    input.strip_prefix(port).is_some_and(|rest| {
        rest.is_empty()
            || rest.strip_prefix('.').is_some_and(|queue| queue.bytes().all(|byte| byte.is_ascii_digit()))
    })
}
