//! A port on an existing interface, through a packet socket (packet(7)).
//!
//! **Receiving** goes through a ring in memory shared with the kernel, in version 2 of its format: slots of one
//! size, each visible the moment it is filled, no system call per burst. Version 3 packs frames more tightly into
//! blocks, but a block is only seen when it is full or a timer of at least 1 ms retires it, which would add up to
//! that much latency to each packet of a quiet flow. What version 3 would be better at, 64 KiB super-frames, is
//! solved otherwise: a frame longer than a slot is also queued on the socket (`PACKET_COPY_THRESH`) and read from
//! there, one system call for some forty segments.
//!
//! **Sending** is one `sendmmsg` per burst on a second socket. A ring for sending exists too, but saves nothing: it
//! needs a system call to start it as well, a copy into the ring, and the kernel copies a second time where frames
//! reach a local receiver (`skb_orphan_frags_rx`). Over a veth pair (Linux 6.18, bursts of 64), `sendmmsg` was as
//! fast as the ring with 60-byte frames within the noise of 20 %, and 1.0 to 1.3 times as fast with 1,514 bytes.
//! It also takes chains without a copy of ours, and tells which packet an error belongs to.
//!
//! **Several queues** are as many pairs of sockets. The kernel spreads flows over those that receive by a hash, the same for both directions
//! of a flow (`PACKET_FANOUT_HASH`).
//!
//! **What others left to hardware** stays so: local sockets' frames come with partial checksums and up to 64 KiB long, and
//! packets say so ([`Checksum::Partial`](warmlane_mem::Checksum), [`Segmentation`](warmlane_mem::Segmentation)). Such packets
//! can be sent here, too; the kernel does what the device doesn't. Frames off a real wire are complete. VLAN tags that the
//! kernel took out are put back among the bytes: no port here could insert them, and while a frame is copied it costs nothing.
//!
//! The kernel goes on handling the same frames itself: a port that shall own the interface's traffic needs an
//! interface without addresses.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::net::AddressFamily;
use serde::{Deserialize, Serialize};
use warmlane_driver_common::virtio_net::HEADER_LENGTH;
use warmlane_driver_common::{
    Driver, DriverHelp, Environment, Interface, InterfaceName, OpenError, driver_help, interface_gone, system,
};
use warmlane_mem::{Burst, Packet, Pool};
use warmlane_port::{
    Capabilities, Offloads, Port, ReceiveQueue, TransmitOffloads, TransmitQueue, queue_report,
};

use crate::drops::ReceiveDrop;
use crate::error::KernelError;
use crate::intake::{Intake, NoPacket, Waiting};
use crate::packet_socket::{self, Filter};
use crate::packet_transmit::PacketTransmit;
use crate::ring::{Geometry, Ring};

/// What local senders leave to the hardware behind a virtual link, in tunnels as well.
const LEAVES: TransmitOffloads = TransmitOffloads::WITHOUT_TAGS;

/// Slots that a ring may have; the upper end is 100 MB of slots for standard frames.
const RING_FRAMES: std::ops::RangeInclusive<u32> = 16..=65_536;

/// MTUs for which slots are made at most: by choice of this driver, and at all (the loopback interface's).
const LONGEST_SLOT_MTU: u32 = 9_216;
const LONGEST_MTU: u32 = 65_536;

/// Bytes of super-frames that may wait on the socket. The kernel counts its own overhead in, about twice the data.
const SOCKET_BUFFER: i32 = 8 << 20;

/// How many fruitless polls go by before the clock is looked at, and how much time before the kernel is asked
/// whether the interface is still there.
const POLLS_PER_CHECK: u32 = 256;
const TIME_PER_CHECK: Duration = Duration::from_millis(100);

/// What a port on an interface should be like.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct PacketOptions {
    /// The interface's name.
    pub interface: String,
    /// Slots in the receive ring; rounded up to a multiple of 64. More ride out longer pauses of the lane, fewer
    /// stay in the cache.
    #[serde(default = "usual_ring")]
    pub ring: u32,
    /// Bytes in each slot; `None` chooses the least that the interface's MTU needs (up to an MTU of 9,216).
    #[serde(default)]
    pub slot_bytes: Option<u32>,
    /// Receive frames to other Ethernet addresses, too, for as long as the port is open.
    #[serde(default = "yes")]
    pub promiscuous: bool,
    /// Send past the interface's queueing discipline, and past its lock: no difference where there is none (veth),
    /// up to 1.4 times as fast where there is. But neither `tc` nor capture programs such as tcpdump on this host
    /// see these frames, and nothing buffers what the device has no space for.
    #[serde(default = "yes")]
    pub bypass_queueing: bool,
}

