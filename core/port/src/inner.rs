//! For queues that stand in front of another one.

/// Methods of a queue that answer what the queue in its field `queue` does: those that are named, of
/// [`ReceiveQueue`](crate::ReceiveQueue) or [`TransmitQueue`](crate::TransmitQueue).
#[macro_export]
macro_rules! as_inner_queue {
    ($($method:ident),+ $(,)?) => {
        $($crate::as_inner_queue!(@$method);)+
    };
    (@leaves) => { $crate::as_inner_queue!(@method leaves -> $crate::TransmitOffloads); };
    (@offloads) => { $crate::as_inner_queue!(@method offloads -> $crate::TransmitOffloads); };
    (@offloads_change) => { $crate::as_inner_queue!(@method offloads_change -> bool); };
    (@is_holding) => { $crate::as_inner_queue!(@method is_holding -> bool); };
    (@is_costly_to_call) => { $crate::as_inner_queue!(@method is_costly_to_call -> bool); };
    (@is_lossless) => { $crate::as_inner_queue!(@method is_lossless -> bool); };
    (@event) => {
        fn event(&mut self) -> Option<std::os::fd::BorrowedFd<'_>> {
            self.queue.event()
        }
    };
    (@has_passed_on) => { $crate::as_inner_queue!(@method has_passed_on -> bool); };
    (@stop) => {
        fn stop(&mut self) -> bool {
            self.queue.stop()
        }
    };
    (@status) => { $crate::as_inner_queue!(@method status -> $crate::QueueStatus); };
    (@counters) => { $crate::as_inner_queue!(@method counters -> $crate::QueueCountersView); };
    (@own_counters) => { $crate::as_inner_queue!(@method own_counters -> Vec<Box<dyn $crate::Source>>); };
    (@flush) => {
        fn flush(&mut self) {
            self.queue.flush();
        }
    };
    (@method $name:ident -> $answer:ty) => {
        fn $name(&self) -> $answer {
            self.queue.$name()
        }
    };
}
