//! What the tests share.

#![allow(dead_code, reason = "not each program of tests uses all")]

use std::time::{Duration, Instant};
use warmlane_mem::{Burst, Pool, PoolConfig};
use warmlane_memif::MemifPort;
use warmlane_port::{ReceiveQueue, TransmitQueue};

pub(crate) fn pool() -> Pool {
    Pool::new(&PoolConfig { buffers: 8192, ..PoolConfig::default() }).unwrap()
}

pub(crate) fn connected(port: &MemifPort) -> bool {
    port.monitor.status().is_some_and(|status| status.connected)
}

/// Waits, for a busy machine a long time.
pub(crate) fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(300);
    while !happened() {
        assert!(Instant::now() < end, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Contents that no other packet has, of this length.
pub(crate) fn contents(number: usize, length: usize) -> Vec<u8> {
    (0..length).map(|place| (number * 31 + place * 7 + place / 256) as u8).collect()
}

/// Sends packets of these lengths from one queue to the other, no more than `under_way` at a time, and compares them.
pub(crate) fn exchange(
    pool: &Pool,
    from: &mut dyn TransmitQueue,
    to: &mut dyn ReceiveQueue,
    lengths: &[usize],
    under_way: usize,
) {
    let (mut sent, mut received) = (0, 0);
    let (mut out, mut back) = (Burst::new(), Burst::new());
    // A client's ring has no buffers before its first poll. Who sends back at once what it gets, as testpmd does, would find no room
    // and drop it.
    assert_eq!(to.receive(&mut back), 0, "nothing before something is sent");
    until("all packets have come", || {
        while sent < lengths.len() && out.space() > 0 && sent - received < under_way {
            let mut packet = pool.take().unwrap();
            let data = contents(sent, lengths[sent]);
            let (first, rest) = data.split_at(data.len().min(pool.data_size()));
            packet.fill(first).unwrap();
            for more in rest.chunks(pool.data_size()) {
                let mut next = pool.take().unwrap();
                next.fill(more).unwrap();
                packet.chain(next).unwrap();
            }
            out.push(packet).unwrap();
            sent += 1;
        }
        from.transmit(&mut out);
        to.receive(&mut back);
        for packet in back.drain() {
            let mut data = vec![0; packet.packet_length()];
            packet.copy_to(&mut data);
            assert_eq!(data, contents(received, lengths[received]), "packet {received}");
            received += 1;
        }
        from.flush();
        received == lengths.len()
    });
    assert_eq!(to.receive(&mut back), 0, "no more than were sent");
}

/// Every length to 300, some up to 9,000 bytes, and the ring several times over.
pub(crate) fn lengths() -> Vec<usize> {
    let each = (1..300).chain([1_499, 1_518, 2_047, 2_048, 2_049, 4_096, 4_097, 8_999, 9_000]);
    each.chain((0..5_000).map(|number| 60 + number % 7)).collect()
}
