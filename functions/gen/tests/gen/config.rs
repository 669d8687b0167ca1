//! Descriptions of traffic: what is understood, and what is said of those that aren't.

use crate::common::{profile, stream, template};
use warmlane_gen::control::{Config, Network, PatternName, Rate, RuleOrder, Transport};

const GOOD: &str = r#"
rate = "1Mpps"
pattern = "bursts:32"

[[stream]]
name = "tunnel"
share = 3
size = "128:7,594:4"
payload = "hex:00ff"
signature = false
[stream.packet]
ethernet = { source = "02:00:00:00:00:0a", destination = "02:00:00:00:00:0b" }
vlan = [{ id = 7, priority = 3 }, { id = 100 }]
ipv6 = { source = "2001:2::1", destination = "2001:2::2", dscp = 46 }
udp = { source = 5, destination = 6 }
[[stream.vary]]
field = "ipv6.source"
order = "zipf"
count = 1000
exponent = 1.5

[[stream]]
size = 256
[stream.packet]
ipv4 = { source = "198.18.0.1", destination = "198.19.0.1" }
vxlan = { vni = 42, inner = { ipv4 = { source = "10.0.0.1", destination = "10.0.0.2" }, tcp = { flags = "syn,ack" } } }
[[stream.vary]]
field = "inner.ipv4.source"
values = ["10.0.0.7", "10.0.0.9"]
"#;

#[test]
fn everything_is_understood() {
    let config = Config::from_toml(GOOD).unwrap();
    assert_eq!((config.rate, config.pattern), (Some(Rate::Packets(1e6)), Some(PatternName::Bursts(32))));
    let [first, second] = &*config.profile.streams else { panic!("two streams") };
    assert_eq!((first.name.as_str(), first.share, first.signed), ("tunnel", 3, false));
    assert_eq!(first.template.tags[0].protocol.0, 0x88a8, "the outer one is a service tag");
    assert!(matches!(first.template.network, Network::Ipv6 { traffic_class: 0xb8, .. }));
    assert_eq!(first.rules[0].order, RuleOrder::Zipf { exponent: 1.5 });
    assert!(matches!(second.template.transport, Transport::Vxlan { identifier: 42, checksum: false, .. }));
    assert_eq!((second.name.as_str(), second.signed), ("stream1", true));
    assert_eq!(config.profile.plan().unwrap().streams(), 2);
}

#[test]
fn a_cable_downstream_has_a_stream_for_each_modem() {
    let config = Config::from_toml("[cable]\nmodems = 300").unwrap();
    let plan = config.profile.plan().unwrap();
    assert_eq!(plan.streams(), 300);
    assert!((plan.mean_size() - 1470.56).abs() < 1e-6);
}

/// Each is a change to the good description: what is replaced, by what, the text that the place must point to, what is
/// said of it.
#[test]
fn faults_are_told_with_their_place_and_what_was_expected() {
    let cases = [
        ("\"1Mpps\"", "\"fast\"", "\"fast\"", "expected a number above 0 with a unit"),
        ("bursts:32", "bursts:0", "\"bursts:0", "expected constant, poisson, or bursts:N"),
        ("share = 3", "share = 0", "0\nsize", "`share` is 0: use 1 to 1048576"),
        ("share = 3", "shares = 3", "shares", "unknown field `shares`, expected one of"),
        ("\"128:7,594:4\"", "\"imix9\"", "\"imix9", "expected a size from 18 to 65535"),
        ("\"128:7,594:4\"", "64", "[[stream]]", "headers take 70"),
        ("hex:00ff", "hex:0", "\"hex:0", "\"hex:...\" with pairs of digits"),
        ("02:00:00:00:00:0a", "02:00", "\"02:00\"", "02:00"),
        ("id = 7,", "id = 4096,", "4096", "`id` is 4096: use 0 to 4095"),
        ("2001:2::2", "198.18.0.1", "\"198.18", "is no IPv6 address: expected one as in"),
        ("dscp = 46", "dscp = 64", "64 }", "`dscp` is 64: use 0 to 63"),
        ("destination = 6", "destination = 65536", "65536", "use 0 to 65535"),
        ("\"ipv6.source\"", "\"ipv4.ttl\"", "[[stream]]", "no field \"ipv4.ttl\" in this packet: it has"),
        ("\"zipf\"", "\"normal\"", "\"normal\"", "expected count, list, random or zipf"),
        ("count = 1000", "", "[[stream.vary]]", "neither `count` nor `values`: expected one of them"),
        ("exponent = 1.5", "exponent = 99.0", "[[stream]]", "use 0 to 10"),
        ("size = 256", "size = 100", "[[stream]]\nsize", "too small: headers take"),
        ("vni = 42", "vni = 16777216", "16777216", "use 0 to 16777215"),
        ("syn,ack", "syn,nak", "\"syn,nak", "\"nak\" is no TCP flag: expected names"),
        ("\"10.0.0.9\"", "\"ten\"", "\"ten\"", "is no address: expected"),
        ("udp = {", "icmp = {}\nudp = {", "{}", "expected one of them"),
    ];
    for (from, to, at, message) in cases {
        assert!(GOOD.contains(from), "{from}");
        let text = GOOD.replacen(from, to, 1);
        let error = Config::from_toml(&text).unwrap_err().to_string();
        let before = &text[..text.find(at).unwrap()];
        let line = before.lines().count().max(1) + usize::from(before.ends_with('\n'));
        let column = before.rsplit('\n').next().unwrap().len() + 1;
        let place = format!("line {line}, column {column}: ");
        assert!(error.starts_with(&place) && error.contains(message), "{from} -> {to}: {place}: {error}");
    }
    assert!(Config::from_toml("[[stream").unwrap_err().to_string().starts_with("line 1, column 9"));
    assert!(Config::from_toml("").unwrap_err().to_string().contains("add at least one [[stream]]"));
}

#[test]
fn as_many_streams_as_a_signature_has_numbers_for() {
    let streams =
        |count: usize| profile((0..count).map(|_| stream("one", template(), "64", vec![])).collect());
    assert_eq!(streams(1 << 16).plan().unwrap().streams(), 1 << 16);
    let error = streams((1 << 16) + 1).plan().unwrap_err().to_string();
    assert!(error.contains("65537"), "{error}");
}
