//! One AF_XDP socket, for one queue of an interface (`Documentation/networking/af_xdp.rst`).

use crate::ring::{Consumer, Descriptor, Offsets, Producer};
use crate::transmit_metadata;
use crate::umem::Geometry;
use rustix::net::AddressFamily;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use warmlane_counters::counters;
use warmlane_driver_common::system::{self, Plain};
use warmlane_mem::Region;

/// An option of the socket that libc does not name (`include/uapi/linux/if_xdp.h: XDP_MAX_TX_SKB_BUDGET`). Linux 6.17 or
/// later: packets that one system call sends in copy mode; 32 before.
const TRANSMIT_BUDGET: c_int = 9;

/// How long and for how many packets a system call polls the device.
const BUSY_POLL_MICROSECONDS: c_int = 20;
const BUSY_POLL_PACKETS: c_int = 64;

/// Bytes that may be on their way through the kernel in copy mode.
const SEND_BUFFER: c_int = 4 << 20;

/// How long a queue may stay busy after its last socket was closed: the kernel takes it down in the background.
const STILL_BUSY: Duration = Duration::from_secs(2);

/// `struct xdp_umem_reg`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Registration {
    address: u64,
    length: u64,
    chunk: u32,
    headroom: u32,
    flags: u32,
    metadata: u32,
}

// SAFETY: integers only.
unsafe impl Plain for Registration {}

/// `struct sockaddr_xdp`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Address {
    family: u16,
    flags: u16,
    interface: u32,
    queue: u32,
    shared: u32,
}

/// `struct xdp_mmap_offsets`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct AllOffsets {
    receive: Offsets,
    transmit: Offsets,
    fill: Offsets,
    completion: Offsets,
}

// SAFETY: integers only.
unsafe impl Plain for AllOffsets {}

/// What the kernel has counted for one socket (`struct xdp_statistics`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct XdpStatistics {
    /// Packets dropped because no buffer was posted or they did not fit.
    pub receive_dropped: u64,
    /// Buffers that were posted with an address outside the region.
    pub receive_invalid: u64,
    /// Descriptors to send that were not right.
    pub transmit_invalid: u64,
    /// Packets dropped because the receive ring was full.
    pub receive_ring_full: u64,
    /// Times that the kernel found no posted buffer.
    pub fill_ring_empty: u64,
    /// Times that the kernel found nothing to send.
    pub transmit_ring_empty: u64,
}

// SAFETY: integers only.
unsafe impl Plain for XdpStatistics {}

/// The four rings.
pub(crate) struct Rings {
    pub(crate) fill: Producer<u64>,
    pub(crate) receive: Consumer<Descriptor>,
    pub(crate) transmit: Producer<Descriptor>,
    pub(crate) completion: Consumer<u64>,
}

/// What a socket should be like.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) region: &'a Region,
    pub(crate) geometry: Geometry,
    pub(crate) interface: u32,
    pub(crate) queue: u32,
    pub(crate) entries: u32,
    pub(crate) fragments: bool,
    pub(crate) zero_copy: bool,
    /// A socket that has registered the region already, in the same mode.
    pub(crate) share: Option<&'a Channel>,
}

/// An open socket.
pub(crate) struct Opened {
    pub(crate) fd: OwnedFd,
    pub(crate) rings: Rings,
    /// The kernel was told of [metadata](crate::transmit_metadata) in front of frames, and reads it.
    pub(crate) reads_metadata: bool,
}

