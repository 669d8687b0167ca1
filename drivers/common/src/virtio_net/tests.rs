use super::*;
use warmlane_mem::{Pool, PoolConfig};
use warmlane_port::software_offload::complete_checksum;
use warmlane_wire::{Addresses, Frame, Ipv4Fields, MacAddress, sctp, udp, vxlan};

fn header(flags: u8, gso: u8, size: u16, start: u16, offset: u16) -> [u8; HEADER_LENGTH] {
    let mut header = [flags, gso, 0, 0, 0, 0, 0, 0, 0, 0];
    for (field, value) in [size, start, offset].into_iter().enumerate() {
        header[4 + field * 2..][..2].copy_from_slice(&value.to_ne_bytes());
    }
    header
}

/// A TCP or UDP packet with `payload` bytes of payload.
fn packet(pool: &Pool, protocol: u8, payload: usize) -> Packet {
    let transport = if protocol == 6 { 20 } else { 8 };
    let length = 20 + transport + payload;
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    frame.extend((length as u16).to_be_bytes());
    frame.extend([0, 1, 0x40, 0, 64, protocol, 0, 0, 192, 0, 2, 1, 198, 51, 100, 2]);
    frame.extend([0, 1, 0, 2]);
    if protocol == 6 {
        frame.extend([0, 0, 0, 1, 0, 0, 0, 9, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    } else {
        frame.extend(((8 + payload) as u16).to_be_bytes());
        frame.extend([0xaa, 0xaa]);
    }
    frame.resize(14 + length, 7);
    let mut packet = pool.take().unwrap();
    packet.fill(&frame).unwrap();
    packet
}

fn pool() -> Pool {
    Pool::new(&PoolConfig { buffers: 8, data_size: 4096, ..PoolConfig::default() }).unwrap()
}

#[test]
fn what_a_header_says_is_noted_and_told_again() {
    let pool = pool();
    let tcp4 = Segmentation { kind: SegmentationKind::Tcp4, size: 500, congestion: false };
    let ecn = Segmentation { congestion: true, ..tcp4 };
    let udp = Segmentation { kind: SegmentationKind::Udp, ..tcp4 };
    let partial = |offset| Checksum::Partial { start: 34, offset };
    for (protocol, said, checksum, segmentation) in [
        (6, NOTHING_LEFT, Checksum::Unknown, None),
        (6, header(2, 0, 0, 0, 0), Checksum::Good, None),
        (6, header(1, 0, 0, 34, 16), partial(16), None),
        (6, header(1, 1, 500, 34, 16), partial(16), Some(tcp4)),
        (6, header(1, 0x81, 500, 34, 16), partial(16), Some(ecn)),
        // Without a partial checksum, and with a wrong idea of where it is.
        (6, header(0, 1, 500, 0, 0), partial(16), Some(tcp4)),
        (6, header(1, 1, 500, 34, 6), partial(16), Some(tcp4)),
        (17, header(1, 5, 500, 34, 6), partial(6), Some(udp)),
        // One segment is none.
        (6, header(1, 1, 1000, 34, 16), partial(16), None),
    ] {
        let mut packet = packet(&pool, protocol, 1000);
        note(&mut packet, said, 0).unwrap();
        assert_eq!((packet.checksum(), packet.segmentation()), (checksum, segmentation), "{said:?}");
        let told = header_of(&packet);
        let mut again = self::packet(&pool, protocol, 1000);
        note(&mut again, told, 0).unwrap();
        let is_partial = matches!(checksum, Checksum::Partial { .. });
        assert_eq!(again.checksum(), if is_partial { checksum } else { Checksum::Unknown });
        assert_eq!(again.segmentation(), segmentation);
        if segmentation.is_some() {
            let payload = if protocol == 6 { 54 } else { 42 };
            assert_eq!(
                packet.layer_offsets(),
                LayerOffsets { l3: 14, l4: 34, payload, ..LayerOffsets::default() }
            );
            assert_eq!(told[2..4], payload.to_ne_bytes());
        }
    }
}

/// The kernel says of its own tunnels no more than where the checksum inside starts, and leaves the one around, too.
#[test]
fn what_is_to_be_cut_in_a_tunnel_is_known_by_its_port() {
    let pool = pool();
    let inside = packet(&pool, 6, 1000);
    let link = Frame::new().ethernet(MacAddress([2; 6]), MacAddress([4; 6]));
    let ends = [[192, 0, 2, 1], [192, 0, 2, 2]].map(std::net::Ipv4Addr::from);
    let data = [&vxlan::header(7)[..], inside.data()].concat();
    for (port, result) in [(vxlan::PORT, Ok(())), (4788, Err(Unusable::Segmentation))] {
        let datagram = link.ipv4(Ipv4Fields::new(ends[0], ends[1])).udp(50_000, port).payload(&data);
        let mut around = datagram.to_vec().unwrap();
        let right = around[40..42].to_vec();
        around[40..42].copy_from_slice(&[1, 2]);
        let mut packet = pool.take().unwrap();
        packet.fill(&around).unwrap();
        // Who may have no tunnels may leave nothing inside one.
        assert_eq!(note(&mut packet, header(1, 1, 500, 84, 16), 0), Err(Unusable::Segmentation));
        assert_eq!(note_with_tunnels(&mut packet, header(1, 1, 500, 84, 16), 0), result);
        if result.is_ok() {
            let layers = LayerOffsets { l3: 14, l4: 34, inner_l3: 64, inner_l4: 84, payload: 104 };
            assert_eq!(packet.layer_offsets(), layers);
            assert_eq!(packet.checksum(), Checksum::Partial { start: 84, offset: 16 });
            // Once the one inside is there, the one around is right.
            complete_checksum(&mut packet).unwrap();
            let mut whole = packet.data().to_vec();
            assert_ne!(whole[40..42], right, "the frame inside had another checksum");
            assert!(
                udp::check(Addresses::V4 { source: ends[0], destination: ends[1] }, &whole.split_off(34))
                    .is_ok()
            );
        }
    }
}

/// The kernel leaves SCTP's as it does the others, though it is no Internet checksum.
#[test]
fn what_is_left_of_sctp_is_done_at_once() {
    let pool = pool();
    let mut packet = packet(&pool, 132, 100);
    note(&mut packet, header(1, 0, 0, 34, 8), 0).unwrap();
    let mut whole = packet.data()[34..].to_vec();
    let field: Vec<u8> = whole.splice(8..12, [0; 4]).collect();
    assert_eq!((field, packet.checksum()), (sctp::Crc::new().bytes(&whole).field().to_vec(), Checksum::Good));
    let said = header(1, 0, 0, 140, 8);
    assert_eq!(note(&mut packet, said, 0), Err(Unusable::Checksum), "its header is cut off");
}

#[test]
fn a_shift_moves_the_checksum() {
    let pool = pool();
    let mut packet = packet(&pool, 6, 100);
    note(&mut packet, header(1, 0, 0, 34, 16), 4).unwrap();
    assert_eq!(packet.checksum(), Checksum::Partial { start: 38, offset: 16 });
}

#[test]
fn lies_are_refused() {
    let pool = pool();
    for (said, refusal) in [
        (header(1, 0, 0, 1053, 0), Unusable::Checksum),
        (header(1, 0, 0, 34, 300), Unusable::Checksum),
        (header(1, 0, 0, u16::MAX, u16::MAX), Unusable::Checksum),
        (header(1, 1, 1, 34, 16), Unusable::Segmentation),
        (header(1, 1, 0, 34, 16), Unusable::Segmentation),
        (header(1, 1, 500, 35, 16), Unusable::Segmentation),
        (header(1, 5, 500, 34, 6), Unusable::Segmentation),
        (header(1, 3, 500, 34, 16), Unusable::Segmentation),
        (header(1, 0x7f, 500, 34, 16), Unusable::Segmentation),
    ] {
        let mut packet = packet(&pool, 6, 1000);
        assert_eq!(note(&mut packet, said, 0), Err(refusal), "{said:?}");
    }
    // Headers that go on in the next buffer.
    let mut whole = packet(&pool, 6, 1000);
    let frame = whole.data().to_vec();
    whole.fill(&frame[..40]).unwrap();
    let mut rest = pool.take().unwrap();
    rest.fill(&frame[40..]).unwrap();
    whole.chain(rest).unwrap();
    assert_eq!(note(&mut whole, header(1, 1, 500, 34, 16), 0), Err(Unusable::Segmentation));
}
