//! Whether senders leave checksums to hardware that there isn't.

use warmlane_counters::counters;
use warmlane_wire::{Addresses, IpProtocol, IpVersion, Ipv4Header, Ipv6Header, Layers, ipv4, ipv6};

counters! {
    /// What samples of received packets tell: the first of each burst.
    pub(crate) struct SampleCounters => SampleCountersView {
        /// Sampled packets whose checksums were left to hardware that there isn't.
        left_checksums: Note, "packets";
    }
}

/// Whether the checksum of a frame's TCP or UDP has been left to hardware: the field has the sum of the pseudo header alone, as the kernel
/// puts it there for hardware to go on with (`include/linux/skbuff.h`, `CHECKSUM_PARTIAL`), and that is not the checksum. `frame` is all of
/// it: of a part nothing is said.
pub(crate) fn is_left(frame: &[u8]) -> bool {
    let Ok(layers) = Layers::find(frame) else { return false };
    if layers.is_fragment || layers.is_source_routed {
        return false;
    }
    let field = match layers.protocol {
        IpProtocol::TCP => 16,
        IpProtocol::UDP => 6,
        _ => return false,
    };
    let segment = layers.transport.and_then(|start| frame.get(start..layers.end));
    let (Some(segment), Some(addresses)) = (segment, addresses(frame, &layers)) else { return false };
    let Some([high, low]) = segment.get(field..field + 2).and_then(<[u8]>::first_chunk) else { return false };
    let pseudo = addresses.pseudo_header(layers.protocol, segment.len() as u32);
    u16::from_be_bytes([*high, *low]) == pseudo.fold() && !pseudo.bytes(segment).is_valid()
}

fn addresses(frame: &[u8], layers: &Layers) -> Option<Addresses> {
    let header = frame.get(layers.network..)?;
    Some(match layers.version {
        IpVersion::V4 => {
            let header = Ipv4Header(header.first_chunk::<{ ipv4::HEADER_LENGTH }>()?);
            Addresses::V4 { source: header.source(), destination: header.destination() }
        }
        IpVersion::V6 => {
            let header = Ipv6Header(header.first_chunk::<{ ipv6::HEADER_LENGTH }>()?);
            Addresses::V6 { source: header.source(), destination: header.destination() }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmlane_wire::{Frame, Ipv4Fields, Ipv6Fields, MacAddress, TcpFields, VlanTag};

    fn ethernet() -> Frame<'static> {
        Frame::new().ethernet(MacAddress::BROADCAST, MacAddress([2, 0, 0, 0, 0, 1]))
    }

    fn frames() -> Vec<Vec<u8>> {
        let ipv4 = Ipv4Fields::new([192, 0, 2, 1].into(), [198, 51, 100, 2].into());
        let ipv6 = Ipv6Fields::new(0x2001_0db8_u128.into(), 2.into());
        [
            ethernet().ipv4(ipv4).udp(4242, 53).payload(b"question"),
            ethernet().ipv6(ipv6).udp(4242, 53).payload(b"question"),
            ethernet().vlan(VlanTag::customer(7)).ipv4(ipv4).tcp(TcpFields::new(4242, 80)),
            ethernet().ipv6(ipv6).tcp(TcpFields::new(4242, 80)).payload(b"odd"),
        ]
        .map(|frame| frame.to_vec().unwrap())
        .to_vec()
    }

    /// As a sender does it.
    fn leave(frame: &mut [u8]) {
        let layers = Layers::find(frame).unwrap();
        let length = (layers.end - layers.transport.unwrap()) as u32;
        let sum = addresses(frame, &layers).unwrap().pseudo_header(layers.protocol, length).fold();
        let field = layers.transport.unwrap() + if layers.protocol == IpProtocol::TCP { 16 } else { 6 };
        frame[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    }

    #[test]
    fn what_is_left_reads_metadata_from_what_is_whole() {
        for mut frame in frames() {
            assert!(!is_left(&frame), "{frame:?}");
            leave(&mut frame);
            assert!(is_left(&frame), "{frame:?}");
            // Padding of the link is no part of it.
            frame.resize(120, 0);
            assert!(is_left(&frame));
            // Wrong in another way.
            let layers = Layers::find(&frame).unwrap();
            let field = layers.transport.unwrap() + if layers.protocol == IpProtocol::TCP { 16 } else { 6 };
            frame[field] ^= 1;
            assert!(!is_left(&frame));
        }
    }

    /// The sum of the pseudo header can be the checksum, if nothing but that field is behind it.
    #[test]
    fn a_checksum_that_happens_to_be_the_same_is_whole() {
        let addresses = Ipv4Fields::new([192, 0, 2, 1].into(), [198, 51, 100, 2].into());
        let found = (0..=u16::MAX).find_map(|port| {
            let frame = ethernet().ipv4(addresses).udp(port, 53).payload(b"any").to_vec().unwrap();
            let mut left = frame.clone();
            leave(&mut left);
            (left == frame).then_some(frame)
        });
        assert!(!is_left(&found.expect("one of all ports")));
    }

    #[test]
    fn a_part_of_a_frame_says_nothing() {
        for mut frame in frames() {
            leave(&mut frame);
            for length in 0..frame.len() {
                assert!(!is_left(&frame[..length]), "{length}");
            }
        }
    }
}
