//! A TAP port against the kernel's own stack, in network namespaces of the tests' own.

use crate::common::{bytes, chain, in_namespace, ip, look, poll, poll_failure, pool, reply, send};
use std::net::UdpSocket;
use std::time::Duration;
use warmlane_driver_common::SystemError;
use warmlane_kernel::{KernelError, TapOptions, TransmitDrop, tap};
use warmlane_mem::{Burst, Checksum, Pool, SegmentationKind};
use warmlane_port::{Port, QueueStatus, TransmitOffloads};
use warmlane_testkit::queues::{ShownDrops, drops};

/// A TAP whose kernel end is 192.0.2.1, with our end known as 192.0.2.2.
fn open(config: &TapOptions, pool: &Pool) -> Port {
    open_with_queues(config, 1, pool)
}

fn open_with_queues(config: &TapOptions, queues: u16, pool: &Pool) -> Port {
    crate::common::without_ipv6();
    let port = crate::common::complete(tap::open(config, queues, pool).unwrap());
    address(&port);
    port
}

fn address(port: &Port) {
    ip(&format!("addr add 192.0.2.1/24 dev {}", port.name));
    ip(&format!("neigh add 192.0.2.2 lladdr 02:00:00:00:00:02 dev {}", port.name));
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("192.0.2.1:5000").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    socket
}

fn echo(config: TapOptions, length: usize, chained: bool) {
    in_namespace(move || {
        let pool = pool();
        let mut port = open(&config, &pool);
        // The kernel's end of the cable is the neighbour of ours.
        let mut mac = port.capabilities.mac.unwrap();
        mac[5] ^= 1;
        let (mut receive, mut transmit) = (port.take_receive().unwrap(), port.take_transmit().unwrap());
        let socket = socket();
        let payload: Vec<u8> = (0..length).map(|index| index as u8).collect();
        socket.send_to(&payload, "192.0.2.2:6000").unwrap();

        let mut answer = Vec::new();
        poll(&mut receive, |packet| {
            let frame = bytes(packet);
            let Some(seen) = look(&frame) else { return false };
            assert_eq!((seen.source_port, seen.destination_port), (5000, 6000));
            assert_eq!(frame[..12], [&[2, 0, 0, 0, 0, 2], &mac[..]].concat());
            assert_eq!(seen.payload, payload);
            assert_eq!(packet.segments() > 1, chained);
            assert_eq!(packet.checksum() == Checksum::Good, config.offloads);
            answer = reply(&frame, &seen);
            true
        });
        send(&mut transmit, &pool, &answer);
        let mut buffer = vec![0; 70_000];
        let (received, from) = socket.recv_from(&mut buffer).unwrap();
        assert_eq!(from.to_string(), "192.0.2.2:6000");
        assert_eq!(buffer[..received], payload);
        assert_eq!(transmit.counters().packets(), 1);
        assert_eq!(transmit.counters().bytes(), answer.len() as u64);
        drop((receive, transmit));
        assert_eq!(pool.ledger().outstanding(), 0);
    });
}

#[test]
fn udp_reaches_us_and_back_with_offloads() {
    echo(TapOptions::default(), 1000, false);
}

#[test]
fn udp_reaches_us_and_back_without_offloads() {
    echo(TapOptions { offloads: false, ..TapOptions::default() }, 1001, false);
}

#[test]
fn frames_longer_than_a_buffer_are_chains_both_ways() {
    echo(TapOptions { mtu: Some(9000), ..TapOptions::default() }, 8000, true);
    echo(TapOptions { mtu: Some(9000), offloads: false, ..TapOptions::default() }, 8001, true);
}

#[test]
fn a_second_queue_is_a_second_pair() {
    in_namespace(|| {
        let pool = pool();
        let config = TapOptions { interface: Some("many0".to_owned()), ..TapOptions::default() };
        let mut port = open_with_queues(&config, 3, &pool);
        assert_eq!((port.name.as_str(), port.receive.len(), port.transmit.len()), ("many0", 3, 3));
        let socket = socket();
        // Whichever queue the kernel chose: each is polled.
        socket.send_to(b"question", "192.0.2.2:6000").unwrap();
        let mut burst = Burst::new();
        while burst.is_empty() {
            for queue in &mut port.receive {
                queue.receive(&mut burst);
            }
        }
        let frame = bytes(&burst[0]);
        let answer = reply(&frame, &look(&frame).unwrap());
        send(&mut port.transmit[2], &pool, &answer);
        assert_eq!(socket.recv(&mut [0; 100]).unwrap(), 8);
    });
}

