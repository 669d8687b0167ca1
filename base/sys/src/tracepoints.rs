//! Places that perf, bpftrace, SystemTap and GDB can attach to while the program runs (USDT).
//!
//! Each is a single instruction that does nothing, and a note in the program's file that says where it is and where its arguments are; nothing
//! is computed for it. Texts are passed as their address and length, which bpftrace's `str(arg0, arg1)` reads. docs/operate.md lists them.

/// As [`probe::probe`], except under Miri, which runs no assembler.
macro_rules! probe {
    ($name:ident, $($argument:expr),+) => {
        #[cfg(not(miri))]
        probe::probe!(warmlane, $name, $($argument),+);
        #[cfg(miri)]
        let _ = ($($argument),+);
    };
}

/// A lane's thread begins to poll, on this CPU if it was given one.
#[inline(always)]
pub fn lane_begin(lane: &str, cpu: Option<usize>) {
    probe!(lane_begin, lane.as_ptr(), lane.len(), cpu.map_or(-1, usize::cast_signed));
}

/// A lane's thread has done its work; it was cut short if it had to leave some undone.
#[inline(always)]
pub fn lane_end(lane: &str, cut_short: bool) {
    probe!(lane_end, lane.as_ptr(), lane.len(), cut_short);
}

/// This thread's lane goes to sleep: for a nap, or until something wakes it.
#[inline(always)]
pub fn lane_sleep(is_nap: bool) {
    probe!(lane_sleep, is_nap);
}

/// It polls again, so many cycles later.
#[inline(always)]
pub fn lane_wake(cycles: u64) {
    probe!(lane_wake, cycles);
}

/// A pipeline has received so many packets by the input of this number.
#[inline(always)]
pub fn burst(input: usize, packets: usize) {
    probe!(burst, input, packets);
}

/// A stage drops a packet, which came in by the port of this number and has so many bytes, for this reason.
#[inline(always)]
pub fn stage_drop(reason: &'static str, bytes: usize, port: u16) {
    probe!(stage_drop, reason.as_ptr(), reason.len(), bytes, port);
}

/// A lane drops packets that its stages had sent on, for this reason.
#[inline(always)]
pub fn lane_drop(reason: &'static str, packets: usize) {
    probe!(lane_drop, reason.as_ptr(), reason.len(), packets);
}

/// A pool had fewer buffers than somebody wanted.
#[inline(always)]
pub fn pool_refused(wanted: usize, got: usize) {
    probe!(pool_refused, wanted, got);
}
