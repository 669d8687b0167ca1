//! Ethernet II headers (IEEE 802.3 clause 3): addresses, EtherType, the 14 bytes in front of everything.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::error::{Truncated, take};

/// Bytes of an Ethernet header without tags and without FCS.
pub const HEADER_LENGTH: usize = 14;

/// Bytes of the shortest frame that may go on a cable, header included, FCS (4 bytes) not included.
pub const MINIMUM_FRAME: usize = 60;

/// A 48-bit Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// `00:00:00:00:00:00`, which stands for "none".
    pub const ZERO: Self = Self([0; 6]);
    /// `ff:ff:ff:ff:ff:ff`.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Whether the address names a group of stations; broadcast is one.
    #[inline]
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 0x01 != 0
    }

    /// Whether the address is `ff:ff:ff:ff:ff:ff`.
    #[inline]
    pub fn is_broadcast(self) -> bool {
        self == Self::BROADCAST
    }

    /// Whether the address names one station: not a group and not all zero.
    #[inline]
    pub fn is_unicast(self) -> bool {
        !self.is_multicast() && self != Self::ZERO
    }

    /// Whether the address was given out locally instead of by the manufacturer.
    #[inline]
    pub const fn is_local(self) -> bool {
        self.0[0] & 0x02 != 0
    }

    /// The group address that an IPv4 multicast packet is sent to (RFC 1112 section 6.4).
    pub const fn of_ipv4_multicast(group: std::net::Ipv4Addr) -> Self {
        let [_, b, c, d] = group.octets();
        Self([0x01, 0x00, 0x5e, b & 0x7f, c, d])
    }

    /// The group address that an IPv6 multicast packet is sent to (RFC 2464 section 7).
    pub const fn of_ipv6_multicast(group: std::net::Ipv6Addr) -> Self {
        let [.., a, b, c, d] = group.octets();
        Self([0x33, 0x33, a, b, c, d])
    }

    /// The link-local IPv6 address of an interface with this address (RFC 4291 appendix A).
    pub const fn link_local(self) -> std::net::Ipv6Addr {
        let [a, b, c, d, e, f] = self.0;
        let interface = u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f]);
        std::net::Ipv6Addr::from_bits(0xfe80 << 112 | interface as u128)
    }
}

impl From<[u8; 6]> for MacAddress {
    #[inline]
    fn from(bytes: [u8; 6]) -> Self {
        Self(bytes)
    }
}

