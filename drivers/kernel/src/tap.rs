//! A TAP device: an Ethernet interface of the kernel whose wire ends here (`Documentation/networking/tuntap.rst`).
//!
//! What the kernel sends on the interface is received here, and what is transmitted here arrives on the interface.
//! The device has no shared ring, so each frame costs one system call, `readv` or `writev`: that cannot be avoided,
//! only spread. With offloads on, TCP and UDP senders in the kernel hand over up to 64 KiB at a time, as one packet whose
//! checksum is partial and that is to be [segmented](warmlane_mem::Segmentation); and such packets can be transmitted whole,
//! so that from one TAP to another they stay so. An empty poll costs one `readv` that says so.
//!
//! The interface exists as long as the port does, unless it was there before.

use std::fs::OpenOptions;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use warmlane_driver_common::virtio_net::{self, HEADER_LENGTH, header_of};
use warmlane_driver_common::{
    Driver, DriverHelp, Environment, Interface, InterfaceName, OpenError, driver_help, interface_gone, system,
};
use warmlane_mem::{Burst, Packet, Pool};
use warmlane_port::{
    Capabilities, CountDropped as _, Offloads, Port, QueueCounters, ReceiveQueue, TransmitOffloads,
    TransmitQueue, queue_report,
};

use crate::drops::{ReceiveDrop, TransmitDrop};
use crate::error::KernelError;
use crate::intake::{Intake, LONGEST_FRAME, NoPacket, Waiting};
use crate::packet_transmit::piece;
use crate::transmit::{Refusal, kernel_segments_udp, refusal, transmit_offloads};

/// Queues that a device can have (`include/uapi/linux/if_tun.h`: `MAX_TAP_QUEUES` in `drivers/net/tun.c`).
const MAXIMUM_QUEUES: u16 = 256;

/// The MTUs that the kernel allows for a TAP (`drivers/net/tun.c: MIN_MTU, MAX_MTU`, less the Ethernet header).
const MTU: std::ops::RangeInclusive<u32> = 68..=65_521;

/// Segments that a packet can have, and the offload header in front.
const PIECES: usize = 256;

/// What a TAP device should be like.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct TapOptions {
    /// The interface's name; `None` lets the kernel choose `tap0`, `tap1`, ….
    pub interface: Option<String>,
    /// The largest layer-3 packet in bytes; `None` leaves it as it is (1,500 for a new device).
    pub mtu: Option<u32>,
    /// Set the interface up.
    pub up: bool,
    /// Let the kernel leave checksums and segmentation to whoever sends its packets on: fewer, longer reads.
    pub offloads: bool,
}

impl Default for TapOptions {
    /// A name of the kernel's choice, up, offloads.
    fn default() -> Self {
        Self { interface: None, mtu: None, up: true, offloads: true }
    }
}

/// Ports on TAP devices.
#[derive(Debug)]
pub struct TapDriver;

impl Driver for TapDriver {
    const HELP: DriverHelp = driver_help! {
        "tap": "Makes a TAP device, whose other end is the kernel, or opens one that exists. Needs \
            CAP_NET_ADMIN.";
        examples: "tap", "tap:tap0";
        "interface" "NAME": "its name; without it, the kernel chooses";
        "mtu" "BYTES": "its MTU; without it, the port's";
        "up" "true|false": "set it up; without it, true";
        "offloads" "true|false": "let the kernel leave checksums and segmentation to whoever sends its \
            packets on: fewer, longer reads; without it, true";
    };
    type Options = TapOptions;

    fn open(options: &TapOptions, environment: &mut Environment<'_>) -> Result<Port, OpenError> {
        let options = TapOptions { mtu: options.mtu.or(environment.mtu), ..options.clone() };
        let queues = u16::try_from(environment.queues).unwrap_or(u16::MAX);
        open(&options, queues, environment.pool).map_err(OpenError::new)
    }
}

