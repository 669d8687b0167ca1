//! Memory where buffers under way are noted, as it goes from one back end to the next by their front end.

use crate::connection::control::Refusal;
use crate::protocol::Inflight;
use crate::queue::inflight::{Notes, check_split, ring_bytes};
use crate::queue::side::Broken;
use crate::ring::LONGEST;
use rustix::fd::OwnedFd;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use std::io;
use std::sync::Arc;
use warmlane_driver_common::peer::{Event, Extent, PeerMapping};

/// As many rings as there are messages about.
const MOST_RINGS: u16 = 256;

/// The memory that a front end has sent.
pub(super) struct InflightMemory {
    memory: Arc<PeerMapping>,
    rings: u16,
    ring_size: u16,
    is_packed: bool,
}

/// Bytes for so many rings, if there can be so many.
fn bytes(inflight: Inflight, is_packed: bool) -> Result<u64, Refusal> {
    let Inflight { rings, ring_size, .. } = inflight;
    let are_possible = (1..=MOST_RINGS).contains(&rings) && (1..=LONGEST).contains(&u32::from(ring_size));
    are_possible
        .then(|| u64::from(rings) * ring_bytes(ring_size, is_packed) as u64)
        .ok_or_else(|| format!("notes of buffers of {rings} rings of {ring_size}"))
}

impl InflightMemory {
    /// Memory that the front end is to keep.
    pub(super) fn make(wanted: Inflight, is_packed: bool) -> Result<(Inflight, OwnedFd), Refusal> {
        let length = bytes(wanted, is_packed)?;
        let make = || -> io::Result<OwnedFd> {
            let file = memfd_create("vhost inflight", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
            ftruncate(&file, length)?;
            fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
            Ok(file)
        };
        let file = make().map_err(|error| format!("can't make memory for notes of buffers: {error}"))?;
        Ok((Inflight { length, offset: 0, ..wanted }, file))
    }

    /// Memory that another back end has made, or this one.
    pub(super) fn new(
        inflight: Inflight,
        file: &OwnedFd,
        is_packed: bool,
        alarm: &Event,
    ) -> Result<Self, Refusal> {
        let Inflight { length, offset, rings, ring_size } = inflight;
        if length < bytes(inflight, is_packed)? {
            return Err(format!("notes of buffers of {rings} rings of {ring_size} in {length} bytes"));
        }
        let memory = PeerMapping::new(file, Extent { offset, length }, false, alarm)
            .map_err(|error| format!("notes of buffers of {error}"))?;
        Ok(Self { memory: Arc::new(memory), rings, ring_size, is_packed })
    }

    pub(super) fn is_lost(&self) -> bool {
        self.memory.is_lost()
    }

    /// Where a ring's part is, if it has one.
    fn offset(&self, number: usize, size: u16, is_packed: bool) -> Result<u64, &'static str> {
        let is_there =
            number < usize::from(self.rings) && size <= self.ring_size && is_packed == self.is_packed;
        is_there
            .then(|| number as u64 * ring_bytes(self.ring_size, is_packed) as u64)
            .ok_or("there is no place for notes of its buffers")
    }

    pub(super) fn notes(&self, number: usize, size: u16) -> Result<Notes, &'static str> {
        let offset = self.offset(number, size, true)?;
        Notes::new(Arc::clone(&self.memory), offset, size).ok_or("notes of its buffers at an odd address")
    }

    pub(super) fn check_split(&self, number: usize, size: u16) -> Result<(), &'static str> {
        let offset = self.offset(number, size, false)?;
        check_split(&self.memory, offset, size).map_err(|Broken(what)| what)
    }
}
