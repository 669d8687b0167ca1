//! A packet-socket port on one end of a veth pair, in network namespaces of the tests' own.

use crate::common::{bytes, chain, in_namespace, ip, look, poll, poll_failure, pool, reply, send};
use std::net::UdpSocket;
use std::time::{Duration, Instant, SystemTime};
use warmlane_driver_common::{Interface, SystemError};
use warmlane_kernel::{KernelError, PacketOptions, packet};
use warmlane_mem::{Burst, Pool};
use warmlane_port::{Layered, Port, QueueStatus, Transports};
use warmlane_testkit::queues::{ShownDrops, drops};

fn config(interface: &str) -> PacketOptions {
    PacketOptions { interface: interface.to_owned(), ..PacketOptions::default() }
}

/// A veth pair: the kernel is 192.0.2.1 on `left`, we have `right` and are known as 192.0.2.2.
fn pair() {
    crate::common::without_ipv6();
    ip("link add name left type veth peer name right");
    ip("link set right up");
    crate::common::bring_up("left");
    crate::common::wait_for_carrier("right");
    ip("addr add 192.0.2.1/24 dev left");
    ip("neigh add 192.0.2.2 lladdr 02:00:00:00:00:02 dev left");
}

fn open(pool: &Pool) -> Port {
    crate::common::complete(packet::open(&config("right"), 1, pool).unwrap())
}

/// Runs a test with a veth pair, a pool, and a port on `right`.
#[track_caller]
fn on_pair(test: impl FnOnce(Pool, Port) + Send + 'static) {
    in_namespace(|| {
        pair();
        let pool = pool();
        let port = open(&pool);
        test(pool, port);
    });
}

/// A socket of the kernel's end. Its port is the kernel's choice: a program that another test just starts holds a copy
/// of the last one until it is executed.
fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("192.0.2.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    socket
}

/// Sends a datagram to us, checks what we get, and sends it back.
fn echo(pool: &Pool, port: &mut Port, length: usize, chained: bool) {
    let socket = socket();
    let payload: Vec<u8> = (0..length).map(|index| index as u8).collect();
    socket.send_to(&payload, "192.0.2.2:6000").unwrap();
    let mut answer = Vec::new();
    poll(&mut port.receive[0], |packet| {
        let frame = bytes(packet);
        let Some(seen) = look(&frame) else { return false };
        assert_eq!(seen.source_port, socket.local_addr().unwrap().port());
        assert_eq!(seen.payload, payload);
        assert_eq!(packet.segments() > 1, chained);
        let age = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64;
        assert!(age - packet.timestamp() < 10_000_000_000, "the time of reception is not now");
        answer = reply(&frame, &seen);
        true
    });
    send(&mut port.transmit[0], pool, &answer);
    let mut buffer = vec![0; 70_000];
    let (received, from) = socket.recv_from(&mut buffer).unwrap();
    assert_eq!(from.to_string(), "192.0.2.2:6000");
    assert_eq!(buffer[..received], payload);
}

/// The kernel leaves what is inside its own tunnels to be cut, and takes no such thing: whoever forgets either sends what nobody can read.
#[test]
fn what_is_left_in_tunnels_is_told_and_not_taken_back() {
    in_namespace(|| {
        pair();
        let port = packet::open(&config("right"), 1, &pool()).unwrap();
        let offloads = port.capabilities.offloads;
        let left = [offloads.leaves, port.receive[0].leaves()];
        assert!(
            left.iter().all(|leaves| leaves.segmentation == Layered::ALL && leaves.checksums == Layered::ALL)
        );
        for taken in [offloads.transmit, port.transmit[0].offloads()] {
            assert_eq!(
                (taken.segmentation.inner, taken.checksums.inner),
                (Transports::NONE, Transports::NONE)
            );
        }
    });
}

