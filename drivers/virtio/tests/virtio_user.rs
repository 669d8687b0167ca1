//! Against DPDK's `net_vhost`, which sends back what it receives, and against our own vhost ports.

mod common;

use common::{connected, pool};
use warmlane_mem::{Burst, Checksum, LaneThread, LayerOffsets, Segmentation, SegmentationKind};
use warmlane_testkit::exchange::{bytes_of, contents, echoes, exchange, lengths, packet_of, until};
use warmlane_testkit::process::Process;
use warmlane_testkit::testpmd::{AgainstTestpmd, Testpmd};
use warmlane_virtio::features::{IN_ORDER, MERGEABLE, MULTIQUEUE, PACKED};
use warmlane_virtio::vhost::{self, VhostOptions};
use warmlane_virtio::virtio_user::{VirtioUserOptions, open};
use warmlane_virtio::{Role, VirtioPort};

/// A testpmd that makes the socket, or with `,client=1` connects to ours.
fn testpmd(socket: &str, device: &str, queues: usize) -> Process {
    let device = format!("net_vhost0,iface={socket},queues={queues}{device}");
    Testpmd { device: &device, buffers: 2048, queues, more: &[] }.start()
}

/// What a ring is to be like.
#[derive(Clone, Copy)]
struct Rings {
    packed: bool,
    mergeable: bool,
    in_order: bool,
    size: u16,
}

const SPLIT: Rings = Rings { packed: false, mergeable: true, in_order: true, size: 256 };

impl Rings {
    fn options(self, socket: &str, role: Role) -> VirtioUserOptions {
        let Self { packed, mergeable, in_order, size } = self;
        let defaults = VirtioUserOptions::new(socket, role);
        VirtioUserOptions { packed, mergeable, in_order, ring_size: size, ..defaults }
    }

    /// The longest packet for either direction, in bytes.
    fn longest(self) -> usize {
        if self.mergeable { 9_000 } else { 1_518 }
    }

    /// Checks that this was agreed on, by so many pairs.
    fn check(self, port: &VirtioPort, queues: usize) {
        let choices = [(self.packed, PACKED), (self.mergeable, MERGEABLE), (self.in_order, IN_ORDER)];
        for pair in 0..queues {
            let features = port.monitor.features(pair);
            for (chosen, feature) in choices {
                assert_eq!(features & feature != 0, chosen, "pair {pair}: {features:#x}");
            }
            assert_eq!(features & MULTIQUEUE != 0, queues > 1, "pair {pair}: {features:#x}");
        }
    }
}

fn against(rings: Rings, queues: usize) {
    let Some(test) = AgainstTestpmd::new(pool) else { return };
    let socket = test.socket("vhost.sock");
    let mut process = testpmd(&socket, "", queues);
    let mut port = open("ours", &rings.options(&socket, Role::Client), queues, &test.pool).unwrap();
    AgainstTestpmd::connect(&mut process, || connected(&port));
    rings.check(&port, queues);
    echoes(&mut port.port, &test.pool, rings.longest());
    AgainstTestpmd::interrupt(process, || connected(&port));
}

#[test]
fn split() {
    against(SPLIT, 1);
    against(Rings { in_order: false, ..SPLIT }, 1);
}

#[test]
fn split_with_whole_buffers() {
    against(Rings { mergeable: false, in_order: false, size: 64, ..SPLIT }, 1);
}

#[test]
fn packed() {
    against(Rings { packed: true, ..SPLIT }, 1);
    against(Rings { packed: true, in_order: false, size: 64, ..SPLIT }, 1);
}

#[test]
fn packed_with_whole_buffers() {
    against(Rings { packed: true, mergeable: false, ..SPLIT }, 1);
}

#[test]
fn several_rings() {
    against(SPLIT, 4);
    against(Rings { packed: true, ..SPLIT }, 2);
}

/// Either side is killed or ended, and comes back.
#[test]
fn either_side_comes_and_goes() {
    let Some(test) = AgainstTestpmd::new(pool) else { return };
    let socket = test.socket("ours");
    let mut port = open("ours", &SPLIT.options(&socket, Role::Server), 1, &test.pool).unwrap();
    for _ in 0..2 {
        let mut process = testpmd(&socket, ",client=1", 1);
        AgainstTestpmd::connect(&mut process, || connected(&port));
        echoes(&mut port.port, &test.pool, 1_518);
        AgainstTestpmd::kill(process, || connected(&port));
    }
    drop(port);
    let socket = test.socket("theirs");
    let mut process = testpmd(&socket, "", 1);
    for packed in [false, true] {
        let rings = Rings { packed, ..SPLIT };
        let mut port = open("ours", &rings.options(&socket, Role::Client), 1, &test.pool).unwrap();
        AgainstTestpmd::connect(&mut process, || connected(&port));
        echoes(&mut port.port, &test.pool, 1_518);
    }
    AgainstTestpmd::kill(process, || false);
}

