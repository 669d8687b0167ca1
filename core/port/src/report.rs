//! For queues that can fail.

/// Methods of a queue that has its reason to fail in the field `failure`, if there is one, and its
/// [`QueueCounters`](crate::QueueCounters) in the field that is named.
#[macro_export]
macro_rules! queue_report {
    ($($counters:ident).+) => {
        fn status(&self) -> $crate::QueueStatus {
            $crate::QueueStatus::unless(self.failure.as_deref())
        }

        fn counters(&self) -> $crate::QueueCountersView {
            self.$($counters).+.view()
        }
    };
}
