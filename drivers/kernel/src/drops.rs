//! Why these ports drop packets.

use warmlane_port::drop_reasons;

drop_reasons! {
    /// Why a frame from the kernel did not become a packet.
    pub enum ReceiveDrop {
        /// Nobody took frames out of the ring in time.
        RingFull: "ring-full", Loss, "the kernel found the packet ring full: the lane polls too rarely, or the ring is too short";
        /// The end of the frame is missing.
        Truncated: "truncated", Loss, "the frame is longer than 64 KiB, or the socket's buffer for long frames was full";
        /// We can't segment it.
        GsoUnknown: "gso-unknown", Warning, "the frame was left to hardware to segment, in a way that this driver does not know (a tunnel, or fragments)";
        /// We can't complete its checksum.
        ChecksumUnknown: "checksum-unknown", Warning, "the checksum was left to hardware, at a place outside the frame's first buffer";
        /// The pool was empty in the middle of a long frame.
        NoBuffer: "no-buffer", Loss, "the pool ran out of buffers for a frame that had already left the kernel";
        /// A chain has up to 255 buffers.
        TooManyBuffers: "too-many-buffers", Loss, "the frame needs more than 255 of the pool's buffers: give the pool more room in each";
        /// The ring entry contradicts itself.
        RingCorrupt: "ring-corrupt", Loss, "the ring entry points outside its slot";
    }
}

drop_reasons! {
    /// Why a packet was not handed to the kernel.
    pub enum TransmitDrop {
        /// The interface is not up.
        LinkDown: "link-down", Warning, "the interface is down: set it up with `ip link set NAME up`";
        /// The interface's MTU forbids it.
        TooLarge: "too-large", Warning, "the frame is larger than the interface's MTU allows";
        /// Not a frame.
        Malformed: "malformed", Warning, "the kernel refused the frame as malformed: shorter than an Ethernet header, or in too many pieces";
        /// The kernel said no for another reason.
        Refused: "refused", Loss, "the kernel refused the frame";
        /// We can't complete its checksum.
        ChecksumUnknown: "checksum-unknown", Warning, "the checksum was left to hardware, at a place outside the packet's first buffer";
        /// There is nowhere to send it to any more.
        Gone: "interface-gone", Warning, "the interface was deleted or moved to another network namespace";
    }
}
