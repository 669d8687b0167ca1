//! Ports on virtual links, against packet sockets on the other ends.

mod common;
mod sleep;

use common::{
    Wire, all_of, bytes, frame, in_namespace, ip, on_link, only, opened, opened_with, pair, pool, receive,
    refused, run, send, wait_for,
};
use std::collections::HashSet;
use std::net::UdpSocket;
use std::time::Duration;
use warmlane_driver_common::{AddressFollower, LocalSink as _};
use warmlane_mem::{Burst, Checksum, PoolConfig};
use warmlane_port::{Layered, QueueStatus};
use warmlane_testkit::queues::{ShownDrops, drops};
use warmlane_testkit::requirements;
use warmlane_wire::{Addresses, Frame, IpProtocol, Ipv4Fields, MacAddress};
use warmlane_xdp::{Steering, Umem, XdpError, XdpMode, XdpOptions};

/// Sends frames of many lengths there and back.
fn there_and_back(config: &XdpOptions, pool_config: &PoolConfig, mtu: u32) -> warmlane_xdp::Obtained {
    pair("v0", "v1", mtu);
    let pool = pool(pool_config);
    let umem = Umem::new(&pool).unwrap();
    let port = opened(config, &umem);
    assert_eq!(port.port.capabilities.mtu, Some(mtu));
    let (mut incoming, mut outgoing, monitor) = only(port);
    let wire = Wire::on("v1");
    let longest = mtu as usize + 14;
    for (number, length) in [14, 60, 64, 65, 1000, 1514, longest].into_iter().enumerate() {
        let sent = frame(number, length.max(18));
        wire.send(&sent);
        let packets = receive(&mut incoming, 1);
        assert_eq!(bytes(&packets[0]), sent);
        send(&mut outgoing, packets);
        assert_eq!(wire.expect(), sent);
    }
    // Round the rings, several times.
    for round in 0..400 {
        for number in 0..50 {
            wire.send(&frame(round * 50 + number, 60));
        }
        let packets = receive(&mut incoming, 50);
        for (number, packet) in packets.iter().enumerate() {
            assert_eq!(packet.data(), frame(round * 50 + number, 60));
        }
        send(&mut outgoing, packets);
        for number in 0..50 {
            assert_eq!(wire.expect(), frame(round * 50 + number, 60));
        }
    }
    assert_eq!((drops(&incoming.counters()), drops(&outgoing.counters())), (vec![], vec![]));
    let cost = monitor.cost();
    assert_eq!((incoming.counters().packets(), outgoing.counters().packets()), (20_007, 20_007));
    assert_eq!(cost.copied, 0);
    // One for each burst of 50, and for each of the first seven.
    assert!(cost.transmit_calls <= 407, "{cost:?}");
    outgoing.flush();
    let before = run("ip link show dev v0");
    assert!(before.contains("xdp"), "{before}");
    drop((incoming, outgoing));
    assert_eq!(pool.ledger().outstanding(), 0);
    assert!(monitor.statistics().is_empty());
    wait_for("detaching", || !run("ip link show dev v0").contains("xdp"));
    monitor.obtained
}

#[test]
fn packets_go_there_and_back() {
    in_namespace(|| {
        let obtained = there_and_back(&all_of("v0"), &PoolConfig::default(), 1500);
        assert!(obtained.native && obtained.planned_stride && !obtained.multi_buffer, "{obtained:?}");
        assert!(!obtained.zero_copy && !obtained.shared_registration, "veth copies");
    });
}

#[test]
fn generic_mode_and_aligned_chunks_do_the_same() {
    in_namespace(|| {
        let config = XdpOptions { mode: XdpMode::Generic, ..all_of("v0") };
        let pool = PoolConfig { data_size: 1792, stride: Some(2048), ..PoolConfig::default() };
        let obtained = there_and_back(&config, &pool, 1500);
        assert!(!obtained.native && !obtained.planned_stride, "{obtained:?}");
    });
}

