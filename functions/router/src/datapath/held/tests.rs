use super::*;
use warmlane_mem::{Pool, PoolConfig};

const SECOND: u64 = 1_000_000;

const NEIGHBOURS: u16 = 512;

const LIMITS: HoldLimits = HoldLimits { buffers: 1024, neighbours: NEIGHBOURS };

/// What became of a packet.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Waits,
    /// The neighbour is asked for.
    First(NeighbourKey),
    /// The same, and another packet gave way.
    Instead(u8),
    /// There was no space for it; whether the neighbour is asked for.
    Refused(bool),
}

/// Keeps it, and looks whether what was said before would become of it does.
fn keep(hold: &mut HeldPackets, packet: Packet, whom: Unresolved, now: u64) -> Outcome {
    let forecast = hold.forecast(&packet, whom);
    let Kept { ask, refused, evicted } = hold.keep(packet, whom, now);
    // Without the quota of its port it is refused, too, and nobody is asked for.
    let is_kept = refused.is_none() || ask.is_none() && forecast.is_kept && forecast.waiting == 0;
    assert_eq!(forecast.is_kept, is_kept, "{forecast:?}");
    assert_eq!(forecast.neighbour.filter(|_| ask.is_some()), ask.map(|neighbour| neighbour.address));
    match (ask, refused, evicted) {
        (ask, Some(_), None) => Outcome::Refused(ask.is_some()),
        (Some(_), None, Some(victim)) => Outcome::Instead(victim.data()[33]),
        (Some(neighbour), None, None) => Outcome::First(neighbour),
        (None, None, None) => Outcome::Waits,
        (_, _, Some(_)) => panic!("a packet gave way in vain"),
    }
}

fn packet(pool: &Pool, last: u8) -> Packet {
    let mut packet = pool.take().unwrap();
    let mut frame = [0; 60];
    frame[14] = 0x45;
    frame[30..34].copy_from_slice(&[192, 0, 2, last]);
    packet.fill(&frame).unwrap();
    packet.set_l3_offset(14);
    packet
}

const ON_LINK: Unresolved = Unresolved { link: 7, gateway: None, port: 0, vlan: None };

fn release(hold: &mut HeldPackets, version: u64, now: u64) -> (usize, usize) {
    let (mut again, mut lost) = (Burst::new(), Burst::new());
    hold.release(version, now, &mut again, &mut lost, |_| ());
    (again.len(), lost.len())
}

#[test]
fn packets_wait_for_a_change_and_not_for_ever() {
    let pool = Pool::new(&PoolConfig { buffers: 64, ..PoolConfig::default() }).unwrap();
    let mut hold = HeldPackets::new(LIMITS, 2, SECOND);
    let neighbour = |last: u8| NeighbourKey { link: 7, address: IpAddr::from([192, 0, 2, last]) };
    assert!(
        matches!(keep(&mut hold, packet(&pool, 1), ON_LINK, 0), Outcome::First(first) if first == neighbour(1))
    );
    assert!(matches!(keep(&mut hold, packet(&pool, 1), ON_LINK, 10), Outcome::Waits));
    assert!(matches!(keep(&mut hold, packet(&pool, 2), ON_LINK, SECOND), Outcome::First(_)));
    assert_eq!(release(&mut hold, 0, 2 * SECOND), (0, 0));
    assert_eq!(release(&mut hold, 1, 2 * SECOND + 5_000), (3, 0));
    // Tried in vain: it waits on, and no longer for that.
    let back = 2 * SECOND + 5_100;
    assert!(matches!(keep(&mut hold, packet(&pool, 1), ON_LINK, back), Outcome::Waits));
    assert_eq!(release(&mut hold, 1, 3 * SECOND + 100), (0, 0));
    assert_eq!(release(&mut hold, 1, 4 * SECOND), (0, 1));
    assert_eq!(release(&mut hold, 1, 5 * SECOND), (0, 0));
    assert!(hold.is_empty());
    assert_eq!(pool.ledger().outstanding(), 0);
}