#[test]
fn udp_reaches_us_and_back() {
    in_namespace(|| {
        pair();
        let pool = pool();
        // Through the queueing discipline, where other sockets would see what we send.
        let config = PacketOptions { bypass_queueing: false, ..config("right") };
        let mut port = crate::common::complete(packet::open(&config, 1, &pool).unwrap());
        assert_eq!((port.capabilities.mtu, port.capabilities.timestamps), (Some(1500), true));
        for length in [0, 1, 100, 999, 1472] {
            echo(&pool, &mut port, length, false);
        }
        assert_eq!(port.receive[0].counters().packets(), 5, "what we send must not come back");
        drop(port);
        assert_eq!(pool.ledger().outstanding(), 0);
    });
}

#[test]
fn frames_longer_than_a_buffer_are_chains_both_ways() {
    in_namespace(|| {
        pair();
        ip("link set left mtu 9000");
        let pool = pool();
        // Opened before the MTU grew: frames that don't fit a slot come another way.
        let mut small = open(&pool);
        ip("link set right mtu 9000");
        echo(&pool, &mut small, 8000, true);
        drop(small);
        echo(&pool, &mut open(&pool), 8001, true);
    });
}

#[test]
fn a_vlan_tag_that_the_kernel_took_out_is_put_back() {
    in_namespace(|| {
        pair();
        let pool = pool();
        let mut left = packet::open(&config("left"), 1, &pool).unwrap();
        let mut right = open(&pool);
        for tags in [&[0x81, 0, 0x20, 5][..], &[0x88, 0xa8, 0, 6], &[0x88, 0xa8, 0, 6, 0x81, 0, 0, 7]] {
            let frame = [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1], tags, &[0x88, 0xb5], &[0x5a; 1498]].concat();
            // The kernel grants four bytes more to the usual kind of tag only.
            let frame = &frame[..1514];
            send(&mut left.transmit[0], &pool, frame);
            poll(&mut right.receive[0], |packet| {
                assert_eq!(bytes(packet), frame);
                true
            });
        }
    });
}

#[test]
fn batched_datagrams_come_one_by_one_whether_they_fit_a_slot_or_not() {
    on_pair(|_pool, mut port| {
        let socket = socket();
        for (size, total) in [(100, 1000), (1000, 60_000), (7, 800), (1400, 20_000)] {
            crate::common::set_udp_segment(&socket, size as u16);
            let payload: Vec<u8> = (0..total).map(|index: u32| (index / 7) as u8).collect();
            socket.send_to(&payload, "192.0.2.2:6000").unwrap();
            let mut joined = Vec::new();
            poll(&mut port.receive[0], |packet| {
                let seen = look(packet.data()).unwrap();
                assert!(seen.payload.len() <= size);
                joined.extend(seen.payload);
                joined.len() >= payload.len()
            });
            assert_eq!(joined, payload);
        }
        assert_eq!(drops(&port.receive[0].counters()), []);
    });
}

/// Each flow comes to one of them, whole and once, and nothing that was sent here.
#[test]
fn several_queues_share_what_comes_in() {
    in_namespace(|| {
        pair();
        let pool = pool();
        // Through the queueing discipline, where other sockets see what is sent.
        let config = PacketOptions { bypass_queueing: false, ..config("right") };
        let mut port = crate::common::complete(packet::open(&config, 3, &pool).unwrap());
        assert_eq!((port.receive.len(), port.transmit.len()), (3, 3));
        let frame = [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5][..], &[9; 50]].concat();
        for transmit in &mut port.transmit {
            send(transmit, &pool, &frame);
        }
        let sockets: Vec<UdpSocket> = (0..40).map(|_| socket()).collect();
        for (number, socket) in (0_u8..).zip(&sockets) {
            // Super-frames among them, which wait beside the ring.
            crate::common::set_udp_segment(socket, 1000);
            for round in 0..3 {
                socket.send_to(&[number, round].repeat(4_000), "192.0.2.2:6000").unwrap();
            }
        }
        let (mut burst, mut seen) = (Burst::new(), [const { Vec::new() }; 3]);
        let end = Instant::now() + Duration::from_secs(5);
        while seen.iter().map(Vec::len).sum::<usize>() < 40 * 3 * 8 {
            for (queue, seen) in port.receive.iter_mut().zip(&mut seen) {
                queue.receive(&mut burst);
                for packet in burst.drain() {
                    let payload = look(packet.data()).expect("a datagram").payload;
                    assert_eq!(payload, payload[..2].repeat(500));
                    seen.push((payload[0], payload[1]));
                }
            }
            assert!(Instant::now() < end, "{seen:?}");
        }
        std::thread::sleep(Duration::from_millis(50));
        assert!(port.receive.iter_mut().all(|queue| queue.receive(&mut burst) == 0), "no more than was sent");
        for seen in &seen {
            assert!(seen.len() > 24, "{} of a queue", seen.len());
            for flow in 0..40 {
                let rounds: Vec<u8> =
                    seen.iter().filter(|(of, _)| *of == flow).map(|(_, round)| *round).collect();
                assert!(
                    rounds.is_empty() || rounds == [0, 1, 2].map(|round| [round; 8]).concat(),
                    "{rounds:?}"
                );
            }
        }
        assert_eq!(pool.ledger().outstanding(), 0);
    });
}

