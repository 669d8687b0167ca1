//! Hashes of packets go from devices to drivers, if both want that, with what they were computed of.

mod common;

use common::back_end::TO_DRIVER;
use common::front_end::{BUFFER, FrontEnd, GUEST, RECEIVE};
use common::{World, connected, pool, until};
use warmlane_mem::{Burst, FlowHash, HashKind, LaneThread, Packet, Pool};
use warmlane_testkit::exchange::{bytes_of, packet_of};
use warmlane_virtio::features::{HASH_REPORT, MERGEABLE, PROTOCOL_FEATURES, VERSION_1};
use warmlane_virtio::vhost::{self, VhostOptions};
use warmlane_virtio::virtio_user::{self, VirtioUserOptions};
use warmlane_virtio::{Role, VirtioPort};

/// Kinds as the specification numbers them (virtio 1.2 section 5.1.6.4.4).
const UDP4: u8 = 3;
const IPV6: u8 = 4;
const TCP6_EXTENDED: u8 = 8;

/// A datagram over IPv4 of so many bytes.
fn datagram(pool: &Pool, length: usize, hash: Option<FlowHash>) -> Packet {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, 17];
    frame.extend([0, 0, 192, 0, 2, 1, 198, 51, 100, 2]);
    frame.extend([0, 1, 0, 2, 0, 9, 0, 0]);
    frame.resize(length, 7);
    let mut packet = packet_of(pool, &frame);
    packet.set_flow_hash(hash);
    packet
}

const fn toeplitz(value: u32) -> FlowHash {
    FlowHash { kind: HashKind::Toeplitz, value }
}

/// What a driver finds in its buffers.
#[test]
fn a_device_puts_them_behind_the_header() {
    let mut world = World::new(|path, pool| {
        let defaults = VhostOptions::new(path, Role::Server);
        vhost::open("ours", &VhostOptions { hash_report: true, ..defaults }, 1, pool).unwrap()
    });
    let front_end = FrontEnd::connect(&world.path, VERSION_1 | MERGEABLE | PROTOCOL_FEATURES | HASH_REPORT);
    for number in 0..4 {
        let place = FrontEnd::buffer(RECEIVE, number);
        // The last packet takes two.
        front_end.descriptor(u64::from(number) * 16, GUEST + place, BUFFER as u32, 2, 0);
        front_end.make_available(RECEIVE, number);
    }
    front_end.run(&world.port);
    let mut burst = Burst::new();
    for (length, hash) in
        [(60, Some(toeplitz(0x1234_5678))), (60, None), (3_000, Some(toeplitz(0xffff_0000)))]
    {
        burst.push(datagram(&world.pool, length, hash)).unwrap();
    }
    until("all are sent", || {
        world.port.port.transmit[0].transmit(&mut burst);
        burst.is_empty()
    });
    for (number, buffers, report) in [
        (0, 1, [0x78, 0x56, 0x34, 0x12, UDP4, 0, 0, 0]),
        (1, 1, [0; 8]),
        (2, 2, [0, 0, 0xff, 0xff, UDP4, 0, 0, 0]),
    ] {
        let header: [u8; 20] = front_end.read(FrontEnd::buffer(RECEIVE, number));
        assert_eq!((header[10], &header[12..]), (buffers, &report[..]), "{number}");
    }
    assert_eq!(front_end.used_entry(RECEIVE, 0), (0, 80));
}