/// Makes a TAP device with `queues` pairs of a receive and a transmit queue, or opens one that exists and has as many left.
/// Needs `CAP_NET_ADMIN`.
///
/// The capabilities' address is that of the interface, that is, of the kernel's end of the wire.
///
/// # Errors
/// [`KernelError`] says what is wrong with the configuration, the device or the privileges, and the remedy.
pub fn open(options: &TapOptions, queues: u16, pool: &Pool) -> Result<Port, KernelError> {
    let wanted = options.interface.as_deref().unwrap_or("tap%d");
    let wanted = InterfaceName::new(wanted)?;
    if !(1..=MAXIMUM_QUEUES).contains(&queues) {
        let name = wanted.as_str().to_owned();
        return Err(KernelError::Queues { name, queues, maximum: MAXIMUM_QUEUES });
    }
    if let Some(mtu) = options.mtu
        && !MTU.contains(&mtu)
    {
        let (minimum, maximum) = (*MTU.start(), *MTU.end());
        return Err(KernelError::Mtu { name: wanted.as_str().to_owned(), mtu, minimum, maximum });
    }

    let (first, name) = attach(&wanted, queues > 1)?;
    let mut files = vec![first];
    for _ in 1..queues {
        files.push(attach(&name, true)?.0);
    }
    let explain = |source| KernelError::admin(format!("set up TAP device {:?}", name.as_str()), source);
    let mut offloads = Offloads::default();
    for file in &files {
        offloads = set_offloads(file, options.offloads).map_err(explain)?;
    }
    let notes = vec![note_of(&offloads).to_owned()];
    let interface = Interface::find(&name)?;
    Interface::configure(interface.index, options.mtu, options.up).map_err(explain)?;
    let mtu = options.mtu.unwrap_or(interface.mtu);
    let kernels_mac = interface.mac.unwrap_or_default();

    let mut port = Port {
        name: name.as_str().to_owned(),
        driver: "tap",
        capabilities: Capabilities {
            mac: Some(our_end(kernels_mac)),
            offloads,
            mtu: Some(mtu),
            maximum_frame: mtu + 14,
            timestamps: false,
            notes,
        },
        receive: Vec::new(),
        transmit: Vec::new(),
    };
    for file in files {
        let file = Arc::new(file);
        port.receive.push(Box::new(TapReceive {
            file: Arc::clone(&file),
            leaves: offloads.leaves,
            name: name.clone(),
            intake: Intake::new(pool, pool.data_size(), false),
            failure: None,
        }));
        port.transmit.push(Box::new(TapTransmit {
            file,
            offloads: offloads.transmit,
            name: name.clone(),
            pieces: Pieces(Vec::with_capacity(PIECES)),
            counters: QueueCounters::new(),
            failure: None,
        }));
    }
    Ok(port)
}

/// Opens one queue of the device; returns it and the device's name.
fn attach(wanted: &InterfaceName, many: bool) -> Result<(OwnedFd, InterfaceName), KernelError> {
    let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun");
    let file = file.map_err(|source| match source.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => KernelError::NoTunDevice { source },
        _ => KernelError::admin("open /dev/net/tun".to_owned(), source),
    })?;
    let file = OwnedFd::from(file);
    let mut request = wanted.request();
    let queues = if many { libc::IFF_MULTI_QUEUE } else { 0 };
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR | queues) as i16;
    let name = wanted.as_str().to_owned();
    // SAFETY: the argument of TUNSETIFF is a struct ifreq, without pointers.
    unsafe { system::interface_ioctl(&file, libc::TUNSETIFF as _, &mut request) }.map_err(|source| {
        match source.raw_os_error() {
            Some(libc::EBUSY | libc::E2BIG) => KernelError::InUse { name, source },
            Some(libc::EINVAL) => KernelError::NotTap { name, source },
            _ => KernelError::admin(format!("create TAP device {name:?}"), source),
        }
    })?;
    // An older device may have been left with a longer header by who made it.
    let length = const { HEADER_LENGTH as u8 as i32 };
    // SAFETY: the argument of TUNSETVNETHDRSZ is a pointer to an int, which lives through the call.
    system::check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETVNETHDRSZ, &raw const length) })
        .map_err(|source| {
            KernelError::admin(format!("set the offload header of {:?}", wanted.as_str()), source)
        })?;
    Ok((file, InterfaceName::of_request(&request)?))
}

