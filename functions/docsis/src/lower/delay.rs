//! How long packets were on their way through both MACs.

use warmlane_counters::{DurationHistogram, DurationHistogramView};
use warmlane_sys::clock::Clock;

use super::counters::{FlowDelayCounters, FlowDelayCountersView};
use crate::tag::cycles_since;

/// Latencies of a channel's packets, and their jitter: by how much a packet's latency differs from that of the packet before it in its
/// service flow (RFC 3393).
pub(super) struct ChannelDelays {
    latency: DurationHistogram,
    jitter: DurationHistogram,
}

/// How long a channel's packets take, to read.
#[derive(Debug, Clone)]
pub struct ChannelDelayViews {
    /// From the upper lane's receipt to a packet to the remote PHY.
    pub latency: DurationHistogramView,
    /// By how much that differs from the packet before in the same service flow.
    pub jitter: DurationHistogramView,
}

impl ChannelDelays {
    pub(super) fn new() -> Self {
        Self { latency: DurationHistogram::new("latency"), jitter: DurationHistogram::new("jitter") }
    }

    pub(super) fn views(&self) -> ChannelDelayViews {
        ChannelDelayViews { latency: self.latency.view(), jitter: self.jitter.view() }
    }
}

/// Those of a service flow.
pub(super) struct FlowDelays {
    counters: FlowDelayCounters,
    /// The last packet's latency in nanoseconds.
    last: Option<u64>,
}

impl FlowDelays {
    pub(super) fn new() -> Self {
        Self { counters: FlowDelayCounters::new(), last: None }
    }

    pub(super) fn view(&self) -> FlowDelayCountersView {
        self.counters.view()
    }

    /// Counts a packet that came to the upper MAC at the time of this stamp, and goes by this channel now, in cycles.
    #[inline]
    pub(super) fn count(&mut self, arrived: u32, now: u64, clock: &Clock, channel: &ChannelDelays) {
        let latency = clock.nanoseconds(cycles_since(arrived, now));
        channel.latency.record(latency);
        let counters = &self.counters;
        counters.packets().add(1);
        counters.latency().add(latency);
        counters.longest().raise(latency);
        if let Some(last) = self.last.replace(latency) {
            let jitter = latency.abs_diff(last);
            channel.jitter.record(jitter);
            counters.jitter().add(jitter);
        }
    }
}
