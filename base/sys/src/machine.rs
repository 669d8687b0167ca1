//! The facts without which a measurement means nothing on another machine.

use std::fs;
use std::path::Path;

use crate::clock::Clock;
use crate::huge_pages::{self, HugePagePool, TransparentHugePages};
use crate::text::{kilobyte_field, read_list, read_number, read_text};

/// What a benchmark report says about the machine. Whatever can't be found out is `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineFacts {
    /// The processor's name with family and model, since virtual machines tend to hide the name; on Arm, where it has none,
    /// implementer and part number.
    pub cpu_model: Option<String>,
    /// Who made it.
    pub cpu_vendor: Option<String>,
    /// Its microcode's revision.
    pub microcode: Option<String>,
    /// CPUs online.
    pub cpus: Option<usize>,
    /// Do cores run two threads now?
    pub simultaneous_threads: Option<bool>,
    /// How the first CPU's frequency is chosen: `performance`, `powersave`, ..
    pub governor: Option<String>,
    /// May the frequency rise above the nominal one?
    pub boost: Option<bool>,
    /// The kernel's release.
    pub kernel: Option<String>,
    /// The hypervisor's name; `None` on bare metal, or if it hides.
    pub hypervisor: Option<String>,
    /// Maker and model of the (virtual) computer.
    pub product: Option<String>,
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Reserved huge pages, smallest first.
    pub huge_pages: Vec<HugePagePool>,
    /// How transparent huge pages are set up.
    pub transparent: TransparentHugePages,
    /// Ticks of the cycle counter in a second, measured.
    pub cycles_per_second: u64,
    /// Does the counter tick at one rate?
    pub invariant_cycles: bool,
}

impl MachineFacts {
    /// Collects the facts of this machine. Takes 20 ms if the clock hasn't been calibrated yet.
    pub fn read() -> Self {
        Self::from_root(Path::new("/"), signature(), Clock::calibrated())
    }

    fn from_root(root: &Path, signature: Option<String>, clock: &Clock) -> Self {
        let processors = fs::read_to_string(root.join("proc/cpuinfo")).unwrap_or_default();
        let field = |name| cpuinfo_field(&processors, name);
        let cpus = root.join("sys/devices/system/cpu");
        let firmware = root.join("sys/class/dmi/id");
        let flag = |path: &str| read_number(&cpus.join(path)).map(|value| value == 1);
        Self {
            cpu_model: cpu_model(&processors),
            cpu_vendor: field("vendor_id").or_else(|| field("CPU implementer")),
            microcode: field("microcode"),
            cpus: read_list(&cpus.join("online")).map(|list| list.len()),
            simultaneous_threads: flag("smt/active"),
            governor: read_text(&cpus.join("cpu0/cpufreq/scaling_governor")),
            // Intel's own driver has the opposite question.
            boost: flag("cpufreq/boost").or_else(|| flag("intel_pstate/no_turbo").map(|disabled| !disabled)),
            kernel: read_text(&root.join("proc/sys/kernel/osrelease")),
            hypervisor: signature
                .map(|signature| hypervisor_name(&signature).to_owned())
                .or_else(|| read_text(&root.join("sys/hypervisor/type"))),
            product: join(read_text(&firmware.join("sys_vendor")), read_text(&firmware.join("product_name"))),
            memory: read_text(&root.join("proc/meminfo")).and_then(|text| kilobyte_field(&text, "MemTotal")),
            huge_pages: huge_pages::pools_at(&root.join("sys/kernel/mm/hugepages")),
            transparent: huge_pages::transparent_at(&root.join("sys/kernel/mm/transparent_hugepage")),
            cycles_per_second: clock.cycles_per_second(),
            invariant_cycles: clock.invariant(),
        }
    }
}

fn join(maker: Option<String>, model: Option<String>) -> Option<String> {
    match (maker, model) {
        (Some(maker), Some(model)) => Some(format!("{maker} {model}")),
        (one, other) => one.or(other),
    }
}