impl From<MacAddress> for [u8; 6] {
    #[inline]
    fn from(address: MacAddress) -> Self {
        address.0
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a text is not an Ethernet address.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MacAddressError {
    /// Not six groups.
    #[error("Ethernet address {text:?} has {groups} groups: write six, as in 02:00:5e:10:00:01")]
    Groups {
        /// What was given.
        text: String,
        /// How many groups it has.
        groups: usize,
    },
    /// A group that isn't one or two hexadecimal digits.
    #[error("Ethernet address {text:?}: {group:?} is not a byte of one or two hexadecimal digits")]
    Digit {
        /// What was given.
        text: String,
        /// The group that is wrong.
        group: String,
    },
}

impl FromStr for MacAddress {
    type Err = MacAddressError;

    /// Reads six groups of one or two hexadecimal digits, all separated by `:` or all by `-`.
    fn from_str(text: &str) -> Result<Self, MacAddressError> {
        let separator = if text.contains(':') { ':' } else { '-' };
        let groups = text.split(separator).count();
        let mut bytes = [0; 6];
        if groups != bytes.len() {
            return Err(MacAddressError::Groups { text: text.to_owned(), groups });
        }
        for (byte, group) in bytes.iter_mut().zip(text.split(separator)) {
            let digits = matches!(group.len(), 1 | 2) && group.bytes().all(|digit| digit.is_ascii_hexdigit());
            *byte = u8::from_str_radix(group, 16)
                .ok()
                .filter(|_| digits)
                .ok_or_else(|| MacAddressError::Digit { text: text.to_owned(), group: group.to_owned() })?;
        }
        Ok(Self(bytes))
    }
}

/// What an Ethernet frame carries.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4 (RFC 894).
    pub const IPV4: Self = Self(0x0800);
    /// ARP (RFC 826).
    pub const ARP: Self = Self(0x0806);
    /// A whole frame follows, in a tunnel ("transparent Ethernet bridging", RFC 1701).
    pub const BRIDGED: Self = Self(0x6558);
    /// A customer VLAN tag follows (IEEE 802.1Q).
    pub const VLAN: Self = Self(0x8100);
    /// IPv6 (RFC 2464).
    pub const IPV6: Self = Self(0x86dd);
    /// MPLS unicast (RFC 5332).
    pub const MPLS: Self = Self(0x8847);
    /// A service VLAN tag follows (IEEE 802.1ad).
    pub const SERVICE_VLAN: Self = Self(0x88a8);
    /// LLDP (IEEE 802.1AB).
    pub const LLDP: Self = Self(0x88cc);

    /// Whether the field is the length of an IEEE 802.3 frame instead of a type (below 1536, IEEE 802.3 clause 3.2.6).
    #[inline]
    pub const fn is_length(self) -> bool {
        self.0 < 0x0600
    }

    /// Whether a VLAN tag follows.
    #[inline]
    pub const fn is_vlan(self) -> bool {
        self.0 == Self::VLAN.0 || self.0 == Self::SERVICE_VLAN.0
    }
}

impl fmt::Display for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::IPV4 => f.write_str("IPv4"),
            Self::ARP => f.write_str("ARP"),
            Self::BRIDGED => f.write_str("bridged Ethernet"),
            Self::VLAN => f.write_str("VLAN"),
            Self::IPV6 => f.write_str("IPv6"),
            Self::MPLS => f.write_str("MPLS"),
            Self::SERVICE_VLAN => f.write_str("service VLAN"),
            Self::LLDP => f.write_str("LLDP"),
            Self(other) => write!(f, "{other:#06x}"),
        }
    }
}

impl fmt::Debug for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x}", self.0)
    }
}

/// A view of the 14 bytes in front of a frame.
#[derive(Clone, Copy)]
pub struct EthernetHeader<'a>(pub &'a [u8; HEADER_LENGTH]);

impl<'a> EthernetHeader<'a> {
    /// Splits a frame in header and what follows it (tags, then payload and padding).
    ///
    /// # Errors
    /// [`Truncated`] if the frame is shorter than 14 bytes.
    #[inline]
    pub fn parse(frame: &'a [u8]) -> Result<(Self, &'a [u8]), Truncated> {
        let (header, rest) = take(frame, "Ethernet header")?;
        Ok((Self(header), rest))
    }

    /// Where the frame goes.
    #[inline]
    pub const fn destination(self) -> MacAddress {
        let [a, b, c, d, e, f, ..] = *self.0;
        MacAddress([a, b, c, d, e, f])
    }

    /// Where it comes from.
    #[inline]
    pub const fn source(self) -> MacAddress {
        let [_, _, _, _, _, _, a, b, c, d, e, f, _, _] = *self.0;
        MacAddress([a, b, c, d, e, f])
    }

    /// What follows: a protocol or a tag.
    #[inline]
    pub const fn ethertype(self) -> EtherType {
        EtherType(u16::from_be_bytes([self.0[12], self.0[13]]))
    }
}

impl fmt::Debug for EthernetHeader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ethernet {} > {}, {}", self.source(), self.destination(), self.ethertype())
    }
}

/// Writes all three fields.
#[inline]
pub fn write(
    header: &mut [u8; HEADER_LENGTH],
    destination: MacAddress,
    source: MacAddress,
    ethertype: EtherType,
) {
    let [a, b, c, d, e, f] = destination.0;
    let [g, h, i, j, k, l] = source.0;
    let [m, n] = ethertype.0.to_be_bytes();
    *header = [a, b, c, d, e, f, g, h, i, j, k, l, m, n];
}

