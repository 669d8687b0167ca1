//! ARP for IPv4 over Ethernet (RFC 826).

use std::net::Ipv4Addr;

use crate::error::{header_errors, take};
use crate::{EtherType, MacAddress};

/// Bytes of an ARP packet for IPv4 over Ethernet.
pub const PACKET_LENGTH: usize = 28;

/// The hardware type of Ethernet.
const ETHERNET: u16 = 1;

header_errors! {
    /// What is wrong with an ARP packet. The order of the variants is the order of the checks.
    pub enum ArpError {
        /// Another link layer than Ethernet.
        #[error("ARP hardware type is {hardware}, only 1 (Ethernet) is understood")]
        HardwareType {
            /// The hardware type field.
            hardware: u16,
        },
        /// Another protocol than IPv4.
        #[error("ARP protocol type is {protocol:?}, only 0x0800 (IPv4) is understood")]
        ProtocolType {
            /// The protocol type field.
            protocol: EtherType,
        },
        /// Address lengths that don't belong to Ethernet and IPv4.
        #[error("ARP address lengths are {hardware} and {protocol}, Ethernet and IPv4 have 6 and 4")]
        AddressLength {
            /// The hardware address length field.
            hardware: u8,
            /// The protocol address length field.
            protocol: u8,
        },
        /// Neither request nor reply.
        #[error("ARP operation is {operation}, only 1 (request) and 2 (reply) are understood")]
        Operation {
            /// The operation field.
            operation: u16,
        },
    }
}

/// What the sender wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ArpOperation {
    /// Who has the target address?
    Request,
    /// The sender has the sender address.
    Reply,
}

/// An ARP packet for IPv4 over Ethernet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ArpPacket {
    /// Question or answer.
    pub operation: ArpOperation,
    /// The sender's Ethernet address.
    pub sender_mac: MacAddress,
    /// The sender's IPv4 address; 0.0.0.0 in a probe (RFC 5227 section 2.1.1).
    pub sender_ip: Ipv4Addr,
    /// The target's Ethernet address; zero in a request.
    pub target_mac: MacAddress,
    /// The target's IPv4 address.
    pub target_ip: Ipv4Addr,
}

impl ArpPacket {
    /// Asks for the Ethernet address of `target`.
    #[inline]
    pub const fn request(sender_mac: MacAddress, sender_ip: Ipv4Addr, target_ip: Ipv4Addr) -> Self {
        Self {
            operation: ArpOperation::Request,
            sender_mac,
            sender_ip,
            target_mac: MacAddress::ZERO,
            target_ip,
        }
    }

    /// The answer to this request: the address that was asked for is at `mac`.
    #[inline]
    #[must_use]
    pub const fn reply(&self, mac: MacAddress) -> Self {
        Self {
            operation: ArpOperation::Reply,
            sender_mac: mac,
            sender_ip: self.target_ip,
            target_mac: self.sender_mac,
            target_ip: self.sender_ip,
        }
    }