/// Our own system calls do the interface's work, also where its interrupts are deferred for longer than anyone waits.
#[test]
fn busy_polling_does_the_same() {
    in_namespace(|| {
        let config = XdpOptions { busy_poll: true, ..all_of("v0") };
        let obtained = there_and_back(&config, &PoolConfig::default(), 1500);
        assert!(obtained.busy_poll && obtained.native, "{obtained:?}");
    });
}

/// What the kernel has sent comes back to the pool when the queue is flushed, also if nothing is sent any more.
#[test]
fn buffers_that_were_sent_come_back_by_a_flush() {
    on_link(1500, |pool, umem| {
        let (incoming, mut outgoing, _) = only(opened(&all_of("v0"), umem));
        let before = pool.ledger().outstanding();
        let mut packets = Vec::new();
        for number in 0..50 {
            let mut packet = pool.take().unwrap();
            packet.fill(&frame(number, 60)).unwrap();
            packets.push(packet);
        }
        send(&mut outgoing, packets);
        wait_for("reclaiming", || {
            outgoing.flush();
            pool.ledger().outstanding() == before
        });
        drop(incoming);
    });
}

#[test]
fn jumbo_frames_come_in_several_buffers() {
    in_namespace(|| {
        let obtained = there_and_back(&all_of("v0"), &PoolConfig::default(), 9000);
        assert!(obtained.multi_buffer, "{obtained:?}");
    });
}

/// A tag comes on top of the MTU, and of what a buffer must hold for it: with 1,920 bytes in each, a frame for this MTU fits one
/// buffer, and with a tag it takes two.
#[test]
fn a_tag_comes_on_top_of_the_mtu() {
    const MTU: usize = 1920 - 14;
    on_link(MTU as u32, |pool, umem| {
        let (mut incoming, mut outgoing, _) = only(opened(&all_of("v0"), umem));
        let wire = Wire::on("v1");
        let plain = |length: usize| frame(1, length);
        let tagged = |kind: [u8; 2], length: usize| {
            [&plain(length)[..12], &kind, &[0; 2], &plain(length - 4)[12..]].concat()
        };
        let (customer, service) = ([0x81, 0], [0x88, 0xa8]);
        for frame in [plain(MTU + 14), tagged(customer, MTU + 18)] {
            wire.send(&frame);
            assert_eq!(bytes(&receive(&mut incoming, 1)[0]), frame);
        }
        let of_our_own = |frame: &[u8]| {
            let mut packet = pool.take().unwrap();
            packet.fill(frame).unwrap();
            packet
        };
        for frame in [plain(MTU + 14), tagged(customer, MTU + 18), tagged(service, MTU + 18)] {
            send(&mut outgoing, [of_our_own(&frame)]);
            // The kernel takes tags off before anyone there sees the frame.
            assert_eq!(wire.expect(), plain(MTU + 14));
        }
        // A byte more is too much.
        let too_large = [plain(MTU + 15), tagged(customer, MTU + 19), tagged(service, MTU + 19)];
        for (count, frame) in (1..).zip(&too_large) {
            let ((), shown) = ShownDrops::during(None, || send(&mut outgoing, [of_our_own(frame)]));
            assert_eq!(drops(&outgoing.counters()), [("too-large", count)]);
            assert_eq!(shown, [("too-large", frame.clone(), None)]);
        }
    });
}

#[test]
fn two_ports_share_the_memory() {
    in_namespace(|| {
        pair("a0", "a1", 1500);
        pair("b0", "b1", 1500);
        let pool = pool(&PoolConfig::default());
        let umem = Umem::new(&pool).unwrap();
        let (mut from_a, to_a, monitor_a) = only(opened(&all_of("a0"), &umem));
        let (from_b, mut to_b, monitor_b) = only(opened(&all_of("b0"), &umem));
        assert!(!monitor_a.obtained.shared_registration && monitor_b.obtained.shared_registration);
        let (wire_a, wire_b) = (Wire::on("a1"), Wire::on("b1"));
        for number in 0..5000 {
            wire_a.send(&frame(number, 100));
            let mut packets = receive(&mut from_a, 1);
            // In place: what is sent is the buffer that was received.
            packets[0].data_mut()[20] = 0x99;
            send(&mut to_b, packets);
            let mut expected = frame(number, 100);
            expected[20] = 0x99;
            assert_eq!(wire_b.expect(), expected);
        }
        assert_eq!((monitor_a.cost().copied, monitor_b.cost().copied), (0, 0));
        // One goes, the other stays and works.
        drop((from_a, to_a));
        wire_b.send(&frame(7, 100));
        let mut from_b = from_b;
        assert_eq!(bytes(&receive(&mut from_b, 1)[0]), frame(7, 100));
        drop((from_b, to_b));
        assert_eq!(pool.ledger().outstanding(), 0);
    });
}

