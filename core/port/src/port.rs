//! What a driver hands out.

use crate::queue::{ReceiveQueue, TransmitQueue};

/// An Ethernet address, in wire order. Protocol rooms have their own type for it; this one knows no protocol.
pub type MacBytes = [u8; 6];

/// What a port can do, and what it got of what it asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// The port's own address, if it has one.
    pub mac: Option<MacBytes>,
    /// The largest layer-3 packet in bytes, without the Ethernet header; `None` if there is no limit but
    /// `maximum_frame`.
    pub mtu: Option<u32>,
    /// The largest frame in bytes that can be sent, without the frame check sequence.
    pub maximum_frame: u32,
    /// Packets come with the time of their reception.
    pub timestamps: bool,
    /// Whether transmission can be refused for a while and succeed later, without anything having been lost
    /// (files, rings), so that a lane may wait instead of dropping.
    pub lossless: bool,
    /// What was chosen or fell back, one sentence each, for people.
    pub notes: Vec<String>,
}

/// A port: its queues move to lanes, the rest stays readable.
pub struct Port {
    /// Unique among the ports of a program.
    pub name: String,
    /// The driver's name.
    pub driver: &'static str,
    /// See [`Capabilities`].
    pub capabilities: Capabilities,
    /// Queues to receive from; may be empty.
    pub receive: Vec<Box<dyn ReceiveQueue>>,
    /// Queues to transmit on; may be empty.
    pub transmit: Vec<Box<dyn TransmitQueue>>,
}

impl std::fmt::Debug for Port {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Port")
            .field("name", &self.name)
            .field("driver", &self.driver)
            .field("capabilities", &self.capabilities)
            .field("receive", &self.receive.len())
            .field("transmit", &self.transmit.len())
            .finish()
    }
}
