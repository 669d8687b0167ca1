//! Rings for a device on a bus, such as a PCI card: memory for them, and a port over them.
//!
//! Whoever knows the bus makes [`BusMemory`], tells the device where the rings are in it, starts the device, and then the rings of the port
//! ([`BusRings::start`]). When the device is to stop it goes the other way: [`BusRings::stop`], then the device, then the memory.
//! What a device is told besides goes by its [`ControlQueue`].

mod control;
mod null_device;

use crate::features::{DRIVER_OFFLOADS, EVENT_INDEX, MERGEABLE, PACKED, header_length};
use crate::layout::{Layout, RING_SIZES, ROOM};
use crate::memory::GuestMemory;
use crate::port::over_rings;
use crate::protocol::RingAddresses;
pub use crate::queue::notify::Notify;
use crate::queue::ring::{Active, AnySide, Ring};
use crate::queue::sides::RingSide;
use control::{CONTROL_RING_SIZES, ControlLayout};
pub use control::{ControlError, ControlQueue, LONGEST_COMMAND};
pub use null_device::NullDevice;
use std::fmt;
use std::io;
use std::sync::Arc;
use warmlane_driver_common::SharedPool;
use warmlane_driver_common::peer::Event;
use warmlane_mem::Pool;
use warmlane_port::Port;
use warmlane_sys::pages::{Mapping, MappingError, MappingRequest, PagePreference};

/// Whether a ring can have so many descriptors.
pub fn is_ring_size(size: u16) -> bool {
    size.is_power_of_two() && RING_SIZES.contains(&size)
}

/// The length of a control queue's ring, if the device can have so many descriptors at most. `None`: it has too few.
pub fn control_ring_size(most: u16) -> Option<u16> {
    let size = most.min(*CONTROL_RING_SIZES.end());
    // The largest power of two that is no larger.
    let size = 1 << size.checked_ilog2()?;
    CONTROL_RING_SIZES.contains(&size).then_some(size)
}

/// The features that are taken of those a device offers, if the choice is `wanted` ([`crate::features`]).
pub const fn agree(wanted: u64, offered: u64) -> u64 {
    // QEMU (7.2) says once at which place of a packed ring it wants to be told, and may go past it without saying a new one: it would wait for ever.
    let event_index = if wanted & offered & PACKED == 0 { EVENT_INDEX } else { 0 };
    let agreed = (wanted & !EVENT_INDEX | event_index) & offered;
    // There is no buffer for what is longer than a frame.
    if agreed & MERGEABLE == 0 { agreed & !DRIVER_OFFLOADS } else { agreed }
}

/// The longest frame that a device can hand over in one buffer; `None` if it may take several, for any length.
pub const fn longest_frame(agreed: u64) -> Option<u32> {
    if agreed & MERGEABLE == 0 { Some(ROOM - header_length(agreed) as u32) } else { None }
}

/// What was agreed on with a device.
#[derive(Clone, Copy, Debug)]
pub struct Agreed {
    /// Features, see [`agree`].
    pub features: u64,
    /// Rings; of each pair first the one that the device fills.
    pub rings: usize,
    /// Descriptors of each, see [`is_ring_size`].
    pub ring_size: u16,
    /// Descriptors of the control queue, see [`control_ring_size`]; `None`: there is none in this memory.
    pub control: Option<u16>,
}

/// Where the parts of a ring are, by the device's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingAreas {
    /// The descriptors.
    pub descriptors: u64,
    /// What the driver writes: the available ring, or its event suppression.
    pub driver: u64,
    /// What the device writes: the used ring, or its event suppression.
    pub device: u64,
}

fn areas(addresses: RingAddresses) -> RingAreas {
    let RingAddresses { descriptors, available, used, .. } = addresses;
    RingAreas { descriptors, driver: available, device: used }
}

/// Rings and their buffers, in memory that a device can be given.
#[derive(Debug)]
pub struct BusMemory {
    layout: Layout,
    control: Option<ControlLayout>,
    features: u64,
    memory: Arc<GuestMemory>,
    sides: Vec<Option<AnySide>>,
    fallback: Option<String>,
}

impl BusMemory {
    /// New memory, in which all buffers that the device fills are available. `map` says at which address the device finds it.
    ///
    /// # Errors
    /// There is not so much memory, or what `map` says.
    ///
    /// # Panics
    /// If [`is_ring_size`] doesn't hold, or there are no rings, or the control queue is of another size than [`control_ring_size`] says.
    pub fn new<E: From<MappingError>>(
        name: &str,
        agreed: Agreed,
        map: impl FnOnce(&Mapping) -> Result<u64, E>,
    ) -> Result<Self, E> {
        let Agreed { features, rings, ring_size, control } = agreed;
        assert!(is_ring_size(ring_size) && rings > 0, "{rings} rings of {ring_size}");
        assert!(control.is_none_or(|size| control_ring_size(size) == Some(size)), "{control:?}");
        let mut layout = Layout { size: ring_size, is_packed: features & PACKED != 0, rings, address: 0 };
        // Behind all others, at a line as they are.
        let mut control = control.map(|size| ControlLayout(Layout { size, rings: 1, ..layout }));
        let length = layout.bytes() + control.map_or(0, ControlLayout::bytes);
        let request = MappingRequest { name: name.to_owned(), length, pages: PagePreference::Best };
        let mapping = Mapping::new(&request)?;
        let fallback = mapping.fallback().map(str::to_owned);
        layout.address = map(&mapping)?;
        if let Some(ControlLayout(control)) = &mut control {
            control.address = layout.address + layout.bytes() as u64;
        }
        let memory = Arc::new(GuestMemory::ours(layout.address, mapping));
        let sides = (0..rings).map(|number| layout.driver(number, &memory, features, None)).collect();
        Ok(Self { layout, control, features, memory, sides, fallback })
    }

