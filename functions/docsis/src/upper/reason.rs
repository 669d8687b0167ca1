//! Why the upper MAC drops packets.

use warmlane_port::drop_reasons;

drop_reasons! {
    /// Why the upper MAC dropped a packet.
    pub enum UpperDrop {
        /// The frame ends within its Ethernet header or tags.
        Truncated: "truncated", Warning;
        /// No modem has the packet's destination address.
        UnknownModem: "unknown-modem", Notice;
        /// The packet is for an address behind a modem that is to have registered ones only.
        UnlistedAddress: "unlisted-address", Notice;
        /// A filter of the modem's denies the packet.
        Filtered: "filtered", Notice;
        /// The service flow's queue is full, or there are too many packets in all queues.
        QueueFull: "queue-full", Loss;
        /// The packet waited longer than it may.
        Aged: "aged", Loss;
        /// The packet is larger than the service flow's buckets let pass.
        TooLong: "too-long", Warning;
    }
}
