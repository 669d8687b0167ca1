//! A client and a server of one memory, and a ring between them.

use super::*;
use crate::ring;
use std::ptr::NonNull;
use warmlane_mem::{LentMemory, Pool, PoolConfig, PoolKind};
use warmlane_sys::random::Random;

const BUFFERS: u32 = 256;
const LOG2_SIZE: u8 = 6;
const SIZE: u16 = 1 << LOG2_SIZE;

/// Both sides' books, the client's pool and the server's over it, and a ring.
struct Pair {
    client: Exchange,
    server: Exchange,
    pools: [Pool; 2],
    ring: Ring,
    _memory: Box<[u128]>,
}

fn pair() -> Pair {
    let config = |name: &str| PoolConfig {
        name: name.to_owned(),
        buffers: BUFFERS,
        stride: Some(2_304),
        kind: PoolKind::LockFreeStack,
        ..PoolConfig::default()
    };
    let own = Pool::new(&config("client's")).unwrap();
    let region = own.region();
    // SAFETY: the region keeps the memory, and tests let buffers change hands as the two sides do.
    let memory = unsafe { LentMemory::new(region.address(), region.length(), Box::new(region.clone())) };
    let over = Pool::over(&config("server's"), memory).unwrap();
    let mut memory = vec![0_u128; ring::bytes(LOG2_SIZE).div_ceil(16)].into_boxed_slice();
    // SAFETY: so many bytes, aligned to 16, which live as long as the pair.
    let ring = unsafe { Ring::new(NonNull::from(&mut memory[0]).cast(), LOG2_SIZE) };
    ring.initialise();
    Pair {
        client: Exchange::of_client(region),
        server: Exchange::of_server(over.region()),
        pools: [own, over],
        ring,
        _memory: memory,
    }
}

impl Pair {
    /// The client sends a packet of each of these lengths from `first` on.
    fn send(&self, first: u16, lengths: &[usize], flags: u16) {
        for (number, &length) in (0..).zip(lengths) {
            let mut burst = Burst::new();
            assert!(self.pools[0].take_bulk(&mut burst, 1));
            burst[0].fill(&vec![number as u8; length]).unwrap();
            self.client.region.packets_into_raw(&mut burst, 1, |_, span| {
                self.client.give(span.index);
                let descriptor = Descriptor { flags, ..self.client.descriptor(span) };
                self.ring.write(first.wrapping_add(number), descriptor);
                true
            });
        }
    }

    /// What the server gets of `waiting` descriptors from `first` on, and at how many it came to an end.
    fn receive(&self, burst: &mut Burst, first: u16, waiting: u16) -> (u16, Vec<ReceiveDrop>) {
        let mut drops = Vec::new();
        let (done, _) = self
            .server
            .receive_as_server(burst, self.ring, first, waiting, |reason, _| drops.push(reason))
            .unwrap();
        (done, drops)
    }

    /// All buffers are the client's again once the server's packets are gone.
    fn end(self) {
        let Self { client, server, pools: [own, over], .. } = self;
        drop((server, over, client));
        assert_eq!(own.ledger().outstanding(), 0);
    }
}

#[test]
fn buffers_go_round_without_a_copy() {
    let pair = pair();
    let mut at = 0_u16;
    for round in 0..1_000 {
        let lengths = [60, 0, 1_514, 2_048];
        pair.send(at, &lengths, 0);
        let mut burst = Burst::new();
        assert_eq!(pair.receive(&mut burst, at, 4), (4, vec![]), "{round}");
        for (number, (packet, length)) in burst.iter().zip(lengths).enumerate() {
            assert!(packet.len() == length && packet.data().iter().all(|byte| usize::from(*byte) == number));
            assert_eq!(packet.own_pool().unwrap().name(), "server's");
        }
        drop(burst);
        pair.client.take_back(pair.ring, at, 4).unwrap();
        at = at.wrapping_add(4);
    }
    // Only what the first took was on credit.
    assert_eq!(pair.server.credit.load(Ordering::Relaxed), BUFFERS / CREDIT - 4);
    assert_eq!(pair.pools[0].ledger().outstanding(), 4);
    pair.end();
}

#[test]
fn without_credit_packets_wait() {
    let pair = pair();
    let mut held = Vec::new();
    for at in (0..SIZE).step_by(8) {
        pair.send(at, &[100; 8], 0);
        let mut burst = Burst::new();
        assert_eq!(pair.receive(&mut burst, at, 8).0, 8);
        pair.client.take_back(pair.ring, at, 8).unwrap();
        held.extend(burst.drain());
    }
    // A quarter of the pool is owed now.
    pair.send(0, &[100; 3], 0);
    let mut burst = Burst::new();
    assert_eq!(pair.receive(&mut burst, 0, 3), (0, vec![]));
    drop(held.pop());
    assert_eq!(pair.receive(&mut burst, 0, 3), (1, vec![]));
    drop((held, burst));
    let mut burst = Burst::new();
    assert_eq!(pair.receive(&mut burst, 1, 2), (2, vec![]));
    drop(burst);
    pair.client.take_back(pair.ring, 0, 3).unwrap();
    pair.end();
}

