use super::*;

const FILE: &str = r#"
key-seed = 7

[tunnel]
source = "2001:db8::1"
destination = "2001:db8::2"

[limits]
age-milliseconds = 20

[[channel]]
name = "a"
kind = "ofdm"
rate = 1_000_000_000
session = 1

[[channel]]
name = "b"
kind = "sc-qam"
rate = 38_000_000
session = 2

[[group]]
name = "both"
channels = ["b", "a"]

[[filter]]
name = "web"
otherwise = "deny"
[[filter.rule]]
action = "permit"
match = { protocol = 6, source-ports = [80, 80] }

[[modem]]
mac = "02:00:00:00:00:01"
addresses = ["192.0.2.1", "2001:db8::10"]
said = 5
filter = "web"
[[modem.flow]]
name = "primary"
group = "both"
maximum-rate = 5_000_000
[[modem.flow]]
name = "voice"
group = "both"
priority = 5
[[modem.classifier]]
priority = 64
flow = "voice"
match = { traffic-class = [184, 184, 252] }
"#;

#[test]
fn names_become_numbers() {
    let group = parse_group(FILE).unwrap();
    assert_eq!((group.keys.seed, group.limits.age), (7, Duration::from_millis(20)));
    assert_eq!(group.groups, [Group { channels: vec![1, 0] }]);
    assert!(matches!(group.tunnel.addresses, TunnelAddresses::V6 { .. }));
    let modem = &group.modems[0];
    assert_eq!((modem.primary_flow, modem.filter, modem.classifiers[0].flow), (0, Some(0), 1));
    assert_eq!((group.flows[0].maximum_rate, group.flows[1].priority), (Some(5_000_000), 5));
}

/// What the file with one change is refused for.
#[track_caller]
fn refused(from: &str, to: &str) -> String {
    assert!(FILE.contains(from), "{from}");
    parse_group(&FILE.replacen(from, to, 1)).unwrap_err().to_string()
}

#[test]
fn what_is_wrong_is_named() {
    for (from, to, part) in [
        ("said = 5", "said = 0", "security association 0"),
        ("said = 5", "sahd = 5", "sahd"),
        ("maximum-rate = 5_000_000", "maximum-rate = 0", "rate of 0"),
        ("rate = 38_000_000", "rate = 0", "channel b has a rate of 0"),
        ("[\"b\", \"a\"]", "[\"b\", \"c\"]", "group 'both' refers to channel 'c'"),
        ("[\"b\", \"a\"]", "[\"b\"]", "channel a"),
        ("flow = \"voice\"", "flow = \"video\"", "modem 02:00:00:00:00:01 refers to flow 'video'"),
        ("filter = \"web\"", "filter = \"wide\"", "filter 'wide'"),
        ("destination = \"2001:db8::2\"", "destination = \"192.0.2.2\"", "both must be IPv4"),
        ("age-milliseconds = 20", "packets = 1", "2 service flows share 1"),
        ("02:00:00:00:00:01", "02:00", "02:00"),
        ("traffic-class = [184, 184, 252]", "dsap = 170", "give the EtherType"),
        ("traffic-class = [184, 184, 252]", "dsap = 300", "300"),
    ] {
        let error = refused(from, to);
        assert!(error.contains(part), "{to}: {error}");
    }
    let overlap = "[[modem.classifier]]\npriority = 64\nflow = \"primary\"\n";
    let error = parse_group(&format!("{FILE}{overlap}")).unwrap_err().to_string();
    assert!(error.contains("two classifiers of modem 02:00:00:00:00:01 have priority 64"), "{error}");
    let error = parse_group("[[modem]]\nmac = \"02:00:00:00:00:01\"\nsaid = 1\n").unwrap_err().to_string();
    assert!(error.contains("has no flow"), "{error}");
}