#[test]
fn packets_of_other_pools_are_copied() {
    on_link(9000, |ours, umem| {
        let (incoming, mut outgoing, monitor) = only(opened(&all_of("v0"), umem));
        let wire = Wire::on("v1");
        let other =
            pool(&PoolConfig { buffers: 64, magazine: Some(4), data_size: 9216, ..PoolConfig::default() });
        for length in [60, 1514, 5000, 9014] {
            let mut packet = other.take().unwrap();
            packet.fill(&frame(1, length)).unwrap();
            send(&mut outgoing, [packet]);
            assert_eq!(wire.expect(), frame(1, length));
        }
        // Half a packet from each pool.
        let (mut packet, mut tail) = (ours.take().unwrap(), other.take().unwrap());
        packet.fill(&frame(2, 700)).unwrap();
        tail.fill(&[2; 800]).unwrap();
        packet.chain(tail).unwrap();
        send(&mut outgoing, [packet]);
        assert_eq!(wire.expect(), frame(2, 1500));
        assert_eq!(monitor.cost().copied, 5);
        // Too long, too short.
        let mut packet = other.take().unwrap();
        packet.fill(&frame(1, 9019)).unwrap();
        let mut runt = ours.take().unwrap();
        runt.fill(&[1; 13]).unwrap();
        send(&mut outgoing, [packet, runt]);
        assert_eq!(drops(&outgoing.counters()), [("too-large", 1), ("malformed", 1)]);
        assert_eq!(outgoing.counters().packets(), 5);
        drop((incoming, outgoing));
        assert_eq!((ours.ledger().outstanding(), other.ledger().outstanding()), (0, 0));
    });
}

#[test]
fn what_nobody_takes_is_counted() {
    on_link(1500, |_, umem| {
        let config = XdpOptions { ring: Some(256), ..all_of("v0") };
        let (mut incoming, _outgoing, monitor) = only(opened(&config, umem));
        let wire = Wire::on("v1");
        let sent = 5000;
        for number in 0..sent {
            wire.send(&frame(number, 60));
        }
        let mut received = 0;
        wait_for("an account of all", || {
            let mut burst = Burst::new();
            received += incoming.receive(&mut burst) as u64;
            received + incoming.counters().drops().total() == sent as u64
        });
        assert!((256..4000).contains(&received), "{received}");
        let drops = drops(&incoming.counters());
        assert!(drops.iter().all(|(name, _)| ["ring-full", "no-buffer"].contains(name)), "{drops:?}");
        assert_eq!(monitor.statistics().len(), 1);
    });
}

/// An ARP request for an address, and what else a host may send.
fn arp_request(target: [u8; 4]) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, 2, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 2, 192, 0, 2, 2]);
    frame.extend([0; 6]);
    frame.extend(target);
    frame.resize(60, 0);
    frame
}

fn udp(mac: [u8; 6], to: [u8; 4]) -> Vec<u8> {
    let mut frame = mac.to_vec();
    frame.extend([2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 2]);
    frame.extend(to);
    frame.extend([0, 9, 0, 9, 0, 8, 0, 0]);
    frame.resize(60, 0);
    frame
}

