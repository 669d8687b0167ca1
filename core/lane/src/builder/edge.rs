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

/// An end of an edge is at a queue of the pipeline, at a stage, or at what is named of a stage.
macro_rules! ends {
    ($($end:ident { $name:ident }: $queue:ident is $node:ident;)+) => {
        $(
            impl From<$queue> for $end {
                fn from($queue(index): $queue) -> Self {
                    Self { node: Node::$node(index), $name: None }
                }
            }

            impl From<StageId> for $end {
                fn from(StageId(index): StageId) -> Self {
                    Self { node: Node::Stage(index), $name: None }
                }
            }

            impl<N: Into<String>> From<(StageId, N)> for $end {
                fn from((StageId(index), $name): (StageId, N)) -> Self {
                    Self { node: Node::Stage(index), $name: Some($name.into()) }
                }
            }
        )+
    };
}

ends! {
    EdgeFrom { output }: InputId is Input;
    EdgeTo { input }: OutputId is Output;
}