#[test]
fn a_full_ring_is_counted() {
    in_namespace(|| {
        pair();
        let pool = pool();
        let mut port = packet::open(&PacketOptions { ring: 64, ..config("right") }, 1, &pool).unwrap();
        let socket = socket();
        for _ in 0..1000 {
            socket.send_to(b"x", "192.0.2.2:6000").unwrap();
        }
        let (mut burst, mut received) = (Burst::new(), 0);
        let end = Instant::now() + Duration::from_secs(5);
        let lost = loop {
            received += port.receive[0].receive(&mut burst) as u64;
            burst.clear();
            let lost = port.receive[0].counters().drops().total();
            if lost + received >= 1000 {
                break lost;
            }
            assert!(Instant::now() < end, "{received} received, {lost} lost");
        };
        assert_eq!((received, lost), (64, 936));
        assert_eq!(drops(&port.receive[0].counters()), [("ring-full", 936)]);
    });
}

/// Frames that don't fit a slot wait on the socket, whose buffer can be full while the ring is not: slots and
/// socket must stay in step.
#[test]
fn super_frames_that_were_too_many_are_counted_and_the_others_are_right() {
    on_pair(|_pool, mut port| {
        let socket = socket();
        crate::common::set_udp_segment(&socket, 1000);
        for number in 0..1000_u16 {
            socket.send_to(&number.to_be_bytes().repeat(10_000), "192.0.2.2:6000").unwrap();
        }
        let (mut burst, mut segments) = (Burst::new(), [0_u32; 1000]);
        let mut last = 0;
        // More polls than there are slots, because a poll that finds only incomplete frames returns nothing.
        for _ in 0..2000 {
            port.receive[0].receive(&mut burst);
            for packet in burst.drain() {
                let payload = look(packet.data()).unwrap().payload;
                let number = u16::from_be_bytes([payload[0], payload[1]]);
                assert!(number >= last && payload == number.to_be_bytes().repeat(500));
                segments[usize::from(number)] += 1;
                last = number;
            }
        }
        let whole = segments.iter().filter(|count| **count == 20).count() as u64;
        let lost = segments.iter().filter(|count| **count == 0).count() as u64;
        assert!(whole > 100 && lost > 0 && whole + lost == 1000, "{whole} whole, {lost} lost");
        assert_eq!(drops(&port.receive[0].counters()), [("truncated", lost)]);
    });
}

#[test]
fn without_buffers_frames_wait_in_the_ring() {
    in_namespace(|| {
        pair();
        let few =
            Pool::new(&warmlane_mem::PoolConfig { buffers: 8, magazine: Some(2), ..Default::default() })
                .unwrap();
        let mut port = open(&few);
        let socket = socket();
        for number in 0..20_u8 {
            socket.send_to(&[number], "192.0.2.2:6000").unwrap();
        }
        let mut all = Burst::new();
        for _ in 0..10 {
            port.receive[0].receive(&mut all);
        }
        assert_eq!(all.len(), 8);
        all.clear();
        let mut next = 8;
        poll(&mut port.receive[0], |packet| {
            assert_eq!(look(packet.data()).unwrap().payload, [next]);
            next += 1;
            next == 20
        });
        assert_eq!(drops(&port.receive[0].counters()), []);
    });
}