/// Makes a socket and binds it to its queue.
pub(crate) fn open(request: &Request<'_>) -> io::Result<Opened> {
    let fd = system::raw_socket(AddressFamily::XDP)?;
    let reads_metadata = match request.share {
        Some(share) => share.reads_metadata,
        None => register(&fd, request)?,
    };
    for ring in
        [libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_COMPLETION_RING, libc::XDP_RX_RING, libc::XDP_TX_RING]
    {
        system::set_option(&fd, libc::SOL_XDP, ring, request.entries)?;
    }
    let offsets = system::get_option(&fd, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS, AllOffsets::default())?;
    let size = request.entries;
    let rings = Rings {
        fill: Producer::map(&fd, libc::XDP_UMEM_PGOFF_FILL_RING, offsets.fill, size)?,
        receive: Consumer::map(&fd, libc::XDP_PGOFF_RX_RING.cast_unsigned(), offsets.receive, size)?,
        transmit: Producer::map(&fd, libc::XDP_PGOFF_TX_RING.cast_unsigned(), offsets.transmit, size)?,
        completion: Consumer::map(&fd, libc::XDP_UMEM_PGOFF_COMPLETION_RING, offsets.completion, size)?,
    };
    // Kernels before 6.17 do not know this option, and send 32 packets in a call.
    let _ = system::set_option(&fd, libc::SOL_XDP, TRANSMIT_BUDGET, size);
    // Beyond the system-wide limit if we may (CAP_NET_ADMIN), else what there is.
    let _ = system::set_option(&fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, SEND_BUFFER);
    let mut address = Address {
        family: libc::AF_XDP as u16,
        flags: libc::XDP_SHARED_UMEM,
        interface: request.interface,
        queue: request.queue,
        shared: 0,
    };
    if let Some(share) = request.share {
        // The mode is the other socket's.
        address.shared = share.fd.as_raw_fd().cast_unsigned();
    } else {
        address.flags = libc::XDP_USE_NEED_WAKEUP
            | if request.zero_copy { libc::XDP_ZEROCOPY } else { libc::XDP_COPY }
            | if request.fragments { libc::XDP_USE_SG } else { 0 };
    }
    let end = Instant::now() + STILL_BUSY;
    loop {
        // SAFETY: a socket address of C.
        match unsafe { system::bind(&fd, address) } {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(error) => return Err(error),
            Ok(()) => return Ok(Opened { fd, rings, reads_metadata }),
        }
    }
}

/// Registers the region. Says whether the kernel reads metadata in front of frames.
fn register(fd: &OwnedFd, request: &Request<'_>) -> io::Result<bool> {
    let (region, geometry) = (request.region, request.geometry);
    let plain = Registration {
        address: region.address().as_ptr().expose_provenance() as u64,
        length: region.length() as u64,
        chunk: geometry.chunk,
        headroom: 0,
        flags: if geometry.unaligned { libc::XDP_UMEM_UNALIGNED_CHUNK_FLAG } else { 0 },
        metadata: 0,
    };
    let with_metadata = Registration {
        flags: plain.flags | libc::XDP_UMEM_TX_METADATA_LEN,
        metadata: transmit_metadata::BYTES as u32,
        ..plain
    };
    match register_as(fd, with_metadata) {
        // Kernels before 6.11 don't know the flag.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => register_as(fd, plain).map(|()| false),
        registered => registered.map(|()| true),
    }
}

fn register_as(fd: &OwnedFd, registration: Registration) -> io::Result<()> {
    let register = || system::set_option(fd, libc::SOL_XDP, libc::XDP_UMEM_REG, registration);
    register().or_else(|error| {
        if error.raw_os_error() != Some(libc::ENOBUFS) {
            return Err(error);
        }
        raise_memory_limit();
        register()
    })
}

/// Raises the limit of locked memory as far as this process may. Failing changes nothing.
fn raise_memory_limit() {
    if setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None }).is_err() {
        let limit = getrlimit(Resource::Memlock);
        let _ = setrlimit(Resource::Memlock, Rlimit { current: limit.maximum, ..limit });
    }
}

/// Whether the socket got by without copies.
pub(crate) fn is_zero_copy(fd: &OwnedFd) -> bool {
    system::get_option(fd, libc::SOL_XDP, libc::XDP_OPTIONS, 0_u32)
        .is_ok_and(|options| options & libc::XDP_OPTIONS_ZEROCOPY != 0)
}

/// Lets the socket's own system calls do the interface's work (Linux 5.11 or later).
pub(crate) fn prefer_busy_poll(fd: &OwnedFd) -> io::Result<()> {
    system::set_option(fd, libc::SOL_SOCKET, libc::SO_PREFER_BUSY_POLL, 1)?;
    system::set_option(fd, libc::SOL_SOCKET, libc::SO_BUSY_POLL, BUSY_POLL_MICROSECONDS)?;
    system::set_option(fd, libc::SOL_SOCKET, libc::SO_BUSY_POLL_BUDGET, BUSY_POLL_PACKETS)
}

