use warmlane_port::drop_reasons;

drop_reasons! {
    /// Why a frame of a capture file did not become a packet.
    pub enum ReceiveDrop {
        /// The capture cut its end off.
        Snapped: "snapped", Warning,
            "the capture holds only the frame's beginning; capture again with a larger snapshot length";
        /// It is of an interface that is not Ethernet.
        NotEthernet: "not-ethernet", Warning,
            "the frame was captured on an interface that is not Ethernet";
        /// It needs more buffers than the pool or a chain can ever have.
        TooLarge: "too-large", Loss,
            "the frame needs more buffers than the pool has; give the pool more or larger buffers";
    }
}

drop_reasons! {
    /// Why a packet is not in the written file.
    pub enum TransmitDrop {
        /// The file could not be written.
        WriteFailed: "write-failed", Loss,
            "the capture file could not be written; see the queue's status for why";
        /// A checksum left to hardware whose place is not in the packet's first segment.
        BadOffload: "bad-offload", Warning,
            "the checksum to be completed lies outside the packet's first segment";
    }
}