/// What a device writes is believed as far as it can be a hash.
#[test]
fn a_driver_notes_them() {
    let mut world = World::new(|path, pool| {
        let defaults = VirtioUserOptions::new(path, Role::Server);
        let options = VirtioUserOptions { hash_report: true, ring_size: 64, ..defaults };
        virtio_user::open("ours", &options, 1, pool).unwrap()
    });
    let back_end = world.back_end(VERSION_1 | MERGEABLE | HASH_REPORT);
    let kinds = [UDP4, IPV6, TCP6_EXTENDED, 0, 10];
    for (number, kind) in kinds.into_iter().enumerate() {
        let report = [number as u8, 0, 0, 0x80, kind, 0, 0, 0];
        let header = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];
        back_end.send(number as u16, header, &[&report[..], &[number as u8; 60]].concat());
    }
    // One packet in two buffers.
    let report = [9, 0, 0, 0, UDP4, 0, 0, 0];
    let first = [&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0][..], &report, &[9; 2028]].concat();
    back_end.write(back_end.buffer(TO_DRIVER, 5), &first);
    back_end.write(back_end.buffer(TO_DRIVER, 6), &[9; 100]);
    back_end.use_buffer(TO_DRIVER, 5, 2048);
    back_end.use_buffer(TO_DRIVER, 6, 100);
    let mut burst = Burst::new();
    until("all have come", || {
        world.port.port.receive[0].receive(&mut burst);
        burst.len() == kinds.len() + 1
    });
    let expected =
        [Some(HashKind::Toeplitz), Some(HashKind::ToeplitzAddresses), Some(HashKind::Device), None, None];
    for (number, (packet, kind)) in burst.iter().zip(expected).enumerate() {
        let hash = kind.map(|kind| FlowHash { kind, value: 0x8000_0000 + number as u32 });
        assert_eq!(packet.flow_hash(), hash, "{number}");
        assert!(bytes_of(packet) == [number as u8; 60]);
    }
    assert_eq!((burst[5].flow_hash(), burst[5].packet_length()), (Some(toeplitz(9)), 2128));
    burst.clear();
}

/// Packets of these lengths, each with a hash; whether that comes along. All bytes do.
fn exchange(pool: &Pool, from: &mut VirtioPort, to: &mut VirtioPort, is_reported: bool) {
    let lengths = [60, 61, 1_500, 9_000, 64];
    let (mut out, mut back) = (Burst::new(), Burst::new());
    for (number, length) in lengths.into_iter().enumerate() {
        out.push(datagram(pool, length, Some(toeplitz(number as u32)))).unwrap();
    }
    until("all have come", || {
        from.port.transmit[0].transmit(&mut out);
        to.port.receive[0].receive(&mut back);
        back.len() == lengths.len()
    });
    for (number, (packet, length)) in back.iter().zip(lengths).enumerate() {
        assert!(bytes_of(packet) == bytes_of(&datagram(pool, length, None)), "{length}");
        assert_eq!(packet.flow_hash(), is_reported.then_some(toeplitz(number as u32)), "{length}");
    }
}

/// From our device to our driver, and not the other way round.
#[test]
fn between_ours_by_either_format() {
    let _lane = LaneThread::enter();
    for packed in [false, true] {
        for (device_wants, driver_wants) in [(true, true), (true, false), (false, true)] {
            let (folder, pool) = (tempfile::tempdir().unwrap(), pool());
            let socket = folder.path().join("vhost.sock").to_str().unwrap().to_owned();
            let defaults = VhostOptions::new(&socket, Role::Server);
            let options = VhostOptions { hash_report: device_wants, ..defaults };
            let mut device = vhost::open("device", &options, 1, &pool).unwrap();
            let defaults = VirtioUserOptions::new(&socket, Role::Client);
            let options = VirtioUserOptions { packed, hash_report: driver_wants, ring_size: 64, ..defaults };
            let mut driver = virtio_user::open("driver", &options, 1, &pool).unwrap();
            until("both are there", || connected(&device) && connected(&driver));
            let is_agreed = device_wants && driver_wants;
            assert_eq!(driver.monitor.features(0) & HASH_REPORT != 0, is_agreed);
            exchange(&pool, &mut device, &mut driver, is_agreed);
            exchange(&pool, &mut driver, &mut device, false);
            drop((device, driver));
            assert_eq!(pool.ledger().outstanding(), 0);
        }
    }
}
