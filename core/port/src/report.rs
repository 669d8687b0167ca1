//! What queues say of themselves.

/// Methods of a queue that has its reason to fail in the field `failure`, if there is one, and its
/// [`QueueCounters`](crate::QueueCounters) in the field that is named. With `always running` it never ends and has no such field.
#[macro_export]
macro_rules! queue_report {
    (always running, $($counters:tt).+) => {
        fn status(&self) -> $crate::QueueStatus {
            $crate::QueueStatus::Running
        }

        $crate::queue_report!(@counters $($counters).+);
    };
    ($($counters:ident).+) => {
        fn status(&self) -> $crate::QueueStatus {
            $crate::QueueStatus::unless(self.failure.as_deref())
        }

        $crate::queue_report!(@counters $($counters).+);
    };
    (@counters $($counters:tt).+) => {
        fn counters(&self) -> $crate::QueueCountersView {
            self.$($counters).+.view()
        }
    };
}