#[test]
fn frames_that_can_not_be_sent_are_dropped_and_the_others_pass() {
    on_pair(|pool, mut port| {
        let mut burst = Burst::new();
        let tagged = |length: usize| {
            let mut frame = vec![0xff; length];
            frame[12..14].copy_from_slice(&[0x81, 0]);
            frame
        };
        for frame in
            [vec![0xff; 60], vec![0xff; 1515], vec![0xff; 5], vec![0xff; 1514], tagged(1518), tagged(1519)]
        {
            burst.push(chain(&pool, &frame)).unwrap();
        }
        let (taken, shown) = ShownDrops::during(None, || port.transmit[0].transmit(&mut burst));
        assert_eq!(taken, 6);
        assert_eq!(drops(&port.transmit[0].counters()), [("too-large", 2), ("malformed", 1)]);
        let expected = [
            ("too-large", vec![0xff; 1515], None),
            ("malformed", vec![0xff; 5], None),
            ("too-large", tagged(1519), None),
        ];
        assert_eq!(shown, expected);
        assert_eq!(port.transmit[0].counters().bytes(), 60 + 1514 + 1518);
    });
}

#[test]
fn an_interface_that_goes_down_and_up_is_no_failure() {
    on_pair(|pool, mut port| {
        echo(&pool, &mut port, 10, false);
        ip("link set right down");
        let ((), shown) = ShownDrops::during(None, || send(&mut port.transmit[0], &pool, &[0xff; 60]));
        assert_eq!(drops(&port.transmit[0].counters()), [("link-down", 1)]);
        assert_eq!(shown, [("link-down", vec![0xff; 60], None)]);
        let end = Instant::now() + Duration::from_millis(300);
        let mut burst = Burst::new();
        while Instant::now() < end {
            assert_eq!(port.receive[0].receive(&mut burst), 0);
        }
        assert_eq!(
            (port.receive[0].status(), port.transmit[0].status()),
            (QueueStatus::Running, QueueStatus::Running)
        );
        crate::common::bring_up("right");
        crate::common::wait_for_carrier("left");
        // The first read after the pause gets the old error; a long frame needs a read.
        let socket = socket();
        crate::common::set_udp_segment(&socket, 1000);
        socket.send_to(&[1; 5000], "192.0.2.2:6000").unwrap();
        let mut segments = 0;
        poll(&mut port.receive[0], |packet| {
            segments += usize::from(look(packet.data()).is_some());
            segments == 5
        });
        drop(socket);
        echo(&pool, &mut port, 10, false);
    });
}

#[test]
fn a_port_can_be_opened_before_its_interface_is_up() {
    in_namespace(|| {
        pair();
        ip("link set right down");
        let pool = pool();
        let mut port = open(&pool);
        assert!(port.capabilities.notes.iter().any(|note| note.contains("ip link set right up")));
        crate::common::bring_up("right");
        crate::common::wait_for_carrier("left");
        echo(&pool, &mut port, 10, false);
    });
}

#[test]
fn the_loopback_interface_with_its_long_frames_can_be_watched() {
    in_namespace(|| {
        let pool = pool();
        let mut port = crate::common::complete(packet::open(&config("lo"), 1, &pool).unwrap());
        let listener = UdpSocket::bind("127.0.0.1:6000").unwrap();
        let payload: Vec<u8> = (0..60_000_u32).map(|index| (index / 3) as u8).collect();
        UdpSocket::bind("127.0.0.1:5000").unwrap().send_to(&payload, "127.0.0.1:6000").unwrap();
        poll(&mut port.receive[0], |packet| {
            assert_eq!(packet.segments(), 30);
            look(&bytes(packet)).is_some_and(|seen| seen.payload == payload)
        });
        drop(listener);
    });
}

