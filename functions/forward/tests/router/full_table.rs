//! What the full tables of both families take of memory, and that they answer as what they were made of says.

use std::collections::BTreeMap;

use warmlane_forward::control::full_table;
use warmlane_table::{Ipv4Table, Ipv6Table, NextHopId};

const MEBIBYTE: usize = 1 << 20;
/// Next hops that the routes are spread over, as by a router with many neighbours
const HOPS: usize = 64;

fn hop(index: usize) -> NextHopId {
    NextHopId::new((index.wrapping_mul(0x9e37_79b1) >> 8 & (HOPS - 1)) as u32).unwrap()
}

/// Some routes of the table, by their places in it
fn some(count: usize) -> impl Iterator<Item = usize> {
    (0..count).step_by(97)
}

/// Makes a table of prefixes, checks what it answers, and gives the bytes that lookups read and those of all of it.
macro_rules! bytes_of {
    ($Table:ident, $prefixes:expr, looked up by $bits:ident) => {{
        let prefixes = $prefixes;
        let routes = || prefixes.iter().enumerate().map(|(index, prefix)| (*prefix, hop(index)));
        let table = $Table::from_routes(routes()).unwrap();
        let known: BTreeMap<_, _> = routes().collect();
        assert_eq!(table.len(), known.len());
        for index in some(prefixes.len()) {
            let first = prefixes[index].address();
            let (longest, answer) = table.longest_match(first.to_bits()).unwrap();
            assert_eq!(known[&longest], answer);
            assert_eq!(table.lookup(first.$bits()), answer);
        }
        (table.lookup_bytes(), table.memory_bytes())
    }};
}

#[test]
fn ipv4_takes_what_was_promised() {
    let (lookups, all) = bytes_of!(Ipv4Table, full_table::ipv4().unwrap(), looked up by to_bits);
    // What lookups read is a compressed table's; all includes the routes themselves, for changes and walks.
    assert!(lookups <= 8 * MEBIBYTE, "{lookups} bytes");
    assert!((lookups..=80 * MEBIBYTE).contains(&all), "{all} bytes");
}

#[test]
fn ipv6_takes_what_was_promised() {
    let (lookups, all) = bytes_of!(Ipv6Table, full_table::ipv6().unwrap(), looked up by octets);
    assert!((lookups..=64 * MEBIBYTE).contains(&all), "{lookups} and {all} bytes");
}
