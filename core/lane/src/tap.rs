//! A tap: copies packets that pass, for a capture.

use crate::outputs::Outputs;
use crate::stage::Stage;
use std::borrow::Cow;
use warmlane_counters::{Source, counters, drop_reasons};
use warmlane_mem::{Burst, Pool};
use warmlane_port::TransmitOffloads;

drop_reasons! {
    /// Why a tap misses a copy; the packet itself goes on.
    pub enum TapDrop {
        /// The pool had no buffer for a copy.
        NoBuffer: "tap-no-buffer", Notice;
        /// The output for copies had no space.
        Full: "tap-full", Notice;
    }
}

counters! {
    /// What a tap has copied.
    pub struct TapCounters => TapCountersView, drops by TapDrop {
        /// Packets copied.
        copied: Note, "packets";
    }
}

/// Copies packets that pass to its output `tap`: all of them, or [one in so many](Self::one_in).
///
/// The packets themselves are never held up. If there is no buffer or no space for a copy, it is left out and counted.
pub struct Tap {
    pool: Pool,
    one_in: u32,
    left: u32,
    counters: TapCounters,
}

impl Tap {
    /// A tap whose copies are in buffers of `pool`. With a pool of its own, a capture can't take buffers away from the traffic.
    pub fn new(pool: &Pool) -> Self {
        Self { pool: pool.clone(), one_in: 1, left: 1, counters: TapCounters::new() }
    }

    /// Copies only one packet in `count`; 0 counts as 1.
    #[must_use]
    pub fn one_in(mut self, count: u32) -> Self {
        self.one_in = count.max(1);
        self
    }
}

impl Stage for Tap {
    fn process(&mut self, burst: &mut Burst, outputs: &mut Outputs<'_>) {
        let mut copied = 0;
        for packet in burst.iter() {
            self.left -= 1;
            if self.left > 0 {
                continue;
            }
            self.left = self.one_in;
            match packet.copy_in(&self.pool).map(|copy| outputs.push(0, copy)) {
                Some(Ok(())) => copied += 1,
                Some(Err(_)) => self.counters.drops().count(TapDrop::Full, 1),
                None => self.counters.drops().count(TapDrop::NoBuffer, 1),
            }
        }
        self.counters.copied().add(copied);
    }

    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed("tap")
    }

    fn accepts(&self) -> TransmitOffloads {
        TransmitOffloads::ALL
    }

    fn outputs(&self) -> &'static [&'static str] {
        &["tap"]
    }

    fn is_optional(&self, _output: usize) -> bool {
        true
    }

    fn counters(&self) -> Vec<Box<dyn Source>> {
        vec![Box::new(self.counters.view())]
    }
}
