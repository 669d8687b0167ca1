//! `warmlane router` reads its configuration again while packets flow.

use std::fs;

use serde_json::Value;
use warmlane_system_tests::flows::{self, Received, Receiver};
use warmlane_system_tests::{RouterLab, SHORT, assert_refused};

/// A lab, its configuration file, and the option that names it.
struct Reloading {
    lab: RouterLab,
    file: std::path::PathBuf,
}

impl Reloading {
    fn new(programs: &[&str]) -> Option<Self> {
        let lab = RouterLab::new(1500, programs)?;
        let file = lab.directory().join("router.toml");
        Some(Self { lab, file })
    }

    fn write(&self, rest: &str) {
        fs::write(&self.file, format!("interfaces = [\"w0\", \"e0\"]\n{rest}\n"))
            .expect("a writable directory");
    }

    fn options(&self) -> String {
        format!("--config {}", self.file.display())
    }

    /// Reloads, and returns what changed.
    fn reload(&self) -> Vec<String> {
        let answer = self.lab.ask("reload");
        let changed = answer["changed"].as_array().unwrap_or_else(|| panic!("{answer:#}"));
        changed.iter().map(|change| change.as_str().expect("a sentence").to_owned()).collect()
    }

    fn refused(&self, parts: &[&str]) {
        assert_refused(&self.lab.try_ask("reload"), &[&["nothing was changed"], parts].concat());
    }

    fn urpf(&self) -> Value {
        self.lab.ask("status")["ports"][0]["urpf"].clone()
    }
}

#[test]
fn what_can_change_changes_without_a_packet_lost() {
    let Some(reloading) = Reloading::new(&["python3"]) else { return };
    let lab = &reloading.lab;
    lab.east.ip("address add 203.0.113.1/32 dev lo");
    lab.router.ip("route add 203.0.113.1 via 198.51.100.2");
    reloading.write("");
    let process = lab.start("", &reloading.options());
    // So that the first packets of the stream need not wait.
    RouterLab::check_ping(&lab.west, &["203.0.113.1"]);
    let receiver = Receiver::start(&lab.east, "203.0.113.1");
    let mut sender = flows::send(&lab.west, "203.0.113.1", &[&receiver]);
    let mut reloads = 0;
    let mut number = 0;
    while !sender.has_ended() {
        number += 1;
        let mode = ["off", "loose", "strict"][number % 3];
        reloading.write(&format!("urpf = \"{mode}\"\nicmp-rate = {number}"));
        assert!(!reloading.reload().is_empty());
        assert_eq!(reloading.urpf(), mode);
        reloads += 1;
    }
    sender.finish(SHORT).expect_success("send");
    assert_eq!(Receiver::finish([receiver]), [Received::ALL]);
    eprintln!("{reloads} reloads meanwhile");
    assert!(reloads >= 5, "{reloads}");
    RouterLab::finish(process);
}

#[test]
fn the_new_settings_are_what_counts() {
    let Some(reloading) = Reloading::new(&["python3"]) else { return };
    let lab = &reloading.lab;
    reloading.write("icmp-rate = 0");
    let mut process = lab.start("", &reloading.options());
    let unreachable = || {
        let text = lab.west.run("ping -n -c 1 -W 1 203.0.113.9").text();
        text.contains("nreachable")
    };
    let limited = || lab.ask("counters")["forward"]["icmp_errors_limited"].as_u64().expect("a number");
    // A bucket of fifty, and no more.
    lab.west.run("ping -n -f -c 100 -W 1 203.0.113.9");
    assert!(limited() >= 50, "{}", limited());
    assert!(!unreachable());
    reloading.write("icmp-rate = 1000");
    assert_eq!(reloading.reload(), ["icmp-rate was 0, is 1000"]);
    assert!(unreachable());
    // The same again, by a signal.
    reloading.write("icmp-rate = 500\nurpf = [\"loose\", \"e0=strict\"]");
    process.signal("HUP");
    process.wait_for("note: read again, icmp-rate was 1000, is 500", SHORT);
    process.wait_for("note: read again, urpf was off, is loose e0=strict", SHORT);
    assert_eq!(reloading.urpf(), "loose");
    assert!(reloading.reload().is_empty());
    RouterLab::finish(process);
}

#[test]
fn what_can_not_change_is_named_and_nothing_is_changed() {
    let Some(reloading) = Reloading::new(&[]) else { return };
    let lab = &reloading.lab;
    reloading.write("urpf = \"loose\"");
    let mut process = lab.start("", &reloading.options());
    for (text, parts) in [
        ("urpf = \"strict\"\nlanes = 2", &["lanes (now 1, then 2)", "started again"][..]),
        ("urpf = \"strict\"\nmode = \"generic\"\nspin = true", &["mode (now best, then generic)", "spin"]),
        ("urpf = \"strict\"\nbuffers = 9000", &["buffers (now as usual, then 9000)"]),
        ("urpf = \"strickt\"", &["\"strickt\"", "strict, loose or off"]),
        ("urpf = \"strict\"\nurpfs = 1", &["router.toml", "line 3, column 1"]),
        ("urpf = [\"strict\", \"e9=off\"]", &["e9", "neither an interface"]),
        ("urpf = \"strict\"\nicmp-rate = -1", &["router.toml", "line 3"]),
    ] {
        reloading.write(text);
        reloading.refused(parts);
        assert_eq!(reloading.urpf(), "loose", "{text}");
        RouterLab::check_ping(&lab.west, &["198.51.100.2"]);
    }
    fs::write(&reloading.file, "interfaces = [\"w0\", \"x9\"]\nurpf = \"strict\"\n")
        .expect("a writable directory");
    reloading.refused(&["no interface \"x9\""]);
    fs::remove_file(&reloading.file).expect("it is there");
    reloading.refused(&["can't read", "router.toml"]);
    process.signal("HUP");
    process.wait_for("nothing was changed: can't read", SHORT);
    assert_eq!(reloading.urpf(), "loose");
    RouterLab::finish(process);

    // Without a file there is nothing to read.
    let process = lab.start("w0 e0", "");
    reloading.refused(&["without --config"]);
    RouterLab::finish(process);
}
