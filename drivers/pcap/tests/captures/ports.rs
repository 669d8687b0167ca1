//! Ports over files, as a lane uses them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::common::{Owned, read_all};
use tempfile::{TempDir, tempdir};
use warmlane_mem::{Burst, Packet, Pool, PoolConfig};
use warmlane_pcap::{Format, PcapError, PcapOptions, ReceiveDrop, TransmitDrop, Writer, open};
use warmlane_port::{Port, QueueStatus, ReceiveQueue};

const SECOND: u64 = 1_000_000_000;

fn pool(buffers: u32, data_size: usize) -> Pool {
    Pool::new(&PoolConfig { name: "test".into(), buffers, data_size, ..PoolConfig::default() }).unwrap()
}

fn frame(number: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + number) as u8).collect()
}

/// A capture with frames of these lengths, one second apart from second 1 on.
fn capture(directory: &TempDir, lengths: &[usize]) -> PathBuf {
    let path = directory.path().join("in.pcap");
    let mut writer = Writer::create(&path, Format::Pcap).unwrap();
    for (number, length) in lengths.iter().enumerate() {
        writer.write_frame((number as u64 + 1) * SECOND, &frame(number, *length)).unwrap();
    }
    writer.finish().unwrap();
    path
}

fn receiver(path: &Path, passes: u64, pool: &Pool) -> Result<Port, PcapError> {
    let config = PcapOptions { read: Some(path.to_owned()), passes, ..PcapOptions::default() };
    open(&config, "in", pool)
}

fn transmitter(path: &Path, pool: &Pool) -> Port {
    open(&PcapOptions { write: Some(path.to_owned()), ..PcapOptions::default() }, "out", pool).unwrap()
}

fn contents(packet: &Packet) -> Vec<u8> {
    let mut bytes = vec![0; packet.packet_length()];
    assert_eq!(packet.copy_to(&mut bytes), bytes.len());
    bytes
}

/// Everything a queue gives, as timestamp and contents, until it stops running.
fn drain(queue: &mut dyn ReceiveQueue) -> Vec<(u64, Vec<u8>)> {
    let mut packets = Vec::new();
    loop {
        let mut burst = Burst::new();
        let count = queue.receive(&mut burst);
        assert_eq!(count, burst.len());
        if count == 0 && queue.status() != QueueStatus::Running {
            return packets;
        }
        packets.extend(burst.drain().map(|packet| (packet.timestamp(), contents(&packet))));
    }
}

#[test]
fn every_frame_becomes_a_packet_with_its_time() {
    let directory = tempdir().unwrap();
    let lengths: Vec<_> = (0..500).map(|number| 14 + number).collect();
    let pool = pool(256, 2_048);
    let mut port = receiver(&capture(&directory, &lengths), 1, &pool).unwrap();
    let queue = &mut *port.receive[0];
    let packets = drain(queue);
    assert_eq!(packets.len(), 500);
    for (number, (timestamp, data)) in packets.iter().enumerate() {
        assert_eq!(*timestamp, (number as u64 + 1) * SECOND);
        assert_eq!(*data, frame(number, 14 + number));
    }
    assert_eq!(queue.status(), QueueStatus::Finished);
    assert_eq!(queue.counters().packets(), 500);
    assert_eq!(queue.counters().bytes(), lengths.iter().sum::<usize>() as u64);
    assert_eq!(pool.ledger().outstanding(), 0);
    assert!(port.capabilities.timestamps);
}

