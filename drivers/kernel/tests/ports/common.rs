//! Network namespaces made by the tests themselves, and an independent look at the frames that come out.
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use warmlane_mem::{Burst, Packet, Pool, PoolConfig};
use warmlane_port::{Port, QueueStatus, ReceiveQueue, TransmitOffloads, TransmitQueue, software_offload};
use warmlane_testkit::queues::drops;

pub(crate) type Receive = Box<dyn ReceiveQueue>;
pub(crate) type Transmit = Box<dyn TransmitQueue>;

/// Whether this process may make namespaces. Without root the test is skipped, loudly; in CI that is a failure.
#[track_caller]
pub(crate) fn is_root() -> bool {
    warmlane_testkit::requirements::namespaces_and(&["ip"])
}

/// A thread in a network namespace of its own; the namespace goes when it ends and its sockets are closed.
pub(crate) struct Host {
    jobs: Option<Sender<Box<dyn FnOnce() + Send>>>,
    thread: Option<JoinHandle<()>>,
    pub(crate) thread_id: i32,
}

impl Host {
    pub(crate) fn new() -> Self {
        let (jobs, todo) = channel::<Box<dyn FnOnce() + Send>>();
        let (tell, told) = channel();
        let thread = thread::spawn(move || {
            // SAFETY: moves this thread only to a new network namespace; touches no memory.
            let (result, id) = unsafe { (libc::unshare(libc::CLONE_NEWNET), libc::gettid()) };
            tell.send((result, id)).unwrap();
            ip("link set lo up");
            for job in todo {
                job();
            }
        });
        let (result, thread_id) = told.recv().unwrap();
        assert_eq!(result, 0, "unshare: {}", std::io::Error::last_os_error());
        Self { jobs: Some(jobs), thread: Some(thread), thread_id }
    }

    /// Runs `job` in the namespace and does not wait.
    pub(crate) fn start(&self, job: impl FnOnce() + Send + 'static) {
        self.jobs.as_ref().unwrap().send(Box::new(job)).unwrap();
    }

    /// Runs `job` in the namespace and returns what it returns.
    pub(crate) fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (tell, told) = channel();
        self.start(move || drop(tell.send(job())));
        told.recv().expect("the job panicked: see above")
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.jobs = None;
        let ended = self.thread.take().unwrap().join();
        if !thread::panicking() {
            ended.expect("a job panicked: see above");
        }
    }
}

/// Runs `test` in a namespace of its own, if we may.
pub(crate) fn in_namespace(test: impl FnOnce() + Send + 'static) {
    if is_root() {
        Host::new().run(test);
    }
}