    /// Reads a packet; bytes after the 28th are padding.
    ///
    /// # Errors
    /// The first rule that is broken, as [`ArpError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, ArpError> {
        let (packet, _) = take::<PACKET_LENGTH>(bytes, "ARP packet")?;
        let [
            h0,
            h1,
            p0,
            p1,
            hardware_length,
            protocol_length,
            o0,
            o1, //
            sm0,
            sm1,
            sm2,
            sm3,
            sm4,
            sm5,
            si0,
            si1,
            si2,
            si3, //
            tm0,
            tm1,
            tm2,
            tm3,
            tm4,
            tm5,
            ti0,
            ti1,
            ti2,
            ti3,
        ] = *packet;
        let hardware = u16::from_be_bytes([h0, h1]);
        if hardware != ETHERNET {
            return Err(ArpError::HardwareType { hardware });
        }
        let protocol = EtherType(u16::from_be_bytes([p0, p1]));
        if protocol != EtherType::IPV4 {
            return Err(ArpError::ProtocolType { protocol });
        }
        if (hardware_length, protocol_length) != (6, 4) {
            return Err(ArpError::AddressLength { hardware: hardware_length, protocol: protocol_length });
        }
        let operation = match u16::from_be_bytes([o0, o1]) {
            1 => ArpOperation::Request,
            2 => ArpOperation::Reply,
            operation => return Err(ArpError::Operation { operation }),
        };
        Ok(Self {
            operation,
            sender_mac: MacAddress([sm0, sm1, sm2, sm3, sm4, sm5]),
            sender_ip: Ipv4Addr::new(si0, si1, si2, si3),
            target_mac: MacAddress([tm0, tm1, tm2, tm3, tm4, tm5]),
            target_ip: Ipv4Addr::new(ti0, ti1, ti2, ti3),
        })
    }

    /// The packet as it goes on the wire, after the Ethernet header.
    pub fn to_bytes(&self) -> [u8; PACKET_LENGTH] {
        let [h0, h1] = ETHERNET.to_be_bytes();
        let [p0, p1] = EtherType::IPV4.0.to_be_bytes();
        let operation = match self.operation {
            ArpOperation::Request => 1,
            ArpOperation::Reply => 2,
        };
        let [sm0, sm1, sm2, sm3, sm4, sm5] = self.sender_mac.0;
        let [si0, si1, si2, si3] = self.sender_ip.octets();
        let [tm0, tm1, tm2, tm3, tm4, tm5] = self.target_mac.0;
        let [ti0, ti1, ti2, ti3] = self.target_ip.octets();
        [
            h0, h1, p0, p1, 6, 4, 0, operation, //
            sm0, sm1, sm2, sm3, sm4, sm5, si0, si1, si2, si3, //
            tm0, tm1, tm2, tm3, tm4, tm5, ti0, ti1, ti2, ti3,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Truncated;
    use proptest::prelude::*;

    const REQUEST: ArpPacket = ArpPacket::request(
        MacAddress([2, 0, 0, 0, 0, 1]),
        Ipv4Addr::new(192, 0, 2, 1),
        Ipv4Addr::new(192, 0, 2, 9),
    );

    #[test]
    fn a_request_byte_for_byte() {
        let expected =
            [0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 192, 0, 2, 9];
        assert_eq!(REQUEST.to_bytes(), expected);
        let padded = [&expected[..], &[0; 18]].concat();
        assert_eq!(ArpPacket::parse(&padded), Ok(REQUEST));
    }

    #[test]
    fn a_reply_turns_the_request_around() {
        let reply = REQUEST.reply(MacAddress([2, 0, 0, 0, 0, 9]));
        assert_eq!(reply.operation, ArpOperation::Reply);
        assert_eq!((reply.sender_mac, reply.sender_ip), (MacAddress([2, 0, 0, 0, 0, 9]), REQUEST.target_ip));
        assert_eq!((reply.target_mac, reply.target_ip), (REQUEST.sender_mac, REQUEST.sender_ip));
        assert_eq!(ArpPacket::parse(&reply.to_bytes()), Ok(reply));
    }

    #[test]
    fn each_rule_has_its_error() {
        let with = |at: usize, value: u8| {
            let mut bytes = REQUEST.to_bytes();
            bytes[at] = value;
            ArpPacket::parse(&bytes)
        };
        assert_eq!(with(1, 6), Err(ArpError::HardwareType { hardware: 6 }));
        assert_eq!(with(2, 0x86), Err(ArpError::ProtocolType { protocol: EtherType(0x8600) }));
        assert_eq!(with(4, 8), Err(ArpError::AddressLength { hardware: 8, protocol: 4 }));
        assert_eq!(with(5, 16), Err(ArpError::AddressLength { hardware: 6, protocol: 16 }));
        assert_eq!(with(7, 3), Err(ArpError::Operation { operation: 3 }));
        let cut = ArpPacket::parse(&REQUEST.to_bytes()[..27]);
        let expected = Truncated { header: "ARP packet", needed: 28, available: 27 };
        assert_eq!(cut, Err(ArpError::Truncated(expected)));
    }

    proptest! {
        #[test]
        fn what_parses_is_written_back_unchanged(mut bytes: [u8; PACKET_LENGTH], right in any::<bool>()) {
            if right {
                bytes[..7].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0]);
                bytes[7] = 1 + bytes[7] % 2;
            }
            match ArpPacket::parse(&bytes) {
                Ok(packet) => prop_assert_eq!(packet.to_bytes(), bytes),
                Err(_) => prop_assert!(!right),
            }
        }
    }
}
