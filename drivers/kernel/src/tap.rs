//! A TAP device: an Ethernet interface of the kernel whose wire ends here (`Documentation/networking/tuntap.rst`).
//!
//! What the kernel sends on the interface is received here, and what is transmitted here arrives on the interface.
//! The device has no shared ring, so each frame costs one system call, `readv` or `writev`: that cannot be avoided,
//! only spread. With offloads on, TCP and UDP senders in the kernel hand over up to 64 KiB at a time, and one
//! `readv` brings some forty packets, cut and checksummed here: a TCP transfer through two TAPs ran 1.6 to 2.4 times
//! as fast as with the kernel cutting (Linux 6.18). An empty poll costs one `readv` that says so.
//!
//! The interface exists as long as the port does, unless it was there before.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;

use warmlane_mem::{Burst, Packet, Pool};
use warmlane_port::{Capabilities, Port, QueueCounters, QueueStatus, ReceiveQueue, TransmitQueue};

use crate::drops::{ReceiveDrop, TransmitDrop};
use crate::error::KernelError;
use crate::intake::{self, Intake, LONGEST_FRAME, Refusal};
use crate::link::{LinkName, Links, name_of};
use crate::offload::{HEADER_LENGTH, NOTHING_LEFT, Work};
use crate::packet::gone;
use crate::packet_transmit::piece;
use crate::system;
use crate::transmit::{Verdict, make_complete, verdict};

/// Queues that a device can have (`include/uapi/linux/if_tun.h`: `MAX_TAP_QUEUES` in `drivers/net/tun.c`).
const MAXIMUM_QUEUES: u16 = 256;

/// The MTUs that the kernel allows for a TAP (`drivers/net/tun.c: MIN_MTU, MAX_MTU`, less the Ethernet header).
const MTU: std::ops::RangeInclusive<u32> = 68..=65_521;

/// Segments that a packet can have, and the offload header in front.
const PIECES: usize = 256;

/// What a TAP device should be like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapConfig {
    /// The interface's name; `None` lets the kernel choose `tap0`, `tap1`, ….
    pub name: Option<String>,
    /// The largest layer-3 packet in bytes; `None` leaves it as it is (1,500 for a new device).
    pub mtu: Option<u32>,
    /// Set the interface up.
    pub up: bool,
    /// Pairs of a receive and a transmit queue.
    pub queues: u16,
    /// Let the kernel leave checksums and segmentation to us: fewer, longer reads.
    pub offloads: bool,
}

impl Default for TapConfig {
    /// A name of the kernel's choice, up, one pair of queues, offloads.
    fn default() -> Self {
        Self { name: None, mtu: None, up: true, queues: 1, offloads: true }
    }
}

/// Makes a TAP device, or opens one that exists and has a queue left. Needs `CAP_NET_ADMIN`.
///
/// The capabilities' address is that of the interface, that is, of the kernel's end of the wire.
///
/// # Errors
/// [`KernelError`] says what is wrong with the configuration, the device or the privileges, and the remedy.
pub fn open(config: &TapConfig, pool: &Pool) -> Result<Port, KernelError> {
    let wanted = config.name.as_deref().unwrap_or("tap%d");
    let wanted = LinkName::new(wanted)?;
    if !(1..=MAXIMUM_QUEUES).contains(&config.queues) {
        let name = wanted.as_str().to_owned();
        return Err(KernelError::Queues { name, queues: config.queues, maximum: MAXIMUM_QUEUES });
    }
    if let Some(mtu) = config.mtu
        && !MTU.contains(&mtu)
    {
        let (minimum, maximum) = (*MTU.start(), *MTU.end());
        return Err(KernelError::Mtu { name: wanted.as_str().to_owned(), mtu, minimum, maximum });
    }

    let (first, name) = attach(&wanted, config.queues > 1)?;
    let mut files = vec![first];
    for _ in 1..config.queues {
        files.push(attach(&name, true)?.0);
    }
    let explain = |source| Links::explain(&name, "set up TAP device", source);
    let mut notes = Vec::new();
    for file in &files {
        let offloads = set_offloads(file, config.offloads).map_err(explain)?;
        if notes.is_empty() {
            notes.push(offloads.to_owned());
        }
    }
    let links = Links::open().map_err(explain)?;
    if let Some(mtu) = config.mtu {
        links.set_mtu(&name, mtu).map_err(explain)?;
    }
    if config.up {
        links.set_up(&name).map_err(explain)?;
    }
    let mtu = links.mtu(&name).map_err(explain)?;
    let (_, kernels_mac) = links.hardware(&name).map_err(explain)?;

    let mut port = Port {
        name: name.as_str().to_owned(),
        driver: "tap",
        capabilities: Capabilities {
            mac: Some(our_end(kernels_mac)),
            mtu: Some(mtu),
            maximum_frame: mtu + 14,
            timestamps: false,
            lossless: false,
            notes,
        },
        receive: Vec::new(),
        transmit: Vec::new(),
    };
    for file in files {
        let file = Arc::new(file);
        port.receive.push(Box::new(TapReceive {
            file: Arc::clone(&file),
            name: name.clone(),
            intake: Intake::new(pool, pool.room()),
            failure: None,
        }));
        port.transmit.push(Box::new(TapTransmit {
            file,
            name: name.clone(),
            pieces: Pieces(Vec::with_capacity(PIECES)),
            counters: QueueCounters::new(TransmitDrop::ALL),
            failure: None,
        }));
    }
    Ok(port)
}

