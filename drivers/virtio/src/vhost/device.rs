//! Makes the device's side of a ring of what the front end has said of it.

use super::inflight::InflightMemory;
use crate::features::{EVENT_INDEX, INDIRECT, PACKED};
use crate::log::Range;
use crate::memory::GuestMemory;
use crate::protocol::RingAddresses;
use crate::queue::device::{PackedDevice, SplitDevice, Start};
use crate::queue::ring::AnySide;
use crate::queue::side::Broken;
use crate::ring::{packed, split};
use std::ptr::NonNull;

/// What is known of where a ring is to go on.
#[derive(Clone, Copy)]
pub(super) struct Resumption<'a> {
    /// Where the front end says.
    pub(super) base: u32,
    /// No device of this connection had the ring before.
    pub(super) is_first: bool,
    /// Memory with notes of buffers under way, and which ring it is.
    pub(super) notes: Option<(&'a InflightMemory, usize)>,
}

impl Resumption<'_> {
    fn packed(&self, features: u64, size: u16) -> Result<Start, &'static str> {
        let notes = self.notes.map(|(memory, number)| memory.notes(number, size)).transpose()?;
        Ok(match (notes, self.is_first) {
            (Some(notes), true) => Start::Notes(notes),
            (Some(notes), false) => Start::FreshNotes(notes),
            // Without tables drivers make chains, and those hide where the device was.
            (None, true) if features & INDIRECT != 0 => Start::Flags,
            (None, _) => Start::Base,
        })
    }

    fn check_split(&self, size: u16) -> Result<(), &'static str> {
        self.notes.map_or(Ok(()), |(memory, number)| memory.check_split(number, size))
    }
}

/// What a device writes of a ring, by the driver's addresses: used buffers, and when it wants to be told.
pub(super) fn written_parts(
    memory: &GuestMemory,
    features: u64,
    size: u16,
    addresses: RingAddresses,
) -> Vec<Range> {
    let RingAddresses { descriptors, used, .. } = addresses;
    let parts = if features & PACKED != 0 {
        vec![(descriptors, packed::descriptors_bytes(size)), (used, packed::SUPPRESSION_BYTES)]
    } else {
        vec![(used, split::used_bytes(size))]
    };
    let ranges = parts
        .into_iter()
        .filter_map(|(user, length)| Some(Range { address: memory.guest(user)?, length: length as u64 }));
    ranges.collect()
}

/// The device's side of a ring.
pub(super) fn device(
    memory: &GuestMemory,
    features: u64,
    size: u16,
    addresses: RingAddresses,
    resumption: Resumption<'_>,
) -> Result<AnySide, &'static str> {
    if memory.is_empty() {
        return Err("the front end has lent no memory: QEMU's backend of it needs share=on");
    }
    let part = |address: u64, bytes: usize, alignment: usize| -> Result<NonNull<u8>, &'static str> {
        let pointer = memory.user(address, bytes).ok_or("a part of it is outside the memory")?;
        let is_aligned = pointer.addr().get().is_multiple_of(alignment);
        is_aligned.then_some(pointer).ok_or("a part of it is at an odd address")
    };
    let RingAddresses { descriptors, available, used, .. } = addresses;
    let event_index = features & EVENT_INDEX != 0;
    if features & PACKED != 0 {
        let parts = packed::Parts {
            descriptors: part(descriptors, packed::descriptors_bytes(size), packed::DESCRIPTORS_ALIGNMENT)?,
            driver: part(available, packed::SUPPRESSION_BYTES, packed::SUPPRESSION_ALIGNMENT)?,
            device: part(used, packed::SUPPRESSION_BYTES, packed::SUPPRESSION_ALIGNMENT)?,
        };
        // SAFETY: the parts are mapped and aligned, by `part`, for as long as the memory is held, as `Active` does; the size was checked when it was
        // said. Descriptors may point at the ring itself: what is there is then copied, or overwritten by whole packets, as the other
        // side could do as well.
        let ring = unsafe { packed::PackedRing::new(parts, size) };
        let start = resumption.packed(features, size)?;
        PackedDevice::new(ring, resumption.base, event_index, start)
            .map(AnySide::PackedDevice)
            .map_err(|Broken(what)| what)
    } else {
        if !size.is_power_of_two() {
            return Err("its size is no power of two");
        }
        let parts = split::Parts {
            descriptors: part(descriptors, split::descriptors_bytes(size), split::DESCRIPTORS_ALIGNMENT)?,
            available: part(available, split::available_bytes(size), split::AVAILABLE_ALIGNMENT)?,
            used: part(used, split::used_bytes(size), split::USED_ALIGNMENT)?,
        };
        resumption.check_split(size)?;
        // SAFETY: as above.
        let ring = unsafe { split::SplitRing::new(parts, size) };
        Ok(AnySide::SplitDevice(SplitDevice::new(ring, event_index)))
    }
}
