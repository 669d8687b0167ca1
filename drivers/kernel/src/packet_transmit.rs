//! The sending end of a packet socket: one `sendmmsg` per burst, segments gathered without a copy of our own.

use std::ffi::{c_int, c_uint};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::AddressFamily;
use warmlane_driver_common::virtio_net::{HEADER_LENGTH, header_of};
use warmlane_driver_common::{InterfaceName, interface_gone, system};
use warmlane_mem::{BURST_CAPACITY, Burst, Packet, bytes_of};
use warmlane_port::{CountDropped as _, QueueCounters, TransmitOffloads, TransmitQueue, queue_report};

use crate::drops::TransmitDrop;
use crate::error::KernelError;
use crate::packet_socket;
use crate::transmit::{Refusal, kernel_segments_udp, refusal, transmit_offloads};

/// Pieces that one call gathers over all its packets: a full burst of up to four segments each, with the offload header.
/// The kernel takes up to 1,024 for one packet (`UIO_MAXIOV`), and a packet has at most 255.
const PIECES: usize = 5 * BURST_CAPACITY;

/// Bytes that may be on their way through the kernel.
const SOCKET_BUFFER: i32 = 4 << 20;

pub(crate) struct PacketTransmit {
    socket: OwnedFd,
    name: InterfaceName,
    messages: Messages,
    counters: QueueCounters<TransmitDrop>,
    offloads: TransmitOffloads,
    failure: Option<String>,
}

impl PacketTransmit {
    pub(crate) fn open(
        name: &InterfaceName,
        index: c_int,
        bypass_queueing: bool,
    ) -> Result<Self, KernelError> {
        let raw = |action: &str| {
            let action = format!("{action} on interface {:?}", name.as_str());
            move |source| KernelError::raw(action, source)
        };
        // Protocol 0: this socket receives nothing.
        let socket = system::raw_socket(AddressFamily::PACKET).map_err(raw("open a packet socket"))?;
        system::set_option(&socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)
            .map_err(raw("ask for offload headers (PACKET_VNET_HDR)"))?;
        if bypass_queueing {
            system::set_option(&socket, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1)
                .map_err(raw("send past the queueing discipline (PACKET_QDISC_BYPASS)"))?;
        }
        if system::set_option(&socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, SOCKET_BUFFER).is_err() {
            system::set_option(&socket, libc::SOL_SOCKET, libc::SO_SNDBUF, SOCKET_BUFFER)
                .map_err(raw("size the socket buffer"))?;
        }
        packet_socket::bind(&socket, index, 0).map_err(raw("bind a packet socket"))?;
        Ok(Self {
            socket,
            name: name.clone(),
            messages: Messages::new(),
            counters: QueueCounters::new(),
            offloads: transmit_offloads(kernel_segments_udp()),
            failure: None,
        })
    }

    fn drop_front(&self, burst: &mut Burst, count: usize, reason: TransmitDrop) {
        self.counters.drops().count_packets(reason, &burst[..count]);
        burst.free_front(count);
    }
}

impl TransmitQueue for PacketTransmit {
    fn transmit(&mut self, burst: &mut Burst) -> usize {
        let before = burst.len();
        let (mut packets, mut bytes) = (0, 0);
        while !burst.is_empty() {
            match self.messages.send(&self.socket, burst) {
                Ok(sent) => {
                    packets += sent as u64;
                    bytes += bytes_of(&burst[..sent]);
                    burst.free_front(sent);
                }
                // The error is that of the first packet: the kernel tells of no other (sendmmsg(2)).
                Err(error) => match refusal(&error) {
                    Refusal::Later => break,
                    Refusal::Packet(reason) => self.drop_front(burst, 1, reason),
                    Refusal::Burst(reason) => self.drop_front(burst, burst.len(), reason),
                    Refusal::Gone => {
                        self.failure.get_or_insert_with(|| interface_gone(self.name.as_str()));
                        self.drop_front(burst, burst.len(), TransmitDrop::Gone);
                    }
                },
            }
        }
        self.counters.count(packets, bytes);
        before - burst.len()
    }

    fn offloads(&self) -> TransmitOffloads {
        self.offloads
    }

    fn event(&mut self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn is_costly_to_call(&self) -> bool {
        true
    }

    queue_report!(counters);
}

/// Space for the arguments of `sendmmsg`, kept from call to call.
struct Messages {
    headers: Vec<libc::mmsghdr>,
    pieces: Vec<libc::iovec>,
    /// What is left to do for each packet, in front of its data.
    left: Vec<[u8; HEADER_LENGTH]>,
}

// SAFETY: the pointers in it are only followed in `send`, which overwrites those it uses first.
unsafe impl Send for Messages {}

impl Messages {
    fn new() -> Self {
        Self {
            headers: Vec::with_capacity(BURST_CAPACITY),
            pieces: Vec::with_capacity(PIECES),
            left: Vec::with_capacity(BURST_CAPACITY),
        }
    }

    /// Sends packets from the front of `burst`, until the pieces run out; returns how many the kernel took.
    fn send(&mut self, socket: &OwnedFd, burst: &Burst) -> io::Result<usize> {
        self.headers.clear();
        self.pieces.clear();
        self.left.clear();
        for packet in burst.iter() {
            if self.pieces.len() + 1 + packet.segments() > PIECES || self.headers.len() == BURST_CAPACITY {
                break;
            }
            self.add(packet);
        }
        // SAFETY: each header points to pieces in `self.pieces`, which has not grown beyond its capacity and hence
        // not moved, and those to elements of `self.left`, of which the same is true, and to the data of packets that
        // `burst` keeps through the call; all else is null.
        let result = unsafe {
            libc::sendmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                self.headers.len() as c_uint,
                libc::MSG_DONTWAIT as _,
            )
        };
        system::check(result).map(|sent| sent.unsigned_abs() as usize)
    }

    fn add(&mut self, packet: &Packet) {
        let first = self.pieces.len();
        self.left.push(header_of(packet));
        self.pieces.extend(self.left.last().map(|left| piece(left)));
        self.pieces.extend(packet.segment_data().map(piece));
        // SAFETY: all zero is a value of this plain C struct: no address, no control data.
        let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
        // `first` is at most the capacity, so this stays inside the allocation or at its end.
        header.msg_hdr.msg_iov = self.pieces.as_mut_ptr().wrapping_add(first);
        header.msg_hdr.msg_iovlen = (self.pieces.len() - first) as _;
        self.headers.push(header);
    }
}

/// A piece of memory to send from. The kernel only reads it, whatever the type says.
pub(crate) fn piece(data: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() }
}