/// Says what the kernel may leave to us, if anything is wanted; returns what there is.
fn set_offloads(file: &OwnedFd, wanted: bool) -> io::Result<Offloads> {
    // SAFETY: the argument of TUNSETOFFLOAD is a set of flags, not a pointer.
    let set = |flags: u32| unsafe { system::value_ioctl(file, libc::TUNSETOFFLOAD as _, flags.into()) };
    let tcp = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
    let udp = libc::TUN_F_USO4 | libc::TUN_F_USO6;
    // What it takes from us doesn't depend on what we want from it.
    let transmit = transmit_offloads(kernel_segments_udp());
    if wanted && set(tcp | udp).is_ok() {
        return Ok(Offloads { leaves: transmit_offloads(true), transmit, ..Offloads::default() });
    }
    if wanted && set(tcp).is_ok() {
        return Ok(Offloads { leaves: transmit_offloads(false), transmit, ..Offloads::default() });
    }
    set(0)?;
    Ok(Offloads { transmit, ..Offloads::default() })
}

const fn note_of(offloads: &Offloads) -> &'static str {
    let segmentation = offloads.leaves.segmentation.outer;
    match (segmentation.tcp4, segmentation.udp4) {
        (_, true) => "the kernel leaves checksums, TCP and UDP segmentation to whoever sends the packets on",
        (true, _) => {
            "the kernel leaves checksums and TCP segmentation to whoever sends the packets on (UDP too from Linux 6.2 on)"
        }
        _ => "the kernel computes checksums and segments itself",
    }
}

/// The device's Ethernet address is the kernel's end of the cable; ours needs another one. The lowest bit of the last
/// byte makes the difference, so that the two stand next to each other in a neighbour table.
const fn our_end(kernels: [u8; 6]) -> [u8; 6] {
    let [a, b, c, d, e, f] = kernels;
    [a, b, c, d, e, f ^ 1]
}

struct TapReceive {
    file: Arc<OwnedFd>,
    leaves: TransmitOffloads,
    name: InterfaceName,
    intake: Intake,
    failure: Option<String>,
}

/// What one read brought.
enum Read {
    Packet(Packet),
    /// A frame that waits for buffers, or one that was dropped.
    Other,
    Nothing,
}

impl TapReceive {
    fn read(&mut self) -> Read {
        // Without a buffer the frame stays with the kernel.
        let Some(mut packet) = self.intake.pool.take() else { return Read::Nothing };
        let space = packet.tailroom();
        let mut header = [0; HEADER_LENGTH];
        // What doesn't fit the packet goes on in the storage, as many bytes from its start as the packet has space for.
        let rest = &mut self.intake.storage[space..];
        let pieces = [&mut header[..], packet.spare_mut(), rest];
        let read = match rustix::io::readv(&self.file, &mut pieces.map(IoSliceMut::new)) {
            Ok(read) => read,
            Err(error) => {
                self.note(&error.into());
                return Read::Nothing;
            }
        };
        // The kernel cuts off what doesn't fit and doesn't say so; a frame that fills everything was longer.
        let length = read.saturating_sub(HEADER_LENGTH);
        let here = length.min(space);
        if packet.append(here).is_err() {
            return Read::Other;
        }
        let drops = self.intake.counters.drops();
        if length >= LONGEST_FRAME {
            drops.count_packet(ReceiveDrop::Truncated, &packet);
            return Read::Other;
        }
        if length > space {
            let rest = space..length;
            self.intake.wait(Waiting { head: Some(packet), rest, tag: None, header, timestamp: 0 });
            return Read::Other;
        }
        match virtio_net::note(&mut packet, header, 0).map_err(NoPacket::from) {
            Ok(()) => {
                self.intake.counters.count(1, length as u64);
                Read::Packet(packet)
            }
            Err(NoPacket::Drop(reason)) => {
                drops.count_packet(reason, &packet);
                Read::Other
            }
            Err(NoPacket::NoBuffer) => Read::Other,
        }
    }