/// Opens one queue of the device; returns it and the device's name.
fn attach(wanted: &LinkName, many: bool) -> Result<(OwnedFd, LinkName), KernelError> {
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
    Ok((file, LinkName::new(&name_of(&request))?))
}

/// Says what the kernel may leave to us; returns what was obtained.
fn set_offloads(file: &OwnedFd, wanted: bool) -> io::Result<&'static str> {
    // SAFETY: the argument of TUNSETOFFLOAD is a set of flags, not a pointer.
    let set = |flags: u32| unsafe { system::value_ioctl(file, libc::TUNSETOFFLOAD as _, flags.into()) };
    let tcp = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
    let udp = libc::TUN_F_USO4 | libc::TUN_F_USO6;
    if wanted && set(tcp | udp).is_ok() {
        return Ok("the kernel leaves checksums, TCP and UDP segmentation to us");
    }
    if wanted && set(tcp).is_ok() {
        return Ok("the kernel leaves checksums and TCP segmentation to us (UDP too from Linux 6.2 on)");
    }
    set(0)?;
    Ok("the kernel computes checksums and segments itself")
}

/// The device's Ethernet address is the kernel's end of the cable; ours needs another one. The lowest bit of the last
/// byte makes the difference, so that the two stand next to each other in a neighbour table.
const fn our_end(kernels: [u8; 6]) -> [u8; 6] {
    let [a, b, c, d, e, f] = kernels;
    [a, b, c, d, e, f ^ 1]
}

struct TapReceive {
    file: Arc<OwnedFd>,
    name: LinkName,
    intake: Intake,
    failure: Option<String>,
}

/// What one read brought.
enum Read {
    Packet(Packet),
    /// A super-frame, or a frame that was dropped.
    Other,
    Nothing,
}

impl TapReceive {
    fn read(&mut self) -> Read {
        // Without a buffer the frame stays with the kernel.
        let Some(mut packet) = self.intake.pool.take() else { return Read::Nothing };
        let room = packet.tailroom();
        let mut header = [0; HEADER_LENGTH];
        // What doesn't fit the packet goes on in the storage, as many bytes from its start as the packet has room
        // for, so that a super-frame's beginning can be put in front of the rest.
        let rest = &mut self.intake.storage[room..];
        let read = match system::read_pieces(&self.file, [&mut header, packet.spare_mut(), rest]) {
            Ok(read) => read,
            Err(error) => {
                self.note(&error);
                return Read::Nothing;
            }
        };
        // The kernel cuts off what doesn't fit and doesn't say so; a frame that fills everything was longer.
        let length = read.saturating_sub(HEADER_LENGTH);
        if length >= LONGEST_FRAME {
            self.intake.drop_frame(ReceiveDrop::Truncated);
            return Read::Other;
        }
        let here = length.min(room);
        if packet.append(here).is_err() {
            return Read::Other;
        }
        let work = Work::from_header(header);
        if let Work::Cut(cut) = work {
            self.intake.storage[..here].copy_from_slice(packet.data());
            self.intake.start_cutting(length, cut, None, 0);
            return Read::Other;
        }
        let mut whole = if length > room {
            intake::gather(&self.intake.pool, &[&self.intake.storage[room..length]])
                .and_then(|rest| intake::join(Some(packet), rest))
        } else {
            Ok(packet)
        };
        if let Ok(packet) = &mut whole
            && let Err(refusal) = intake::finish(packet, work, 0)
        {
            whole = Err(refusal);
        }
        match whole {
            Ok(packet) => {
                self.intake.counters.packets.add(1);
                self.intake.counters.bytes.add(length as u64);
                Read::Packet(packet)
            }
            Err(refusal) => {
                self.intake.drop_frame(match refusal {
                    // It was read and can't be read again.
                    Refusal::NoBuffer => ReceiveDrop::NoBuffer,
                    Refusal::Drop(reason) => reason,
                });
                Read::Other
            }
        }
    }

