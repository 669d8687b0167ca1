//! A host that takes what the machine sends it by TCP, and looks whether it is whole, however it was cut.

use std::collections::BTreeMap;

use super::wire::{checksum, ipv4};

/// The protocol, and flags (RFC 9293).
const TCP: u8 = 6;
const FIN: u8 = 1;
const SYN: u8 = 2;
const ACK: u8 = 16;

/// The number of the first byte that it sends, which is none.
const NUMBER: u32 = 1000;

/// Bytes of data in a segment at most.
const SEGMENT: [u8; 2] = 1460_u16.to_be_bytes();

/// What has come of a packet that was cut by IP (RFC 791).
#[derive(Default)]
struct Fragments {
    pieces: BTreeMap<usize, Vec<u8>>,
    length: Option<usize>,
}

impl Fragments {
    fn whole(&self) -> Option<Vec<u8>> {
        let mut whole = Vec::new();
        for (start, piece) in &self.pieces {
            if *start != whole.len() {
                return None;
            }
            whole.extend(piece);
        }
        (Some(whole.len()) == self.length).then_some(whole)
    }
}

/// The host.
pub(super) struct Receiver {
    address: [u8; 4],
    from: [u8; 4],
    port: u16,
    fragments: BTreeMap<[u8; 2], Fragments>,
    /// The number of the first byte of data.
    first: Option<u32>,
    pub(super) data: Vec<u8>,
    pub(super) is_over: bool,
}

impl Receiver {
    /// With this address and port; whoever sends has the other address.
    pub(super) fn new(address: [u8; 4], port: u16, from: [u8; 4]) -> Self {
        let fragments = BTreeMap::new();
        Self { address, from, port, fragments, first: None, data: Vec::new(), is_over: false }
    }

    /// Takes a frame. Returns the packet that it answers.
    pub(super) fn take(&mut self, frame: &[u8]) -> Option<Vec<u8>> {
        let packet = frame.get(14..).filter(|_| frame[12..14] == [8, 0])?;
        let header = packet.first_chunk::<20>()?;
        let is_ours = header[9] == TCP && header[12..16] == self.from && header[16..20] == self.address;
        let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
        let payload = packet.get(20..length).filter(|_| is_ours && header[0] == 0x45)?;
        let field = u16::from_be_bytes([header[6], header[7]]);
        let (start, has_more) = (usize::from(field & 0x1fff) * 8, field & 0x2000 != 0);
        let name = [header[4], header[5]];
        let fragments = self.fragments.entry(name).or_default();
        fragments.pieces.insert(start, payload.to_vec());
        if !has_more {
            fragments.length = Some(start + payload.len());
        }
        let whole = fragments.whole()?;
        self.fragments.remove(&name);
        self.take_segment(&whole)
    }

    fn take_segment(&mut self, segment: &[u8]) -> Option<Vec<u8>> {
        let header = segment.first_chunk::<20>()?;
        let [from_high, from_low, to_high, to_low, numbers @ ..] = *header;
        if u16::from_be_bytes([to_high, to_low]) != self.port {
            return None;
        }
        let [high, low] = (segment.len() as u16).to_be_bytes();
        let pseudo = [&self.from[..], &self.address, &[0, TCP, high, low], segment].concat();
        assert_eq!(checksum(&pseudo), [0, 0], "{header:x?}");
        let number = u32::from_be_bytes([numbers[0], numbers[1], numbers[2], numbers[3]]);
        let (data, flags) = (usize::from(header[12] >> 4) * 4, header[13]);
        if flags & SYN != 0 {
            self.first = Some(number.wrapping_add(1));
            let options = [2, 4, SEGMENT[0], SEGMENT[1]];
            return Some(self.answer([from_high, from_low], NUMBER, SYN | ACK, &options));
        }
        let data = segment.get(data..)?;
        // What comes too early comes again.
        if number.wrapping_sub(self.first?) as usize == self.data.len() && !self.is_over {
            self.data.extend(data);
            self.is_over = flags & FIN != 0;
        }
        Some(self.answer([from_high, from_low], NUMBER + 1, ACK, &[]))
    }

    fn answer(&self, to: [u8; 2], number: u32, flags: u8, options: &[u8]) -> Vec<u8> {
        let expected = self.first.unwrap_or_default().wrapping_add(self.data.len() as u32);
        let expected = expected.wrapping_add(self.is_over.into());
        let words = (5 + options.len() / 4) as u8;
        let mut segment = [
            &self.port.to_be_bytes()[..],
            &to,
            &number.to_be_bytes(),
            &expected.to_be_bytes(),
            &[words << 4, flags, 0xff, 0xff, 0, 0, 0, 0],
            options,
        ]
        .concat();
        let length = segment.len() as u8;
        let pseudo = [&self.address[..], &self.from, &[0, TCP, 0, length], &segment].concat();
        segment[16..18].copy_from_slice(&checksum(&pseudo));
        ipv4(64, TCP, self.address, self.from, &segment)
    }
}
