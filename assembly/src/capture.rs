//! Captures of what passes a running program: asked for on its control socket, streamed as pcapng.
//!
//! A [`Capturer`] knows the lanes' graphs. For each request it asks them for [probes](warmlane_lane::ProbeReader), and a thread of its own writes
//! what these copy to the connection. Of a router's interfaces on kernel paths, the programs there are asked. A client that reads slowly misses packets, and is told how many at the end; lanes are never held up.

mod filter;
mod paths;
mod request;
mod stream;

pub use filter::{Filter, FilterError};
pub use request::{CaptureRequest, Captured, Capturing, Seen, WHOLE_LANE};

use std::collections::BTreeMap;
use std::sync::Arc;

use warmlane_control::{Answer, TakeOver};
use warmlane_counters::Registry;
use warmlane_lane::{Filter as ProbeFilter, Graph, LaneView, Point, ProbeConfig, ProbeReader};

use crate::asked::answer;
use crate::router::PathViews;
use crate::turns::{MOST, Turns};
use paths::PathSource;
use request::{edge_description, edge_name};

/// Makes captures of lanes.
pub struct Capturer {
    lanes: Vec<(String, Vec<Arc<Graph>>)>,
    cpus: Vec<usize>,
    registry: Registry,
    turns: Turns,
    paths: PathViews,
}

/// An interface of the capture: a port, or an edge between stages.
struct Interface {
    name: String,
    description: String,
}

#[derive(Default)]
struct Interfaces(Vec<Interface>);

impl Interfaces {
    /// The number of the one of this name, which is added if there is none.
    fn number(&mut self, name: &str, description: String) -> u32 {
        let known = self.0.iter().position(|known| known.name == name);
        known.unwrap_or_else(|| {
            self.0.push(Interface { name: name.to_owned(), description });
            self.0.len() - 1
        }) as u32
    }
}

/// A probe, and what its packets are called.
struct Source {
    reader: ProbeReader,
    seen: Seen,
    /// The interface of its packets; of drops that of each input, by its number.
    interface: u32,
    interfaces_by_port: BTreeMap<u16, u32>,
    /// Packets that have been read.
    read: u64,
}

impl Capturer {
    /// Of these lanes. `registry` knows the reasons of drops.
    pub fn new(lanes: &[LaneView], registry: Registry) -> Self {
        let graphs = |lane: &LaneView| (lane.name.clone(), lane.graphs.clone());
        Self {
            lanes: lanes.iter().map(graphs).collect(),
            cpus: lanes.iter().filter_map(|lane| lane.cpu).collect(),
            registry,
            turns: Turns::default(),
            paths: PathViews::default(),
        }
    }

    /// And of these interfaces on kernel paths. Captures are then begun by a thread that may make BPF maps (`CAP_BPF`).
    #[must_use]
    pub fn with_paths(self, paths: PathViews) -> Self {
        Self { paths, ..self }
    }

    /// Answers a request on the control socket, a line without its newline, if it is one for a capture.
    pub fn try_answer<L>(&self, line: &[u8]) -> Option<Answer<L>> {
        Some(answer(CaptureRequest::parse(line)?.and_then(|request| self.begin(&request))))
    }

