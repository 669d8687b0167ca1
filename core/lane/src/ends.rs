//! Where a pipeline's packets come from and go to.

use warmlane_mem::{PacketReceiver, PacketSender};
use warmlane_port::{ReceiveQueue, TransmitQueue};

/// Where packets come from.
pub enum Input {
    /// A port's queue.
    Queue(Box<dyn ReceiveQueue>),
    /// Another lane.
    Channel(PacketReceiver),
}

impl From<Box<dyn ReceiveQueue>> for Input {
    fn from(queue: Box<dyn ReceiveQueue>) -> Self {
        Self::Queue(queue)
    }
}

impl<Q: ReceiveQueue + 'static> From<Box<Q>> for Input {
    fn from(queue: Box<Q>) -> Self {
        Self::Queue(queue)
    }
}

impl From<PacketReceiver> for Input {
    fn from(channel: PacketReceiver) -> Self {
        Self::Channel(channel)
    }
}

/// Where packets go.
pub enum Output {
    /// A port's queue. What finds no space in front of it is dropped and counted, unless the queue is lossless
    /// ([`TransmitQueue::is_lossless`]): then it is waited for.
    Queue(Box<dyn TransmitQueue>),
    /// Another lane, which is waited for.
    Channel(PacketSender),
}

impl From<Box<dyn TransmitQueue>> for Output {
    fn from(queue: Box<dyn TransmitQueue>) -> Self {
        Self::Queue(queue)
    }
}

impl<Q: TransmitQueue + 'static> From<Box<Q>> for Output {
    fn from(queue: Box<Q>) -> Self {
        Self::Queue(queue)
    }
}

impl From<PacketSender> for Output {
    fn from(channel: PacketSender) -> Self {
        Self::Channel(channel)
    }
}

/// One port's queues that a lane works.
#[derive(Default)]
pub struct LanePort {
    /// The port's name, unique.
    pub name: String,
    /// Queues to receive from.
    pub receive: Vec<Box<dyn ReceiveQueue>>,
    /// The queue to send on; `None` if nothing is sent from this lane.
    pub transmit: Option<Box<dyn TransmitQueue>>,
}
