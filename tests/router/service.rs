//! `warmlane router` as a service: systemd understands its unit, and what the unit takes away isn't missed.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use warmlane_system_tests::{RouterLab, SHORT};
use warmlane_testkit::process::{Process, warmlane};
use warmlane_testkit::requirements;

const FAR: [&str; 2] = ["198.51.100.2", "2001:db8:2::2"];

fn unit() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../dist/warmlane-router.service");
    std::fs::read_to_string(path).expect("the unit file")
}

/// The words of a setting of the unit.
fn words(setting: &str) -> Vec<String> {
    let unit = unit();
    let line = unit.lines().find_map(|line| line.strip_prefix(&format!("{setting}=")));
    line.unwrap_or_else(|| panic!("no {setting}")).split_whitespace().map(str::to_owned).collect()
}

/// The router as another user, with the capabilities of the unit and no others; `wrapper` is run in front.
fn as_a_service(lab: &RouterLab, wrapper: &[&str]) -> Process {
    as_a_service_on(lab, "user", wrapper)
}

/// The same on another path.
fn as_a_service_on(lab: &RouterLab, path: &str, wrapper: &[&str]) -> Process {
    assert_eq!(words("AmbientCapabilities"), words("CapabilityBoundingSet"));
    assert_eq!(words("NoNewPrivileges"), ["yes"]);
    let capabilities = words("AmbientCapabilities");
    let capabilities: Vec<String> =
        capabilities.iter().map(|name| name.trim_start_matches("CAP_").to_lowercase()).collect();
    let capabilities: Vec<&str> = capabilities.iter().map(String::as_str).collect();
    let mut command = lab.as_nobody_on(path, &capabilities, wrapper);
    let mut process = Process::spawn(&mut command);
    process.wait_for("note: forwarding between", SHORT);
    process
}

#[test]
fn systemd_understands_the_unit() {
    if !requirements::programs(&["systemd-analyze"]) {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("warmlane-router.service");
    // It is installed where the unit looks for it; here it is elsewhere.
    let unit = unit().replace("/usr/local/bin/warmlane", warmlane().to_str().expect("a path in UTF-8"));
    let verify = |text: &str| {
        std::fs::write(&path, text).expect("a writable directory");
        Process::run(Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&path), SHORT)
    };
    let finished = verify(&unit);
    assert!(finished.status.success() && finished.errors.is_empty(), "{}", finished.text());
    // What it doesn't know it ignores, and only says so.
    let typo = verify(&unit.replace("RestrictRealtime=", "RestrictRealtme="));
    assert!(typo.errors.contains("Unknown key"), "{}", typo.text());

    // What it exposes, as far as systemd can tell without running it, in tenths: 100 is all.
    let arguments = ["security", "--offline=true", "--no-pager", "--threshold=30"];
    std::fs::write(&path, &unit).expect("a writable directory");
    let security = Process::run(Command::new("systemd-analyze").args(arguments).arg(&path), SHORT);
    security.expect_success("systemd-analyze security");
}

/// As a service it is no root: it has the capabilities of its unit, and no others.
#[test]
fn it_runs_with_the_capabilities_of_its_unit() {
    let Some(lab) = RouterLab::new(1500, &["setpriv"]) else { return };
    let process = as_a_service(&lab, &[]);
    RouterLab::check_ping(&lab.west, &FAR);
    lab.verify();
    RouterLab::finish(process);
}

/// What a task of the process may do: its effective, permitted, inheritable, bounding and ambient capabilities.
fn capabilities(task: &Path) -> Vec<u64> {
    let status = std::fs::read_to_string(task.join("status")).expect("a task");
    let sets = ["CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb"].map(|set| {
        let line = status.lines().find_map(|line| line.strip_prefix(&format!("{set}:")));
        u64::from_str_radix(line.expect("each task has them").trim(), 16).expect("hexadecimal")
    });
    sets.to_vec()
}

