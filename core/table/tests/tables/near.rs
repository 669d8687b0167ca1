//! Many host routes near each other, as neighbours are: they come and go while the tables are compared with the model

use std::collections::HashMap;

use warmlane_sys::random::Random;
use warmlane_table::{Address, Ipv4Prefix, Ipv4Table, Ipv6Prefix, Ipv6Table, NextHopId, Prefix};

use crate::model::{Table, assert_empty, boundaries, check, random_hop};

/// Changes between two comparisons with the model
const BETWEEN: usize = 700;

/// Inserts and removes prefixes of `pool` at random, in waves: more and more of them are there, then fewer and fewer. The last
/// wave goes by `batch` at once. Then everything is removed in the order of the pool.
fn waves<T: Table>(around: &[Prefix<T::A>], pool: &[Prefix<T::A>], batch: usize) {
    let mut random = Random::new(0);
    let mut model: HashMap<_, _> = around.iter().map(|prefix| (*prefix, random_hop(&mut random))).collect();
    let start: Vec<_> = model.iter().map(|(&prefix, &hop)| (prefix, hop)).collect();
    let mut table = T::from_routes(&start).unwrap();
    let mut addresses = boundaries::<T>(around.iter().copied());
    addresses.extend(boundaries::<T>(pool.iter().step_by(pool.len() / 600 + 1).copied()));
    let steps = 2 * pool.len();
    for (wave, percent) in [85, 10, 60, 30, 90, 5].into_iter().enumerate() {
        let mut changes = Vec::new();
        for step in 0..steps {
            let prefix = pool[random.below(pool.len())];
            let hop = (random.below(100) < percent).then(|| random_hop(&mut random));
            if wave < 4 {
                match hop {
                    Some(hop) => assert_eq!(table.insert(prefix, hop), Ok(model.insert(prefix, hop))),
                    None => assert_eq!(table.remove(prefix).ok(), model.remove(&prefix)),
                }
            } else if hop.is_some() || model.contains_key(&prefix) {
                changes.push((prefix, hop));
                match hop {
                    Some(hop) => model.insert(prefix, hop),
                    None => model.remove(&prefix),
                };
                if changes.len() == batch {
                    table.apply(changes.drain(..)).unwrap();
                }
            }
            if step % BETWEEN == 0 {
                table.apply(changes.drain(..)).unwrap();
                check(&mut table, &model, &addresses);
            }
        }
        table.apply(changes.into_iter()).unwrap();
        check(&mut table, &model, &addresses);
    }
    for prefix in around.iter().chain(pool) {
        assert_eq!(table.remove(*prefix).ok(), model.remove(prefix));
    }
    check(&mut table, &model, &addresses);
    assert_empty(&table);
}

fn hosts<A: Address>(addresses: impl Iterator<Item = A>) -> Vec<Prefix<A>> {
    addresses.map(|address| Prefix::containing(address, A::BITS)).collect()
}

fn prefixes<A: Address>(texts: &[&str]) -> Vec<Prefix<A>> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[test]
fn ipv4_hosts_side_by_side_in_a_19() {
    waves::<Ipv4Table>(&prefixes(&["10.0.0.0/8"]), &hosts((0..2000).map(|host| 0x0a01_2000 + host)), 64);
}

#[test]
fn ipv4_hosts_and_short_routes_in_a_19() {
    let mut random = Random::new(1);
    let pool: Vec<_> = (0..3000)
        .map(|_| {
            let length = [32, 32, 32, 32, 32, 31, 28, 26, 25, 24, 24, 22, 20, 19][random.below(14)];
            Ipv4Prefix::containing(0x0a01_2000 | random.bits() as u32 & 0x1fff, length)
        })
        .collect();
    waves::<Ipv4Table>(&prefixes(&["10.0.0.0/8", "10.1.32.0/19"]), &pool, 7);
}

const SITE: u128 = 0x2001_0db8_0001_0002 << 64;

fn around_site() -> Vec<Ipv6Prefix> {
    prefixes(&["::/0", "2001:db8::/32", "2001:db8:1:2::/64"])
}

#[test]
fn ipv6_hosts_side_by_side_in_a_64() {
    waves::<Ipv6Table>(&around_site(), &hosts((0..3000).map(|host| SITE | host)), 64);
}

#[test]
fn ipv6_hosts_anywhere_in_a_64() {
    let mut random = Random::new(2);
    let pool = hosts((0..3000).map(|_| SITE | u128::from(random.bits())));
    waves::<Ipv6Table>(&[], &pool, 64);
    waves::<Ipv6Table>(&around_site(), &pool, 9);
}

#[test]
fn ipv6_hosts_of_one_vendor_in_many_64s() {
    // Interface identifiers made of MACs (RFC 4291 appendix A): the upper half nearly the same.
    let mut random = Random::new(3);
    let pool = hosts((0..3000).map(|_| {
        let (network, number) = (random.below(40) as u128, random.bits() & 0xff_ffff);
        (SITE + (network << 64)) | 0x0250_56ff_fe00_0000 | u128::from(number)
    }));
    waves::<Ipv6Table>(&around_site(), &pool, 64);
}

#[test]
fn ipv6_routes_of_all_lengths_near_each_other() {
    let mut random = Random::new(4);
    let pool: Vec<_> = (0..3000)
        .map(|_| {
            // Many share their first bits up to anywhere.
            let deep = u128::from(random.bits()) << 64 | u128::from(random.bits());
            let address = 0x2001_0db8 << 96 | deep >> (32 + random.below(96));
            let length = match random.below(3) {
                0 => 128,
                1 => 8 * (4 + random.below(13)),
                _ => 16 + random.below(113),
            };
            Ipv6Prefix::containing(address, length as u8)
        })
        .collect();
    waves::<Ipv6Table>(&[], &pool, 64);
    waves::<Ipv6Table>(&around_site(), &pool, 5);
}

#[test]
fn a_short_route_over_many_hosts() {
    let mut table = Ipv6Table::new().unwrap();
    let (site, half): (Ipv6Prefix, _) =
        ("2001:db8:1:2::/64".parse().unwrap(), Ipv6Prefix::containing(SITE, 65));
    let mut random = Random::new(5);
    let hosts = hosts((0..5000).map(|_| SITE | u128::from(random.bits())));
    let hop = |number| NextHopId::new(number).unwrap();
    for (number, host) in hosts.iter().enumerate() {
        table.insert(*host, hop(number as u32)).unwrap();
    }
    for around in [site, half] {
        table.insert(around, hop(9000)).unwrap();
        assert_eq!(table.lookup(SITE.to_be_bytes()), hop(9000));
        assert!(
            hosts
                .iter()
                .enumerate()
                .all(|(number, host)| table.lookup(host.first().to_be_bytes()) == hop(number as u32))
        );
    }
    for host in &hosts {
        table.remove(*host).unwrap();
        assert_eq!(table.lookup(host.first().to_be_bytes()), hop(9000));
    }
}
