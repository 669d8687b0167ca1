//! `warmlane lab memory-traffic`, small: cells beside published figures, machines from files, and what can't be.

use std::process::{Command, Output};

use serde_json::Value;
use warmlane_system_tests::turn;
use warmlane_testkit::process::warmlane;

fn run(arguments: &[&str]) -> Output {
    let _turn = turn::beside_others();
    Command::new(warmlane()).args(["lab", "memory-traffic"]).args(arguments).output().unwrap()
}

#[test]
fn cells_are_held_against_what_was_published() {
    let output = run(&["--pools=ring,stack,depot", "--tests=1", "--instances=1,2", "--frames=256", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let cells = result["cells"].as_array().unwrap();
    let figure = |cell: &Value, name: &str| cell[name].as_f64().unwrap();
    assert_eq!(cells.iter().map(|cell| figure(cell, "published")).collect::<Vec<_>>(), [95.0, 88.0]);
    for cell in cells {
        let modelled = figure(cell, "modelled");
        assert!(modelled > 75.0 && modelled < 100.0, "{cell}");
        assert!((modelled - figure(cell, "published") - figure(cell, "difference")).abs() < 1e-9, "{cell}");
        let both = |pool: usize| {
            let bandwidth = &cell["pools"][pool][1];
            figure(bandwidth, "read") + figure(bandwidth, "written")
        };
        assert!((1.0 - both(1) / both(0) - modelled / 100.0).abs() < 1e-9, "{cell}");
    }
    let verdict = result["verdict"].as_str().unwrap();
    assert_eq!(verdict, "cannot tell here: 2 of the 20 cells were modelled");
}

#[test]
fn another_machine_is_asked_with_a_rate() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("small.toml");
    let text = "name = 'small'\ncores = 2\nfirst = { kib = 32, ways = 8 }\nsecond = { kib = 256, ways = 8 }\n\
                shared = { kib = 2048, ways = 16 }\ninclusion = 'inclusive'\ndevice-ways = 2\n";
    std::fs::write(&file, text).unwrap();
    let machine = format!("--machine={}", file.display());
    let picture = folder.path().join("traffic.svg");
    let plot = format!("--plot={}", picture.display());
    let flags =
        ["--rate=10", "--crc", "--instances=1,2", "--mix=68:1,1520:3", "--pools=ring,stack", "--frames=128"];
    let output = run(&[&[machine.as_str(), &plot][..], &flags].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told = String::from_utf8_lossy(&output.stdout);
    // The drop is told for both numbers of instances.
    assert_eq!(told.matches(" %").count(), 2, "{told}");
    assert!(told.starts_with("Modelled on small: ") && told.contains("    10  yes          2"), "{told}");
    assert!(std::fs::read_to_string(picture).unwrap().contains("10 Gbit/s an instance, CRC"));
    let refused = run(&[&[machine.as_str()][..], &["--rate=10", "--instances=3", "--pools=ring"]].concat());
    assert!(!refused.status.success());
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("3 instances: small has 2 cores"), "{said}");
}
