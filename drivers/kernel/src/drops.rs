//! Why these ports drop packets.

use warmlane_port::drop_reasons;

drop_reasons! {
    /// Why a frame from the kernel did not become a packet.
    pub enum ReceiveDrop {
        /// The kernel found the packet ring full: the lane polls too rarely, or the ring is too short.
        RingFull: "ring-full", Loss;
        /// The frame is longer than 64 KiB, or the socket's buffer for long frames was full.
        Truncated: "truncated", Loss;
        /// The frame was left to hardware to segment, in a way that is not known (a tunnel, fragments,
        /// or segments of a few bytes).
        GsoUnknown: "gso-unknown", Warning;
        /// The checksum was left to hardware, and its field is not in the frame's first buffer.
        ChecksumUnknown: "checksum-unknown", Warning;
        /// The pool ran out of buffers for a frame that had already left the kernel.
        NoBuffer: "no-buffer", Loss;
        /// The frame needs more than 255 of the pool's buffers: give the pool larger ones.
        TooManyBuffers: "too-many-buffers", Loss;
        /// The ring entry points outside its slot.
        RingCorrupt: "ring-corrupt", Loss;
    }
}

drop_reasons! {
    /// Why a packet was not handed to the kernel.
    pub enum TransmitDrop {
        /// The interface is down: set it up with `ip link set NAME up`.
        LinkDown: "link-down", Warning;
        /// The frame is larger than the interface's MTU allows.
        TooLarge: "too-large", Warning;
        /// The kernel refused the frame as malformed: shorter than an Ethernet header, or in too many pieces.
        Malformed: "malformed", Warning;
        /// The kernel refused the frame.
        Refused: "refused", Loss;
        /// The interface was deleted or moved to another network namespace.
        Gone: "interface-gone", Warning;
    }
}
