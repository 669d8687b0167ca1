//! The packets and routes that both sides are given.

use std::fmt::Write as _;
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::Context;
use warmlane_forward::control::config::FullTableConfig;
use warmlane_forward::control::full_table;
use warmlane_sys::random::Random;
use warmlane_table::Ipv4Prefix;
use warmlane_wire::builder::Frame;
use warmlane_wire::ethernet::MacAddress;
use warmlane_wire::ipv4::Ipv4Fields;

/// Next hops that the full table is spread over, as many as `warmlane bench l3-forward` has.
pub(crate) const HOPS: usize = 32;
/// Frames in the capture.
pub(crate) const FRAMES: usize = 65_536;
/// The shortest Ethernet frame is 64 bytes with its check sequence (IEEE 802.3), which captures don't hold.
const LENGTH: usize = 60;
const SEED: u64 = 1;

const ROUTER: MacAddress = MacAddress([0x02, 0, 0, 0, 0, 0x01]);
const HOST: MacAddress = MacAddress([0x02, 0, 0, 0, 0, 0x02]);

/// Writes the full table as lines of "PREFIX HOP", the hops chosen as `warmlane` chooses them.
pub(crate) fn write_routes(path: &Path) -> anyhow::Result<()> {
    let mut text = String::new();
    for prefix in full_table::ipv4()? {
        let name = prefix.to_string();
        writeln!(text, "{name} {}", FullTableConfig::entry(&name, HOPS))?;
    }
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Writes UDP packets to addresses inside random prefixes of the full table, from random sources.
pub(crate) fn write_capture(path: &Path) -> anyhow::Result<()> {
    let prefixes = full_table::ipv4()?;
    let mut random = Random::new(SEED);
    let frames = (0..FRAMES).map(|_| frame(&prefixes, &mut random)).collect::<anyhow::Result<Vec<_>>>()?;
    fs::write(path, capture(&frames)).with_context(|| format!("cannot write {}", path.display()))
}

fn frame(prefixes: &[Ipv4Prefix], random: &mut Random) -> anyhow::Result<Vec<u8>> {
    let prefix = &prefixes[random.bits() as usize % prefixes.len()];
    let destination = prefix.first() | random.bits() as u32 & (prefix.last() - prefix.first());
    // 16.0.0.0/4 is all unicast: no source is a martian.
    let source = 0x1000_0000 | random.bits() as u32 & 0x0fff_ffff;
    let fields = Ipv4Fields::new(Ipv4Addr::from_bits(source), Ipv4Addr::from_bits(destination));
    let mut frame = Frame::new()
        .ethernet(ROUTER, HOST)
        .ipv4(fields)
        .udp(random.bits() as u16 | 1_024, 53)
        .payload(&[0; LENGTH - 14 - 20 - 8])
        .to_vec()?;
    frame.resize(LENGTH, 0);
    Ok(frame)
}

/// A capture file (the format of draft-ietf-opsawg-pcap): a header of 24 bytes, and one of 16 before each frame.
fn capture(frames: &[Vec<u8>]) -> Vec<u8> {
    const MAGIC_MICROSECONDS: u32 = 0xa1b2_c3d4;
    const SNAP_LENGTH: u32 = 65_535;
    const LINK_ETHERNET: u32 = 1;
    let mut bytes = Vec::new();
    let mut words = |words: &[u32], frame: &[u8]| {
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        bytes.extend_from_slice(frame);
    };
    // Version 2.4, then two reserved words.
    words(&[MAGIC_MICROSECONDS, 4 << 16 | 2, 0, 0, SNAP_LENGTH, LINK_ETHERNET], &[]);
    for frame in frames {
        let length = frame.len() as u32;
        words(&[0, 0, length, length], frame);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_what_both_sides_forward() {
        let prefixes: Vec<Ipv4Prefix> =
            vec!["203.0.113.0/24".parse().unwrap(), "198.51.100.7/32".parse().unwrap()];
        let mut random = Random::new(SEED);
        for _ in 0..1_000 {
            let frame = frame(&prefixes, &mut random).unwrap();
            assert_eq!(frame.len(), 60);
            assert_eq!(frame[12..15], [0x08, 0x00, 0x45]);
            assert!(frame[22] > 1, "lifetime");
            let sum: u32 =
                frame[14..34].chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
            assert_eq!((sum >> 16) + (sum & 0xffff), 0xffff, "header checksum (RFC 1071)");
            assert_eq!(frame[26] >> 4, 1, "source");
            assert!(frame[30..33] == [203, 0, 113] || frame[30..34] == [198, 51, 100, 7], "destination");
        }
    }

    #[test]
    fn the_capture_has_the_well_known_layout() {
        let bytes = capture(&[vec![1, 2, 3], vec![4]]);
        let header =
            [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0, 0];
        assert_eq!(bytes[..24], header);
        assert_eq!(bytes[24..43], [0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 3, 0, 0, 0, 1, 2, 3]);
        assert_eq!(bytes[43..], [0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 4]);
    }

    #[test]
    fn routes_are_lines_of_prefix_and_hop() {
        let file = tempfile::NamedTempFile::new().unwrap();
        write_routes(file.path()).unwrap();
        let text = fs::read_to_string(file.path()).unwrap();
        assert_eq!(text.lines().count(), 901_899);
        let (prefix, hop) = text.lines().next().unwrap().split_once(' ').unwrap();
        assert_eq!((prefix, hop.parse().unwrap()), ("1.0.0.0/24", FullTableConfig::entry(prefix, HOPS)));
    }
}
