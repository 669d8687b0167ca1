//! What tables are measured with, so that a peer gets the same as ours.

use crate::benches::exact::{self, Key};
use crate::benches::lpm;
use crate::measure::Measure;
use crate::random::Xorshift;
use crate::routes::{Family, Locality, random_hop};

/// Routes of a full table, and addresses to look up in it.
#[derive(Clone, Debug)]
pub struct Routes<A> {
    /// First address, length and next hop of each.
    pub routes: Vec<(A, u8, u16)>,
    /// Each inside a prefix drawn at random; in host order.
    pub addresses: Vec<A>,
}

/// Those of `lpm4`.
///
/// # Errors
/// If the embedded table can't be unpacked.
pub fn ipv4() -> Result<Routes<u32>, String> {
    routes(lpm::IPV4_ADDRESSES)
}

/// Those of `lpm6`.
///
/// # Errors
/// If the embedded table can't be unpacked.
pub fn ipv6() -> Result<Routes<u128>, String> {
    routes(lpm::IPV6_ADDRESSES)
}

fn routes<A: Family>(addresses: usize) -> Result<Routes<A>, String> {
    let prefixes = A::full_table().map_err(|error| error.to_string())?;
    let mut random = Xorshift(Xorshift::SEED);
    // A number of a next hop has 16 bits.
    let route = |prefix: &warmlane_table::Prefix<A>| {
        (prefix.first(), prefix.length(), random_hop(&mut random).index() as u16)
    };
    let routes = prefixes.iter().map(route).collect();
    Ok(Routes { routes, addresses: Locality::Inside.addresses(&prefixes, addresses) })
}

/// The keys of `exact`: those of all flows, and those to look up, in random order.
pub fn flows() -> (Vec<Key>, Vec<Key>) {
    let keys = (0..exact::FLOWS).map(exact::key).collect();
    (keys, exact::random_order(exact::FLOWS, exact::FLOWS).map(exact::key).collect())
}

/// So many of them, evenly over the whole list.
pub fn evenly<T: Copy>(all: &[T], count: usize) -> Vec<T> {
    let count = count.min(all.len());
    (0..count).map(|index| all[index * all.len() / count]).collect()
}

/// Bursts of lookups, as a measurement: `look_up` gets some of `keys` in turn, and as many answers to fill.
pub fn bursts<K: 'static, V: Clone + 'static>(
    keys: Vec<K>,
    burst: usize,
    empty: V,
    look_up: impl Fn(&[K], &mut [V]) + 'static,
) -> Box<dyn Measure> {
    lpm::lookups(keys, burst, empty, look_up)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_get_what_the_benches_have() {
        let Routes { routes, addresses } = ipv4().unwrap();
        assert_eq!(addresses.len(), 1 << 22);
        assert!(routes.len() > 900_000 && routes.iter().all(|(_, length, hop)| *length <= 32 && *hop < 64));
        let (flows, lookups) = flows();
        assert_eq!((flows.len(), lookups.len()), (1_000_000, 1_000_000));
        assert_eq!(flows[1], exact::key(1));
    }

    #[test]
    fn full_tables_take_the_memory_they_may() {
        fn bytes<A: Family>() -> (usize, usize) {
            let prefixes = A::full_table().unwrap();
            let mut random = Xorshift(Xorshift::SEED);
            A::bytes(&A::table(prefixes.into_iter().map(|prefix| (prefix, random_hop(&mut random)))).unwrap())
        }
        let (lookups, all) = bytes::<u32>();
        assert!(lookups <= 8 << 20 && all <= 80 << 20, "IPv4: {lookups} bytes for lookups, {all} in all");
        let (lookups, all) = bytes::<u128>();
        assert!(lookups <= 16 << 20 && all <= 64 << 20, "IPv6: {lookups} bytes for lookups, {all} in all");
    }
}
