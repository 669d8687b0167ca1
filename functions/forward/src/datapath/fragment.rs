//! IPv4 fragmentation (RFC 791 section 3.2, RFC 1812 section 4.2.2.7), of packets that are fragments already as well.

use warmlane_mem::{Packet, Pool};
use warmlane_port::software_offload::complete_checksum;
use warmlane_wire::checksum;
use warmlane_wire::{Ipv4Header, ethernet, ipv4};

use super::reason::Reason;

/// Most pieces of one packet. The most there can be: 65,515 bytes of data in pieces of 8 would be 8,190, but with the
/// least MTU of 68 it is 65,515 / 48 = 1,365, and with the least that anyone uses, 552, it is 124.
pub(super) const MAXIMUM_FRAGMENTS: usize = 256;

/// Most options.
const MAXIMUM_OPTIONS: usize = ipv4::MAXIMUM_HEADER_LENGTH - ipv4::HEADER_LENGTH;

/// A packet about to be cut.
pub(super) struct Cut {
    packet: Packet,
    /// The fixed part of the packet's header.
    header: [u8; ipv4::HEADER_LENGTH],
    /// The options that stand in all fragments but the first, padded, and how many bytes they are.
    copied: ([u8; MAXIMUM_OPTIONS], usize),
    /// Where in the frame the data starts.
    start: usize,
    /// Bytes of data.
    length: usize,
    /// Bytes of data in the first piece.
    first: usize,
    /// Bytes of data in the others, but for the last.
    others: usize,
}

impl Cut {
    /// Plans the pieces of a packet whose header is right, for a link of this MTU.
    pub(super) fn new(mut packet: Packet, mtu: u16) -> Result<Self, Reason> {
        // No port could do so for a part of the packet.
        complete_checksum(&mut packet).map_err(|_| Reason::CannotFragment)?;
        let offset = usize::from(packet.l3_offset());
        let ip = packet.data().get(offset..).unwrap_or_default();
        let Some((&header, rest)) = ip.split_first_chunk() else { return Err(Reason::Ipv4Truncated) };
        let fields = Ipv4Header(&header);
        let (header_length, total) = (fields.header_length(), usize::from(fields.total_length()));
        let options = rest.get(..header_length.saturating_sub(ipv4::HEADER_LENGTH)).unwrap_or_default();
        let copied = copied_options(options);
        let space = |header: usize| (usize::from(mtu).saturating_sub(header) / 8) * 8;
        let (first, others) = (space(header_length), space(ipv4::HEADER_LENGTH + copied.1));
        if first == 0 || others == 0 {
            return Err(Reason::CannotFragment);
        }
        let length = total.saturating_sub(header_length);
        let cut = Self { packet, header, copied, start: offset + header_length, length, first, others };
        if cut.count() > MAXIMUM_FRAGMENTS { Err(Reason::CannotFragment) } else { Ok(cut) }
    }

    /// How many pieces.
    pub(super) fn count(&self) -> usize {
        1 + self.length.saturating_sub(self.first).div_ceil(self.others)
    }

    /// Where a piece's data is in the packet's, from and to.
    fn range(&self, number: usize) -> (usize, usize) {
        let from = if number == 0 { 0 } else { self.first + (number - 1) * self.others };
        let size = if number == 0 { self.first } else { self.others };
        (from.min(self.length), (from + size).min(self.length))
    }

    /// Makes a piece, with 14 bytes for a link-layer header in front, in as many buffers as it takes. `None` if there are not enough.
    pub(super) fn make(&self, number: usize, pool: &Pool) -> Option<Packet> {
        let (from, to) = self.range(number);
        let header_length = if number == 0 {
            self.start - usize::from(self.packet.l3_offset())
        } else {
            ipv4::HEADER_LENGTH + self.copied.1
        };
        let mut piece = pool.take()?;
        let before = ethernet::HEADER_LENGTH + header_length;
        let mut done = from + piece.tailroom().saturating_sub(before).min(to - from);
        let frame = piece.append(before + (done - from)).ok()?;
        let (header, rest) = frame.get_mut(ethernet::HEADER_LENGTH..)?.split_at_mut_checked(header_length)?;
        if number == 0 {
            self.copy(self.start - header_length, header);
        } else {
            let copied = self.copied.0.get(..self.copied.1).unwrap_or_default();
            for (byte, value) in header.iter_mut().zip(self.header.iter().chain(copied)) {
                *byte = *value;
            }
        }
        self.copy(self.start + from, rest);
        self.finish_header(header, header_length + (to - from), from, to == self.length);
        while done < to {
            let mut more = pool.take()?;
            let count = more.tailroom().min(to - done);
            self.copy(self.start + done, more.append(count).ok()?);
            piece.chain(more).ok()?;
            done += count;
        }
        piece.set_port(self.packet.port());
        piece.set_timestamp(self.packet.timestamp());
        piece.set_l3_offset(ethernet::HEADER_LENGTH as u8);
        Some(piece)
    }

