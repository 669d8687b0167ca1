//! Why the lower MAC drops packets.

use warmlane_port::drop_reasons;

drop_reasons! {
    /// Why the lower MAC dropped a packet.
    pub enum LowerDrop {
        /// The frame ends within its Ethernet header.
        Truncated: "truncated", Warning;
        /// The frame is longer than a MAC frame or its buffer can hold with header and CRC.
        TooLong: "too-long", Warning;
        /// The security association has no key.
        NoKey: "no-key", Loss;
        /// The packet has no service flow or channel that the lower MAC knows.
        UnknownFlow: "unknown-flow", Loss;
        /// The pool had no buffer for a packet to the remote PHY.
        NoBuffer: "no-buffer", Loss;
    }
}
