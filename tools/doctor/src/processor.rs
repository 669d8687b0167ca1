//! The CPUs: how many, who else uses them, how fast they run, how they count.

use crate::finding::Finding;
use crate::tree::Tree;
use std::time::Duration;
use warmlane_sys::cgroup::CpuGroup;
use warmlane_sys::format_list as list;
use warmlane_sys::topology::Topology;

const CPUS: &str = "sys/devices/system/cpu";

/// What `/sys` says; a machine that says nothing has no CPUs here.
fn topology(tree: Tree) -> Option<Topology> {
    Topology::from_root(tree.root()).ok()
}

/// The CPUs that this process may use.
pub(crate) fn allowed(tree: Tree) -> Option<Vec<usize>> {
    let text = tree.field("proc/self/status", "Cpus_allowed_list")?;
    crate::tree::parse_list(&text)
}

pub(crate) fn usable_cpus(tree: Tree) -> Finding {
    let name = "usable-cpus";
    let Some(allowed) = allowed(tree).filter(|cpus| !cpus.is_empty()) else {
        return Finding::not_known(name, "/proc/self/status does not say which CPUs this process may use");
    };
    let online = tree.cpus(&format!("{CPUS}/online")).unwrap_or_default();
    let found = match online.len() {
        0 => format!("this process may use CPUs {}", list(&allowed)),
        online => format!("this process may use {} of {online} CPUs: {}", allowed.len(), list(&allowed)),
    };
    if allowed.len() > 1 {
        return Finding::good(name, found);
    }
    let remedy = if online.len() > 1 {
        format!("start it with `taskset -c {} warmlane ...`, or give its container more CPUs", list(&online))
    } else {
        "use a machine with more CPUs, or let lanes yield when idle".to_owned()
    };
    Finding::better(name, found, remedy).worth(
        "a lane polls and never leaves its CPU: on the only one it shares every time slice with all other programs, \
         and two lanes never run at once",
    )
}

pub(crate) fn quota(tree: Tree) -> Finding {
    let name = "cpu-quota";
    let group = CpuGroup::at(tree.root());
    let Some((group, quota)) = group.and_then(|group| group.quota().map(|quota| (group, quota))) else {
        return Finding::good(name, "no control group limits this process's CPU time");
    };
    let cpus = quota.cpus();
    // The fewest lanes that use it up, of as many as a machine may have CPUs.
    let used_up = (1..=8_192).find_map(|lanes| Some((lanes, quota.stopped(lanes)?)));
    let (lanes, stopped) = used_up.unwrap_or_default();
    let millis = |time: Duration| time.as_secs_f64() * 1e3;
    Finding::better(
        name,
        format!("the control group {} limits this process to {cpus:.2} CPUs' time", group.name()),
        "remove the limit: `echo max > /sys/fs/cgroup/GROUP/cpu.max`, or in version 1 `echo -1 > \
         /sys/fs/cgroup/cpu/GROUP/cpu.cfs_quota_us`; in Kubernetes, ask for whole CPUs with the static CPU manager policy",
    )
    .worth(format!(
        "{lanes} lane(s) that never sleep (`--spin`, `--idle latency`) use it up, and the kernel stops all of them for {:.0} ms of every \
         {:.0} ms: at 10 Mpps each millisecond is 10,000 packets lost. Lanes that sleep when they find nothing (`--idle balanced` or \
         `power`) only use up what they are busy for, and lose nothing as long as that is less than {cpus:.2} CPUs in every period",
        millis(stopped),
        millis(quota.period),
    ))
}

