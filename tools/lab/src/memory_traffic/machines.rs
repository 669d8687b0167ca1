//! Machines to predict for: their caches, by name, from a file, or from this one.

use crate::cache_model::{Geometry, GeometryError, Hierarchy, Inclusion, LINE_BYTES, Machine, Replacement};
use serde::Deserialize;
use std::path::Path;
use warmlane_mem::PoolConfig;
use warmlane_mem::plan::{CacheShape, Demands, Plan, Request};
use warmlane_sys::topology::{Cache, Topology};

/// A machine that there is no model of.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MachineError {
    /// No machine is called that, and there is no such file.
    #[error("no machine '{name}': known are {known}, or 'here', or a file that ends with .toml")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// The file can't be read.
    #[error("the machine in {file}: {source}")]
    File {
        /// Which.
        file: String,
        /// Why.
        source: std::io::Error,
    },
    /// The file says something else.
    #[error("the machine in {file}: {source}")]
    Text {
        /// Which.
        file: String,
        /// Why.
        source: Box<toml::de::Error>,
    },
    /// Its caches can't be.
    #[error("the {level} of {machine}: {source}")]
    Geometry {
        /// Whose.
        machine: String,
        /// Which.
        level: &'static str,
        /// Why.
        source: GeometryError,
    },
    /// Its caches' lines are of another length than those of the model.
    #[error("the lines of {machine}'s {level} have {bytes} bytes: the model has lines of {LINE_BYTES} bytes")]
    Lines {
        /// Whose.
        machine: String,
        /// Which.
        level: &'static str,
        /// How long they are.
        bytes: u64,
    },
    /// This machine does not tell its caches.
    #[error("this machine does not tell its {0}: describe it in a file")]
    Untold(&'static str),
}

/// A level as a data sheet has it.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Level {
    /// KiB of data.
    pub kib: u64,
    /// Lines in a set.
    pub ways: u32,
    /// Parts that lines are spread over.
    #[serde(default = "one")]
    pub slices: u32,
}

const fn one() -> u32 {
    1
}

/// What the shared level has of second levels' lines.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Shares {
    /// All.
    Inclusive,
    /// None.
    Exclusive,
    /// Those that cores have let go.
    NonInclusive,
}

/// A processor, or the part of it that shares one last level.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Model {
    /// What it is called.
    pub name: String,
    /// Cores that share the last level.
    pub cores: usize,
    /// A core's first level of data.
    pub first: Level,
    /// A core's second level.
    pub second: Level,
    /// The level that they share.
    pub shared: Level,
    /// What is in it.
    pub inclusion: Shares,
    /// Into how many of its ways a device may put lines; 0: what a device writes goes to memory.
    #[serde(default)]
    pub device_ways: u32,
    /// GB/s that all memory channels carry at most, if known.
    #[serde(default)]
    pub memory_gbs: Option<f64>,
    /// How many channels these are, if known.
    #[serde(default)]
    pub memory_channels: Option<u32>,
    /// Bytes of a line; the model has no other than 64.
    #[serde(default = "usual_line")]
    pub line_bytes: u64,
}

const fn usual_line() -> u64 {
    LINE_BYTES
}

const fn level(kib: u64, ways: u32, slices: u32) -> Level {
    Level { kib, ways, slices }
}

/// Those with names. Sizes and ways: Intel 64 and IA-32 Optimization Reference Manual (Skylake Server, Granite Rapids); AMD Software
/// Optimization Guides for Zen 4 (57647) and Zen 5 (58455), a core complex with one L3.
pub fn named() -> Vec<Model> {
    let model =
        |name: &str, cores, first, second, shared, inclusion, device_ways, memory_gbs, channels| Model {
            name: name.to_owned(),
            cores,
            first,
            second,
            shared,
            inclusion,
            device_ways,
            memory_gbs: Some(memory_gbs),
            memory_channels: Some(channels),
            line_bytes: LINE_BYTES,
        };
    let (intel, amd) = (Shares::NonInclusive, Shares::Exclusive);
    vec![
        // Six channels of DDR4-2666.
        model(
            "xeon-gold-6148",
            20,
            level(32, 8, 1),
            level(1_024, 16, 1),
            level(28_160, 11, 20),
            intel,
            2,
            128.0,
            6,
        ),
        // Twelve channels of DDR5-4800; devices write to memory.
        model("epyc-zen4", 8, level(32, 8, 1), level(1_024, 8, 1), level(32_768, 16, 8), amd, 0, 460.8, 12),
        // Twelve channels of DDR5-6000.
        model("epyc-zen5", 8, level(48, 12, 1), level(1_024, 16, 1), level(32_768, 16, 8), amd, 0, 576.0, 12),
        // 6960P: 72 cores with 6 MiB each, as one; twelve channels of DDR5-6400.
        model(
            "granite-rapids",
            64,
            level(48, 12, 1),
            level(2_048, 16, 1),
            level(393_216, 16, 96),
            intel,
            2,
            614.4,
            12,
        ),
    ]
}