#[test]
fn transit_leaves_the_box_its_own() {
    on_link(1500, |_, umem| {
        ip("address add 192.0.2.1/24 dev v0");
        let config = XdpOptions { steering: Steering::Transit, ..all_of("v0") };
        let mut follower = AddressFollower::new().unwrap();
        let port = opened_with(&config, umem, follower.addresses());
        let mac = port.port.capabilities.mac.unwrap();
        let (mut incoming, outgoing, monitor) = only(port);
        let wire = Wire::on("v1");
        wire.send(&arp_request([192, 0, 2, 1]));
        let answer = wire.expect();
        assert_eq!((&answer[12..14], answer[21]), (&[8, 6][..], 2), "the kernel answers: {answer:x?}");
        // An address of the kernel's, then one that isn't.
        wire.send(&udp(mac, [192, 0, 2, 1]));
        wire.send(&udp(mac, [198, 51, 100, 1]));
        assert_eq!(receive(&mut incoming, 1)[0].data()[30..34], [198, 51, 100, 1]);
        // Addresses come and go.
        let (far, near) = ([198, 51, 100, 1], [192, 0, 2, 1]);
        follower.add(Box::new(monitor.local.clone())).unwrap();
        let mut hears = |what: &str, address: [u8; 4], is_local: bool| {
            wait_for(what, || {
                follower.follow().unwrap();
                follower.addresses().contains(&address.into()) == is_local
            });
        };
        ip("address add 198.51.100.1/32 dev lo");
        hears("hearing of the address", far, true);
        wire.send(&udp(mac, far));
        ip("address delete 192.0.2.1/24 dev v0");
        hears("hearing of no address", near, false);
        wire.send(&udp(mac, near));
        assert_eq!(receive(&mut incoming, 1)[0].data()[30..34], near);
        // Whoever knows better than the kernel's list says so.
        monitor.local.set_addresses(&HashSet::from([near.into()])).unwrap();
        wire.send(&udp(mac, near));
        wire.send(&udp(mac, far));
        assert_eq!(receive(&mut incoming, 1)[0].data()[30..34], far);
        ip("address add 192.0.2.1/24 dev v0");
        // All of an interface whose addresses would be out of reach is not given by accident.
        drop((incoming, outgoing));
        let error = refused(&all_of("v0"), umem);
        assert!(
            matches!(&error, XdpError::CutsOff { addresses, .. } if addresses.contains("192.0.2.1")),
            "{error}"
        );
        drop(opened(&XdpOptions { take_all: true, ..all_of("v0") }, umem));
    });
}

/// The interface's own Ethernet address may change while the port is open, and a bridge may take it.
#[test]
fn transit_is_what_is_for_the_own_mac() {
    on_link(1500, |_, umem| {
        let config = XdpOptions { steering: Steering::Transit, ..all_of("v0") };
        let port = opened(&config, umem);
        let first = port.port.capabilities.mac.unwrap();
        let (mut incoming, _outgoing, monitor) = only(port);
        let mut follower = AddressFollower::new().unwrap();
        follower.add(Box::new(monitor.local)).unwrap();
        let wire = Wire::on("v1");
        let mut number = 0;
        // Whether a frame comes to us.
        let mut comes = |mac: [u8; 6]| {
            follower.follow().unwrap();
            number += 1;
            wire.send(&udp(mac, [198, 51, 100, number]));
            std::thread::sleep(Duration::from_millis(5));
            let mut burst = Burst::new();
            incoming.receive(&mut burst);
            burst.iter().any(|packet| packet.data()[33] == number)
        };
        let other = [2, 0, 0, 0, 7, 7];
        assert!(comes(first) && !comes(other));
        ip("link set v0 address 02:00:00:00:07:07");
        wait_for("hearing of the address", || comes(other));
        assert!(!comes(first));
        ip("link add br0 type bridge");
        ip("link set v0 master br0");
        wait_for("hearing of the bridge", || !comes(other));
        ip("link set v0 nomaster");
        wait_for("hearing that it is gone", || comes(other));
    });
}