/// Root has all capabilities to begin with. What is needed to follow the kernel is left, and lanes have none.
#[test]
fn it_gives_up_what_it_does_not_need() {
    // CAP_NET_ADMIN and CAP_BPF (`include/uapi/linux/capability.h`).
    const KEPT: u64 = 1 << 12 | 1 << 39;
    // CAP_NET_RAW and CAP_IPC_LOCK, for sockets of interfaces that are made again.
    const WITH_SOCKETS: u64 = KEPT | 1 << 13 | 1 << 14;
    let Some(lab) = RouterLab::new(1500, &["setpriv"]) else { return };
    for (path, lanes, kept) in [("user", 1, WITH_SOCKETS), ("tc", 0, KEPT)] {
        let process = lab.start("w0 e0", &format!("--path {path}"));
        let main = process.id().to_string();
        let mut others = 0;
        for task in std::fs::read_dir(format!("/proc/{main}/task")).expect("a process").flatten() {
            if task.file_name().to_str() == Some(&main) {
                assert_eq!(capabilities(&task.path()), [kept, kept, 0, kept, 0], "{path}");
            } else {
                assert_eq!(capabilities(&task.path()), [0; 5], "{path}");
                others += 1;
            }
        }
        assert_eq!(others, lanes, "{path}");
        // It still follows the kernel: asks for neighbours, and is told of addresses.
        lab.router.ip("address add 192.0.2.77/24 dev w0");
        RouterLab::check_ping(&lab.west, &["192.0.2.77", FAR[0], FAR[1]]);
        lab.router.ip("address del 192.0.2.77/24 dev w0");
        RouterLab::end(process);
    }
    // As a service it isn't root, and has fewer from the beginning.
    let process = as_a_service(&lab, &[]);
    let sets = capabilities(Path::new(&format!("/proc/{}", process.id())));
    assert_eq!((sets[0], sets[1], sets[4]), (WITH_SOCKETS, WITH_SOCKETS, 0));
    RouterLab::finish(process);
}

/// A service manager, as far as it listens (sd_notify(3)).
struct Manager {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Manager {
    fn new(lab: &RouterLab) -> Self {
        let path = lab.directory().join("notify");
        let socket = UnixDatagram::bind(&path).expect("a writable directory");
        Self { socket, path }
    }

    /// Starts the router with a watchdog of a second, on this path.
    fn start(&self, lab: &RouterLab, path: &str) -> Process {
        let mut command = lab.router.command(warmlane());
        command.args(["router", "--config"]).arg(lab.directory().join("router.toml"));
        command.args(["--quiet", "--json", "--path", path, "--socket"]).arg(lab.socket());
        command.env("NOTIFY_SOCKET", &self.path).env("WATCHDOG_USEC", "1000000");
        Process::spawn(&mut command)
    }

    /// What is said until `text` is; each message is a line.
    #[track_caller]
    fn hear(&self, text: &str) -> Vec<String> {
        self.socket.set_read_timeout(Some(SHORT)).expect("not zero");
        let mut said = Vec::new();
        while !said.iter().any(|line: &String| line.contains(text)) {
            let mut bytes = [0; 4096];
            let received = self.socket.recv(&mut bytes);
            // With a time limit it doesn't go on by itself after a stop of the whole process (signal(7)).
            if received.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::Interrupted) {
                continue;
            }
            let count = received.unwrap_or_else(|error| panic!("no {text}: {error}: {said:?}"));
            said.push(String::from_utf8_lossy(&bytes[..count]).trim_end().replace('\n', " "));
        }
        said
    }

    /// Forgets what was said, and says whether anything is in the time of two watchdogs.
    fn hears_anything(&self) -> bool {
        let mut bytes = [0; 4096];
        self.socket.set_nonblocking(true).expect("a socket");
        while self.socket.recv(&mut bytes).is_ok() {}
        self.socket.set_nonblocking(false).expect("a socket");
        self.socket.set_read_timeout(Some(Duration::from_secs(2))).expect("not zero");
        self.socket.recv(&mut bytes).is_ok()
    }
}

#[test]
fn the_service_manager_hears_how_it_is() {
    let Some(lab) = RouterLab::new(1500, &[]) else { return };
    let file = lab.directory().join("router.toml");
    std::fs::write(&file, "interfaces = [\"w0\", \"e0\"]\n").expect("a writable directory");
    let manager = Manager::new(&lab);
    for path in ["user", "tc"] {
        let process = manager.start(&lab, path);
        let said = manager.hear("READY=1");
        let status = format!("READY=1 STATUS=forwarding between w0 ({path}), e0 ({path})");
        assert_eq!(said, [status]);
        // It forwards by then.
        assert!(lab.ask("status")["paths"][0]["path"] == path);
        manager.hear("WATCHDOG=1");
        process.signal("HUP");
        let said = manager.hear("RELOADING=1").pop().expect("that");
        let time = said.split_once("MONOTONIC_USEC=").and_then(|(_, time)| time.parse::<u64>().ok());
        assert!(time > Some(0), "{said}");
        manager.hear("READY=1");
        lab.ask("reload");
        manager.hear("RELOADING=1");
        manager.hear("READY=1");
        manager.hear("WATCHDOG=1");
        process.interrupt();
        manager.hear("STOPPING=1");
        process.finish(SHORT).expect_success("warmlane router");
    }
}

