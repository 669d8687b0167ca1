//! Routes and addresses to measure tables with.

use crate::random::Xorshift;
use warmlane_forward::control::full_table::{self, FullTableError};
use warmlane_table::{Address, Ipv4Table, Ipv6Table, NextHopId, Prefix, TableError};

/// Next hops that routes are spread over.
pub(crate) const HOPS: u32 = 64;

/// One of them.
pub(crate) fn random_hop(random: &mut Xorshift) -> NextHopId {
    NextHopId::new(random.below(HOPS as usize) as u32).unwrap_or_default()
}

/// A family that there is a full table of.
pub(crate) trait Family: Address {
    const NAME: &'static str;
    /// An address as lookups take it.
    type Key: Copy + 'static;
    type Table: 'static;

    fn key(self) -> Self::Key;
    fn table(routes: impl IntoIterator<Item = (Prefix<Self>, NextHopId)>) -> Result<Self::Table, TableError>;
    fn look_up(table: &Self::Table, keys: &[Self::Key], hops: &mut [NextHopId]);
    /// What the control side answers.
    fn longest_match(table: &Self::Table, address: Self) -> NextHopId;
    fn apply(
        table: &mut Self::Table,
        changes: impl IntoIterator<Item = (Prefix<Self>, Option<NextHopId>)>,
    ) -> Result<(), TableError>;
    /// Bytes that lookups read, and all with the control side's.
    fn bytes(table: &Self::Table) -> (usize, usize);

    fn full_table() -> Result<Vec<Prefix<Self>>, FullTableError>;
    /// Any address that routers may see: of IPv6 those given out so far, 2000::/3 (RFC 4291 section 2.4, IANA).
    fn uniform(random: &mut Xorshift) -> Self;
    /// As many random bits as an address has.
    fn bits(random: &mut Xorshift) -> Self;
}

/// What both families' tables answer to by the same names.
macro_rules! methods_of_table {
    ($table:ty, $full_table:path) => {
        fn table(
            routes: impl IntoIterator<Item = (Prefix<Self>, NextHopId)>,
        ) -> Result<Self::Table, TableError> {
            <$table>::from_routes(routes)
        }

        fn look_up(table: &Self::Table, keys: &[Self::Key], hops: &mut [NextHopId]) {
            table.lookup_burst(keys, hops);
        }

        fn longest_match(table: &Self::Table, address: Self) -> NextHopId {
            table.longest_match(address).map_or(NextHopId::NONE, |(_, hop)| hop)
        }

        fn apply(
            table: &mut Self::Table,
            changes: impl IntoIterator<Item = (Prefix<Self>, Option<NextHopId>)>,
        ) -> Result<(), TableError> {
            table.apply(changes)
        }

        fn bytes(table: &Self::Table) -> (usize, usize) {
            (table.lookup_bytes(), table.memory_bytes())
        }

        fn full_table() -> Result<Vec<Prefix<Self>>, FullTableError> {
            $full_table()
        }
    };
}

impl Family for u32 {
    const NAME: &'static str = "IPv4";
    type Key = Self;
    type Table = Ipv4Table;

    fn key(self) -> Self::Key {
        self
    }

    methods_of_table!(Ipv4Table, full_table::ipv4);

    fn uniform(random: &mut Xorshift) -> Self {
        Self::bits(random)
    }

    fn bits(random: &mut Xorshift) -> Self {
        random.next() as u32
    }
}

impl Family for u128 {
    const NAME: &'static str = "IPv6";
    type Key = [u8; 16];
    type Table = Ipv6Table;

    fn key(self) -> Self::Key {
        self.to_be_bytes()
    }

    methods_of_table!(Ipv6Table, full_table::ipv6);

    fn uniform(random: &mut Xorshift) -> Self {
        1 << 125 | Self::bits(random) >> 3
    }

    fn bits(random: &mut Xorshift) -> Self {
        u128::from(random.next()) << 64 | u128::from(random.next())
    }
}

/// Where addresses come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Locality {
    Uniform,
    /// Each inside a prefix chosen at random.
    Inside,
    /// The same, but the n-th most popular prefix is asked for n times less often than the first (Zipf).
    Zipf,
}

impl Locality {
    pub(crate) const ALL: [Self; 3] = [Self::Uniform, Self::Inside, Self::Zipf];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Inside => "inside prefixes",
            Self::Zipf => "Zipf",
        }
    }

    /// `count` addresses; all are uniform if there are no prefixes.
    pub(crate) fn addresses<A: Family>(self, prefixes: &[Prefix<A>], count: usize) -> Vec<A> {
        let mut random = Xorshift(Xorshift::SEED);
        let last = prefixes.len().saturating_sub(1);
        // The most popular ones must not be neighbours, as they are in the order of addresses.
        let scattered = |rank: usize| rank.wrapping_mul(0x9e37_79b9) % prefixes.len().max(1);
        let address = |_| {
            let index = match self {
                Self::Uniform => return A::uniform(&mut random),
                Self::Inside => random.below(prefixes.len()),
                Self::Zipf => {
                    // For exponent 1 the logarithm of the rank is about uniform.
                    let part = (random.next() >> 11) as f64 / (1_u64 << 53) as f64;
                    #[expect(clippy::cast_sign_loss, reason = "a power of a count is not negative")]
                    let rank = (prefixes.len() as f64).powf(part) as usize;
                    scattered(rank.saturating_sub(1)).min(last)
                }
            };
            match prefixes.get(index) {
                Some(prefix) => prefix.first() | A::bits(&mut random) & (prefix.first() ^ prefix.last()),
                None => A::uniform(&mut random),
            }
        };
        (0..count).map(address).collect()
    }
}