#[test]
fn what_cannot_work_is_refused_with_the_remedy() {
    in_namespace(|| {
        let pool = pool(&PoolConfig::default());
        let umem = Umem::new(&pool).unwrap();
        let told = |config: &XdpOptions, parts: &[&str]| {
            let text = refused(config, &umem).to_string();
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
            assert_eq!(pool.ledger().outstanding(), 0);
        };
        told(&all_of("v0"), &["\"v0\"", "no interface"]);
        pair("v0", "v1", 1500);
        told(&XdpOptions { ring: Some(100), ..all_of("v0") }, &["100", "power of two"]);
        let text = warmlane_xdp::open(&all_of("v0"), 2, &umem, &HashSet::new()).unwrap_err().to_string();
        assert!(text.contains("1 queue(s), and 2") && text.contains("ethtool -L v0"), "{text}");
        told(&XdpOptions { mode: XdpMode::ZeroCopy, ..all_of("v0") }, &["without copies", "mode=best"]);
        ip("link set v0 down");
        told(&all_of("v0"), &["down", "ip link set v0 up"]);
        ip("link set v0 up");
        ip("link add br0 type bridge");
        ip("link set v0 master br0");
        told(&all_of("v0"), &["member of bridge \"br0\"", "nomaster"]);
        told(&all_of("br0"), &["\"br0\" is a bridge"]);
        ip("link set v0 nomaster");
        let first = opened(&all_of("v0"), &umem);
        let text = refused(&all_of("v0"), &umem).to_string();
        assert!(text.contains("another XDP program") && text.contains("bpftool"), "{text}");
        drop(first);
        drop(opened(&all_of("v0"), &umem));
    });
}

#[test]
fn an_interface_that_goes_away_is_a_failed_queue() {
    on_link(1500, |pool, umem| {
        let (mut incoming, mut outgoing, _monitor) = only(opened(&all_of("v0"), umem));
        // Down and up again.
        ip("link set v0 down");
        let mut burst = Burst::new();
        for _ in 0..3 {
            pool.take_burst(&mut burst, 1);
            burst[0].fill(&frame(1, 60)).unwrap();
            assert_eq!(outgoing.transmit(&mut burst), 1);
        }
        // The first went into the ring before anyone knew.
        assert_eq!(drops(&outgoing.counters()), [("link-down", 2)]);
        ip("link set v0 up");
        let wire = Wire::on("v1");
        outgoing.flush();
        assert_eq!(wire.expect(), frame(1, 60));
        assert_eq!(outgoing.status(), QueueStatus::Running);
        ip("link delete v0");
        wait_for("the failure", || {
            incoming.receive(&mut Burst::new());
            matches!(incoming.status(), QueueStatus::Failed(_))
        });
        let QueueStatus::Failed(sentence) = incoming.status() else { unreachable!() };
        assert!(sentence.contains("interface v0 went away"), "{sentence}");
        pool.take_burst(&mut burst, 1);
        burst[0].fill(&frame(1, 60)).unwrap();
        outgoing.transmit(&mut burst);
        assert!(matches!(outgoing.status(), QueueStatus::Failed(_)));
    });
}

/// A child of another thread has the descriptors of a closed port for a moment, and so the program stays for as long.
#[test]
fn a_port_is_opened_again_while_its_old_program_leaves() {
    on_link(1500, |_, umem| {
        let port = opened(&all_of("v0"), umem);
        // What a child between fork and exec has: all descriptors, for as long as it takes.
        // SAFETY: the child only sleeps and ends, which is safe after a fork.
        let child = unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::usleep(1_000_000);
                libc::_exit(0);
            }
            child
        };
        assert!(child > 0);
        drop(port);
        assert!(run("ip link show dev v0").contains("xdp"), "the child holds the program");
        // It waits for the child, and would give up with an error.
        drop(opened(&all_of("v0"), umem));
        // SAFETY: waits for the child that was made above; no status is written.
        assert_eq!(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }, child);
    });
}

/// A port that only sends takes nothing from the kernel, whose addresses stay in reach.
#[test]
fn a_port_that_only_sends_leaves_all_to_the_kernel() {
    on_link(1500, |pool, umem| {
        ip("address add 192.0.2.1/24 dev v0");
        let mut port = opened(&XdpOptions { steering: Steering::None, ..all_of("v0") }, umem).port;
        assert_eq!((port.receive.len(), port.transmit.len()), (0, 1));
        let wire = Wire::on("v1");
        wire.send(&arp_request([192, 0, 2, 1]));
        assert_eq!(wire.expect()[12..14], [8, 6], "the kernel answers");
        for number in 0..100 {
            let mut packet = pool.take().unwrap();
            packet.fill(&frame(number, 60)).unwrap();
            send(&mut port.transmit[0], [packet]);
            assert_eq!(wire.expect(), frame(number, 60));
        }
    });
}