    /// Starts a capture, which goes on when it is given a connection.
    fn begin(&self, request: &CaptureRequest) -> Result<(Capturing, TakeOver), String> {
        let turn =
            self.turns.begin().ok_or_else(|| format!("{MOST} captures run already, and that is the most"))?;
        let filter: Filter = request.filter.parse().map_err(|error: FilterError| error.to_string())?;
        let reasons = self.reasons(&request.reasons)?;
        let config = ProbeConfig {
            // Without one, lanes need not even look at packets that are not in the sample.
            filter: (!request.filter.trim().is_empty())
                .then(|| -> ProbeFilter { Arc::new(move |data, length| filter.matches(data, length)) }),
            snap_length: request.snap_length as usize,
            one_in: request.one_in,
            ..ProbeConfig::default()
        };
        let mut interfaces = Interfaces::default();
        let (mut sources, mut in_kernel) = (Vec::new(), Vec::new());
        let mut points = Vec::new();
        for (lane, graph) in self.lanes.iter().flat_map(|(lane, all)| all.iter().map(move |one| (lane, one)))
        {
            for (seen, port, point) in request.points(graph) {
                let mut number = |name: &str, description: String| interfaces.number(name, description);
                // Where a lane has one port, that is where all its drops came in by.
                let mut inputs = graph.inputs.iter().filter(|input| input.counters.is_some());
                let only = inputs.next().filter(|_| point == Point::Drops && inputs.next().is_none());
                let description = match point {
                    Point::Edge(edge) => {
                        graph.edges.get(edge).map_or(String::new(), |edge| edge_description(graph, edge))
                    }
                    _ => String::new(),
                };
                let interface = number(only.map_or(&port, |input| &input.name), description);
                let by_port = graph.inputs.iter().filter(|_| point == Point::Drops);
                let by_port =
                    by_port.filter_map(|input| Some((input.port?, number(&input.name, String::new()))));
                let interfaces_by_port = by_port.collect();
                let reader = graph.probe(point, config.clone()).map_err(|error| error.to_string())?;
                points.push(Captured { lane: lane.clone(), port, seen });
                sources.push(Source { reader, seen, interface, interfaces_by_port, read: 0 });
            }
        }
        for view in self.paths.all() {
            let seen = paths::seen(request, &view);
            if !seen.is_empty() {
                let (path, port) = (view.path().to_string(), view.interface().to_owned());
                let number = interfaces.number(&port, format!("path {path}"));
                let captured = |&seen| Captured { lane: format!("path {path}"), port: port.clone(), seen };
                points.extend(seen.iter().map(captured));
                in_kernel.push(PathSource::begin(request, &view, config.filter.clone(), seen, number)?);
            }
        }
        if sources.is_empty() && in_kernel.is_empty() {
            return Err(self.nothing_there());
        }
        let capturing = Capturing { points };
        let capture = stream::Capture::new(request, interfaces.0, (sources, in_kernel), reasons);
        let take_over = turn.serve("capture", self.cpus.clone(), move |stream, turn| {
            capture.run(stream, &|| turn.is_ending());
        });
        Ok((capturing, take_over))
    }

    /// What the reasons for drops mean, of those that are asked for.
    fn reasons(&self, asked: &[String]) -> Result<BTreeMap<String, String>, String> {
        let mut known = BTreeMap::new();
        self.registry.read(|_, entry| {
            if let Some(reason) = entry.reason {
                known.entry(reason.name.to_owned()).or_insert_with(|| reason.sentence.to_owned());
            }
        });
        for reason in paths::drop_reasons().filter(|_| !self.paths.all().is_empty()) {
            known.entry(reason.name.to_owned()).or_insert_with(|| reason.help.to_owned());
        }
        if let Some(stranger) = asked.iter().find(|name| !known.contains_key(*name)) {
            let all = known.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            return Err(format!("nothing is dropped for '{stranger}': reasons are {all}"));
        }
        if !asked.is_empty() {
            known.retain(|name, _| asked.contains(name));
        }
        Ok(known)
    }

    fn nothing_there(&self) -> String {
        let graphs = || self.lanes.iter().flat_map(|(_, graphs)| graphs);
        let list = |mut names: Vec<String>| {
            names.sort_unstable();
            names.dedup();
            names.join(", ")
        };
        let in_kernel = self.paths.all().into_iter().map(|view| view.interface().to_owned());
        let ports = graphs().flat_map(|graph| request::ports(graph)).map(str::to_owned).chain(in_kernel);
        let stages = graphs().flat_map(|graph| &graph.stages).map(|stage| stage.name.clone());
        let edges = graphs().flat_map(|graph| graph.edges.iter().map(|edge| edge_name(graph, edge)));
        format!(
            "there is nothing of that: lanes have the ports {}, the stages {} and the edges {}",
            list(ports.collect()),
            list(stages.collect()),
            list(edges.collect())
        )
    }
}
