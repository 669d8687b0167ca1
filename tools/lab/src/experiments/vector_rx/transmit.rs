//! The driver's sending part: from headers to descriptors, one by one and eight at a time.

use super::receive::{Header, address};
use super::{RING, WIDTH};

/// In a descriptor: the buffer's address, 8 bytes; length, 4; flags, 4.
type Descriptor = [u8; 16];

/// End of packet, and add a checksum to the frame.
const FLAGS: u32 = 0x0300_0000;

pub(super) struct Transmit {
    pub(super) ring: Vec<Descriptor>,
    /// The buffer behind each descriptor.
    pub(super) sent: Vec<u32>,
    next: usize,
}

impl Transmit {
    pub(super) fn new() -> Self {
        Self { ring: vec![[0; 16]; RING], sent: vec![0; RING], next: 0 }
    }

    /// Packet after packet, field after field.
    #[inline(never)]
    pub(super) fn one_by_one(&mut self, headers: &[Header], buffers: &[u32]) {
        for &buffer in buffers {
            let descriptor = &mut self.ring[self.next];
            descriptor[..8].copy_from_slice(&address(buffer as usize).to_le_bytes());
            descriptor[8..12].copy_from_slice(&length(&headers[buffer as usize]).to_le_bytes());
            descriptor[12..].copy_from_slice(&FLAGS.to_le_bytes());
            self.sent[self.next] = buffer;
            self.next = (self.next + 1) % RING;
        }
    }

    /// Eight packets at once: a store of 16 bytes for each descriptor, and one of all buffers' numbers.
    #[inline(never)]
    pub(super) fn by_vector(&mut self, headers: &[Header], buffers: &[u32]) {
        let (eights, rest) = buffers.as_chunks::<WIDTH>();
        for eight in eights {
            let end = self.next + WIDTH;
            if end > RING {
                self.one_by_one(headers, eight);
                continue;
            }
            self.sent[self.next..end].copy_from_slice(eight);
            for (descriptor, &buffer) in self.ring[self.next..end].iter_mut().zip(eight) {
                let command = u64::from(FLAGS) << 32 | u64::from(length(&headers[buffer as usize]));
                let both = u128::from(command) << 64 | u128::from(address(buffer as usize));
                *descriptor = both.to_le_bytes();
            }
            self.next = end % RING;
        }
        self.one_by_one(headers, rest);
    }
}

/// As receiving wrote it.
#[inline(always)]
fn length(header: &Header) -> u32 {
    let [_, received, ..] = header;
    u32::from_le_bytes([received[4], received[5], received[6], received[7]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_send_the_same() {
        let mut headers = vec![[[0; 16]; 4]; 1_000];
        for (number, header) in headers.iter_mut().enumerate() {
            header[1][4..6].copy_from_slice(&(60 + number as u16).to_le_bytes());
        }
        let (mut scalar, mut vector) = (Transmit::new(), Transmit::new());
        for count in [32, 5, 27, 0, 31, 256, 8].repeat(5) {
            let buffers: Vec<u32> = (0..count).map(|number| number * 7 % 1_000).collect();
            scalar.one_by_one(&headers, &buffers);
            vector.by_vector(&headers, &buffers);
            assert!(scalar.ring == vector.ring && scalar.sent == vector.sent && scalar.next == vector.next);
        }
        let last = (scalar.next + RING - 1) % RING;
        let descriptor = u128::from(FLAGS) << 96 | (60 + 49) << 64 | u128::from(address(49));
        assert_eq!((scalar.sent[last], u128::from_le_bytes(scalar.ring[last])), (49, descriptor));
    }
}