    /// Sets the fields in which fragments differ, and the checksum.
    fn finish_header(&self, header: &mut [u8], total: usize, from: usize, is_last: bool) {
        let original = Ipv4Header(&self.header);
        let words = (header.len() / 4) as u8;
        // What was in the middle before stays there: offsets add up, and the last piece of a fragment that had others
        // behind it has so still.
        let more = !is_last || original.more_fragments();
        let offset = (usize::from(original.fragment_offset()) + from) / 8;
        let [o0, o1] = (offset as u16 & 0x1fff | u16::from(more) << 13).to_be_bytes();
        let [t0, t1] = (total as u16).to_be_bytes();
        if let Some(fixed) = header.first_chunk_mut::<{ ipv4::HEADER_LENGTH }>() {
            fixed[0] = 0x40 | words;
            [fixed[2], fixed[3]] = [t0, t1];
            [fixed[6], fixed[7]] = [o0, o1];
            [fixed[10], fixed[11]] = [0, 0];
        }
        let [c0, c1] = checksum::checksum(header).to_be_bytes();
        if let Some(fixed) = header.first_chunk_mut::<{ ipv4::HEADER_LENGTH }>() {
            [fixed[10], fixed[11]] = [c0, c1];
        }
    }

    /// Copies bytes of the frame, over all its buffers.
    fn copy(&self, mut from: usize, mut target: &mut [u8]) {
        for segment in self.packet.segment_data() {
            let Some(available) = segment.get(from..) else {
                from -= segment.len();
                continue;
            };
            from = 0;
            let count = available.len().min(target.len());
            let (now, later) = target.split_at_mut(count);
            now.copy_from_slice(&available[..count]);
            target = later;
        }
    }
}

/// The options with the copied flag, which stand in every fragment (RFC 791 section 3.1), padded to whole words.
fn copied_options(mut options: &[u8]) -> ([u8; MAXIMUM_OPTIONS], usize) {
    const COPIED: u8 = 0x80;
    let (mut copied, mut length) = ([0; MAXIMUM_OPTIONS], 0_usize);
    while let [kind, rest @ ..] = options {
        let size = match (kind, rest) {
            (0, _) => break,
            (1, _) => 1,
            (_, [size, ..]) if *size >= 2 => usize::from(*size),
            // Validation has let no such thing through.
            _ => break,
        };
        let Some((option, others)) = options.split_at_checked(size) else { break };
        if kind & COPIED != 0
            && let Some(space) = copied.get_mut(length..length + size)
        {
            space.copy_from_slice(option);
            length += size;
        }
        options = others;
    }
    // The rest is zero, which is "end of options".
    (copied, length.next_multiple_of(4).min(MAXIMUM_OPTIONS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_options_with_the_flag_are_copied() {
        let copied = |options: &[u8]| {
            let (bytes, length) = copied_options(options);
            bytes[..length].to_vec()
        };
        assert!(copied(&[]).is_empty());
        // Record route (7) is not copied, router alert (148) is, stream id (136) is.
        assert!(copied(&[7, 7, 4, 0, 0, 0, 0, 1]).is_empty());
        assert_eq!(copied(&[7, 3, 4, 1, 148, 4, 0, 0]), [148, 4, 0, 0]);
        assert_eq!(copied(&[148, 4, 0, 0, 136, 3, 9, 0]), [148, 4, 0, 0, 136, 3, 9, 0]);
        let full = [
            200, 40, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24,
            25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38,
        ];
        assert_eq!(copied(&full), full);
    }
}