    #[inline]
    fn note(&mut self, error: &io::Error) {
        match refusal(error) {
            Refusal::Later | Refusal::Burst(_) => {}
            Refusal::Gone => self.failure = Some(interface_gone(self.name.as_str())),
            Refusal::Packet(_) => {
                self.failure = Some(format!("cannot read from TAP device {}: {error}", self.name.as_str()));
            }
        }
    }
}

impl ReceiveQueue for TapReceive {
    fn receive(&mut self, burst: &mut Burst) -> usize {
        let before = burst.len();
        // As many reads as there is space, and not until there are as many packets: dropped frames are work, too.
        for _ in 0..burst.space() {
            if !self.intake.resume(burst) || burst.space() == 0 {
                break;
            }
            match self.read() {
                // There is space: just asked.
                Read::Packet(packet) => drop(burst.push(packet)),
                Read::Other => {}
                Read::Nothing => break,
            }
        }
        if burst.space() > 0 {
            self.intake.resume(burst);
        }
        burst.len() - before
    }

    fn leaves(&self) -> TransmitOffloads {
        self.leaves
    }

    fn event(&mut self) -> Option<BorrowedFd<'_>> {
        (!self.intake.is_waiting()).then(|| self.file.as_fd())
    }

    queue_report!(intake.counters);
}

/// Space for the arguments of `writev`, kept from call to call.
struct Pieces(Vec<libc::iovec>);

// SAFETY: the pointers in it are only followed in `write`, which overwrites those it uses first.
unsafe impl Send for Pieces {}

impl Pieces {
    fn write(&mut self, file: &OwnedFd, packet: &Packet) -> io::Result<usize> {
        self.0.clear();
        let left = header_of(packet);
        self.0.push(piece(&left));
        self.0.extend(packet.segment_data().map(piece));
        // 256 at most: a packet has up to 255 segments.
        let count = i32::try_from(self.0.len()).unwrap_or(i32::MAX);
        // SAFETY: each piece is `left` or a part of the packet, both of which live through the call, and the
        // kernel only reads them.
        let written = unsafe { libc::writev(file.as_raw_fd(), self.0.as_ptr(), count) };
        usize::try_from(written).map_err(|_| io::Error::last_os_error())
    }
}

struct TapTransmit {
    file: Arc<OwnedFd>,
    offloads: TransmitOffloads,
    name: InterfaceName,
    pieces: Pieces,
    counters: QueueCounters<TransmitDrop>,
    failure: Option<String>,
}

impl TransmitQueue for TapTransmit {
    fn transmit(&mut self, burst: &mut Burst) -> usize {
        let before = burst.len();
        // Packets from here on have not been looked at.
        let mut done = 0;
        let (mut packets, mut bytes) = (0, 0);
        while let Some(packet) = burst.get(done) {
            let written = self.pieces.write(&self.file, packet);
            match written.as_ref().map_err(refusal) {
                Ok(_) => {
                    packets += 1;
                    bytes += packet.packet_length() as u64;
                    done += 1;
                }
                Err(Refusal::Later) => break,
                Err(Refusal::Packet(reason)) => {
                    self.counters.drops().count_packet(reason, packet);
                    done += 1;
                }
                Err(Refusal::Burst(reason)) => {
                    self.counters.drops().count_packets(reason, &burst[done..]);
                    done = burst.len();
                }
                Err(Refusal::Gone) => {
                    self.failure.get_or_insert_with(|| interface_gone(self.name.as_str()));
                    self.counters.drops().count_packets(TransmitDrop::Gone, &burst[done..]);
                    done = burst.len();
                }
            }
        }
        burst.free_front(done);
        self.counters.count(packets, bytes);
        before - burst.len()
    }

    fn offloads(&self) -> TransmitOffloads {
        self.offloads
    }

    fn event(&mut self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }

    queue_report!(counters);
}
