//! What lanes work with, part by part, and where it lives.

use super::configuration::{Configuration, Function};
use super::figures::{Asked, Figures};
use crate::cache_model::LINE_BYTES;
use crate::memory_traffic::machines::Model;
use serde::Serialize;
use std::fmt;

/// Lines of a buffer besides the frame's: its header and, of a downstream, what is put in front of the frame.
const BESIDES: [f64; 2] = [1.0, 2.0];

/// Where something lives that is used again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CacheLevel {
    /// A core's first level.
    First,
    /// A core's second level.
    Second,
    /// The part of the shared level that lanes have.
    Shared,
    /// Memory.
    Memory,
}

impl fmt::Display for CacheLevel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::First => "first level",
            Self::Second => "second level",
            Self::Shared => "shared level",
            Self::Memory => "memory",
        })
    }
}

/// A part of the working set.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Part {
    /// What it is.
    pub name: String,
    /// Bytes that one lane touches.
    pub lane_bytes: u64,
    /// Bytes that all lanes touch that share a last level.
    pub bytes: u64,
    /// The level that it fits, if it had that for itself.
    pub level: CacheLevel,
}

/// Bytes of the shared level that so many ways are.
pub(super) fn share(model: &Model, ways: u32) -> u64 {
    let all = u64::from(model.shared.ways.max(1));
    (model.shared.kib << 10) / all * u64::from(ways).min(all)
}

impl Part {
    fn new(asked: &Asked, name: String, lane_bytes: u64, bytes: u64) -> Self {
        let Model { first, second, .. } = asked.model;
        let level = if lane_bytes <= first.kib << 10 {
            CacheLevel::First
        } else if lane_bytes <= second.kib << 10 {
            CacheLevel::Second
        } else if bytes <= share(&asked.model, asked.ways) {
            CacheLevel::Shared
        } else {
            CacheLevel::Memory
        };
        Self { name, lane_bytes, bytes, level }
    }
}

/// Bytes of a buffer that a packet touches, on average: whole lines.
pub(super) fn buffer_bytes(asked: &Asked, function: Function) -> f64 {
    let sizes = asked.load.sizes.round();
    let lines = |size: &u16| u64::from(size.saturating_sub(4)).div_ceil(LINE_BYTES) as f64;
    let besides = BESIDES[usize::from(function == Function::Docsis)];
    (sizes.iter().map(lines).sum::<f64>() / sizes.len() as f64 + besides) * LINE_BYTES as f64
}

/// All parts, and at last all of them together.
pub fn parts(asked: &Asked, configuration: &Configuration, figures: &Figures) -> Vec<Part> {
    let [lanes, instances] = asked.together(configuration);
    let all_lanes = (lanes * instances) as u64;
    let mut parts = Vec::new();
    let of_a_buffer = buffer_bytes(asked, configuration.function);
    #[expect(clippy::cast_sign_loss, reason = "no buffer has less than no bytes")]
    let buffers = (figures.circulating as f64 * of_a_buffer) as u64;
    let name = format!("buffers going round: {} of {}", figures.circulating, configuration.pool.buffers);
    // Those of an instance are shared out among its lanes.
    parts.push(Part::new(asked, name, buffers / lanes as u64, buffers * instances as u64));
    for port in configuration.ports.iter().filter(|port| port.bytes() > 0) {
        let name = format!("rings of '{}' ({}, {} entries)", port.name, port.driver, port.entries);
        parts.push(Part::new(asked, name, port.bytes(), port.bytes() * all_lanes));
    }
    for table in &configuration.tables {
        let family = if table.ipv6 { "IPv6" } else { "IPv4" };
        let reached = table.reached * LINE_BYTES;
        let name = format!("{family} table: {} routes in {} KiB", table.routes, table.bytes >> 10);
        parts.push(Part::new(asked, name, reached, reached * instances as u64));
    }
    if configuration.function == Function::Docsis {
        let bytes = asked.modem_state(configuration);
        let name = format!("state of {} modems", configuration.modems);
        parts.push(Part::new(asked, name, bytes, bytes * instances as u64));
    }
    let sum = |of: fn(&Part) -> u64| parts.iter().map(of).sum();
    let (lane_bytes, bytes) = (sum(|part| part.lane_bytes), sum(|part| part.bytes));
    parts.push(Part::new(asked, "all together".to_owned(), lane_bytes, bytes));
    parts
}
