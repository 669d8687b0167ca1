use super::*;
use crate::cache_model::Replacement;
use std::collections::HashSet;

const KIB: u64 = 1 << 10;

fn machine(inclusion: Inclusion) -> Machine {
    let geometry = |bytes, ways| Geometry { bytes, ways, slices: 1, replacement: Replacement::Lru };
    Machine {
        cores: 2,
        first: geometry(KIB, 2),
        second: geometry(4 * KIB, 4),
        shared: geometry(16 * KIB, 4),
        inclusion,
        device_ways: Some(2),
    }
}

const ALL: [Inclusion; 3] = [Inclusion::Inclusive, Inclusion::Exclusive, Inclusion::NonInclusive];

fn levels(inclusion: Inclusion) -> Hierarchy {
    Hierarchy::new(&machine(inclusion)).unwrap()
}

/// Reads bytes from zero on, line by line, and says how often each level answered.
fn scan(levels: &mut Hierarchy, core: usize, bytes: u64) -> [u64; 5] {
    let mut counts = [0; 5];
    for line in 0..bytes / LINE_BYTES {
        counts[levels.access(core, line, false) as usize] += 1;
    }
    counts
}

#[test]
fn a_working_set_is_answered_by_the_smallest_level_that_holds_it() {
    for inclusion in ALL {
        for (bytes, level) in [(KIB, Level::First), (4 * KIB, Level::Second), (16 * KIB, Level::Shared)] {
            let mut levels = levels(inclusion);
            assert_eq!(scan(&mut levels, 0, bytes)[Level::Memory as usize], bytes / 64);
            let mut expected = [0; 5];
            expected[level as usize] = bytes / 64;
            assert_eq!(scan(&mut levels, 0, bytes), expected, "{inclusion:?} {bytes}");
        }
    }
}

/// With no line in two levels there is space for more.
#[test]
fn exclusive_levels_add_up() {
    let again = |inclusion| {
        let mut levels = levels(inclusion);
        scan(&mut levels, 0, 20 * KIB);
        levels.forget_counts();
        scan(&mut levels, 0, 20 * KIB);
        levels.memory()
    };
    assert_eq!((again(Inclusion::Exclusive), again(Inclusion::Inclusive)), ((0, 0), (320, 0)));
    let (reads, _) = again(Inclusion::NonInclusive);
    assert!(reads > 0 && reads < 320, "{reads}");
}

#[test]
fn what_is_written_goes_to_memory_once_and_no_sooner_than_it_must() {
    for inclusion in ALL {
        let mut levels = levels(inclusion);
        for _ in 0..10 {
            levels.write(0, 0, 8 * KIB);
        }
        assert_eq!(levels.memory(), (128, 0), "{inclusion:?}");
        // Pushed out by others, each line is written back once.
        for _ in 0..3 {
            levels.read(0, 1 << 20, 64 * KIB);
        }
        assert_eq!(levels.memory().1, 128, "{inclusion:?}");
    }
}

#[test]
fn a_line_that_two_cores_write_moves_between_them() {
    for inclusion in ALL {
        let mut levels = levels(inclusion);
        for _ in 0..5 {
            levels.write(0, 640, 8);
            levels.write(1, 640, 8);
        }
        assert_eq!((levels.core(0).unwrap().transfers, levels.core(1).unwrap().transfers), (4, 5));
        assert_eq!(levels.memory(), (1, 0), "{inclusion:?}");
        // The other one only reads: after one transfer both have it.
        for _ in 0..5 {
            assert_ne!(levels.access(0, 10, false), Level::Memory);
        }
        assert_eq!(levels.access(0, 10, false), Level::First);
        assert_eq!(levels.access(1, 10, false), Level::First);
        assert_eq!((levels.core(0).unwrap().upgrades, levels.core(1).unwrap().upgrades), (0, 0));
        // Both have it, so the one that writes takes it from the other, once.
        levels.write(1, 640, 8);
        levels.write(1, 640, 8);
        assert_eq!((levels.core(0).unwrap().upgrades, levels.core(1).unwrap().upgrades), (0, 1));
        assert_eq!(levels.access(0, 10, false), Level::OtherCore, "{inclusion:?}");
    }
}

