//! Address prefixes, checked when they are made

use std::fmt::{self, Debug, Display, Formatter};
use std::hash::Hash;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::{BitAnd, BitOr, BitXor, Not};
use std::str::FromStr;

use thiserror::Error;

mod sealed {
    pub trait Sealed {}
    impl Sealed for u32 {}
    impl Sealed for u128 {}
}

/// An address as a number in host order: `u32` for IPv4, `u128` for IPv6
pub trait Address:
    sealed::Sealed
    + Copy
    + Ord
    + Hash
    + Debug
    + Send
    + Sync
    + 'static
    + BitAnd<Output = Self>
    + BitOr<Output = Self>
    + BitXor<Output = Self>
    + Not<Output = Self>
{
    /// The family's own address type
    type Ip: From<Self> + Into<Self> + Display + FromStr + Copy;
    /// Bits of an address
    const BITS: u8;

    /// The network mask of a prefix of `length` bits; lengths above [`Address::BITS`] count as that
    fn mask(length: u8) -> Self;

    /// How many of the first bits `self` and `other` agree in
    fn common_length(self, other: Self) -> u8;

    /// The next address; after the last comes the first
    #[must_use]
    fn successor(self) -> Self;

    /// Names the family in a value that holds either
    fn either(prefix: Prefix<Self>) -> IpPrefix;
}

macro_rules! address {
    ($number:ty, $ip:ty, $either:ident) => {
        impl Address for $number {
            type Ip = $ip;
            const BITS: u8 = <$number>::BITS as u8;

            fn mask(length: u8) -> Self {
                // A shift by all bits is not defined, so /0 goes the way of the checked shift.
                let shift = <$number>::BITS.saturating_sub(u32::from(length));
                Self::MAX.checked_shl(shift).unwrap_or(0)
            }

            fn common_length(self, other: Self) -> u8 {
                (self ^ other).leading_zeros() as u8
            }

            fn successor(self) -> Self {
                self.wrapping_add(1)
            }

            fn either(prefix: Prefix<Self>) -> IpPrefix {
                IpPrefix::$either(prefix)
            }
        }
    };
}

address!(u32, Ipv4Addr, V4);
address!(u128, Ipv6Addr, V6);

/// A network address and how many of its first bits count; all other bits are zero
///
/// Prefixes sort by address, then by length, so that a prefix comes directly before everything it covers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix<A> {
    address: A,
    length: u8,
}

/// An IPv4 prefix, `0.0.0.0/0` to `/32`
pub type Ipv4Prefix = Prefix<u32>;

/// An IPv6 prefix, `::/0` to `/128`
pub type Ipv6Prefix = Prefix<u128>;

impl<A: Address> Prefix<A> {
    /// The prefix that covers every address, the default route's
    pub fn all() -> Self {
        Self { address: A::mask(0), length: 0 }
    }

    /// A prefix from its network address and its length in bits
    ///
    /// # Errors
    /// [`PrefixError::Length`] beyond the family's bits, [`PrefixError::HostBits`] when a bit after the length is set.
    pub fn new(address: impl Into<A::Ip>, length: u8) -> Result<Self, PrefixError> {
        let ip: A::Ip = address.into();
        let address: A = ip.into();
        if length > A::BITS {
            let given = format!("{ip}/{length}");
            return Err(PrefixError::Length { given, maximum: A::BITS });
        }
        let prefix = Self::containing(address, length);
        if prefix.address != address {
            return Err(PrefixError::HostBits {
                given: format!("{ip}/{length}"),
                network: prefix.to_string(),
            });
        }
        Ok(prefix)
    }

    /// The prefix of `length` bits that `address` lies in; lengths beyond the family's bits count as all bits
    pub fn containing(address: A, length: u8) -> Self {
        Self { address: address & A::mask(length), length: length.min(A::BITS) }
    }

    /// The network address, which is also the first address covered
    pub fn address(&self) -> A::Ip {
        self.address.into()
    }

    /// How many bits of the address count
    pub fn length(&self) -> u8 {
        self.length
    }

    /// The first address covered, as a number in host order
    pub fn first(&self) -> A {
        self.address
    }

    /// The last address covered, as a number in host order
    pub fn last(&self) -> A {
        self.address | !A::mask(self.length)
    }

    /// Whether `address` lies in the prefix
    pub fn contains(&self, address: A) -> bool {
        address & A::mask(self.length) == self.address
    }

    /// Whether every address of `other` lies in the prefix (true for itself)
    pub fn covers(&self, other: &Self) -> bool {
        self.length <= other.length && self.contains(other.address)
    }
}

impl<A: Address> Display for Prefix<A> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.address(), self.length)
    }
}

impl<A: Address> Debug for Prefix<A> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        Display::fmt(self, formatter)
    }
}

impl<A: Address> FromStr for Prefix<A> {
    type Err = PrefixError;