fn cpu_model(processors: &str) -> Option<String> {
    let field = |name| cpuinfo_field(processors, name);
    let Some(name) = field("model name") else {
        return Some(format!("implementer {} part {}", field("CPU implementer")?, field("CPU part")?));
    };
    Some(match (field("cpu family"), field("model")) {
        (Some(family), Some(model)) => format!("{name} (family {family} model {model})"),
        _ => name,
    })
}

/// The value of the first `name : value` line.
fn cpuinfo_field(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (label, value) = line.split_once(':')?;
        (label.trim() == name && !value.trim().is_empty()).then(|| value.trim().to_owned())
    })
}

/// The product behind a CPUID signature (each from its hypervisor's own interface documentation); an unknown
/// signature speaks for itself.
fn hypervisor_name(signature: &str) -> &str {
    match signature {
        "KVMKVMKVM" | "Linux KVM Hv" => "KVM",
        "VMwareVMware" => "VMware",
        "Microsoft Hv" => "Hyper-V",
        "XenVMMXenVMM" => "Xen",
        "TCGTCGTCGTCG" => "QEMU without acceleration",
        "bhyve bhyve" => "bhyve",
        "" => "unnamed",
        other => other,
    }
}

fn signature() -> Option<String> {
    #[cfg(target_arch = "x86_64")]
    {
        crate::cpuid::hypervisor_signature()
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn a_server_tells_all() {
        let root = tempfile::tempdir().unwrap();
        let at = root.path();
        write(
            at,
            "proc/cpuinfo",
            "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 173\nmodel name\t: Xeon 1\nmicrocode\t: 0xd\n",
        );
        write(at, "proc/meminfo", "MemTotal:  2048 kB\n");
        write(at, "proc/sys/kernel/osrelease", "6.12.1\n");
        write(at, "sys/devices/system/cpu/online", "0-3\n");
        write(at, "sys/devices/system/cpu/smt/active", "0\n");
        write(at, "sys/devices/system/cpu/intel_pstate/no_turbo", "1\n");
        write(at, "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n");
        write(at, "sys/class/dmi/id/sys_vendor", "Maker Inc.\n");
        write(at, "sys/class/dmi/id/product_name", "R1\n");
        write(at, "sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n");
        let facts = MachineFacts::from_root(at, Some("Microsoft Hv".to_owned()), Clock::calibrated());
        assert_eq!(facts.cpu_model.as_deref(), Some("Xeon 1 (family 6 model 173)"));
        assert_eq!(facts.cpu_vendor.as_deref(), Some("GenuineIntel"));
        assert_eq!(facts.microcode.as_deref(), Some("0xd"));
        assert_eq!(
            (facts.cpus, facts.simultaneous_threads, facts.boost),
            (Some(4), Some(false), Some(false))
        );
        assert_eq!(facts.governor.as_deref(), Some("performance"));
        assert_eq!(facts.kernel.as_deref(), Some("6.12.1"));
        assert_eq!(facts.hypervisor.as_deref(), Some("Hyper-V"));
        assert_eq!(facts.product.as_deref(), Some("Maker Inc. R1"));
        assert_eq!(facts.memory, Some(2 << 20));
        assert_eq!(facts.transparent.private.as_deref(), Some("always"));
    }

    #[test]
    fn an_arm_board_and_an_empty_container_tell_less() {
        let root = tempfile::tempdir().unwrap();
        let facts = MachineFacts::from_root(root.path(), None, Clock::calibrated());
        assert_eq!((facts.cpu_model, facts.kernel, facts.memory, facts.cpus), (None, None, None, None));
        write(root.path(), "proc/cpuinfo", "CPU implementer\t: 0x41\nCPU part\t: 0xd0c\n");
        let facts = MachineFacts::from_root(root.path(), None, Clock::calibrated());
        assert_eq!(facts.cpu_model.as_deref(), Some("implementer 0x41 part 0xd0c"));
    }

    #[test]
    fn this_machine() {
        let facts = MachineFacts::read();
        eprintln!("{facts:#?}");
        assert!(facts.kernel.is_some() && facts.memory.is_some());
        assert!(facts.cycles_per_second >= 1_000_000);
    }
}