impl Default for PacketOptions {
    /// No interface yet, 1,024 slots, promiscuous, past the queueing discipline.
    fn default() -> Self {
        Self {
            interface: String::new(),
            ring: usual_ring(),
            slot_bytes: None,
            promiscuous: true,
            bypass_queueing: true,
        }
    }
}

const fn usual_ring() -> u32 {
    1024
}

const fn yes() -> bool {
    true
}

/// Ports on existing interfaces, by packet sockets.
#[derive(Debug)]
pub struct PacketDriver;

impl Driver for PacketDriver {
    const HELP: DriverHelp = driver_help! {
        "packet": "An existing interface, by AF_PACKET: any kind, and not the fastest. Needs CAP_NET_RAW.";
        examples: "packet:eth0";
        "interface" "NAME": "the interface";
        "ring" "SLOTS": "frames that can wait to be received; without it, 1024";
        "slot-bytes" "BYTES": "bytes of a slot; without it, what the interface's MTU needs";
        "promiscuous" "true|false": "receive frames to other Ethernet addresses, too; without it, true";
        "bypass-queueing" "true|false": "send past the interface's queueing discipline, which tc and tcpdump \
            then don't see; without it, true";
    };
    type Options = PacketOptions;

    fn open(options: &PacketOptions, environment: &mut Environment<'_>) -> Result<Port, OpenError> {
        open(options, environment.queues, environment.pool).map_err(OpenError::new)
    }
}

/// Opens a port on an interface, with as many receive and transmit queues, at least one, each on a socket of its own. Needs
/// `CAP_NET_RAW`, and Linux 4.20 or later; for several queues before Linux 6.13 an interface that is up.
///
/// # Errors
/// [`KernelError`] says what is wrong with the configuration, the interface or the privileges, and the remedy.
pub fn open(options: &PacketOptions, queues: usize, pool: &Pool) -> Result<Port, KernelError> {
    let name = InterfaceName::new(&options.interface)?;
    let interface = Interface::find(&name)?;
    interface.check_ethernet()?;
    let (index, mtu) = (interface.index.cast_signed(), interface.mtu);
    let geometry = geometry(options, mtu)?;

    let queues = queues.max(1);
    let mut receive: Vec<Box<dyn ReceiveQueue>> = Vec::with_capacity(queues);
    let mut transmit: Vec<Box<dyn TransmitQueue>> = Vec::with_capacity(queues);
    let (mut group, mut offloads) = (None, TransmitOffloads::NONE);
    for _ in 0..queues {
        let (socket, ring) = receive_socket(options, index, geometry, queues > 1)?;
        if queues > 1 {
            let joined = packet_socket::share(&socket, group);
            group = Some(joined.map_err(|source| not_shared(&interface, &name, queues, source))?);
            // From here on it gets what no other one does.
            filter(&socket, Filter::Incoming)?;
        }
        receive.push(Box::new(PacketReceive {
            intake: Intake::new(pool, 0, true),
            ring,
            socket,
            name: name.clone(),
            idle_polls: 0,
            checked: Instant::now(),
            failure: None,
        }));
        let queue = PacketTransmit::open(&name, index, options.bypass_queueing)?;
        offloads = queue.offloads();
        transmit.push(Box::new(queue));
    }
    let mut notes = vec![format!(
        "receives through a ring of {} slots of {} bytes, sends with one sendmmsg per burst",
        geometry.slots, geometry.slot_bytes
    )];
    if queues > 1 {
        notes.push(format!("the kernel spreads flows over {queues} sockets (PACKET_FANOUT_HASH)"));
    }
    if !interface.up {
        notes.push(format!("the interface is down: set it up with `ip link set {} up`", name.as_str()));
    }
    Ok(Port {
        name: options.interface.clone(),
        driver: "packet",
        capabilities: Capabilities {
            mac: interface.mac,
            offloads: Offloads { leaves: LEAVES, transmit: offloads, ..Offloads::default() },
            mtu: Some(mtu),
            maximum_frame: mtu + 14,
            timestamps: true,
            notes,
        },
        receive,
        transmit,
    })
}