pub(crate) fn weight(tree: Tree) -> Finding {
    let name = "cpu-weight";
    let Some((group, weight)) =
        CpuGroup::at(tree.root()).and_then(|group| group.weight().map(|weight| (group, weight)))
    else {
        return Finding::not_known(name, "no control group that is visible here gives this process a weight");
    };
    if weight >= 1.0 {
        return Finding::good(
            name,
            format!("the control group {} has {weight:.2} of the usual weight", group.name()),
        );
    }
    Finding::better(
        name,
        format!("the control group {} has {weight:.2} of the usual weight", group.name()),
        "raise it: `echo 100 > /sys/fs/cgroup/GROUP/cpu.weight`, or in version 1 `echo 1024 > /sys/fs/cgroup/cpu/GROUP/cpu.shares`",
    )
    .worth(format!(
        "beside a program of the usual weight that is always busy on its CPU, a lane gets {:.0} % of it instead of 50 %",
        100.0 * weight / (1.0 + weight)
    ))
}

pub(crate) fn isolation(tree: Tree) -> Finding {
    let name = "isolation";
    let Some(isolated) = tree.cpus(&format!("{CPUS}/isolated")) else {
        return Finding::not_known(name, "the kernel does not say which CPUs are isolated");
    };
    let tickless = tree.cpus(&format!("{CPUS}/nohz_full")).unwrap_or_default();
    let missing: Vec<usize> = isolated.iter().copied().filter(|cpu| !tickless.contains(cpu)).collect();
    if !isolated.is_empty() && missing.is_empty() {
        return Finding::good(name, format!("CPUs {} are isolated and without timer tick", list(&isolated)));
    }
    let found = if isolated.is_empty() {
        "no CPU is isolated: the kernel may run anything beside a lane".to_owned()
    } else {
        format!("CPUs {} are isolated, but {} keep their timer tick", list(&isolated), list(&missing))
    };
    let lanes = if isolated.is_empty() { lane_cpus(tree) } else { isolated };
    if lanes.is_empty() {
        return Finding::good(name, "there is no second core that could be isolated");
    }
    let lanes = list(&lanes);
    Finding::better(
        name,
        found,
        format!(
            "boot with `isolcpus=managed_irq,domain,{lanes} nohz_full={lanes} rcu_nocbs={lanes}`, and keep the \
             lanes on {lanes}"
        ),
    )
    .worth(
        "mean speed hardly changes, the tail does: a program that is scheduled on a lane's CPU takes it for \
         milliseconds, and at 10 Mpps one millisecond is 10,000 packets, more than a receive ring of 4,096 holds",
    )
}

/// All CPUs but those of the first core, which is left to the rest of the system.
fn lane_cpus(tree: Tree) -> Vec<usize> {
    let Some(topology) = topology(tree) else { return Vec::new() };
    let first = topology.online().next().map(|cpu| cpu.siblings.clone()).unwrap_or_default();
    topology.online().map(|cpu| cpu.id).filter(|id| !first.contains(id)).collect()
}

pub(crate) fn sibling_threads(tree: Tree) -> Finding {
    let name = "sibling-threads";
    let Some(topology) = topology(tree) else {
        return Finding::not_known(name, "the kernel does not describe its CPUs");
    };
    let online: Vec<usize> = topology.online().map(|cpu| cpu.id).collect();
    let shared = topology.online().find_map(|cpu| {
        let running: Vec<usize> = cpu.siblings.iter().copied().filter(|id| online.contains(id)).collect();
        (running.len() > 1).then_some(running)
    });
    let Some(siblings) = shared else {
        return Finding::good(name, "every CPU is a core of its own, as far as the machine shows");
    };
    Finding::better(
        name,
        format!("cores run more than one thread: CPUs {} are one core", list(&siblings)),
        "pin independent lanes to different cores (`lscpu -e` shows which), or `echo off > \
         /sys/devices/system/cpu/smt/control`",
    )
    .worth(
        "two lanes on one core share its first- and second-level cache and its execution units, so each gets less; \
         only two stages of one pipeline gain from it, because the second finds the packets in the shared cache",
    )
}

