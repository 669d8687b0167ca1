use super::*;
use crate::cache_model::Replacement;

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
        assert_eq!(levels.access(1, 10, false), Level::Second);
        levels.write(1, 640, 8);
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
    assert_eq!(error(Machine { cores: 0, ..usual }), "a machine without cores");
    assert_eq!(error(Machine { device_ways: Some(5), ..usual }), "a device may use 5 of 4 ways");
    assert_eq!(error(Machine { device_ways: Some(0), ..usual }), "a device may use 0 of 4 ways");
}
