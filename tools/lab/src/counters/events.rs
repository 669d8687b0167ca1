//! Which events there are, and how they are opened.

use perf_event::events::{Cache, CacheId, CacheOp, CacheResult, Dynamic, Hardware, Raw, Software};
use perf_event::{Builder, Counter, events};
use std::fs;
use std::io;
use std::path::Path;

/// Something that can be counted.
pub(super) struct Event {
    /// What tables call it.
    pub(super) name: &'static str,
    /// Whether hardware counts it, or the kernel.
    pub(super) hardware: bool,
    /// What is counted.
    pub(super) factor: f64,
    /// The counters whose sum it is.
    pub(super) open: fn() -> io::Result<Vec<Counter>>,
}

/// A transfer of a memory controller moves a line.
const LINE_BYTES: f64 = 64.0;

pub(super) const EVENTS: &[Event] = &[
    Event { name: "cycles", hardware: true, factor: 1.0, open: || of_thread(Hardware::CPU_CYCLES) },
    Event { name: "instructions", hardware: true, factor: 1.0, open: || of_thread(Hardware::INSTRUCTIONS) },
    Event { name: "L1 misses", hardware: true, factor: 1.0, open: || of_thread(read_misses(CacheId::L1D)) },
    Event { name: "L2 misses", hardware: true, factor: 1.0, open: second_level },
    Event { name: "LLC misses", hardware: true, factor: 1.0, open: last_level },
    Event { name: "DRAM bytes read", hardware: true, factor: LINE_BYTES, open: || memory(Direction::Read) },
    Event {
        name: "DRAM bytes written",
        hardware: true,
        factor: LINE_BYTES,
        open: || memory(Direction::Write),
    },
    Event { name: "page faults", hardware: false, factor: 1.0, open: || of_thread(Software::PAGE_FAULTS) },
];

/// An error of perf_event_open(2) in words.
pub(super) fn reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV) => {
            "this processor, or its hypervisor, does not offer it".to_owned()
        }
        Some(libc::EACCES | libc::EPERM) => {
            "not permitted; as root, or after `sysctl kernel.perf_event_paranoid=-1`".to_owned()
        }
        _ => error.to_string(),
    }
}

/// Counts for the calling thread, in user space.
fn of_thread(event: impl events::Event) -> io::Result<Vec<Counter>> {
    Ok(vec![Builder::new(event).build()?])
}

/// Counts all that a part of the machine does, which `cpu` belongs to.
fn of_machine(event: Dynamic, cpu: usize) -> io::Result<Counter> {
    // Such parts can't tell user space from the kernel and refuse to leave one out.
    Builder::new(event).any_pid().one_cpu(cpu).include_kernel().include_hv().build()
}

fn read_misses(which: CacheId) -> Cache {
    Cache { which, operation: CacheOp::READ, result: CacheResult::MISS }
}

/// There is no general name for it.
fn second_level() -> io::Result<Vec<Counter>> {
    let vendor = warmlane_sys::machine::MachineFacts::read().cpu_vendor.unwrap_or_default();
    match vendor.as_str() {
        // Intel SDM volume 3, L2_RQSTS.MISS, since Skylake.
        "GenuineIntel" => of_thread(Raw::new(0x3f24)),
        // AMD processor programming reference, family 17h and later: PMCx064, misses of instruction and data requests.
        "AuthenticAMD" => of_thread(Raw::new(0x0964)),
        // Arm architecture reference manual, PMUv3 event L2D_CACHE_REFILL.
        _ if cfg!(target_arch = "aarch64") => of_thread(Raw::new(0x17)),
        _ => Err(io::Error::other("the event's number is not known for this processor")),
    }
}

/// Of the thread, where the core tells; else of all cores that share the cache.
fn last_level() -> io::Result<Vec<Counter>> {
    of_thread(read_misses(CacheId::LL)).or_else(|error| {
        if !device("amd_l3").exists() {
            return Err(error);
        }
        // As the kernel's tools/perf/pmu-events/arch/x86/amdzen4 has it for l3_lookup_state.l3_miss.
        let fields = [
            ("event", 0x04),
            ("umask", 0x01),
            ("enallcores", 1),
            ("enallslices", 1),
            ("sliceid", 3),
            ("threadmask", 3),
        ];
        let cpu = warmlane_sys::affinity::allowed_cpus().ok().and_then(|cpus| cpus.first().copied());
        Ok(vec![of_machine(with_fields("amd_l3", &fields)?, cpu.unwrap_or(0))?])
    })
}

#[derive(Clone, Copy)]
enum Direction {
    Read,
    Write,
}

fn device(name: &str) -> std::path::PathBuf {
    Path::new("/sys/bus/event_source/devices").join(name)
}

/// The sum over all memory controllers.
fn memory(direction: Direction) -> io::Result<Vec<Counter>> {
    let mut counters = Vec::new();
    for entry in fs::read_dir(device(""))?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let event = if name.starts_with("uncore_imc") {
            let event = match direction {
                Direction::Read => "cas_count_read",
                Direction::Write => "cas_count_write",
            };
            if !entry.path().join("events").join(event).exists() {
                continue;
            }
            let mut builder = Dynamic::builder(&name)?;
            builder.event(event)?;
            finished(builder)?
        } else if name.starts_with("amd_umc") {
            // As tools/perf/pmu-events/arch/x86/amdzen4 has it for umc_cas_cmd.rd and .wr.
            let mask = match direction {
                Direction::Read => 1,
                Direction::Write => 2,
            };
            with_fields(&name, &[("event", 0x0a), ("rdwrmask", mask)])?
        } else {
            continue;
        };
        // One CPU of each socket speaks for its controllers.
        let cpus = fs::read_to_string(entry.path().join("cpumask")).unwrap_or_else(|_| "0".to_owned());
        for cpu in cpus.trim().split(',').filter_map(|cpu| cpu.split('-').next()?.parse().ok()) {
            counters.push(of_machine(event, cpu)?);
        }
    }
    if counters.is_empty() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    Ok(counters)
}

fn with_fields(name: &str, fields: &[(&str, u64)]) -> io::Result<Dynamic> {
    let mut builder = Dynamic::builder(name)?;
    for &(field, value) in fields {
        builder.field(field, value).map_err(io::Error::other)?;
    }
    finished(builder)
}

/// Fields that nobody set are 0.
fn finished(mut builder: perf_event::events::DynamicBuilder) -> io::Result<Dynamic> {
    let unset: Vec<String> = builder.params().map(str::to_owned).collect();
    for field in unset {
        builder.field(&field, 0).map_err(io::Error::other)?;
    }
    builder.build().map_err(io::Error::other)
}
