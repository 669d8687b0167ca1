//! Why these ports drop packets.

use warmlane_port::drop_reasons;

drop_reasons! {
    /// Why a frame that came in went nowhere.
    pub(crate) enum ReceiveDrop {
        /// The card says that the frame is damaged.
        Damaged: "damaged", Loss;
        /// The frame is shorter than an Ethernet header.
        Runt: "runt", Loss;
        /// The frame would take more than 255 buffers of the pool.
        TooLarge: "too-large", Loss;
    }
}

drop_reasons! {
    /// Why a packet was not sent.
    pub(crate) enum TransmitDrop {
        /// The link is down, or the card is not there.
        NotConnected: "not-connected", Warning;
        /// The frame is longer than the port's largest packet (its `mtu`) with an Ethernet header and a VLAN tag.
        TooLarge: "too-large", Warning;
        /// The frame is shorter than an Ethernet header.
        Malformed: "malformed", Warning;
        /// The packet needs something done that neither the card nor software can: a checksum whose field is not in its first buffer, or segmentation in a way
        /// that is not known (a tunnel, fragments, or segments of a few bytes).
        NotDone: "offload-not-done", Warning;
        /// The segment had not left when its lane ended.
        Unsent: "unsent", Loss;
    }
}
