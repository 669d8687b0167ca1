//! The receive ring that a packet socket shares with us (packet_mmap, `Documentation/networking/packet_mmap.rst`,
//! version 2 of its format).
//!
//! A ring is a row of slots of equal size. A slot belongs to the kernel while its status word has no
//! `TP_STATUS_USER` bit, and to us while it has. Whoever passes it on writes the status word last.
//!
//! Although the kernel is trusted, what it wrote is checked before use like anything else that another party can
//! write to.

use std::ffi::c_int;
use std::io;
use std::mem::{offset_of, size_of};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::intake::Tag;
use warmlane_driver_common::system;
use warmlane_driver_common::virtio_net as offload;

/// Bytes in front of a slot's frame at most: the slot's header and link address (52 bytes), space for a link header
/// of up to 16, rounded up to 16, and the offload header, less the Ethernet header itself
/// (`net/packet/af_packet.c: tpacket_rcv`).
const FRAME_OFFSET: u32 = 80 + offload::HEADER_LENGTH as u32 - 14;

/// Ethernet header and one VLAN tag.
const LINK_BYTES: u32 = 18;

/// Slots are a multiple of this, and an odd one, so that slot headers spread over all sets of a cache.
const LINE: u32 = 64;

/// How the ring is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub(crate) slot_bytes: u32,
    pub(crate) slots: u32,
    slots_per_block: u32,
}

impl Geometry {
    /// At least `slots` slots of at least `slot_bytes` bytes.
    pub(crate) fn new(slots: u32, slot_bytes: u32) -> Self {
        // The kernel wants blocks of whole pages that hold whole slots. A page's worth of lines of any slot size
        // is whole pages, and leaves no gap between blocks, so that slot n is at n × slot_bytes.
        let slots_per_block = page_size() / LINE;
        let slot_bytes = (slot_bytes.div_ceil(LINE) | 1) * LINE;
        Self { slot_bytes, slots: slots.next_multiple_of(slots_per_block), slots_per_block }
    }

    /// Bytes of slot that a frame of an interface with this MTU needs.
    pub(crate) const fn slot_for(mtu: u32) -> u32 {
        FRAME_OFFSET + LINK_BYTES + mtu
    }

    const fn bytes(self) -> usize {
        self.slot_bytes as usize * self.slots as usize
    }
}

fn page_size() -> u32 {
    // SAFETY: sysconf has no memory to get wrong.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u32::try_from(bytes).unwrap_or(4096)
}

/// What is in a slot.
#[derive(Debug)]
pub(crate) struct Frame<'a> {
    /// The frame's own length in bytes; more than there is in `data` if it didn't fit the slot.
    pub(crate) length: usize,
    /// As much of the frame as fit the slot.
    pub(crate) data: &'a [u8],
    /// What is left to do with the frame.
    pub(crate) offload: [u8; offload::HEADER_LENGTH],
    /// When it was received, in nanoseconds since the Unix epoch.
    pub(crate) timestamp: u64,
    /// The VLAN tag that the kernel took out of the frame.
    pub(crate) tag: Option<Tag>,
    /// The whole frame waits to be read from the socket.
    pub(crate) is_queued: bool,
    /// The kernel has dropped frames since it was last asked how many.
    pub(crate) is_losing: bool,
}

/// What a slot says is outside the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Corrupt;

/// The receiving end of the ring.
pub(crate) struct Ring {
    memory: NonNull<u8>,
    geometry: Geometry,
    next: u32,
}

// SAFETY: the mapping is not tied to a thread, and the ring is its only user on our side.
unsafe impl Send for Ring {}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: `memory` was mapped with this length in `map`, and nothing borrows from it any more.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.geometry.bytes()) };
    }
}

