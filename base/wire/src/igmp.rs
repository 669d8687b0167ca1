//! IGMP (RFC 2236, RFC 3376), as far as a host speaks it that listens to a group, whoever sends to it.

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::checksum::Sum;
use crate::error::{WrongChecksum, header_errors, take};

/// Where hosts report to by IGMPv3: all routers that know it (RFC 3376 section 4.2.14).
pub const ALL_V3_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 22);

/// Where hosts say by IGMPv2 that they leave (RFC 2236 section 9).
pub const ALL_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 2);

/// Where routers ask for members of any group (RFC 3376 section 4.1.12).
pub const ALL_SYSTEMS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);

/// The IPv4 option "router alert", which all messages carry (RFC 2113).
pub const ROUTER_ALERT: [u8; 4] = [0x94, 4, 0, 0];

/// Bytes of a report of one group by IGMPv3.
pub const REPORT_LENGTH: usize = 16;

/// Bytes of a message of IGMPv2, and of a query at least.
pub const HEADER_LENGTH: usize = 8;

/// Tenths of a second to answer a router of IGMPv1 in (RFC 2236 section 4).
const OF_V1: u32 = 100;

const QUERY: u8 = 0x11;
const REPORT_V2: u8 = 0x16;
const LEAVE_V2: u8 = 0x17;
const REPORT_V3: u8 = 0x22;

/// What a host says of a group of which it takes packets from everybody, or from nobody any more (RFC 3376 section 4.2.12, RFC 3810
/// section 5.2.12). No sources are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupRecord {
    /// The answer to a query: it listens (`MODE_IS_EXCLUDE`).
    Listens = 2,
    /// It has left (`CHANGE_TO_INCLUDE_MODE`).
    Left = 3,
    /// It has joined (`CHANGE_TO_EXCLUDE_MODE`).
    Joined = 4,
}

header_errors! {
    /// Why a message is no query. The order of the variants is the order of the checks.
    pub enum IgmpError with Checksum {
        /// It is none.
        #[error("IGMP type is {kind:#04x}, a membership query has 0x11")]
        Type {
            /// The type field.
            kind: u8,
        },
        /// It is longer than IGMPv2's 8 bytes and shorter than IGMPv3's 12 (RFC 3376 section 7.1).
        #[error("IGMP query has {length} bytes, must have 8, or 12 and more")]
        Length {
            /// Bytes of the message.
            length: usize,
        },
    }
}

/// A router asks who listens to a group, or to any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IgmpQuery {
    /// The group, if it asks for one.
    pub group: Option<Ipv4Addr>,
    /// The longest that hosts may take to answer.
    pub within: Duration,
    /// The router speaks IGMPv3, so that it can be answered by that. One of IGMPv1, which nobody has any more, counts as of IGMPv2.
    pub is_v3: bool,
}

impl IgmpQuery {
    /// Reads what the IPv4 header leaves, without link-layer padding.
    ///
    /// # Errors
    /// [`IgmpError`].
    pub fn parse(message: &[u8]) -> Result<Self, IgmpError> {
        let ([kind, code, c0, c1, group @ ..], _) = take::<HEADER_LENGTH>(message, "IGMP message")?;
        if *kind != QUERY {
            return Err(IgmpError::Type { kind: *kind });
        }
        let sum = Sum::new().bytes(message).fold();
        WrongChecksum::check_message("IGMP", u16::from_be_bytes([*c0, *c1]), sum)?;
        // RFC 3376 section 7.1 tells versions by the length.
        let is_v3 = match message.len() {
            HEADER_LENGTH => false,
            12.. => true,
            length => return Err(IgmpError::Length { length }),
        };
        let tenths = match (is_v3, *code) {
            (true, code) => floating::<4>(code.into()),
            (false, 0) => OF_V1,
            (false, code) => code.into(),
        };
        let group = Ipv4Addr::from(*group);
        Ok(Self {
            group: (!group.is_unspecified()).then_some(group),
            within: Duration::from_millis(u64::from(tenths) * 100),
            is_v3,
        })
    }
}

