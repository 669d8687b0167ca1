//! Why these ports drop packets.

use warmlane_port::drop_reasons;

drop_reasons! {
    /// Why a frame that came in went nowhere.
    pub(super) enum ReceiveDrop {
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
    pub(super) enum TransmitDrop {
        /// The link is down, or the card is not there.
        NotConnected: "not-connected", Warning;
        /// The frame is longer than the port's largest packet (its `mtu`) with an Ethernet header and a VLAN tag.
        TooLarge: "too-large", Warning;
        /// The frame is shorter than an Ethernet header.
        Malformed: "malformed", Warning;
        /// The packet needs something done that the card doesn't do: its checksum is more than 255 bytes from its start, or it is to be cut into segments of less
        /// than 48 bytes, into more than the ring has descriptors for, or in a way that is not known (a tunnel, fragments).
        NotDone: "offload-not-done", Warning;
    }
}