/// Replaces both addresses and leaves the EtherType, as a router does with each packet (RFC 1812 section 5.2.1.2).
/// `addresses` is destination then source: a next hop keeps them ready in that order.
#[inline]
pub fn set_addresses(header: &mut [u8; HEADER_LENGTH], addresses: &[u8; 12]) {
    let (front, _) = header.split_at_mut(12);
    front.copy_from_slice(addresses);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_what_was_written() {
        let mut header = [0; HEADER_LENGTH];
        let destination = MacAddress([1, 2, 3, 4, 5, 6]);
        let source = MacAddress([7, 8, 9, 10, 11, 12]);
        write(&mut header, destination, source, EtherType::IPV6);
        assert_eq!(header, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x86, 0xdd]);
        let (view, rest) = EthernetHeader::parse(&header).unwrap();
        assert_eq!(
            (view.destination(), view.source(), view.ethertype()),
            (destination, source, EtherType::IPV6)
        );
        assert!(rest.is_empty());
    }

    #[test]
    fn new_addresses_leave_the_type() {
        let mut header = [0xee; HEADER_LENGTH];
        set_addresses(&mut header, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        assert_eq!(header, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0xee, 0xee]);
    }

    #[test]
    fn thirteen_bytes_are_too_few() {
        let error = EthernetHeader::parse(&[0; 13]).unwrap_err();
        assert_eq!(error, Truncated { header: "Ethernet header", needed: 14, available: 13 });
        assert_eq!(error.to_string(), "Ethernet header truncated: 13 bytes present, at least 14 needed");
    }

    #[test]
    fn address_kinds() {
        let station = MacAddress([0x02, 0, 0, 0, 0, 1]);
        assert!(station.is_unicast() && station.is_local() && !station.is_multicast());
        assert!(MacAddress::BROADCAST.is_broadcast() && MacAddress::BROADCAST.is_multicast());
        assert!(!MacAddress::ZERO.is_unicast() && !MacAddress::ZERO.is_local());
        let group = MacAddress::of_ipv4_multicast([239, 129, 2, 3].into());
        assert_eq!(group, MacAddress([0x01, 0x00, 0x5e, 0x01, 2, 3]));
        let group = MacAddress::of_ipv6_multicast("ff02::1:ff12:3456".parse().unwrap());
        assert_eq!(group, MacAddress([0x33, 0x33, 0xff, 0x12, 0x34, 0x56]));
        let own = MacAddress([0x02, 0x00, 0x5e, 0x10, 0x0a, 0xff]).link_local();
        assert_eq!(own.to_string(), "fe80::5eff:fe10:aff");
    }

    #[test]
    fn reads_addresses_as_people_write_them() {
        let expected = MacAddress([0x02, 0x00, 0x5e, 0x10, 0x0a, 0xff]);
        for text in ["02:00:5e:10:0a:ff", "02-00-5E-10-0A-FF", "2:0:5e:10:a:ff"] {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn tells_what_is_wrong_with_an_address() {
        for (text, groups) in [("", 1), ("02:00:5e:10:0a", 5), ("02:00:5e:10:0a:ff:00", 7)] {
            let expected = MacAddressError::Groups { text: text.to_owned(), groups };
            assert_eq!(text.parse::<MacAddress>(), Err(expected));
        }
        for (text, group) in [
            ("02:00:5g:10:0a:ff", "5g"),
            ("02:00::10:0a:ff", ""),
            ("02:00:+5:10:0a:ff", "+5"),
            ("02:00:005:10:0a:ff", "005"),
            ("02:00:5e-10:10:0a:ff", "5e-10"),
        ] {
            let expected = MacAddressError::Digit { text: text.to_owned(), group: group.to_owned() };
            assert_eq!(text.parse::<MacAddress>(), Err(expected));
        }
    }

    #[test]
    fn types_below_1536_are_lengths() {
        assert!(EtherType(0x05ff).is_length() && !EtherType(0x0600).is_length());
        assert!(EtherType::VLAN.is_vlan() && EtherType::SERVICE_VLAN.is_vlan() && !EtherType::IPV4.is_vlan());
        assert_eq!(
            format!("{} {} {:?}", EtherType::ARP, EtherType(0x1234), EtherType::ARP),
            "ARP 0x1234 0x0806"
        );
    }

    proptest! {
        #[test]
        fn an_address_survives_printing(bytes: [u8; 6]) {
            let address = MacAddress(bytes);
            prop_assert_eq!(address.to_string().parse(), Ok(address));
        }

        #[test]
        fn any_text_is_an_address_or_an_error(text: String) {
            let _ = text.parse::<MacAddress>();
        }
    }
}
