//! A ring as lane and control thread share it.
//!
//! A lane holds the lock for the length of a burst, the control thread for that of a change. So when a change is done, no lane uses what
//! was there before: a ring that was stopped stays where it was stopped, and memory that was taken away is unmapped.

use super::device::{Broken, Device, PackedDevice, SplitDevice};
use super::doorbell::Doorbell;
use crate::memory::GuestMemory;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use warmlane_driver_common::peer::Event;
use warmlane_sync::spin::{SpinLock, SpinLockGuard};

/// A ring of either format.
#[derive(Debug)]
pub(super) enum AnyDevice {
    Split(SplitDevice),
    Packed(PackedDevice),
}

impl AnyDevice {
    pub(super) fn base(&self) -> u32 {
        match self {
            Self::Split(device) => device.base(),
            Self::Packed(device) => device.base(),
        }
    }

    fn want_events(&mut self, wanted: bool) {
        match self {
            Self::Split(device) => device.want_events(wanted),
            Self::Packed(device) => device.want_events(wanted),
        }
    }

    fn look(&mut self) -> Result<usize, Broken> {
        let mut heads = [super::device::Head::default()];
        match self {
            Self::Split(device) => device.look(&mut heads),
            Self::Packed(device) => device.look(&mut heads),
        }
    }
}

/// A ring that can be used.
#[derive(Debug)]
pub(super) struct Active {
    pub(super) device: AnyDevice,
    pub(super) memory: Arc<GuestMemory>,
    /// What both sides have agreed on.
    pub(super) features: u64,
    pub(super) is_enabled: bool,
    /// What the driver wants signalled.
    pub(super) call: Option<Event>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) active: Option<Active>,
    broken: Option<&'static str>,
}

impl State {
    /// The ring is not to be used any more.
    #[cold]
    pub(super) fn break_off(&mut self, Broken(reason): Broken, alarm: &Event) {
        self.active = None;
        self.broken = Some(reason);
        alarm.signal();
    }
}

/// Beside features: the ring is active and enabled. No feature has this bit.
const ENABLED: u64 = 1 << 63;

#[derive(Debug)]
pub(super) struct Ring {
    state: SpinLock<State>,
    /// Of a ring that is active and enabled: what was agreed on, and [`ENABLED`].
    features: AtomicU64,
    pub(super) doorbell: Doorbell,
    /// Tells the control thread.
    pub(super) alarm: Event,
}

impl Ring {
    pub(super) fn new(alarm: &Event) -> io::Result<Self> {
        Ok(Self {
            state: SpinLock::new(State::default()),
            features: AtomicU64::new(0),
            doorbell: Doorbell::new()?,
            alarm: alarm.clone(),
        })
    }

    /// For a burst, unless the ring is being changed.
    #[inline(always)]
    pub(super) fn try_lock(&self) -> Option<SpinLockGuard<'_, State>> {
        self.state.try_lock()
    }

    /// What was agreed on, as far as known: for who can look again.
    #[inline(always)]
    pub(super) fn features(&self) -> u64 {
        self.features.load(Ordering::Relaxed) & !ENABLED
    }

    /// Whether packets can go through.
    pub(super) fn is_enabled(&self) -> bool {
        self.features.load(Ordering::Relaxed) & ENABLED != 0
    }

    /// Changes the ring.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Option<Active>) -> T) -> T {
        let mut state = self.state.lock();
        let result = change(&mut state.active);
        let enabled = state.active.as_ref().filter(|active| active.is_enabled);
        self.features.store(enabled.map_or(0, |active| active.features | ENABLED), Ordering::Relaxed);
        drop(state);
        self.doorbell.changed();
        result
    }

    /// Why it can't be used any more.
    pub(super) fn broken(&self) -> Option<&'static str> {
        self.state.lock().broken
    }

    /// As if it had never been used.
    pub(super) fn reset(&self) {
        self.change(|active| *active = None);
        self.state.lock().broken = None;
    }

    /// Says whether the driver is to tell of new buffers. Returns whether there are some already.
    pub(super) fn want_events(&self, wanted: bool) -> bool {
        let mut state = self.state.lock();
        let Some(active) = &mut state.active else { return false };
        active.device.want_events(wanted);
        // What is wrong will be found by who takes them.
        active.device.look() != Ok(0)
    }
}
