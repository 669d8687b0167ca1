//! The ends of a channel between lanes as queues, which bring and take the same buffers.

use warmlane_mem::{Burst, PacketReceiver, PacketSender, bytes_of};

use crate::queue::{QueueCounters, QueueCountersView, QueueStatus, ReceiveQueue, TransmitQueue};

/// Receives what comes out of a channel; it ends when the sender is gone and all has come.
pub struct ChannelReceive {
    receiver: PacketReceiver,
    counters: QueueCounters,
}

impl ChannelReceive {
    /// A queue of its own for this end.
    pub fn new(receiver: PacketReceiver) -> Self {
        Self { receiver, counters: QueueCounters::new() }
    }
}

impl ReceiveQueue for ChannelReceive {
    fn receive(&mut self, burst: &mut Burst) -> usize {
        let before = burst.len();
        let count = self.receiver.receive(burst);
        self.counters.count(count as u64, bytes_of(&burst[before..]));
        count
    }

    fn status(&self) -> QueueStatus {
        if self.receiver.is_finished() { QueueStatus::Finished } else { QueueStatus::Running }
    }

    fn counters(&self) -> QueueCountersView {
        self.counters.view()
    }
}

/// Transmits into a channel, which is waited for; it ends when the receiver is gone.
pub struct ChannelTransmit {
    sender: PacketSender,
    counters: QueueCounters,
}

impl ChannelTransmit {
    /// A queue of its own for this end.
    pub fn new(sender: PacketSender) -> Self {
        Self { sender, counters: QueueCounters::new() }
    }
}

impl TransmitQueue for ChannelTransmit {
    fn transmit(&mut self, burst: &mut Burst) -> usize {
        let before = burst.bytes();
        let sent = self.sender.send(burst);
        self.counters.count(sent as u64, before - burst.bytes());
        sent
    }

    fn is_lossless(&self) -> bool {
        true
    }

    fn status(&self) -> QueueStatus {
        if self.sender.is_disconnected() { QueueStatus::Finished } else { QueueStatus::Running }
    }

    fn counters(&self) -> QueueCountersView {
        self.counters.view()
    }
}
