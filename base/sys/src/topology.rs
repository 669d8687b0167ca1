//! The machine's processors, caches and NUMA nodes, as the kernel describes them under `/sys/devices/system`
//! (Documentation/ABI/testing/sysfs-devices-system-cpu and sysfs-devices-node in the kernel source).

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use crate::affinity;
use crate::huge_pages::{self, HugePagePool};
use crate::text::{kilobyte_field, parse_size, read_list, read_number, read_text};

/// The line of a cache that doesn't tell: that of every x86_64 and of most Arm processors.
const USUAL_LINE_BYTES: u32 = 64;

/// Why the topology couldn't be read.
#[derive(Debug, thiserror::Error)]
pub enum TopologyError {
    /// There isn't one CPU.
    #[error("no cpus are described in {}; is /sys mounted?", path.display())]
    NoCpus {
        /// The directory looked into.
        path: PathBuf,
    },
}

/// What a cache holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CacheKind {
    /// Data only.
    Data,
    /// Instructions only.
    Instruction,
    /// Both.
    Unified,
}

/// One cache of one CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache {
    /// 1 is nearest to the core.
    pub level: u8,
    /// What it holds.
    pub kind: CacheKind,
    /// Bytes.
    pub size: u64,
    /// Lines in a set; `None` if the machine doesn't tell.
    pub ways: Option<u32>,
    /// Bytes of a line; 64 where the machine doesn't tell.
    pub line_bytes: u32,
    /// Sets; `None` if the machine doesn't tell. May not be a power of two where a cache has slices.
    pub sets: Option<u32>,
    /// The CPUs that share it, this one included.
    pub shared_cpus: Vec<usize>,
}

/// Where the caches' figures come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheSource {
    /// The kernel.
    Sysfs,
    /// The processor, asked on one CPU and taken to hold for all: the kernel had nothing.
    Cpuid,
    /// Nobody tells.
    Unknown,
}

impl fmt::Display for CacheSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sysfs => "sysfs",
            Self::Cpuid => "CPUID, because sysfs describes no caches",
            Self::Unknown => "unknown: neither sysfs nor the processor describes any",
        })
    }
}

/// One logical processor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cpu {
    /// Its number, as in [`affinity`].
    pub id: usize,
    /// Does the kernel use it?
    pub online: bool,
    /// Is it kept free of other threads (`isolcpus` on the boot command line)?
    pub isolated: bool,
    /// The physical core's number in its package; `None` while offline.
    pub core: Option<usize>,
    /// The socket; `None` while offline.
    pub package: Option<usize>,
    /// The NUMA node; `None` if the machine has no such notion.
    pub node: Option<usize>,
    /// The logical processors of its core, itself included.
    pub siblings: Vec<usize>,
    /// Its caches, nearest first.
    pub caches: Vec<Cache>,
}

impl Cpu {
    /// The cache of this level that data goes through.
    pub fn data_cache(&self, level: u8) -> Option<&Cache> {
        self.caches.iter().find(|cache| cache.level == level && cache.kind != CacheKind::Instruction)
    }
}

/// One NUMA node: memory and the CPUs near to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its number.
    pub id: usize,
    /// Its CPUs; none for a node of memory only.
    pub cpus: Vec<usize>,
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Its share of the huge page pools.
    pub huge_pages: Vec<HugePagePool>,
    /// Relative cost of reaching each node, in the order of the nodes; 10 is its own memory (ACPI SLIT).
    pub distances: Vec<u32>,
}

/// The machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// All CPUs present, by number, also those offline.
    pub cpus: Vec<Cpu>,
    /// All NUMA nodes, by number; empty if the kernel is built without.
    pub nodes: Vec<Node>,
    /// The machine's huge page pools, smallest page first.
    pub huge_pages: Vec<HugePagePool>,
    /// Where the caches' figures come from.
    pub source: CacheSource,
}

