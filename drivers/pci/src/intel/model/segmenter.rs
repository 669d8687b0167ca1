//! How a card cuts what is too long for a frame.

/// How a frame is to be cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segmenter {
    pub(crate) network: usize,
    pub(crate) network_field: usize,
    pub(crate) network_end: usize,
    pub(crate) transport: usize,
    pub(crate) transport_field: usize,
    pub(crate) headers: usize,
    pub(crate) size: usize,
    pub(crate) payload: usize,
}

impl Segmenter {
    /// The segments of a frame.
    pub(crate) fn cut(self, frame: &[u8]) -> Vec<Vec<u8>> {
        assert_eq!(frame.len(), self.headers + self.payload, "all that was fetched");
        assert!(self.size > 16, "segments of {}", self.size);
        let (headers, payload) = frame.split_at(self.headers);
        let count = payload.len().div_ceil(self.size);
        assert!(count > 0, "nothing to cut");
        let segments = payload.chunks(self.size).enumerate();
        segments.map(|(number, data)| self.segment(headers, number, data, number + 1 == count)).collect()
    }

    fn segment(self, headers: &[u8], number: usize, data: &[u8], is_last: bool) -> Vec<u8> {
        let Self { network, transport, .. } = self;
        let mut segment = [headers, data].concat();
        let get = |segment: &[u8], at: usize| u16::from_be_bytes([segment[at], segment[at + 1]]);
        let put = |segment: &mut [u8], at: usize, value: u16| {
            segment[at..at + 2].copy_from_slice(&value.to_be_bytes());
        };
        assert_eq!(
            (get(&segment, network + 2), get(&segment, self.network_field)),
            (0, 0),
            "it is for the card"
        );
        let length = segment.len() - network;
        put(&mut segment, network + 2, length as u16);
        let name = get(&segment, network + 4).wrapping_add(number as u16);
        put(&mut segment, network + 4, name);
        let sequence = u32::from_be_bytes(*segment[transport + 4..].first_chunk().unwrap());
        let sequence = sequence.wrapping_add((number * self.size) as u32);
        segment[transport + 4..transport + 8].copy_from_slice(&sequence.to_be_bytes());
        if !is_last {
            // FIN and PSH. Nothing is known of what it does to CWR.
            segment[transport + 13] &= !0b1001;
        }
        let sum = complement(&segment[network..=self.network_end]);
        put(&mut segment, self.network_field, sum);
        // The pseudo header's length is not in its sum yet.
        let mut summed = segment[transport..].to_vec();
        let length = summed.len() as u16;
        summed.resize(summed.len().next_multiple_of(2), 0);
        summed.extend(length.to_be_bytes());
        put(&mut segment, self.transport_field, complement(&summed));
        segment
    }
}

/// The complement of the one's complement sum (RFC 1071).
pub(super) fn complement(data: &[u8]) -> u16 {
    let pairs = data.chunks(2);
    let mut sum: u64 =
        pairs.map(|pair| u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u64::from(*low))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