#[test]
fn a_jumbo_frame_becomes_a_chain_and_a_frame_again() {
    let directory = tempdir().unwrap();
    let pool = pool(64, 2_048);
    let path = capture(&directory, &[60, 9_000, 2_048, 2_049, 60]);
    let mut input = receiver(&path, 1, &pool).unwrap();
    let output = directory.path().join("out.pcapng");
    let mut outputs = transmitter(&output, &pool);
    let mut burst = Burst::new();
    assert_eq!(input.receive[0].receive(&mut burst), 5);
    assert_eq!(burst.iter().map(Packet::segments).collect::<Vec<_>>(), [1, 5, 1, 2, 1]);
    assert_eq!(outputs.transmit[0].transmit(&mut burst), 5);
    assert!(burst.is_empty());
    assert_eq!(pool.ledger().outstanding(), 0);
    let counters = outputs.transmit[0].counters().clone();
    assert!(!output.exists());
    drop(outputs);
    assert_eq!((counters.packets(), counters.bytes()), (5, 60 + 9_000 + 2_048 + 2_049 + 60));
    let written = read_all(fs::File::open(&output).unwrap());
    assert_eq!(written.0, read_all(fs::File::open(&path).unwrap()).0);
    assert_eq!(written.0.len(), 5);
}

#[test]
fn jumbo_frames_through_a_pool_that_holds_just_one() {
    let directory = tempdir().unwrap();
    let pool = pool(5, 2_048);
    let mut port = receiver(&capture(&directory, &[9_000; 20]), 1, &pool).unwrap();
    let packets = drain(&mut *port.receive[0]);
    assert_eq!(packets.len(), 20);
    assert!(packets.iter().enumerate().all(|(number, (_, data))| *data == frame(number, 9_000)));
    assert_eq!(pool.ledger().outstanding(), 0);
}

#[test]
fn a_frame_larger_than_the_whole_pool_is_dropped_and_counted() {
    let directory = tempdir().unwrap();
    let pool = pool(4, 2_048);
    let mut port = receiver(&capture(&directory, &[60, 9_000, 60]), 1, &pool).unwrap();
    assert_eq!(drain(&mut *port.receive[0]).len(), 2);
    assert_eq!(port.receive[0].counters().drops().get(ReceiveDrop::TooLarge), 1);
    assert_eq!(pool.ledger().outstanding(), 0);
}

#[test]
fn without_buffers_frames_wait() {
    let directory = tempdir().unwrap();
    let pool = pool(8, 2_048);
    let mut port = receiver(&capture(&directory, &[60; 20]), 1, &pool).unwrap();
    let queue = &mut *port.receive[0];
    let mut first = Burst::new();
    assert_eq!(queue.receive(&mut first), 8);
    let mut second = Burst::new();
    assert_eq!(queue.receive(&mut second), 0);
    assert_eq!(queue.status(), QueueStatus::Running);
    assert_eq!(queue.counters().drops().total(), 0);
    drop(first);
    let rest = drain(queue);
    assert_eq!(rest.len(), 12);
    assert_eq!(rest[0].1, frame(8, 60));
}

#[test]
fn a_burst_that_holds_packets_keeps_them() {
    let directory = tempdir().unwrap();
    let pool = pool(64, 2_048);
    let mut port = receiver(&capture(&directory, &[60; 20]), 1, &pool).unwrap();
    let mut burst = Burst::with_limit(8);
    burst.push(pool.take().unwrap()).unwrap();
    assert_eq!(port.receive[0].receive(&mut burst), 7);
    assert_eq!(burst.len(), 8);
    assert!(burst[0].is_empty());
    assert_eq!(contents(&burst[1]), frame(0, 60));
    assert_eq!(port.receive[0].receive(&mut burst), 0);
    assert_eq!(port.receive[0].status(), QueueStatus::Running);
}

#[test]
fn passes() {
    let directory = tempdir().unwrap();
    let pool = pool(64, 2_048);
    let path = capture(&directory, &[60, 61, 62]);
    let mut port = receiver(&path, 4, &pool).unwrap();
    let packets = drain(&mut *port.receive[0]);
    assert_eq!(packets.len(), 12);
    assert_eq!(packets[11], (3 * SECOND, frame(2, 62)));

    let mut endless = receiver(&path, 0, &pool).unwrap();
    for _ in 0..100 {
        assert_eq!(endless.receive[0].receive(&mut Burst::with_limit(8)), 8);
    }
    assert_eq!(endless.receive[0].counters().packets(), 800);

    let empty = capture(&directory, &[]);
    let mut nothing = receiver(&empty, 0, &pool).unwrap();
    assert!(drain(&mut *nothing.receive[0]).is_empty());
    assert_eq!(nothing.receive[0].status(), QueueStatus::Finished);
}

