//! TCP between two hosts through two packet-socket ports, with all that hosts leave to hardware.

use crate::common::{Host, Receive, Transmit, bytes, complete, ip, is_root, look, pool, without_ipv6};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use warmlane_kernel::{PacketOptions, packet};
use warmlane_mem::Burst;
use warmlane_testkit::queues::drops;

/// Moves packets from one port to the other until told to stop, and looks at each. Returns how many carried data.
fn bridge(stop: &AtomicBool, mut ways: [(Receive, Transmit); 2], whole: bool) -> usize {
    let (mut burst, mut seen) = (Burst::new(), 0);
    while !stop.load(Ordering::Relaxed) {
        for (receive, transmit) in &mut ways {
            receive.receive(&mut burst);
            for packet in burst.iter() {
                if whole {
                    seen += usize::from(packet.segmentation().is_some());
                    continue;
                }
                assert!(packet.packet_length() <= 1514, "{} bytes", packet.packet_length());
                look(&bytes(packet));
                seen += usize::from(packet.packet_length() > 200);
            }
            while !burst.is_empty() {
                transmit.transmit(&mut burst);
            }
        }
    }
    for (receive, transmit) in &ways {
        assert_eq!((drops(&receive.counters()), drops(&transmit.counters())), (vec![], vec![]));
    }
    seen
}

#[test]
fn a_tcp_transfer_between_two_hosts_with_all_offloads_on() {
    transfer(["192.0.2.1/24", "192.0.2.2/24"], "192.0.2.2:7000", false);
}

/// The kernel cuts what another port left to be cut.
#[test]
fn a_tcp_transfer_whose_super_frames_stay_whole() {
    transfer(["192.0.2.1/24", "192.0.2.2/24"], "192.0.2.2:7000", true);
    transfer(["2001:db8::1/64 nodad", "2001:db8::2/64 nodad"], "[2001:db8::2]:7000", true);
}

/// Here the receiving kernel alone checks what we made of the super-frames.
#[test]
fn the_same_over_ipv6() {
    transfer(["2001:db8::1/64 nodad", "2001:db8::2/64 nodad"], "[2001:db8::2]:7000", false);
}

fn transfer(addresses: [&'static str; 2], server_address: &'static str, whole: bool) {
    const BYTES: usize = 20_000_000;
    if !is_root() {
        return;
    }
    let (client, server, middle) = (Host::new(), Host::new(), Host::new());
    middle.run(without_ipv6);
    let ids = [client.thread_id, server.thread_id];
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let (tell, told) = std::sync::mpsc::channel();
    middle.run(move || {
        for (name, id) in ["client", "server"].into_iter().zip(ids) {
            ip(&format!("link add name {name} type veth peer name outer netns {id}"));
            ip(&format!("link set {name} up"));
        }
    });
    for (host, address) in [&client, &server].into_iter().zip(addresses) {
        host.run(move || {
            ip("link set outer up");
            ip(&format!("addr add {address} dev outer"));
        });
    }
    middle.start(move || {
        let pool = pool();
        let mut ends = ["client", "server"].map(|name| {
            let port = {
                let options = PacketOptions { interface: name.to_owned(), ..PacketOptions::default() };
                packet::open(&options, 1, &pool).unwrap()
            };
            if whole { port } else { complete(port) }
        });
        let [a, b] = &mut ends;
        let ways = [
            (a.take_receive().unwrap(), b.take_transmit().unwrap()),
            (b.take_receive().unwrap(), a.take_transmit().unwrap()),
        ];
        let seen = bridge(&stopped, ways, whole);
        assert_eq!(pool.ledger().outstanding(), 0);
        tell.send(seen).unwrap();
    });
    let listener = server.run(move || TcpListener::bind(server_address).unwrap());
    let data: Vec<u8> = (0..BYTES).map(|index| (index / 251) as u8).collect();
    let expected = data.clone();
    client.start(move || TcpStream::connect(server_address).unwrap().write_all(&data).unwrap());
    let received = server.run(move || {
        let mut received = Vec::new();
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.read_to_end(&mut received).unwrap();
        received
    });
    assert!(received == expected, "{} bytes arrived of {}", received.len(), expected.len());
    stop.store(true, Ordering::Relaxed);
    assert!(told.recv().unwrap() >= if whole { BYTES / 65_536 } else { BYTES / 1448 });
}