pub(crate) fn governor(tree: Tree) -> Finding {
    let name = "governor";
    let cpus = tree.cpus(&format!("{CPUS}/online")).unwrap_or_default();
    let slow: Vec<(usize, String)> = cpus
        .iter()
        .filter_map(|cpu| Some((*cpu, tree.text(&format!("{CPUS}/cpu{cpu}/cpufreq/scaling_governor"))?)))
        .collect();
    if slow.is_empty() {
        return Finding::not_known(
            name,
            "the kernel does not control the CPUs' frequency: the host or the firmware does",
        );
    }
    let Some((cpu, governor)) = slow.iter().find(|(_, governor)| governor != "performance") else {
        return Finding::good(name, "all CPUs run under the performance governor");
    };
    Finding::better(
        name,
        format!("CPU {cpu} runs under the {governor} governor"),
        "`cpupower frequency-set -g performance`",
    )
    .worth(
        "cycles per packet stay, but each takes longer until the frequency has risen, so the first burst after a \
         quiet time is the slowest; and measurements don't repeat",
    )
}

pub(crate) fn boost(tree: Tree) -> Finding {
    let name = "boost";
    let on = tree
        .number(&format!("{CPUS}/cpufreq/boost"))
        .map(|value| (value == 1, "echo 1 > /sys/devices/system/cpu/cpufreq/boost"))
        .or_else(|| {
            // Intel's own driver asks the opposite question.
            let off = tree.number(&format!("{CPUS}/intel_pstate/no_turbo"))?;
            Some((off == 0, "echo 0 > /sys/devices/system/cpu/intel_pstate/no_turbo"))
        });
    match on {
        None => {
            Finding::not_known(name, "the kernel does not say whether frequencies above the nominal are used")
        }
        Some((true, _)) => Finding::good(
            name,
            "on: CPUs run above their nominal frequency while temperature allows; turn it off for measurements that \
             must repeat",
        ),
        Some((false, command)) => Finding::better(
            name,
            "off: no CPU runs above its nominal frequency; right for measurements, not for service",
            format!("`{command}`"),
        )
        .worth("what computes gets faster with the frequency; what waits for memory does not"),
    }
}

pub(crate) fn cycle_counter(tree: Tree) -> Finding {
    let name = "cycle-counter";
    let source = "sys/devices/system/clocksource/clocksource0";
    let current = tree.text(&format!("{source}/current_clocksource"));
    let Some(current) = current else {
        return Finding::not_known(name, "the kernel does not name its clock source");
    };
    // Arm's counter is constant by definition and has no flags.
    let flags = tree.field("proc/cpuinfo", "flags");
    let promised = flags.as_ref().is_none_or(|flags| {
        ["constant_tsc", "nonstop_tsc"].iter().all(|flag| flags.split_whitespace().any(|word| word == *flag))
    });
    let distrusted = ["hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit"].contains(&current.as_str());
    let worth = "figures in cycles can't be turned into time, rates and timestamps drift; and each look at a clock \
                 that is not the counter takes a microsecond instead of about 20 ns";
    if distrusted {
        let available = tree.text(&format!("{source}/available_clocksource")).unwrap_or_default();
        let remedy = if available.split_whitespace().any(|word| word == "tsc") {
            "`echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource`; if the kernel takes it \
             back, `dmesg | grep -i tsc` says why"
        } else {
            "`dmesg | grep -i tsc` says why the kernel gave the counter up; `tsc=reliable` at boot overrules it"
        };
        return Finding::better(
            name,
            format!("the kernel uses {current} because it distrusts the counter"),
            remedy,
        )
        .worth(worth);
    }
    if !promised {
        return Finding::better(
            name,
            format!("the processor does not promise a constant rate; the kernel's clock source is {current}"),
            "keep the frequency constant (performance governor, no boost); in a virtual machine pass the host's \
             counter on (QEMU: `-cpu host,+invtsc`)",
        )
        .worth(worth);
    }
    Finding::good(name, format!("constant rate in all power states; the kernel's clock source is {current}"))
}

