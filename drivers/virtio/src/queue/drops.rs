//! Why these ports drop packets.

use warmlane_driver_common::virtio_net::Unusable;
use warmlane_port::drop_reasons;

drop_reasons! {
    /// Why a packet that came in went nowhere.
    pub enum ReceiveDrop {
        /// A descriptor points outside the driver's memory, is of the wrong direction, or is one of more than 1,024.
        BadDescriptor: "bad-descriptor", Loss;
        /// A packet is longer than 65,600 bytes, or would take more than 255 buffers.
        TooLarge: "too-large", Loss;
        /// A buffer is shorter than the header in front of a packet.
        Runt: "runt", Loss;
        /// The driver sent a packet by a ring that is not enabled.
        Disabled: "ring-disabled", Notice;
        /// The checksum was left to us, and its field is not in the packet's first buffer.
        ChecksumUnknown: "checksum-unknown", Loss;
        /// The packet was left to us to segment, in a way that can't be.
        GsoUnknown: "gso-unknown", Loss;
    }
}

impl From<Unusable> for ReceiveDrop {
    fn from(unusable: Unusable) -> Self {
        match unusable {
            Unusable::Checksum => Self::ChecksumUnknown,
            Unusable::Segmentation => Self::GsoUnknown,
        }
    }
}

drop_reasons! {
    /// Why a packet was not sent.
    pub enum TransmitDrop {
        /// The other side is not there, or has fewer rings than this program has lanes, or its driver doesn't run yet.
        NotConnected: "not-connected", Warning;
        /// The packet is longer than 65,600 bytes, or than the buffers that the driver gives us.
        TooLarge: "too-large", Warning;
        /// The packet needs something done that the driver has not agreed to do. It agreed to something else before.
        NotAgreed: "offload-not-agreed", Loss;
    }
}

/// The longest packet, in bytes: what TCP and UDP can leave to be segmented, and link headers.
pub(crate) const LONGEST_PACKET: usize = 65_600;
