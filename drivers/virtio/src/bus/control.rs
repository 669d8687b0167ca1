//! The control queue of a network device: commands, one after the other, each with an answer (virtio 1.2, section 5.1.6.5).
//!
//! It is for whoever starts a device, who waits for the answer, and never for lanes.

use crate::layout::Layout;
use crate::memory::GuestMemory;
use crate::queue::driver::{DriverRing, Post};
use crate::queue::notify::Notify;
use crate::queue::side::Broken;
use crate::ring::{NEXT, WRITE};
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thiserror::Error;

/// How many descriptors its ring can have; two are used at a time, of a command and of its answer.
pub(super) const CONTROL_RING_SIZES: RangeInclusive<u16> = 2..=64;

/// Bytes of a command at most, and with its answer, which has a line of its own.
pub const LONGEST_COMMAND: usize = 512;
const COMMAND_AND_ANSWER: usize = LONGEST_COMMAND + 64;

/// Answers (section 5.1.6.5): the command was obeyed; and none that a device gives.
const OBEYED: u8 = 0;
const NO_ANSWER: u8 = 0xff;

/// How often the device is looked at while it has a command.
const LOOK: Duration = Duration::from_micros(100);

/// Why a command has not been obeyed. Unless it was refused, the queue is not to be used any more.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum ControlError {
    /// The device still has the command.
    #[error("nothing answers at its control queue")]
    Silent,
    /// It can't or won't.
    #[error("it refuses, with the answer {0}")]
    Refused(u8),
    /// It did what it can't with the queue.
    #[error("its control queue has {0}")]
    Broken(&'static str),
}

impl From<Broken> for ControlError {
    fn from(Broken(what): Broken) -> Self {
        Self::Broken(what)
    }
}

/// Where the queue and its commands are in a device's memory: a ring, and behind it a command and its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct ControlLayout(pub(super) Layout);

impl ControlLayout {
    /// Bytes of all.
    pub(super) fn bytes(self) -> usize {
        self.0.ring_bytes() + COMMAND_AND_ANSWER
    }

    fn command(self) -> u64 {
        self.0.address + self.0.ring_bytes() as u64
    }
}

/// A control queue.
pub struct ControlQueue {
    ring: Box<dyn DriverRing + Send>,
    memory: Arc<GuestMemory>,
    /// The address of the command.
    command: u64,
    notify: Box<dyn Notify>,
}

impl fmt::Debug for ControlQueue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ControlQueue").field("command", &self.command).finish_non_exhaustive()
    }
}

impl ControlQueue {
    /// Makes the ring all zero. `None`: the memory is not of this layout.
    pub(super) fn new(
        layout: ControlLayout,
        memory: &Arc<GuestMemory>,
        features: u64,
        notify: Box<dyn Notify>,
    ) -> Option<Self> {
        let mut ring = layout.0.bare_ring(memory, features)?;
        // Its answers are looked for.
        ring.want_events(false);
        memory.user(layout.command(), COMMAND_AND_ANSWER)?;
        Some(Self { ring, memory: Arc::clone(memory), command: layout.command(), notify })
    }

    /// Gives the device a command, and waits for the answer: for so long at most.
    ///
    /// # Errors
    /// [`ControlError`].
    ///
    /// # Panics
    /// If the command is longer than [`LONGEST_COMMAND`].
    pub fn run(&mut self, command: &[u8], limit: Duration) -> Result<(), ControlError> {
        assert!(command.len() <= LONGEST_COMMAND, "a command of {} bytes", command.len());
        let Some(place) = self.memory.user(self.command, COMMAND_AND_ANSWER) else {
            return Err(ControlError::Broken("no memory"));
        };
        for (offset, byte) in command.iter().enumerate() {
            // SAFETY: below `LONGEST_COMMAND`, inside what was found, which stays mapped while the memory is held.
            unsafe { place.add(offset).write_volatile(*byte) };
        }
        // SAFETY: the answer's place is inside what was found, behind the command.
        let answer = unsafe { place.add(LONGEST_COMMAND) };
        // SAFETY: as above; the device has nothing yet.
        unsafe { answer.write_volatile(NO_ANSWER) };
        let (address, length) = (self.command, command.len() as u32);
        self.ring.post(Post { number: 0, name: 0, address, length, flags: NEXT, next: 1 });
        let address = self.command + LONGEST_COMMAND as u64;
        self.ring.post(Post { number: 1, name: 0, address, length: 1, flags: WRITE, next: 0 });
        self.ring.publish();
        // Whether it wants to be told is not asked: it happens seldom, and a device that forgot to say so would never answer.
        self.notify.notify();
        let end = Instant::now() + limit;
        let name = loop {
            if let Some((name, _)) = self.ring.next_used()? {
                break name;
            }
            if Instant::now() > end {
                return Err(ControlError::Silent);
            }
            std::thread::sleep(LOOK);
        };
        if name != 0 {
            return Err(ControlError::Broken("a used buffer that was not available"));
        }
        self.ring.skip_used(1, 2)?;
        self.ring.acquire();
        // SAFETY: as above. The device may write to it at any time, so it is read once.
        match unsafe { answer.read_volatile() } {
            OBEYED => Ok(()),
            answer => Err(ControlError::Refused(answer)),
        }
    }
}