#[test]
fn a_cut_file_fails_after_its_good_frames() {
    let directory = tempdir().unwrap();
    let pool = pool(64, 2_048);
    let path = capture(&directory, &[60; 10]);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    let mut port = receiver(&path, 1, &pool).unwrap();
    assert_eq!(drain(&mut *port.receive[0]).len(), 9);
    match port.receive[0].status() {
        QueueStatus::Failed(sentence) => {
            assert!(sentence.contains("in.pcap, byte 708, frame 10"), "{sentence}");
        }
        status => panic!("{status:?}"),
    }
    assert_eq!(pool.ledger().outstanding(), 0);
}

#[test]
fn snapped_frames_are_counted_drops() {
    let directory = tempdir().unwrap();
    let pool = pool(64, 2_048);
    let path = directory.path().join("snapped.pcap");
    let mut writer = Writer::with_snap_length(&path, Format::Pcap, 100).unwrap();
    for length in [60, 100, 101, 1_500, 60] {
        writer.write_frame(1, &frame(0, length)).unwrap();
    }
    writer.finish().unwrap();
    let mut port = receiver(&path, 1, &pool).unwrap();
    assert_eq!(drain(&mut *port.receive[0]).len(), 3);
    let counters = port.receive[0].counters();
    assert_eq!((counters.drops().get(ReceiveDrop::Snapped), counters.drops().total()), (2, 2));
}

/// A pcap with this link type and this one frame.
fn with_link_type(link_type: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in
        [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, link_type, 1, 0, data.len() as u32, data.len() as u32]
    {
        bytes.extend(u32::to_le_bytes(word));
    }
    bytes.extend(data);
    bytes
}

#[test]
fn other_link_types_are_refused_with_a_remedy() {
    let directory = tempdir().unwrap();
    let pool = pool(64, 2_048);
    let path = directory.path().join("any.pcap");
    fs::write(&path, with_link_type(113, &[0; 60])).unwrap();
    let message = receiver(&path, 1, &pool).unwrap_err().to_string();
    assert!(
        message.contains("byte 24, frame 1: link type 113 (Linux cooked)") && message.contains("re-capture"),
        "{message}"
    );
}

#[test]
fn frames_of_other_interfaces_are_counted_drops() {
    let directory = tempdir().unwrap();
    let pool = pool(64, 2_048);
    let path = directory.path().join("two.pcapng");
    // Two interfaces, the second one Linux cooked, and a frame of it between two of the first.
    let block = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let mut bytes = block(&[0x0a0d_0d0a, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28]);
    for link_type in [1, 113] {
        bytes.extend(block(&[1, 20, link_type, 0, 20]));
    }
    for interface in [0, 1, 0] {
        bytes.extend(block(&[6, 48, interface, 0, 1, 16, 16, 1, 2, 3, 4, 48]));
    }
    fs::write(&path, bytes).unwrap();
    let mut port = receiver(&path, 1, &pool).unwrap();
    assert_eq!(drain(&mut *port.receive[0]).len(), 2);
    assert_eq!(port.receive[0].status(), QueueStatus::Finished);
    let counters = port.receive[0].counters();
    assert_eq!((counters.drops().get(ReceiveDrop::NotEthernet), counters.drops().total()), (1, 1));
}

#[test]
fn a_frame_check_sequence_is_taken_off() {
    let directory = tempdir().unwrap();
    let pool = pool(64, 2_048);
    let path = directory.path().join("fcs.pcap");
    fs::write(&path, with_link_type(0x2400_0001, &frame(0, 64))).unwrap();
    let mut port = receiver(&path, 1, &pool).unwrap();
    assert_eq!(drain(&mut *port.receive[0])[0].1, frame(0, 60));
    assert_eq!(port.receive[0].counters().bytes(), 60);
}

