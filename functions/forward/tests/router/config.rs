//! Configurations that work, and what is said about those that don't.

use std::net::Ipv4Addr;

use warmlane_forward::control::config::{ConfigProblem, FullTableConfig, RouteTarget};
use warmlane_forward::control::{Config, NextHop, Routes};
use warmlane_mem::PoolKind;

const GOOD: &str = r#"lanes = 2
burst = 32
pool = { buffers = 4096, data-size = 2048, kind = "stack" }
icmp = { rate = 10, burst = 5 }

[[port]]
name = "a"
driver = { replay = { file = "a.pcap", rounds = 3 } }
addresses = ["192.0.2.1/24", "2001:db8::1/64"]
mac = "02:00:00:00:00:01"

[[port]]
name = "b"
driver = "drop"
addresses = ["198.51.100.0/31"]
mtu = 9000

[[neighbour]]
address = "192.0.2.2"
mac = "02:00:00:00:01:02"
port = "a"

[[neighbour]]
address = "fe80::2"
mac = "02:00:00:00:01:02"
port = "a"

[[neighbour]]
address = "198.51.100.1"
mac = "02:00:00:00:02:01"
port = "b"
vlan = 4094

[[route]]
prefix = "0.0.0.0/0"
via = "192.0.2.2"

[[route]]
prefix = "10.0.0.0/8"
via = [{ via = "192.0.2.2", weight = 3 }, { via = "198.51.100.1" }]

[[route]]
prefix = "2001:db8:1::/48"
via = "fe80::2"
port = "a"

[[route]]
prefix = "203.0.113.0/24"
port = "b"

[[route]]
prefix = "240.0.0.0/4"
drop = true

[[route]]
prefix = "2001:db8:2::/48"
unreachable = true

[[flow]]
protocol = "tcp"
from = "192.0.2.9:4242"
to = "203.0.113.5:443"
via = "198.51.100.1"

[[flow]]
protocol = "udp"
from = "[2001:db8::9]:1"
to = "[2001:db8:7::1]:53"
via = "fe80::2"
port = "a"

[[flow]]
protocol = "sctp"
from = "192.0.2.9:4242"
to = "203.0.113.5:443"
drop = true
"#;

#[test]
fn a_whole_configuration_is_read() {
    let config = Config::from_toml(GOOD).unwrap();
    assert_eq!((config.lanes, config.burst, config.icmp.rate), (2, 32, 10));
    assert_eq!((config.pool.buffers, config.pool.kind), (Some(4096), Some(PoolKind::Stack)));
    assert_eq!((config.ports[0].mtu, config.ports[1].mtu), (1500, 9000));
    let (_, drivers) = Config::with_drivers::<toml::Value>(GOOD).unwrap();
    assert_eq!(drivers[0]["replay"]["rounds"].as_integer(), Some(3));
    assert_eq!(config.neighbours[2].vlan, Some(4094));
    let targets: Vec<&RouteTarget> = config.routes.iter().map(|route| &route.target).collect();
    assert_eq!(
        targets,
        [
            &RouteTarget::Via(vec![(0, 1)]),
            &RouteTarget::Via(vec![(0, 3), (2, 1)]),
            &RouteTarget::Via(vec![(1, 1)]),
            &RouteTarget::OnLink(1),
            &RouteTarget::Drop,
            &RouteTarget::Unreachable,
        ]
    );

    let flows: Vec<(String, &RouteTarget)> =
        config.flows.iter().map(|flow| (flow.flow.to_string(), &flow.target)).collect();
    assert_eq!(
        flows,
        [
            ("TCP 192.0.2.9:4242 to 203.0.113.5:443".to_owned(), &RouteTarget::Via(vec![(2, 1)])),
            ("UDP [2001:db8::9]:1 to [2001:db8:7::1]:53".to_owned(), &RouteTarget::Via(vec![(1, 1)])),
            ("SCTP 192.0.2.9:4242 to 203.0.113.5:443".to_owned(), &RouteTarget::Drop),
        ]
    );

    let routes = Routes::from_config(&config).unwrap();
    assert_eq!(routes.flows().len(), 3);
    let hop = |address: [u8; 4]| routes.next_hop(routes.ipv4().lookup(Ipv4Addr::from(address).to_bits()));
    assert!(matches!(hop([8, 8, 8, 8]), Some(NextHop::Forward(next)) if next.port == 0));
    assert!(matches!(hop([10, 1, 1, 1]), Some(NextHop::Group(group)) if group.buckets().len() == 256));
    assert!(matches!(hop([192, 0, 2, 1]), Some(NextHop::Local)));
    assert!(matches!(hop([192, 0, 2, 3]), Some(NextHop::NoNeighbour)));
    assert!(matches!(hop([192, 0, 2, 255]), Some(NextHop::DirectedBroadcast)));
    assert!(matches!(hop([198, 51, 100, 1]), Some(NextHop::Forward(next)) if next.vlan == Some(4094)));
    assert!(matches!(hop([198, 51, 100, 0]), Some(NextHop::Local)));
    assert!(matches!(hop([203, 0, 113, 9]), Some(NextHop::NoNeighbour)));
}

