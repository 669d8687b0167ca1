//! The model of caches against valgrind's: the same geometry and the same accesses give the same misses.

use std::fs;
use std::path::Path;
use std::process::Command;
use warmlane_lab::cache_model::{Cache, Geometry, LINE_BYTES, Replacement};
use warmlane_testkit::requirements;

/// A program that does some work and is everywhere.
const PROGRAM: &str = "/bin/true";

/// First levels of instructions and data, and the level behind them, which is small enough to miss.
const FIRST: Geometry = Geometry { bytes: 32 << 10, ways: 8, slices: 1, replacement: Replacement::Lru };
const LAST: Geometry = Geometry { bytes: 256 << 10, ..FIRST };

fn valgrind(arguments: &[&str]) {
    let output = Command::new("valgrind").args(arguments).arg(PROGRAM).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// What cachegrind counts: instructions, their misses of both levels, the same of reads, and of writes.
fn counted(folder: &Path) -> [u64; 9] {
    let file = folder.join("cachegrind");
    let level = |name: &str, geometry: &Geometry| {
        format!("--{name}={},{},{LINE_BYTES}", geometry.bytes, geometry.ways)
    };
    let levels = [level("I1", &FIRST), level("D1", &FIRST), level("LL", &LAST)];
    let output = format!("--cachegrind-out-file={}", file.display());
    let [instructions, data, last] = &levels;
    valgrind(&["--tool=cachegrind", "--cache-sim=yes", instructions, data, last, &output]);
    let text = fs::read_to_string(file).unwrap();
    assert!(text.contains("events: Ir I1mr ILmr Dr D1mr DLmr Dw D1mw DLmw"), "{text:.500}");
    let summary = text.lines().find_map(|line| line.strip_prefix("summary: ")).unwrap();
    let counts: Vec<u64> = summary.split_whitespace().map(|count| count.parse().unwrap()).collect();
    counts.try_into().unwrap()
}

/// Uses the lines of an access; whether one of them was missing.
fn misses(cache: &mut Cache, address: u64, bytes: u64) -> bool {
    let lines = address / LINE_BYTES..=(address + bytes - 1) / LINE_BYTES;
    lines.fold(false, |missed, line| {
        if cache.touch(line).is_some() {
            return missed;
        }
        cache.insert(line, false, usize::MAX);
        true
    })
}

/// The same of the accesses that lackey, another tool of valgrind's, prints: a letter, an address in hexadecimal, bytes.
fn modelled(folder: &Path) -> [u64; 9] {
    let file = folder.join("lackey");
    valgrind(&["--tool=lackey", "--trace-mem=yes", &format!("--log-file={}", file.display())]);
    let [mut instructions, mut data] = [FIRST, FIRST].map(|geometry| Cache::new(&geometry).unwrap());
    let mut last = Cache::new(&LAST).unwrap();
    let mut counts = [0; 9];
    for line in fs::read_to_string(file).unwrap().lines() {
        let mut words = line.split_whitespace();
        let (kind, place) = (words.next(), words.next().and_then(|place| place.split_once(',')));
        let (Some(kind), Some((address, bytes))) = (kind, place) else { continue };
        let (Ok(address), Ok(bytes)) = (u64::from_str_radix(address, 16), bytes.parse()) else { continue };
        // Cachegrind takes a read that is written back (M) for a read.
        let (cache, first) = match kind {
            "I" => (&mut instructions, 0),
            "L" | "M" => (&mut data, 3),
            "S" => (&mut data, 6),
            _ => continue,
        };
        counts[first] += 1;
        if misses(cache, address, bytes) {
            counts[first + 1] += 1;
            counts[first + 2] += u64::from(misses(&mut last, address, bytes));
        }
    }
    counts
}

#[test]
fn the_same_accesses_miss_as_cachegrind_says() {
    if !requirements::programs(&["valgrind"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (counted, modelled) = (counted(folder.path()), modelled(folder.path()));
    assert!(counted[0] > 10_000 && counted[5] > 100, "{counted:?}");
    assert_eq!(modelled, counted);
}
