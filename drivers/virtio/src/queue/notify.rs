//! How the other side is told that there is something for it.

use std::fmt::Debug;
use warmlane_driver_common::peer::Event;

/// A way to tell the other side of a ring: an event that it waits for, or a register of a device.
pub trait Notify: Debug + Send + Sync {
    /// Tells it. Called by lanes, at most once for each burst and only if the other side wants to be told.
    fn notify(&self);
}

impl Notify for Event {
    fn notify(&self) {
        self.signal();
    }
}

/// For a ring.
pub(crate) fn boxed(event: Option<Event>) -> Option<Box<dyn Notify>> {
    event.map(|event| Box::new(event) as Box<dyn Notify>)
}