#[test]
fn a_device_keeps_to_its_ways() {
    for inclusion in ALL {
        // Half of the shared level, over and over: what comes is not written to memory, and is found by the core.
        let mut levels = levels(inclusion);
        for _ in 0..4 {
            levels.device_write(0, 8 * KIB);
        }
        assert_eq!(levels.memory(), (0, 0), "{inclusion:?}");
        levels.read(0, 0, 8 * KIB);
        assert_eq!(levels.memory(), (0, 0), "{inclusion:?}");
        // All of it doesn't fit two of four ways.
        let mut levels = self::levels(inclusion);
        for _ in 0..4 {
            levels.device_write(0, 16 * KIB);
        }
        let (reads, writes) = levels.memory();
        assert!(reads == 0 && writes > 700, "{inclusion:?}: {writes}");
    }
}

/// Both ends of what a device writes may lie within lines.
#[test]
fn of_a_line_that_a_device_writes_in_part_the_rest_is_read() {
    for device_ways in [None, Some(2)] {
        let mut levels =
            Hierarchy::new(&Machine { device_ways, ..machine(Inclusion::NonInclusive) }).unwrap();
        levels.device_write(0, 640);
        assert_eq!(levels.devices().memory_reads, 0);
        levels.device_write(1 << 20, 100);
        assert_eq!(levels.devices().memory_reads, 1);
        levels.device_write((2 << 20) + 60, 8);
        assert_eq!(levels.devices().memory_reads, 3);
        // What some level has needn't be read.
        levels.read(0, 3 << 20, 64);
        levels.device_write(3 << 20, 8);
        assert_eq!(levels.devices().memory_reads, 3);
    }
}

#[test]
fn full_levels_write_back_for_each_line_that_comes() {
    for inclusion in ALL {
        let mut levels = levels(inclusion);
        levels.fill(1 << 40);
        // There is nothing more to fill.
        levels.fill(1 << 41);
        for line in 1 << 40..(1 << 40) + 2_048 {
            let (is_near, is_old) = state(&levels, line);
            assert_eq!(is_near, is_old, "{inclusion:?}");
            assert_coherent(&levels, line, &|| "filling".to_owned());
        }
        let near = (1 << 40..(1 << 40) + 2_048).filter(|line| state(&levels, *line).0).count();
        // An inclusive level would have to have what cores have.
        assert_eq!(near, if inclusion == Inclusion::Inclusive { 256 } else { 256 + 2 * 64 });
        assert_eq!(levels.memory(), (0, 0));
        // Each line that comes pushes one from level to level, and the last one to memory.
        for line in 0..100 {
            levels.access(0, line, false);
        }
        assert_eq!(levels.memory(), (100, 100), "{inclusion:?}");
    }
}

#[test]
fn a_device_without_ways_writes_to_memory() {
    let mut levels =
        Hierarchy::new(&Machine { device_ways: None, ..machine(Inclusion::NonInclusive) }).unwrap();
    levels.read(0, 0, 640);
    levels.device_write(0, 640);
    assert_eq!(levels.memory(), (10, 10));
    // What cores had is gone, for it is old.
    levels.read(0, 0, 640);
    assert_eq!(levels.memory(), (20, 10));
}

#[test]
fn a_device_reads_what_cores_have_written_without_memory() {
    for inclusion in ALL {
        let mut levels = levels(inclusion);
        levels.write(0, 0, 640);
        levels.forget_counts();
        levels.device_read(0, 640);
        assert_eq!(levels.memory(), (0, 0), "{inclusion:?}");
        levels.device_read(1 << 20, 640);
        assert_eq!((levels.memory(), levels.devices().accesses), ((10, 0), 20));
    }
}

#[test]
fn writes_past_the_caches_leave_nothing_there() {
    for inclusion in ALL {
        let mut levels = levels(inclusion);
        levels.write(0, 0, 640);
        levels.write_past_caches(1, 0, 640);
        assert_eq!(levels.memory(), (10, 10), "{inclusion:?}");
        levels.read(0, 0, 640);
        assert_eq!(levels.memory(), (20, 10), "{inclusion:?}");
    }
}

#[test]
fn what_cannot_be_is_named() {
    let usual = machine(Inclusion::Inclusive);
    let error = |machine| Hierarchy::new(&machine).unwrap_err().to_string();
    assert_eq!(error(Machine { cores: 0, ..usual }), "a machine of 0 cores: there are from 1 to 64");
    assert_eq!(error(Machine { device_ways: Some(5), ..usual }), "a device may use 5 of 4 ways");
    assert_eq!(error(Machine { device_ways: Some(0), ..usual }), "a device may use 0 of 4 ways");
}

/// Lines that the smallest machines work with: more than any of their levels has.
const LINES: u64 = 3;

#[derive(Clone, Copy, Debug)]
enum Step {
    Read(usize),
    Write(usize),
    WritePast(usize),
    DeviceWrite,
    DeviceRead,
}

