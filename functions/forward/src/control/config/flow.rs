//! What is said of flows that don't go by their routes.

use std::collections::HashSet;
use std::net::SocketAddr;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use warmlane_settings::Located;
use warmlane_wire::{Flow, IpProtocol};

use super::check::{Checked, Known};
use super::settings::Via;
use super::value::{ValueError, end_of_flow, protocol_with_ports};
use super::{ConfigProblem, RouteTarget};
use crate::control::flows::flow;

/// A flow: packets between two ends, in this direction. Exactly one of `via` (with or without `port`), `drop` and `unreachable` says
/// which way it goes.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FlowEntry {
    /// `tcp`, `udp` or `sctp`.
    #[serde(deserialize_with = "protocol")]
    pub protocol: Located<IpProtocol>,
    /// Address and port that its packets come from.
    #[serde(deserialize_with = "end")]
    pub from: Located<SocketAddr>,
    /// Address and port that they go to.
    #[serde(deserialize_with = "end")]
    pub to: Located<SocketAddr>,
    /// Through neighbours.
    pub via: Option<Located<Via>>,
    /// The port that the neighbour is on.
    pub port: Option<Located<String>>,
    /// Nowhere, without a word.
    #[serde(default)]
    pub drop: bool,
    /// Nowhere, and the sender is told.
    #[serde(default)]
    pub unreachable: bool,
}

/// A flow, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowConfig {
    /// Whose packets.
    pub flow: Flow,
    /// Which way; never a whole link.
    pub target: RouteTarget,
}

impl Known<'_> {
    /// Checks all of them, of which each is there once.
    pub(super) fn flows(&self, entries: &[FlowEntry]) -> Checked<Vec<FlowConfig>> {
        let mut so_far = HashSet::new();
        let mut flows = Vec::with_capacity(entries.len());
        for entry in entries {
            let flow = flow(*entry.protocol, *entry.from, *entry.to)
                .map_err(|error| entry.from.fault(ConfigProblem::Flow(error)))?;
            if !so_far.insert(flow) {
                return Err(entry.from.fault(ConfigProblem::DuplicateFlow { flow }));
            }
            let ways = self.way(entry.via.as_ref(), entry.port.as_ref(), entry.drop, entry.unreachable)?;
            let target = match ways {
                Ok(RouteTarget::OnLink(_)) => Err(ConfigProblem::FlowPort { flow }),
                Ok(RouteTarget::Via(list)) if list.len() > 1 => Err(ConfigProblem::FlowNextHops { flow }),
                Ok(target) => Ok(target),
                Err(count) => Err(ConfigProblem::FlowTarget { flow, count }),
            };
            let target = target.map_err(|problem| entry.from.fault(problem))?;
            flows.push(FlowConfig { flow, target });
        }
        Ok(flows)
    }
}

fn protocol<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Located<IpProtocol>, D::Error> {
    parsed(deserializer, protocol_with_ports)
}

fn end<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Located<SocketAddr>, D::Error> {
    parsed(deserializer, end_of_flow)
}

fn parsed<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    parse: impl FnOnce(&str) -> Result<T, ValueError>,
) -> Result<Located<T>, D::Error> {
    let text = Located::<String>::deserialize(deserializer)?;
    let value = parse(&text).map_err(D::Error::custom)?;
    Ok(text.map(|_| value))
}
