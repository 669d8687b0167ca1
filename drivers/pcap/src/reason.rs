use warmlane_port::drop_reasons;

drop_reasons! {
    /// Why a frame of a capture file did not become a packet.
    pub enum ReceiveDrop {
        /// The capture holds only the frame's beginning; capture again with a larger snapshot length.
        Snapped: "snapped", Warning;
        /// The frame was captured on an interface that is not Ethernet.
        NotEthernet: "not-ethernet", Warning;
        /// The frame needs more buffers than the pool has; give the pool more or larger buffers.
        TooLarge: "too-large", Loss;
    }
}

drop_reasons! {
    /// Why a packet is not in the written file.
    pub enum TransmitDrop {
        /// The capture file could not be written; see the queue's status for why.
        WriteFailed: "write-failed", Loss;
    }
}
