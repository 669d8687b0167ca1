//! The hash of a packet's flow, as a device reports it behind a header of 12 bytes (virtio 1.2 section 5.1.6.4.4, `struct
//! virtio_net_hdr_v1_hash`): the value, what it was computed of, and two bytes of nothing.

use warmlane_mem::{FlowHash, HashKind, Packet};
use warmlane_wire::{EtherType, IpProtocol, Ipv4Header, Ipv6Header, LinkLayer};

/// Bytes of a report.
pub const HASH_REPORT_LENGTH: usize = 8;

/// What a hash was computed of. 7 to 9 are the same for IPv6 with addresses from extension headers.
const NONE: u16 = 0;
const IPV4: u16 = 1;
const TCP4: u16 = 2;
const UDP4: u16 = 3;
const IPV6: u16 = 4;
const TCP6: u16 = 5;
const UDP6: u16 = 6;
const FIRST_EXTENDED: u16 = 7;
const LAST_EXTENDED: u16 = 9;

/// Notes the hash that a report has, if it has one.
#[inline]
pub fn note_hash(packet: &mut Packet, report: [u8; HASH_REPORT_LENGTH]) {
    let [a, b, c, d, low, high, ..] = report;
    let kind = match u16::from_le_bytes([low, high]) {
        IPV4 | IPV6 => HashKind::ToeplitzAddresses,
        TCP4 | UDP4 | TCP6 | UDP6 => HashKind::Toeplitz,
        // Not of the addresses in the IPv6 header.
        FIRST_EXTENDED..=LAST_EXTENDED => HashKind::Device,
        _ => return,
    };
    packet.set_flow_hash(Some(FlowHash { kind, value: u32::from_le_bytes([a, b, c, d]) }));
}

/// The report of the hash that is known of a packet. Only Toeplitz hashes of its addresses, or of these and TCP's or UDP's ports,
/// can be reported; with any other it says that there is none.
#[inline]
pub fn hash_report(packet: &Packet) -> [u8; HASH_REPORT_LENGTH] {
    let Some(FlowHash { kind, value }) = packet.flow_hash() else { return [0; HASH_REPORT_LENGTH] };
    let kind = match kind {
        HashKind::Toeplitz => kind_of(packet, true),
        HashKind::ToeplitzAddresses => kind_of(packet, false),
        HashKind::Device | HashKind::Software => NONE,
    };
    if kind == NONE {
        return [0; HASH_REPORT_LENGTH];
    }
    let ([a, b, c, d], [low, high]) = (value.to_le_bytes(), kind.to_le_bytes());
    [a, b, c, d, low, high, 0, 0]
}

/// What a hash of this packet, with its ports or without, was computed of.
fn kind_of(packet: &Packet, has_ports: bool) -> u16 {
    let Ok(LinkLayer { ethertype, payload, .. }) = LinkLayer::parse(packet.data()) else { return NONE };
    let (protocol, [addresses, tcp, udp]) = match ethertype {
        EtherType::IPV4 => {
            let Some(header) = payload.first_chunk() else { return NONE };
            (Ipv4Header(header).protocol(), [IPV4, TCP4, UDP4])
        }
        EtherType::IPV6 => {
            let Some(header) = payload.first_chunk() else { return NONE };
            (Ipv6Header(header).next_header(), [IPV6, TCP6, UDP6])
        }
        _ => return NONE,
    };
    match protocol {
        _ if !has_ports => addresses,
        IpProtocol::TCP => tcp,
        IpProtocol::UDP => udp,
        _ => NONE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmlane_mem::{Pool, PoolConfig};
    use warmlane_wire::{Frame, Ipv4Fields, Ipv6Fields, MacAddress, VlanTag};

    const VALUE: u32 = 0x51cc_c178;

    fn frames() -> [(Vec<u8>, u16, u16); 6] {
        let ethernet = || Frame::new().ethernet(MacAddress::BROADCAST, MacAddress([2, 0, 0, 0, 0, 1]));
        let v4 = || Ipv4Fields::new([66, 9, 149, 187].into(), [161, 142, 100, 80].into());
        let v6 = || Ipv6Fields::new("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
        let mut icmp = ethernet().ipv4(v4()).udp(1, 2).to_vec().unwrap();
        icmp[14 + 9] = 1;
        let mut tcp4 = ethernet().vlan(VlanTag::customer(7)).ipv4(v4()).udp(2794, 1766).to_vec().unwrap();
        tcp4[18 + 9] = 6;
        let mut tcp6 = ethernet().ipv6(v6()).udp(2794, 1766).to_vec().unwrap();
        tcp6[14 + 6] = 6;
        [
            (icmp, IPV4, NONE),
            (tcp4, IPV4, TCP4),
            (ethernet().ipv4(v4()).udp(2794, 1766).to_vec().unwrap(), IPV4, UDP4),
            (tcp6, IPV6, TCP6),
            (ethernet().ipv6(v6()).udp(2794, 1766).to_vec().unwrap(), IPV6, UDP6),
            (vec![0xff; 30], NONE, NONE),
        ]
    }

    #[test]
    fn what_is_reported_is_noted_again() {
        let pool = Pool::new(&PoolConfig { buffers: 2, ..PoolConfig::default() }).unwrap();
        let mut packet = pool.take().unwrap();
        for (frame, of_addresses, of_ports) in frames() {
            for (kind, expected) in [
                (HashKind::ToeplitzAddresses, of_addresses),
                (HashKind::Toeplitz, of_ports),
                (HashKind::Device, NONE),
                (HashKind::Software, NONE),
            ] {
                packet.fill(&frame).unwrap();
                let hash = FlowHash { kind, value: VALUE };
                packet.set_flow_hash(Some(hash));
                let report = hash_report(&packet);
                assert_eq!(u16::from_le_bytes([report[4], report[5]]), expected, "{kind:?} {frame:?}");
                packet.set_flow_hash(None);
                note_hash(&mut packet, report);
                assert_eq!(packet.flow_hash(), (expected != NONE).then_some(hash));
            }
        }
        packet.set_flow_hash(None);
        assert_eq!(hash_report(&packet), [0; HASH_REPORT_LENGTH]);
    }

    #[test]
    fn kinds_that_nobody_knows_are_no_hash() {
        let pool = Pool::new(&PoolConfig { buffers: 2, ..PoolConfig::default() }).unwrap();
        let mut packet = pool.take().unwrap();
        for kind in [NONE, LAST_EXTENDED + 1, u16::MAX] {
            let [low, high] = kind.to_le_bytes();
            note_hash(&mut packet, [1, 2, 3, 4, low, high, 0, 0]);
            assert_eq!(packet.flow_hash(), None);
        }
        note_hash(&mut packet, [1, 0, 0, 0, 8, 0, 0, 0]);
        assert_eq!(packet.flow_hash(), Some(FlowHash { kind: HashKind::Device, value: 1 }));
    }
}
