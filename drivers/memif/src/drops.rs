//! Why these ports drop packets.

use warmlane_mem::Packet;
use warmlane_port::drop_reasons;

/// Why a packet that came in is dropped, and what has been put together of it.
pub(crate) type Wrong = (ReceiveDrop, Option<Packet>);

drop_reasons! {
    /// Why a packet that came in went nowhere.
    pub enum ReceiveDrop {
        /// A descriptor points outside the shared memory, or says more bytes than its buffer has.
        BadDescriptor: "bad-descriptor", Loss;
        /// A packet goes on in a descriptor that isn't there.
        Incomplete: "incomplete", Loss;
        /// A packet is longer than 65,535 bytes, or would take more than 255 buffers.
        TooLarge: "too-large", Loss;
        /// The other side cut its memory short while packets were copied out of it.
        CutShort: "cut-short", Loss;
    }
}

drop_reasons! {
    /// Why a packet was not sent.
    pub enum TransmitDrop {
        /// The other side is not there, or has fewer rings than this program has lanes.
        NotConnected: "not-connected", Warning;
        /// The packet is longer than 65,535 bytes, or than all buffers of the ring together.
        TooLarge: "too-large", Warning;
        /// The pool had no buffer for a packet that had to be copied.
        NoBuffer: "no-buffer", Loss;
    }
}

/// The longest packet, in bytes.
pub(crate) const LONGEST_PACKET: usize = 65_535;
