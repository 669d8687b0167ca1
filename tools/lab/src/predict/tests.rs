//! Forecasts on a small machine.

use super::{Asked, Configuration, Forecast, Function, Load, PortRings, Table};
use crate::memory_traffic::machines::Model;
use warmlane_mem::{PoolConfig, PoolKind};

/// 32 KiB, 256 KiB and 2 MiB, of which lanes have about a quarter.
fn machine() -> Model {
    let text = "name = 'small'\ncores = 4\nfirst = { kib = 32, ways = 8 }\nsecond = { kib = 256, ways = 8 }\n\
                shared = { kib = 4096, ways = 16 }\ninclusion = 'non-inclusive'\ndevice-ways = 2\nmemory-gbs = 20.0\nmemory-channels = 1\n";
    let model: Model = toml::from_str(text).unwrap();
    model.check().unwrap();
    model
}

fn asked(rate: &str, frames: &str) -> Asked {
    Asked::new(machine(), Load::new(rate, frames, 2).unwrap()).unwrap()
}

fn port(name: &str, entries: u32) -> PortRings {
    PortRings::posting(name, "xdp", [entries, 48], "ring")
}

fn forward(kind: PoolKind, buffers: u32, entries: u32) -> Configuration {
    Configuration {
        function: Function::Forward,
        lanes: 1,
        instances: 1,
        // With a cache of its own a lane that takes and frees gets its own buffers back, whatever the kind.
        pool: PoolConfig {
            buffers,
            kind,
            magazine: (kind == PoolKind::Depot).then_some(64).or(Some(0)),
            ..PoolConfig::default()
        },
        ports: vec![port("a", entries), port("b", entries)],
        tables: vec![Table { ipv6: false, routes: 4, bytes: 4 << 20, reached: 8 }],
        modems: 0,
        crc: false,
    }
}

fn abouts(forecast: &Forecast) -> Vec<&'static str> {
    forecast.advice.iter().map(|advice| advice.about).collect()
}

#[test]
fn what_fits_needs_no_advice() {
    let forecast = Forecast::of(&asked("1", "64"), &forward(PoolKind::Depot, 4_096, 64)).unwrap();
    assert_eq!(abouts(&forecast), [""; 0], "{forecast}");
    assert!(forecast.per_packet.both() < 0.1, "{forecast}");
    assert!(forecast.to_string().contains("advice: nothing"), "{forecast}");
    assert_eq!(forecast.memory.channels_gbs, Some(20.0));
}

#[test]
fn a_ring_much_larger_than_the_caches_is_told_to_be_a_depot_with_a_hot_set() {
    let configuration = forward(PoolKind::Ring, 16_384, 64);
    let forecast = Forecast::of(&asked("1", "1518"), &configuration).unwrap();
    assert_eq!(abouts(&forecast), ["pool", "hot-set"], "{forecast}");
    assert!(forecast.advice[0].reason.contains("lines from and to memory fall from"), "{forecast}");
    let buffers = &forecast.working_set[0];
    assert_eq!(buffers.level, super::working_set::CacheLevel::Memory, "{forecast}");
    assert_eq!(buffers.name, "buffers going round: 16384 of 16384");
    // Each line of a buffer is written back once, at least.
    assert!(forecast.per_packet.writes > 20.0, "{forecast}");
}

#[test]
fn a_ring_deeper_than_the_cache_is_told_to_be_shorter() {
    let forecast = Forecast::of(&asked("1", "1518"), &forward(PoolKind::Depot, 16_384, 2_048)).unwrap();
    assert_eq!(abouts(&forecast), ["ring-depth"], "{forecast}");
    let advice = &forecast.advice[0];
    assert!(advice.change.starts_with("ring = ") && advice.reason.contains("2048 are posted"), "{forecast}");
}

#[test]
fn a_pool_that_cannot_fill_its_rings_is_told_so() {
    let forecast = Forecast::of(&asked("1", "64"), &forward(PoolKind::Depot, 1_024, 1_024)).unwrap();
    assert_eq!(abouts(&forecast)[0], "buffers", "{forecast}");
    assert!(forecast.advice[0].reason.contains("and there are 1024"), "{forecast}");
}

#[test]
fn a_rate_above_the_channels_is_told_how_many_it_needs() {
    let configuration = forward(PoolKind::Ring, 16_384, 64);
    let forecast = Forecast::of(&asked("200", "1518"), &configuration).unwrap();
    let advice = forecast.advice.iter().find(|advice| advice.about == "memory-channels").unwrap();
    assert!(advice.change.ends_with(" channels like these"), "{forecast}");
    assert!(forecast.memory.percent.unwrap() > 80.0, "{forecast}");
    assert!(advice.reason.contains("With the advice above"), "{forecast}");
}

#[test]
fn a_table_larger_than_the_caches_costs_lines() {
    let with = |reached| {
        let mut configuration = forward(PoolKind::Depot, 4_096, 64);
        configuration.tables[0].reached = reached;
        asked("1", "64").figures(&configuration).unwrap().per_packet
    };
    let (few, many) = (with(8), with(1 << 18));
    assert!(many.reads > few.reads + 1.0 && many.writes < 0.5, "{few:?} {many:?}");
}

#[test]
fn lanes_beyond_the_cores_of_a_cache_have_one_of_their_own() {
    let asked = asked("1", "64");
    let with = |lanes, instances| {
        asked.together(&Configuration { lanes, instances, ..forward(PoolKind::Depot, 4_096, 64) })
    };
    assert_eq!(
        [with(1, 1), with(4, 1), with(6, 1), with(2, 3), with(1, 9)],
        [[1, 1], [4, 1], [3, 1], [2, 2], [1, 3]]
    );
}

#[test]
fn a_downstream_is_told_its_magazines_and_its_instances() {
    let docsis = Configuration {
        function: Function::Docsis,
        instances: 4,
        pool: PoolConfig { buffers: 16_384, ..PoolConfig::default() },
        ports: vec![port("from", 256)],
        tables: Vec::new(),
        modems: 300,
        crc: true,
        ..forward(PoolKind::Depot, 0, 0)
    };
    let forecast = Forecast::of(&asked("2", "cable"), &docsis).unwrap();
    assert!(abouts(&forecast).contains(&"instances"), "{forecast}");
    let modems = &forecast.working_set.iter().find(|part| part.name == "state of 300 modems").unwrap();
    assert!(modems.bytes > 4 * 300 * 64, "{forecast}");
    let error = Forecast::of(&asked("2", "imix"), &docsis).unwrap_err().to_string();
    assert!(error.contains("frames 'imix' for a downstream"), "{error}");
}
