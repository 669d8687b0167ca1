//! Why these ports drop packets.

use warmlane_port::drop_reasons;

drop_reasons! {
    /// Why a frame that came in did not become a packet.
    pub enum ReceiveDrop {
        /// Nobody took packets out of the ring in time.
        RingFull: "ring-full", Loss, "the kernel found the receive ring full: the lane polls too rarely, or the ring is too short";
        /// No buffer was posted.
        NoBuffer: "no-buffer", Loss, "the kernel found no posted buffer: the lane polls too rarely, or the pool is empty";
        /// The kernel dropped it for another reason.
        Refused: "refused", Loss, "the kernel could not put the frame into buffers: too long for one, and the port takes no packets of several";
        /// What the kernel wrote is not true.
        BadDescriptor: "bad-descriptor", Loss, "the descriptor names a place outside the buffers that the kernel was given, or one twice; a buffer that it names so stays out of use until the port is closed";
        /// A chain has up to 255 buffers.
        TooManyBuffers: "too-many-buffers", Loss, "the frame came in more than 255 buffers";
    }
}

drop_reasons! {
    /// Why a packet was not handed to the kernel.
    pub enum TransmitDrop {
        /// The interface is not up.
        LinkDown: "link-down", Warning, "the interface is down: set it up with `ip link set NAME up`";
        /// The interface's MTU forbids it, or our buffers do.
        TooLarge: "too-large", Warning, "the frame is larger than the interface's MTU, or than the buffers that it would have to be copied to";
        /// Not a frame.
        Malformed: "malformed", Warning, "the frame is shorter than an Ethernet header";
        /// A frame of more pieces than the kernel takes.
        TooManyPieces: "too-many-pieces", Warning, "the packet is a chain of more buffers than the kernel takes for one frame";
        /// The pool was empty when a copy was needed.
        NoBuffer: "no-buffer", Loss, "the pool had no buffer for a packet that had to be copied";
        /// We can't complete its checksum.
        ChecksumUnknown: "checksum-unknown", Warning, "the checksum was left to hardware, at a place outside the packet's first buffer";
        /// There is nowhere to send it to any more.
        Gone: "interface-gone", Warning, "the interface was deleted or moved to another network namespace, or its rings with the kernel broke";
        /// What the kernel wrote is not true.
        BadCompletion: "bad-completion", Loss, "the kernel reported a buffer as sent that it did not have; no packet was lost by that";
    }
}
