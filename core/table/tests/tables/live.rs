//! Lanes look up while the owner changes the table: each answer is one that the address has or had, never another's

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use warmlane_sync::rcu::{Domain, Reader};
use warmlane_sys::random::Random;
use warmlane_table::{Ipv4Prefix, Ipv4Table, Ipv6Prefix, Ipv6Table, NextHopId, TableError};

use crate::stop::Stop;

/// Sites that have routes; the routes inside one have next hops that name it. So few that memory has settled halfway.
const SITES: u64 = 2048;
/// Changes that are made without a look at the lanes
const TOGETHER: usize = 4096;
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
    let bursts = [AtomicU64::new(0), AtomicU64::new(0)];
    let mut random = Random::new(0);
    let mut routes = Vec::new();
    std::thread::scope(|scope| {
        let _at_the_end = Stop(&stop);
        let mut seed = 0;
        let lanes = bursts.each_ref().map(|bursts| {
            seed += 1;
            let (stop, burst) = (&stop, &burst);
            let reader = domain.reader("lane").unwrap().into_offline();
            let lane = scope.spawn(move || {
                let mut reader = reader.online();
                let mut random = Random::new(seed);
                while !stop.load(Ordering::Relaxed) {
                    burst(&reader, &mut random);
                    reader.quiescent();
                    bursts.fetch_add(1, Ordering::Relaxed);
                }
            });
            (lane, bursts)
        });
        let mut settled = [0; 2];
        for step in 0..changes {
            if step % TOGETHER == 0 {
                // What is replaced must wait for the lanes, which may be without a CPU for long on a busy machine.
                for (lane, bursts) in &lanes {
                    let before = bursts.load(Ordering::Relaxed);
                    while bursts.load(Ordering::Relaxed) < before + 2 && !lane.is_finished() {
                        std::thread::yield_now();
                    }
                }
            }
            let site = random.below(SITES as usize) as u64;
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
    assert!(bursts.into_iter().all(|bursts| bursts.into_inner() > 100));
    routes.sort_unstable();
    routes.dedup();
    for prefix in routes {
        change(prefix, None);
    }
}

/// Lanes look up in a table of one family while it changes: `prefix` makes a route in a site, `address` an address.
macro_rules! answers_are_old_or_new {
    ($Table:ident, all: $all:expr, changes: $changes:expr, prefix: $prefix:expr, address: $address:expr) => {
        let domain = Domain::new(4).unwrap();
        let all = $all.parse().unwrap();
        let table = RefCell::new($Table::new().unwrap());
        let empty = table.borrow().lookup_bytes();
        table.borrow_mut().insert(all, NextHopId::new(AROUND).unwrap()).unwrap();
        let lookup = table.borrow_mut().share(&domain).unwrap();
        changes_under_readers(
            &domain,
            $changes,
            $prefix,
            |prefix, hop| table.borrow_mut().apply([(prefix, hop)]).is_ok(),
            || [table.borrow().lookup_bytes(), table.borrow().memory_bytes()],
            |reader, random| {
                let mut sites = [0; 64];
                let addresses = sites.each_mut().map(|site| {
                    *site = random.below(SITES as usize) as u64;
                    $address(*site, random)
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
    };
}

#[test]
fn ipv4_answers_are_old_or_new() {
    // Sites of a /24 lie side by side, so that most share a /19.
    let first = |site: u64| 0x0a00_0000 | (site as u32) << 8;
    answers_are_old_or_new!(
        Ipv4Table,
        all: "10.0.0.0/8",
        changes: 2_000_000,
        prefix: |site, random| {
            let length = [24, 24, 24, 24, 25, 26, 27, 32][random.below(8)];
            Ipv4Prefix::containing(first(site) | random.below(256) as u32 & 0xe3, length)
        },
        address: |site, random: &mut Random| first(site) | random.below(256) as u32
    );
}

#[test]
fn ipv6_answers_are_old_or_new() {
    // Sites of a /48: 32 holders of a /32, of which some have many sites; most addresses in a site are near its start.
    let first = |site: u64| 0x2001 << 112 | u128::from(site % 32 * 7) << 96 | u128::from(site / 32 * 3) << 80;
    let host = |random: &mut Random| u128::from(random.bits()) & 0x3_0000_0000_0000_0007;
    answers_are_old_or_new!(
        Ipv6Table,
        all: "2000::/8",
        changes: 600_000,
        prefix: |site, random| {
            let length = [48, 48, 48, 48, 48, 64, 64, 128][random.below(8)];
            Ipv6Prefix::containing(first(site) | host(random), length)
        },
        address: |site, random: &mut Random| (first(site) | host(random)).to_be_bytes()
    );
}

#[test]
fn ipv6_neighbours_are_old_or_new() {
    // Sites of a few hosts, anywhere in four /64s.
    let first = |site: u64| {
        let place = site.wrapping_mul(0x9e37_79b9_7f4a_7c15) & !7;
        0x2001_0db8 << 96 | u128::from(site / 512) << 64 | u128::from(place)
    };
    answers_are_old_or_new!(
        Ipv6Table,
        all: "2000::/8",
        changes: 600_000,
        prefix: |site, random| {
            let length = [128, 128, 128, 128, 128, 128, 127, 125][random.below(8)];
            Ipv6Prefix::containing(first(site) | random.below(8) as u128, length)
        },
        address: |site, random: &mut Random| (first(site) | random.below(8) as u128).to_be_bytes()
    );
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
