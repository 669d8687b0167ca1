//! Two ports back to back: what one transmits the other receives, the same buffers.

use warmlane_mem::{Burst, PacketReceiver, PacketSender, channel};
use warmlane_port::{
    Capabilities, Port, QueueCounters, QueueCountersView, QueueStatus, ReceiveQueue, TransmitQueue,
};
use warmlane_sync::ring::RingError;

/// Two connected ports with one queue each way, each way for `capacity` packets, a power of two.
///
/// # Errors
/// [`RingError`], if the capacity is zero, not a power of two or too large.
pub fn open(names: [&str; 2], capacity: usize) -> Result<[Port; 2], RingError> {
    let (to_second, from_first) = channel(capacity)?;
    let (to_first, from_second) = channel(capacity)?;
    Ok([end(names[0], from_second, to_second), end(names[1], from_first, to_first)])
}

fn end(name: &str, receiver: PacketReceiver, sender: PacketSender) -> Port {
    Port {
        name: name.to_owned(),
        driver: "ring",
        capabilities: Capabilities { maximum_frame: u32::MAX, ..Capabilities::default() },
        receive: vec![Box::new(Receive { receiver, counters: QueueCounters::new() })],
        transmit: vec![Box::new(Transmit { sender, counters: QueueCounters::new() })],
    }
}

struct Receive {
    receiver: PacketReceiver,
    counters: QueueCounters,
}

impl ReceiveQueue for Receive {
    fn receive(&mut self, burst: &mut Burst) -> usize {
        let before = burst.bytes();
        let count = self.receiver.receive(burst);
        self.counters.packets().add(count as u64);
        self.counters.bytes().add(burst.bytes() - before);
        count
    }

    fn status(&self) -> QueueStatus {
        if self.receiver.is_finished() { QueueStatus::Finished } else { QueueStatus::Running }
    }

    fn counters(&self) -> QueueCountersView {
        self.counters.view()
    }
}

struct Transmit {
    sender: PacketSender,
    counters: QueueCounters,
}

impl TransmitQueue for Transmit {
    fn transmit(&mut self, burst: &mut Burst) -> usize {
        let before = burst.bytes();
        let sent = self.sender.send(burst);
        self.counters.packets().add(sent as u64);
        self.counters.bytes().add(before - burst.bytes());
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