#[test]
fn the_full_table_is_spread_by_the_prefixes_text() {
    let text =
        format!("{GOOD}\n[full-table]\nipv4 = [\"192.0.2.2\", \"198.51.100.1\"]\nipv6 = [\"fe80::2\"]\n");
    let routes = Routes::from_config(&Config::from_toml(&text).unwrap()).unwrap();
    assert!(routes.ipv4().len() > 901_899 && routes.ipv6().len() > 160_147);
    // FNV-1a of "1.0.0.0/24" is 0x1441112346e5e8f1 by another program.
    assert_eq!(FullTableConfig::entry("1.0.0.0/24", 1 << 16), 0xe8f1);
    let hop = routes.ipv4().route("1.0.0.0/24".parse().unwrap()).unwrap();
    let expected = FullTableConfig::entry("1.0.0.0/24", 2) as u16;
    assert!(matches!(routes.next_hop(hop), Some(NextHop::Forward(next)) if next.port == expected));
}

/// Replaces one piece of the good configuration and gives what is said about the result.
fn said(old: &str, new: &str) -> String {
    assert!(GOOD.contains(old), "{old}");
    Config::from_toml(&GOOD.replacen(old, new, 1)).unwrap_err().to_string()
}

#[test]
fn faults_of_flows_are_named_with_their_place_and_a_remedy() {
    for (old, new, place, words) in [
        (
            "\"tcp\"",
            "\"icmp\"",
            "line 60, column 12",
            "\"icmp\" is no protocol that flows can have: use tcp, udp or sctp",
        ),
        ("protocol = \"tcp\"\n", "", "line 59", "missing field `protocol`"),
        ("192.0.2.9:4242", "192.0.2.9", "line 61, column 8", "is not an address with a port"),
        (
            "192.0.2.9:4242",
            "192.0.2.9:65536",
            "line 61, column 8",
            "as in 192.0.2.1:4242 or [2001:db8::1]:53",
        ),
        ("192.0.2.9:4242", "224.0.0.1:4242", "line 61, column 8", "224.0.0.1 is no unicast address"),
        (
            "192.0.2.9:4242",
            "[2001:db8::9]:4242",
            "line 61, column 8",
            "give two addresses of the same version of IP",
        ),
        (
            "via = \"198.51.100.1\"\n\n[[flow]]",
            "via = \"198.51.100.9\"\n\n[[flow]]",
            "line 63, column 7",
            "198.51.100.9 has no [[neighbour]]: add one",
        ),
        (
            "via = \"198.51.100.1\"\n\n[[flow]]",
            "via = [{ via = \"198.51.100.1\" }, { via = \"192.0.2.2\" }]\n\n[[flow]]",
            "line 61",
            "has several next hops",
        ),
        ("\"sctp\"", "\"tcp\"", "line 74", "the flow TCP 192.0.2.9:4242 to 203.0.113.5:443 is given twice"),
        (
            "via = \"fe80::2\"\nport = \"a\"\n\n[[flow]]",
            "port = \"a\"\n\n[[flow]]",
            "line 67",
            "names a port, which doesn't say which neighbour",
        ),
        (
            "to = \"203.0.113.5:443\"\ndrop = true",
            "to = \"203.0.113.5:443\"\ndrop = true\nunreachable = true",
            "line 74",
            "says 2 ways to go",
        ),
    ] {
        let message = said(old, new);
        assert!(message.starts_with(place), "{new}: {message}");
        assert!(message.contains(words), "{new}: {message}");
    }
}

