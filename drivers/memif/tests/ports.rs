//! Two ports of ours, in one process and in two.

mod common;

use common::{connected, exchange, lengths, pool, until};
use warmlane_mem::{Burst, LaneThread, Pool};
use warmlane_memif::{Connector, MemifOptions, MemifPort, Mode, Role, open};

/// A pair of ports, connected, each with its pool.
struct Pair {
    client: MemifPort,
    server: MemifPort,
    pools: [Pool; 2],
    _folder: tempfile::TempDir,
}

fn pair(lanes: usize, change: impl Fn(&mut MemifOptions)) -> Pair {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memif.sock").to_str().unwrap().to_owned();
    let (pools, mut connector) = ([pool(), pool()], Connector::default());
    let mut ports = [Role::Server, Role::Client].into_iter().zip(&pools).map(|(role, pool)| {
        let mut options = MemifOptions::new(&path, role);
        change(&mut options);
        open("port", &options, lanes, pool, &mut connector).unwrap()
    });
    let (server, client) = (ports.next().unwrap(), ports.next().unwrap());
    drop(ports);
    until("both are connected", || connected(&client) && connected(&server));
    Pair { client, server, pools, _folder: folder }
}

fn both_ways(pair: &mut Pair) {
    let lengths = lengths();
    let [server_pool, client_pool] = &pair.pools;
    let lanes = pair.client.port.transmit.len();
    for queue in 0..lanes {
        let (client, server) = (&mut pair.client.port, &mut pair.server.port);
        exchange(
            client_pool,
            &mut *client.transmit[queue],
            &mut *server.receive[queue],
            &lengths,
            usize::MAX,
        );
        exchange(
            server_pool,
            &mut *server.transmit[queue],
            &mut *client.receive[queue],
            &lengths,
            usize::MAX,
        );
    }
}

/// All buffers are back when the ports are gone.
fn end(pair: Pair) {
    let Pair { client, server, pools, _folder } = pair;
    drop((client, server));
    for pool in &pools {
        assert_eq!(pool.ledger().outstanding(), 0);
    }
}

#[test]
fn packets_arrive_as_they_were_sent() {
    let _lane = LaneThread::enter();
    for mode in [Mode::Copy, Mode::ZeroCopy] {
        for (lanes, ring_size, buffer_size) in [(1, 1024, 2048), (2, 64, 512), (1, 256, 9216)] {
            let mut pair = pair(lanes, |options| {
                (options.mode, options.ring_size, options.buffer_size) = (mode, ring_size, buffer_size);
            });
            both_ways(&mut pair);
            end(pair);
        }
    }
}

/// Each in several descriptors, so that now and then fewer are left than one takes, and more than there are packets.
#[test]
fn long_packets_arrive_one_by_one() {
    let _lane = LaneThread::enter();
    for mode in [Mode::Copy, Mode::ZeroCopy] {
        let mut pair = pair(1, |options| (options.mode, options.ring_size) = (mode, 64));
        let [server_pool, client_pool] = &pair.pools;
        let (client, server) = (&mut pair.client.port, &mut pair.server.port);
        let lengths = [9_000; 100];
        exchange(server_pool, &mut *server.transmit[0], &mut *client.receive[0], &lengths, 1);
        exchange(client_pool, &mut *client.transmit[0], &mut *server.receive[0], &lengths, 1);
        end(pair);
    }
}

/// A socket in a folder that goes with the test.
fn socket() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memif.sock").to_str().unwrap().to_owned();
    (folder, path)
}

#[test]
fn either_side_comes_and_goes() {
    let _lane = LaneThread::enter();
    let ((_folder, path), mut connector) = (socket(), Connector::default());
    let pools = [pool(), pool()];
    let mut open = |role| {
        let options = MemifOptions { mode: Mode::ZeroCopy, ..MemifOptions::new(&path, role) };
        open("port", &options, 1, &pools[usize::from(role == Role::Client)], &mut connector).unwrap()
    };
    let mut client = open(Role::Client);
    for round in 0..3_u64 {
        let mut server = open(Role::Server);
        until("both are connected", || connected(&client) && connected(&server));
        let (to_server, to_client) = (&mut client.port.transmit[0], &mut client.port.receive[0]);
        exchange(&pools[1], &mut **to_server, &mut *server.port.receive[0], &lengths(), usize::MAX);
        exchange(&pools[0], &mut *server.port.transmit[0], &mut **to_client, &lengths(), usize::MAX);
        // Some are under way when it ends.
        let mut burst = Burst::new();
        pools[1].take_burst(&mut burst, 20);
        client.port.transmit[0].transmit(&mut burst);
        if round == 1 {
            drop(client);
            client = open(Role::Client);
            until("the client is back", || connected(&client) && connected(&server));
            let to_server = &mut client.port.transmit[0];
            exchange(&pools[1], &mut **to_server, &mut *server.port.receive[0], &lengths(), usize::MAX);
        }
        drop(server);
        until("the client knows", || !connected(&client));
        let reason = client.monitor.status().unwrap().reason;
        assert!(reason.contains("the port was closed") || reason.contains("can't connect"), "{reason}");
        // What can't be sent is a drop, and counted.
        pools[1].take_burst(&mut burst, 5);
        client.port.transmit[0].transmit(&mut burst);
        assert!(burst.is_empty());
        let drops = client.port.transmit[0].counters();
        assert_eq!(drops.drops().total(), 5 * round.max(1));
    }
    drop(client);
    assert_eq!(pools.each_ref().map(|pool| pool.ledger().outstanding()), [0, 0]);
}

