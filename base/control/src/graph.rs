//! What leads where in an instance: the graphs of its lanes. No counter says that.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The graphs of an instance's lanes, which stay as they are for as long as it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Graphs {
    /// Its lanes, in the order in which they were started.
    pub lanes: Vec<LaneGraphs>,
}

/// What a lane does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneGraphs {
    /// Under which labels it counts: `lane`, and others where several lanes have the same name. Its nodes have one more of their own
    /// ([`GraphNode`]).
    pub labels: BTreeMap<String, String>,
    /// Its pipelines; none if it does something else.
    pub pipelines: Vec<PipelineGraph>,
}

/// What a pipeline is made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PipelineGraph {
    /// Its inputs, its stages, and its outputs. No two of a kind have the same name.
    pub nodes: Vec<GraphNode>,
    /// What leads where.
    pub edges: Vec<GraphEdge>,
}

/// Where packets come in, are worked on, or leave. It is written as the label under which it counts, such as `{"stage":"forwarder"}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GraphNode {
    /// The input of this name.
    Input(String),
    /// The stage of this name.
    Stage(String),
    /// The output of this name.
    Output(String),
}

/// A way from one node to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GraphEdge {
    /// Where it begins.
    pub from: GraphNode,
    /// The stage's output; none for what a stage passes on, and for inputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// Where it ends.
    pub to: GraphNode,
    /// The stage's input; none for its first, and for outputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_written_as_their_labels_and_edges_by_their_ends() {
        let (input, stage) = (GraphNode::Input("west".to_owned()), GraphNode::Stage("forwarder".to_owned()));
        let named = GraphEdge {
            from: stage.clone(),
            output: Some("east".to_owned()),
            to: GraphNode::Output("east".to_owned()),
            input: None,
        };
        let first = GraphEdge { from: input.clone(), output: None, to: stage.clone(), input: None };
        let nodes = vec![input, stage, named.to.clone()];
        let labels = BTreeMap::from([("lane".to_owned(), "lane0".to_owned())]);
        let pipelines = vec![PipelineGraph { nodes, edges: vec![first, named] }];
        let graphs = Graphs { lanes: vec![LaneGraphs { labels, pipelines }] };
        let written = serde_json::json!({ "lanes": [{
            "labels": { "lane": "lane0" },
            "pipelines": [{
                "nodes": [{ "input": "west" }, { "stage": "forwarder" }, { "output": "east" }],
                "edges": [
                    { "from": { "input": "west" }, "to": { "stage": "forwarder" } },
                    { "from": { "stage": "forwarder" }, "output": "east", "to": { "output": "east" } },
                ],
            }],
        }] });
        assert_eq!(serde_json::to_value(&graphs).unwrap(), written);
        assert_eq!(serde_json::from_value::<Graphs>(written).unwrap(), graphs);
    }
}
