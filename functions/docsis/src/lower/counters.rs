//! What the lower MAC counts.

use warmlane_counters::counters;

use super::reason::LowerDrop;

counters! {
    /// How long packets of each service flow were on their way through both MACs, from the upper lane to a packet to the remote PHY.
    pub struct FlowDelayCounters => FlowDelayCountersView {
        /// Packets that were framed.
        packets: Note, "packets";
        /// Their latencies together.
        latency: Note, "nanoseconds";
        /// The longest latency.
        longest: Peak, "nanoseconds";
        /// By how much each packet's latency differs from that of the one before (RFC 3393), together.
        jitter: Note, "nanoseconds";
    }
}

counters! {
    /// The accounting of a lower MAC: between two bursts its balance is zero. Cycles are those of the time-stamp counter.
    pub struct LowerCounters => LowerCountersView, drops by LowerDrop {
        /// Packets taken in.
        received: In, "packets";
        /// Packets that went to the remote PHY as MAC frames.
        framed: Out, "packets";
        /// Bytes of these MAC frames.
        bytes: Note, "bytes";
        /// Frames of which the CRC was made anew.
        crcs: Note, "packets";
        /// Frames that were encrypted with AES.
        encrypted: Note, "packets";
        /// Keys that were put into use.
        keys: Note, "keys";
        /// Packets to the remote PHY that were full.
        depi_full: Note, "packets";
        /// Packets to the remote PHY that were sent because their time was over.
        depi_partial: Note, "packets";
        /// PSP segments in these packets.
        depi_segments: Note, "segments";
        /// Packets to the remote PHY that the output did not take.
        depi_lost: Note, "packets";
        /// Packets that got a MAC header.
        docsis_framing_packets: Note, "packets";
        /// Cycles of that.
        docsis_framing_cycles: Note, "cycles";
        /// Packets that got a CRC or were encrypted.
        crc_encryption_packets: Note, "packets";
        /// Cycles of that.
        crc_encryption_cycles: Note, "cycles";
        /// Packets that were cut into segments.
        depi_encap_packets: Note, "packets";
        /// Cycles of that.
        depi_encap_cycles: Note, "cycles";
    }
}