#[test]
fn each_fault_is_named_with_its_place_and_a_remedy() {
    for (old, new, place, words) in [
        ("lanes = 2", "lanes = 0", "line 1, column 9", "`lanes` is 0: use 1 to 255"),
        ("burst = 32", "burst = 257", "line 2, column 9", "`burst` is 257: use 1 to 256"),
        ("lanes = 2", "lane = 2", "line 1, column 1", "unknown field `lane`"),
        ("lanes = 2", "lanes = = 2", "line 1", ""),
        ("kind = \"stack\"", "kind = \"heap\"", "line 3", "unknown variant `heap`"),
        ("data-size = 2048", "data-size = 1024", "line 3", "`pool.data-size` is 1024: use 1344 to 60000"),
        ("name = \"b\"", "name = \"a\"", "line 13, column 8", "port name \"a\" is used twice"),
        ("driver = \"drop\"", "drivers = \"drop\"", "line 14", "unknown field `drivers`"),
        ("mtu = 9000", "mtu = 67", "line 16, column 7", "`mtu` is 67: use 68 to 65535"),
        ("mac = \"02:00:00:00:00:01\"", "mac = \"02:00:00:00:00\"", "line 10, column 7", "has 5 groups"),
        ("mac = \"02:00:00:00:00:01\"", "mac = \"ff:ff:ff:ff:ff:ff\"", "line 10", "give a unicast address"),
        ("mac = \"02:00:00:00:00:01\"", "mtu = 1279", "line 9, column 30", "IPv6 needs at least 1280"),
        ("192.0.2.1/24", "192.0.2.1", "line 9, column 14", "as in 192.0.2.1/24"),
        (
            "192.0.2.1/24",
            "192.0.2.1/33",
            "line 9",
            "192.0.2.1/33: the length of the prefix is out of range: use 0 to 32",
        ),
        ("192.0.2.1/24", "192.0.2.0/24", "line 9", "192.0.2.0 is no unicast address of one host"),
        ("192.0.2.1/24", "198.51.100.0/31", "line 15", "address 198.51.100.0 is given twice"),
        ("2001:db8::1/64", "ff02::1/64", "line 9", "ff02::1 is no unicast address of one host"),
        ("address = \"192.0.2.2\"", "address = \"192.0.2\"", "line 19, column 11", "is not an IP address"),
        (
            "address = \"fe80::2\"",
            "address = \"192.0.2.2\"",
            "line 24",
            "neighbour 192.0.2.2 on port \"a\" is given twice",
        ),
        (
            "port = \"b\"\nvlan",
            "port = \"c\"\nvlan",
            "line 31, column 8",
            "there is no port \"c\": ports are a, b",
        ),
        ("vlan = 4094", "vlan = 4095", "line 32", "`vlan` is 4095: use 1 to 4094"),
        ("0.0.0.0/0", "0.0.0.0/33", "line 35, column 10", "the length of the prefix is out of range"),
        (
            "10.0.0.0/8",
            "10.0.0.1/8",
            "line 39",
            "10.0.0.1/8 has bits set after its length: the network is 10.0.0.0/8",
        ),
        ("10.0.0.0/8", "0.0.0.0/0", "line 39", "two routes to 0.0.0.0/0"),
        (
            "via = \"192.0.2.2\"",
            "via = \"192.0.2.9\"",
            "line 36, column 7",
            "192.0.2.9 has no [[neighbour]]: add one",
        ),
        (
            "via = \"fe80::2\"\nport = \"a\"",
            "via = \"fe80::2\"\nport = \"b\"",
            "line 44",
            "no [[neighbour]] on port \"b\"",
        ),
        (
            "{ via = \"198.51.100.1\" }",
            "{ via = \"192.0.2.2\" }",
            "line 40",
            "192.0.2.2 is in the list twice",
        ),
        ("weight = 3", "weight = 0", "line 40, column 38", "`weight` is 0"),
        ("drop = true", "drop = true\nport = \"b\"", "line 52", "says 2 ways to go"),
        ("unreachable = true", "unreachable = false", "line 56", "says 0 ways to go"),
    ] {
        let message = said(old, new);
        assert!(message.starts_with(place), "{new}: {message}");
        assert!(message.contains(words), "{new}: {message}");
    }
    let two = GOOD.to_owned()
        + "\n[[neighbour]]\naddress = \"fe80::2\"\nmac = \"02:00:00:00:09:09\"\nport = \"b\"\n";
    assert!(Config::from_toml(&two).is_ok(), "the route names its port");
    let ambiguous = two.replacen("via = \"fe80::2\"\nport = \"a\"", "via = \"fe80::2\"", 1);
    assert!(Config::from_toml(&ambiguous).unwrap_err().to_string().contains("say which with `port`"));
    assert_eq!(Config::from_toml("").unwrap_err().problem, ConfigProblem::NoPort);
}