impl Model {
    /// The machine called `name`: a name of [`named`], `here`, or a file.
    ///
    /// # Errors
    /// [`MachineError`].
    pub fn find(name: &str) -> Result<Self, MachineError> {
        let model = if name == "here" {
            Self::here(&Topology::read().map_err(|_| MachineError::Untold("topology"))?)?
        } else if Path::new(name).extension().is_some_and(|extension| extension == "toml") {
            let file = || name.to_owned();
            let text = std::fs::read_to_string(name)
                .map_err(|source| MachineError::File { file: file(), source })?;
            toml::from_str(&text)
                .map_err(|source| MachineError::Text { file: file(), source: Box::new(source) })?
        } else {
            let known = || named().into_iter().map(|model| model.name).collect::<Vec<_>>().join(", ");
            named()
                .into_iter()
                .find(|model| model.name == name)
                .ok_or_else(|| MachineError::Unknown { name: name.to_owned(), known: known() })?
        };
        model.check()?;
        Ok(model)
    }

    /// What sysfs, or the processor, says of the first CPU's caches.
    ///
    /// # Errors
    /// [`MachineError::Untold`] and [`MachineError::Lines`].
    pub fn here(topology: &Topology) -> Result<Self, MachineError> {
        let cpu = topology.online().next().ok_or(MachineError::Untold("CPUs"))?;
        let level = |number, name| {
            let cache = cpu.data_cache(number).ok_or(MachineError::Untold(name))?;
            check_line("here", name, u64::from(cache.line_bytes))?;
            Ok::<_, MachineError>((told(cache).ok_or(MachineError::Untold(name))?, cache))
        };
        let (first, _) = level(1, "first level")?;
        let (second, _) = level(2, "second level")?;
        let (shared, cache) = level(3, "third level")?;
        let threads = cpu.siblings.len().max(1);
        let vendor = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let is_amd = vendor.contains("AuthenticAMD");
        Ok(Self {
            name: "here".to_owned(),
            cores: (cache.shared_cpus.len() / threads).clamp(1, 64),
            first,
            second,
            shared,
            inclusion: if is_amd { Shares::Exclusive } else { Shares::NonInclusive },
            device_ways: if is_amd { 0 } else { 2.min(shared.ways) },
            memory_gbs: None,
            memory_channels: None,
            line_bytes: LINE_BYTES,
        })
    }

    /// A pool as it would be on this machine: its buffers lie as far apart as it says or as ports demand, or else as the planner chooses for the caches
    /// here, not for those of the machine that runs the model.
    #[must_use]
    pub fn lay_out(&self, pool: PoolConfig) -> PoolConfig {
        let stride = pool.stride.or_else(|| (pool.demands == Demands::POOL).then(|| self.stride(&pool)));
        PoolConfig { stride, ..pool }
    }

    /// Bytes from one buffer to the next.
    fn stride(&self, pool: &PoolConfig) -> usize {
        let needed = pool.buffer_bytes();
        let caches = [(1, self.first), (2, self.second)].map(|(number, level)| CacheShape {
            level: number,
            sets: ((level.kib << 10) / (u64::from(level.ways.max(1)) * LINE_BYTES)) as usize,
            ways: level.ways as usize,
            line: LINE_BYTES as usize,
        });
        let request = Request {
            needed,
            headroom: pool.headroom,
            caches: &caches,
            memory: None,
            demands: Demands::POOL,
        };
        Plan::new(&request).map_or(needed.next_multiple_of(LINE_BYTES as usize), |plan| plan.stride)
    }

    /// Whether there can be such a machine.
    ///
    /// # Errors
    /// [`MachineError::Geometry`] and [`MachineError::Lines`].
    pub fn check(&self) -> Result<(), MachineError> {
        let fail = |level, source| MachineError::Geometry { machine: self.name.clone(), level, source };
        check_line(&self.name, "caches", self.line_bytes)?;
        let Level { kib, ways, .. } = self.shared;
        if ways == 0 {
            return Err(fail("shared level", GeometryError::Ways(0)));
        }
        if !kib.is_multiple_of(u64::from(ways)) {
            let source = GeometryError::Size { bytes: kib << 10, ways, slices: self.shared.slices };
            return Err(fail("shared level", source));
        }
        let machine = self.machine(self.cores, ways);
        let levels = [
            ("first level", machine.first),
            ("second level", machine.second),
            ("shared level", machine.shared),
        ];
        for (level, geometry) in levels {
            geometry.shape().map_err(|source| fail(level, source))?;
        }
        if self.device_ways > self.shared.ways {
            let source = GeometryError::DeviceWays { device: self.device_ways, ways: self.shared.ways };
            return Err(fail("shared level", source));
        }
        if !(1..=64).contains(&self.cores) {
            return Err(fail("number of cores", GeometryError::Cores(self.cores)));
        }
        Ok(())
    }

    /// With no more of the shared level than so many KiB, in whole ways.
    #[must_use]
    pub fn with_shared(&self, kib: u64) -> Self {
        let way = (self.shared.kib / u64::from(self.shared.ways.max(1))).max(1);
        let ways = u32::try_from(kib / way).unwrap_or(u32::MAX).clamp(1, self.shared.ways.max(1));
        Self { shared: Level { kib: way * u64::from(ways), ways, ..self.shared }, ..self.clone() }
    }