    /// Reads `address/length`; the length is decimal digits without a sign
    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let malformed = || PrefixError::Malformed { text: text.to_owned() };
        let (address, length) = text.split_once('/').ok_or_else(malformed)?;
        let address: A::Ip = address.parse().map_err(|_| malformed())?;
        if length.is_empty() || !length.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(malformed());
        }
        // Digits that overflow are a length all the same, just far out of range.
        match length.parse::<u8>() {
            Ok(length) => Self::new(address, length),
            Err(_) => Err(PrefixError::Length { given: text.to_owned(), maximum: A::BITS }),
        }
    }
}

/// A prefix of either family
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IpPrefix {
    /// An IPv4 prefix
    V4(Ipv4Prefix),
    /// An IPv6 prefix
    V6(Ipv6Prefix),
}

impl Display for IpPrefix {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4(prefix) => Display::fmt(prefix, formatter),
            Self::V6(prefix) => Display::fmt(prefix, formatter),
        }
    }
}

impl FromStr for IpPrefix {
    type Err = PrefixError;

    /// Reads a prefix of the family that its address is of
    fn from_str(text: &str) -> Result<Self, PrefixError> {
        if text.contains(':') { text.parse().map(Self::V6) } else { text.parse().map(Self::V4) }
    }
}

/// Why something is not a prefix
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PrefixError {
    /// The length is beyond the bits of the address
    #[error("{given}: the length of the prefix is out of range: use 0 to {maximum}")]
    Length {
        /// What was given
        given: String,
        /// The largest length of the family
        maximum: u8,
    },
    /// A bit after the length is set
    #[error("{given} has bits set after its length: the network is {network}")]
    HostBits {
        /// What was given
        given: String,
        /// The prefix of this length that the address lies in
        network: String,
    },
    /// Not of the form `address/length`
    #[error("`{text}` is not a prefix: write address/length, as in 192.0.2.0/24 or 2001:db8::/32")]
    Malformed {
        /// What was given
        text: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_goes_both_ways() {
        for text in ["0.0.0.0/0", "10.0.0.0/8", "192.0.2.255/32", "128.0.0.0/1"] {
            assert_eq!(text.parse::<Ipv4Prefix>().unwrap().to_string(), text);
            assert_eq!(text.parse::<IpPrefix>().unwrap().to_string(), text);
        }
        for text in ["::/0", "2001:db8::/32", "2001:db8::1/128", "8000::/1"] {
            assert_eq!(text.parse::<Ipv6Prefix>().unwrap().to_string(), text);
            assert_eq!(text.parse::<IpPrefix>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn each_fault_is_named() {
        for text in ["10.0.0.0/33", "10.0.0.0/300", "10.0.0.0/99999999999"] {
            let error = Err(PrefixError::Length { given: text.into(), maximum: 32 });
            assert_eq!(text.parse::<Ipv4Prefix>(), error);
        }
        let error = Err(PrefixError::Length { given: "::/129".into(), maximum: 128 });
        assert_eq!("::/129".parse::<Ipv6Prefix>(), error);
        let error = Err(PrefixError::Length { given: "10.0.0.0/33".into(), maximum: 32 });
        assert_eq!(Ipv4Prefix::new([10, 0, 0, 0], 33), error);
        assert_eq!(
            "10.0.0.1/8".parse::<Ipv4Prefix>(),
            Err(PrefixError::HostBits { given: "10.0.0.1/8".into(), network: "10.0.0.0/8".into() })
        );
        assert_eq!(
            "2001:db8::1/127".parse::<Ipv6Prefix>(),
            Err(PrefixError::HostBits { given: "2001:db8::1/127".into(), network: "2001:db8::/127".into() })
        );
        for text in [
            "",
            "/",
            "10.0.0.0",
            "10.0.0.0/",
            "10.0.0/8",
            "10.0.0.0/+8",
            "10.0.0.0/8 ",
            "10.0.0.0/8/8",
            "::/0",
        ] {
            assert_eq!(
                text.parse::<Ipv4Prefix>(),
                Err(PrefixError::Malformed { text: text.into() }),
                "{text}"
            );
        }
        assert_eq!(
            "10.0.0.0/8".parse::<Ipv6Prefix>(),
            Err(PrefixError::Malformed { text: "10.0.0.0/8".into() })
        );
    }

    #[test]
    fn bounds_and_order() {
        let all = Ipv4Prefix::all();
        assert_eq!((all.first(), all.last()), (0, u32::MAX));
        let ten: Ipv4Prefix = "10.0.0.0/8".parse().unwrap();
        assert_eq!((ten.first(), ten.last()), (0x0a00_0000, 0x0aff_ffff));
        assert!(ten.contains(0x0aff_ffff) && !ten.contains(0x0b00_0000) && !ten.contains(0x09ff_ffff));
        let inner: Ipv4Prefix = "10.0.0.0/9".parse().unwrap();
        assert!(ten.covers(&inner) && ten.covers(&ten) && !inner.covers(&ten));
        assert!(all < ten && ten < inner && inner < "11.0.0.0/8".parse().unwrap());
        let host: Ipv6Prefix = "::1/128".parse().unwrap();
        assert_eq!((host.first(), host.last()), (1, 1));
        assert_eq!(Ipv6Prefix::all().last(), u128::MAX);
    }
}
