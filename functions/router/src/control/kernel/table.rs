//! The kernel's routes by table and prefix.

use std::collections::{BTreeMap, HashMap, btree_map, hash_map};

use warmlane_table::{IpPrefix, Ipv4Prefix, Ipv6Prefix, Prefix};

use super::event::{Route, Target};

/// The routes to one prefix, the lowest metric first. Nearly always there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PrefixRoutes {
    /// The usual case.
    One(Route),
    /// In the order in which the kernel tries them.
    Several(Vec<Route>),
}

impl PrefixRoutes {
    /// In the order in which the kernel tries them.
    pub fn as_slice(&self) -> &[Route] {
        match self {
            Self::One(route) => std::slice::from_ref(route),
            Self::Several(routes) => routes,
        }
    }

    fn into_vec(self) -> Vec<Route> {
        match self {
            Self::One(route) => vec![route],
            Self::Several(routes) => routes,
        }
    }

    fn from_vec(mut routes: Vec<Route>) -> Option<Self> {
        match routes.len() {
            0 => None,
            1 => routes.pop().map(Self::One),
            _ => Some(Self::Several(routes)),
        }
    }
}

/// The routes of one of the kernel's tables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelTable {
    /// IPv4.
    pub ipv4: HashMap<Ipv4Prefix, PrefixRoutes>,
    /// IPv6.
    pub ipv6: HashMap<Ipv6Prefix, PrefixRoutes>,
    /// How many prefixes there are of each length.
    lengths: [BTreeMap<u8, usize>; 2],
    /// How many routes lead to each nexthop object.
    objects: HashMap<u32, usize>,
    mtus: HashMap<IpPrefix, u32>,
    /// How many prefixes of each family have routes that don't go by destination alone.
    others: [usize; 2],
}

impl KernelTable {
    /// MTUs that routes have of their own, the least of each prefix.
    pub(super) fn mtus(&self) -> &HashMap<IpPrefix, u32> {
        &self.mtus
    }

    /// Whether all routes of a family go by destination alone.
    pub(super) fn goes_by_destination(&self, is_ipv6: bool) -> bool {
        self.others[usize::from(is_ipv6)] == 0
    }

    /// Whether a route leads to this nexthop object.
    pub(super) fn uses_object(&self, number: u32) -> bool {
        self.objects.contains_key(&number)
    }

    /// The routes to exactly this prefix.
    pub fn get(&self, prefix: IpPrefix) -> Option<&PrefixRoutes> {
        match prefix {
            IpPrefix::V4(prefix) => self.ipv4.get(&prefix),
            IpPrefix::V6(prefix) => self.ipv6.get(&prefix),
        }
    }

    /// The routes to a prefix and to those around it, the longest first.
    pub fn around(&self, prefix: IpPrefix) -> impl Iterator<Item = (IpPrefix, &PrefixRoutes)> {
        let (family, length) = family_and_length(prefix);
        let lengths = self.lengths[family].range(..=length).rev();
        lengths.filter_map(move |(&length, _)| {
            let wider = shortened(prefix, length);
            Some((wider, self.get(wider)?))
        })
    }

    /// Whether there is a route of this prefix's family.
    pub fn has(&self, family: IpPrefix) -> bool {
        match family {
            IpPrefix::V4(_) => !self.ipv4.is_empty(),
            IpPrefix::V6(_) => !self.ipv6.is_empty(),
        }
    }

    pub(super) fn take(&mut self, prefix: IpPrefix) -> Vec<Route> {
        let list = match prefix {
            IpPrefix::V4(prefix) => self.ipv4.remove(&prefix),
            IpPrefix::V6(prefix) => self.ipv6.remove(&prefix),
        };
        let (family, length) = family_and_length(prefix);
        if list.is_some()
            && let btree_map::Entry::Occupied(mut entry) = self.lengths[family].entry(length)
        {
            *entry.get_mut() -= 1;
            if *entry.get() == 0 {
                entry.remove();
            }
        }
        let routes = list.map(PrefixRoutes::into_vec).unwrap_or_default();
        self.others[family] -= usize::from(!routes.iter().all(goes_by_destination));
        self.mtus.remove(&prefix);
        for number in objects(&routes) {
            if let hash_map::Entry::Occupied(mut entry) = self.objects.entry(number) {
                *entry.get_mut() -= 1;
                if *entry.get() == 0 {
                    entry.remove();
                }
            }
        }
        routes
    }

    pub(super) fn put(&mut self, prefix: IpPrefix, routes: Vec<Route>) {
        for number in objects(&routes) {
            *self.objects.entry(number).or_default() += 1;
        }
        if let Some(mtu) = least_mtu(&routes) {
            self.mtus.insert(prefix, mtu);
        }
        let is_other = !routes.iter().all(goes_by_destination);
        let Some(list) = PrefixRoutes::from_vec(routes) else { return };
        let (family, length) = family_and_length(prefix);
        self.others[family] += usize::from(is_other);
        *self.lengths[family].entry(length).or_default() += 1;
        match prefix {
            IpPrefix::V4(prefix) => drop(self.ipv4.insert(prefix, list)),
            IpPrefix::V6(prefix) => drop(self.ipv6.insert(prefix, list)),
        }
    }

    /// All prefixes with a route.
    pub fn prefixes(&self) -> impl Iterator<Item = (IpPrefix, &PrefixRoutes)> {
        let ipv4 = self.ipv4.iter().map(|(prefix, list)| (IpPrefix::V4(*prefix), list));
        ipv4.chain(self.ipv6.iter().map(|(prefix, list)| (IpPrefix::V6(*prefix), list)))
    }
}

/// The nexthop objects that routes lead to.
fn objects(routes: &[Route]) -> impl Iterator<Item = u32> {
    routes.iter().filter_map(|route| match *route.target {
        Target::Object(number) => Some(number),
        _ => None,
    })
}

/// The number of a prefix's family, and its length.
fn family_and_length(prefix: IpPrefix) -> (usize, u8) {
    match prefix {
        IpPrefix::V4(prefix) => (0, prefix.length()),
        IpPrefix::V6(prefix) => (1, prefix.length()),
    }
}

/// Whether a route is for all packets to its destinations, and takes the same way with all of them. Of a nexthop object it isn't known here.
pub(super) fn goes_by_destination(route: &Route) -> bool {
    let is_one_way = match &*route.target {
        Target::Paths(paths) => paths.len() < 2,
        Target::KernelOnly => false,
        _ => true,
    };
    route.source.is_none() && is_one_way
}

/// The least MTU that any of these routes has of its own.
pub(super) fn least_mtu(routes: &[Route]) -> Option<u32> {
    routes.iter().map(|route| route.mtu).filter(|mtu| *mtu > 0).min()
}

/// The prefix of this length around another one.
pub(crate) fn shortened(prefix: IpPrefix, length: u8) -> IpPrefix {
    match prefix {
        IpPrefix::V4(prefix) => IpPrefix::V4(Prefix::containing(prefix.address().to_bits(), length)),
        IpPrefix::V6(prefix) => IpPrefix::V6(Prefix::containing(prefix.address().to_bits(), length)),
    }
}
