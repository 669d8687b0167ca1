//! What a packet socket is bound to (packet(7)).

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use warmlane_driver_common::system;

/// Binds a packet socket to the interface of that index, for these protocols (in host byte order; 0 is none).
pub(crate) fn bind(fd: &OwnedFd, index: c_int, protocol: u16) -> io::Result<()> {
    // SAFETY: a socket address of C.
    unsafe { system::bind(fd, address(index, protocol)) }
}

/// The interface index that a packet socket is bound to: −1 once the interface was deleted or moved to another
/// network namespace (`net/packet/af_packet.c: packet_notifier`).
pub(crate) fn bound_index(fd: &OwnedFd) -> io::Result<c_int> {
    let mut address = address(0, 0);
    let mut length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` = size_of::<sockaddr_ll>() bytes to `address`, any of which are
    // a value of it.
    let result = unsafe { libc::getsockname(fd.as_raw_fd(), (&raw mut address).cast(), &raw mut length) };
    system::check(result).map(|_| address.sll_ifindex)
}

/// Frames that a packet socket receives.
#[derive(Clone, Copy)]
pub(crate) enum Filter {
    /// None.
    Nothing,
    /// Those that come in, and not those that this host sends. Sockets that share frames see the latter whatever each of them was told
    /// (`PACKET_IGNORE_OUTGOING`), before Linux 6.2 in any case.
    Incoming,
}

impl Filter {
    /// Lets a socket receive no others.
    pub(crate) fn attach(self, fd: &OwnedFd) -> io::Result<()> {
        let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
        let give = |bytes| step(libc::BPF_RET | libc::BPF_K, 0, 0, bytes);
        let kind = (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE).cast_unsigned();
        let mut program = match self {
            Self::Nothing => vec![give(0)],
            Self::Incoming => vec![
                step(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 0, kind),
                step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::PACKET_OUTGOING.into()),
                give(0),
                give(u32::MAX),
            ],
        };
        let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        // SAFETY: the kernel reads size_of::<sock_fprog>() bytes from `filter`, and as many steps as that says from `program`; both live
        // through the call.
        let result = unsafe {
            libc::setsockopt(
                fd.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_ATTACH_FILTER,
                (&raw const filter).cast(),
                size_of::<libc::sock_fprog>() as libc::socklen_t,
            )
        };
        system::check(result).map(drop)
    }
}

/// Lets a bound packet socket share what it receives, by flows, with those of a group (packet(7), `PACKET_FANOUT`): with a new one, or with
/// that of this number. Returns the group's number.
pub(crate) fn share(fd: &OwnedFd, group: Option<u16>) -> io::Result<u16> {
    let how = match group {
        Some(number) => libc::PACKET_FANOUT_HASH << 16 | u32::from(number),
        None => (libc::PACKET_FANOUT_HASH | libc::PACKET_FANOUT_FLAG_UNIQUEID) << 16,
    };
    system::set_option(fd, libc::SOL_PACKET, libc::PACKET_FANOUT, how)?;
    let is = system::get_option(fd, libc::SOL_PACKET, libc::PACKET_FANOUT, 0_u32)?;
    // The lower half.
    Ok(is as u16)
}

fn address(index: c_int, protocol: u16) -> libc::sockaddr_ll {
    libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: protocol.to_be(),
        sll_ifindex: index,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    }
}