counters! {
    /// What one end of a socket costs.
    pub(crate) struct XdpCostCounters => XdpCostCountersView {
        /// System calls made to wake the kernel up.
        wake_calls: Note, "calls";
        /// Packets copied because their buffers were not in the region.
        copied: Note, "packets";
    }
}

/// What both ends of a socket share: the descriptor, and in the end the buffers that the kernel still had.
pub(crate) struct Channel {
    /// Closed before the buffers are freed: fields are dropped in this order.
    pub(crate) fd: OwnedFd,
    leftovers: Leftovers,
    pub(crate) zero_copy: bool,
    pub(crate) fragments: bool,
    reads_metadata: bool,
}

impl Channel {
    pub(crate) fn new(fd: OwnedFd, reads_metadata: bool, request: &Request<'_>) -> Self {
        let zero_copy = is_zero_copy(&fd);
        let leftovers = Leftovers {
            region: request.region.clone(),
            probe: zero_copy.then_some((request.interface, request.queue)),
            indices: Mutex::default(),
        };
        Self { fd, leftovers, zero_copy, fragments: request.fragments, reads_metadata }
    }

    /// Bytes in front of each frame that the kernel takes for its own, whether it reads them or not.
    pub(crate) const fn in_front(&self) -> usize {
        if self.reads_metadata { transmit_metadata::BYTES } else { 0 }
    }

    /// Whether checksums can be left to the kernel. Without copies they would be the driver's business, and not each does it.
    pub(crate) const fn completes_checksums(&self) -> bool {
        self.reads_metadata && !self.zero_copy
    }

    /// What the kernel has counted.
    pub(crate) fn statistics(&self) -> Option<XdpStatistics> {
        system::get_option(&self.fd, libc::SOL_XDP, libc::XDP_STATISTICS, XdpStatistics::default()).ok()
    }

    /// Leaves buffers that the kernel has, to be freed once it can't have them any more.
    ///
    /// # Safety
    /// They were taken out of the socket's region, to this socket, and were not taken back; the caller forgets them.
    pub(crate) unsafe fn leave(&self, indices: &[u32]) {
        self.leftovers.indices.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(indices);
    }
}

/// Buffers that the kernel had when the socket was closed.
struct Leftovers {
    region: Region,
    /// A device that writes to buffers by itself stops some time after the socket was closed: interface and queue.
    probe: Option<(u32, u32)>,
    indices: Mutex<Vec<u32>>,
}

impl Drop for Leftovers {
    fn drop(&mut self) {
        if let Some((interface, queue)) = self.probe
            && !is_released(interface, queue)
        {
            // A device may still write to these buffers: better lost than shared with it.
            return;
        }
        let indices = self.indices.get_mut().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: who left them vouches that they were taken and forgotten. The socket is closed and its rings
        // are unmapped (both ends are gone), so the kernel has stopped: in copy mode it waits for its receivers
        // before close returns (`net/xdp/xsk.c: xsk_unbind_dev`), without copies `is_released` has seen to it.
        unsafe { self.region.free_raw(indices) };
    }
}

/// Waits until the kernel has taken down what a closed socket had on a queue: until another one can be bound to it.
fn is_released(interface: u32, queue: u32) -> bool {
    let config = warmlane_mem::PoolConfig {
        name: "probe".to_owned(),
        buffers: 4,
        magazine: Some(1),
        pages: warmlane_sys::pages::PagePreference::Plain,
        ..warmlane_mem::PoolConfig::default()
    };
    let Ok(pool) = warmlane_mem::Pool::new(&config) else { return false };
    let region = pool.region();
    let Some(geometry) = Geometry::of(&region) else { return false };
    let request = Request {
        region: &region,
        geometry,
        interface,
        queue,
        entries: 64,
        fragments: false,
        zero_copy: false,
        share: None,
    };
    match open(&request) {
        Ok(_) => true,
        // The interface is gone, and its device with it as far as we are concerned.
        Err(error) => matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENXIO)),
    }
}
