//! Against DPDK's `net_memif`, in both roles: dpdk-testpmd sends back what it receives.

mod common;

use common::{connected, pool};
use warmlane_memif::{Connector, MemifOptions, Mode, Role, open};
use warmlane_testkit::exchange::echoes;
use warmlane_testkit::process::Process;
use warmlane_testkit::testpmd::{AgainstTestpmd, Testpmd};

/// A testpmd behind a socket, with the device's other arguments.
fn testpmd(socket: &str, peer: &Testpmd<'_>) -> Process {
    let device = format!("net_memif0,socket={socket},socket-abstract=no,{}", peer.device);
    let more = [peer.more, &["--log-level=pmd.net.memif:debug"]].concat();
    Testpmd { device: &device, more: &more, ..*peer }.start()
}

fn against(role: Role, mode: Mode, peer: &Testpmd<'_>, change: impl Fn(&mut MemifOptions)) {
    let Some(test) = AgainstTestpmd::new(pool) else { return };
    let socket = test.socket("memif.sock");
    let mut options = MemifOptions { mode, ..MemifOptions::new(&socket, role) };
    change(&mut options);
    // A server of theirs is not there at first: a client keeps trying.
    let mut port = open("ours", &options, peer.queues, &test.pool, &mut Connector::default()).unwrap();
    let mut process = testpmd(&socket, peer);
    AgainstTestpmd::connect(&mut process, || connected(&port));
    echoes(&mut port.port, &test.pool, usize::MAX);
    AgainstTestpmd::interrupt(process, || connected(&port));
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
    let Some(test) = AgainstTestpmd::new(pool) else { return };
    for (role, peer) in [(Role::Server, CLIENT), (Role::Client, SERVER)] {
        let socket = test.socket(&format!("{role:?}"));
        let options = MemifOptions { mode: Mode::ZeroCopy, ..MemifOptions::new(&socket, role) };
        let mut port = open("ours", &options, 1, &test.pool, &mut Connector::default()).unwrap();
        for _ in 0..2 {
            // Theirs does not take over what a killed process has left.
            if role == Role::Client {
                let _ = std::fs::remove_file(&socket);
            }
            let mut process = testpmd(&socket, &peer);
            AgainstTestpmd::connect(&mut process, || connected(&port));
            echoes(&mut port.port, &test.pool, usize::MAX);
            AgainstTestpmd::kill(process, || connected(&port));
        }
        drop(port);
        assert_eq!(test.pool.ledger().outstanding(), 0);
    }
}
