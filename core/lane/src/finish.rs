//! The end of a pipeline: what it still holds leaves, or is counted.

use crate::ends::Input;
use crate::graph::LaneDrop;
use crate::outputs::{Line, Outputs};
use crate::pipeline::{Pipeline, Source, is_blocked, pass_on};
use std::time::{Duration, Instant};

/// How long lossless outputs are waited for to take what stages give at the end.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often stages are asked for what can't leave any more: only one that always has more gets there.
const LAST_ROUNDS: usize = 4_096;

impl Pipeline {
    /// Asks stages for what they hold, and transmits it. If the pipeline was polled to its end, lossless outputs are waited for;
    /// if not, they didn't take anything for long, and are only offered what is there as long as they do now.
    #[cold]
    pub(crate) fn bring_out(&mut self) {
        let (was_polled_to_its_end, until) = (self.is_finished(), Instant::now() + PATIENCE);
        loop {
            self.lines.iter_mut().for_each(|line| line.refuses = false);
            let (given, is_held_up) = self.ask_stages(true);
            let sent = self.transmit();
            let holds = |line: &Line| line.is_open() && !line.burst.is_empty() || line.is_holding();
            let waits = is_held_up || self.lines.iter().any(holds);
            let has_moved = given + sent > 0;
            let goes_on = has_moved || waits && was_polled_to_its_end;
            if !goes_on || Instant::now() >= until {
                return;
            }
            if !has_moved {
                // It may have broken, or need a push.
                self.check();
                std::thread::yield_now();
            }
        }
    }

    /// Counts what can't leave any more, and frees it.
    #[cold]
    pub(crate) fn drop_the_rest(&mut self) {
        let sources = std::mem::take(&mut self.sources);
        self.drain_channels(sources, LaneDrop::Unsent);
        for _ in 0..LAST_ROUNDS {
            for line in &mut self.lines {
                if !line.burst.is_empty() {
                    self.drops.drop_all(LaneDrop::Unsent, &mut line.burst);
                }
            }
            if self.ask_stages(false).0 == 0 {
                break;
            }
        }
    }

    /// Lets stages pass on what they hold; says how many packets that were, and whether a stage was left out as something waits in
    /// front of a lossless output behind it.
    fn ask_stages(&mut self, waits: bool) -> (usize, bool) {
        let (mut given, mut is_held_up) = (0, false);
        for slot in &mut self.slots {
            if waits && is_blocked(&self.lines, &slot.waits_for) {
                is_held_up = true;
                continue;
            }
            let mut outputs = Outputs::new(&mut self.lines, &slot.edges, &self.drops);
            let made = slot.stage.finish(&mut self.work, &mut outputs);
            slot.counters.made().add(made as u64);
            given += made;
            if !self.work.is_empty() {
                pass_on(&mut self.lines, slot.next, &mut self.work, &self.drops);
            }
        }
        self.run_inner();
        (given, is_held_up)
    }

    /// Counts what other lanes have sent and nobody will carry on. What they send meanwhile is not waited for.
    #[cold]
    pub(crate) fn drain_channels(&mut self, sources: Vec<Source>, reason: LaneDrop) {
        for mut source in sources {
            let Input::Channel(channel) = &mut source.input else { continue };
            let inside = channel.len();
            let mut drained = 0;
            while drained < inside {
                let count = channel.receive(&mut self.burst);
                drained += count;
                source.received.add(count as u64);
                self.drops.count(reason, count);
                self.burst.clear();
            }
        }
    }
}