/// A lane that hangs while all the rest goes on, as a debugger makes it.
#[test]
fn the_watchdog_isn_t_told_that_all_is_well_while_a_lane_hangs() {
    let Some(lab) = RouterLab::new(1500, &["strace"]) else { return };
    let file = lab.directory().join("router.toml");
    std::fs::write(&file, "interfaces = [\"w0\", \"e0\"]\n").expect("a writable directory");
    let manager = Manager::new(&lab);
    let process = manager.start(&lab, "user");
    manager.hear("READY=1");
    manager.hear("WATCHDOG=1");
    let main = process.id().to_string();
    let tasks = std::fs::read_dir(format!("/proc/{main}/task")).expect("a process").flatten();
    let tasks: Vec<String> = tasks.map(|task| task.file_name().to_string_lossy().into_owned()).collect();
    let lane = tasks.iter().find(|task| **task != main).expect("a lane");
    // Each of its sleeps takes a minute.
    let line = format!("strace -p {lane} -e trace=ppoll -e inject=ppoll:delay_enter=60000000");
    let mut hang = lab.router.spawn(&line);
    hang.wait_for("attached", SHORT);
    RouterLab::wait_until("the lane hangs", SHORT, || !manager.hears_anything());
    // The control side does not.
    lab.ask("status");
    hang.signal("KILL");
    drop(hang);
    manager.hear("WATCHDOG=1");
    RouterLab::finish(process);
}

/// All system calls of a group (systemd.exec(5), `SystemCallFilter=`), and of those in it.
fn group(name: &str, into: &mut BTreeSet<String>) {
    let finished = Process::run(Command::new("systemd-analyze").args(["syscall-filter", name]), SHORT);
    let listed = finished.expect_success("systemd-analyze").lines().skip(1).map(str::trim);
    for word in listed.filter(|word| !word.is_empty() && !word.starts_with('#')) {
        if word.starts_with('@') {
            group(word, into);
        } else {
            into.insert(word.to_owned());
        }
    }
}

/// The system calls that the unit allows, by its lines in their order.
fn allowed_calls() -> BTreeSet<String> {
    let mut allowed = BTreeSet::new();
    let unit = unit();
    let lines: Vec<&str> = unit.lines().filter_map(|line| line.strip_prefix("SystemCallFilter=")).collect();
    assert!(!lines.is_empty());
    for line in lines {
        let (words, is_forbidden) = line.strip_prefix('~').map_or((line, false), |words| (words, true));
        let mut calls = BTreeSet::new();
        for word in words.split_whitespace() {
            if word.starts_with('@') {
                group(word, &mut calls);
            } else {
                calls.insert(word.to_owned());
            }
        }
        if is_forbidden {
            allowed.retain(|call| !calls.contains(call));
        } else {
            allowed.extend(calls);
        }
    }
    allowed
}

/// On each path, with reload and an interface that is made again: nothing is called that the unit's filter would refuse.
#[test]
fn it_calls_nothing_that_its_unit_filters() {
    let programs = ["setpriv", "strace", "systemd-analyze"];
    for path in ["user", "tc", "xdp"] {
        let Some(lab) = RouterLab::new(1500, &programs) else { return };
        let trace = lab.directory().join("calls");
        // A table of all calls; and what would make memory executable.
        let wrapper = ["strace", "-D", "-f", "-c", "-o", trace.to_str().expect("a path in UTF-8")];
        let mut process = as_a_service_on(&lab, path, &wrapper);
        RouterLab::check_ping(&lab.west, &FAR);
        lab.verify();
        lab.router.ip("link set e0 down");
        if path == "user" {
            process.wait_for("interface e0 was set down", SHORT);
        }
        lab.router.ip("link set e0 up");
        process.signal("USR1");
        lab.ask("counters");
        RouterLab::end(process);
        let mut text = String::new();
        RouterLab::wait_until("the table is whole", SHORT, || {
            text = std::fs::read_to_string(&trace).unwrap_or_default();
            text.contains(" total")
        });
        let called: BTreeSet<String> = text
            .lines()
            .skip(2)
            .filter_map(|line| line.split_whitespace().last())
            .filter(|word| !word.starts_with('-') && *word != "total")
            .map(str::to_owned)
            .collect();
        assert!(called.contains("bpf") && called.contains("socket"), "{text}");
        let allowed = allowed_calls();
        // What `setpriv` did, as systemd does before there is a filter.
        let before = ["setgroups", "setresgid", "setresuid"];
        let mut forbidden: Vec<&String> = called.difference(&allowed).collect();
        forbidden.retain(|call| !before.contains(&call.as_str()));
        assert!(forbidden.is_empty(), "{path}: {forbidden:?}");
    }
}

