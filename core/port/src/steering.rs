//! Which lane a packet is for: rules of a port, as those of a network card's flow director, and spreading by hash (RSS), in software.
//!
//! [`Port::steered`] puts this behind a port's receive queues. Then the port has a queue for each lane, however many the device has: the
//! lanes whose queues receive look at each packet, keep their own and pass the others on by channels.
//!
//! ```
//! use warmlane_port::steering::{Action, Match, Rss, Rule, Steering};
//! use warmlane_wire::{IpProtocol, toeplitz::SYMMETRIC_KEY};
//!
//! # fn steer(port: warmlane_port::Port) -> Result<warmlane_port::Port, Box<dyn std::error::Error>> {
//! let ssh = Match { protocol: Some(IpProtocol::TCP), destination_port: Some(22), ..Match::default() };
//! let rules = [
//!     Rule { of: Match { source: Some("192.0.2.0/24".parse()?), ..ssh.clone() }, action: Action::Receive { queue: Some(0), mark: None } },
//!     Rule { of: ssh, action: Action::Drop },
//! ];
//! // All others by their flows, both directions of one to the same lane.
//! let steering = Steering::new(&rules, Some(Rss::even(&SYMMETRIC_KEY, 2)), 2)?;
//! # Ok(
//! port.steered(&steering)
//! # )
//! # }
//! ```

mod classifier;
mod headers;
mod queue;
mod rss;
mod rule;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use thiserror::Error;
use warmlane_mem::{PacketSender, channel};
use warmlane_table::ExactError;

use crate::port::Port;
use crate::queue::ReceiveQueue;
use classifier::Classifier;
use queue::{FromOther, Steered};

pub use queue::SteeringDrop;
pub use rss::Rss;
pub use rule::{Action, Match, Rule, RuleError};

/// Queues that can be told apart.
pub const MOST_QUEUES: usize = 1 << 15;

/// Packets that can be on their way from one lane to another.
const CHANNEL_CAPACITY: usize = 1_024;

/// Rules and spreading for the ports of a program with so many lanes.
#[derive(Clone)]
pub struct Steering {
    classifier: Arc<Classifier>,
    rss: Option<Arc<Rss>>,
    queues: usize,
}

/// Why there can't be such rules.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SteeringError {
    /// One of them can't be.
    #[error("rule {number}: {problem}")]
    Rule {
        /// Its number, from 0.
        number: usize,
        /// Why not.
        problem: RuleError,
    },
    /// Their table can't be built.
    #[error(transparent)]
    Table(#[from] ExactError),
}

impl Steering {
    /// For ports with a queue for each of as many lanes, at least one. Of the rules that fit a packet the first counts.
    ///
    /// # Errors
    /// [`SteeringError`].
    pub fn new(rules: &[Rule], rss: Option<Rss>, queues: usize) -> Result<Self, SteeringError> {
        for (number, rule) in rules.iter().enumerate() {
            rule.check(queues).map_err(|problem| SteeringError::Rule { number, problem })?;
        }
        Ok(Self {
            classifier: Arc::new(Classifier::new(rules)?),
            rss: rss.map(Arc::new),
            queues: queues.max(1),
        })
    }

    /// Whether packets would all be received where they come in.
    pub fn is_none(&self) -> bool {
        self.classifier.is_empty() && self.rss.is_none()
    }
}

impl Port {
    /// The same port steered. Its receive queues are to be given to the lanes in turn; each lane then has as many as the device has.
    #[must_use]
    pub fn steered(mut self, steering: &Steering) -> Self {
        if steering.is_none() {
            return self;
        }
        let (lanes, device_queues) = (steering.queues, self.receive.len());
        let mut by_lane: Vec<Vec<Box<dyn ReceiveQueue>>> = (0..lanes).map(|_| Vec::new()).collect();
        for (number, queue) in std::mem::take(&mut self.receive).into_iter().enumerate() {
            let (own, leaves) = (number % lanes, queue.leaves());
            let mut sender = |lane: usize| -> Option<PacketSender> {
                // The capacity is a power of two.
                let (sender, receiver) = channel(CHANNEL_CAPACITY).ok().filter(|_| lane != own)?;
                by_lane[lane].push(Box::new(FromOther::new(receiver, leaves)));
                Some(sender)
            };
            let senders = (0..lanes).map(&mut sender).collect();
            let (classifier, rss) = (Arc::clone(&steering.classifier), steering.rss.clone());
            by_lane[own].push(Box::new(Steered::new(queue, classifier, rss, own as u16, senders)));
        }
        // Each lane has one from every queue.
        let mut by_lane: Vec<_> = by_lane.into_iter().map(Vec::into_iter).collect();
        loop {
            let row: Vec<_> = by_lane.iter_mut().filter_map(Iterator::next).collect();
            if row.is_empty() {
                break;
            }
            self.receive.extend(row);
        }
        let offloads = &mut self.capabilities.offloads;
        offloads.in_software.device_queues = Some(device_queues);
        offloads.in_software.spreads = steering.rss.is_some();
        offloads.in_software.steers = !steering.classifier.is_empty();
        self
    }
}
