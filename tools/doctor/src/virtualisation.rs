//! Whether there is a host above this machine, and what it takes.

use crate::finding::Finding;
use crate::tree::Tree;

/// More than this share of the time taken by the host is worth a word, in percent.
const NOTABLE_STEAL: f64 = 0.5;

pub(crate) fn virtual_machine(tree: Tree) -> Finding {
    let name = "virtual-machine";
    let firmware =
        |file: &str| tree.text(&format!("sys/class/dmi/id/{file}")).filter(|text| !text.is_empty());
    let product: Vec<String> =
        [firmware("sys_vendor"), firmware("product_name")].into_iter().flatten().collect();
    let product = if product.is_empty() { String::new() } else { format!(" ({})", product.join(" ")) };
    // The flag is bit 31 of CPUID leaf 1, ECX, which no processor sets itself; Xen's older kind has only the file.
    let flags = tree.field("proc/cpuinfo", "flags");
    let hypervisor = tree.text("sys/hypervisor/type").filter(|text| !text.is_empty());
    let flagged = flags.as_ref().map(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor"));
    match (hypervisor, flagged) {
        (None, Some(false)) => Finding::good(name, format!("none: this is the machine itself{product}")),
        (None, None) => Finding::not_known(name, format!("this processor doesn't tell{product}")),
        (hypervisor, _) => {
            let kind = hypervisor.map_or_else(String::new, |hypervisor| format!(" under {hypervisor}"));
            Finding::better(
                name,
                format!("this is a virtual machine{kind}{product}"),
                "have the host pin each virtual CPU to a core of its own (libvirt: `virsh vcpupin DOMAIN VCPU CPU`), \
                 back the memory with huge pages, and show the real topology",
            )
            .worth(
                "where the host moves virtual CPUs, a cache line took 65 ns or 270 ns from one to the other, for \
                 minutes and with no sign of it inside; a page walk under a hypervisor is up to 24 memory reads \
                 instead of 4",
            )
        }
    }
}

pub(crate) fn steal(tree: Tree) -> Finding {
    let name = "stolen-time";
    let text = tree.text("proc/stat").unwrap_or_default();
    // proc_stat(5): user nice system idle iowait irq softirq steal guest guest_nice; guest time is in user time.
    let ticks: Vec<u64> = text
        .lines()
        .find_map(|line| line.strip_prefix("cpu "))
        .map(|line| line.split_whitespace().map_while(|word| word.parse().ok()).take(8).collect())
        .unwrap_or_default();
    let Some(stolen) = ticks.get(7) else {
        return Finding::not_known(name, "/proc/stat does not say what the host took");
    };
    let idle = ticks[3] + ticks[4];
    let busy: u64 = ticks.iter().sum::<u64>() - idle;
    let percent = if busy == 0 { 0.0 } else { *stolen as f64 * 100.0 / busy as f64 };
    let found = format!("since boot the host took {percent:.2} % of the time in which CPUs had work");
    if percent < NOTABLE_STEAL {
        return Finding::good(name, found);
    }
    Finding::better(
        name,
        found,
        "move to a host with fewer guests, or have it dedicate CPUs to this one (libvirt: `virsh vcpupin`; clouds: \
         dedicated or \"pinned\" instance types)",
    )
    .worth(
        "a stolen time slice is milliseconds long, and a lane loses whatever arrives in it: 10,000 packets in each \
         millisecond at 10 Mpps",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Status;
    use crate::fixture::Fixture;

    #[test]
    fn a_guest_and_a_server() {
        let fixture = Fixture::with(&[
            ("proc/cpuinfo", "flags\t: fpu hypervisor lahf_lm\n"),
            ("sys/class/dmi/id/sys_vendor", "QEMU\n"),
            ("sys/class/dmi/id/product_name", "Standard PC (Q35 + ICH9, 2009)\n"),
        ]);
        let finding = virtual_machine(fixture.tree());
        assert_eq!(finding.status, Status::CouldBeBetter);
        assert!(finding.found.contains("QEMU Standard PC"), "{finding:?}");
        fixture.expect("proc/cpuinfo", "flags\t: fpu lahf_lm\n", virtual_machine, Status::Good);
        fixture.write("sys/hypervisor/type", "xen\n");
        assert!(virtual_machine(fixture.tree()).found.contains("under xen"));
    }

    #[test]
    fn steal_is_a_share_of_the_busy_time() {
        // 90 idle, 8 busy, 2 stolen: a fifth of what there was to do.
        let fixture = Fixture::with(&[("proc/stat", "cpu  8 0 0 80 10 0 0 2 0 0\ncpu0 1 2 3\n")]);
        let finding = steal(fixture.tree());
        assert_eq!(finding.status, Status::CouldBeBetter);
        assert!(finding.found.contains("20.00 %"), "{finding:?}");
        fixture.expect("proc/stat", "cpu  8 0 0 80 10 0 0 0 0 0\n", steal, Status::Good);
        fixture.expect("proc/stat", "cpu  8 0\n", steal, Status::NotKnown);
    }
}
