//! What kernels leave to devices, checksums and segmentation: the machine's own kernel, and those of hosts at TAP interfaces.

use std::path::Path;
use std::time::Instant;

use warmlane_system_tests::{LONG, SHORT};
use warmlane_testkit::exchange::until;
use warmlane_testkit::namespace::Namespace;
use warmlane_testkit::requirements;

use super::cards::{TAKEN, TAP, colons, dotted};
use super::tcp::Receiver;
use super::wire::{checksum, ethernet};
use super::{HOST_ADDRESSES, HOSTS, Lab, PORT_ADDRESSES, PORTS, Pair, UDP};

/// The port that is sent to.
const PORT: u16 = 5_000;

/// How much hosts send each other.
const BYTES: u64 = 4 << 20;

/// Bytes of the longest frame that isn't left to be cut.
const LINK: f64 = 1_514.0;

impl Pair<'_> {
    /// What the machine's kernel sends comes with work left, which somebody has to do: the card, or the forwarder for it.
    pub(super) fn check_offloads(&self) {
        let before = self.wires[0].received.get();
        self.start(TAP);
        let (us, there) = (dotted(HOST_ADDRESSES[1]), dotted(HOST_ADDRESSES[0]));
        let via = dotted(PORT_ADDRESSES[1]);
        let mac = colons(HOSTS[1]);
        self.tell(&format!(
            "ip link set t0 address {mac} && ip address replace {us}/24 dev t0 && ip route replace {there}/32 via {via}"
        ));
        self.check_checksum();
        self.check_segmentation();
        let report = self.lab.finish();
        while self.wires[0].receive().is_some() {}
        let came = self.wires[0].received.get() - before;
        let sent = report.number(&format!("{}/transmitted/packets", report.port("west")));
        assert_eq!(came > sent + 10, self.kind.cuts, "{came} frames of {sent} packets");
    }

    /// A checksum of UDP.
    fn check_checksum(&self) {
        // So long that the frame isn't filled up.
        const TEXT: &str = "this is too long to be filled up";
        let there = dotted(HOST_ADDRESSES[0]);
        let end = Instant::now() + LONG;
        let message = loop {
            assert!(Instant::now() < end, "nothing came: {}", self.tell("cat /notes"));
            self.tell(&format!("echo {TEXT} >/dev/udp/{there}/9"));
            let is_it = |frame: &Vec<u8>| {
                frame.get(23) == Some(&UDP) && frame.trim_ascii_end().ends_with(TEXT.as_bytes())
            };
            if let Some(frame) = std::iter::from_fn(|| self.wires[0].receive()).find(is_it) {
                break frame[34..].to_vec();
            }
        };
        let length = message.len() as u8;
        let pseudo = [&HOST_ADDRESSES[1][..], &HOST_ADDRESSES[0], &[0, UDP, 0, length], &message].concat();
        assert_eq!(checksum(&pseudo), [0, 0], "{message:x?}");
    }

    /// Much data by TCP.
    fn check_segmentation(&self) {
        let expected: String = (10_000..22_000).map(|number| number.to_string()).collect();
        let mut receiver = Receiver::new(HOST_ADDRESSES[0], PORT, HOST_ADDRESSES[1]);
        let there = dotted(HOST_ADDRESSES[0]);
        // In large pieces, which the shell doesn't write by itself: else its kernel sends each segment as soon as that is full.
        self.tell(&format!("printf %s {{10000..21999}} >/data && cat /data >/dev/tcp/{there}/{PORT} &"));
        let end = Instant::now() + LONG;
        while !receiver.is_over {
            let count = receiver.data.len();
            assert!(Instant::now() < end, "only {count} bytes came: {}", self.tell("cat /notes"));
            let Some(frame) = self.wires[0].receive() else { continue };
            if let Some(answer) = receiver.take(&frame) {
                self.wires[0].send(&ethernet(PORTS[0], HOSTS[0], 0x0800, &answer));
            }
        }
        assert!(receiver.data == expected.as_bytes(), "other data came");
    }

    /// A host that has the TAP interface at one of the cards.
    fn host(&self, side: usize) -> Namespace {
        let host = Namespace::new(["west", "east"][side]);
        let interface = format!("wire{}", self.first + side);
        let there = self.lab.namespace.as_ref().expect("a kind of cards at TAP interfaces");
        there.ip(&format!("link set {interface} netns {}", host.name()));
        host.ip(&format!("link set {interface} address {} up", colons(HOSTS[side])));
        host.ip(&format!("address add {}/24 dev {interface}", dotted(HOST_ADDRESSES[side])));
        host.ip(&format!("route add default via {}", dotted(PORT_ADDRESSES[side])));
        host
    }

    /// Streams of TCP come through whole, and mostly in packets that nobody has cut. Nothing else can be sent over these wires afterwards.
    fn check_kernels(&self) {
        let hosts = [0, 1].map(|side| self.host(side));
        for from in [0, 1] {
            let to = 1 - from;
            self.launch(TAKEN);
            let there = dotted(HOST_ADDRESSES[to]);
            until("an answer", || {
                hosts[from].run(&format!("ping -c 1 -W 1 {there}")).output.contains("1 received")
            });
            let stream = |host: &Namespace, arguments: String| {
                let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tcp_stream.py");
                host.spawn(&format!("python3 {} {arguments}", script.display()))
            };
            let mut receiver = stream(&hosts[to], format!("receive {PORT}"));
            receiver.wait_for("there", SHORT);
            let sender = stream(&hosts[from], format!("send {there} {PORT} {BYTES}")).finish(LONG);
            let received = receiver.finish(LONG);
            let sent = sender.expect_success("the sender").trim();
            assert!(received.expect_success("the receiver").trim().ends_with(sent), "other data came");
            let report = self.lab.finish();
            let count =
                |side: &str, what: &str| report.number(&format!("{}/{what}", report.port(side))) as f64;
            let [source, sink] = [["west", "east"], ["east", "west"]][from];
            let (packets, bytes) = (count(source, "received/packets"), count(source, "received/bytes"));
            assert!(
                bytes > BYTES as f64 && bytes / packets > 2.0 * LINK,
                "{bytes} bytes in {packets} packets"
            );
            let left = count(sink, "transmitted/packets");
            assert!(left <= packets, "{packets} packets came, and {left} left");
        }
    }
}

#[test]
fn what_kernels_leave_to_virtio_devices_is_forwarded_whole() {
    if !requirements::namespaces_and(&["ip", "ping", "python3"]) {
        return;
    }
    let Some(lab) = Lab::with_virtio_queues() else { return };
    lab.pairs().for_each(|pair| {
        pair.take();
        pair.check_kernels();
    });
}
