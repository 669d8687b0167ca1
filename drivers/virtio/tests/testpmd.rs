//! Against DPDK's `net_virtio_user`: dpdk-testpmd sends back what it receives.

mod common;

use common::{connected, pool, until};
use warmlane_testkit::exchange::echoes;
use warmlane_testkit::process::Process;
use warmlane_testkit::testpmd::{AgainstTestpmd, Testpmd};
use warmlane_virtio::Role;
use warmlane_virtio::features::{IN_ORDER, INDIRECT, MERGEABLE, MULTIQUEUE, PACKED};
use warmlane_virtio::vhost::{VhostOptions, open};

/// A testpmd behind a socket, with the device's other arguments.
fn testpmd(socket: &str, device: &str, queues: usize) -> Process {
    let device = format!("net_virtio_user0,path={socket},queues={queues}{device}");
    // Without files there is nothing to share.
    let more = ["--single-file-segments", "--log-level=pmd.net.virtio.driver:info"];
    Testpmd { device: &device, buffers: 2048, queues, more: &more }.start()
}

/// With this device, of which these features are to be agreed on, and those not.
fn against(device: &str, queues: usize, [agreed, refused]: [u64; 2], longest: usize) {
    let Some(test) = AgainstTestpmd::new(pool) else { return };
    let socket = test.socket("vhost.sock");
    let options = VhostOptions::new(&socket, Role::Server);
    let mut port = open("ours", &options, queues, &test.pool).unwrap();
    let mut process = testpmd(&socket, device, queues);
    AgainstTestpmd::connect(&mut process, || connected(&port));
    for pair in 0..queues {
        until("the ring is enabled", || port.monitor.features(pair) != 0);
        let features = port.monitor.features(pair);
        assert_eq!((features & agreed, features & refused), (agreed, 0), "{features:#x}");
    }
    echoes(&mut port.port, &test.pool, longest);
    AgainstTestpmd::interrupt(process, || connected(&port));
}

/// Jumbo frames take several buffers on both sides.
#[test]
fn split_as_it_comes() {
    against("", 1, [MERGEABLE | IN_ORDER | INDIRECT, PACKED], 9_000);
}

#[test]
fn split_out_of_order() {
    against(",in_order=0", 1, [MERGEABLE | INDIRECT, PACKED | IN_ORDER], 9_000);
    against(",in_order=0,mrg_rxbuf=0,queue_size=64", 1, [0, PACKED | IN_ORDER | MERGEABLE], 1_518);
}

#[test]
fn packed() {
    against(",packed_vq=1", 1, [PACKED | MERGEABLE | IN_ORDER, 0], 9_000);
    against(",packed_vq=1,in_order=0,queue_size=64", 1, [PACKED | MERGEABLE, IN_ORDER], 9_000);
}

#[test]
fn packed_with_whole_buffers() {
    against(",packed_vq=1,mrg_rxbuf=0", 1, [PACKED, MERGEABLE], 1_518);
}

#[test]
fn several_rings() {
    against("", 3, [MULTIQUEUE, PACKED], 1_518);
    against(",packed_vq=1", 2, [MULTIQUEUE | PACKED, 0], 1_518);
}

/// Either side is killed or ended, and comes back.
#[test]
fn either_side_comes_and_goes() {
    let Some(test) = AgainstTestpmd::new(pool) else { return };
    let open = |socket: &str, role| open("ours", &VhostOptions::new(socket, role), 1, &test.pool).unwrap();
    let socket = test.socket("ours");
    let mut port = open(&socket, Role::Server);
    for _ in 0..2 {
        let mut process = testpmd(&socket, ",packed_vq=1", 1);
        AgainstTestpmd::connect(&mut process, || connected(&port));
        echoes(&mut port.port, &test.pool, 1_518);
        AgainstTestpmd::kill(process, || connected(&port));
    }
    drop(port);
    let socket = test.socket("theirs");
    let mut process = testpmd(&socket, ",server=1", 1);
    for _ in 0..3 {
        let mut port = open(&socket, Role::Client);
        AgainstTestpmd::connect(&mut process, || connected(&port));
        echoes(&mut port.port, &test.pool, 1_518);
    }
    AgainstTestpmd::kill(process, || false);
}
