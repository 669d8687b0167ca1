//! Longest-prefix match.
//!
//! The same routes and addresses as our own benches have. None of these crates has a lookup for bursts.

use std::net::{Ipv4Addr, Ipv6Addr};

use ip_network::{Ipv4Network, Ipv6Network};
use ip_network_table::IpNetworkTable;
use prefix_trie::PrefixMap;
use warmlane_lab::bench::Bench;
use warmlane_lab::error::LabError;
use warmlane_lab::measure::Measure;
use warmlane_lab::setting::{Lanes, Setting};
use warmlane_lab::table_inputs::{self, bursts};

pub(crate) const BENCHES: &[Bench] = &[
    Bench {
        name: "lpm4-ip_network_table",
        unit: "lookup",
        sentence: "look up IPv4 addresses inside random prefixes of the full table in ip_network_table's tree bitmap",
        lanes: Lanes::One,
        prepare: ipv4_network_table,
    },
    Bench {
        name: "lpm4-prefix-trie",
        unit: "lookup",
        sentence: "the same in prefix-trie's map",
        lanes: Lanes::One,
        prepare: ipv4_prefix_trie,
    },
    Bench {
        name: "lpm6-ip_network_table",
        unit: "lookup",
        sentence: "look up IPv6 addresses inside random prefixes of the full table in ip_network_table's tree bitmap",
        lanes: Lanes::One,
        prepare: ipv6_network_table,
    },
    Bench {
        name: "lpm6-prefix-trie",
        unit: "lookup",
        sentence: "the same in prefix-trie's map",
        lanes: Lanes::One,
        prepare: ipv6_prefix_trie,
    },
];

type Prepared = Result<Box<dyn Measure>, LabError>;

/// What a table answers where it has no route.
const NO_HOP: u16 = u16::MAX;

fn measured<A: Copy + 'static>(
    addresses: Vec<A>,
    setting: &Setting,
    look_up: impl Fn(A) -> Option<u16> + 'static,
) -> Box<dyn Measure> {
    bursts(addresses, setting.burst.unwrap_or(64), NO_HOP, move |addresses: &[A], hops: &mut [u16]| {
        for (hop, address) in hops.iter_mut().zip(addresses) {
            *hop = look_up(*address).unwrap_or(NO_HOP);
        }
    })
}

fn ipv4_network_table(setting: &Setting) -> Prepared {
    let inputs = table_inputs::ipv4().map_err(LabError::setup)?;
    let mut table = IpNetworkTable::new();
    for (first, length, hop) in inputs.routes {
        let prefix = Ipv4Network::new(Ipv4Addr::from_bits(first), length).map_err(LabError::setup)?;
        table.insert(prefix, hop);
    }
    Ok(measured(inputs.addresses, setting, move |address| {
        table.longest_match_ipv4(Ipv4Addr::from_bits(address)).map(|(_, hop)| *hop)
    }))
}

fn ipv6_network_table(setting: &Setting) -> Prepared {
    let inputs = table_inputs::ipv6().map_err(LabError::setup)?;
    let mut table = IpNetworkTable::new();
    for (first, length, hop) in inputs.routes {
        let prefix = Ipv6Network::new(Ipv6Addr::from_bits(first), length).map_err(LabError::setup)?;
        table.insert(prefix, hop);
    }
    Ok(measured(inputs.addresses, setting, move |address| {
        table.longest_match_ipv6(Ipv6Addr::from_bits(address)).map(|(_, hop)| *hop)
    }))
}

fn ipv4_prefix_trie(setting: &Setting) -> Prepared {
    let inputs = table_inputs::ipv4().map_err(LabError::setup)?;
    let mut table = PrefixMap::<(u32, u8), u16>::new();
    for (first, length, hop) in inputs.routes {
        table.insert((first, length), hop);
    }
    Ok(measured(inputs.addresses, setting, move |address| {
        table.get_lpm(&(address, u32::BITS as u8)).map(|(_, hop)| *hop)
    }))
}

fn ipv6_prefix_trie(setting: &Setting) -> Prepared {
    let inputs = table_inputs::ipv6().map_err(LabError::setup)?;
    let mut table = PrefixMap::<(u128, u8), u16>::new();
    for (first, length, hop) in inputs.routes {
        table.insert((first, length), hop);
    }
    Ok(measured(inputs.addresses, setting, move |address| {
        table.get_lpm(&(address, u128::BITS as u8)).map(|(_, hop)| *hop)
    }))
}