/// A datagram to the other end's host, whose checksum field has the sum of the pseudo header alone.
fn datagram(to: MacAddress, payload: &[u8]) -> Vec<u8> {
    let (source, destination) = ([192, 0, 2, 9].into(), [192, 0, 2, 1].into());
    let link = Frame::new().ethernet(to, MacAddress([2, 0, 0, 0, 0, 9]));
    let mut frame =
        link.ipv4(Ipv4Fields::new(source, destination)).udp(7, 7_000).payload(payload).to_vec().unwrap();
    let length = 8 + payload.len() as u32;
    let pseudo = Addresses::V4 { source, destination }.pseudo_header(IpProtocol::UDP, length).fold();
    frame[40..42].copy_from_slice(&pseudo.to_be_bytes());
    frame
}

/// The kernel completes them or, as here, tells the other end that they are right.
#[test]
fn checksums_are_left_to_the_kernel() {
    if !requirements::linux((6, 11), "metadata in front of frames") {
        return;
    }
    in_namespace(|| {
        pair("v0", "v1", 9000);
        ip("address add 192.0.2.1/24 dev v1");
        let to = MacAddress([2, 0, 0, 0, 0, 1]);
        ip(&format!("link set v1 address {to}"));
        let host = UdpSocket::bind("192.0.2.1:7000").unwrap();
        host.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let ours = pool(&PoolConfig::default());
        let port = opened(&all_of("v0"), &Umem::new(&ours).unwrap());
        assert_eq!(port.port.capabilities.offloads.transmit.checksums, Layered::OUTER);
        let (incoming, mut outgoing, monitor) = only(port);
        let other =
            pool(&PoolConfig { buffers: 64, magazine: Some(4), data_size: 9216, ..PoolConfig::default() });
        // In one buffer of the port's own, in several, without space in front, and in one of another pool.
        for (number, length) in [100, 5_000, 200, 300].into_iter().enumerate() {
            let payload = vec![number as u8; length];
            let frame = datagram(to, &payload);
            let mut packet = if number == 3 { other.take().unwrap() } else { ours.take().unwrap() };
            let first = frame.len().min(1_500);
            if number == 2 {
                let space = packet.headroom();
                packet.prepend(space).unwrap().copy_from_slice(&frame[..space]);
                packet.append(first - space).unwrap().copy_from_slice(&frame[space..first]);
            } else {
                packet.fill(&frame[..first]).unwrap();
            }
            for piece in frame[first..].chunks(1_500) {
                let mut tail = ours.take().unwrap();
                tail.fill(piece).unwrap();
                packet.chain(tail).unwrap();
            }
            packet.set_checksum(Checksum::Partial { start: 34, offset: 6 });
            send(&mut outgoing, [packet]);
            let mut received = vec![0; 9000];
            let length = host.recv(&mut received).unwrap();
            assert!(received[..length] == payload, "{number}");
        }
        assert_eq!(monitor.cost().copied, 2);
        // One whose checksum is not left, and wrong, doesn't arrive.
        let mut packet = ours.take().unwrap();
        packet.fill(&datagram(to, b"wrong")).unwrap();
        let mut right = ours.take().unwrap();
        right.fill(&datagram(to, b"right")).unwrap();
        right.set_checksum(Checksum::Partial { start: 34, offset: 6 });
        send(&mut outgoing, [packet, right]);
        let mut received = [0; 9];
        let length = host.recv(&mut received).unwrap();
        assert_eq!(&received[..length], b"right");
        drop((incoming, outgoing));
        let config = XdpOptions { offloads: false, ..all_of("v0") };
        let port = opened(&config, &Umem::new(&ours).unwrap());
        assert_eq!(port.port.capabilities.offloads.transmit.checksums, Layered::NONE);
        drop(port);
        assert_eq!((ours.ledger().outstanding(), other.ledger().outstanding()), (0, 0));
    });
}
