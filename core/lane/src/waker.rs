//! How the control side wakes lanes that sleep.

use warmlane_sys::event::Event;

/// Wakes lanes that sleep, after something was left for them in a place that only they look at, such as a mailbox. Each then polls once
/// more, and looks at inputs that were vacant. Lanes that don't sleep find it anyway.
#[derive(Clone, Debug, Default)]
pub struct Waker {
    lanes: Vec<Event>,
}

impl Waker {
    pub(crate) fn new(lanes: Vec<Event>) -> Self {
        Self { lanes }
    }

    /// Wakes them all. What was left before this is found: a lane clears its wake event first, and looks then.
    pub fn wake(&self) {
        self.lanes.iter().for_each(Event::signal);
    }
}