/// Nobody runs systemd in a namespace of a test; what it would refuse is looked for in the system calls instead.
#[test]
fn it_asks_the_system_for_nothing_that_its_unit_forbids() {
    let Some(lab) = RouterLab::new(1500, &["setpriv", "strace"]) else { return };
    let trace = lab.directory().join("trace");
    let calls = "trace=mmap,mprotect,socket,socketpair,open,openat,openat2,creat,unshare,setns,sched_setscheduler,sched_setattr,personality";
    // The tracer is a grandchild, so that signals reach the router.
    let wrapper = ["strace", "-D", "-f", "-e", calls, "-o", trace.to_str().expect("a path in UTF-8")];
    let process = as_a_service(&lab, &wrapper);
    RouterLab::check_ping(&lab.west, &FAR);
    lab.verify();
    lab.ask("status");
    RouterLab::finish(process);
    let read = || std::fs::read_to_string(&trace).unwrap_or_default();
    RouterLab::wait_until("the trace is whole", SHORT, || read().trim_end().ends_with("exited with 0 +++"));
    let trace = read();

    let mut families = BTreeSet::new();
    for line in trace.lines() {
        let Some((name, arguments)) = line.split_once(' ').and_then(|(_, call)| call.trim().split_once('('))
        else {
            continue;
        };
        match name {
            "socket" | "socketpair" => {
                families.extend(arguments.split(',').next().map(str::to_owned));
            }
            "open" | "openat" | "openat2" | "creat" => check_file(&lab, line, arguments),
            // MemoryDenyWriteExecute.
            "mmap" => assert!(!arguments.contains("PROT_WRITE|PROT_EXEC"), "{line}"),
            "mprotect" => assert!(!arguments.contains("PROT_EXEC"), "{line}"),
            // RestrictRealtime. Lanes ask for short slices, and stay in the class that they are in.
            "sched_setattr" => assert!(arguments.contains("sched_policy=SCHED_OTHER"), "{line}"),
            // RestrictNamespaces, RestrictRealtime, LockPersonality.
            "unshare" | "setns" | "sched_setscheduler" | "personality" => panic!("{line}"),
            _ => {}
        }
    }
    let allowed: BTreeSet<String> = words("RestrictAddressFamilies").into_iter().collect();
    // By these two it would ask for the tables of the older iptables, of which there are none here.
    let unused: BTreeSet<String> = ["AF_INET", "AF_INET6"].map(str::to_owned).into();
    assert!(families.is_disjoint(&unused), "{families:?}");
    assert_eq!(&families | &unused, allowed, "what it opens, and what it may");
}

/// Devices are opened only as far as `DeviceAllow` goes, and files written only where `ProtectSystem=strict` leaves that.
#[track_caller]
fn check_file(lab: &RouterLab, line: &str, arguments: &str) {
    assert_eq!(
        (words("ProtectSystem"), words("DevicePolicy")),
        (vec!["strict".into()], vec!["closed".into()])
    );
    let Some(path) = arguments.split('"').nth(1) else { return };
    // `DevicePolicy=closed` leaves these.
    let usual = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];
    if path.starts_with("/dev/") && !usual.contains(&path) {
        assert_eq!(words("DeviceAllow"), [path, "rw"], "{line}");
    }
    let writes = ["O_WRONLY", "O_RDWR", "O_CREAT"].iter().any(|flag| arguments.contains(flag));
    let may = ["/proc", "/sys", "/dev"].iter().any(|place| path.starts_with(place));
    assert!(!writes || may || Path::new(path).starts_with(lab.directory()), "{line}");
}
