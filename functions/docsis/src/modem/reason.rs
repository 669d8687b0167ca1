//! Why the other end drops what it receives.

use warmlane_port::drop_reasons;

drop_reasons! {
    /// Why the other end dropped a packet or a MAC frame.
    pub enum ModemDrop {
        /// The packet isn't L2TPv3 over IP.
        NotTunnel: "not-a-tunnel-packet", Notice;
        /// The L2TPv3 session isn't one of ours.
        UnknownSession: "unknown-session", Notice;
        /// The PSP header or its segment table doesn't fit the packet.
        Psp: "psp", Warning;
        /// The packet is older than one that came before it.
        LatePacket: "late-packet", Notice;
        /// A MAC frame of which a segment is missing.
        Incomplete: "incomplete-frame", Loss;
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
        /// The frame came after one of its DSID that was let go before it, or came twice.
        LateFrame: "late-frame", Notice;
        /// The pool had no buffer for a frame.
        NoBuffer: "no-buffer", Loss;
        /// The output did not take the frame.
        OutputQueueFull: "output-queue-full", Loss;
    }
}
