//! Packets that go through a port and are compared with what was sent.

use std::time::{Duration, Instant};
use warmlane_mem::{Burst, Packet, Pool};
use warmlane_port::{Port, ReceiveQueue, TransmitQueue};

/// What a busy machine may need for what takes a moment on a quiet one.
pub const LONG: Duration = Duration::from_secs(300);

/// Waits up to [`LONG`].
///
/// # Panics
/// If it doesn't happen.
#[track_caller]
pub fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !happened() {
        assert!(Instant::now() < end, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Contents that no other packet has, of this length.
pub fn contents(number: usize, length: usize) -> Vec<u8> {
    (0..length).map(|place| (number * 31 + place * 7 + place / 256) as u8).collect()
}

/// A packet with these contents, in as many buffers as it takes.
///
/// # Panics
/// If the pool has not so many.
#[track_caller]
pub fn packet_of(pool: &Pool, data: &[u8]) -> Packet {
    let mut packet = pool.take().expect("there is a buffer");
    let (first, rest) = data.split_at(data.len().min(pool.data_size()));
    packet.fill(first).expect("it fits");
    for more in rest.chunks(pool.data_size()) {
        let mut next = pool.take().expect("there is a buffer");
        next.fill(more).expect("it fits");
        packet.chain(next).expect("a packet can have so many");
    }
    packet
}

/// All bytes of a packet.
pub fn bytes_of(packet: &Packet) -> Vec<u8> {
    packet.segment_data().flatten().copied().collect()
}

/// Sends packets of these lengths from one queue to the other, no more than `under_way` at a time, and compares them.
///
/// # Panics
/// If one doesn't come, or not as it was sent.
pub fn exchange(
    pool: &Pool,
    from: &mut dyn TransmitQueue,
    to: &mut dyn ReceiveQueue,
    lengths: &[usize],
    under_way: usize,
) {
    let (mut sent, mut received) = (0, 0);
    let (mut out, mut back) = (Burst::new(), Burst::new());
    // A receive ring that we fill has no buffers before its first poll: what comes back by then is dropped by the other side.
    assert_eq!(to.receive(&mut back), 0, "nothing was sent");
    let end = Instant::now() + LONG;
    while received < lengths.len() {
        assert!(
            Instant::now() < end,
            "{sent} packets were sent, {} of them still wait, and {received} came back; counted at the sending end: {:?}, at the other: {:?}",
            out.len(),
            from.counters(),
            to.counters(),
        );
        while sent < lengths.len() && out.space() > 0 && sent - received < under_way {
            out.push(packet_of(pool, &contents(sent, lengths[sent]))).expect("there is space");
            sent += 1;
        }
        from.transmit(&mut out);
        to.receive(&mut back);
        for packet in back.drain() {
            assert_eq!(bytes_of(&packet), contents(received, lengths[received]), "packet {received}");
            received += 1;
        }
        from.flush();
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(to.receive(&mut back), 0, "no more than were sent");
}

/// Every length to 300, some up to 9,000 bytes, and most rings several times over.
pub fn lengths() -> Vec<usize> {
    let each = (1..300).chain([1_499, 1_518, 2_047, 2_048, 2_049, 4_096, 4_097, 8_999, 9_000]);
    each.chain((0..5_000).map(|number| 60 + number % 7)).collect()
}

/// Sends packets of up to `longest` bytes to a peer that sends them back, on each of the port's queues in turn, and compares what comes
/// back.
///
/// # Panics
/// As [`exchange`].
#[track_caller]
pub fn echoes(port: &mut Port, pool: &Pool, longest: usize) {
    // Shorter ones have no Ethernet header.
    let lengths: Vec<_> = lengths().into_iter().filter(|length| (14..=longest).contains(length)).collect();
    for (transmit, receive) in port.transmit.iter_mut().zip(&mut port.receive) {
        // The peer drops what its ring has no space for.
        exchange(pool, &mut **transmit, &mut **receive, &lengths, 20);
    }
}
