//! Protocol numbers as they stand in the IPv4 Protocol and the IPv6 Next Header field.

use std::fmt;

/// An Internet protocol number (IANA "Assigned Internet Protocol Numbers").
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IpProtocol(pub u8);

impl IpProtocol {
    /// IPv6 hop-by-hop options (RFC 8200 section 4.3).
    pub const HOP_BY_HOP: Self = Self(0);
    /// ICMP for IPv4 (RFC 792).
    pub const ICMP: Self = Self(1);
    /// IGMP (RFC 3376).
    pub const IGMP: Self = Self(2);
    /// IPv4 in IP (RFC 2003).
    pub const IPV4: Self = Self(4);
    /// TCP (RFC 9293).
    pub const TCP: Self = Self(6);
    /// UDP (RFC 768).
    pub const UDP: Self = Self(17);
    /// IPv6 in IP (RFC 2473).
    pub const IPV6: Self = Self(41);
    /// IPv6 routing header (RFC 8200 section 4.4).
    pub const ROUTING: Self = Self(43);
    /// IPv6 fragment header (RFC 8200 section 4.5).
    pub const FRAGMENT: Self = Self(44);
    /// GRE (RFC 2784).
    pub const GRE: Self = Self(47);
    /// Encapsulating security payload (RFC 4303).
    pub const ESP: Self = Self(50);
    /// Authentication header (RFC 4302).
    pub const AUTHENTICATION: Self = Self(51);
    /// ICMP for IPv6 (RFC 4443).
    pub const ICMPV6: Self = Self(58);
    /// Nothing follows (RFC 8200 section 4.7).
    pub const NO_NEXT_HEADER: Self = Self(59);
    /// IPv6 destination options (RFC 8200 section 4.6).
    pub const DESTINATION_OPTIONS: Self = Self(60);
    /// OSPF (RFC 2328, RFC 5340).
    pub const OSPF: Self = Self(89);
    /// L2TPv3 straight over IP (RFC 3931).
    pub const L2TP: Self = Self(115);
    /// SCTP (RFC 9260).
    pub const SCTP: Self = Self(132);

    /// The protocol's usual name, for the numbers named here.
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::HOP_BY_HOP => "hop-by-hop options",
            Self::ICMP => "ICMP",
            Self::IGMP => "IGMP",
            Self::IPV4 => "IPv4",
            Self::TCP => "TCP",
            Self::UDP => "UDP",
            Self::IPV6 => "IPv6",
            Self::ROUTING => "routing header",
            Self::FRAGMENT => "fragment header",
            Self::GRE => "GRE",
            Self::ESP => "ESP",
            Self::AUTHENTICATION => "authentication header",
            Self::ICMPV6 => "ICMPv6",
            Self::NO_NEXT_HEADER => "no next header",
            Self::DESTINATION_OPTIONS => "destination options",
            Self::OSPF => "OSPF",
            Self::L2TP => "L2TP",
            Self::SCTP => "SCTP",
            _ => return None,
        })
    }
}

impl fmt::Display for IpProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "protocol {}", self.0),
        }
    }
}

impl fmt::Debug for IpProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{} ({name})", self.0),
            None => write!(f, "{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_names_and_falls_back_to_numbers() {
        assert_eq!(IpProtocol::UDP.to_string(), "UDP");
        assert_eq!(IpProtocol(254).to_string(), "protocol 254");
        assert_eq!(format!("{:?} {:?}", IpProtocol::TCP, IpProtocol(254)), "6 (TCP) 254");
    }
}
