//! The lanes of a tester: a sender, a receiver, or both in one.

use std::sync::Arc;

use warmlane_lane::{GraphError, Pipeline, PipelineBuilder};
use warmlane_mem::Pool;
use warmlane_port::{ReceiveQueue, TransmitQueue};

use crate::datapath::{Receiver, TransmitOrders, Transmitter};

/// What the sending side of a lane works.
pub struct SendingSide {
    /// The queue to send on.
    pub queue: Box<dyn TransmitQueue>,
    /// Where packets come from.
    pub pool: Pool,
    /// What to send.
    pub orders: Arc<TransmitOrders>,
}

/// What the receiving side of a lane works.
pub struct ReceivingSide {
    /// The queues to receive from.
    pub queues: Vec<Box<dyn ReceiveQueue>>,
    /// What checks what comes.
    pub receiver: Receiver,
}

/// A lane's pipeline of either side, or of both.
///
/// # Errors
/// [`GraphError`], which would be a defect.
pub fn pipeline(
    sending: Option<SendingSide>,
    receiving: Option<ReceivingSide>,
) -> Result<Pipeline, GraphError> {
    let mut builder = Pipeline::builder();
    if let Some(side) = sending {
        add_sender(&mut builder, side);
    }
    if let Some(side) = receiving {
        add_receiver(&mut builder, side);
    }
    builder.build()
}

fn add_sender(builder: &mut PipelineBuilder, side: SendingSide) {
    let transmitter = Transmitter::new(side.pool, side.orders, side.queue.counters());
    let transmitter = builder.stage("transmitter", transmitter);
    let output = builder.output("transmit", side.queue);
    builder.connect((transmitter, "out"), output);
}

fn add_receiver(builder: &mut PipelineBuilder, side: ReceivingSide) {
    let receiver = builder.stage("receiver", side.receiver);
    for (number, queue) in side.queues.into_iter().enumerate() {
        let input = builder.input(format!("receive.{number}"), queue);
        builder.connect(input, receiver);
    }
}
