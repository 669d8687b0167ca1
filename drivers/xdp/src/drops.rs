//! Why these ports drop packets.

use warmlane_port::drop_reasons;

drop_reasons! {
    /// Why a frame that came in did not become a packet.
    pub enum ReceiveDrop {
        /// The kernel found the receive ring full: the lane polls too rarely, or the ring is too short.
        RingFull: "ring-full", Loss;
        /// The kernel found no posted buffer: the lane polls too rarely, or the pool is empty.
        NoBuffer: "no-buffer", Loss;
        /// The kernel could not put the frame into buffers: too long for one, and the port takes no packets of
        /// several.
        Refused: "refused", Loss;
        /// The descriptor points outside the buffers that the kernel was given, or to one twice; such a buffer stays
        /// out of use until the port is closed.
        BadDescriptor: "bad-descriptor", Loss;
        /// The frame came in more than 255 buffers.
        TooManyBuffers: "too-many-buffers", Loss;
    }
}

drop_reasons! {
    /// Why a packet was not handed to the kernel.
    pub enum TransmitDrop {
        /// The interface is down: set it up with `ip link set NAME up`.
        LinkDown: "link-down", Warning;
        /// The frame is larger than the interface's MTU, or than the buffers that it would have to be copied to.
        TooLarge: "too-large", Warning;
        /// The frame is shorter than an Ethernet header.
        Malformed: "malformed", Warning;
        /// The packet is a chain of more buffers than the kernel takes for one frame.
        TooManyPieces: "too-many-pieces", Warning;
        /// The pool had no buffer for a packet that had to be copied.
        NoBuffer: "no-buffer", Loss;
        /// The interface was deleted or moved to another network namespace, or its rings with the kernel broke.
        Gone: "interface-gone", Warning;
        /// The kernel reported a buffer as sent that it did not have; no packet was lost by that.
        BadCompletion: "bad-completion", Loss;
    }
}