    /// Has the device reach a pool, too: it fills buffers of that, and sends from them, so that packets of one buffer are not copied. Before the device is told of
    /// anything. `None`: the pool has too few buffers left for all that the device fills, or they have no space for headers in front of their data.
    pub fn lend(self, pool: &Arc<SharedPool>) -> Option<Self> {
        let memory = Arc::new(self.memory.with_pool(pool));
        let side = |number| self.layout.lending_driver(number, &memory, self.features, pool).map(Some);
        let sides = (0..self.layout.rings).map(side).collect::<Option<Vec<_>>>()?;
        Some(Self { memory, sides, ..self })
    }

    /// Where a ring is.
    pub fn areas(&self, number: usize) -> RingAreas {
        areas(self.layout.addresses(number))
    }

    /// Where the control queue's ring is, if there is one.
    pub fn control_areas(&self) -> Option<RingAreas> {
        self.control.map(|control| areas(control.0.addresses(0)))
    }

    /// The control queue, if there is one, before the device is started; commands are told of by `notify`.
    pub fn control_queue(&self, notify: Box<dyn Notify>) -> Option<ControlQueue> {
        ControlQueue::new(self.control?, &self.memory, self.features, notify)
    }

    /// If the memory is not on huge pages: what that costs, and the remedy.
    pub fn fallback(&self) -> Option<&str> {
        self.fallback.as_deref()
    }
}

/// The rings of a port, which lanes use while they are started.
#[derive(Clone)]
pub struct BusRings {
    rings: Vec<Arc<Ring>>,
    alarm: Event,
}

impl fmt::Debug for BusRings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("BusRings").field("rings", &self.rings.len()).finish_non_exhaustive()
    }
}

impl BusRings {
    /// So many pairs of rings, none of which is started.
    ///
    /// # Errors
    /// There are too many descriptors.
    pub fn new(pairs: usize) -> io::Result<Self> {
        let alarm = Event::new()?;
        let rings = (0..2 * pairs).map(|_| Ring::new(&alarm).map(Arc::new)).collect::<io::Result<_>>()?;
        Ok(Self { rings, alarm })
    }

    /// Signalled when a ring [is broken](Self::broken).
    pub const fn alarm(&self) -> &Event {
        &self.alarm
    }

    /// What the device wrote that can't be, if it did. That ring is not used any more; the device is to be reset, and all to be stopped.
    pub fn broken(&self) -> Option<&'static str> {
        self.rings.iter().find_map(|ring| ring.broken())
    }

    /// Starts a ring, once, which is the one with a number of its own in this memory: lanes may use it as soon as the device may be told of it, by `notify`. It tells of
    /// what it used by `interrupt`.
    ///
    /// # Errors
    /// The kernel refuses, or the memory has no such ring that was not started.
    pub fn start(
        &self,
        number: usize,
        (memory, place): (&mut BusMemory, usize),
        notify: Box<dyn Notify>,
        interrupt: Option<Event>,
    ) -> io::Result<()> {
        let side = memory.sides.get_mut(place).and_then(Option::take);
        let (Some(side), Some(ring)) = (side, self.rings.get(number)) else {
            return Err(io::Error::other(format!("ring {number} can't be started again")));
        };
        ring.doorbell.set_kick(interrupt)?;
        let active = Active {
            side,
            memory: Arc::clone(&memory.memory),
            features: memory.features,
            is_enabled: true,
            call: Some(notify),
            log: None,
        };
        ring.change(|place| *place = Some(active));
        Ok(())
    }

    /// The link is up or down. While it is down, what is to be sent is dropped and counted.
    pub fn set_link(&self, is_up: bool) {
        for ring in self.rings.iter().skip(1).step_by(2) {
            ring.change(|active| active.iter_mut().for_each(|active| active.is_enabled = is_up));
        }
    }

    /// No lane uses the memory any more.
    pub fn stop(&self) {
        self.rings.iter().for_each(|ring| ring.release());
    }

    /// A port over the rings. `features` are those that can be agreed on; `end` is dropped with the last of its queues.
    pub fn port(
        &self,
        (name, driver): (&str, &'static str),
        pool: &Pool,
        features: u64,
        end: &Arc<dyn Send + Sync>,
    ) -> Port {
        over_rings((name, driver), pool, &self.rings, (RingSide::Driver, features), end)
    }
}

#[cfg(test)]
mod tests;
