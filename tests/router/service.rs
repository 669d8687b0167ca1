//! `warmlane router` as a service: systemd understands its unit, and what the unit takes away isn't missed.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

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
    assert_eq!(words("AmbientCapabilities"), words("CapabilityBoundingSet"));
    assert_eq!(words("NoNewPrivileges"), ["yes"]);
    let capabilities = words("AmbientCapabilities");
    let capabilities: Vec<String> =
        capabilities.iter().map(|name| name.trim_start_matches("CAP_").to_lowercase()).collect();
    let capabilities: Vec<&str> = capabilities.iter().map(String::as_str).collect();
    let mut command = lab.as_nobody_with(&capabilities, wrapper);
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

/// Nobody runs systemd in a namespace of a test; what it would refuse is looked for in the system calls instead.
#[test]
fn it_asks_the_system_for_nothing_that_its_unit_forbids() {
    let Some(lab) = RouterLab::new(1500, &["setpriv", "strace"]) else { return };
    let trace = lab.directory().join("trace");
    let calls = "trace=socket,socketpair,open,openat,openat2,creat,unshare,setns,sched_setscheduler,sched_setattr,personality";
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
            // RestrictNamespaces, RestrictRealtime, LockPersonality.
            "unshare" | "setns" | "sched_setscheduler" | "sched_setattr" | "personality" => panic!("{line}"),
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
