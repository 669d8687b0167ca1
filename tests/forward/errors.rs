//! What `warmlane forward` says to input that it cannot work with: a message that names the thing and the remedy, a
//! failing exit code, and no files that look like results.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use warmlane_system_tests::{SHORT, as_nobody_with, assert_refused};
use warmlane_testkit::Report;
use warmlane_testkit::process::{Finished, Process, install_warmlane, warmlane};
use warmlane_testkit::requirements;
use warmlane_testkit::traffic::{self, Target};

/// A directory with a capture `good.pcap` of 100 frames, and `cut.pcap`, which ends within its last frame.
fn workshop() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let target = Target {
        router: [2, 0, 0, 0, 1, 0],
        sender: [2, 0, 0, 0, 0, 9],
        ipv4: 0xc000_0201,
        ipv6: 0x2001_0db8_0000_0001_0000_0000_0000_0001,
        ipv4_prefixes: vec![(0x0a00_0000, 8)],
        ipv6_prefixes: vec![(0x2600 << 112, 16)],
    };
    let mut capture = Vec::new();
    traffic::write(&target, 1, 100, &mut capture).unwrap();
    fs::write(directory.path().join("good.pcap"), &capture).unwrap();
    fs::write(directory.path().join("cut.pcap"), &capture[..capture.len() - 1]).unwrap();
    directory
}

/// Runs the command in a directory, with arguments that are split at blanks except in `'..'`.
fn forward(directory: &Path, line: &str) -> Finished {
    let mut command = Command::new(warmlane());
    command.arg("forward").current_dir(directory);
    for (number, part) in line.split('\'').enumerate() {
        if number % 2 == 1 {
            command.arg(part);
        } else {
            command.args(part.split_whitespace());
        }
    }
    Process::run(&mut command, SHORT)
}

