//! A device that isn't there: a program turns its rings over, and no data moves. What the driver's part of a packet costs is measured on it.

use super::{Agreed, BusMemory, BusRings};
use crate::features::{MERGEABLE, PACKED, VERSION_1, header_length};
use crate::queue::device::{PackedDevice, SplitDevice, Start};
use crate::queue::ring::{AnySide, with_side};
use crate::queue::side::{Broken, HEADS, Side as _};
use crate::ring::Descriptor;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use warmlane_driver_common::SharedPool;
use warmlane_driver_common::peer::Event;
use warmlane_driver_common::virtio_net::HEADER_LENGTH;
use warmlane_mem::{Pool, Region};
use warmlane_port::Port;
use warmlane_sys::pages::MappingError;

/// A ring of a packed device begins here, in its first turn.
const START: u32 = 1 << 15;

/// A device that isn't there. It finds nothing on the wire but what is in its buffers already, and what it sends goes nowhere.
#[derive(Debug)]
pub struct NullDevice {
    /// The ring that it fills, and the one that it empties.
    sides: [AnySide; 2],
    heads: Box<[Descriptor; HEADS]>,
    region: Region,
    header: usize,
    _memory: BusMemory,
}

impl NullDevice {
    /// One that fills the pool's buffers ([`BusMemory::lend`]), and the port that drives it. Its rings have `size` descriptors, see [`is_ring_size`](super::is_ring_size).
    ///
    /// # Errors
    /// If there is no memory, or the pool has too few buffers.
    ///
    /// # Panics
    /// If no ring is of that size.
    pub fn open(pool: &Pool, size: u16, is_packed: bool) -> io::Result<(Self, Port)> {
        let features = VERSION_1 | MERGEABLE | if is_packed { PACKED } else { 0 };
        let region = pool.region();
        let agreed = Agreed { features, rings: 2, ring_size: size, control: None };
        // Its addresses are those of this process.
        let at = |start: NonNull<u8>| start.addr().get() as u64;
        let shared = SharedPool::new(region.clone(), at(region.address()));
        let memory =
            BusMemory::new("null device", agreed, |mapping| Ok::<_, MappingError>(at(mapping.as_ptr())));
        let short = || io::Error::other("the pool has too few buffers");
        let mut memory = memory.map_err(io::Error::other)?.lend(&shared).ok_or_else(short)?;
        let sides = [side(&memory, 0)?, side(&memory, 1)?];
        let rings = BusRings::new(1)?;
        for number in 0..2 {
            rings.start(number, (&mut memory, number), Box::new(Event::new()?), None)?;
        }
        let end: Arc<dyn Send + Sync> = Arc::new(());
        let port = rings.port(("null device", "null device"), pool, features, &end);
        let (heads, header) = (Box::new([Descriptor::default(); HEADS]), header_length(features));
        Ok((Self { sides, heads, region, header, _memory: memory }, port))
    }

    /// Up to `count` frames come, as many as the driver has posted buffers for, of `bytes` bytes, or as many as a buffer takes. In them is what was in their buffers
    /// before. Returns how many.
    pub fn deliver(&mut self, count: usize, bytes: u16) -> usize {
        let Self { sides: [side, _], heads, region, header, .. } = self;
        let bytes = usize::from(bytes).min(region.data_size());
        let length = (*header + bytes) as u32;
        let mut delivered = 0;
        while delivered < count {
            let wanted = (count - delivered).min(HEADS);
            let found = with_side!(side, side => side.look(&mut heads[..wanted]).inspect(|found| {
                heads[..*found].iter().for_each(|head| write_header(region, head.address));
                side.give_back_whole(&heads[..*found], std::iter::repeat(length));
                side.publish();
            }));
            match found {
                Ok(0) | Err(Broken(_)) => break,
                Ok(found) => delivered += found,
            }
        }
        delivered
    }

    /// Sends all that is in its ring. Returns the number of frames.
    pub fn send(&mut self) -> usize {
        let Self { sides: [_, side], heads, .. } = self;
        let mut sent = 0;
        loop {
            let found = with_side!(side, side => side.look(&mut heads[..]).inspect(|found| {
                side.give_back_whole(&heads[..*found], std::iter::repeat(0));
                side.publish();
            }));
            match found {
                Ok(0) | Err(Broken(_)) => break,
                Ok(found) => sent += found,
            }
        }
        sent
    }
}

/// The device's side of a ring.
fn side(memory: &BusMemory, number: usize) -> io::Result<AnySide> {
    let BusMemory { layout, memory, .. } = memory;
    let missing = || io::Error::other("there is no such ring");
    Ok(if layout.is_packed {
        let ring = layout.packed_ring(number, memory).ok_or_else(missing)?;
        let device = PackedDevice::new(ring, START, false, Start::Base);
        AnySide::PackedDevice(device.map_err(|Broken(reason)| io::Error::other(reason))?)
    } else {
        AnySide::SplitDevice(SplitDevice::new(layout.split_ring(number, memory).ok_or_else(missing)?, false))
    })
}

/// Writes to the header at an address that the packet is in one buffer, if it is one of the region's.
#[inline]
fn write_header(region: &Region, address: u64) {
    let offset = (address as usize).wrapping_sub(region.address().addr().get() - HEADER_LENGTH);
    if offset < region.length() - size_of::<u16>() {
        // SAFETY: inside the region. The driver has posted a buffer there, which is nobody else's until it was used.
        unsafe { region.address().add(offset).cast::<[u8; 2]>().write(1_u16.to_ne_bytes()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmlane_mem::{Burst, PoolConfig};

    #[test]
    fn what_comes_goes_many_times_round_the_rings_and_nothing_is_lost() {
        for is_packed in [false, true] {
            let pool = Pool::new(&PoolConfig { buffers: 512, ..PoolConfig::default() }).unwrap();
            let (mut device, mut port) = NullDevice::open(&pool, 128, is_packed).unwrap();
            assert_eq!(device.deliver(1_000, 60), 128);
            let mut burst = Burst::with_limit(32);
            let (mut all, mut sent) = (0, 0);
            for _ in 0..100 {
                while port.receive[0].receive(&mut burst) > 0 {
                    assert!(burst.iter().all(|packet| packet.len() == 60));
                    all += port.transmit[0].transmit(&mut burst);
                }
                sent += device.send();
                device.deliver(40, 60);
            }
            assert_eq!((all, sent), (128 + 99 * 40, all));
            drop((port, device));
            assert_eq!(pool.ledger().outstanding(), 0);
        }
    }
}
