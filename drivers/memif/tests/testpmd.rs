//! Against DPDK's `net_memif`, in both roles: dpdk-testpmd sends back what it receives.

mod common;

use common::{connected, exchange, lengths, pool, until};
use std::time::Duration;
use warmlane_mem::{LaneThread, Pool};
use warmlane_memif::{Connector, MemifOptions, MemifPort, Mode, Role, open};
use warmlane_testkit::process::Process;
use warmlane_testkit::requirements;
use warmlane_testkit::testpmd::Testpmd;

/// A testpmd behind a socket, with the device's other arguments.
fn testpmd(socket: &str, peer: &Testpmd<'_>) -> Process {
    let device = format!("net_memif0,socket={socket},socket-abstract=no,{}", peer.device);
    let more = [peer.more, &["--log-level=pmd.net.memif:debug"]].concat();
    Testpmd { device: &device, more: &more, ..*peer }.start()
}

/// Sends packets of all lengths to testpmd, each of our queues in turn, and compares what comes back.
fn echoes(port: &mut MemifPort, pool: &Pool) {
    let lengths: Vec<_> = lengths().into_iter().filter(|length| *length >= 14).collect();
    for queue in 0..port.port.transmit.len() {
        let (transmit, receive) = (&mut port.port.transmit[queue], &mut port.port.receive[queue]);
        // It drops what its ring has no room for.
        exchange(pool, &mut **transmit, &mut **receive, &lengths, 20);
    }
}

fn against(role: Role, mode: Mode, peer: &Testpmd<'_>, change: impl Fn(&mut MemifOptions)) {
    if !requirements::programs(&["dpdk-testpmd"]) {
        return;
    }
    let _alone = Testpmd::alone();
    let _lane = LaneThread::enter();
    let (folder, pool) = (tempfile::tempdir().unwrap(), pool());
    let socket = folder.path().join("memif.sock").to_str().unwrap().to_owned();
    let mut options = MemifOptions { mode, ..MemifOptions::new(&socket, role) };
    change(&mut options);
    // A server of theirs is not there at first: a client keeps trying.
    let mut port = open("ours", &options, peer.queues, &pool, &mut Connector::default()).unwrap();
    let mut process = testpmd(&socket, peer);
    until("testpmd is there", || {
        assert!(!process.has_ended(), "{}", process.output());
        connected(&port)
    });
    echoes(&mut port, &pool);
    process.interrupt();
    process.finish(Duration::from_secs(60)).expect_success("testpmd");
    until("we know that testpmd is gone", || !connected(&port));
    drop(port);
    assert_eq!(pool.ledger().outstanding(), 0);
}

const CLIENT: Testpmd<'_> = Testpmd { device: "role=client", buffers: 2048, queues: 1, more: &[] };
const SERVER: Testpmd<'_> = Testpmd { device: "role=server", ..CLIENT };

#[test]
fn our_server_and_its_client() {
    against(Role::Server, Mode::Copy, &CLIENT, |_| {});
}

#[test]
fn our_client_and_its_server() {
    against(Role::Client, Mode::Copy, &SERVER, |_| {});
}

#[test]
fn our_client_without_copies_and_its_server() {
    against(Role::Client, Mode::ZeroCopy, &SERVER, |_| {});
}

/// Jumbo frames in one buffer of theirs and several of ours, and the other way round; three rings.
#[test]
fn several_rings_and_other_sizes() {
    let queues = Testpmd { device: "role=server,rsize=8", queues: 3, ..CLIENT };
    against(Role::Client, Mode::Copy, &queues, |options| options.ring_size = 256);
    let jumbo = Testpmd { device: "role=client,bsize=9216,rsize=7", buffers: 9216, ..CLIENT };
    against(Role::Server, Mode::Copy, &jumbo, |_| {});
}

/// Its memory is not sealed then, so it has to be trusted.
#[test]
fn our_server_and_its_client_without_copies() {
    let peer = Testpmd { device: "role=client,zero-copy=yes", more: &["--single-file-segments"], ..CLIENT };
    against(Role::Server, Mode::Copy, &peer, |options| options.allow_unsealed = true);
}

#[test]
fn a_killed_testpmd_comes_back() {
    if !requirements::programs(&["dpdk-testpmd"]) {
        return;
    }
    let _alone = Testpmd::alone();
    let _lane = LaneThread::enter();
    let (folder, pool) = (tempfile::tempdir().unwrap(), pool());
    for (role, peer) in [(Role::Server, CLIENT), (Role::Client, SERVER)] {
        let socket = folder.path().join(format!("{role:?}")).to_str().unwrap().to_owned();
        let options = MemifOptions { mode: Mode::ZeroCopy, ..MemifOptions::new(&socket, role) };
        let mut port = open("ours", &options, 1, &pool, &mut Connector::default()).unwrap();
        for _ in 0..2 {
            // Theirs does not take over what a killed process has left.
            if role == Role::Client {
                let _ = std::fs::remove_file(&socket);
            }
            let process = testpmd(&socket, &peer);
            until("testpmd is there", || connected(&port));
            echoes(&mut port, &pool);
            process.signal("KILL");
            drop(process.finish(Duration::from_secs(60)));
            until("we know that testpmd is gone", || !connected(&port));
        }
        drop(port);
        assert_eq!(pool.ledger().outstanding(), 0);
    }
}