    #[inline]
    fn note(&mut self, error: &io::Error) {
        match verdict(error) {
            Verdict::Later | Verdict::Burst(_) => {}
            Verdict::Gone => self.failure = Some(gone(&self.name)),
            Verdict::Packet(_) => {
                self.failure = Some(format!("cannot read from TAP device {}: {error}", self.name.as_str()));
            }
        }
    }
}

impl ReceiveQueue for TapReceive {
    fn receive(&mut self, burst: &mut Burst) -> usize {
        let before = burst.len();
        self.intake.cut(burst);
        // As many reads as there is room, and not until there are as many packets: dropped frames are work, too.
        for _ in 0..burst.room() {
            if burst.room() == 0 || self.intake.is_cutting() {
                break;
            }
            match self.read() {
                // There is room: the loop asked.
                Read::Packet(packet) => drop(burst.push(packet)),
                Read::Other => self.intake.cut(burst),
                Read::Nothing => break,
            }
        }
        burst.len() - before
    }

    fn status(&self) -> QueueStatus {
        match &self.failure {
            Some(sentence) => QueueStatus::Failed(sentence.clone()),
            None => QueueStatus::Running,
        }
    }

    fn counters(&self) -> &Arc<QueueCounters> {
        &self.intake.counters
    }
}

/// Room for the arguments of `writev`, kept from call to call.
struct Pieces(Vec<libc::iovec>);

// SAFETY: the pointers in it are only followed in `write`, which overwrites those it uses first.
unsafe impl Send for Pieces {}

impl Pieces {
    fn write(&mut self, file: &OwnedFd, packet: &Packet) -> io::Result<usize> {
        self.0.clear();
        self.0.push(piece(&NOTHING_LEFT));
        self.0.extend(packet.segment_data().map(piece));
        // 256 at most: a packet has up to 255 segments.
        let count = i32::try_from(self.0.len()).unwrap_or(i32::MAX);
        // SAFETY: each piece is a part of a constant or of the packet, both of which live through the call, and the
        // kernel only reads them.
        system::check_length(unsafe { libc::writev(file.as_raw_fd(), self.0.as_ptr(), count) })
    }
}

struct TapTransmit {
    file: Arc<OwnedFd>,
    name: LinkName,
    pieces: Pieces,
    counters: Arc<QueueCounters>,
    failure: Option<String>,
}

impl TransmitQueue for TapTransmit {
    fn transmit(&mut self, burst: &mut Burst) -> usize {
        let before = burst.len();
        // Packets from here on have not been looked at.
        let mut done = 0;
        let (mut packets, mut bytes) = (0, 0);
        while let Some(packet) = burst.get_mut(done) {
            let written = match make_complete(packet) {
                Ok(()) => self.pieces.write(&self.file, packet),
                Err(reason) => {
                    self.counters.drops.count(reason.index(), 1);
                    done += 1;
                    continue;
                }
            };
            match written.as_ref().map_err(verdict) {
                Ok(_) => {
                    packets += 1;
                    bytes += packet.packet_length() as u64;
                    done += 1;
                }
                Err(Verdict::Later) => break,
                Err(Verdict::Packet(reason)) => {
                    self.counters.drops.count(reason.index(), 1);
                    done += 1;
                }
                Err(Verdict::Burst(reason)) => {
                    self.counters.drops.count(reason.index(), (burst.len() - done) as u64);
                    done = burst.len();
                }
                Err(Verdict::Gone) => {
                    self.failure.get_or_insert_with(|| gone(&self.name));
                    self.counters.drops.count(TransmitDrop::Gone.index(), (burst.len() - done) as u64);
                    done = burst.len();
                }
            }
        }
        burst.free_front(done);
        self.counters.packets.add(packets);
        self.counters.bytes.add(bytes);
        before - burst.len()
    }

    fn status(&self) -> QueueStatus {
        match &self.failure {
            Some(sentence) => QueueStatus::Failed(sentence.clone()),
            None => QueueStatus::Running,
        }
    }

    fn counters(&self) -> &Arc<QueueCounters> {
        &self.counters
    }
}
