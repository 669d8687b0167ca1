//! How many cycles a lookup takes, by kernel
//!
//! `cargo run --release -p warmlane-table --example lookup_speed -- [PREFIXES] [NEXT_HOPS]`
//!
//! PREFIXES is a file with a prefix of either family in each line; without it (or as `-`) prefixes are made up that lie
//! about as those of the Internet do. NEXT_HOPS (64 if left out) are dealt out at random. Bursts have 64 addresses, taken
//! from 2^18, either uniformly random (IPv6: in 2000::/3) or each inside a random prefix. Each figure is the least and the median of
//! several rounds, piece by piece, so that the neighbours' noise can be told from the table.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::time::Instant;

use warmlane_sys::clock;
use warmlane_sys::simd::Level;
use warmlane_table::{IpPrefix, Ipv4Prefix, Ipv4Table, Ipv6Prefix, Ipv6Table, NextHopId};

const BURST: usize = 64;
const ADDRESSES: usize = 1 << 18;
/// Addresses that are timed together
const PIECE: usize = 1 << 13;
const ROUNDS: usize = 31;

/// xorshift64*, after Marsaglia 2003 and Vigna 2016: the same addresses on every run
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: usize) -> usize {
        (((self.next() >> 32) * bound as u64) >> 32) as usize
    }

    fn wide(&mut self) -> u128 {
        u128::from(self.next()) << 64 | u128::from(self.next())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().filter(|file| file != "-");
    let next_hops: u32 = arguments.next().map_or(Ok(64), |count| count.parse())?;
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut v4, mut v6) = match file {
        Some(file) => read(&file)?,
        None => made_up(&mut random),
    };
    let mut shuffle = |count: usize| -> Vec<usize> { (0..count).map(|_| random.below(count)).collect() };
    let (order4, order6) = (shuffle(v4.len()), shuffle(v6.len()));
    let mut hop = || NextHopId::new(random.below(next_hops as usize) as u32).unwrap_or_default();
    let routes4: Vec<_> = v4.iter().map(|prefix| (*prefix, hop())).collect();
    let routes6: Vec<_> = v6.iter().map(|prefix| (*prefix, hop())).collect();
    println!("{} IPv4 and {} IPv6 prefixes, {next_hops} next hops, bursts of {BURST}", v4.len(), v6.len());
    let Some(best) = Level::available().iter().copied().last() else { return Ok(()) };

    if !v4.is_empty() {
        let start = Instant::now();
        let mut table = Ipv4Table::from_routes(routes4.iter().copied())?;
        print_table("IPv4", start, table.lookup_bytes(), table.memory_bytes());
        let uniform: Vec<u32> = (0..ADDRESSES).map(|_| random.next() as u32).collect();
        let inside: Vec<u32> = (0..ADDRESSES)
            .map(|_| {
                let prefix = v4[random.below(v4.len())];
                prefix.first() | random.next() as u32 & (prefix.last() ^ prefix.first())
            })
            .collect();
        for (name, addresses) in [("uniform", &uniform), ("inside prefixes", &inside)] {
            for kernel in Level::available().iter().copied() {
                table.use_level(kernel);
                print_speed("IPv4", name, kernel, addresses, |addresses, hops| {
                    table.lookup_burst(addresses, hops);
                });
            }
        }
        table.use_level(best);
        let start = clock::cycles();
        let mut changes = 0;
        for &index in order4.iter().take(100_000) {
            if let Ok(hop) = table.remove(v4[index]) {
                table.insert(v4[index], hop)?;
                changes += 2;
            }
        }
        println!("IPv4: {} cycles per change", (clock::cycles() - start) / changes);
        v4.clear();
    }
    if !v6.is_empty() {
        let start = Instant::now();
        let mut table = Ipv6Table::from_routes(routes6.iter().copied())?;
        print_table("IPv6", start, table.lookup_bytes(), table.memory_bytes());
        let uniform: Vec<[u8; 16]> =
            (0..ADDRESSES).map(|_| (1 << 125 | random.wide() >> 3).to_be_bytes()).collect();
        let inside: Vec<[u8; 16]> = (0..ADDRESSES)
            .map(|_| {
                let prefix = v6[random.below(v6.len())];
                (prefix.first() | random.wide() & (prefix.last() ^ prefix.first())).to_be_bytes()
            })
            .collect();
        for (name, addresses) in [("uniform", &uniform), ("inside prefixes", &inside)] {
            for kernel in Level::available().iter().copied() {
                table.use_level(kernel);
                print_speed("IPv6", name, kernel, addresses, |addresses, hops| {
                    table.lookup_burst(addresses, hops);
                });
            }
        }
        let start = clock::cycles();
        let mut changes = 0;
        for &index in order6.iter().take(100_000) {
            if let Ok(hop) = table.remove(v6[index]) {
                table.insert(v6[index], hop)?;
                changes += 2;
            }
        }
        println!("IPv6: {} cycles per change", (clock::cycles() - start) / changes);
        v6.clear();
    }
    Ok(())
}

