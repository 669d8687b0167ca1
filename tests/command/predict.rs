//! `warmlane lab predict` with files that are in the repository, and with what can't be.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use warmlane_system_tests::turn;
use warmlane_testkit::process::warmlane;

const MACHINE: &str = "name = 'small'\ncores = 4\nfirst = { kib = 32, ways = 8 }\nsecond = { kib = 256, ways = 8 }\n\
                       shared = { kib = 4096, ways = 16 }\ninclusion = 'inclusive'\ndevice-ways = 2\nmemory-gbs = 20.0\n\
                       memory-channels = 1\n";

/// The first TOML block of a page of the documentation that has this in it.
fn block(page: &str, with: &str) -> String {
    let text = std::fs::read_to_string(root().join("docs").join(page)).unwrap();
    let mut blocks = text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.find(|block| block.contains(with)).unwrap().to_owned()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn run(folder: &Path, file: &Path, arguments: &[&str]) -> Output {
    let _turn = turn::beside_others();
    let machine = folder.join("machine.toml");
    std::fs::write(&machine, MACHINE).unwrap();
    let mut command = Command::new(warmlane());
    command.args(["lab", "predict"]).arg(file).arg("--machine").arg(machine).args(arguments);
    command.output().unwrap()
}

fn forecast(folder: &Path, file: &Path, arguments: &[&str]) -> Value {
    let output = run(folder, file, &[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_files_of_the_documentation_are_predicted() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: String| {
        let file = folder.path().join(name);
        std::fs::write(&file, text).unwrap();
        file
    };
    let forward =
        file("forward.toml", block("forward.md", "[[port]]").replace("kind = \"depot\"", "kind = \"ring\""));
    // The same each time.
    let first = forecast(folder.path(), &forward, &["--rate=1", "--frames=1518"]);
    assert_eq!(first, forecast(folder.path(), &forward, &["--rate=1", "--frames=1518"]));
    assert_eq!((&first["function"], &first["machine"]), (&"forward".into(), &"small".into()));
    let abouts = |forecast: &Value| -> Vec<String> {
        let advice = forecast["advice"].as_array().unwrap().iter();
        advice.map(|advice| advice["about"].as_str().unwrap().to_owned()).collect()
    };
    let docsis = file("group.toml", block("docsis.md", "[[modem]]"));
    let downstream = forecast(folder.path(), &docsis, &["--rate=2", "--ring=256"]);
    let parts = downstream["working_set"].as_array().unwrap();
    assert!(parts.iter().any(|part| part["name"] == "state of 1 modems"), "{downstream}");
    assert_eq!(downstream["frames"], "cable");
    // Buffers that go from lane to lane go through the ring.
    let ring = forecast(folder.path(), &docsis, &["--rate=2", "--ring=256", "--pool=ring"]);
    assert_eq!(abouts(&ring)[..2], ["pool", "hot-set"], "{ring}");
}

#[test]
fn a_routers_file_is_predicted_with_the_kernels_routes_as_they_are_said_to_be() {
    let folder = tempfile::tempdir().unwrap();
    let router = root().join("fuzz/seeds/config/takeover.toml");
    let forecast = forecast(folder.path(), &router, &["--rate=1Mpps", "--frames=64", "--ring=256"]);
    assert_eq!((&forecast["function"], forecast["lanes"].as_u64()), (&"router".into(), Some(2)));
    let level = |name: &str| forecast["per_packet"][name].as_f64().unwrap();
    assert!(level("accesses") >= level("first_misses") && level("first_misses") >= level("second_misses"));
    let output = run(folder.path(), &router, &["--rate=1Mpps", "--ring=256"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("IPv4 table: ") && text.contains("rings of 'eth0' (xdp, 256 entries)"), "{text}");
}

#[test]
fn what_cannot_be_predicted_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let small = root().join("fuzz/seeds/config/router.toml");
    let said = |file: &Path, arguments: &[&str]| {
        let output = run(folder.path(), file, arguments);
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let none = said(&folder.path().join("machine.toml"), &[]);
    assert!(none.contains("is no configuration of forward, router or docsis"), "{none}");
    let fast = said(&small, &["--rate=4000", "--frames=1518"]);
    assert!(fast.contains("4000 Gbit/s for 2 port(s)") && fast.contains("no machine has that"), "{fast}");
    assert!(said(&small, &["--rate=fast"]).contains("\"fast\" is no rate"));
    assert!(said(&small, &["--full-table"]).contains("--full-table is for a router"));
    assert!(said(Path::new("/nowhere.toml"), &[]).contains("cannot read /nowhere.toml"));
}
