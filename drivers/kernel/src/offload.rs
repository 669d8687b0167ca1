//! The header that says what a frame's maker left to hardware: `virtio_net_hdr`, which TAP devices and packet
//! sockets put in front of a frame if asked (virtio 1.2 section 5.1.6; `include/uapi/linux/virtio_net.h`).

use crate::segment::{Cut, Transport};

/// Bytes of the header in its classic form, which is what both devices use unless told otherwise.
pub(crate) const HEADER_LENGTH: usize = 10;

/// A header that says: nothing is left to do.
pub(crate) const NOTHING_LEFT: [u8; HEADER_LENGTH] = [0; HEADER_LENGTH];

const NEEDS_CHECKSUM: u8 = 1;
const DATA_VALID: u8 = 2;

const GSO_NONE: u8 = 0;
const GSO_TCP4: u8 = 1;
const GSO_TCP6: u8 = 4;
const GSO_UDP: u8 = 5;
/// Set beside the type if CWR is set in the TCP header.
const GSO_ECN: u8 = 0x80;

/// A checksum that was left to hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Partial {
    /// Where summing starts, in bytes from the start of the frame.
    pub(crate) start: u16,
    /// Where the sum is stored, in bytes from `start`.
    pub(crate) offset: u16,
}

/// What is left to do before a frame may leave by a wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Work {
    /// Nothing, and nobody looked at the checksum.
    #[default]
    None,
    /// Nothing: the checksum was found right.
    Verified,
    /// Completing the checksum.
    Checksum(Partial),
    /// Cutting, which computes the checksums on the way.
    Cut(Cut),
    /// Cutting, in a way that we don't know.
    UnknownCut,
}

impl Work {
    /// Reads the header. Its numbers are in this machine's byte order: neither device was switched to another.
    pub(crate) fn from_header(header: [u8; HEADER_LENGTH]) -> Self {
        let [flags, gso, _, _, size_low, size_high, start_low, start_high, offset_low, offset_high] = header;
        let size = u16::from_ne_bytes([size_low, size_high]);
        let partial = (flags & NEEDS_CHECKSUM != 0).then(|| Partial {
            start: u16::from_ne_bytes([start_low, start_high]),
            offset: u16::from_ne_bytes([offset_low, offset_high]),
        });
        let transport = match gso & !GSO_ECN {
            GSO_NONE => {
                return match partial {
                    Some(partial) => Self::Checksum(partial),
                    None if flags & DATA_VALID != 0 => Self::Verified,
                    None => Self::None,
                };
            }
            GSO_TCP4 | GSO_TCP6 => Transport::Tcp,
            GSO_UDP => Transport::Udp,
            _ => return Self::UnknownCut,
        };
        Self::Cut(Cut { transport, size, checksum_start: partial.map(|partial| partial.start) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(flags: u8, gso: u8, size: u16, start: u16, offset: u16) -> [u8; HEADER_LENGTH] {
        let mut header = [flags, gso, 0, 0, 0, 0, 0, 0, 0, 0];
        for (field, value) in [size, start, offset].into_iter().enumerate() {
            header[4 + field * 2..][..2].copy_from_slice(&value.to_ne_bytes());
        }
        header
    }

    #[test]
    fn tells_what_is_left_to_do() {
        assert_eq!(Work::from_header(NOTHING_LEFT), Work::None);
        assert_eq!(Work::from_header(header(2, 0, 0, 0, 0)), Work::Verified);
        assert_eq!(
            Work::from_header(header(1, 0, 0, 34, 16)),
            Work::Checksum(Partial { start: 34, offset: 16 })
        );
        let tcp = Cut { transport: Transport::Tcp, size: 1448, checksum_start: Some(34) };
        assert_eq!(Work::from_header(header(1, 1, 1448, 34, 16)), Work::Cut(tcp));
        assert_eq!(Work::from_header(header(1, 0x84, 1448, 34, 16)), Work::Cut(tcp));
        let udp = Cut { transport: Transport::Udp, size: 1200, checksum_start: None };
        assert_eq!(Work::from_header(header(2, 5, 1200, 0, 0)), Work::Cut(udp));
        assert_eq!(Work::from_header(header(1, 3, 1480, 34, 6)), Work::UnknownCut);
    }
}
