//! What a cable modem termination system sends downstream.

use std::net::Ipv4Addr;

use warmlane_wire::{EtherType, MacAddress};

use super::payload::Payload;
use super::profile::{Profile, Stream};
use super::sizes::Sizes;
use super::template::{Network, Template, Transport};

/// A stream of UDP to each of `modems` modems, by their own Ethernet and IP addresses.
pub fn downstream(modems: u32, sizes: &Sizes) -> Profile {
    // Addresses of modems are from RFC 1918's 10.0.0.0/8, the sender's from the benchmarking range of RFC 2544.
    let stream = |number: u32| {
        let [_, a, b, c] = (number + 1).to_be_bytes();
        Stream {
            name: format!("modem{number}"),
            share: 1,
            template: Template {
                source: MacAddress([2, 0, 0, 0, 0, 1]),
                destination: MacAddress([2, 0xca, 0xb1, a, b, c]),
                ethertype: EtherType::IPV4,
                tags: Vec::new(),
                network: Network::Ipv4 {
                    source: Ipv4Addr::new(198, 18, 0, 1),
                    destination: Ipv4Addr::new(10, a, b, c),
                    traffic_class: 0,
                    ttl: 64,
                    identification: 0,
                    dont_fragment: false,
                },
                transport: Transport::Udp { source: 1024, destination: 9 },
            },
            sizes: sizes.clone(),
            payload: Payload::Random(u64::from(number)),
            signed: true,
            rules: Vec::new(),
        }
    };
    Profile { streams: (0..modems).map(stream).collect() }
}