/// `ip` from iproute2, in this thread's namespace.
pub(crate) fn ip(arguments: &str) {
    let output =
        Command::new("ip").args(arguments.split_whitespace()).output().expect("ip (iproute2) is installed");
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Waits until `done`; panics after five seconds.
pub(crate) fn wait(what: &str, done: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(5);
    while !done() {
        assert!(Instant::now() < end, "{what}: waited in vain");
        thread::sleep(Duration::from_millis(1));
    }
}

/// What `ip` tells of an interface.
pub(crate) fn details(interface: &str) -> String {
    let output = Command::new("ip").args(["-d", "-o", "link", "show", interface]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Sets an interface up and waits until it carries frames: the kernel learns of the carrier in the background
/// (`net/core/link_watch.c`), and drops what is sent before.
pub(crate) fn bring_up(interface: &str) {
    ip(&format!("link set {interface} up"));
    wait_for_carrier(interface);
}

/// Waits until an interface carries frames, because its peer came up.
pub(crate) fn wait_for_carrier(interface: &str) {
    wait(&format!("{interface} has carrier"), || details(interface).contains("state UP"));
}

/// Keeps the kernel from sending neighbour discovery and the like on new interfaces.
pub(crate) fn without_ipv6() {
    for which in ["all", "default"] {
        drop(std::fs::write(format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6"), "1"));
    }
}

pub(crate) fn pool() -> Pool {
    Pool::new(&PoolConfig { buffers: 2048, magazine: Some(16), ..PoolConfig::default() }).unwrap()
}

pub(crate) fn bytes(packet: &Packet) -> Vec<u8> {
    packet.segment_data().flatten().copied().collect()
}

/// The port, with all done in software that its packets may need: what is behind sees complete packets only.
pub(crate) fn complete(mut port: Port) -> Port {
    let complete = |queue| software_offload::on_receive(queue, TransmitOffloads::ALL);
    port.receive = port.receive.drain(..).map(complete).collect();
    port
}

/// Polls until `wanted` says that it saw enough; panics after five seconds.
pub(crate) fn poll(receive: &mut Receive, mut wanted: impl FnMut(&Packet) -> bool) {
    take(receive, |packet| wanted(&packet));
}

/// The same for who keeps packets.
pub(crate) fn take(receive: &mut Receive, mut wanted: impl FnMut(Packet) -> bool) {
    let end = Instant::now() + Duration::from_secs(5);
    let mut burst = Burst::new();
    loop {
        receive.receive(&mut burst);
        for packet in burst.drain() {
            if wanted(packet) {
                return;
            }
        }
        assert!(Instant::now() < end, "nothing came; drops: {:?}", drops(&receive.counters()));
        thread::yield_now();
    }
}

/// Polls until the queue has failed; returns the sentence.
pub(crate) fn poll_failure(receive: &mut Receive) -> String {
    let end = Instant::now() + Duration::from_secs(5);
    let mut burst = Burst::new();
    loop {
        burst.clear();
        if receive.receive(&mut burst) == 0
            && let QueueStatus::Failed(sentence) = receive.status()
        {
            return sentence;
        }
        assert!(Instant::now() < end, "the queue goes on: {:?}", receive.status());
    }
}

/// Sends one frame.
pub(crate) fn send(transmit: &mut Transmit, pool: &Pool, frame: &[u8]) {
    let mut burst = Burst::new();
    burst.push(chain(pool, frame)).unwrap();
    assert_eq!(transmit.transmit(&mut burst), 1, "{:?}", transmit.status());
}

/// A packet of as many buffers as needed.
pub(crate) fn chain(pool: &Pool, frame: &[u8]) -> Packet {
    let mut pieces = frame.chunks(pool.data_size());
    let mut packet = pool.take().unwrap();
    packet.fill(pieces.next().unwrap()).unwrap();
    for piece in pieces {
        let mut next = pool.take().unwrap();
        next.fill(piece).unwrap();
        packet.chain(next).unwrap();
    }
    packet
}

/// An IPv4 frame as its bytes tell.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) source_port: u16,
    pub(crate) destination_port: u16,
    pub(crate) payload: Vec<u8>,
    pub(crate) transport: usize,
    pub(crate) network: usize,
}

/// Looks at an IPv4 TCP or UDP frame and checks all its lengths and checksums, a word at a time; `None` if it is
/// something else.
pub(crate) fn look(frame: &[u8]) -> Option<Seen> {
    let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let network = if word(12) == 0x8100 { 18 } else { 14 };
    if word(network - 2) != 0x0800 {
        return None;
    }
    let transport = network + usize::from(frame[network] & 15) * 4;
    let end = network + usize::from(word(network + 2));
    let protocol = frame[network + 9];
    if !matches!(protocol, 6 | 17) {
        return None;
    }
    assert!(end <= frame.len() && end.max(60) >= frame.len(), "total length {end} of {}", frame.len());
    assert_eq!(reference_sum(&[&frame[network..transport]]), 0xffff, "IPv4 header checksum");
    let length = (end - transport) as u32;
    let pseudo = [&frame[network + 12..network + 20], &length.to_be_bytes(), &[0, 0, 0, protocol]].concat();
    assert_eq!(reference_sum(&[&pseudo, &frame[transport..end]]), 0xffff, "transport checksum");
    let header = if protocol == 6 { usize::from(frame[transport + 12] >> 4) * 4 } else { 8 };
    if protocol == 17 {
        assert_eq!(u32::from(word(transport + 4)), length, "UDP length");
    }
    Some(Seen {
        source_port: word(transport),
        destination_port: word(transport + 2),
        payload: frame[transport + header..end].to_vec(),
        transport,
        network,
    })
}

/// RFC 1071 section 1; each part but the last has an even length.
fn reference_sum(parts: &[&[u8]]) -> u32 {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let mut sum: u32 =
        words.map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

/// Turns a UDP frame around: addresses and ports exchanged, so that all checksums stay right.
pub(crate) fn reply(frame: &[u8], seen: &Seen) -> Vec<u8> {
    let mut reply = frame.to_vec();
    let mut exchange = |at: usize, size: usize| {
        reply[at..at + size].copy_from_slice(&frame[at + size..at + 2 * size]);
        reply[at + size..at + 2 * size].copy_from_slice(&frame[at..at + size]);
    };
    exchange(0, 6);
    exchange(seen.network + 12, 4);
    exchange(seen.transport, 2);
    reply
}

/// Asks the kernel to cut what is sent on `socket` into datagrams of `size` bytes (udp(7): `UDP_SEGMENT`).
pub(crate) fn set_udp_segment(socket: &std::net::UdpSocket, size: u16) {
    use std::os::fd::AsRawFd;
    let size = libc::c_int::from(size);
    // SAFETY: the kernel reads four bytes from `size`, which lives through the call.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, (&raw const size).cast(), 4)
    };
    assert_eq!(result, 0, "UDP_SEGMENT: {}", std::io::Error::last_os_error());
}