fn geometry(options: &PacketOptions, mtu: u32) -> Result<Geometry, KernelError> {
    let (minimum, maximum) = (*RING_FRAMES.start(), *RING_FRAMES.end());
    if !RING_FRAMES.contains(&options.ring) {
        return Err(KernelError::RingFrames { frames: options.ring, minimum, maximum });
    }
    // Longer frames (the loopback interface's, say) are better read one by one than given slots of 64 KiB.
    let needed = Geometry::slot_for(mtu.min(LONGEST_SLOT_MTU));
    let frame_bytes = options.slot_bytes.unwrap_or(needed);
    if frame_bytes < needed {
        let name = options.interface.clone();
        return Err(KernelError::RingFrameSize { name, frame_bytes, mtu, needed });
    }
    Ok(Geometry::new(options.ring, frame_bytes.min(Geometry::slot_for(LONGEST_MTU))))
}

/// A socket that receives through a ring, and the ring.
fn receive_socket(
    options: &PacketOptions,
    index: i32,
    geometry: Geometry,
    is_shared: bool,
) -> Result<(OwnedFd, Ring), KernelError> {
    let interface = &options.interface;
    let raw = |action: &str| {
        let action = format!("{action} on interface {interface:?}");
        move |source| KernelError::raw(action, source)
    };
    // Protocol 0 receives nothing: the socket only starts when all is set up and it is bound.
    let socket = system::raw_socket(AddressFamily::PACKET).map_err(raw("open a packet socket"))?;
    let set = |name, value: i32| system::set_option(&socket, libc::SOL_PACKET, name, value);
    // Both before the ring is made: they change where frames are in it.
    set(libc::PACKET_VNET_HDR, 1).map_err(raw("ask for offload headers (PACKET_VNET_HDR)"))?;
    set(libc::PACKET_COPY_THRESH, 1).map_err(raw("ask for long frames (PACKET_COPY_THRESH)"))?;
    // What we send must not come back to us.
    set(libc::PACKET_IGNORE_OUTGOING, 1)
        .map_err(raw("ignore outgoing frames (PACKET_IGNORE_OUTGOING, Linux 4.20 or later)"))?;
    // Beyond the system-wide limit if we may (CAP_NET_ADMIN), else up to it.
    if system::set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, SOCKET_BUFFER).is_err() {
        system::set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, SOCKET_BUFFER)
            .map_err(raw("size the socket buffer"))?;
    }
    let ring = Ring::map(&socket, geometry).map_err(raw(&format!(
        "map a packet ring of {} slots of {} bytes",
        geometry.slots, geometry.slot_bytes
    )))?;
    if options.promiscuous {
        // Ends with the socket (packet(7)).
        let membership = libc::packet_mreq {
            mr_ifindex: index,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        system::set_option(&socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, membership)
            .map_err(raw("receive promiscuously"))?;
    }
    if is_shared {
        // Before it shares frames it would get all of them, as others do.
        filter(&socket, Filter::Nothing)?;
    }
    packet_socket::bind(&socket, index, libc::ETH_P_ALL as u16).map_err(raw("bind a packet socket"))?;
    Ok((socket, ring))
}

fn filter(socket: &OwnedFd, filter: Filter) -> Result<(), KernelError> {
    let raw =
        |source| KernelError::raw("filter frames of a packet socket (SO_ATTACH_FILTER)".to_owned(), source);
    filter.attach(socket).map_err(raw)
}

/// Why sockets can't share an interface.
fn not_shared(interface: &Interface, name: &InterfaceName, queues: usize, source: io::Error) -> KernelError {
    let name = name.as_str().to_owned();
    if !interface.up && source.kind() == io::ErrorKind::InvalidInput {
        return KernelError::SharedDown { name };
    }
    KernelError::raw(format!("share interface {name:?} among {queues} sockets (PACKET_FANOUT)"), source)
}

/// The receiving end.
struct PacketReceive {
    intake: Intake,
    ring: Ring,
    /// Its ring is gone before it is closed: fields are dropped in this order.
    socket: OwnedFd,
    name: InterfaceName,
    idle_polls: u32,
    checked: Instant,
    failure: Option<String>,
}

/// What became of a slot.
enum Outcome {
    /// A packet, of the spare buffer or others.
    Packet(Packet),
    /// No packet, but the slot is done with.
    Taken,
    /// No buffer: the slot must wait.
    Wait,
}

