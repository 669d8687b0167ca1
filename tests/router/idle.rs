//! Lanes that little arrives at, that share a CPU, and that have only a part of one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use warmlane_system_tests::{Flood, LONG, RouterLab, SHORT, turn};
use warmlane_testkit::Report;
use warmlane_testkit::exchange::until;
use warmlane_testkit::process::{Process, warmlane};
use warmlane_testkit::requirements;

const EAST: &str = "198.51.100.2";
/// Three quarters of a ring: a lane that sleeps has posted as many buffers as that takes, however late it wakes.
const BURST: u32 = 1_500;
/// Fewer than the 1,024 buffers that a lane has posted which doesn't sleep.
const BURST_AWAKE: u32 = 900;

/// What was sent to the east, as the router counts it.
fn sent_east(lab: &RouterLab) -> u64 {
    let counters = lab.ask("counters");
    let ports = counters["ports"].as_array().expect("ports");
    let east = ports.iter().find(|port| port["name"] == "e0").expect("the port to the east");
    east["transmitted"]["packets"].as_u64().expect("a number")
}

/// What the link to the router has dropped, as the sender counts it: on a busy machine its queue of 256 entries may not be emptied in time.
fn dropped_by_link(lab: &RouterLab) -> u64 {
    let finished = lab.west.run("ip -json -statistics link show dev w0");
    let link: Value = serde_json::from_str(finished.expect_success("ip link")).expect("JSON");
    link[0]["stats64"]["tx"]["dropped"].as_u64().expect("a number")
}

/// Sends so many packets, and waits until all that the link let through are sent on.
fn burst_comes_through(lab: &RouterLab, count: u32) {
    let (before, dropped) = (sent_east(lab), dropped_by_link(lab));
    Flood::burst(&lab.west, count, EAST);
    let missing = || {
        let dropped = dropped_by_link(lab) - dropped;
        (before + u64::from(count)).saturating_sub(sent_east(lab) + dropped)
    };
    let end = Instant::now() + SHORT;
    while missing() > 0 {
        assert!(Instant::now() < end, "{} packets are missing: {:#}", missing(), lab.ask("counters"));
        thread::sleep(Duration::from_millis(50));
    }
}

/// A lane that sleeps has posted buffers for what may come at once.
#[test]
fn nothing_is_lost_of_a_burst_after_ten_seconds_without_traffic() {
    let policies = ["--idle latency", "--idle balanced", "--idle power"];
    let labs = policies.iter().map(|_| RouterLab::new(1500, &["python3"])).collect::<Option<Vec<_>>>();
    let Some(labs) = labs else { return };
    let routers: Vec<Process> =
        labs.iter().zip(policies).map(|(lab, policy)| lab.start("w0 e0", policy)).collect();
    for lab in &labs {
        // Neighbours get to know each other.
        RouterLab::check_ping(&lab.west, &[EAST]);
    }
    thread::sleep(Duration::from_secs(10));
    for lab in &labs {
        burst_comes_through(lab, BURST);
    }
    for (router, policy) in routers.into_iter().zip(policies) {
        let report = RouterLab::finish(router);
        // All have slept: two seconds after the last packet also the one that waits for the next.
        assert!(report.number("/lanes/0/sleeps") > 0, "{policy}: {:#}", report.value());
        assert!(report.drops("/ports/0/received/drops").is_empty(), "{policy}: {:#}", report.value());
    }
}

/// Two lanes on one CPU forward, with deeper rings, and it is said.
#[test]
fn two_lanes_may_share_a_cpu() {
    let Some(lab) = RouterLab::with_queues(1500, 2, &["python3"]) else { return };
    let cpu = warmlane::sys::affinity::allowed_cpus().expect("CPUs")[0];
    let mut router = lab.spawn("w0 e0", &format!("--spin --cpus {cpu},{cpu}"));
    router.wait_for("2 lanes share a CPU", SHORT);
    RouterLab::check_ping(&lab.west, &[EAST, "2001:db8:2::2", "198.51.100.3", "2001:db8:2::3"]);
    burst_comes_through(&lab, BURST_AWAKE);
    RouterLab::finish(router);
}

/// The experiment that measures all this: a router, a generator, and what both say.
#[test]
fn the_experiment_finds_what_packets_take_through_a_router_that_sleeps() {
    if !requirements::namespaces_and(&["ip", "sysctl", "taskset"]) || !requirements::cpus(2) {
        return;
    }
    let _alone = turn::alone();
    let arguments = "lab interrupt --only balanced --rounds 1 --seconds 0.01 --json";
    let finished = Process::run(Command::new(warmlane()).args(arguments.split(' ')), LONG);
    let record: Value = serde_json::from_str(finished.expect_success("warmlane lab")).expect("a record");
    let rows = record["rows"].as_array().expect("rows");
    let balanced: Vec<&Value> = rows.iter().filter(|row| row[0] == "balanced").collect();
    assert_eq!(balanced.len(), 7, "{record:#}");
    // CPU, and, where there is traffic, what each packet takes.
    assert!(balanced.iter().all(|row| row[2].as_f64().is_some_and(|percent| percent >= 0.0)), "{record:#}");
    assert!(balanced[1..].iter().all(|row| row[4].as_f64().is_some_and(|micros| micros > 0.0)), "{record:#}");
    // Others were not asked for.
    assert!(rows.iter().filter(|row| row[0] != "balanced").all(|row| row[2].is_null()), "{record:#}");
}

