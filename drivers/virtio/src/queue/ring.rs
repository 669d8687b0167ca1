//! A ring as lane and control thread share it.
//!
//! A lane holds the lock for the length of a burst, the control thread for that of a change. So when a change is done, no lane uses what
//! was there before: a ring that was stopped stays where it was stopped, and memory that was taken away is unmapped.

use super::device::{PackedDevice, SplitDevice};
use super::doorbell::Doorbell;
use super::driver::{Driver, PackedDriverRing, SplitDriverRing};
use super::notify::Notify;
use super::side::{Broken, Side as _};
use crate::log::RingLog;
use crate::memory::GuestMemory;
use crate::ring::Descriptor;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use warmlane_driver_common::peer::Event;
use warmlane_sync::spin::{SpinLock, SpinLockGuard};

/// What a port's queues hold together, and the last of them drops: it stops what they are at.
pub(crate) type PortEnd = Arc<dyn Send + Sync>;

/// Either side of a ring of either format.
#[derive(Debug)]
pub(crate) enum AnySide {
    SplitDevice(SplitDevice),
    PackedDevice(PackedDevice),
    SplitDriver(Driver<SplitDriverRing>),
    PackedDriver(Driver<PackedDriverRing>),
}

/// Does the same with whichever side it is, by code made for it.
macro_rules! with_side {
    ($any:expr, $side:ident => $do:expr) => {
        match $any {
            $crate::queue::ring::AnySide::SplitDevice($side) => $do,
            $crate::queue::ring::AnySide::PackedDevice($side) => $do,
            $crate::queue::ring::AnySide::SplitDriver($side) => $do,
            $crate::queue::ring::AnySide::PackedDriver($side) => $do,
        }
    };
}
pub(crate) use with_side;

impl AnySide {
    /// Where a device is to go on, as the protocol has it.
    pub(crate) fn base(&self) -> u32 {
        match self {
            Self::SplitDevice(device) => device.base(),
            Self::PackedDevice(device) => device.base(),
            // Nobody asks a driver.
            Self::SplitDriver(_) | Self::PackedDriver(_) => 0,
        }
    }
}

/// A ring that can be used.
#[derive(Debug)]
pub(crate) struct Active {
    pub(crate) side: AnySide,
    pub(crate) memory: Arc<GuestMemory>,
    /// What both sides have agreed on.
    pub(crate) features: u64,
    pub(crate) is_enabled: bool,
    /// How the other side is told.
    pub(crate) call: Option<Box<dyn Notify>>,
    /// Where what this side writes to the other's memory is logged.
    pub(crate) log: Option<RingLog>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) active: Option<Active>,
    broken: Option<&'static str>,
}

impl State {
    /// The ring is not to be used any more.
    #[cold]
    pub(crate) fn break_off(&mut self, Broken(reason): Broken, alarm: &Event) {
        self.active = None;
        self.broken = Some(reason);
        alarm.signal();
    }
}

/// Beside features: the ring is active and enabled. No feature has this bit.
const ENABLED: u64 = 1 << 63;

#[derive(Debug)]
pub(crate) struct Ring {
    state: SpinLock<State>,
    /// Of a ring that is active and enabled: what was agreed on, and [`ENABLED`].
    features: AtomicU64,
    pub(crate) doorbell: Doorbell,
    /// Tells the control thread.
    pub(crate) alarm: Event,
}

impl Ring {
    pub(crate) fn new(alarm: &Event) -> io::Result<Self> {
        Ok(Self {
            state: SpinLock::new(State::default()),
            features: AtomicU64::new(0),
            doorbell: Doorbell::new()?,
            alarm: alarm.clone(),
        })
    }

    /// For a burst, unless the ring is being changed.
    #[inline(always)]
    pub(crate) fn try_lock(&self) -> Option<SpinLockGuard<'_, State>> {
        self.state.try_lock()
    }

    /// What was agreed on, as far as known: for who can look again.
    #[inline(always)]
    pub(crate) fn features(&self) -> u64 {
        self.features.load(Ordering::Relaxed) & !ENABLED
    }

    /// Whether packets can go through.
    pub(crate) fn is_enabled(&self) -> bool {
        self.features.load(Ordering::Relaxed) & ENABLED != 0
    }

    /// Changes the ring.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Option<Active>) -> T) -> T {
        let mut state = self.state.lock();
        let result = change(&mut state.active);
        let enabled = state.active.as_ref().filter(|active| active.is_enabled);
        self.features.store(enabled.map_or(0, |active| active.features | ENABLED), Ordering::Relaxed);
        drop(state);
        self.doorbell.changed();
        result
    }

    /// Why it can't be used any more.
    pub(crate) fn broken(&self) -> Option<&'static str> {
        self.state.lock().broken
    }

    /// As if it had never been used.
    pub(crate) fn reset(&self) {
        self.change(|active| *active = None);
        self.state.lock().broken = None;
    }

    /// As if there had never been a connection.
    pub(crate) fn release(&self) {
        self.reset();
        let _ = self.doorbell.set_kick(None);
    }

    /// Says whether the other side is to tell of new buffers. Returns whether there are some already.
    pub(crate) fn want_events(&self, wanted: bool) -> bool {
        let mut state = self.state.lock();
        let Some(active) = &mut state.active else { return false };
        // What is wrong will be found by who takes them.
        let log = active.log.as_ref();
        with_side!(&mut active.side, side => {
            side.want_events(wanted);
            log.inspect(|log| log.ring());
            side.look(&mut [Descriptor::default()]) != Ok(0)
        })
    }
}
