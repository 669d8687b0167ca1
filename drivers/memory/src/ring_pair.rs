//! Two ports back to back: what one transmits the other receives, the same buffers.

use warmlane_mem::{PacketReceiver, PacketSender, channel};
use warmlane_port::channel::{ChannelReceive, ChannelTransmit};
use warmlane_port::{Capabilities, Port};
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
        receive: vec![Box::new(ChannelReceive::new(receiver))],
        transmit: vec![Box::new(ChannelTransmit::new(sender))],
    }
}
