//! Blocks of pcapng with options, as our own reader sees them.

use warmlane_pcap::{BlockInterface, BlockPacket, Blocks, PacketDirection, Reader};

#[test]
fn what_is_written_is_read_again() {
    let mut bytes = Vec::new();
    let mut blocks = Blocks(&mut bytes);
    blocks.section("a test");
    blocks.interface(&BlockInterface { name: "eth0", description: "the first", snap_length: 64 });
    blocks.interface(&BlockInterface { name: "e", ..BlockInterface::default() });
    for (interface, direction, comment) in
        [(0, PacketDirection::Inbound, ""), (1, PacketDirection::Outbound, "dropped: é")]
    {
        let data = &[7; 61][..58 + interface as usize];
        let timestamp_nanoseconds = 1_700_000_000_123_456_789;
        let length = 1_500;
        blocks.packet(&BlockPacket { interface, timestamp_nanoseconds, length, data, direction, comment });
    }
    blocks.statistics(1, 5, 7, 6);
    assert_eq!(bytes.len() % 4, 0);
    let mut reader = Reader::new(&bytes[..]).unwrap();
    for (interface, length) in [(0, 58), (1, 59)] {
        let frame = reader.next_frame().unwrap().unwrap();
        assert_eq!(
            (frame.interface, frame.data, frame.original_length),
            (interface, &[7; 59][..length], 1_500)
        );
        assert_eq!(frame.timestamp_nanoseconds, 1_700_000_000_123_456_789);
    }
    assert!(reader.next_frame().unwrap().is_none());
}