/// A neighbour that was found, and lost again soon, is asked for again: its first packet is not one that was tried in vain.
#[test]
fn a_neighbour_that_is_lost_again_is_asked_for_again() {
    let pool = Pool::new(&PoolConfig { buffers: 64, ..PoolConfig::default() }).unwrap();
    let mut hold = HeldPackets::new(LIMITS, 2, SECOND);
    assert!(matches!(keep(&mut hold, packet(&pool, 1), ON_LINK, 0), Outcome::First(_)));
    assert_eq!(release(&mut hold, 1, 5_000), (1, 0));
    assert!(matches!(keep(&mut hold, packet(&pool, 1), ON_LINK, 3 * SECOND), Outcome::First(_)));
    assert!(matches!(keep(&mut hold, packet(&pool, 1), ON_LINK, 3 * SECOND + 100), Outcome::Waits));
    assert_eq!(release(&mut hold, 1, 4 * SECOND), (0, 0));
    assert_eq!(release(&mut hold, 1, 7 * SECOND), (0, 2));
}

#[test]
fn neighbours_are_asked_for_again() {
    let pool = Pool::new(&PoolConfig { buffers: 64, ..PoolConfig::default() }).unwrap();
    let mut hold = HeldPackets::new(LIMITS, 2, SECOND);
    assert!(matches!(keep(&mut hold, packet(&pool, 1), ON_LINK, 0), Outcome::First(_)));
    let mut asked = Vec::new();
    for tenths in 1..33 {
        let (mut again, mut lost) = (Burst::new(), Burst::new());
        hold.release(0, tenths * SECOND / 10, &mut again, &mut lost, |_| asked.push(tenths));
    }
    assert_eq!(asked, [11, 22]);
    // Whoever has nothing to wait for is not asked.
    assert_eq!(release(&mut hold, 1, 33 * SECOND / 10), (1, 0));
    hold.release(1, 45 * SECOND / 10, &mut Burst::new(), &mut Burst::new(), |_| panic!("asked"));
}

/// Each packet is tried once with each version of the routes, whoever leaves the queue before its turn.
#[test]
fn those_that_came_after_a_change_are_not_tried_with_it() {
    let pool = Pool::new(&PoolConfig { buffers: 64, ..PoolConfig::default() }).unwrap();
    let last_bytes = |burst: &Burst| burst.iter().map(|packet| packet.data()[33]).collect::<Vec<_>>();
    let first_time = [0, 1, 2, SECOND, SECOND, SECOND];
    // One of those in front gives way to another, or two wait too long.
    for (newcomer, outcome, late, tried) in
        [(9, Outcome::Instead(1), &[][..], &[2, 3, 4, 5][..]), (5, Outcome::Waits, &[1, 2], &[3, 4, 5])]
    {
        let mut hold = HeldPackets::new(HoldLimits { buffers: 64, neighbours: 5 }, 2, SECOND);
        for number in 1..=5_u8 {
            let now = first_time[usize::from(number)];
            let outcome = keep(&mut hold, packet(&pool, number), gateway(number.into()), now);
            assert!(matches!(outcome, Outcome::First(_)));
        }
        // Routes have changed, and there is no space to try anything with them yet.
        let (mut again, mut lost) = (Burst::with_limit(1), Burst::new());
        again.push(pool.take().unwrap()).unwrap();
        hold.release(1, 2 * SECOND, &mut again, &mut lost, |_| ());
        assert_eq!(keep(&mut hold, packet(&pool, 99), gateway(newcomer), 2 * SECOND), outcome);
        let mut again = Burst::new();
        let now = if late.is_empty() { 2 * SECOND + 1_000 } else { 3_301_000 };
        hold.release(1, now, &mut again, &mut lost, |_| ());
        assert_eq!((last_bytes(&lost), last_bytes(&again)), (late.to_vec(), tried.to_vec()));
        again.clear();
        hold.release(2, now + 1_000, &mut again, &mut lost, |_| ());
        assert_eq!(last_bytes(&again), [99], "with the next change");
    }
    assert_eq!(pool.ledger().outstanding(), 0);
}

