//! What a test needs of the machine, and what happens where that isn't there.

use std::io::Write;
use std::path::PathBuf;

/// `CAP_NET_ADMIN`, `CAP_NET_RAW` and `CAP_SYS_ADMIN` (`include/uapi/linux/capability.h`): for interfaces, packet
/// sockets and namespaces.
const CAPABILITIES: [u32; 3] = [12, 13, 21];

/// Whether a test that makes network namespaces and runs these programs can run here.
///
/// If not, it says so on standard error, past the test harness, so that a skipped test doesn't look like a passed one.
///
/// # Panics
/// If something is missing and the environment variable `CI` is set: there everything has to run.
#[track_caller]
pub fn namespaces_and(programs: &[&str]) -> bool {
    let mut missing = Vec::new();
    if !is_privileged() {
        missing.push("root".to_owned());
    }
    missing.extend(missing_programs(programs));
    all_there(&missing)
}

/// Whether a test that runs these programs can run here; the rest as with [`namespaces_and`].
///
/// # Panics
/// If one is missing and the environment variable `CI` is set.
#[track_caller]
pub fn programs(programs: &[&str]) -> bool {
    all_there(&missing_programs(programs))
}

/// Whether a test that pins this many lanes can run here; the rest as with [`namespaces_and`].
///
/// # Panics
/// If there are fewer CPUs and the environment variable `CI` is set.
#[track_caller]
pub fn cpus(count: usize) -> bool {
    let available = std::thread::available_parallelism().map_or(1, usize::from);
    all_there(&if available < count { vec![format!("{count} CPUs")] } else { Vec::new() })
}

/// Whether a test that runs this Python with this module can run here; the rest as with [`namespaces_and`].
///
/// # Panics
/// If one is missing and the environment variable `CI` is set.
#[track_caller]
pub fn python_module(python: &str, module: &str) -> bool {
    let line = format!("import {module}");
    let output = std::process::Command::new(python).args(["-c", &line]).output();
    let is_there = output.is_ok_and(|output| output.status.success());
    all_there(&if is_there { Vec::new() } else { vec![format!("{python} with the module {module}")] })
}

/// Says that a test can't run here, for want of something that the others of this module don't look for.
///
/// # Panics
/// If the environment variable `CI` is set.
#[track_caller]
pub fn missing(what: &str) {
    all_there(&[what.to_owned()]);
}

/// Whether this kernel has interfaces of a kind, as `ip link add NAME LINE` makes them; LINE is like
/// `link eth0 type vlan id 7`.
///
/// If not, it says so, and is no failure in CI either: nobody can install another kernel there. So a test that needs this
/// must also run in a guest with another kernel.
#[track_caller]
pub fn interface_kind(namespace: &crate::namespace::Namespace, line: &str) -> bool {
    let added = namespace.run(&format!("ip link add probe {line}"));
    let is_there = added.status.success();
    if is_there {
        namespace.ip("link delete probe");
    } else {
        let kind = line.split_whitespace().skip_while(|word| *word != "type").nth(1).unwrap_or(line);
        skip(&format!("this kernel has no {kind} interfaces"));
    }
    is_there
}

/// Whether this kernel is of this version or a later one, so that it has something.
///
/// If not, it says so, and is no failure in CI either, as with [`interface_kind`].
#[track_caller]
pub fn linux(version: (u32, u32), something: &str) -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let is_there = is_at_least(&release, version);
    if !is_there {
        let (major, minor) = version;
        skip(&format!("{something} needs Linux {major}.{minor} or later, and this is {}", release.trim()));
    }
    is_there
}

fn is_at_least(release: &str, version: (u32, u32)) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|number| number.parse().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= version
}

/// Says that a test, or a part of it, is skipped for a reason that lies in the machine and that nobody can mend by installing
/// something: no failure in CI either.
///
/// It is written past the test harness, which keeps to itself what passing tests print.
#[track_caller]
pub fn skip(why: &str) {
    let place = std::panic::Location::caller();
    // The harness names a test's thread after it, except when it runs tests one at a time.
    let thread = std::thread::current();
    let test = thread.name().filter(|name| *name != "main").unwrap_or("a test");
    let _ = writeln!(std::io::stderr(), "SKIPPED: {test} ({}:{}): {why}", place.file(), place.line());
}

/// Where a program is.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // A user's path often lacks the directories where ip and ethtool are.
    let system = ["/usr/sbin", "/sbin"].map(Into::into);
    let mut places =
        std::env::split_paths(&path).chain(system).map(|directory: PathBuf| directory.join(program));
    places.find(|place| place.is_file())
}

#[track_caller]
fn all_there(missing: &[String]) -> bool {
    if missing.is_empty() {
        return true;
    }
    let missing = missing.join(", ");
    assert!(std::env::var_os("CI").is_none(), "this test needs {missing}, and in CI nothing may be missing");
    skip(&format!("needs {missing}"));
    false
}

fn is_privileged() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|text| u64::from_str_radix(text.trim(), 16).ok()).unwrap_or(0);
    CAPABILITIES.iter().all(|number| effective >> number & 1 == 1)
}

fn missing_programs(programs: &[&str]) -> Vec<String> {
    let missing = programs.iter().filter(|program| !is_installed(program));
    missing.map(|program| format!("the program {program}")).collect()
}

fn is_installed(program: &str) -> bool {
    find(program).is_some()
}

#[cfg(test)]
mod tests {
    use super::is_at_least;

    #[test]
    fn versions_are_compared_by_number() {
        assert!(
            is_at_least("6.18.44-cloud", (6, 6))
                && is_at_least("6.6.0", (6, 6))
                && is_at_least("7.0", (6, 6))
        );
        assert!(
            !is_at_least("6.1.0-49-amd64", (6, 6))
                && !is_at_least("5.19", (6, 6))
                && !is_at_least("", (0, 1))
        );
    }
}