/// A number whose largest bit says that the others are an exponent of 3 bits and a mantissa of `MANTISSA` (RFC 3376 section 4.1.1, RFC 3810 section 5.1.3).
pub(crate) const fn floating<const MANTISSA: u32>(code: u32) -> u32 {
    let first_float = 1 << (MANTISSA + 3);
    if code < first_float {
        return code;
    }
    let mantissa = code & ((1 << MANTISSA) - 1) | 1 << MANTISSA;
    mantissa << ((code >> MANTISSA & 7) + 3)
}

/// A report of one group by IGMPv3, for [`ALL_V3_ROUTERS`].
pub fn report(record: GroupRecord, group: Ipv4Addr) -> [u8; REPORT_LENGTH] {
    let [a, b, c, d] = group.octets();
    // One record, without sources and auxiliary data.
    let mut message = [REPORT_V3, 0, 0, 0, 0, 0, 0, 1, record as u8, 0, 0, 0, a, b, c, d];
    let checksum = Sum::new().bytes(&message).checksum().to_be_bytes();
    message[2..4].copy_from_slice(&checksum);
    message
}

/// A report by IGMPv2, for the group itself.
pub fn report_v2(group: Ipv4Addr) -> [u8; HEADER_LENGTH] {
    message_v2(REPORT_V2, group)
}

/// What is said by IGMPv2 when a group is left, for [`ALL_ROUTERS`].
pub fn leave_v2(group: Ipv4Addr) -> [u8; HEADER_LENGTH] {
    message_v2(LEAVE_V2, group)
}

fn message_v2(kind: u8, group: Ipv4Addr) -> [u8; HEADER_LENGTH] {
    let [a, b, c, d] = group.octets();
    let [c0, c1] = Sum::new().bytes(&[kind, 0, 0, 0, a, b, c, d]).checksum().to_be_bytes();
    [kind, 0, c0, c1, a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);

    #[test]
    fn reports_have_right_checksums() {
        let reports = [GroupRecord::Listens, GroupRecord::Left, GroupRecord::Joined];
        let reports = reports.map(|record| report(record, GROUP).to_vec());
        let of_v2 = [report_v2(GROUP).to_vec(), leave_v2(GROUP).to_vec()];
        for message in reports.iter().chain(&of_v2) {
            assert!(Sum::new().bytes(message).is_valid(), "{message:02x?}");
            assert_eq!(message[message.len() - 4..], GROUP.octets());
        }
        assert_eq!(reports.map(|message| message[8]), [2, 3, 4]);
    }

    fn query(code: u8, group: Ipv4Addr, is_v3: bool) -> Vec<u8> {
        let mut message = message_v2(QUERY, group).to_vec();
        message[1] = code;
        if is_v3 {
            message.extend([2, 125, 0, 0]);
        }
        message[2..4].fill(0);
        let checksum = Sum::new().bytes(&message).checksum().to_be_bytes();
        message[2..4].copy_from_slice(&checksum);
        message
    }

    #[test]
    fn queries_say_what_is_asked_and_how_fast() {
        let general = Ipv4Addr::UNSPECIFIED;
        for (code, group, is_v3, within) in [
            (100, general, true, 10_000),
            (100, general, false, 10_000),
            (10, GROUP, true, 1_000),
            // (0xf | 0x10) << (7 + 3) tenths.
            (0xff, general, true, 3_174_400),
            (0xff, general, false, 25_500),
            (0x80, general, true, 12_800),
            (0, general, false, 10_000),
            (0, general, true, 0),
        ] {
            let seen = IgmpQuery::parse(&query(code, group, is_v3)).unwrap();
            let group = (group != general).then_some(group);
            assert_eq!(seen, IgmpQuery { group, within: Duration::from_millis(within), is_v3 });
        }
    }

    #[test]
    fn what_is_no_query_has_a_reason() {
        assert!(matches!(IgmpQuery::parse(&[QUERY; 7]), Err(IgmpError::Truncated(_))));
        assert_eq!(IgmpQuery::parse(&report_v2(GROUP)), Err(IgmpError::Type { kind: 0x16 }));
        for length in 9..12 {
            let message = [&query(100, GROUP, false)[..], &[0; 3][..length - 8]].concat();
            assert_eq!(IgmpQuery::parse(&message), Err(IgmpError::Length { length }));
        }
        let mut broken = query(100, GROUP, true);
        broken[4] ^= 1;
        assert!(matches!(IgmpQuery::parse(&broken), Err(IgmpError::Checksum(_))));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = IgmpQuery::parse(&bytes);
        }
    }
}
