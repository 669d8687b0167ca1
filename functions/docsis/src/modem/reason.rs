//! Why the other end drops what it receives.

use warmlane_port::drop_reasons;

drop_reasons! {
    /// Why the other end dropped a packet or a MAC frame.
    pub enum ModemDrop {
        /// The MAC header is cut short or reserved, or its lengths don't fit the frame.
        Header: "header", Warning;
        /// The header check sequence is wrong.
        Hcs: "hcs", Warning;
        /// The extended header's elements don't fit in it.
        Elements: "extended-header", Warning;
        /// The frame carries no Ethernet frame.
        NotPacket: "not-a-packet", Notice;
        /// The frame is shorter than an Ethernet header and a CRC.
        Short: "short-frame", Warning;
        /// There is no key of this toggle bit and sequence number for the security association.
        NoKey: "no-key", Loss;
        /// The CRC is wrong: the frame was damaged, or encrypted with another key.
        Crc: "crc", Warning;
    }
}