#[test]
fn packets_without_a_time_get_the_wall_clock() {
    let directory = tempdir().unwrap();
    let pool = pool(64, 2_048);
    let path = directory.path().join("out.pcap");
    let mut port = transmitter(&path, &pool);
    let mut burst = Burst::new();
    let mut packet = pool.take().unwrap();
    packet.fill(&frame(0, 60)).unwrap();
    packet.set_timestamp(0);
    burst.push(packet).unwrap();
    let before =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
    port.transmit[0].transmit(&mut burst);
    drop(port);
    let Owned { timestamp, .. } = read_all(fs::File::open(&path).unwrap()).0[0];
    assert!((before..before + 60 * SECOND).contains(&timestamp), "{timestamp}");
}

#[test]
fn a_full_disk_fails_the_queue_and_loses_nothing_uncounted() {
    let pool = pool(512, 2_048);
    let mut port = transmitter("/dev/full".as_ref(), &pool);
    let queue = &mut *port.transmit[0];
    let mut sent = 0;
    for round in 0..1_000 {
        let mut burst = Burst::new();
        while burst.space() > 0 {
            let mut packet = pool.take().unwrap();
            packet.fill(&frame(0, 1_500)).unwrap();
            burst.push(packet).unwrap();
        }
        sent += queue.transmit(&mut burst) as u64;
        assert!(burst.is_empty());
        if round == 20 {
            assert!(matches!(queue.status(), QueueStatus::Failed(_)), "1 MiB is full after 11 bursts");
            break;
        }
    }
    let QueueStatus::Failed(sentence) = queue.status() else { panic!() };
    assert!(sentence.contains("/dev/full") && sentence.contains("space"), "{sentence}");
    assert_eq!(queue.counters().packets(), 0);
    assert_eq!(queue.counters().drops().get(TransmitDrop::WriteFailed), sent);
    assert_eq!(pool.ledger().outstanding(), 0);
}

#[test]
fn a_failed_flush_counts_what_was_buffered() {
    let pool = pool(64, 2_048);
    let mut port = transmitter("/dev/full".as_ref(), &pool);
    let mut burst = Burst::new();
    pool.take_burst(&mut burst, 7);
    assert_eq!(port.transmit[0].transmit(&mut burst), 7);
    port.transmit[0].flush();
    assert!(matches!(port.transmit[0].status(), QueueStatus::Failed(_)));
    assert_eq!(port.transmit[0].counters().drops().total(), 7);
    assert_eq!(port.transmit[0].counters().packets(), 0);
}

#[test]
fn packets_count_as_sent_when_the_kernel_has_them() {
    let directory = tempdir().unwrap();
    let pool = pool(64, 2_048);
    let mut port = transmitter(&directory.path().join("out.pcap"), &pool);
    let queue = &mut *port.transmit[0];
    let mut sent = 0;
    while queue.counters().packets() == 0 {
        assert!(sent < 2_000, "1 MiB is full after 700 frames");
        let mut burst = Burst::new();
        pool.take_burst(&mut burst, 64);
        for packet in burst.iter_mut() {
            packet.fill(&frame(0, 1_500)).unwrap();
        }
        sent += queue.transmit(&mut burst) as u64;
    }
    assert!(queue.counters().packets() < sent);
    queue.flush();
    assert_eq!((queue.counters().packets(), queue.counters().bytes()), (sent, sent * 1_500));
}

#[test]
fn one_port_reads_and_writes_and_none_is_an_error() {
    let directory = tempdir().unwrap();
    let pool = pool(64, 2_048);
    let config = PcapOptions {
        read: Some(capture(&directory, &[60])),
        write: Some(directory.path().join("out.pcapng")),
        ..PcapOptions::default()
    };
    let port = open(&config, "both", &pool).unwrap();
    assert_eq!((port.receive.len(), port.transmit.len()), (1, 1));
    assert_eq!((port.name.as_str(), port.driver, port.capabilities.notes.len()), ("both", "pcap", 2));
    let error = open(&PcapOptions::default(), "none", &pool).unwrap_err();
    assert!(matches!(error, PcapError::NoFile));
}
