//! How far a trial is, for a person who waits.

use crate::messages;
use std::io::{IsTerminal as _, Write as _};
use warmlane::functions::generator::Sample;

/// The line that is renewed every second.
pub(super) struct Progress {
    shown: bool,
    last: Sample,
    wrote: bool,
}

impl Progress {
    pub(super) fn new(shown: bool) -> Self {
        Self { shown, last: Sample::default(), wrote: false }
    }

    /// Always `true`, to be joined with other reasons to go on.
    pub(super) fn show(&mut self, sample: &Sample) -> bool {
        let elapsed = sample.seconds - self.last.seconds;
        if self.shown && elapsed >= 1.0 {
            let rate = |now: u64, then: u64| (now - then) as f64 / elapsed / 1e6;
            let line = format!(
                "{:>5.0} s  sent {:>9.3} Mpps  received {:>9.3} Mpps",
                sample.seconds,
                rate(sample.sent, self.last.sent),
                rate(sample.received, self.last.received)
            );
            if std::io::stderr().is_terminal() {
                messages::raw(format_args!("\r{line}"));
                // A progress line that can't be flushed is not worth an error.
                let _ = std::io::stderr().flush();
            } else {
                messages::line(line);
            }
            self.last = *sample;
            self.wrote = true;
        }
        true
    }

    pub(super) fn end(&mut self) {
        if self.wrote && std::io::stderr().is_terminal() {
            messages::line("");
        }
        *self = Self::new(self.shown);
    }
}
