//! The graphs of lanes, as they are told to whoever asks a running program.

use warmlane_control::{GraphEdge, GraphNode, Graphs, LaneGraphs, PipelineGraph};
use warmlane_counters::Labels;
use warmlane_lane::{Graph, LaneView, Node};

/// The graphs of lanes that count under `labels` and their own names.
pub fn graphs(labels: &Labels, lanes: &[LaneView]) -> Graphs {
    let lane = |lane: &LaneView| {
        let labels = labels.clone().with("lane", &lane.name);
        LaneGraphs {
            labels: labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            pipelines: lane.graphs.iter().map(|graph| pipeline(graph)).collect(),
        }
    };
    Graphs { lanes: lanes.iter().map(lane).collect() }
}

fn pipeline(graph: &Graph) -> PipelineGraph {
    let node = |node: Node| {
        let name = graph.name(node).to_owned();
        match node {
            Node::Input(_) => GraphNode::Input(name),
            Node::Stage(_) => GraphNode::Stage(name),
            Node::Output(_) => GraphNode::Output(name),
        }
    };
    let inputs = (0..graph.inputs.len()).map(Node::Input);
    let stages = (0..graph.stages.len()).map(Node::Stage);
    let outputs = (0..graph.outputs.len()).map(Node::Output);
    let edges = graph.edges.iter().map(|edge| GraphEdge {
        from: node(edge.from),
        output: edge.output.clone(),
        to: node(edge.to),
        input: edge.input.clone(),
    });
    PipelineGraph { nodes: inputs.chain(stages).chain(outputs).map(node).collect(), edges: edges.collect() }
}