#[test]
fn deletion_fails_both_queues() {
    on_pair(|pool, mut port| {
        echo(&pool, &mut port, 10, false);
        ip("link delete right");
        let sentence = poll_failure(&mut port.receive[0]);
        assert!(sentence.starts_with("interface right went away"), "{sentence}");
        send(&mut port.transmit[0], &pool, &[0xff; 60]);
        assert_eq!(port.transmit[0].status(), QueueStatus::Failed(sentence));
        assert_eq!(drops(&port.transmit[0].counters()), [("interface-gone", 1)]);
    });
}

#[test]
fn promiscuity_ends_with_the_port() {
    in_namespace(|| {
        pair();
        let pool = pool();
        let promiscuous = || crate::common::details("right").contains("promiscuity 1");
        let port = packet::open(&PacketOptions { promiscuous: false, ..config("right") }, 1, &pool).unwrap();
        assert!(!promiscuous());
        drop(port);
        let port = open(&pool);
        assert!(promiscuous());
        drop(port);
        // A program that another test just starts holds a copy of the socket until it is executed.
        crate::common::wait("promiscuity ends", || !promiscuous());
    });
}

#[test]
fn a_veth_is_listed_with_its_facts() {
    in_namespace(|| {
        pair();
        let all = Interface::list().unwrap();
        assert_eq!(all.iter().filter(|interface| interface.name != "lo").count(), 2, "{all:?}");
        let left = all.iter().find(|interface| interface.name == "left").unwrap();
        assert_eq!(
            (left.driver.as_deref(), left.mtu, left.up, left.carrier),
            (Some("veth"), 1500, true, true)
        );
        assert!(
            left.mac.unwrap() != [0; 6] && left.receive_queues > Some(0) && left.transmit_queues > Some(0)
        );
        assert_eq!((left.numa_node, left.pci_address.as_deref()), (None, None));
    });
}

#[test]
fn errors_at_open_name_the_thing() {
    in_namespace(|| {
        pair();
        let pool = pool();
        let text = packet::open(&config("eth7"), 1, &pool).unwrap_err().to_string();
        assert!(text.contains("no interface \"eth7\"") && text.contains("lo, right, left"), "{text}");
        let open = |change: fn(&mut PacketOptions)| {
            let mut config = config("right");
            change(&mut config);
            packet::open(&config, 1, &pool).unwrap_err()
        };
        let error = open(|config| config.interface = "a-name-too-long-".to_owned());
        assert!(matches!(error, KernelError::System(SystemError::NameLength { length: 16, .. })));
        let error = open(|config| config.ring = 0);
        assert!(matches!(error, KernelError::RingFrames { frames: 0, .. }));
        let error = open(|config| config.slot_bytes = Some(1000)).to_string();
        assert!(error.contains("1000 bytes") && error.contains("MTU of 1500"), "{error}");
    });
}

#[test]
fn without_privilege_the_error_names_the_capability() {
    in_namespace(|| {
        pair();
        let pool = pool();
        // Gives up this thread's capabilities (capset(2), version 3 of its structures); the thread ends with the
        // test.
        let header = [0x2008_0522_u32, 0];
        let nothing = [0_u32; 6];
        // SAFETY: the kernel reads a header of two words and data of six, which live through the call.
        let result = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), nothing.as_ptr()) };
        assert_eq!(result, 0);
        let text = packet::open(&config("right"), 1, &pool).unwrap_err().to_string();
        assert!(text.contains("CAP_NET_RAW") && text.contains("setcap"), "{text}");
        let text = warmlane_kernel::tap::open(&warmlane_kernel::TapOptions::default(), 1, &pool)
            .unwrap_err()
            .to_string();
        assert!(text.contains("CAP_NET_ADMIN") && text.contains("setcap"), "{text}");
    });
}