impl Ring {
    /// Asks `socket` for a ring and maps it.
    pub(crate) fn map(socket: &OwnedFd, geometry: Geometry) -> io::Result<Self> {
        let request = libc::tpacket_req {
            tp_block_size: geometry.slot_bytes * geometry.slots_per_block,
            tp_block_nr: geometry.slots / geometry.slots_per_block,
            tp_frame_size: geometry.slot_bytes,
            tp_frame_nr: geometry.slots,
        };
        let version = libc::tpacket_versions::TPACKET_V2 as c_int;
        system::set_option(socket, libc::SOL_PACKET, libc::PACKET_VERSION, version)?;
        system::set_option(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, request)?;
        // Populated at once, so that no poll has to wait for a page fault.
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no memory that exists.
        let address = unsafe {
            libc::mmap(std::ptr::null_mut(), geometry.bytes(), access, flags, socket.as_raw_fd(), 0)
        };
        match NonNull::new(address.cast::<u8>()) {
            Some(memory) if address != libc::MAP_FAILED => Ok(Self { memory, geometry, next: 0 }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Where the slot `ahead` of the next one starts.
    #[inline]
    fn slot(&self, ahead: u32) -> NonNull<u8> {
        let wrapped = self.next + ahead;
        let index = if wrapped < self.geometry.slots { wrapped } else { wrapped - self.geometry.slots };
        debug_assert!(index < self.geometry.slots);
        // SAFETY: index < slots (next < slots always, and callers look at most a ring ahead), and the mapping has
        // slots × slot_bytes bytes.
        unsafe { self.memory.add(index as usize * self.geometry.slot_bytes as usize) }
    }

    #[inline]
    fn status(&self, ahead: u32) -> &AtomicU32 {
        const { assert!(offset_of!(libc::tpacket2_hdr, tp_status) == 0) };
        // SAFETY: the status is the first word of a slot, which is 64-byte aligned and stays mapped while `self`
        // lives; both sides only access it as one word.
        unsafe { self.slot(ahead).cast::<AtomicU32>().as_ref() }
    }

    /// How many frames are ready, up to `wanted`.
    #[inline]
    pub(crate) fn ready(&self, wanted: usize) -> usize {
        let wanted = wanted.min(self.geometry.slots as usize);
        // Only a count: `frame` synchronises.
        let is_ready =
            |ahead: &usize| self.status(*ahead as u32).load(Ordering::Relaxed) & libc::TP_STATUS_USER != 0;
        (0..wanted).take_while(is_ready).count()
    }

    /// The next frame; `None` if the kernel has not filled the slot.
    #[inline]
    pub(crate) fn frame(&self) -> Option<Result<Frame<'_>, Corrupt>> {
        // R1: acquire, pairs with the kernel's write barrier before it sets TP_STATUS_USER (tpacket_rcv: smp_mb,
        // __packet_set_status). Without it, header and frame could be read as they were before.
        let status = self.status(0).load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        let slot = self.slot(0);
        // SAFETY: a slot is larger than its header (Geometry) and 64-byte aligned. The kernel does not write to a
        // slot that has TP_STATUS_USER set, so this is no data race; the copy is read once and then checked.
        let header = unsafe { slot.cast::<libc::tpacket2_hdr>().read() };
        let start = usize::from(header.tp_mac);
        let stored = header.tp_snaplen as usize;
        let first = size_of::<libc::tpacket2_hdr>() + offload::HEADER_LENGTH;
        let slot_bytes = self.geometry.slot_bytes as usize;
        if start < first
            || start > slot_bytes
            || stored > slot_bytes - start
            || stored > header.tp_len as usize
        {
            return Some(Err(Corrupt));
        }
        // SAFETY: start + stored ≤ slot_bytes was just checked, the slot is mapped while `self` lives, and is ours
        // until `release`, which needs `&mut self`: so nobody writes to it while the slice lives.
        let data = unsafe { std::slice::from_raw_parts(slot.add(start).as_ptr(), stored) };
        // SAFETY: first ≤ start was checked, so these bytes are inside the slot, behind its header; any bytes are
        // a value, and the read needs no alignment.
        let offload = unsafe {
            slot.add(start - offload::HEADER_LENGTH).cast::<[u8; offload::HEADER_LENGTH]>().read_unaligned()
        };
        Some(Ok(Frame {
            length: header.tp_len as usize,
            data,
            offload,
            timestamp: u64::from(header.tp_sec) * 1_000_000_000 + u64::from(header.tp_nsec),
            tag: tag(status, &header),
            is_queued: status & libc::TP_STATUS_COPY != 0,
            is_losing: status & libc::TP_STATUS_LOSING != 0,
        }))
    }

    /// Gives the next slot, which was ready, back to the kernel.
    #[inline]
    pub(crate) fn release(&mut self) {
        // R2: release, pairs with the kernel's read barrier after it reads the status (__packet_get_status:
        // smp_rmb). Without it, the kernel could overwrite what we are still reading.
        self.status(0).store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = if self.next + 1 == self.geometry.slots { 0 } else { self.next + 1 };
    }
}

/// The tag that the kernel took out, if it did. Kernels before 3.14 don't say which kind: then it is the usual one.
fn tag(status: u32, header: &libc::tpacket2_hdr) -> Option<Tag> {
    if status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let kind = if status & libc::TP_STATUS_VLAN_TPID_VALID == 0 { 0x8100 } else { header.tp_vlan_tpid };
    let [a, b] = kind.to_be_bytes();
    let [c, d] = header.tp_vlan_tci.to_be_bytes();
    Some([a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ring in anonymous memory, where the test plays the kernel.
    fn ring(slots: u32, slot_bytes: u32) -> Ring {
        let geometry = Geometry::new(slots, slot_bytes);
        // SAFETY: a fresh anonymous mapping.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                geometry.bytes(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(address, libc::MAP_FAILED);
        Ring { memory: NonNull::new(address.cast()).unwrap(), geometry, next: 0 }
    }

    fn put(ring: &Ring, ahead: u32, status: u32, mac: u16, stored: u32, length: u32) {
        let header = libc::tpacket2_hdr {
            tp_status: 0,
            tp_len: length,
            tp_snaplen: stored,
            tp_mac: mac,
            tp_net: 0,
            tp_sec: 2,
            tp_nsec: 3,
            tp_vlan_tci: 0x2005,
            tp_vlan_tpid: 0x88a8,
            tp_padding: [0; 4],
        };
        // SAFETY: the slot is inside the ring's memory, and no frame is borrowed.
        unsafe { ring.slot(ahead).cast().write(header) };
        ring.status(ahead).store(status, Ordering::Release);
    }

    #[test]
    fn geometry_is_what_the_kernel_accepts() {
        for (slots, mtu) in [(1, 68), (256, 1500), (1000, 9000), (4096, 65_536)] {
            let needed = Geometry::slot_for(mtu);
            let geometry = Geometry::new(slots, needed);
            assert!(geometry.slot_bytes >= needed && geometry.slots >= slots);
            assert_eq!((geometry.slot_bytes * geometry.slots_per_block) % page_size(), 0);
            assert_eq!(geometry.slots % geometry.slots_per_block, 0);
            assert_eq!(geometry.slot_bytes / LINE % 2, 1);
        }
        assert_eq!(Geometry::new(1024, Geometry::slot_for(1500)).slot_bytes, 1600);
    }

    #[test]
    fn frames_come_in_order_around_the_ring() {
        let mut ring = ring(64, 1600);
        let slots = ring.geometry.slots;
        for round in 0..3 {
            assert_eq!(ring.ready(10), 0);
            assert!(ring.frame().is_none());
            for ahead in 0..slots {
                put(&ring, ahead, libc::TP_STATUS_USER, 100, ahead, ahead + round);
            }
            assert_eq!(ring.ready(10), 10);
            assert_eq!(ring.ready(usize::MAX), slots as usize);
            for expected in 0..slots {
                let frame = ring.frame().unwrap().unwrap();
                assert_eq!(
                    (frame.data.len(), frame.length),
                    (expected as usize, (expected + round) as usize)
                );
                assert_eq!((frame.timestamp, frame.tag), (2_000_000_003, None));
                ring.release();
            }
        }
    }

    #[test]
    fn tags_and_flags() {
        let mut ring = ring(64, 1600);
        let valid = libc::TP_STATUS_USER | libc::TP_STATUS_VLAN_VALID;
        put(&ring, 0, valid | libc::TP_STATUS_VLAN_TPID_VALID | libc::TP_STATUS_COPY, 76, 60, 60);
        put(&ring, 1, valid | libc::TP_STATUS_LOSING, 76, 60, 60);
        let frame = ring.frame().unwrap().unwrap();
        assert_eq!(frame.tag, Some([0x88, 0xa8, 0x20, 0x05]));
        assert!(frame.is_queued && !frame.is_losing);
        ring.release();
        let frame = ring.frame().unwrap().unwrap();
        assert_eq!(frame.tag, Some([0x81, 0x00, 0x20, 0x05]));
        assert!(!frame.is_queued && frame.is_losing);
    }

    #[test]
    fn slots_that_point_outside_are_refused() {
        let mut ring = ring(64, 1600);
        let bad = [
            (0, 60, 60),
            (41, 60, 60),
            (76, 1525, 1525),
            (76, u32::MAX, u32::MAX),
            (1601, 0, 0),
            (u16::MAX, 1, 1),
            (76, 61, 60),
        ];
        for (ahead, (mac, stored, length)) in bad.into_iter().enumerate() {
            put(&ring, ahead as u32, libc::TP_STATUS_USER, mac, stored, length);
        }
        put(&ring, bad.len() as u32, libc::TP_STATUS_USER, 76, 1524, 1524);
        for _ in bad {
            assert_eq!(ring.frame().unwrap().unwrap_err(), Corrupt);
            ring.release();
        }
        assert_eq!(ring.frame().unwrap().unwrap().data.len(), 1524);
    }
}
