//! The memory that a client brings: rings, and buffers unless those are the pool's.

use crate::link::{Buffers, OwnBuffers};
use crate::offer;
use crate::options::Mode;
use crate::protocol::Direction;
use crate::ring::{self, Ring};
use std::io;
use warmlane_driver_common::peer::Event;
use warmlane_sys::pages::{Mapping, MappingRequest, PagePreference};

const LINE_BYTES: usize = 64;

/// How a client's memory is to be cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Rings of each direction.
    pub(crate) to_server: u16,
    pub(crate) to_client: u16,
    pub(crate) log2_size: u8,
    pub(crate) buffer_size: u32,
    pub(crate) mode: Mode,
}

impl Plan {
    const fn ring_stride(self) -> usize {
        ring::bytes(self.log2_size).next_multiple_of(LINE_BYTES)
    }

    /// From one buffer to the next: an odd number of lines, so that their first lines spread over all sets of the caches.
    const fn buffer_stride(self) -> usize {
        (self.buffer_size as usize).div_ceil(LINE_BYTES).next_multiple_of(2) * LINE_BYTES + LINE_BYTES
    }

    const fn rings(self) -> usize {
        self.to_server as usize + self.to_client as usize
    }

    /// Bytes of region 0.
    pub(crate) fn bytes(self) -> usize {
        let buffers = match self.mode {
            Mode::Copy => self.buffer_stride() << self.log2_size,
            Mode::ZeroCopy => 0,
        };
        let offer = match self.mode {
            Mode::Copy => 0,
            Mode::ZeroCopy => offer::BYTES,
        };
        self.rings() * (self.ring_stride() + buffers) + offer
    }
}

/// A ring, and where it lies.
#[derive(Debug)]
pub(crate) struct OwnRing {
    pub(crate) direction: Direction,
    pub(crate) index: u16,
    pub(crate) ring: Ring,
    pub(crate) offset: u32,
    pub(crate) event: Event,
    pub(crate) buffers: Buffers,
}

/// Makes region 0.
pub(crate) fn build(name: &str, plan: Plan) -> io::Result<(Mapping, Vec<OwnRing>)> {
    let length = plan.bytes();
    u32::try_from(length).map_err(|_| {
        io::Error::other("the rings and their buffers take more than 4 GiB: ask for fewer or smaller ones")
    })?;
    let request = MappingRequest { name: format!("memif {name}"), length, pages: PagePreference::Best };
    let mapping = Mapping::new(&request).map_err(io::Error::other)?;
    let first_buffer = plan.rings() * plan.ring_stride();
    let directions = [(Direction::ToServer, plan.to_server), (Direction::ToClient, plan.to_client)];
    let each =
        directions.into_iter().flat_map(|(direction, count)| (0..count).map(move |index| (direction, index)));
    let rings = each.enumerate().map(|(number, (direction, index))| {
        let offset = number * plan.ring_stride();
        // SAFETY: inside the mapping, which has room for that many rings and starts at a page; nobody else uses that part of it, and who
        // has the ring has the connection that holds the mapping.
        let ring = unsafe { Ring::new(mapping.as_ptr().add(offset), plan.log2_size) };
        ring.initialise();
        let buffers = match plan.mode {
            Mode::ZeroCopy => Buffers::Pool,
            Mode::Copy => {
                let offset = first_buffer + number * (plan.buffer_stride() << plan.log2_size);
                Buffers::Own(OwnBuffers {
                    // SAFETY: as above, of buffers.
                    start: unsafe { mapping.as_ptr().add(offset) },
                    offset: offset as u32,
                    stride: plan.buffer_stride() as u32,
                    room: plan.buffer_size,
                })
            }
        };
        Ok(OwnRing { direction, index, ring, offset: offset as u32, event: Event::new()?, buffers })
    });
    let rings = rings.collect::<io::Result<_>>()?;
    Ok((mapping, rings))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_overlaps_and_all_is_inside() {
        for (log2_size, buffer_size) in [(1, 64), (4, 2048), (3, 2000), (5, 65_472)] {
            let plan = Plan { to_server: 3, to_client: 2, log2_size, buffer_size, mode: Mode::Copy };
            let (mapping, rings) = build("test", plan).unwrap();
            let mut parts: Vec<(usize, usize)> = Vec::new();
            for ring in &rings {
                parts.push((ring.offset as usize, ring::bytes(log2_size)));
                let Buffers::Own(buffers) = ring.buffers else { panic!("{:?}", ring.buffers) };
                let lines = buffers.stride as usize / LINE_BYTES;
                assert!(lines % 2 == 1 && buffers.stride >= buffer_size);
                for slot in 0..usize::from(ring.ring.size()) {
                    let descriptor = buffers.descriptor(slot, 0, 0);
                    let offset = buffers.pointer(slot).addr().get() - mapping.as_ptr().addr().get();
                    assert_eq!(offset, descriptor.offset as usize);
                    parts.push((offset, buffer_size as usize));
                }
            }
            parts.sort_unstable();
            assert!(parts.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
            assert!(parts.last().is_some_and(|(offset, bytes)| offset + bytes <= plan.bytes()));
            assert!(rings.iter().all(|ring| ring.ring.has_cookie()) && rings.len() == 5);
        }
    }
}
