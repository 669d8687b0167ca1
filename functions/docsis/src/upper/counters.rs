//! What the upper MAC counts.

use warmlane_counters::counters;

use super::reason::UpperDrop;

counters! {
    /// The accounting of an upper MAC: its balance is what waits in its queues. Cycles are those of the time-stamp counter.
    pub struct UpperCounters => UpperCountersView, drops by UpperDrop {
        /// Packets taken in.
        received: In, "packets";
        /// Packets passed to the lower MAC.
        transferred: Out, "packets";
        /// Packets found by the address of a modem or of a device behind it.
        matched: Note, "packets";
        /// Packets whose address is no modem's.
        unmatched: Note, "packets";
        /// Packets that a filter rule let pass.
        permitted: Note, "packets";
        /// Packets that no filter rule matched.
        unfiltered: Note, "packets";
        /// Packets that a classifier matched.
        classified: Note, "packets";
        /// Packets that went to their modem's primary flow, as no classifier matched.
        unclassified: Note, "packets";
        /// Packets whose modem was looked up.
        cm_lookup_packets: Note, "packets";
        /// Cycles of these lookups.
        cm_lookup_cycles: Note, "cycles";
        /// Packets that subscriber management looked at.
        sub_mgmt_packets: Note, "packets";
        /// Cycles of that.
        sub_mgmt_cycles: Note, "cycles";
        /// Packets that filters looked at.
        filtering_packets: Note, "packets";
        /// Cycles of that.
        filtering_cycles: Note, "cycles";
        /// Packets that classifiers looked at.
        classification_packets: Note, "packets";
        /// Cycles of that.
        classification_cycles: Note, "cycles";
        /// Packets queued.
        qos_packets: Note, "packets";
        /// Cycles of queueing and of choosing what is sent next.
        qos_cycles: Note, "cycles";
    }
}

counters! {
    /// What is counted of each modem's packets, on their way to its service flows.
    pub struct SubscriberCounters => SubscriberCountersView {
        /// Packets to the modem or to devices behind it.
        received: In, "packets";
        /// Bytes of these, without CRCs.
        bytes: Note, "bytes";
        /// Packets that a service flow took.
        queued: Out, "packets";
        /// Packets dropped because their address isn't registered.
        unlisted: Out, "packets";
        /// Packets that a filter denied.
        filtered: Out, "packets";
        /// Packets that the service flow refused: its queue was full, or they were too long.
        refused: Out, "packets";
    }
}

counters! {
    /// What is counted of each service flow.
    pub struct FlowCounters => FlowCountersView {
        /// Packets queued.
        queued: In, "packets";
        /// Packets sent.
        sent: Out, "packets";
        /// Bytes sent, CRCs included.
        bytes: Note, "bytes";
        /// Packets that found the queue full.
        tail_drops: Note, "packets";
        /// Packets that waited too long.
        age_drops: Out, "packets";
        /// Times that the scheduler chose the flow.
        selected: Note, "times";
    }
}

counters! {
    /// What is counted of each channel.
    pub struct ChannelCounters => ChannelCountersView {
        /// Packets sent.
        packets: Note, "packets";
        /// Bytes sent, MAC headers included.
        bytes: Note, "bytes";
        /// Times that a flow was chosen for it.
        selected: Note, "times";
    }
}
