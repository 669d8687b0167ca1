//! Filters against frames built by the library that they know nothing of.

use super::*;
use std::net::Ipv4Addr;
use warmlane_wire::{ArpPacket, Frame, Ipv4Fields, Ipv6Fields, MacAddress, TcpFields, VlanTag};

const MACS: [MacAddress; 2] = [MacAddress([2, 0, 0, 0, 0, 1]), MacAddress([2, 0, 0, 0, 0, 2])];
const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(198, 51, 100, 2)];

fn ethernet() -> Frame<'static> {
    // Destination, then source.
    Frame::new().ethernet(MACS[1], MACS[0])
}

fn frames() -> [(&'static str, Vec<u8>); 5] {
    let ipv4 = Ipv4Fields::new(ADDRESSES[0], ADDRESSES[1]);
    let ipv6 = Ipv6Fields::new("2001:db8::1".parse().unwrap(), "2001:db8:1::2".parse().unwrap());
    [
        ("dns", ethernet().ipv4(ipv4).udp(4242, 53)),
        ("web", ethernet().ipv4(ipv4).tcp(TcpFields::new(4242, 443))),
        ("six", ethernet().ipv6(ipv6).udp(1500, 53)),
        ("tag", ethernet().vlan(VlanTag::customer(7)).ipv4(ipv4).udp(4242, 53)),
        ("arp", ethernet().arp(ArpPacket::request(MACS[0], ADDRESSES[0], ADDRESSES[1]))),
    ]
    .map(|(name, frame)| {
        let mut bytes = vec![0; frame.length()];
        frame.write(&mut bytes).unwrap();
        (name, bytes)
    })
}

/// The names of the frames that a filter wants.
fn wanted(text: &str) -> Vec<&'static str> {
    let filter: Filter = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
    let frames = frames();
    frames.iter().filter(|(_, frame)| filter.matches(frame, frame.len())).map(|(name, _)| *name).collect()
}

#[test]
fn each_primitive_finds_what_it_names() {
    for (text, names) in [
        ("", &["dns", "web", "six", "tag", "arp"][..]),
        ("udp", &["dns", "six", "tag"]),
        ("tcp", &["web"]),
        ("ip", &["dns", "web", "tag"]),
        ("ip6", &["six"]),
        ("arp", &["arp"]),
        ("icmp", &[]),
        ("port 53", &["dns", "six", "tag"]),
        ("src port 53", &[]),
        ("dst port 443", &["web"]),
        ("tcp port 53", &[]),
        ("udp portrange 1000-2000", &["six"]),
        ("port 0x35", &["dns", "six", "tag"]),
        ("host 192.0.2.1", &["dns", "web", "tag", "arp"]),
        ("192.0.2.1", &["dns", "web", "tag", "arp"]),
        ("ip host 192.0.2.1", &["dns", "web", "tag"]),
        ("dst host 192.0.2.1", &[]),
        ("src 192.0.2.1", &["dns", "web", "tag", "arp"]),
        ("src and dst net 192.0.2.0/24", &[]),
        ("src or dst net 192.0.2.0/25", &["dns", "web", "tag", "arp"]),
        ("net 0.0.0.0/0", &["dns", "web", "tag", "arp"]),
        ("net 2001:db8:1::/48", &["six"]),
        ("host 2001:db8::1", &["six"]),
        ("ether src 02:00:00:00:00:01", &["dns", "web", "six", "tag", "arp"]),
        ("ether dst host 2:0:0:0:0:1", &[]),
        ("ether proto 0x86dd", &["six"]),
        ("ether proto \\arp", &["arp"]),
        ("ip proto 17", &["dns", "tag"]),
        ("ip6 proto \\udp", &["six"]),
        ("vlan", &["tag"]),
        ("vlan 7", &["tag"]),
        ("vlan 0x7", &["tag"]),
        ("vlan 8", &[]),
        ("broadcast or multicast", &[]),
        ("less 42", &["dns", "arp"]),
        ("len > 60", &["six"]),
        ("greater 62", &["six"]),
        ("len = 54", &["web"]),
    ] {
        assert_eq!(wanted(text), names, "{text}");
    }
}

#[test]
fn words_between_bind_as_the_manual_says() {
    for (text, names) in [
        ("udp and port 53 and not vlan", &["dns", "six"][..]),
        ("not udp", &["web", "arp"]),
        ("!udp&&!arp", &["web"]),
        ("not not tcp", &["web"]),
        // Alike, and from left to right: (tcp or udp) and vlan.
        ("tcp or udp and vlan", &["tag"]),
        ("tcp or (udp and vlan)", &["web", "tag"]),
        ("not (tcp or udp)", &["arp"]),
        // Qualifiers are taken over.
        ("port 443 or 53", &["dns", "web", "six", "tag"]),
        ("dst host 198.51.100.2 or 2001:db8:1::2", &["dns", "web", "six", "tag", "arp"]),
    ] {
        assert_eq!(wanted(text), names, "{text}");
    }
}

#[test]
fn fragments_behind_the_first_have_no_ports() {
    let mut frame = frames()[0].1.clone();
    frame[21] = 1;
    let matches = |text: &str| text.parse::<Filter>().unwrap().matches(&frame, frame.len());
    assert!(matches("udp and host 192.0.2.1") && !matches("port 53"));
}

#[test]
fn what_is_cut_off_matches_nothing_and_harms_nobody() {
    let texts = ["ip", "host 192.0.2.1", "port 53", "vlan 7", "ether src 02:00:00:00:00:01", "arp", "udp"];
    let filters: Vec<Filter> = texts.iter().map(|text| text.parse().unwrap()).collect();
    for (_, frame) in frames() {
        for end in 0..frame.len() {
            for filter in &filters {
                let matches = filter.matches(&frame[..end], frame.len());
                assert!(!matches || end >= 12, "{filter:?} of {end} bytes");
            }
        }
    }
}

#[test]
fn mistakes_are_named() {
    for (text, part) in [
        ("udp prot 53", "'prot'"),
        ("port", "ends"),
        ("port 65536", "'65536'"),
        ("portrange 1-x", "'1-x'"),
        ("host 192.0.2", "'192.0.2'"),
        ("host 192.0.2.0/24", "'192.0.2.0/24'"),
        ("net 192.0.2.0/33", "'192.0.2.0/33'"),
        ("(tcp", "')'"),
        ("tcp)", "')'"),
        ("tcp udp", "'udp'"),
        ("and", "'and'"),
        ("tcp and", "ends"),
        ("tcp & udp", "'&'"),
        ("ether", "Ethernet"),
        ("ether host 02:00", "'02:00'"),
        ("icmp port 1", "'1'"),
        ("len >< 3", "'<'"),
        ("nonsense", "'nonsense'"),
        ("vlan 4096", "'4096'"),
        ("vlan 7 99999", "'99999'"),
    ] {
        let error = text.parse::<Filter>().map_err(|error| error.to_string());
        assert!(error.as_ref().is_err_and(|error| error.contains(part)), "{text}: {error:?}");
    }
    assert_eq!("(".repeat(100).parse::<Filter>(), Err(FilterError::TooLong));
    assert_eq!("tcp ".repeat(1000).parse::<Filter>(), Err(FilterError::TooLong));
}