    /// For the cache model, with so many cores in use, and so many of the shared level's ways.
    pub fn machine(&self, cores: usize, ways: u32) -> Machine {
        let geometry = |level: Level, replacement| Geometry {
            bytes: level.kib << 10,
            ways: level.ways,
            slices: level.slices,
            replacement,
        };
        let private = |level: Level| {
            // A tree has a power of two of leaves.
            let replacement = if level.ways.is_power_of_two() { Replacement::Tree } else { Replacement::Lru };
            geometry(level, replacement)
        };
        let ways = ways.clamp(1, self.shared.ways.max(1));
        let shared = Level {
            kib: self.shared.kib / u64::from(self.shared.ways.max(1)) * u64::from(ways),
            ways,
            ..self.shared
        };
        Machine {
            cores,
            first: private(self.first),
            second: private(self.second),
            shared: geometry(shared, Replacement::Lru),
            inclusion: match self.inclusion {
                Shares::Inclusive => Inclusion::Inclusive,
                Shares::Exclusive => Inclusion::Exclusive,
                Shares::NonInclusive => Inclusion::NonInclusive,
            },
            device_ways: (self.device_ways > 0).then_some(self.device_ways.min(ways)),
        }
    }

    /// All levels, empty, with so many cores in use, and so many of the shared level's ways.
    ///
    /// # Errors
    /// [`MachineError::Geometry`].
    pub fn hierarchy(&self, cores: usize, ways: u32) -> Result<Hierarchy, MachineError> {
        Hierarchy::new(&self.machine(cores, ways)).map_err(|source| MachineError::Geometry {
            machine: self.name.clone(),
            level: "caches",
            source,
        })
    }
}

/// Whether a level's lines have the length that the model has.
fn check_line(machine: &str, level: &'static str, bytes: u64) -> Result<(), MachineError> {
    if bytes == LINE_BYTES {
        return Ok(());
    }
    Err(MachineError::Lines { machine: machine.to_owned(), level, bytes })
}

/// A level that a machine tells, in as many slices as make its sets a power of two.
fn told(cache: &Cache) -> Option<Level> {
    let (kib, ways) = (cache.size >> 10, cache.ways.filter(|ways| *ways > 0)?);
    let sets = cache.size / (u64::from(ways) * u64::from(cache.line_bytes));
    let power = 1_u64 << sets.trailing_zeros();
    let slices = u32::try_from(sets / power).ok().filter(|slices| *slices > 0)?;
    Some(Level { kib, ways, slices })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_have_names_can_be() {
        for model in named() {
            let found = Model::find(&model.name).unwrap();
            assert_eq!(found, model);
            found.hierarchy(1, found.shared.ways).unwrap();
        }
    }

    #[test]
    fn what_is_no_machine_is_named() {
        let error = Model::find("pdp-11").unwrap_err().to_string();
        assert!(error.starts_with("no machine 'pdp-11': known are xeon-gold-6148, "), "{error}");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("mine.toml");
        let name = file.to_str().unwrap();
        let write_with = |ways: u32, cores: usize, more: &str| {
            let level = |kib, ways| format!("{{ kib = {kib}, ways = {ways} }}");
            let text = format!(
                "name = 'mine'\ncores = {cores}\nfirst = {}\nsecond = {}\nshared = {}\ninclusion = 'inclusive'\n",
                level(32, 8),
                level(256, 8),
                level(8_192, ways)
            );
            std::fs::write(&file, text + more).unwrap();
            Model::find(name).map_err(|error| error.to_string())
        };
        let write = |ways, cores| write_with(ways, cores, "");
        assert_eq!(write(16, 4).unwrap().cores, 4);
        assert!(
            write(12, 4).unwrap_err().contains("the shared level of mine: 8388608 bytes are no whole sets")
        );
        assert!(write(0, 4).unwrap_err().contains("shared level of mine"));
        assert!(write(16, 65).unwrap_err().contains("a machine of 65 cores"));
        assert_eq!(write_with(16, 4, "line-bytes = 64\n").unwrap().line_bytes, 64);
        assert!(
            write_with(16, 4, "line-bytes = 128\n")
                .unwrap_err()
                .contains("the lines of mine's caches have 128 bytes: the model has lines of 64 bytes")
        );
        assert!(Model::find("/nowhere/mine.toml").unwrap_err().to_string().contains("/nowhere/mine.toml"));
    }

    #[test]
    fn buffers_are_laid_out_for_the_machine_that_is_modelled() {
        let stride =
            |model: &Model, stride| model.lay_out(PoolConfig { stride, ..PoolConfig::default() }).stride;
        let usual = Model::find("xeon-gold-6148").unwrap();
        // An odd number of lines for sets that are a power of two.
        assert_eq!(stride(&usual, None), Some(2_240));
        assert_eq!(stride(&usual, Some(4_096)), Some(4_096));
        // Of 35 sets, each 35th line would be in the first.
        let odd = Model { first: level(35, 16, 1), second: level(1_120, 16, 32), ..usual };
        assert_ne!(stride(&odd, None), Some(2_240));
    }
}
