//! Multicast listener discovery (RFC 2710, RFC 3810), as far as a host speaks it that listens to a group, whoever sends to it: IGMP's part in IPv6.

use std::net::Ipv6Addr;
use std::time::Duration;

use crate::checksum::pseudo_ipv6;
use crate::error::{WrongChecksum, header_errors, take};
use crate::icmpv6;
use crate::igmp::{GroupRecord, floating};
use crate::{IpProtocol, Ipv6Header};

/// Where hosts report to by MLDv2: all routers that know it (RFC 3810 section 5.2.14).
pub const ALL_V2_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);

/// Where hosts say by MLDv1 that they leave (RFC 2710 section 4).
pub const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

/// The extension header with the option "router alert", which all messages carry (RFC 2711), in front of ICMPv6.
pub const ROUTER_ALERT: [u8; 8] = [IpProtocol::ICMPV6.0, 0, 5, 2, 0, 0, 1, 0];

/// Bytes of a report of one group by MLDv2.
pub const REPORT_LENGTH: usize = 28;

/// Bytes of a message of MLDv1, and of a query at least.
pub const HEADER_LENGTH: usize = 24;

const QUERY: u8 = 130;
const REPORT_V1: u8 = 131;
const DONE_V1: u8 = 132;
const REPORT_V2: u8 = 143;

header_errors! {
    /// Why a message is no query. The order of the variants is the order of the checks.
    pub enum MldError with Checksum {
        /// It is none.
        #[error("ICMPv6 type is {kind}, a multicast listener query has 130")]
        Type {
            /// The type field.
            kind: u8,
        },
        /// It was sent from beyond the link (RFC 3810 section 5.1.14).
        #[error("multicast listener query from {source_address} with hop limit {hop_limit}: only link-local ones with 1 count")]
        NotOfThisLink {
            /// Who sent it.
            source_address: Ipv6Addr,
            /// Its hop limit.
            hop_limit: u8,
        },
        /// It is longer than MLDv1's 24 bytes and shorter than MLDv2's 28 (RFC 3810 section 8.1).
        #[error("multicast listener query has {length} bytes, must have 24, or 28 and more")]
        Length {
            /// Bytes of the message.
            length: usize,
        },
    }
}

/// A router asks who listens to a group, or to any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MldQuery {
    /// The group, if it asks for one.
    pub group: Option<Ipv6Addr>,
    /// The longest that hosts may take to answer.
    pub within: Duration,
    /// The router speaks MLDv2, so that it can be answered by that.
    pub is_v2: bool,
}

impl MldQuery {
    /// Reads what the IPv6 headers leave.
    ///
    /// # Errors
    /// [`MldError`].
    pub fn parse(header: Ipv6Header<'_>, message: &[u8]) -> Result<Self, MldError> {
        let ([kind, _, c0, c1, d0, d1, _, _, group @ ..], _) =
            take::<HEADER_LENGTH>(message, "multicast listener message")?;
        if *kind != QUERY {
            return Err(MldError::Type { kind: *kind });
        }
        let (source_address, hop_limit) = (header.source(), header.hop_limit());
        if hop_limit != 1 || !source_address.is_unicast_link_local() {
            return Err(MldError::NotOfThisLink { source_address, hop_limit });
        }
        let sum = icmpv6::sum(source_address, header.destination(), message);
        WrongChecksum::check_with_pseudo_header("ICMPv6", u16::from_be_bytes([*c0, *c1]), sum)?;
        // RFC 3810 section 8.1 tells versions by the length.
        let is_v2 = match message.len() {
            HEADER_LENGTH => false,
            28.. => true,
            length => return Err(MldError::Length { length }),
        };
        let code = u32::from(u16::from_be_bytes([*d0, *d1]));
        let milliseconds = if is_v2 { floating::<12>(code) } else { code };
        let group = Ipv6Addr::from(*group);
        Ok(Self {
            group: (!group.is_unspecified()).then_some(group),
            within: Duration::from_millis(milliseconds.into()),
            is_v2,
        })
    }
}

/// Whether a hop-by-hop header, with which these bytes begin, has the option "router alert" for multicast listener discovery (RFC 2711 section 2.1).
pub fn has_router_alert(header: &[u8]) -> bool {
    const PAD_1: u8 = 0;
    const OPTION: u8 = 5;
    let length = header.get(1).map_or(0, |units| 8 + 8 * usize::from(*units));
    let mut options = header.get(2..length).unwrap_or_default();
    while let [kind, rest @ ..] = options {
        if *kind == PAD_1 {
            options = rest;
            continue;
        }
        let Some((length, rest)) = rest.split_first() else { return false };
        let Some((value, rest)) = rest.split_at_checked((*length).into()) else { return false };
        if (*kind, value) == (OPTION, &[0, 0]) {
            return true;
        }
        options = rest;
    }
    false
}

/// A report of one group by MLDv2, from a link-local address to [`ALL_V2_ROUTERS`].
pub fn report(source: Ipv6Addr, record: GroupRecord, group: Ipv6Addr) -> [u8; REPORT_LENGTH] {
    let mut message = [0; REPORT_LENGTH];
    message[0] = REPORT_V2;
    // One record, without sources and auxiliary data.
    message[7] = 1;
    message[8] = record as u8;
    message[12..].copy_from_slice(&group.octets());
    with_checksum(message, source, ALL_V2_ROUTERS)
}

/// A report by MLDv1, from a link-local address to the group itself.
pub fn report_v1(source: Ipv6Addr, group: Ipv6Addr) -> [u8; HEADER_LENGTH] {
    message_v1(REPORT_V1, source, group, group)
}