const STEPS: [Step; 8] = [
    Step::Read(0),
    Step::Read(1),
    Step::Write(0),
    Step::Write(1),
    Step::WritePast(0),
    Step::WritePast(1),
    Step::DeviceWrite,
    Step::DeviceRead,
];

impl Step {
    fn writes(self) -> bool {
        !matches!(self, Self::Read(_) | Self::DeviceRead)
    }

    fn run(self, levels: &mut Hierarchy, line: u64) {
        let address = line * LINE_BYTES;
        match self {
            Self::Read(core) => levels.read(core, address, 1),
            Self::Write(core) => levels.write(core, address, 1),
            Self::WritePast(core) => levels.write_past_caches(core, address, LINE_BYTES),
            Self::DeviceWrite => levels.device_write(address, LINE_BYTES),
            Self::DeviceRead => levels.device_read(address, LINE_BYTES),
        }
    }
}

/// Whether a line is in any level, and whether memory has an old one.
fn state(levels: &Hierarchy, line: u64) -> (bool, bool) {
    let shared = levels.shared.find(line).map(|place| levels.shared.is_dirty(place));
    let cores = levels.cores.iter().map(|core| core.is_dirty(line));
    let all = || cores.clone().chain([shared]).flatten();
    (all().next().is_some(), all().any(|dirty| dirty))
}

fn assert_coherent(levels: &Hierarchy, line: u64, at: &dyn Fn() -> String) {
    let of: Vec<Option<bool>> = levels.cores.iter().map(|core| core.is_dirty(line)).collect();
    let holding: Vec<usize> = (0..2).filter(|core| of[*core].is_some()).collect();
    let known: Vec<usize> = levels.holders.of(line).collect();
    assert_eq!(known, holding, "the directory after {}", at());
    assert!(!of.contains(&Some(true)) || holding.len() == 1, "one writer after {}", at());
    let shared = levels.shared.find(line);
    for core in &levels.cores {
        assert!(
            core.first.find(line).is_none() || core.second.find(line).is_some(),
            "first level after {}",
            at()
        );
    }
    if levels.inclusion == Inclusion::Inclusive {
        assert!(holding.is_empty() || shared.is_some(), "inclusion after {}", at());
    }
    if of.contains(&Some(true)) {
        assert!(
            shared.is_none_or(|place| !levels.shared.is_dirty(place)),
            "nothing old is written back after {}",
            at()
        );
    }
}

/// From nothing, through all states that two cores and a device can bring the smallest levels to. Each step must leave them coherent, read
/// memory if and only if no level has the line and all of it isn't written, and write memory once for each line that memory had an old
/// one of and has no longer.
#[test]
fn all_states_of_small_levels_are_coherent_and_account_for_memory() {
    for (inclusion, device_ways) in ALL.into_iter().flat_map(|kind| [(kind, None), (kind, Some(1))]) {
        let geometry = |ways: u32| Geometry {
            bytes: LINE_BYTES * u64::from(ways),
            ways,
            slices: 1,
            replacement: Replacement::Lru,
        };
        let small = Machine {
            cores: 2,
            first: geometry(1),
            second: geometry(1),
            shared: geometry(2),
            inclusion,
            device_ways,
        };
        let key = |levels: &Hierarchy| format!("{:?} {:?}", levels.cores, levels.shared);
        let start = Hierarchy::new(&small).unwrap();
        let mut seen = HashSet::from([key(&start)]);
        let mut ahead = vec![start];
        while let Some(before) = ahead.pop() {
            for (step, line) in STEPS.into_iter().flat_map(|step| (0..LINES).map(move |line| (step, line))) {
                let mut levels = before.clone();
                step.run(&mut levels, line);
                let at = || format!("{step:?} of {line}, {device_ways:?}, in {before:?}");
                (0..LINES).for_each(|line| assert_coherent(&levels, line, &at));
                let old = |levels: &Hierarchy, line| state(levels, line).1;
                let written = (0..LINES).filter(|other| {
                    (old(&before, *other) || (*other == line && step.writes())) && !old(&levels, *other)
                });
                let whole = matches!(step, Step::WritePast(_) | Step::DeviceWrite);
                let read = u64::from(!whole && !state(&before, line).0);
                assert_eq!(levels.memory(), (read, written.count() as u64), "{}", at());
                levels.forget_counts();
                if seen.insert(key(&levels)) {
                    ahead.push(levels);
                }
            }
        }
        assert!(seen.len() > 200, "{inclusion:?}: {}", seen.len());
    }
}
