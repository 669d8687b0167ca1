//! What can be wrong with a service group.

use thiserror::Error;
use warmlane_wire::MacAddress;

/// The first thing that is wrong with a [`ServiceGroup`](super::ServiceGroup).
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// Nobody to send to.
    #[error("there is no modem: give at least one")]
    NoModems,
    /// More flows than there are DSIDs.
    #[error("{flows} service flows: there are identifiers for 1048575")]
    TooManyFlows {
        /// How many there are.
        flows: usize,
    },
    /// A reference to nothing.
    #[error("{user} refers to {what} {number}, which there isn't")]
    NoSuch {
        /// What is missing.
        what: &'static str,
        /// Its number.
        number: usize,
        /// Who refers to it.
        user: String,
    },
    /// A flow that leads to somebody else.
    #[error("modem {modem} refers to service flow {flow}, which leads to another modem")]
    ForeignFlow {
        /// The modem.
        modem: MacAddress,
        /// The flow.
        flow: usize,
    },
    /// A group without channels.
    #[error("group {group} has no channels")]
    EmptyGroup {
        /// The group's number.
        group: usize,
    },
    /// A channel that nobody listens to.
    #[error("channel {channel} has no modem: no service flow is sent over it")]
    UnusedChannel {
        /// The channel's name.
        channel: String,
    },
    /// Queues that can't hold a packet each.
    #[error("{flows} service flows share {packets} places for packets: each needs one at least")]
    TooFewPlaces {
        /// How many flows there are.
        flows: usize,
        /// How many packets may wait in all queues together.
        packets: u32,
    },
    /// A channel that carries nothing.
    #[error("channel {channel} has a rate of 0")]
    ChannelRate {
        /// The channel's name.
        channel: String,
    },
    /// Two channels can't share a session.
    #[error("channel {channel} has session {session}, which another one has, too")]
    SessionTwice {
        /// The channel's name.
        channel: String,
        /// The session.
        session: u32,
    },
    /// A bucket that nothing passes.
    #[error("service flow {flow} has a rate of 0: leave it out for no limit")]
    ZeroRate {
        /// The flow's number.
        flow: usize,
    },
    /// A bucket that long frames don't pass.
    #[error("service flow {flow} has a burst of {burst} bytes: 1522 are the least")]
    Burst {
        /// The flow's number.
        flow: usize,
        /// What was asked for.
        burst: u64,
    },
    /// A queue that holds nothing.
    #[error("service flow {flow} has a queue of 0 packets")]
    NoQueue {
        /// The flow's number.
        flow: usize,
    },
    /// Priorities have three bits.
    #[error("service flow {flow} has priority {priority}: they go from 0 to 7")]
    Priority {
        /// The flow's number.
        flow: usize,
        /// What was asked for.
        priority: u8,
    },
    /// Identifiers have 14 bits, and 0 is none.
    #[error("modem {modem} has security association {said}: they go from 1 to 16383")]
    Said {
        /// The modem.
        modem: MacAddress,
        /// What was asked for.
        said: u16,
    },
    /// A criterion that no frame meets.
    #[error("{user} asks for DSAP 0xaa, that of SNAP headers: give the EtherType that is in them")]
    SnapDsap {
        /// What has the criterion.
        user: String,
    },
    /// An address that leads to two modems.
    #[error("address {address} is there twice")]
    AddressTwice {
        /// The address.
        address: String,
    },
    /// Classifiers of which nobody can say which one counts.
    #[error(
        "two classifiers of modem {modem} have priority {priority}, match the same packets and lead to different flows"
    )]
    Overlap {
        /// The modem.
        modem: MacAddress,
        /// Their priority.
        priority: u8,
    },
}
