//! A service group of the size that operators have: as many modems, channels and flows as are asked for.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use warmlane_wire::MacAddress;

use super::keys::KeySource;
use super::service_group::{
    Channel, ChannelKind, Classifier, Group, Limits, Modem, ServiceFlow, ServiceGroup,
};
use crate::lower::{Tunnel, TunnelAddresses};
use crate::upper::Match;

/// Bits a second of an OFDM channel of 192 MHz with 4096-QAM, about (CM-SP-PHYv3.1).
const OFDM_RATE: u64 = 1_890_000_000;
/// Bits a second of a channel of 6 MHz with 256-QAM (ITU-T J.83 annex B), without forward error correction.
const SC_QAM_RATE: u64 = 38_810_000;
/// Expedited forwarding (RFC 3246) as a traffic class.
const EXPEDITED: u8 = 46 << 2;

/// What to generate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Generated {
    /// How many modems, from 1 to 16,383.
    pub modems: u16,
    /// OFDM channels.
    pub ofdm: u16,
    /// SC-QAM channels.
    pub sc_qam: u16,
    /// Maximum sustained rate of each modem's primary flow in bits a second; `None` for no limit.
    pub maximum_rate: Option<u64>,
}

impl Default for Generated {
    /// The scale that Intel's reference data plane was measured at: 300 modems, six OFDM channels.
    fn default() -> Self {
        Self { modems: 300, ofdm: 6, sc_qam: 0, maximum_rate: None }
    }
}

/// A service group of this size. Modems have the addresses that `warmlane gen`'s cable mix sends to, a primary flow, and one of
/// higher priority for packets marked for expedited forwarding; all OFDM channels are bonded, and all SC-QAM channels are.
pub fn generate(wanted: &Generated) -> ServiceGroup {
    let kinds = [
        (ChannelKind::Ofdm, wanted.ofdm, "ofdm", OFDM_RATE),
        (ChannelKind::ScQam, wanted.sc_qam, "sc-qam", SC_QAM_RATE),
    ];
    let (mut channels, mut groups) = (Vec::new(), Vec::new());
    for (kind, count, name, rate) in kinds {
        let first = channels.len();
        for number in 0..count {
            let session = 0x8000_0001 + channels.len() as u32;
            channels.push(Channel { name: format!("{name}{number}"), kind, rate, session, psp_flow: 0 });
        }
        if count > 0 {
            groups.push(Group { channels: (first..channels.len()).collect() });
        }
    }
    let (mut modems, mut flows) = (Vec::new(), Vec::new());
    for number in 0..usize::from(wanted.modems) {
        let group = number % groups.len().max(1);
        let primary_flow = flows.len();
        flows.push(ServiceFlow {
            maximum_rate: wanted.maximum_rate,
            ..ServiceFlow::best_effort(number, group)
        });
        flows.push(ServiceFlow { priority: 5, queue: 256, ..ServiceFlow::best_effort(number, group) });
        let expedited = Match { traffic_class: Some((EXPEDITED, EXPEDITED, 0xfc)), ..Match::default() };
        let [_, a, b, c] = (number as u32 + 1).to_be_bytes();
        modems.push(Modem {
            mac: MacAddress([2, 0xca, 0xb0, a, b, c]),
            cpe_macs: vec![MacAddress([2, 0xca, 0xb1, a, b, c])],
            addresses: vec![
                IpAddr::from(Ipv4Addr::new(10, a, b, c)),
                IpAddr::from(Ipv6Addr::new(0xfd00, 0xca, 0xb1, a.into(), b.into(), c.into(), 0, 1)),
            ],
            enforces_addresses: true,
            said: number as u16 + 1,
            filter: None,
            classifiers: vec![Classifier { priority: 64, matches: expedited, flow: primary_flow + 1 }],
            primary_flow,
        });
    }
    ServiceGroup {
        modems,
        flows,
        channels,
        groups,
        filters: Vec::new(),
        tunnel: Tunnel {
            source: MacAddress([2, 0, 0, 0, 0, 1]),
            destination: MacAddress([2, 0, 0, 0, 0, 2]),
            addresses: TunnelAddresses::V4 {
                source: Ipv4Addr::new(192, 0, 2, 1),
                destination: Ipv4Addr::new(192, 0, 2, 2),
            },
            dscp: 46,
            mtu: 1_500,
        },
        keys: KeySource { seed: 1 },
        limits: Limits::default(),
        crc: true,
        encryption: true,
    }
}