fn print_table(family: &str, start: Instant, lookup: usize, all: usize) {
    println!(
        "{family}: built in {} ms; lookups read {:.1} MiB, with the control side {:.1} MiB",
        start.elapsed().as_millis(),
        lookup as f64 / f64::from(1 << 20),
        all as f64 / f64::from(1 << 20)
    );
}

fn print_speed<A>(
    family: &str,
    name: &str,
    kernel: Level,
    addresses: &[A],
    lookup: impl Fn(&[A], &mut [NextHopId]),
) {
    let mut hops = [NextHopId::NONE; BURST];
    // By piece and round, so that a round which was interrupted spoils one piece only.
    let mut pieces = vec![Vec::with_capacity(ROUNDS); addresses.len() / PIECE];
    for _ in 0..ROUNDS {
        for (piece, addresses) in pieces.iter_mut().zip(addresses.chunks_exact(PIECE)) {
            let start = clock::cycles_ordered();
            for burst in addresses.chunks_exact(BURST) {
                lookup(burst, &mut hops);
                black_box(&hops);
            }
            piece.push(clock::cycles_ordered() - start);
        }
    }
    for rounds in &mut pieces {
        rounds.sort_unstable();
    }
    let per_lookup =
        |rank: usize| pieces.iter().map(|rounds| rounds[rank]).sum::<u64>() as f64 / addresses.len() as f64;
    println!(
        "{family} {name:15} {kernel:10} {:6.2} cycles per lookup, median {:6.2}",
        per_lookup(0),
        per_lookup(ROUNDS / 2),
        kernel = kernel.to_string()
    );
}

fn read(file: &str) -> Result<(Vec<Ipv4Prefix>, Vec<Ipv6Prefix>), Box<dyn Error>> {
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    for line in fs::read_to_string(file)?.lines().filter(|line| !line.is_empty()) {
        match line.parse()? {
            IpPrefix::V4(prefix) => v4.push(prefix),
            IpPrefix::V6(prefix) => v6.push(prefix),
        }
    }
    Ok((v4, v6))
}

/// As many prefixes as the Internet has, with about its lengths, in a part of the space, side by side in places
fn made_up(random: &mut Random) -> (Vec<Ipv4Prefix>, Vec<Ipv6Prefix>) {
    let mut v4 = BTreeSet::new();
    while v4.len() < 900_000 {
        let length = match random.below(100) {
            0..6 => 13 + random.below(5),
            6..40 => 18 + random.below(6),
            _ => 24,
        };
        let mut address = random.next() as u32 % 0xe000_0000;
        // One in two has neighbours.
        for _ in 0..1 << random.below(3) {
            let prefix = Ipv4Prefix::containing(address, length as u8);
            v4.insert(prefix);
            address = prefix.last().wrapping_add(1);
        }
    }
    let mut v6 = BTreeSet::new();
    while v6.len() < 160_000 {
        let registry = [0x2001, 0x2400, 0x2404, 0x2600, 0x2800, 0x2a00, 0x2a02, 0x2a0a][random.below(8)];
        // Few holders have many sites: the product of two draws leans to the small ones.
        let holder = random.below(1 << 6) * random.below(1 << 6);
        let allocation = (registry << 16 | (holder as u128) << 3) << 96;
        v6.insert(Ipv6Prefix::containing(allocation, 29 + random.below(4) as u8));
        for _ in 0..random.below(12) {
            let site = allocation | (random.below(1 << 8) * random.below(1 << 8)) as u128 >> 1 << 80;
            v6.insert(Ipv6Prefix::containing(
                site,
                if random.below(3) == 0 { 36 + random.below(9) as u8 } else { 48 },
            ));
        }
    }
    (v4.into_iter().collect(), v6.into_iter().collect())
}