fn gateway(number: u16) -> Unresolved {
    let address = IpAddr::from([10, 0, (number >> 8) as u8, number as u8]);
    Unresolved { gateway: Some(address), ..ON_LINK }
}

#[test]
fn there_is_a_bound() {
    let pool = Pool::new(&PoolConfig { buffers: 2048, ..PoolConfig::default() }).unwrap();
    let mut hold = HeldPackets::new(LIMITS, 2, SECOND);
    let mut kept = 0;
    for number in 1..30 {
        for _ in 0..200 {
            let outcome = keep(&mut hold, packet(&pool, 9), gateway(number), 0);
            kept += usize::from(!matches!(outcome, Outcome::Refused(_)));
        }
        assert_eq!(kept, LIMITS.buffers.min(usize::from(number * PACKETS_PER_NEIGHBOUR)));
    }
    // All wait with others: none gives way, but who isn't known yet is asked for.
    assert_eq!(keep(&mut hold, packet(&pool, 9), gateway(99), SECOND), Outcome::Refused(true));
    let mut lost = Burst::new();
    let mut given = 0;
    while !hold.is_empty() {
        hold.finish(&mut lost);
        given += lost.len();
        lost.clear();
    }
    assert_eq!(given, LIMITS.buffers);
    assert_eq!(hold.buffers, 0);
    assert_eq!(pool.ledger().outstanding(), 0);
}

/// Packets of several buffers count as many, also when they go on or are given up.
#[test]
fn buffers_are_counted() {
    let pool = Pool::new(&PoolConfig { buffers: 256, ..PoolConfig::default() }).unwrap();
    let mut hold = HeldPackets::new(HoldLimits { buffers: 64, neighbours: 512 }, 2, SECOND);
    let large = |last: u8| {
        let mut packet = packet(&pool, last);
        for _ in 0..3 {
            packet.chain(pool.take().unwrap()).unwrap();
        }
        packet
    };
    // An eighth for each neighbour: two packets of four buffers.
    assert!(matches!(keep(&mut hold, large(1), ON_LINK, 0), Outcome::First(_)));
    assert_eq!(keep(&mut hold, large(1), ON_LINK, 0), Outcome::Waits);
    assert_eq!(keep(&mut hold, large(1), ON_LINK, 0), Outcome::Refused(false));
    for last in 2..=15 {
        assert!(matches!(keep(&mut hold, large(last), ON_LINK, 1), Outcome::First(_)), "{last}");
    }
    assert_eq!(pool.ledger().outstanding(), 64);
    // The oldest that waits alone gives way.
    assert_eq!(keep(&mut hold, large(16), ON_LINK, 2), Outcome::Instead(2));
    assert_eq!(keep(&mut hold, packet(&pool, 17), ON_LINK, 2), Outcome::Instead(3));
    assert_eq!(hold.buffers, 61);
    assert_eq!(release(&mut hold, 1, 5_000), (16, 0));
    assert_eq!((hold.buffers, pool.ledger().outstanding()), (0, 0));
}

#[test]
fn all_lanes_together_hold_an_eighth() {
    assert_eq!(HoldLimits::share(1024, 1, 512), HoldLimits { buffers: 128, neighbours: 512 });
    assert_eq!(HoldLimits::share(1024, 4, 0), HoldLimits { buffers: 32, neighbours: 1 });
    assert_eq!(HoldLimits::share(1024, 4, u16::MAX).neighbours, HoldLimits::MOST_NEIGHBOURS);
}

