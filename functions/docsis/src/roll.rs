//! New keys for both ends while they work.

use std::time::Duration;

use warmlane_sync::mailbox::{SendError, Sender};

use crate::control::ServiceGroup;
use crate::keys::KeyChange;
use crate::lower::LowerCountersView;
use crate::modem::ModemCountersView;

/// How long to wait between two looks.
const LOOK: Duration = Duration::from_micros(500);

/// Rolls the keys of all modems of a service group of which this process has both ends.
pub struct KeyRoller<'a> {
    /// The service group.
    pub group: &'a ServiceGroup,
    /// New keys for the lower MAC.
    pub to_lower: Sender<KeyChange>,
    /// New keys for the modems.
    pub to_modems: Sender<KeyChange>,
    /// What the lower MAC counts.
    pub lower: LowerCountersView,
    /// What the modems count.
    pub modems: ModemCountersView,
    /// How often they were rolled.
    pub rolls: u64,
}

impl KeyRoller<'_> {
    /// Rolls all keys once. Says whether it was done; not if `is_over` says so before.
    pub fn roll(&mut self, is_over: &dyn Fn() -> bool) -> bool {
        let modems = self.group.modems.len() as u64;
        let number = self.rolls + 1;
        // What was made with the key that goes now, the one before last, has to have come.
        let made = self.lower.framed();
        if !wait(is_over, || self.modems.frames() >= made) {
            return false;
        }
        // The modems first: they must have a key before a frame needs it.
        if !send_all(self.group, number, &mut self.to_modems, is_over)
            || !wait(is_over, || self.modems.keys() >= number * modems)
            || !send_all(self.group, number, &mut self.to_lower, is_over)
            || !wait(is_over, || self.lower.keys() >= number * modems)
        {
            return false;
        }
        self.rolls = number;
        true
    }
}

fn send_all(
    group: &ServiceGroup,
    number: u64,
    to: &mut Sender<KeyChange>,
    is_over: &dyn Fn() -> bool,
) -> bool {
    group.modems.iter().all(|modem| {
        let key = group.keys.key(modem.said, number);
        let mut change = Some(KeyChange { said: modem.said, sequence: (number % 16) as u8, key });
        wait(is_over, || {
            // If it isn't taken there will be space again, or the lane has ended, and so will the run.
            change = change.take().and_then(|change| to.send(change).err()).map(SendError::into_message);
            change.is_none()
        })
    })
}

fn wait(is_over: &dyn Fn() -> bool, mut done: impl FnMut() -> bool) -> bool {
    loop {
        if done() {
            return true;
        }
        if is_over() {
            return false;
        }
        std::thread::sleep(LOOK);
    }
}
