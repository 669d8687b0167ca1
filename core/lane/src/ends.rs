//! Where a pipeline's packets come from and go to.

use warmlane_mem::{PacketReceiver, PacketSender};
use warmlane_port::{ReceiveQueue, TransmitQueue};

/// A queue of any type, boxed, and a channel become an end of a pipeline by `into()`.
macro_rules! from_queue_or_channel {
    ($end:ident, $queue:ident, $channel:ident) => {
        impl From<Box<dyn $queue>> for $end {
            fn from(queue: Box<dyn $queue>) -> Self {
                Self::Queue(queue)
            }
        }

        impl<Q: $queue + 'static> From<Box<Q>> for $end {
            fn from(queue: Box<Q>) -> Self {
                Self::Queue(queue)
            }
        }

        impl From<$channel> for $end {
            fn from(channel: $channel) -> Self {
                Self::Channel(channel)
            }
        }
    };
}

/// Where packets come from.
pub enum Input {
    /// A port's queue.
    Queue(Box<dyn ReceiveQueue>),
    /// Another lane.
    Channel(PacketReceiver),
}

from_queue_or_channel!(Input, ReceiveQueue, PacketReceiver);

/// Where packets go.
pub enum Output {
    /// A port's queue. What finds no space in front of it is dropped and counted, unless the queue is lossless
    /// ([`TransmitQueue::is_lossless`]): then it is waited for.
    Queue(Box<dyn TransmitQueue>),
    /// Another lane, which is waited for.
    Channel(PacketSender),
}

from_queue_or_channel!(Output, TransmitQueue, PacketSender);

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