impl PacketReceive {
    /// Takes the frame out of the next slot, which is ready.
    fn take(&mut self, spare: Packet) -> Outcome {
        let frame = match self.ring.frame() {
            Some(Ok(frame)) => frame,
            Some(Err(_)) => {
                self.intake.drop_frame(ReceiveDrop::RingCorrupt, &[]);
                return Outcome::Taken;
            }
            None => return Outcome::Wait,
        };
        if frame.is_losing {
            count_losses(&self.socket, &self.intake);
        }
        let (tag, timestamp, data) = (frame.tag, frame.timestamp, frame.data);
        let copied = if frame.is_queued {
            let length = frame.length;
            match read_queued(&self.socket, &mut self.intake, length) {
                // The slot is done with: the frame was read from the socket and can't be read again.
                Some(header) => {
                    self.intake.wait(Waiting { head: None, rest: 0..length, tag, header, timestamp });
                    return Outcome::Taken;
                }
                None => Err(NoPacket::Drop(ReceiveDrop::Truncated)),
            }
        } else if data.len() != frame.length {
            Err(NoPacket::Drop(ReceiveDrop::Truncated))
        } else {
            self.intake.copy(spare, data, tag, frame.offload)
        };
        match copied {
            Ok(mut packet) => {
                packet.set_timestamp(timestamp);
                Outcome::Packet(packet)
            }
            Err(NoPacket::NoBuffer) => Outcome::Wait,
            Err(NoPacket::Drop(reason)) => {
                self.intake.drop_frame(reason, data);
                Outcome::Taken
            }
        }
    }

    /// Takes up to `burst.space()` frames from the ring; stops behind one that was read to the storage.
    fn take_ready(&mut self, burst: &mut Burst) {
        let ready = self.ring.ready(burst.space());
        if ready == 0 {
            return;
        }
        let mut spares = Burst::with_limit(ready);
        self.intake.pool.take_burst(&mut spares, ready);
        let (mut packets, mut bytes) = (0, 0);
        while let Some(spare) = spares.pop() {
            match self.take(spare) {
                Outcome::Packet(packet) => {
                    packets += 1;
                    bytes += packet.packet_length() as u64;
                    // There is space: no more were ready than the burst has space for.
                    drop(burst.push(packet));
                }
                Outcome::Taken => {}
                Outcome::Wait => break,
            }
            self.ring.release();
            if self.intake.is_waiting() {
                break;
            }
        }
        self.intake.counters.count(packets, bytes);
    }

    /// Asks now and then whether the interface is still there: the ring of a deleted one just stays empty.
    #[cold]
    fn check_interface(&mut self) {
        self.idle_polls = 0;
        if self.failure.is_some() || self.checked.elapsed() < TIME_PER_CHECK {
            return;
        }
        self.checked = Instant::now();
        count_losses(&self.socket, &self.intake);
        if packet_socket::bound_index(&self.socket).is_ok_and(|index| index < 0) {
            self.failure = Some(interface_gone(self.name.as_str()));
        }
    }
}

/// Adds what the kernel dropped because the ring was full. Asking resets the kernel's count.
fn count_losses(socket: &OwnedFd, intake: &Intake) {
    let nothing = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    if let Ok(statistics) = system::get_option(socket, libc::SOL_PACKET, libc::PACKET_STATISTICS, nothing) {
        intake.counters.drops().count(ReceiveDrop::RingFull, u64::from(statistics.tp_drops));
    }
}

/// Reads the frame that didn't fit its slot from the socket into the storage: the kernel queued it there in the
/// same order; returns what is left to do for it. `None` if it is not all there.
fn read_queued(socket: &OwnedFd, intake: &mut Intake, length: usize) -> Option<[u8; HEADER_LENGTH]> {
    let mut header = [0; HEADER_LENGTH];
    let mut read = || {
        let pieces = [&mut header[..], &mut intake.storage];
        rustix::io::readv(socket, &mut pieces.map(IoSliceMut::new))
    };
    // An error that happened to the interface (it went down) is told once, in place of data.
    let read = read().or_else(|_| read());
    read.is_ok_and(|read| read == HEADER_LENGTH + length).then_some(header)
}

impl ReceiveQueue for PacketReceive {
    fn receive(&mut self, burst: &mut Burst) -> usize {
        let before = burst.len();
        while burst.space() > 0 && self.intake.resume(burst) && burst.space() > 0 {
            self.take_ready(burst);
            if !self.intake.is_waiting() {
                break;
            }
        }
        let received = burst.len() - before;
        if received == 0 {
            self.idle_polls += 1;
            if self.idle_polls >= POLLS_PER_CHECK {
                self.check_interface();
            }
        }
        received
    }

    fn leaves(&self) -> TransmitOffloads {
        LEAVES
    }

    fn event(&mut self) -> Option<BorrowedFd<'_>> {
        (!self.intake.is_waiting()).then(|| self.socket.as_fd())
    }

    queue_report!(intake.counters);
}