fn files(directory: &Path) -> Vec<String> {
    let names = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn bad_arguments_are_named() {
    let directory = workshop();
    let before = files(directory.path());
    for (line, parts) in [
        ("", &["port"][..]),
        ("--config missing.toml", &["missing.toml", "No such file"]),
        ("--port a=pcap:read=missing.pcap", &["'a'", "missing.pcap", "No such file", "check the path"]),
        ("--port a=replay:file=missing.pcap", &["'a'", "missing.pcap", "No such file"]),
        ("--port a=pcap:read=/", &["'a'", "/"]),
        ("--port a=pcap:write=missing/out.pcap", &["'a'", "missing", "check the directory"]),
        ("--port a=pcap", &["'a'", "read", "write"]),
        ("--port a=pcap:red=good.pcap", &["'a=pcap:red=good.pcap'", "red", "read"]),
        ("--port a=null --port a=null", &["\"a\"", "twice"]),
        ("--port a=nul", &["'a=nul'", "'nul'", "null", "packet"]),
        ("--port a", &["'a'", "NAME=DRIVER"]),
        ("--port a=packet", &["'a=packet'", "interface"]),
        ("--port a=packet:interface=missing0", &["'a'", "missing0", "lo"]),
        ("--port a=tap:interface=far-too-long-a-name", &["'a'", "far-too-long-a-name", "15"]),
        ("--port a=null --address a=192.0.2.1", &["192.0.2.1", "192.0.2.1/24"]),
        ("--port a=null --address b=192.0.2.1/24", &["\"b\"", "ports are a"]),
        ("--port a=null --address a=192.0.2.0/24", &["192.0.2.0", "unicast"]),
        ("--port a=null --mac a=02:00:00:00:00", &["02:00:00:00:00", "six"]),
        ("--port a=null --mac a=ff:ff:ff:ff:ff:ff", &["ff:ff:ff:ff:ff:ff", "unicast address"]),
        ("--port a=null --mtu a=9", &["mtu", "68"]),
        ("--port a=null --burst 1000", &["burst", "1000", "256"]),
        ("--port a=null --lanes 0", &["lanes", "0"]),
        ("--port a=null --lanes 255", &["255 lanes", "CPUs", "fewer"]),
        ("--port a=null --buffers 0", &["buffers", "0", "1 to"]),
        ("--port a=null --neighbour 192.0.2.2=02:00:00:00:00:02", &["02:00:00:00:00:02", "@PORT"]),
        ("--port a=null --neighbour 192.0.2.2=02:00:00:00:00:02@b", &["\"b\"", "a"]),
        ("--port a=null --route '10.0.0.0/33 drop'", &["10.0.0.0/33", "32"]),
        ("--port a=null --route '2001:db8::/129 drop'", &["2001:db8::/129", "128"]),
        ("--port a=null --route '10.0.0.1/8 drop'", &["10.0.0.1/8", "10.0.0.0/8"]),
        ("--port a=null --route '10.0.0/8 drop'", &["10.0.0/8"]),
        ("--port a=null --route '10.0.0.0/8 via 192.0.2.2'", &["192.0.2.2", "neighbour"]),
        (
            "--port a=null --route '10.0.0.0/8 drop' --route '10.0.0.0/8 unreachable'",
            &["10.0.0.0/8", "two routes"],
        ),
        (
            "--port a=null --flow 'tcp 192.0.2.2:1 192.0.2.3:2 drop'",
            &["tcp 192.0.2.2:1", "PROTOCOL from ADDRESS:PORT"],
        ),
        (
            "--port a=null --flow 'icmp from 192.0.2.2:1 to 192.0.2.3:2 drop'",
            &["\"icmp\"", "use tcp, udp or sctp"],
        ),
        (
            "--port a=null --flow 'tcp from 192.0.2.2 to 192.0.2.3:2 drop'",
            &["\"192.0.2.2\"", "192.0.2.1:4242"],
        ),
        ("--port a=null --flow 'tcp from 192.0.2.2:1 to [::3]:2 drop'", &["[::3]:2", "same version of IP"]),
        (
            "--port a=null --flow 'tcp from 192.0.2.2:1 to 192.0.2.3:2 via 192.0.2.4'",
            &["192.0.2.4", "neighbour"],
        ),
        (
            "--port a=null --flow 'udp from 192.0.2.2:1 to 192.0.2.3:2 drop' --flow 'udp from 192.0.2.2:1 to 192.0.2.3:2 drop'",
            &["UDP 192.0.2.2:1 to 192.0.2.3:2", "twice"],
        ),
        ("--port a=null --full-table 192.0.2.2", &["192.0.2.2", "neighbour"]),
    ] {
        let finished = forward(directory.path(), line);
        let context = format!("warmlane forward {line}\n{}", finished.text());
        println!("{context}");
        assert_refused(&finished, parts);
        assert_eq!(files(directory.path()), before, "{context}");
    }
    // What the command line's grammar doesn't have.
    assert_eq!(forward(directory.path(), "--prot a=null").status.code(), Some(2));
}

#[test]
fn bad_files_are_named_with_the_place() {
    let directory = workshop();
    let path = |name: &str| directory.path().join(name);
    fs::write(path("text.pcap"), "no capture at all, but long enough for a header").unwrap();
    fs::write(path("empty.pcap"), "").unwrap();
    fs::write(path("header.pcap"), &fs::read(path("good.pcap")).unwrap()[..20]).unwrap();
    let mut raw_ip = fs::read(path("good.pcap")).unwrap();
    raw_ip[20] = 101;
    fs::write(path("raw.pcap"), raw_ip).unwrap();
    let before = files(directory.path());
    for (name, parts) in [
        ("text.pcap", &["text.pcap", "neither pcap nor pcapng"][..]),
        ("empty.pcap", &["empty.pcap", "is empty"]),
        ("header.pcap", &["header.pcap", "file header"]),
        ("raw.pcap", &["raw.pcap", "raw IP", "Ethernet"]),
    ] {
        let finished =
            forward(directory.path(), &format!("--port a=pcap:read={name} --port b=pcap:write=out.pcap"));
        assert_refused(&finished, parts);
        assert_eq!(files(directory.path()), before, "{name}");
    }

    let bad = "lanes = 1\n[[port]]\nname = \"a\"\ndriver = \"null\"\n\n[[route]]\nprefix = \"10.0.0.0/33\"\ndrop = true\n";
    fs::write(path("bad.toml"), bad).unwrap();
    assert_refused(&forward(directory.path(), "--config bad.toml"), &["bad.toml", "line 7", "33", "32"]);
    fs::write(path("bad.toml"), "[[port]\n").unwrap();
    assert_refused(&forward(directory.path(), "--config bad.toml"), &["bad.toml", "line 1"]);
    fs::write(path("bad.toml"), "[[port]]\nname = \"a\"\ndriver = \"null\"\nspeed = 10\n").unwrap();
    assert_refused(&forward(directory.path(), "--config bad.toml"), &["bad.toml", "line 4", "speed"]);
}

/// A capture that was cut off: everything before is forwarded and written, and the command still fails.
#[test]
fn truncated_captures_fail_after_their_last_frame() {
    let directory = workshop();
    let finished = forward(
        directory.path(),
        "--json --port a=pcap:read=cut.pcap --port b=pcap:write=out.pcap --route '0.0.0.0/0 drop'",
    );
    assert_refused(&finished, &["cut.pcap", "frame 100", "1 bytes", "capture again"]);
    let report = Report::parse(&finished.output);
    report.assert_balanced();
    assert_eq!(report.number("/forward/received"), 99);
    assert_eq!(files(directory.path()), ["cut.pcap", "good.pcap", "out.pcap"]);
}

/// Something else is wrong when the output is open already: what was there under its name stays there.
#[test]
fn a_failed_start_touches_no_results() {
    let directory = workshop();
    let before = files(directory.path());
    for rest in ["--port b=packet:interface=missing0", "--lanes 255", "--port b=pcap:write=b.pcap --lanes 2"]
    {
        let finished = forward(directory.path(), &format!("--port a=pcap:write=good.pcap {rest}"));
        assert_refused(&finished, &[]);
        assert_eq!(files(directory.path()), before, "{rest}\n{}", finished.text());
        let size = fs::metadata(directory.path().join("good.pcap")).unwrap().len();
        assert!(size > 1000, "{rest} left {size} bytes of the capture that was there");
    }
}

/// An address that is not there to send from, a neighbour that nobody is: not an error, but everything is counted.
#[test]
fn nothing_to_forward_is_no_error() {
    let directory = workshop();
    let finished =
        forward(directory.path(), "--json --port a=pcap:read=good.pcap --port b=pcap:write=out.pcap");
    let report = Report::parse(finished.expect_success("a router without routes"));
    report.assert_balanced();
    assert_eq!((report.number("/forward/received"), report.number("/forward/forwarded")), (100, 0));
    let out = fs::read(directory.path().join("out.pcap")).unwrap();
    assert_eq!(out.len(), 24, "the header of an empty capture");
}

#[test]
fn a_lack_of_permission_is_explained() {
    if !requirements::namespaces_and(&["setpriv"]) {
        return;
    }
    let directory = workshop();
    let path = |name: &str| directory.path().join(name);
    // A place where an ordinary user can run the command, but not read or write everything.
    let open = |name: &str, mode| fs::set_permissions(path(name), fs::Permissions::from_mode(mode)).unwrap();
    let copy = install_warmlane(directory.path());
    open("", 0o755);
    open("good.pcap", 0o600);
    for (line, parts) in [
        ("--port a=packet:interface=lo", &["'a'", "no permission", "\"lo\"", "CAP_NET_RAW", "setcap"][..]),
        ("--port a=tap:interface=wl-none", &["'a'", "no permission", "wl-none", "CAP_NET_ADMIN", "setcap"]),
        ("--port a=pcap:read=good.pcap", &["'a'", "good.pcap", "Permission denied"]),
        ("--port a=pcap:write=out.pcap", &["'a'", "out.pcap", "Permission denied"]),
    ] {
        let mut command = Command::new("setpriv");
        as_nobody_with(&mut command, "--clear-groups", &[])
            .arg(&copy)
            .arg("forward")
            .args(line.split_whitespace());
        command.current_dir(directory.path());
        assert_refused(&Process::run(&mut command, SHORT), parts);
        assert_eq!(files(directory.path()), ["cut.pcap", "good.pcap", "warmlane"]);
    }
}

/// Without huge pages the command works, and says once what that costs and how to get them.
#[test]
fn a_lack_of_huge_pages_is_a_note() {
    // More than there are, but not so many that the test needs a large machine.
    let free = fs::read_to_string("/proc/meminfo").unwrap();
    let free = free.lines().find_map(|line| line.strip_prefix("HugePages_Free:")).map_or("0", str::trim);
    let free: u64 = free.parse().unwrap();
    // A buffer takes 2 KiB and a little more, a page is 2 MiB.
    let buffers = free * 1000 + 20_000;
    if buffers > 1_000_000 {
        requirements::skip(&format!("{free} huge pages are free"));
        return;
    }
    let directory = workshop();
    let line = format!("--json --port a=pcap:read=good.pcap --buffers {buffers}");
    let finished = forward(directory.path(), &line);
    Report::parse(finished.expect_success("without huge pages")).assert_balanced();
    for part in ["note: ", "huge pages", "nr_hugepages"] {
        assert!(finished.errors.contains(part), "nothing of {part:?} in:\n{}", finished.errors);
    }
}