#[test]
fn packets_of_several_buffers_come_whole() {
    let pair = pair();
    pair.send(0, &[2_000, 2_000], NEXT);
    pair.send(2, &[500], 0);
    let mut burst = Burst::new();
    assert_eq!(pair.receive(&mut burst, 0, 2), (2, vec![ReceiveDrop::Incomplete]));
    assert_eq!(pair.receive(&mut burst, 0, 3), (3, vec![]));
    assert_eq!((burst[0].packet_length(), burst[0].segments()), (4_500, 3));
    // And back, by one that the client has posted for each.
    drop(burst);
    pair.client.take_back(pair.ring, 0, 3).unwrap();
    pair.end();
}

#[test]
fn a_server_sends_what_it_got_with_its_buffer() {
    let pair = pair();
    pair.send(0, &[60, 61, 62], 0);
    let mut burst = Burst::new();
    assert_eq!(pair.receive(&mut burst, 0, 3).0, 3);
    pair.client.take_back(pair.ring, 0, 3).unwrap();
    // Into buffers that the client has posted.
    pair.send(3, &[0; 3], 0);
    assert_eq!(pair.server.send(&mut burst, pair.ring, 3, 2).unwrap(), (2, 121));
    assert_eq!(burst.len(), 1);
    let mut back = Burst::new();
    let received =
        pair.client.receive_as_client(&mut back, pair.ring, 3, 2, |reason, _| panic!("{reason:?}"));
    assert_eq!(received.unwrap(), (2, 121));
    assert!(back.iter().zip([60, 61]).all(|(packet, length)| packet.len() == length));
    assert_eq!(back[1].own_pool().unwrap().name(), "client's");
    drop((back, burst));
    pair.end();
}

type Lie = fn(Descriptor) -> Descriptor;

#[test]
fn nothing_has_two_owners_whatever_descriptors_say() {
    let whole = |pair: &Pair| pair.ring.read(0);
    let lies: [Lie; 5] = [
        |truth| Descriptor { region: 0, ..truth },
        |truth| Descriptor { offset: 2_304 * BUFFERS, ..truth },
        |truth| Descriptor { offset: u32::MAX, ..truth },
        // Into the metadata, and out of the buffer.
        |truth| Descriptor { offset: truth.offset / 2_304 * 2_304 + 63, ..truth },
        |truth| Descriptor { length: 2_049, ..truth },
    ];
    for (number, lie) in lies.into_iter().enumerate() {
        let pair = self::pair();
        pair.send(0, &[60], 0);
        pair.ring.write(0, lie(whole(&pair)));
        let mut burst = Burst::new();
        let received = pair.server.receive_as_server(&mut burst, pair.ring, 0, 1, |_, _| ());
        assert!(matches!(received, Err(NotTheirs)) && burst.is_empty(), "{number}");
        assert_eq!(pair.client.take_back(pair.ring, 0, 1), Err(NotTheirs), "{number}");
        pair.end();
    }
    // Longer than any packet: a drop, and nothing is taken.
    let pair = self::pair();
    pair.send(0, &[60], 0);
    pair.ring.write(0, Descriptor { length: u32::MAX, ..whole(&pair) });
    let mut burst = Burst::new();
    assert_eq!(pair.receive(&mut burst, 0, 1), (1, vec![ReceiveDrop::TooLarge]));
    pair.end();
    // The same buffer twice.
    let pair = self::pair();
    pair.send(0, &[60, 60], 0);
    pair.ring.write(1, whole(&pair));
    let mut burst = Burst::new();
    assert_eq!(
        pair.server.receive_as_server(&mut burst, pair.ring, 0, 2, |_, _| ()),
        Err(NotTheirs),
        "the first is ours already"
    );
    assert_eq!(burst.len(), 1);
    drop(burst);
    pair.end();
}

#[test]
fn books_hold_whatever_descriptors_say() {
    let pair = pair();
    // The client uses none of them, whatever it says.
    let mut all = vec![0; BUFFERS as usize];
    assert_eq!(pair.client.region.take_raw(&mut all), all.len());
    for index in all {
        pair.client.give(index);
    }
    let mut random = Random::new(7);
    let mut held: Vec<Packet> = Vec::new();
    for _ in 0..20_000 {
        let count = 1 + random.below(8) as u16;
        for index in 0..count {
            let offset = random.below(2_304 * (BUFFERS as usize + 2)) as u32;
            let [flags, region] = [u16::from(random.below(8) == 0), u16::from(random.below(32) != 0)];
            let length = random.below(2_300) as u32;
            pair.ring.write(index, Descriptor { flags, region, length, offset });
        }
        let mut burst = Burst::new();
        // An error would end the connection.
        let _ = pair.server.receive_as_server(&mut burst, pair.ring, 0, count, |_, _| ());
        held.extend(burst.drain());
        let ids: std::collections::HashSet<_> = held.iter().map(Packet::id).collect();
        assert_eq!(ids.len(), held.len(), "a buffer with two owners");
        let theirs = pair.server.theirs.iter().filter(|theirs| theirs.load(Ordering::Relaxed)).count();
        let segments: usize = held.iter().map(Packet::segments).sum();
        assert_eq!(pair.pools[1].ledger().outstanding(), (theirs + segments) as u64);
        if random.below(4) == 0 {
            held.truncate(random.below(held.len() + 1));
        }
    }
    drop(held);
    pair.end();
}