/// What is said by MLDv1 when a group is left, from a link-local address to [`ALL_ROUTERS`].
pub fn done_v1(source: Ipv6Addr, group: Ipv6Addr) -> [u8; HEADER_LENGTH] {
    message_v1(DONE_V1, source, ALL_ROUTERS, group)
}

fn message_v1(kind: u8, source: Ipv6Addr, destination: Ipv6Addr, group: Ipv6Addr) -> [u8; HEADER_LENGTH] {
    let mut message = [0; HEADER_LENGTH];
    message[0] = kind;
    message[8..].copy_from_slice(&group.octets());
    with_checksum(message, source, destination)
}

fn with_checksum<const N: usize>(mut message: [u8; N], source: Ipv6Addr, destination: Ipv6Addr) -> [u8; N] {
    let sum = pseudo_ipv6(source, destination, IpProtocol::ICMPV6, N as u32).bytes(&message);
    message[2..4].copy_from_slice(&sum.checksum().to_be_bytes());
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ipv6Fields;
    use proptest::prelude::*;

    const GROUP: Ipv6Addr = Ipv6Addr::new(0xff0e, 0, 0, 0, 0, 0, 0, 0x1234);
    const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
    const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

    #[test]
    fn reports_have_right_checksums() {
        for (message, destination) in [
            (report(ROUTER, GroupRecord::Joined, GROUP).to_vec(), ALL_V2_ROUTERS),
            (report_v1(ROUTER, GROUP).to_vec(), GROUP),
            (done_v1(ROUTER, GROUP).to_vec(), ALL_ROUTERS),
        ] {
            assert_eq!(icmpv6::sum(ROUTER, destination, &message), 0xffff, "{message:02x?}");
            assert_eq!(message[message.len() - 16..], GROUP.octets());
        }
    }

    fn parse(source: Ipv6Addr, hop_limit: u8, message: &[u8]) -> Result<MldQuery, MldError> {
        let fields = Ipv6Fields { hop_limit, ..Ipv6Fields::new(source, ALL_NODES) };
        let header = fields.header(IpProtocol::ICMPV6, message.len() as u16);
        MldQuery::parse(Ipv6Header(&header), message)
    }

    fn query<const N: usize>(code: u16, group: Ipv6Addr) -> [u8; N] {
        let mut message = [0; N];
        message[0] = QUERY;
        message[4..6].copy_from_slice(&code.to_be_bytes());
        message[8..24].copy_from_slice(&group.octets());
        with_checksum(message, ROUTER, ALL_NODES)
    }

    #[test]
    fn queries_say_what_is_asked_and_how_fast() {
        let any = Ipv6Addr::UNSPECIFIED;
        for (message, group, within, is_v2) in [
            (query::<28>(10_000, any).to_vec(), None, 10_000, true),
            (query::<28>(1_000, GROUP).to_vec(), Some(GROUP), 1_000, true),
            (query::<24>(10_000, any).to_vec(), None, 10_000, false),
            (query::<24>(0xffff, any).to_vec(), None, 65_535, false),
            // (0xfff | 0x1000) << (7 + 3).
            (query::<28>(0xffff, any).to_vec(), None, 8_387_584, true),
        ] {
            let seen = parse(ROUTER, 1, &message);
            assert_eq!(seen, Ok(MldQuery { group, within: Duration::from_millis(within), is_v2 }));
        }
    }

    #[test]
    fn what_is_no_query_has_a_reason() {
        let message = query::<28>(1_000, GROUP);
        assert!(matches!(parse(ROUTER, 1, &message[..23]), Err(MldError::Truncated(_))));
        assert_eq!(parse(ROUTER, 1, &report_v1(ROUTER, GROUP)), Err(MldError::Type { kind: 131 }));
        for (source, hop_limit) in [(ROUTER, 64), (Ipv6Addr::LOCALHOST, 1)] {
            let error = parse(source, hop_limit, &message);
            assert_eq!(error, Err(MldError::NotOfThisLink { source_address: source, hop_limit }));
        }
        for length in [25, 27] {
            let mut message = [&query::<24>(1_000, GROUP)[..], &[0; 3][..length - 24]].concat();
            let sum = pseudo_ipv6(ROUTER, ALL_NODES, IpProtocol::ICMPV6, length as u32);
            message[2..4].fill(0);
            let checksum = sum.bytes(&message).checksum().to_be_bytes();
            message[2..4].copy_from_slice(&checksum);
            assert_eq!(parse(ROUTER, 1, &message), Err(MldError::Length { length }));
        }
        let mut broken = message;
        broken[9] ^= 1;
        assert!(matches!(parse(ROUTER, 1, &broken), Err(MldError::Checksum(_))));
    }

    #[test]
    fn router_alert_is_found_wherever_it_stands() {
        assert!(has_router_alert(&ROUTER_ALERT));
        // Behind two kinds of padding, and behind another option.
        assert!(has_router_alert(&[58, 0, 0, 0, 5, 2, 0, 0]));
        assert!(has_router_alert(&[58, 1, 1, 2, 0, 0, 7, 1, 9, 5, 2, 0, 0, 0, 0, 0]));
        // For RSVP; none; cut off; beyond the header.
        for other in [&[58, 0, 5, 2, 0, 1, 1, 0][..], &[58, 0, 1, 4, 0, 0, 0, 0], &[58, 0, 5, 2, 0], &[58]] {
            assert!(!has_router_alert(other), "{other:?}");
        }
        assert!(!has_router_alert(&[58, 0, 1, 4, 0, 0, 0, 0, 5, 2, 0, 0]));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            has_router_alert(&bytes);
            let _ = parse(ROUTER, 1, &bytes);
        }
    }
}