impl Topology {
    /// Reads this machine's topology. Where `/sys` says nothing about CPUs, those that this thread may run on
    /// are listed; where it says nothing about caches, the processor is asked.
    ///
    /// # Errors
    /// [`TopologyError::NoCpus`] if neither `/sys` nor the scheduler names a CPU.
    pub fn read() -> Result<Self, TopologyError> {
        let mut topology = match Self::from_root(Path::new("/")) {
            Ok(topology) => topology,
            Err(error) => {
                let cpus = affinity::allowed_cpus().map_err(|_| error)?;
                let cpus = cpus.into_iter().map(|id| Cpu::without_description(id, true)).collect();
                Self { cpus, nodes: Vec::new(), huge_pages: Vec::new(), source: CacheSource::Unknown }
            }
        };
        if topology.source == CacheSource::Unknown {
            topology.ask_the_processor();
        }
        Ok(topology)
    }

    /// Reads the topology described in `root/sys`, and nothing else.
    ///
    /// # Errors
    /// [`TopologyError::NoCpus`] if there isn't one CPU.
    pub fn from_root(root: &Path) -> Result<Self, TopologyError> {
        let system = root.join("sys/devices/system");
        let directory = system.join("cpu");
        let nodes = read_nodes(&system.join("node"));
        let online = read_list(&directory.join("online"));
        let isolated = read_list(&directory.join("isolated")).unwrap_or_default();
        let cpus: Vec<_> = numbered(&directory, "cpu")
            .into_iter()
            .map(|(id, path)| {
                // Without the list every CPU that is there is taken to run.
                let mut cpu =
                    Cpu::without_description(id, online.as_ref().is_none_or(|online| online.contains(&id)));
                cpu.isolated = isolated.contains(&id);
                cpu.node = nodes.iter().find(|node| node.cpus.contains(&id)).map(|node| node.id);
                cpu.describe(&path);
                cpu
            })
            .collect();
        if cpus.is_empty() {
            return Err(TopologyError::NoCpus { path: directory });
        }
        let told = cpus.iter().any(|cpu| !cpu.caches.is_empty());
        Ok(Self {
            cpus,
            nodes,
            huge_pages: huge_pages::pools_at(&root.join("sys/kernel/mm/hugepages")),
            source: if told { CacheSource::Sysfs } else { CacheSource::Unknown },
        })
    }

    /// The CPU of this number.
    pub fn cpu(&self, id: usize) -> Option<&Cpu> {
        self.cpus.iter().find(|cpu| cpu.id == id)
    }

    /// The CPUs that run.
    pub fn online(&self) -> impl Iterator<Item = &Cpu> {
        self.cpus.iter().filter(|cpu| cpu.online)
    }

    #[cfg(target_arch = "x86_64")]
    fn ask_the_processor(&mut self) {
        let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        self.take_caches(&crate::cpuid::caches(), &apic_ids(&processors));
    }

    #[cfg(not(target_arch = "x86_64"))]
    #[expect(clippy::unused_self, reason = "other processors have no instruction that user space may ask")]
    fn ask_the_processor(&mut self) {}

    /// Gives every online CPU the caches that CPUID described; `apic_ids` are pairs of CPU and APIC id.
    #[cfg(target_arch = "x86_64")]
    fn take_caches(&mut self, leaves: &[crate::cpuid::CacheLeaf], apic_ids: &[(usize, u32)]) {
        let apic_id = |id: usize| apic_ids.iter().find(|pair| pair.0 == id).map(|pair| pair.1);
        let online: Vec<_> = self.online().map(|cpu| cpu.id).collect();
        for cpu in self.cpus.iter_mut().filter(|cpu| cpu.online) {
            cpu.caches = leaves
                .iter()
                .map(|leaf| {
                    let group = |id| apic_id(id).map(|apic| apic / leaf.sharers.next_power_of_two());
                    let own = group(cpu.id);
                    // Without APIC ids nothing is known about the others.
                    let shares = |id: usize| id == cpu.id || (own.is_some() && group(id) == own);
                    Cache {
                        level: leaf.level,
                        kind: match leaf.kind {
                            1 => CacheKind::Data,
                            2 => CacheKind::Instruction,
                            _ => CacheKind::Unified,
                        },
                        size: leaf.size(),
                        ways: Some(leaf.ways),
                        line_bytes: leaf.line_bytes,
                        sets: Some(leaf.sets),
                        shared_cpus: online.iter().copied().filter(|id| shares(*id)).collect(),
                    }
                })
                .collect();
        }
        if !leaves.is_empty() {
            self.source = CacheSource::Cpuid;
        }
    }
}

