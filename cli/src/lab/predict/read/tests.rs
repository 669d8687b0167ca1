//! Real files, and what is none.

use super::*;

const UNSAID: Unsaid = Unsaid { ring: None, full_table: false, pool: PoolKind::Depot };

fn read(text: &str) -> anyhow::Result<Configuration> {
    configuration(Path::new("f.toml"), text, UNSAID)
}

fn error(text: &str) -> String {
    format!("{:#}", read(text).unwrap_err())
}

#[test]
fn a_forwarders_file_says_its_pool_its_rings_and_its_tables() {
    let small = read(include_str!("../../../../../fuzz/seeds/config/router.toml")).unwrap();
    assert_eq!((small.function, small.lanes, small.ports.len()), (Function::Forward, 1, 2));
    assert!(small.ports.iter().all(|port| port.entries == 0 && port.driver == "null"));
    let ipv4 = &small.tables[0];
    assert!(!ipv4.ipv6 && ipv4.bytes >= 4 << 20 && ipv4.reached < 100, "{ipv4:?}");
    let text = "[pool]\nbuffers = 8192\nkind = 'ring'\n[[port]]\nname = 'a'\ndriver = 'xdp:eth0,ring=512'\n\
                [[port]]\nname = 'b'\ndriver = 'memif:@m,mode=zero-copy'\n[[port]]\nname = 'c'\ndriver = 'packet:eth1'\n";
    let rings = read(text).unwrap();
    assert_eq!((rings.pool.buffers, rings.pool.kind), (8_192, PoolKind::Ring));
    let ports = rings.ports.iter().map(|port| (port.entries, port.posts, port.slot_bytes, port.option));
    let expected =
        [(512, true, 0, Some("ring")), (1_024, true, 0, Some("ring-size")), (1_024, false, 2_048, None)];
    assert_eq!(ports.collect::<Vec<_>>(), expected);
    assert_eq!(rings.tables, []);
}

#[test]
fn a_downstreams_file_says_its_modems() {
    let page = include_str!("../../../../../docs/docsis.md");
    let file = page.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let group = configuration(Path::new("f.toml"), file, Unsaid { ring: Some(64), ..UNSAID }).unwrap();
    assert_eq!((group.function, group.modems, group.crc), (Function::Docsis, 1, true));
    assert_eq!(group.ports[0].entries, 64);
    assert_eq!(error("crc = false"), "f.toml: there is no modem: give at least one");
}

#[test]
fn what_is_of_none_of_the_three_is_named() {
    let none = error("lanes = 2\ntitle = 'x'\n");
    assert!(none.contains("f.toml is no configuration of forward, router or docsis"), "{none}");
    assert!(none.contains("this one has lanes, title"), "{none}");
    assert!(error("").contains("this one has nothing"));
    assert!(error("[").contains("f.toml is no TOML file"));
    let wrong = error("[[port]]\nname = 'a'\ndriver = 'nil'\n");
    assert!(wrong.contains("unknown driver 'nil'"), "{wrong}");
    assert!(error("[[modem]]\nmac = 'x'\n").starts_with("f.toml: "));
}