pub(crate) fn vectors(tree: Tree) -> Finding {
    let name = "vector-instructions";
    let flags = tree.field("proc/cpuinfo", "flags").or_else(|| tree.field("proc/cpuinfo", "Features"));
    let Some(flags) = flags else {
        return Finding::not_known(name, "the kernel does not list the processor's instructions");
    };
    let has = |wanted: &[&str]| wanted.iter().all(|flag| flags.split_whitespace().any(|word| word == *flag));
    if has(&["avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd"]) {
        return Finding::good(name, "AVX-512");
    }
    if has(&["asimd"]) {
        return Finding::good(name, "NEON");
    }
    let found = if has(&["avx2", "bmi1", "bmi2"]) { "AVX2, no AVX-512" } else { "neither AVX2 nor AVX-512" };
    Finding::better(
        name,
        found,
        "nothing on this processor; in a virtual machine let the host pass its instructions on (QEMU: `-cpu host`)",
    )
    .worth("IPv4 lookups in a full Internet table took DPDK's table 14.6 cycles without and 8.9 with AVX-512 (Zen 5)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Status;
    use crate::fixture::Fixture;

    fn two_cores_of_two_threads() -> Fixture {
        let fixture = Fixture::with(&[
            ("proc/self/status", "Name:\tx\nCpus_allowed_list:\t0-3\n"),
            ("sys/devices/system/cpu/online", "0-3\n"),
            ("sys/devices/system/cpu/isolated", "\n"),
        ]);
        for cpu in 0..4 {
            let siblings = if cpu % 2 == 0 { "0,2\n" } else { "1,3\n" };
            let path = format!("sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list");
            fixture.write(&path, siblings);
        }
        fixture
    }

    #[test]
    fn usable_cpus_are_counted() {
        let fixture = two_cores_of_two_threads();
        let finding = usable_cpus(fixture.tree());
        assert_eq!(finding.status, Status::Good);
        assert_eq!(finding.found, "this process may use 4 of 4 CPUs: 0-3");
        fixture.write("proc/self/status", "Cpus_allowed_list:\t2\n");
        let finding = usable_cpus(fixture.tree());
        assert_eq!(finding.status, Status::CouldBeBetter);
        assert!(finding.remedy.unwrap().contains("taskset -c 0-3 "));
    }

    #[test]
    fn the_tightest_quota_above_the_process_counts() {
        let fixture = Fixture::with(&[
            ("proc/self/cgroup", "0::/pods/one\n"),
            ("sys/fs/cgroup/pods/cpu.max", "150000 100000\n"),
            ("sys/fs/cgroup/pods/one/cpu.max", "max 100000\n"),
        ]);
        let finding = quota(fixture.tree());
        assert_eq!(finding.status, Status::CouldBeBetter);
        assert!(finding.found.contains("1.50 CPUs"), "{finding:?}");
        assert!(finding.worth.unwrap().contains("100 ms"));
        fixture.expect("sys/fs/cgroup/pods/cpu.max", "max 100000\n", quota, Status::Good);
    }

    #[test]
    fn what_a_quota_does_to_lanes_is_told() {
        let fixture = Fixture::with(&[
            ("proc/self/cgroup", "3:cpu:/box\n"),
            ("sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "30000\n"),
            ("sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000\n"),
        ]);
        let finding = quota(fixture.tree());
        assert!(finding.found.contains("/box") && finding.found.contains("0.30 CPUs"), "{finding:?}");
        let worth = finding.worth.unwrap();
        assert!(worth.contains("1 lane(s)") && worth.contains("for 70 ms of every 100 ms"), "{worth}");
        // With one and a half CPUs, two lanes are stopped for a quarter.
        fixture.write("sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "150000\n");
        let worth = quota(fixture.tree()).worth.unwrap();
        assert!(worth.contains("2 lane(s)") && worth.contains("for 25 ms of every 100 ms"), "{worth}");
    }

    #[test]
    fn a_low_weight_is_told() {
        let fixture =
            Fixture::with(&[("proc/self/cgroup", "0::/box\n"), ("sys/fs/cgroup/box/cpu.weight", "50\n")]);
        let finding = weight(fixture.tree());
        assert_eq!(finding.status, Status::CouldBeBetter);
        assert!(finding.worth.unwrap().contains("gets 33 % of it"));
        fixture.expect("sys/fs/cgroup/box/cpu.weight", "100\n", weight, Status::Good);
        assert_eq!(weight(Fixture::new().tree()).status, Status::NotKnown);
    }

    #[test]
    fn isolation_is_proposed_for_all_cores_but_the_first() {
        let fixture = two_cores_of_two_threads();
        let finding = isolation(fixture.tree());
        assert_eq!(finding.status, Status::CouldBeBetter);
        assert!(
            finding.remedy.unwrap().contains("isolcpus=managed_irq,domain,1,3 nohz_full=1,3 rcu_nocbs=1,3")
        );
        fixture.write("sys/devices/system/cpu/isolated", "1,3\n");
        assert!(isolation(fixture.tree()).found.contains("keep their timer tick"));
        fixture.expect("sys/devices/system/cpu/nohz_full", "1-3\n", isolation, Status::Good);
    }

    #[test]
    fn sibling_threads_are_named() {
        let fixture = two_cores_of_two_threads();
        let finding = sibling_threads(fixture.tree());
        assert_eq!(finding.status, Status::CouldBeBetter);
        assert!(finding.found.contains("CPUs 0,2 are one core"), "{finding:?}");
        // With one of each pair offline nothing is shared any more.
        fixture.expect("sys/devices/system/cpu/online", "0-1\n", sibling_threads, Status::Good);
    }

    #[test]
    fn one_slow_governor_is_enough() {
        let fixture = two_cores_of_two_threads();
        assert_eq!(governor(fixture.tree()).status, Status::NotKnown);
        for cpu in 0..4 {
            let path = format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor");
            fixture.write(&path, "performance\n");
        }
        assert_eq!(governor(fixture.tree()).status, Status::Good);
        fixture.write("sys/devices/system/cpu/cpu3/cpufreq/scaling_governor", "powersave\n");
        assert_eq!(governor(fixture.tree()).found, "CPU 3 runs under the powersave governor");
    }

    #[test]
    fn both_drivers_ways_to_say_boost() {
        let fixture = Fixture::with(&[("sys/devices/system/cpu/intel_pstate/no_turbo", "1\n")]);
        let finding = boost(fixture.tree());
        assert_eq!(finding.status, Status::CouldBeBetter);
        assert!(finding.remedy.unwrap().contains("echo 0 > /sys/devices/system/cpu/intel_pstate/no_turbo"));
        fixture.expect("sys/devices/system/cpu/cpufreq/boost", "1\n", boost, Status::Good);
    }

    #[test]
    fn a_counter_that_the_kernel_gave_up() {
        let source = "sys/devices/system/clocksource/clocksource0";
        let fixture = Fixture::with(&[
            ("proc/cpuinfo", "flags\t\t: fpu constant_tsc nonstop_tsc\n"),
            ("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n"),
            ("sys/devices/system/clocksource/clocksource0/available_clocksource", "tsc hpet acpi_pm\n"),
        ]);
        assert!(cycle_counter(fixture.tree()).remedy.unwrap().starts_with("`echo tsc > "));
        fixture.expect(&format!("{source}/current_clocksource"), "tsc\n", cycle_counter, Status::Good);
        fixture.expect("proc/cpuinfo", "flags\t\t: fpu constant_tsc\n", cycle_counter, Status::CouldBeBetter);
        // Arm has no such flags.
        fixture.expect("proc/cpuinfo", "Features\t: fp asimd\n", cycle_counter, Status::Good);
    }

    #[test]
    fn vector_levels() {
        let fixture = Fixture::with(&[("proc/cpuinfo", "flags : avx2 bmi1 bmi2\n")]);
        assert_eq!(vectors(fixture.tree()).found, "AVX2, no AVX-512");
        fixture.expect(
            "proc/cpuinfo",
            "flags : avx2 avx512f avx512bw avx512dq avx512vl avx512cd\n",
            vectors,
            Status::Good,
        );
        fixture.write("proc/cpuinfo", "Features\t: fp asimd\n");
        assert_eq!(vectors(fixture.tree()).found, "NEON");
    }
}