/// A pair of our ports in one process, with a pool each, and what is to hold from either to the other.
fn pair(rings: Rings, queues: usize, check: impl Fn(&mut VirtioPort, &mut VirtioPort)) {
    let _lane = LaneThread::enter();
    let (folder, pools) = (tempfile::tempdir().unwrap(), [pool(), pool()]);
    let socket = folder.path().join("vhost.sock").to_str().unwrap().to_owned();
    let options = VhostOptions::new(&socket, Role::Server);
    let mut device = vhost::open("device", &options, queues, &pools[0]).unwrap();
    let mut driver = open("driver", &rings.options(&socket, Role::Client), queues, &pools[1]).unwrap();
    until("both are there", || connected(&device) && connected(&driver));
    rings.check(&driver, queues);
    check(&mut device, &mut driver);
    check(&mut driver, &mut device);
    drop((device, driver));
    assert!(pools.iter().all(|pool| pool.ledger().outstanding() == 0));
}

#[test]
fn ours_against_ours() {
    let all = [false, true].map(|packed| {
        [false, true]
            .map(|mergeable| [false, true].map(|in_order| Rings { packed, mergeable, in_order, size: 64 }))
    });
    for rings in all.into_iter().flatten().flatten() {
        pair(rings, 2, |from, to| {
            let lengths: Vec<_> = lengths().into_iter().filter(|length| *length <= rings.longest()).collect();
            let pool = pool();
            for queue in 0..2 {
                let receive = &mut *to.port.receive[queue];
                exchange(&pool, &mut *from.port.transmit[queue], receive, &lengths, 50);
            }
            assert_eq!(pool.ledger().outstanding(), 0);
        });
    }
}

/// A TCP packet that is to be segmented, and whose checksum is to be completed, goes as it is, either way.
#[test]
fn work_that_is_left_goes_with_the_packet() {
    for packed in [false, true] {
        pair(Rings { packed, ..SPLIT }, 1, |from, to| {
            let pool = pool();
            let mut frame = contents(1, 54 + 20_000);
            frame[12..14].copy_from_slice(&[8, 0]);
            frame[14..34].copy_from_slice(&[
                0x45, 0, 0x4e, 0x48, 0, 0, 0x40, 0, 64, 6, 0, 0, 192, 0, 2, 1, 198, 51, 100, 2,
            ]);
            frame[46] = 0x50;
            frame[47] = 0x10;
            let mut packet = packet_of(&pool, &frame);
            packet.set_checksum(Checksum::Partial { start: 34, offset: 16 });
            let layers = LayerOffsets { l3: 14, l4: 34, payload: 54, ..LayerOffsets::default() };
            packet.set_layer_offsets(layers);
            let tcp = Segmentation { kind: SegmentationKind::Tcp4, size: 1_448, congestion: false };
            packet.set_segmentation(Some(tcp));
            let (mut out, mut back) = (Burst::new(), Burst::new());
            out.push(packet).unwrap();
            assert_eq!(from.port.transmit[0].transmit(&mut out), 1);
            until("it has come", || to.port.receive[0].receive(&mut back) == 1);
            let came = &back[0];
            assert_eq!(came.segmentation(), Some(tcp));
            assert_eq!(came.checksum(), Checksum::Partial { start: 34, offset: 16 });
            // Whoever completes the checksum starts with that of the pseudo-header, which is put there anew.
            let mut bytes = bytes_of(came);
            bytes[50..52].copy_from_slice(&frame[50..52]);
            assert!(bytes == frame);
        });
    }
}

/// What the other side doesn't have is said, or done without.
#[test]
fn what_the_other_side_lacks() {
    let _lane = LaneThread::enter();
    let (folder, pool) = (tempfile::tempdir().unwrap(), pool());
    let socket = folder.path().join("vhost.sock").to_str().unwrap().to_owned();
    let options = VirtioUserOptions { wait: 1, ..SPLIT.options(&socket, Role::Client) };
    let error = open("ours", &options, 1, &pool).unwrap_err().to_string();
    assert!(error.contains("no back end was there on socket") && error.contains("connect"), "{error}");
    let odd = VirtioUserOptions { ring_size: 100, ..options.clone() };
    let error = open("ours", &odd, 1, &pool).unwrap_err().to_string();
    assert!(error.contains("power of two"), "{error}");
    // Two pairs of rings where there is one: the second is not connected.
    let options = VhostOptions::new(&socket, Role::Server);
    let device = vhost::open("device", &options, 1, &pool).unwrap();
    let mut driver = open("driver", &SPLIT.options(&socket, Role::Client), 2, &pool).unwrap();
    until("both are there", || connected(&device) && connected(&driver));
    let mut burst = Burst::new();
    burst.push(packet_of(&pool, &contents(1, 60))).unwrap();
    assert_eq!(driver.port.transmit[1].transmit(&mut burst), 1);
    let dropped = warmlane_testkit::queues::drops(&driver.port.transmit[1].counters());
    assert_eq!(dropped, [("not-connected", 1)]);
    drop((device, driver));
    assert_eq!(pool.ledger().outstanding(), 0);
}
