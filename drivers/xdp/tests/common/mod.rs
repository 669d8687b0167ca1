//! A network namespace for each test, and a look at the wire that doesn't go through the driver.

use std::collections::HashSet;
use std::ffi::c_int;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use warmlane_mem::{Burst, Packet, Pool, PoolConfig};
use warmlane_port::{ReceiveQueue, TransmitQueue};
use warmlane_testkit::requirements;
use warmlane_xdp::{Umem, XdpError, XdpOptions, XdpPort, open};

/// Runs a test in a namespace of its own, if we may.
#[track_caller]
pub(crate) fn in_namespace(test: impl FnOnce() + Send + 'static) {
    if !requirements::namespaces_and(&["ip", "ethtool"]) {
        return;
    }
    let run = move || {
        // SAFETY: moves this thread only to a new network namespace; touches no memory.
        let result = unsafe { libc::unshare(libc::CLONE_NEWNET) };
        assert_eq!(result, 0, "unshare: {}", io::Error::last_os_error());
        ip("link set lo up");
        test();
    };
    thread::spawn(run).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// Runs a test of ports on v0, the other end of which is v1, and of a pool that they share. Afterwards no buffer is missing.
#[track_caller]
pub(crate) fn on_link(mtu: u32, test: impl FnOnce(&Pool, &Umem) + Send + 'static) {
    in_namespace(move || {
        pair("v0", "v1", mtu);
        let pool = pool(&PoolConfig::default());
        test(&pool, &Umem::new(&pool).unwrap());
        assert_eq!(pool.ledger().outstanding(), 0);
    });
}

/// Runs a command in this thread's namespace.
#[track_caller]
pub(crate) fn run(line: &str) -> String {
    let mut words = line.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[track_caller]
pub(crate) fn ip(line: &str) {
    run(&format!("ip {line}"));
}

/// Makes a veth pair without IPv6, whose chatter would be in the way.
#[track_caller]
pub(crate) fn pair(ours: &str, other: &str, mtu: u32) {
    ip(&format!("link add {ours} mtu {mtu} type veth peer name {other} mtu {mtu}"));
    for name in [ours, other] {
        std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1").unwrap();
        ip(&format!("link set {name} up"));
    }
}

pub(crate) fn pool(config: &PoolConfig) -> Pool {
    Pool::new(config).unwrap()
}

/// All packets of an interface.
pub(crate) fn all_of(interface: &str) -> XdpOptions {
    XdpOptions::new(interface)
}

pub(crate) type Receive = Box<dyn ReceiveQueue>;
pub(crate) type Transmit = Box<dyn TransmitQueue>;

/// The only queue's two ends, and the rest.
pub(crate) fn only(mut port: XdpPort) -> (Receive, Transmit, warmlane_xdp::Monitor) {
    assert_eq!((port.port.receive.len(), port.port.transmit.len()), (1, 1));
    (port.port.take_receive().unwrap(), port.port.take_transmit().unwrap(), port.monitor)
}

pub(crate) fn opened(config: &XdpOptions, umem: &Umem) -> XdpPort {
    opened_with(config, umem, &HashSet::new())
}

/// Opened with these addresses taken for the kernel's.
pub(crate) fn opened_with(config: &XdpOptions, umem: &Umem, local: &HashSet<IpAddr>) -> XdpPort {
    open(config, 1, umem, local).unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn refused(config: &XdpOptions, umem: &Umem) -> XdpError {
    open(config, 1, umem, &HashSet::new()).expect_err("it should be refused")
}

/// Polls until `done`.
#[track_caller]
pub(crate) fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !done() {
        assert!(Instant::now() < end, "{what} does not happen");
        thread::sleep(Duration::from_micros(200));
    }
}

/// Receives so many packets.
#[track_caller]
pub(crate) fn receive(queue: &mut Receive, count: usize) -> Vec<Packet> {
    let mut packets = Vec::new();
    wait_for("receiving", || {
        let mut burst = Burst::new();
        queue.receive(&mut burst);
        packets.extend(burst.drain());
        packets.len() >= count
    });
    assert_eq!(packets.len(), count);
    packets
}

/// Sends packets one by one.
#[track_caller]
pub(crate) fn send(queue: &mut Transmit, packets: impl IntoIterator<Item = Packet>) {
    let mut burst = Burst::with_limit(256);
    for packet in packets {
        burst.push(packet).unwrap();
    }
    wait_for("sending", || {
        queue.transmit(&mut burst);
        burst.is_empty()
    });
}

pub(crate) fn bytes(packet: &Packet) -> Vec<u8> {
    let mut bytes = vec![0; packet.packet_length()];
    packet.copy_to(&mut bytes);
    bytes
}

/// A frame that nobody answers, with a number in it.
pub(crate) fn frame(number: usize, length: usize) -> Vec<u8> {
    let mut frame = vec![0x02, 0, 0, 0, 0, 1, 0x02, 0, 0, 0, 0, 2, 0x88, 0xb5];
    frame.extend((number as u32).to_be_bytes());
    frame.resize(length, number as u8);
    frame
}

/// A packet socket on an interface.
pub(crate) struct Wire(OwnedFd);

impl Wire {
    pub(crate) fn on(interface: &str) -> Self {
        let protocol = (libc::ETH_P_ALL as u16).to_be();
        // SAFETY: no pointers are passed.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW, c_int::from(protocol)) };
        assert!(fd >= 0, "{}", io::Error::last_os_error());
        // SAFETY: just made.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let name = std::ffi::CString::new(interface).unwrap();
        // SAFETY: all zero is a value of this plain struct; the calls read what lives through them.
        unsafe {
            let mut address: libc::sockaddr_ll = std::mem::zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_protocol = protocol;
            address.sll_ifindex = libc::if_nametoindex(name.as_ptr()).cast_signed();
            let size = size_of::<libc::sockaddr_ll>() as u32;
            assert_eq!(libc::bind(fd.as_raw_fd(), (&raw const address).cast(), size), 0);
            let one: c_int = 1;
            let size = size_of::<c_int>() as u32;
            let set = |name| {
                libc::setsockopt(fd.as_raw_fd(), libc::SOL_PACKET, name, (&raw const one).cast(), size)
            };
            assert_eq!(set(libc::PACKET_IGNORE_OUTGOING), 0);
        }
        Self(fd)
    }

    pub(crate) fn send(&self, frame: &[u8]) {
        // SAFETY: the kernel reads the frame, which lives through the call.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        assert_eq!(sent, frame.len().cast_signed(), "{}", io::Error::last_os_error());
    }

    /// The next frame, if one comes soon.
    pub(crate) fn receive(&self, limit: Duration) -> Option<Vec<u8>> {
        let end = Instant::now() + limit;
        let mut frame = vec![0_u8; 65_536];
        loop {
            // SAFETY: the kernel writes at most frame.len() bytes to the vector.
            let length = unsafe {
                libc::recv(self.0.as_raw_fd(), frame.as_mut_ptr().cast(), frame.len(), libc::MSG_DONTWAIT)
            };
            if let Ok(length) = usize::try_from(length) {
                frame.truncate(length);
                return Some(frame);
            }
            if Instant::now() > end {
                return None;
            }
            thread::sleep(Duration::from_micros(200));
        }
    }

    /// The next frame.
    #[track_caller]
    pub(crate) fn expect(&self) -> Vec<u8> {
        self.receive(Duration::from_secs(10)).expect("a frame")
    }
}
