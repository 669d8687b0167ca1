//! Which packets are wanted: the usual part of the syntax of pcap-filter(7).
//!
//! By hand, because well-kept crates for this bind libpcap, which would have to be there to build. The known crate in Rust alone
//! (pktbaffle 0.1) is young, and compiles for the kernel.
//!
//! Other than with libpcap, VLAN tags are looked through: `host` finds tagged packets, too, and `vlan` changes nothing for what follows.

mod facts;
mod parse;

use facts::Facts;
use std::net::IpAddr;
use std::str::FromStr;

pub use parse::FilterError;

/// A filter, understood. Its text is as in pcap-filter(7).
///
/// ```
/// use warmlane_assembly::capture::Filter;
///
/// let filter: Filter = "udp port 53 and not net 192.0.2.0/24".parse()?;
/// assert!(!filter.matches(&[0; 60], 60));
/// assert!("udp prot 53".parse::<Filter>().is_err());
/// # Ok::<(), warmlane_assembly::capture::FilterError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter(Expression);

impl FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        parse::parse(text).map(Self)
    }
}

impl Filter {
    /// Whether a frame is wanted, of which `data` is the beginning and `length` the length.
    pub fn matches(&self, data: &[u8], length: usize) -> bool {
        self.0.matches(&Facts::of(data, length))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Expression {
    /// Everything.
    All,
    Test(Test),
    Not(Box<Self>),
    And(Box<Self>, Box<Self>),
    Or(Box<Self>, Box<Self>),
}

impl Expression {
    fn matches(&self, facts: &Facts) -> bool {
        match self {
            Self::All => true,
            Self::Test(test) => test.matches(facts),
            Self::Not(inner) => !inner.matches(facts),
            Self::And(left, right) => left.matches(facts) && right.matches(facts),
            Self::Or(left, right) => left.matches(facts) || right.matches(facts),
        }
    }
}

/// Which of source and destination is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Source,
    Destination,
    Either,
    Both,
}

impl Side {
    fn holds<T>(self, (source, destination): (T, T), test: impl Fn(T) -> bool) -> bool {
        match self {
            Self::Source => test(source),
            Self::Destination => test(destination),
            Self::Either => test(source) || test(destination),
            Self::Both => test(source) && test(destination),
        }
    }
}

/// A comparison with the length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    NotEqual,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    /// An Ethernet address.
    Mac(Side, [u8; 6]),
    /// A bit of the destination's first byte: a group address.
    Multicast,
    Broadcast,
    /// What the frame carries, behind its tags.
    EtherType(u16),
    /// A prefix of IP addresses, or of those in ARP; in frames of this type only, if there is one.
    Prefix(Side, Option<u16>, IpAddr, u8),
    /// Ports from one to the other, of this protocol only, if there is one.
    Ports(Side, Option<u8>, u16, u16),
    /// The protocol in IP, of this version only, if there is one.
    Protocol(Option<u16>, u8),
    /// A VLAN tag, with this number if there is one.
    Vlan(Option<u16>),
    Length(Comparison, usize),
}

/// Protocols with ports.
const WITH_PORTS: [u8; 3] = [6, 17, 132];

impl Test {
    fn matches(&self, facts: &Facts) -> bool {
        match self {
            Self::Mac(side, mac) => facts.macs.is_some_and(|macs| side.holds(macs, |one| one == *mac)),
            Self::Multicast => facts.macs.is_some_and(|(_, destination)| destination[0] & 1 == 1),
            Self::Broadcast => facts.macs.is_some_and(|(_, destination)| destination == [0xff; 6]),
            Self::EtherType(value) => facts.ethertype == Some(*value),
            Self::Prefix(side, ethertype, address, length) => {
                ethertype.is_none_or(|value| facts.ethertype == Some(value))
                    && facts
                        .addresses
                        .is_some_and(|both| side.holds(both, |one| is_in_prefix(one, *address, *length)))
            }
            Self::Ports(side, protocol, first, last) => {
                let is_right = |value: u8| protocol.map_or(WITH_PORTS.contains(&value), |one| one == value);
                facts.protocol.is_some_and(is_right)
                    && facts.ports.is_some_and(|both| side.holds(both, |one| (*first..=*last).contains(&one)))
            }
            Self::Protocol(ethertype, value) => {
                ethertype.is_none_or(|one| facts.ethertype == Some(one)) && facts.protocol == Some(*value)
            }
            Self::Vlan(None) => facts.vlans[0].is_some(),
            Self::Vlan(number) => facts.vlans.contains(number),
            Self::Length(comparison, value) => match comparison {
                Comparison::Less => facts.length < *value,
                Comparison::LessOrEqual => facts.length <= *value,
                Comparison::Greater => facts.length > *value,
                Comparison::GreaterOrEqual => facts.length >= *value,
                Comparison::Equal => facts.length == *value,
                Comparison::NotEqual => facts.length != *value,
            },
        }
    }
}

fn is_in_prefix(one: IpAddr, prefix: IpAddr, length: u8) -> bool {
    match (one, prefix) {
        (IpAddr::V4(one), IpAddr::V4(prefix)) => {
            (one.to_bits() ^ prefix.to_bits()).leading_zeros() >= u32::from(length)
        }
        (IpAddr::V6(one), IpAddr::V6(prefix)) => {
            (one.to_bits() ^ prefix.to_bits()).leading_zeros() >= u32::from(length)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
