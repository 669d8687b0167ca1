//! Memory that is lent to one back end after the other.

use crate::connection::control::Refusal;
use crate::layout::Layout;
use crate::memory::GuestMemory;
use crate::protocol::MemoryRegion;
use crate::queue::ring::{AnySide, Ring};
use rustix::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use warmlane_sys::pages::{Mapping, MappingRequest, PagePreference};

/// What a connection leaves to the next one.
pub(super) type Kept = Arc<Mutex<Option<SharedMemory>>>;

/// Memory with rings and buffers, and what the driver knows of them.
#[derive(Debug)]
pub(super) struct SharedMemory {
    pub(super) layout: Layout,
    /// What both sides have agreed on.
    pub(super) features: u64,
    pub(super) memory: Arc<GuestMemory>,
    /// As the back end is told.
    pub(super) region: MemoryRegion,
    pub(super) file: OwnedFd,
    /// Of each ring that was in use before.
    former: Vec<Option<AnySide>>,
}

impl SharedMemory {
    /// New memory.
    pub(super) fn new(name: &str, layout: Layout, features: u64) -> Result<Self, Refusal> {
        let request =
            MappingRequest { name: name.to_owned(), length: layout.bytes(), pages: PagePreference::Best };
        let mapping = Mapping::new(&request).map_err(|error| error.to_string())?;
        let region = MemoryRegion {
            guest: layout.address,
            length: mapping.length() as u64,
            user: layout.address,
            offset: 0,
        };
        let file = mapping.file().try_clone_to_owned();
        Ok(Self {
            layout,
            features,
            region,
            file: file.map_err(|error| format!("can't lend memory: {error}"))?,
            memory: Arc::new(GuestMemory::ours(layout.address, mapping)),
            former: (0..layout.rings).map(|_| None).collect(),
        })
    }

    /// Whether rings would be the same again.
    pub(super) fn fits(&self, layout: Layout, features: u64) -> bool {
        (self.layout, self.features) == (layout, features)
    }

    /// A driver for a ring, in which nobody is any more.
    pub(super) fn driver(&mut self, number: usize) -> Result<AnySide, Refusal> {
        let former = self.former.get_mut(number).and_then(Option::take);
        let driver = self.layout.driver(number, &self.memory, self.features, former);
        driver.ok_or_else(|| "a ring outside its memory".to_owned())
    }

    /// Takes back what is known of rings, from the first on. Of one that made no sense there is nothing.
    pub(super) fn take_back(&mut self, rings: &[Arc<Ring>]) {
        for (ring, former) in rings.iter().zip(&mut self.former) {
            if let Some(active) = ring.change(Option::take) {
                *former = Some(active.side);
            }
        }
    }
}
