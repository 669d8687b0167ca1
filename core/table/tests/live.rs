//! Lanes look up while the owner changes the table: each answer is one that the address has or had, never another's

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use warmlane_sync::rcu::{Domain, Reader};
use warmlane_table::{Ipv4Prefix, Ipv4Table, Ipv6Prefix, Ipv6Table, NextHopId, TableError};

mod stop;
use stop::Stop;

/// xorshift64*, after Marsaglia 2003 and Vigna 2016
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: u64) -> u64 {
        ((self.next() >> 32) * bound) >> 32
    }
}

/// Sites that have routes; the routes inside one have next hops that name it. So few that memory has settled halfway.
const SITES: u64 = 2048;
/// The next hop of the route around all of them
const AROUND: u32 = 1;

/// One of the next hops that routes in a site may have
fn hop_of(site: u64, random: &mut Random) -> NextHopId {
    NextHopId::new(1000 + site as u32 * 4 + random.below(4) as u32).unwrap()
}

fn belongs(hop: NextHopId, site: u64) -> bool {
    hop.index() == AROUND as usize || (hop.index().wrapping_sub(1000)) / 4 == site as usize
}

/// Changes routes while two lanes look up in bursts that `burst` checks; then removes all routes
fn changes_under_readers<P: Copy + Ord>(
    domain: &Domain,
    changes: usize,
    prefix: impl Fn(u64, &mut Random) -> P,
    mut change: impl FnMut(P, Option<NextHopId>) -> bool,
    bytes: impl Fn() -> [usize; 2],
    burst: impl Fn(&Reader, &mut Random) + Sync,
) {
    let stop = AtomicBool::new(false);
    let bursts = AtomicU64::new(0);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut routes = Vec::new();
    std::thread::scope(|scope| {
        let _at_the_end = Stop(&stop);
        for lane in 1..=2 {
            let (stop, bursts, burst) = (&stop, &bursts, &burst);
            let reader = domain.reader("lane").unwrap().into_offline();
            scope.spawn(move || {
                let mut reader = reader.online();
                let mut random = Random(lane);
                while !stop.load(Ordering::Relaxed) {
                    burst(&reader, &mut random);
                    reader.quiescent();
                    bursts.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut settled = [0; 2];
        for step in 0..changes {
            let site = random.below(SITES);
            let prefix = prefix(site, &mut random);
            let keep = random.below(100) < 52;
            if change(prefix, keep.then(|| hop_of(site, &mut random))) && keep {
                routes.push(prefix);
            }
            if step == changes / 2 {
                settled = bytes();
            }
        }
        // Those that lookups read, and all, which come in steps of 2 MiB.
        for ((bytes, settled), steps) in bytes().into_iter().zip(settled).zip([1 << 20, 6 << 20]) {
            assert!(bytes <= settled + settled / 8 + steps, "{bytes} bytes, and {settled} halfway");
        }
    });
    assert!(bursts.into_inner() > 100);
    routes.sort_unstable();
    routes.dedup();
    for prefix in routes {
        change(prefix, None);
    }
}

#[test]
fn ipv4_answers_are_old_or_new() {
    let domain = Domain::new(4).unwrap();
    let all: Ipv4Prefix = "10.0.0.0/8".parse().unwrap();
    let table = std::cell::RefCell::new(Ipv4Table::new().unwrap());
    let empty = table.borrow().lookup_bytes();
    table.borrow_mut().insert(all, NextHopId::new(AROUND).unwrap()).unwrap();
    let lookup = table.borrow_mut().share(&domain).unwrap();
    // Sites of a /24 lie side by side, so that most share a /19.
    let first = |site: u64| 0x0a00_0000 | (site as u32) << 8;
    changes_under_readers(
        &domain,
        2_000_000,
        |site, random| {
            let length = [24, 24, 24, 24, 25, 26, 27, 32][random.below(8) as usize];
            Ipv4Prefix::containing(first(site) | random.below(256) as u32 & 0xe3, length)
        },
        |prefix, hop| table.borrow_mut().apply([(prefix, hop)]).is_ok(),
        || [table.borrow().lookup_bytes(), table.borrow().memory_bytes()],
        |reader, random| {
            let mut sites = [0; 64];
            let addresses = sites.each_mut().map(|site| {
                *site = random.below(SITES);
                first(*site) | random.below(256) as u32
            });
            let mut hops = [NextHopId::NONE; 64];
            lookup.read(reader).unwrap().lookup_burst(&addresses, &mut hops);
            for (hop, site) in hops.into_iter().zip(sites) {
                assert!(belongs(hop, site), "{hop:?} in site {site}");
            }
        },
    );
    let mut table = table.into_inner();
    table.remove(all).unwrap();
    table.reclaim();
    assert_eq!((table.len(), table.lookup_bytes()), (0, empty));
}

#[test]
fn ipv6_answers_are_old_or_new() {
    let domain = Domain::new(4).unwrap();
    let all: Ipv6Prefix = "2000::/8".parse().unwrap();
    let table = std::cell::RefCell::new(Ipv6Table::new().unwrap());
    let empty = table.borrow().lookup_bytes();
    table.borrow_mut().insert(all, NextHopId::new(AROUND).unwrap()).unwrap();
    let lookup = table.borrow_mut().share(&domain).unwrap();
    // Sites of a /48: 32 holders of a /32, of which some have many sites; most addresses in a site are near its start.
    let first = |site: u64| 0x2001 << 112 | u128::from(site % 32 * 7) << 96 | u128::from(site / 32 * 3) << 80;
    let host = |random: &mut Random| u128::from(random.next()) & 0x3_0000_0000_0000_0007;
    changes_under_readers(
        &domain,
        600_000,
        |site, random| {
            let length = [48, 48, 48, 48, 48, 64, 64, 128][random.below(8) as usize];
            Ipv6Prefix::containing(first(site) | host(random), length)
        },
        |prefix, hop| table.borrow_mut().apply([(prefix, hop)]).is_ok(),
        || [table.borrow().lookup_bytes(), table.borrow().memory_bytes()],
        |reader, random| {
            let mut sites = [0; 64];
            let addresses = sites.each_mut().map(|site| {
                *site = random.below(SITES);
                (first(*site) | host(random)).to_be_bytes()
            });
            let mut hops = [NextHopId::NONE; 64];
            lookup.read(reader).unwrap().lookup_burst(&addresses, &mut hops);
            for (hop, site) in hops.into_iter().zip(sites) {
                assert!(belongs(hop, site), "{hop:?} in site {site}");
            }
        },
    );
    let mut table = table.into_inner();
    table.remove(all).unwrap();
    table.reclaim();
    assert_eq!((table.len(), table.lookup_bytes()), (0, empty));
}

#[test]
fn one_domain_for_all() {
    let (domain, other) = (Domain::new(1).unwrap(), Domain::new(1).unwrap());
    let mut table = Ipv4Table::new().unwrap();
    let lookup = table.share(&domain).unwrap();
    assert_eq!(table.share(&other).unwrap_err(), TableError::ForeignDomain);
    assert!(table.share(&domain).is_ok());
    let reader = other.reader("lane 0").unwrap();
    assert!(lookup.read(&reader).is_err());
    drop(reader);
    // A handle shows the last state of a table that is gone.
    let reader = domain.reader("lane 0").unwrap();
    table.insert("10.0.0.0/8".parse().unwrap(), NextHopId::new(3).unwrap()).unwrap();
    drop(table);
    assert_eq!(lookup.read(&reader).unwrap().lookup(0x0a00_0001), NextHopId::new(3).unwrap());
}