#[test]
fn one_socket_serves_several_interfaces() {
    let _lane = LaneThread::enter();
    let name = format!("@warmlane-test-{}", std::process::id());
    let (pool, mut connector) = (pool(), Connector::default());
    let options = |role, id, secret: &str| MemifOptions {
        id,
        secret: Some(secret.to_owned()),
        ..MemifOptions::new(&name, role)
    };
    let mut open = |options: &MemifOptions| open("port", options, 1, &pool, &mut connector);
    let mut servers: Vec<_> = ["one", "two"]
        .iter()
        .zip(3..)
        .map(|(word, id)| open(&options(Role::Server, id, word)).unwrap())
        .collect();
    let mut client = open(&options(Role::Client, 4, "two")).unwrap();
    let stranger = open(&options(Role::Client, 3, "two")).unwrap();
    until("the right ones are connected", || connected(&client) && connected(&servers[1]));
    until("the other knows why not", || stranger.monitor.status().unwrap().reason.contains("wrong secret"));
    assert!(!connected(&stranger) && !connected(&servers[0]));
    exchange(&pool, &mut *client.port.transmit[0], &mut *servers[1].port.receive[0], &[60, 1514], usize::MAX);
    let error = open(&options(Role::Server, 4, "x")).unwrap_err().to_string();
    assert!(error.contains("already has a port with id 4"), "{error}");
}

#[test]
fn what_is_wrong_with_a_socket_is_named() {
    let ((folder, path), pool) = (socket(), pool());
    let refused = |options: &MemifOptions| {
        // Another program, as it were.
        open("port", options, 1, &pool, &mut Connector::default()).map(drop).unwrap_err().to_string()
    };
    let server = MemifOptions::new(&path, Role::Server);
    let first = open("port", &server, 1, &pool, &mut Connector::default()).unwrap();
    assert!(refused(&server).contains("another process listens"), "{}", refused(&server));
    drop(first);
    assert!(!std::path::Path::new(&path).exists(), "the socket goes with the port");
    // A socket that a process has left is taken over.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    open("port", &server, 1, &pool, &mut Connector::default()).unwrap();
    let file = folder.path().join("file").to_str().unwrap().to_owned();
    std::fs::write(&file, "").unwrap();
    assert!(refused(&MemifOptions::new(&file, Role::Server)).contains("no socket"));
    assert!(std::path::Path::new(&file).exists());
    let client = MemifOptions::new(&path, Role::Client);
    for (options, part) in [
        (MemifOptions::new(&"x".repeat(120), Role::Client), "120 bytes"),
        (MemifOptions::new("", Role::Client), "0 bytes"),
        (MemifOptions { ring_size: 1000, ..client.clone() }, "1000 descriptors"),
        (MemifOptions { ring_size: 32_768, ..client.clone() }, "32768 descriptors"),
        (MemifOptions { buffer_size: 63, ..client.clone() }, "63 bytes"),
        (MemifOptions { secret: Some("x".repeat(24)), ..client.clone() }, "24 bytes"),
        (MemifOptions { secret: Some(String::new()), ..client.clone() }, "0 bytes"),
        (MemifOptions { queues: Some(0), ..client.clone() }, "0 rings"),
        (MemifOptions { wait: 1, ..client.clone() }, "nobody connected"),
    ] {
        let error = refused(&options);
        assert!(error.contains(part), "{error}, expected {part}");
    }
}

#[test]
fn a_lane_without_a_ring_drops() {
    let _lane = LaneThread::enter();
    let ((_folder, path), mut connector, pool) = (socket(), Connector::default(), pool());
    let mut open = |role, lanes| open("port", &MemifOptions::new(&path, role), lanes, &pool, &mut connector);
    let (mut server, mut client) = (open(Role::Server, 1).unwrap(), open(Role::Client, 2).unwrap());
    until("both are connected", || connected(&client) && connected(&server));
    exchange(&pool, &mut *client.port.transmit[0], &mut *server.port.receive[0], &[60, 61], usize::MAX);
    let mut burst = Burst::new();
    pool.take_burst(&mut burst, 3);
    client.port.transmit[1].transmit(&mut burst);
    assert_eq!(client.port.transmit[1].counters().drops().total(), 3);
}

/// A receiver that sleeps is woken up, whatever comes, and one that polls costs the sender no call.
#[test]
fn who_waits_is_told() {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut pair = pair(1, |_| {});
    let pool = pair.pools[0].clone();
    let (server, mut client) = (&mut pair.server.port.transmit[0], pair.client.port.receive.remove(0));
    let packets = 2_000;
    std::thread::scope(|scope| {
        let receiver = scope.spawn(move || {
            let (mut burst, mut received) = (Burst::new(), 0);
            while received < packets {
                if client.receive(&mut burst) > 0 {
                    received += burst.len();
                    burst.clear();
                    continue;
                }
                let Some(event) = client.event() else { continue };
                let limit = Timespec { tv_sec: 30, tv_nsec: 0 };
                let woken = poll(&mut [PollFd::new(&event, PollFlags::IN)], Some(&limit)).unwrap();
                assert_eq!(woken, 1, "slept through packet {received}");
            }
            client
        });
        for number in 0..packets {
            let mut burst = Burst::new();
            pool.take_burst(&mut burst, 1);
            while !burst.is_empty() {
                server.transmit(&mut burst);
            }
            if number % 7 == 0 {
                std::thread::sleep(std::time::Duration::from_micros(number as u64 % 50));
            }
        }
        drop(receiver.join().unwrap());
    });
    end(pair);
}
