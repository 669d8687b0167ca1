//! The sending end of a packet socket: one `sendmmsg` per burst, segments gathered without a copy of our own.

use std::ffi::{c_int, c_uint};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use warmlane_mem::{BURST_CAPACITY, Burst, Packet};
use warmlane_port::{QueueCounters, QueueStatus, TransmitQueue};

use crate::drops::TransmitDrop;
use crate::error::KernelError;
use crate::link::LinkName;
use crate::packet::gone;
use crate::system;
use crate::transmit::{Verdict, make_complete, verdict};

/// Pieces that one call gathers over all its packets: a full burst of up to four segments each. The kernel takes
/// up to 1,024 for one packet (`UIO_MAXIOV`), and a packet has at most 255.
const PIECES: usize = 4 * BURST_CAPACITY;

/// Bytes that may be on their way through the kernel.
const SOCKET_BUFFER: i32 = 4 << 20;

pub(crate) struct PacketTransmit {
    socket: OwnedFd,
    name: LinkName,
    messages: Messages,
    counters: Arc<QueueCounters>,
    failure: Option<String>,
}

impl PacketTransmit {
    pub(crate) fn open(name: &LinkName, index: c_int, bypass_queueing: bool) -> Result<Self, KernelError> {
        let raw = |action: &str| {
            let action = format!("{action} on interface {:?}", name.as_str());
            move |source| KernelError::raw(action, source)
        };
        // Protocol 0: this socket receives nothing.
        let socket =
            system::socket(libc::AF_PACKET, libc::SOCK_RAW, 0).map_err(raw("open a packet socket"))?;
        if bypass_queueing {
            system::set_option(&socket, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1)
                .map_err(raw("send past the queueing discipline (PACKET_QDISC_BYPASS)"))?;
        }
        if system::set_option(&socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, SOCKET_BUFFER).is_err() {
            system::set_option(&socket, libc::SOL_SOCKET, libc::SO_SNDBUF, SOCKET_BUFFER)
                .map_err(raw("size the socket buffer"))?;
        }
        system::bind(&socket, system::link_address(index, 0)).map_err(raw("bind a packet socket"))?;
        Ok(Self {
            socket,
            name: name.clone(),
            messages: Messages::new(),
            counters: QueueCounters::new(TransmitDrop::ALL),
            failure: None,
        })
    }

    fn drop_front(&self, burst: &mut Burst, count: usize, reason: TransmitDrop) {
        self.counters.drops.count(reason.index(), count as u64);
        burst.free_front(count);
    }
}

impl TransmitQueue for PacketTransmit {
    fn transmit(&mut self, burst: &mut Burst) -> usize {
        let before = burst.len();
        let (mut packets, mut bytes) = (0, 0);
        while !burst.is_empty() {
            if let Some(Err(reason)) = burst.first_mut().map(make_complete) {
                self.drop_front(burst, 1, reason);
                continue;
            }
            match self.messages.send(&self.socket, burst) {
                Ok(sent) => {
                    packets += sent as u64;
                    bytes += burst[..sent].iter().map(|packet| packet.packet_length() as u64).sum::<u64>();
                    burst.free_front(sent);
                }
                // The error is that of the first packet: the kernel tells of no other (sendmmsg(2)).
                Err(error) => match verdict(&error) {
                    Verdict::Later => break,
                    Verdict::Packet(reason) => self.drop_front(burst, 1, reason),
                    Verdict::Burst(reason) => self.drop_front(burst, burst.len(), reason),
                    Verdict::Gone => {
                        self.failure.get_or_insert_with(|| gone(&self.name));
                        self.drop_front(burst, burst.len(), TransmitDrop::Gone);
                    }
                },
            }
        }
        self.counters.packets.add(packets);
        self.counters.bytes.add(bytes);
        before - burst.len()
    }

    fn is_costly_to_call(&self) -> bool {
        true
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

/// Room for the arguments of `sendmmsg`, kept from call to call.
struct Messages {
    headers: Vec<libc::mmsghdr>,
    pieces: Vec<libc::iovec>,
}

// SAFETY: the pointers in it are only followed in `send`, which overwrites those it uses first.
unsafe impl Send for Messages {}

impl Messages {
    fn new() -> Self {
        Self { headers: Vec::with_capacity(BURST_CAPACITY), pieces: Vec::with_capacity(PIECES) }
    }

    /// Sends packets from the front of `burst`, until one is not to be sent as it is or the pieces run out; returns
    /// how many the kernel took.
    fn send(&mut self, socket: &OwnedFd, burst: &mut Burst) -> io::Result<usize> {
        self.headers.clear();
        self.pieces.clear();
        for packet in burst.iter_mut() {
            let full = self.pieces.len() + packet.segments() > PIECES || self.headers.len() == BURST_CAPACITY;
            if full || make_complete(packet).is_err() {
                break;
            }
            self.add(packet);
        }
        // SAFETY: each header points to pieces in `self.pieces`, which has not grown beyond its capacity and hence
        // not moved, and those to the data of packets that `burst` keeps through the call; all else is null.
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
