//! What an edge joins, before the graph is there.

use crate::graph::Node;

/// An input of a pipeline that is being put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputId(pub(super) usize);

/// A stage of a pipeline that is being put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageId(pub(super) usize);

/// An output of a pipeline that is being put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputId(pub(super) usize);

/// Where an edge begins: an input, a stage, or a stage's named output, as in `(balancer, "overflow")`.
#[derive(Clone, Debug)]
pub struct EdgeFrom {
    pub(super) node: Node,
    pub(super) output: Option<String>,
}

/// Where an edge ends: an output, a stage, or a stage's named input, as in `(forwarder, "resumed")`.
#[derive(Clone, Debug)]
pub struct EdgeTo {
    pub(super) node: Node,
    pub(super) input: Option<String>,
}

impl From<InputId> for EdgeFrom {
    fn from(InputId(index): InputId) -> Self {
        Self { node: Node::Input(index), output: None }
    }
}

impl From<StageId> for EdgeFrom {
    fn from(StageId(index): StageId) -> Self {
        Self { node: Node::Stage(index), output: None }
    }
}

impl<N: Into<String>> From<(StageId, N)> for EdgeFrom {
    fn from((StageId(index), output): (StageId, N)) -> Self {
        Self { node: Node::Stage(index), output: Some(output.into()) }
    }
}

impl From<OutputId> for EdgeTo {
    fn from(OutputId(index): OutputId) -> Self {
        Self { node: Node::Output(index), input: None }
    }
}

impl From<StageId> for EdgeTo {
    fn from(StageId(index): StageId) -> Self {
        Self { node: Node::Stage(index), input: None }
    }
}

impl<N: Into<String>> From<(StageId, N)> for EdgeTo {
    fn from((StageId(index), input): (StageId, N)) -> Self {
        Self { node: Node::Stage(index), input: Some(input.into()) }
    }
}
