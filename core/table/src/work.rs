//! How much a change looks at and writes, which is what it costs on any machine
//!
//! Only tests count. Elsewhere nothing of this is left.

#[cfg(test)]
thread_local! {
    static DONE: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Notes that so many routes, links or nodes were looked at, or that as much space for them is written
#[inline(always)]
pub(crate) fn add(count: usize) {
    #[cfg(test)]
    DONE.set(DONE.get() + count);
    #[cfg(not(test))]
    let _ = count;
}

#[cfg(test)]
mod tests {
    use warmlane_sys::random::Random;

    use super::DONE;
    use crate::{Address, Ipv4Table, Ipv6Table, NextHopId, Prefix};

    /// A /64 of the prefix for documentation (RFC 3849)
    const SITE: u128 = 0x2001_0db8 << 96;
    /// On average, and at most: a change that makes a field grow visits each of its links and each node right below
    const IPV6: Bounds = Bounds { mean: 100, most: 2 << 16 };
    /// On average: the routes behind a new one move up within its /19. At most: all of them move to where there is more space
    const IPV4: Bounds = Bounds { mean: 1024, most: 2 << 14 };

    struct Bounds {
        mean: usize,
        most: usize,
    }

    /// Removals and insertions once all routes are there
    const CHANGES: usize = 4096;

    fn work_of(change: impl FnOnce()) -> usize {
        DONE.set(0);
        change();
        DONE.get()
    }

    /// Makes routes to these hosts, one by one, then takes some away and makes them again. However many there are by then, changes
    /// take no more than the bounds.
    fn check<A: Address>(
        name: &str,
        hosts: &[A],
        mut change: impl FnMut(Prefix<A>, Option<NextHopId>),
        bounds: &Bounds,
    ) {
        let mut random = Random::new(0);
        let mut changed = |host: A, stays: bool| {
            let hop = stays.then(|| NextHopId::new(1 + random.below(1000) as u32).unwrap());
            work_of(|| change(Prefix::containing(host, A::BITS), hop))
        };
        let mut works: Vec<_> = hosts.iter().map(|host| changed(*host, true)).collect();
        let mut random = Random::new(1);
        for _ in 0..CHANGES / 2 {
            let host = hosts[random.below(hosts.len())];
            works.extend([changed(host, false), changed(host, true)]);
        }
        let means = works.chunks(CHANGES).map(|part| part.iter().sum::<usize>() / part.len());
        let (highest, worst) = (means.max().unwrap(), *works.iter().max().unwrap());
        eprintln!("{name}: {highest} for each of {CHANGES} changes, {worst} for one");
        assert!(highest <= bounds.mean && worst <= bounds.most, "{name}: {highest}, {worst}");
    }

    /// All in another order
    fn shuffled<A: Copy>(mut all: Vec<A>) -> Vec<A> {
        let mut random = Random::new(2);
        (1..all.len()).for_each(|last| all.swap(last, random.below(last + 1)));
        all
    }

    #[test]
    fn an_ipv6_host_costs_the_same_whatever_lies_near() {
        let mut random = Random::new(3);
        let anywhere: Vec<_> = (0..8192).map(|_| SITE | u128::from(random.bits())).collect();
        let adjacent: Vec<_> = (1..65_535).map(|host| SITE | host).collect();
        // Interface identifiers made of one vendor's MACs (RFC 4291 appendix A)
        let vendor = (0..16_384).map(|_| SITE | 0x0250_56ff_fe00_0000 | u128::from(random.bits() >> 40));
        let vendor: Vec<_> = vendor.collect();
        // As far apart as can be, so that they have nothing but their last bits in common
        let scattered: Vec<_> = (0..16_384).map(|host: u128| SITE | host << 50 | (host % 3)).collect();
        let mixed: Vec<_> = anywhere.iter().chain(&adjacent[..8192]).copied().collect();
        for (name, hosts) in [
            ("anywhere in a /64", anywhere),
            ("side by side", adjacent.clone()),
            ("side by side, from the last", adjacent[..16_384].iter().rev().copied().collect()),
            ("side by side, in any order", shuffled(adjacent[..16_384].to_vec())),
            ("of one vendor", vendor),
            ("scattered", scattered),
            ("some side by side, others anywhere", shuffled(mixed)),
        ] {
            let mut table = Ipv6Table::new().unwrap();
            let change = |prefix, hop| table.apply([(prefix, hop)]).unwrap();
            check(name, &hosts, change, &IPV6);
        }
    }

    #[test]
    fn an_ipv4_host_costs_the_same_whatever_lies_near() {
        let adjacent: Vec<u32> = (0..8192).map(|host| 0x0a01_2000 | host).collect();
        let many: Vec<u32> = (0..32_768).map(|host| 0x0a02_0001 + host).collect();
        for (name, hosts) in [
            ("all of a /19", adjacent.clone()),
            ("all of a /19, from the last", adjacent.iter().rev().copied().collect()),
            ("all of a /19, in any order", shuffled(adjacent)),
            ("half of a /16, in any order", shuffled(many)),
        ] {
            let mut table = Ipv4Table::new().unwrap();
            let change = |prefix, hop| table.apply([(prefix, hop)]).unwrap();
            check(name, &hosts, change, &IPV4);
        }
    }
}