#[test]
fn batched_datagrams_come_one_by_one() {
    in_namespace(|| {
        let pool = pool();
        let mut port = open(&TapOptions::default(), &pool);
        let socket = socket();
        crate::common::set_udp_segment(&socket, 700);
        let payload: Vec<u8> = (0..60_000_u32).map(|index| (index / 7) as u8).collect();
        socket.send_to(&payload, "192.0.2.2:6000").unwrap();
        let mut joined = Vec::new();
        poll(&mut port.receive[0], |packet| {
            assert_eq!(packet.segments(), 1);
            let seen = look(packet.data()).unwrap();
            assert!(seen.payload.len() <= 700);
            joined.extend(seen.payload);
            joined.len() >= payload.len()
        });
        assert_eq!(joined, payload);
        let counters = port.receive[0].counters();
        assert_eq!((counters.packets(), drops(&counters)), (1, vec![]));
    });
}

/// From one TAP to another, as a forwarder would send them on.
#[test]
fn super_frames_pass_whole_and_the_kernel_takes_them() {
    in_namespace(|| {
        let pool = pool();
        crate::common::without_ipv6();
        let mut port = tap::open(&TapOptions::default(), 1, &pool).unwrap();
        address(&port);
        let offloads = port.capabilities.offloads;
        let all = TransmitOffloads::NO_TUNNEL;
        assert_eq!((offloads.leaves, offloads.transmit), (all, all));
        let socket = socket();
        crate::common::set_udp_segment(&socket, 1000);
        let payload: Vec<u8> = (0..30_500_u32).map(|index| (index / 7) as u8).collect();
        socket.send_to(&payload, "192.0.2.2:6000").unwrap();
        let mut kept = None;
        crate::common::take(&mut port.receive[0], |packet| {
            kept = packet.segmentation().is_some().then_some(packet);
            kept.is_some()
        });
        let mut packet = kept.unwrap();
        let size = packet.segmentation().map(|segmentation| (segmentation.kind, segmentation.size));
        assert_eq!(size, Some((SegmentationKind::Udp, 1000)));
        assert_eq!(packet.packet_length(), 42 + payload.len());
        assert_eq!(packet.checksum(), Checksum::Partial { start: 34, offset: 6 });
        // Addresses and ports exchanged, the pseudo header's sum stays as it is.
        let data = packet.data_mut();
        for (first, second, length) in [(0, 6, 6), (26, 30, 4), (34, 36, 2)] {
            for index in 0..length {
                data.swap(first + index, second + index);
            }
        }
        let mut burst = Burst::new();
        burst.push(packet).unwrap();
        assert_eq!(port.transmit[0].transmit(&mut burst), 1);
        let (mut received, mut buffer) = (Vec::<u8>::new(), vec![0; 70_000]);
        while received.len() < payload.len() {
            let count = socket.recv(&mut buffer).unwrap();
            assert!(count <= 1000);
            received.extend(&buffer[..count]);
        }
        assert!(received == payload);
        assert_eq!((port.transmit[0].counters().packets(), drops(&port.transmit[0].counters())), (1, vec![]));
    });
}

