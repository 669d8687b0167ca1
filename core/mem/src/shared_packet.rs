//! Packets that several hold at the same time, to read.

use crate::burst::{BURST_CAPACITY, Burst};
use crate::id::BufferId;
use crate::packet::Packet;
use crate::register;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// A packet, or chain, that can be cloned and only be read: for multicast, or to be held while a neighbour is resolved.
/// [`Packet::chain_shared`] makes packets of it that travel.
///
/// The buffers are freed, all together, when the last clone is dropped. The count stands beside the pool and not in
/// the packet's header, so that packets that are not shared neither carry nor test it.
///
/// ```
/// # let pool = warmlane_mem::Pool::new(&warmlane_mem::PoolConfig { buffers: 1, ..Default::default() })?;
/// let mut packet = pool.take().ok_or("one buffer")?;
/// packet.fill(b"to all")?;
/// let first = packet.share();
/// let second = first.clone();
/// drop(first);
/// assert_eq!(second.data(), b"to all");
/// // The last holder may have it back as its own.
/// let packet = second.try_into_packet().map_err(|_| "shared")?;
/// # drop(packet);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
/// ```compile_fail,E0596
/// # fn test(mut packet: warmlane_mem::SharedPacket) {
/// packet.data_mut(); // others may be reading
/// # }
/// ```
pub struct SharedPacket {
    packet: ManuallyDrop<Packet>,
}

impl Packet {
    /// Makes the packet one that can be cloned and only be read.
    pub fn share(mut self) -> SharedPacket {
        self.header_mut().state.known.set_shared(true);
        // Relaxed: nobody else knows of it yet; who passes a clone to another thread orders that.
        holders(self.id()).store(1, Ordering::Relaxed);
        SharedPacket { packet: ManuallyDrop::new(self) }
    }
}

/// More holders than this end the process, as `Arc` does: whoever forgets clones in a loop would otherwise bring the count
/// round to 1, and a packet that others read would become somebody's own. The other half of the range is for threads
/// that have added one and not yet looked.
const MOST_HOLDERS: u32 = u32::MAX / 2;

/// How many hold the shared packet that starts with buffer `id`.
fn holders<'a>(id: BufferId) -> &'a AtomicU32 {
    // SAFETY: all callers hold the packet, so its pool lives, and as long as the result is used, which is before they
    // give the packet up; `release` says why that is also true of its last use.
    unsafe { &(*register::pointer(id.slot())).holders[id.index() as usize] }
}

/// Gives up one hold of the shared packet that starts with buffer `id`. `true`: it was the last, and the packet is the
/// caller's.
///
/// # Safety
/// The hold is the caller's, and not used afterwards.
pub(crate) unsafe fn release(id: BufferId) -> bool {
    // Release: what this holder has read is read before whoever is last reuses the buffers. The count itself stays
    // valid until then, because the last holder has yet to free the buffers.
    let is_last = holders(id).fetch_sub(1, Ordering::Release) == 1;
    if is_last {
        // Acquire, pairs with the releases of all others.
        fence(Ordering::Acquire);
    }
    is_last
}

impl SharedPacket {
    /// The packet, if this is its only holder.
    ///
    /// # Errors
    /// The shared packet, if there are others.
    pub fn try_into_packet(self) -> Result<Packet, Self> {
        // Acquire, pairs with the release in `release`: what the others have read is read.
        if holders(self.packet.id()).load(Ordering::Acquire) != 1 {
            return Err(self);
        }
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is not used or dropped after this.
        let mut packet = unsafe { ManuallyDrop::take(&mut this.packet) };
        packet.header_mut().state.known.set_shared(false);
        Ok(packet)
    }

    /// How many hold the packet: a moment's view, unless it is 1.
    pub fn holders(&self) -> u32 {
        holders(self.packet.id()).load(Ordering::Relaxed)
    }

    /// Gives up this hold; the packet, if it was the last.
    fn release(&mut self) -> Option<Packet> {
        // SAFETY: both callers forget `self`.
        unsafe { release(self.packet.id()).then(|| ManuallyDrop::take(&mut self.packet)) }
    }

    /// Gives up this hold for the name of the first buffer.
    pub(crate) fn into_id(self) -> BufferId {
        ManuallyDrop::new(self).packet.id()
    }

    /// # Safety
    /// `id` came from [`into_id`](Self::into_id), and is turned back once.
    pub(crate) unsafe fn from_id(id: BufferId) -> Self {
        // SAFETY: the caller's.
        Self { packet: ManuallyDrop::new(unsafe { Packet::from_id(id) }) }
    }

    /// Gives up all of `packets`; those that nobody else holds are freed in bulk.
    pub fn release_all(packets: impl IntoIterator<Item = Self>) {
        let mut last = Burst::with_limit(BURST_CAPACITY);
        for packet in packets {
            if last.space() == 0 {
                last.clear();
            }
            if let Some(packet) = ManuallyDrop::new(packet).release() {
                // There is space.
                drop(last.push(packet));
            }
        }
    }
}

impl Clone for SharedPacket {
    fn clone(&self) -> Self {
        // Relaxed, as in `Arc`: who clones holds the packet already.
        let before = holders(self.packet.id()).fetch_add(1, Ordering::Relaxed);
        if before > MOST_HOLDERS {
            std::process::abort();
        }
        let packet: *const Packet = &raw const *self.packet;
        // SAFETY: the count says that there is one more now; neither is used but to be read until the count is one, and
        // only the one that brings it to zero frees the packet.
        Self { packet: ManuallyDrop::new(unsafe { packet.read() }) }
    }
}

impl Drop for SharedPacket {
    fn drop(&mut self) {
        drop(self.release());
    }
}

impl Deref for SharedPacket {
    type Target = Packet;

    fn deref(&self) -> &Packet {
        &self.packet
    }
}

impl fmt::Debug for SharedPacket {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SharedPacket")
            .field("holders", &self.holders())
            .field("packet", &*self.packet)
            .finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{Pool, PoolConfig};
    use std::process::Command;

    /// Set in the child process that is to end.
    const CHILD: &str = "WARMLANE_MEM_TOO_MANY_HOLDERS";

    fn shared_with(held: u32) -> SharedPacket {
        let pool =
            Pool::new(&PoolConfig { buffers: 1, stride: Some(2_304), ..PoolConfig::default() }).unwrap();
        let packet = pool.take().unwrap().share();
        holders(packet.packet.id()).store(held, Ordering::Relaxed);
        packet
    }

    #[test]
    fn the_count_of_holders_goes_up_to_its_limit() {
        let packet = shared_with(MOST_HOLDERS);
        assert_eq!(packet.clone().holders(), MOST_HOLDERS + 1);
        assert_eq!(packet.holders(), MOST_HOLDERS);
        holders(packet.packet.id()).store(1, Ordering::Relaxed);
    }

    #[test]
    #[cfg_attr(miri, ignore = "it starts a process")]
    fn one_holder_too_many_ends_the_process() {
        let test = "shared_packet::tests::one_holder_too_many_ends_the_process";
        if std::env::var_os(CHILD).is_some() {
            let packet = shared_with(MOST_HOLDERS + 1);
            std::mem::forget(packet.clone());
            std::process::exit(0);
        }
        let child =
            Command::new(std::env::current_exe().unwrap()).args([test, "--exact"]).env(CHILD, "1").output();
        let status = child.unwrap().status;
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(6), "SIGABRT, not {status}");
    }
}