/// A control group for CPU time, removed when this is dropped.
struct Group {
    directory: PathBuf,
}

impl Group {
    /// A fifth of a CPU in periods of a tenth of a second. `None` where groups can't be made, which is said.
    fn new(role: &str) -> Option<Self> {
        let name = format!("warmlane-test-{role}-{}", std::process::id());
        let first = Path::new("/sys/fs/cgroup/cpu");
        let (directory, limits) = if first.join("cpu.cfs_quota_us").exists() || first.join("tasks").exists() {
            (first.join(name), &[("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "20000")][..])
        } else {
            (Path::new("/sys/fs/cgroup").join(name), &[("cpu.max", "20000 100000")][..])
        };
        let group = fs::create_dir(&directory).is_ok().then_some(Self { directory })?;
        let is_limited =
            limits.iter().all(|(file, text)| fs::write(group.directory.join(file), text).is_ok());
        is_limited.then_some(group)
    }

    /// Starts the command in it.
    fn start(&self, arguments: &str) -> Process {
        let (directory, program) = (self.directory.display(), warmlane().display());
        let line = format!("echo $$ > {directory}/cgroup.procs && exec {program} {arguments}");
        Process::spawn(Command::new("bash").args(["-c", &line]))
    }

    /// Periods in which what is in it was stopped.
    fn throttled(&self) -> u64 {
        let text = fs::read_to_string(self.directory.join("cpu.stat")).expect("the group's statistics");
        let line = text.lines().find_map(|line| line.strip_prefix("nr_throttled "));
        line.and_then(|count| count.parse().ok()).expect("a number of throttled periods")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // What was in it has ended, but may not be gone for a moment.
        until("the control group goes", || {
            fs::remove_dir(&self.directory).is_ok() || !self.directory.exists()
        });
    }
}

/// What a forwarder forwards between, one of which is an interface of this name.
fn ports(interface: &str) -> String {
    format!("--port a=tap:{interface} --port b=null --mac a=02:00:00:00:00:01 --mac b=02:00:00:00:00:02")
}

/// What a quota will do is said before it does it, and what it did in the end.
#[test]
fn a_quota_is_told_and_counted() {
    let Some(group) = Group::new("quota") else {
        requirements::missing("a control group for CPU time, which root can make");
        return;
    };
    // Doctor explains it.
    let told = group.start("doctor").finish(LONG).text();
    // Where its lines end depends on the length of the group's name.
    let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(told.contains("0.20 CPUs'"), "{told}");
    let mut forwarder = group.start(&format!("forward {} --spin --json", ports("wlquota0")));
    forwarder.wait_for("stopped for 80ms of every 100ms", LONG);
    // On a busy machine it takes a while until it has had more than its part.
    let before = group.throttled();
    until("the lane is stopped", || group.throttled() > before + 1);
    forwarder.interrupt();
    let finished = forwarder.finish(LONG);
    let report = Report::parse(finished.expect_success("warmlane forward"));
    assert!(finished.errors.contains("gives 0.20 CPUs' time: as they never sleep"), "{}", finished.errors);
    let group = &report.value()["machine"]["group"];
    assert!(group["throttled_periods"].as_u64() > Some(0), "{group:#}");
    assert!((group["quota_cpus"].as_f64().expect("a quota") - 0.2).abs() < 1e-9, "{group:#}");
}

/// Somebody moves a forwarder to another group and removes its own: it forwards on, and says so in the end.
#[test]
fn a_group_that_vanishes_meanwhile_is_told() {
    let (Some(group), Some(other)) = (Group::new("vanishing"), Group::new("other")) else {
        requirements::missing("control groups for CPU time, which root can make");
        return;
    };
    let mut forwarder = group.start(&format!("forward {}", ports("wlvanish0")));
    forwarder.wait_for("stopped for 80ms of every 100ms", LONG);
    fs::write(other.directory.join("cgroup.procs"), forwarder.id().to_string()).expect("root may move it");
    until("the group can be removed", || fs::remove_dir(&group.directory).is_ok());
    assert!(!forwarder.has_ended(), "{}", forwarder.errors());
    forwarder.interrupt();
    let finished = forwarder.finish(LONG);
    let told = finished.expect_success("warmlane forward");
    let name = group.directory.file_name().expect("a group with a name").to_string_lossy();
    assert!(told.contains(&format!("{name} was removed meanwhile")), "{told}");
}

/// Where the processor can't share its cache out, or the kernel wasn't told to, a line says which of them it is.
#[test]
fn a_machine_without_cache_shares_says_why() {
    if Path::new("/sys/fs/resctrl/schemata").exists() {
        requirements::skip("cache shares can be had here");
        return;
    }
    let mut command = Command::new(warmlane());
    command.args(["forward", "--duration", "0.1", "--cache-share", "watch"]);
    command.args(ports("wlshare0").split_whitespace());
    let finished = Process::run(&mut command, LONG);
    finished.expect_success("warmlane forward");
    let told = finished.errors.lines().find(|line| line.contains("no cache shares: "));
    let reasons = ["shows no cache monitoring or allocation", "mount -t resctrl"];
    assert!(
        told.is_some_and(|line| reasons.iter().any(|reason| line.contains(reason))),
        "{}",
        finished.errors
    );
}