#[test]
fn a_super_frame_waits_for_buffers_and_space() {
    in_namespace(|| {
        let pool =
            Pool::new(&warmlane_mem::PoolConfig { buffers: 64, magazine: Some(4), ..Default::default() })
                .unwrap();
        let mut port = open(&TapOptions::default(), &pool);
        let socket = socket();
        crate::common::set_udp_segment(&socket, 1000);
        socket.send_to(&vec![9; 60_000], "192.0.2.2:6000").unwrap();
        let (mut seen, mut burst) = (0, Burst::with_limit(7));
        while seen < 60 {
            port.receive[0].receive(&mut burst);
            seen += burst.len();
            assert!(burst.len() <= 7);
            burst.clear();
        }
        // Nothing is lost if all buffers are in use meanwhile.
        socket.send_to(&vec![9; 60_000], "192.0.2.2:6000").unwrap();
        let mut all = Burst::with_limit(256);
        for _ in 0..10 {
            port.receive[0].receive(&mut all);
        }
        assert!(all.len() <= 64);
        let mut seen = all.len();
        all.clear();
        while seen < 60 {
            port.receive[0].receive(&mut all);
            seen += all.len();
            all.clear();
        }
        assert_eq!(drops(&port.receive[0].counters()), []);
    });
}

#[test]
fn an_interface_that_is_down_is_a_counted_drop_until_it_is_up() {
    in_namespace(|| {
        let pool = pool();
        let config = TapOptions { interface: Some("down0".to_owned()), up: false, ..TapOptions::default() };
        let mut port = tap::open(&config, 1, &pool).unwrap();
        let transmit = &mut port.transmit[0];
        let ((), shown) = ShownDrops::during(None, || send(transmit, &pool, &[0xff; 60]));
        assert_eq!(drops(&transmit.counters()), [("link-down", 1)]);
        assert_eq!(shown, [("link-down", vec![0xff; 60], None)]);
        assert_eq!(transmit.status(), QueueStatus::Running);
        let mut burst = Burst::new();
        assert_eq!(
            (port.receive[0].receive(&mut burst), port.receive[0].status()),
            (0, QueueStatus::Running)
        );
        ip("link set down0 up");
        send(&mut port.transmit[0], &pool, &[0xff; 60]);
        assert_eq!(port.transmit[0].counters().packets(), 1);
    });
}

#[test]
fn deletion_fails_both_queues() {
    in_namespace(|| {
        let pool = pool();
        let config = TapOptions { interface: Some("short0".to_owned()), ..TapOptions::default() };
        let mut port = tap::open(&config, 1, &pool).unwrap();
        ip("link delete short0");
        let sentence = poll_failure(&mut port.receive[0]);
        assert!(sentence.starts_with("interface short0 went away"), "{sentence}");
        let mut burst = Burst::new();
        for _ in 0..3 {
            burst.push(chain(&pool, &[0; 60])).unwrap();
        }
        assert_eq!(port.transmit[0].transmit(&mut burst), 3);
        assert!(matches!(port.transmit[0].status(), QueueStatus::Failed(_)));
        assert_eq!(port.transmit[0].counters().drops().get(TransmitDrop::Gone), 3);
    });
}

#[test]
fn a_runt_is_dropped_and_the_others_pass() {
    in_namespace(|| {
        let pool = pool();
        let mut port = open(&TapOptions::default(), &pool);
        let mut burst = Burst::new();
        for length in [60, 10, 60] {
            burst.push(chain(&pool, &vec![0xff; length])).unwrap();
        }
        assert_eq!(port.transmit[0].transmit(&mut burst), 3);
        assert_eq!(drops(&port.transmit[0].counters()), [("malformed", 1)]);
        assert_eq!(port.transmit[0].counters().packets(), 2);
    });
}

#[test]
fn errors_at_open_name_the_thing() {
    in_namespace(|| {
        let pool = pool();
        let open = |name: &str, mtu| {
            tap::open(
                &TapOptions { interface: Some(name.to_owned()), mtu, ..TapOptions::default() },
                1,
                &pool,
            )
        };
        assert!(matches!(
            open("a-name-too-long-", None),
            Err(KernelError::System(SystemError::NameLength { length: 16, .. }))
        ));
        assert!(matches!(open("tap7", Some(70_000)), Err(KernelError::Mtu { mtu: 70_000, .. })));
        let first = open("tap7", None).unwrap();
        let text = open("tap7", None).unwrap_err().to_string();
        assert!(text.contains("\"tap7\" is in use"), "{text}");
        drop(first);
        ip("link add name other7 type veth peer name other8");
        let text = open("other7", None).unwrap_err().to_string();
        assert!(text.contains("is not a TAP device"), "{text}");
    });
}
