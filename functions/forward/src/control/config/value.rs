//! Addresses and prefixes as people write them: what the file, flags and code all read the same way.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use thiserror::Error;
use warmlane_table::{IpPrefix, Ipv4Prefix, Ipv6Prefix, Prefix, PrefixError};
use warmlane_wire::ethernet::MacAddressError;
use warmlane_wire::martian::{ipv4_source_is_martian, ipv6_source_is_martian};
use warmlane_wire::{IpProtocol, MacAddress};

use super::InterfaceAddress;

/// A value that can't be used, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ValueError {
    /// A text that isn't an IP address.
    #[error("\"{text}\" is not an IP address: write one as in 192.0.2.1 or 2001:db8::1")]
    Address {
        /// What was given.
        text: String,
    },
    /// A text that isn't an address with a prefix length.
    #[error(
        "\"{text}\" is not an address with the length of its prefix: write one as in 192.0.2.1/24 or 2001:db8::1/64"
    )]
    InterfaceAddress {
        /// What was given.
        text: String,
    },
    /// A text that isn't an address with a port.
    #[error("\"{text}\" is not an address with a port: write one as in 192.0.2.1:4242 or [2001:db8::1]:53")]
    End {
        /// What was given.
        text: String,
    },
    /// A text that names no protocol with ports.
    #[error("\"{text}\" is no protocol that flows can have: use tcp, udp or sctp")]
    Protocol {
        /// What was given.
        text: String,
    },
    /// A text that names no key.
    #[error("\"{text}\" is no key to spread flows by: use microsoft or symmetric")]
    RssKey {
        /// What was given.
        text: String,
    },
    /// A text that names no protocol.
    #[error("\"{text}\" is no protocol: use tcp, udp, sctp, icmp, icmpv6 or a number up to 255")]
    RuleProtocol {
        /// What was given.
        text: String,
    },
    /// An address that no host can have.
    #[error(
        "{address} is no unicast address of one host (unspecified, loopback, multicast, reserved, or a \
             network's own or broadcast address): give a unicast address"
    )]
    NotUnicast {
        /// The address.
        address: IpAddr,
    },
    /// A text that isn't an Ethernet address.
    #[error(transparent)]
    Mac(#[from] MacAddressError),
    /// An Ethernet address that no interface can have.
    #[error("Ethernet address {mac} is a group address or zero: give a unicast address")]
    MacNotUnicast {
        /// The address.
        mac: MacAddress,
    },
    /// A text that isn't a prefix, or has host bits set.
    #[error(transparent)]
    Prefix(#[from] PrefixError),
}

/// The address of one host, from its text.
pub(crate) fn unicast(text: &str) -> Result<IpAddr, ValueError> {
    check_unicast(text.parse().map_err(|_| ValueError::Address { text: text.to_owned() })?)
}

/// Refuses what may not be a source: it is no host's address either.
pub(crate) fn check_unicast(address: IpAddr) -> Result<IpAddr, ValueError> {
    let is_martian = match address {
        IpAddr::V4(address) => ipv4_source_is_martian(address),
        IpAddr::V6(address) => ipv6_source_is_martian(address),
    };
    if is_martian { Err(ValueError::NotUnicast { address }) } else { Ok(address) }
}

/// The Ethernet address of one interface, from its text.
pub(crate) fn unicast_mac(text: &str) -> Result<MacAddress, ValueError> {
    check_mac(text.parse()?)
}

/// Refuses group addresses and zero.
pub(crate) fn check_mac(mac: MacAddress) -> Result<MacAddress, ValueError> {
    if mac.is_unicast() { Ok(mac) } else { Err(ValueError::MacNotUnicast { mac }) }
}

/// Address and port of one host, from their text.
pub(crate) fn end_of_flow(text: &str) -> Result<SocketAddr, ValueError> {
    check_end(text.parse().map_err(|_| ValueError::End { text: text.to_owned() })?)
}

/// Refuses what no host can send from or get; what else an IPv6 socket address says is left out.
pub(crate) fn check_end(end: SocketAddr) -> Result<SocketAddr, ValueError> {
    Ok(SocketAddr::new(check_unicast(end.ip())?, end.port()))
}

/// A protocol with ports, from its name.
pub(crate) fn protocol_with_ports(text: &str) -> Result<IpProtocol, ValueError> {
    match text {
        "tcp" => Ok(IpProtocol::TCP),
        "udp" => Ok(IpProtocol::UDP),
        "sctp" => Ok(IpProtocol::SCTP),
        _ => Err(ValueError::Protocol { text: text.to_owned() }),
    }
}

impl FromStr for InterfaceAddress {
    type Err = ValueError;

    /// Reads `192.0.2.1/24`, an address that a host can have within a prefix of that length.
    fn from_str(text: &str) -> Result<Self, ValueError> {
        let malformed = || ValueError::InterfaceAddress { text: text.to_owned() };
        let (address, length) = text.split_once('/').ok_or_else(malformed)?;
        let address: IpAddr = address.parse().map_err(|_| malformed())?;
        // The prefix of the network address checks the length.
        let network: IpPrefix = match address {
            IpAddr::V4(_) => format!("0.0.0.0/{length}").parse(),
            IpAddr::V6(_) => format!("::/{length}").parse(),
        }
        .map_err(|error| match error {
            PrefixError::Length { maximum, .. } => {
                PrefixError::Length { given: text.to_owned(), maximum }.into()
            }
            _ => malformed(),
        })?;
        let length = match network {
            IpPrefix::V4(network) => network.length(),
            IpPrefix::V6(network) => network.length(),
        };
        Self { address, length }.checked()
    }
}

impl InterfaceAddress {
    /// Refuses what no host on a link of this prefix can have.
    pub(crate) fn checked(self) -> Result<Self, ValueError> {
        let length = self.length;
        let is_reserved = match self.address {
            IpAddr::V4(address) => {
                let link: Ipv4Prefix = Prefix::containing(address.to_bits(), length);
                // On links of two addresses both are hosts' (RFC 3021).
                link.length() < 31 && [link.first(), link.last()].contains(&address.to_bits())
            }
            IpAddr::V6(address) => {
                let link: Ipv6Prefix = Prefix::containing(address.to_bits(), length);
                // The first address is every router's (RFC 4291 section 2.6.1), unless there are but two (RFC 6164).
                link.length() < 127 && link.first() == address.to_bits()
            }
        };
        if is_reserved {
            return Err(ValueError::NotUnicast { address: self.address });
        }
        check_unicast(self.address).map(|_| self)
    }
}

/// A value, or the text of one: what [`RoutesBuilder`](crate::control::RoutesBuilder) takes.
pub trait OrText<T> {
    /// The value.
    ///
    /// # Errors
    /// [`ValueError`]: the text says none, or one that can't be used.
    fn value(self) -> Result<T, ValueError>;
}

macro_rules! or_text {
    ($($given:ty => $value:ty: $read:expr;)*) => {$(
        impl OrText<$value> for $given {
            fn value(self) -> Result<$value, ValueError> {
                $read(self)
            }
        }
    )*};
}

or_text! {
    &str => IpAddr: unicast;
    IpAddr => IpAddr: check_unicast;
    Ipv4Addr => IpAddr: |address: Ipv4Addr| check_unicast(address.into());
    Ipv6Addr => IpAddr: |address: Ipv6Addr| check_unicast(address.into());
    &str => SocketAddr: end_of_flow;
    SocketAddr => SocketAddr: check_end;
    &str => IpProtocol: protocol_with_ports;
    &str => MacAddress: unicast_mac;
    MacAddress => MacAddress: check_mac;
    [u8; 6] => MacAddress: |mac: [u8; 6]| check_mac(mac.into());
    &str => Option<MacAddress>: |text| unicast_mac(text).map(Some);
    MacAddress => Option<MacAddress>: |mac| check_mac(mac).map(Some);
    [u8; 6] => Option<MacAddress>: |mac: [u8; 6]| check_mac(mac.into()).map(Some);
    Option<MacAddress> => Option<MacAddress>: |mac: Option<MacAddress>| mac.map(check_mac).transpose();
    Option<[u8; 6]> => Option<MacAddress>: |mac: Option<[u8; 6]>| mac.map(|mac| check_mac(mac.into())).transpose();
    &str => InterfaceAddress: str::parse;
    InterfaceAddress => InterfaceAddress: InterfaceAddress::checked;
    &str => IpPrefix: |text: &str| text.parse().map_err(ValueError::Prefix);
    IpPrefix => IpPrefix: Ok;
    Ipv4Prefix => IpPrefix: |prefix| Ok(IpPrefix::V4(prefix));
    Ipv6Prefix => IpPrefix: |prefix| Ok(IpPrefix::V6(prefix));
}