/// CPU and APIC id from the text of `/proc/cpuinfo`.
#[cfg(target_arch = "x86_64")]
fn apic_ids(processors: &str) -> Vec<(usize, u32)> {
    let field = |block: &str, name: &str| -> Option<u32> {
        block.lines().find_map(|line| {
            let (label, value) = line.split_once(':')?;
            (label.trim() == name).then(|| value.trim().parse().ok())?
        })
    };
    processors
        .split("\n\n")
        .filter_map(|block| Some((field(block, "processor")? as usize, field(block, "apicid")?)))
        .collect()
}

impl Cpu {
    fn without_description(id: usize, online: bool) -> Self {
        Self {
            id,
            online,
            isolated: false,
            core: None,
            package: None,
            node: None,
            siblings: vec![id],
            caches: Vec::new(),
        }
    }

    fn describe(&mut self, path: &Path) {
        let topology = path.join("topology");
        let number = |file| read_number(&topology.join(file)).and_then(|value| usize::try_from(value).ok());
        self.core = number("core_id");
        self.package = number("physical_package_id");
        // The newer name first (Linux 5.2).
        self.siblings = ["core_cpus_list", "thread_siblings_list"]
            .into_iter()
            .find_map(|file| read_list(&topology.join(file)).filter(|cpus| !cpus.is_empty()))
            .unwrap_or_else(|| vec![self.id]);
        self.caches = numbered(&path.join("cache"), "index")
            .iter()
            .filter_map(|(_, path)| read_cache(path, self.id))
            .collect();
        self.caches.sort_by_key(|cache| cache.level);
    }
}

/// A cache without level, kind or size is of no use to anyone and left out.
fn read_cache(path: &Path, cpu: usize) -> Option<Cache> {
    let kind = match read_text(&path.join("type"))?.as_str() {
        "Data" => CacheKind::Data,
        "Instruction" => CacheKind::Instruction,
        "Unified" => CacheKind::Unified,
        _ => return None,
    };
    // Virtual machines and Arm firmware write 0 for what they don't know.
    let number = |file| {
        read_number(&path.join(file)).and_then(|value| u32::try_from(value).ok()).filter(|value| *value > 0)
    };
    let size = parse_size(&read_text(&path.join("size"))?).filter(|size| *size > 0)?;
    let line_bytes = number("coherency_line_size").unwrap_or(USUAL_LINE_BYTES);
    let lines = size / u64::from(line_bytes);
    // size = ways * sets * line, so that either follows from the other.
    let other = |known: Option<u32>| known.and_then(|known| u32::try_from(lines / u64::from(known)).ok());
    let (ways, sets) = (number("ways_of_associativity"), number("number_of_sets"));
    Some(Cache {
        level: u8::try_from(read_number(&path.join("level"))?).ok()?,
        kind,
        size,
        ways: ways.or_else(|| other(sets)),
        line_bytes,
        sets: sets.or_else(|| other(ways)),
        shared_cpus: read_list(&path.join("shared_cpu_list"))
            .filter(|cpus| !cpus.is_empty())
            .unwrap_or_else(|| vec![cpu]),
    })
}

fn read_nodes(directory: &Path) -> Vec<Node> {
    numbered(directory, "node")
        .into_iter()
        .map(|(id, path)| Node {
            id,
            cpus: read_list(&path.join("cpulist")).unwrap_or_default(),
            memory: read_text(&path.join("meminfo")).and_then(|text| kilobyte_field(&text, "MemTotal")),
            huge_pages: huge_pages::pools_at(&path.join("hugepages")),
            distances: read_text(&path.join("distance"))
                .and_then(|text| text.split_whitespace().map(|word| word.parse().ok()).collect())
                .unwrap_or_default(),
        })
        .collect()
}

/// The entries called `prefix` and a number, by number: `cpu0`, `cpu1`, `cpu10`; not `cpufreq`.
fn numbered(directory: &Path, prefix: &str) -> Vec<(usize, PathBuf)> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut found: Vec<_> = entries
        .flatten()
        .filter_map(|entry| {
            let number = entry.file_name().to_str()?.strip_prefix(prefix)?.parse().ok()?;
            Some((number, entry.path()))
        })
        .collect();
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests;