/// A scan: hundreds of neighbours that nobody is, and new ones all the time. The oldest give way, and all are asked for.
#[test]
fn a_scan_gives_way_to_itself() {
    let pool = Pool::new(&PoolConfig { buffers: 2048, ..PoolConfig::default() }).unwrap();
    let mut hold = HeldPackets::new(LIMITS, 2, SECOND);
    for round in 0..3_u64 {
        let begin = round * 10 * SECOND;
        for number in 0..NEIGHBOURS + 88 {
            let outcome =
                keep(&mut hold, packet(&pool, number as u8), gateway(number), begin + u64::from(number));
            match number.checked_sub(NEIGHBOURS) {
                None => assert!(matches!(outcome, Outcome::First(_)), "{number}"),
                // Whoever waits with another packet stays.
                Some(number) => {
                    assert_eq!(outcome, Outcome::Instead(if number < 7 { number } else { number + 1 } as u8));
                }
            }
            if number == 7 {
                assert_eq!(keep(&mut hold, packet(&pool, 7), gateway(7), begin + 7), Outcome::Waits);
            }
        }
        assert_eq!(keep(&mut hold, packet(&pool, 7), gateway(7), begin + 700), Outcome::Waits);
        let mut order = Vec::new();
        for millisecond in 3_300..3_320 {
            let (mut again, mut lost) = (Burst::new(), Burst::with_limit(64));
            hold.release(0, begin + millisecond * SECOND / 1000, &mut again, &mut lost, |_| ());
            order.extend(lost.iter().map(|packet| packet.data()[33]));
        }
        let in_turn = (89..NEIGHBOURS + 88).map(|number| number as u8);
        assert_eq!(order, [7, 7].into_iter().chain(in_turn).chain([7]).collect::<Vec<_>>());
        assert!(hold.is_empty());
        assert_eq!(hold.free.len(), usize::from(NEIGHBOURS));
        assert!(hold.ingress.iter().all(|ingress| ingress.waiting == 0));
    }
    assert_eq!(pool.ledger().outstanding(), 0);
    assert!(hold.indices.capacity() < 4 * usize::from(NEIGHBOURS));
}

/// Whoever comes in by another interface than the scan isn't shut out, nor does the scan take its places.
#[test]
fn interfaces_have_shares_and_quotas() {
    let pool = Pool::new(&PoolConfig { buffers: 2048, ..PoolConfig::default() }).unwrap();
    let mut hold = HeldPackets::new(HoldLimits { buffers: 1024, neighbours: 64 }, 2, SECOND);
    let by = |port: u16, last: u8| {
        let mut packet = packet(&pool, last);
        packet.set_port(port);
        packet
    };
    for number in 0..8 {
        assert!(matches!(keep(&mut hold, by(1, 200), gateway(number), 0), Outcome::First(_)));
    }
    let mut outcomes = Vec::new();
    for number in 100..500 {
        outcomes.push(keep(&mut hold, by(0, 100), gateway(number), 1 + u64::from(number)));
    }
    let count = |wanted: fn(&Outcome) -> bool| outcomes.iter().filter(|outcome| wanted(outcome)).count();
    // Twice as many as can wait at once, and these push out each other only.
    assert_eq!(count(|outcome| matches!(outcome, Outcome::First(_))), 56);
    assert_eq!(count(|outcome| *outcome == Outcome::Instead(100)), 72);
    assert_eq!(count(|outcome| *outcome == Outcome::Refused(false)), 400 - 128);
    // Those of the quiet interface find places, until it has as many.
    for number in 8..32 {
        assert_eq!(keep(&mut hold, by(1, 200), gateway(number), 1_000), Outcome::Instead(100), "{number}");
    }
    assert_eq!(keep(&mut hold, by(1, 200), gateway(34), 1_000), Outcome::Instead(200));
    // Half a second later the scan may ask for as many as can wait.
    let later = SECOND / 2 + 1_000;
    let again = (600..900).map(|number| keep(&mut hold, by(0, 100), gateway(number), later));
    assert_eq!(again.filter(|outcome| *outcome != Outcome::Refused(false)).count(), 64);
    // Ports that nobody has told of share one account.
    assert!(matches!(keep(&mut hold, by(77, 1), gateway(40), later), Outcome::Instead(_)));
    hold.finish(&mut Burst::new());
    assert!(hold.is_empty());
    assert_eq!(pool.ledger().outstanding(), 0);
}
