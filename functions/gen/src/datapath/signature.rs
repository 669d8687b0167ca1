//! What a generated packet carries to be recognised by: stream, trial, sequence number, time, check.
//!
//! It is the last 16 bytes of the frame, so that a device that puts on or takes off a tag or a tunnel leaves it in
//! its place. Its eight 16-bit words always have the same ones' complement sum. So it checks itself, and no UDP, TCP or
//! ICMP checksum over it depends on what is in it (RFC 1071 section 2 (B): not on where it starts either): the
//! generator writes sequence numbers and times without updating a checksum.

/// Bytes of a signature.
pub const LENGTH: usize = 16;

/// What the eight words sum up to. Neither of ones' complement's zeros, so it has one representation only.
const SUM: u16 = 0x574c;

/// Bits of the sequence number; it goes round after a day and more at any rate below 10^7 a second.
const SEQUENCE_BITS: u32 = 40;
const SEQUENCE_MASK: u64 = (1 << SEQUENCE_BITS) - 1;

/// Bits of the time.
const TIME_BITS: u32 = 48;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;

/// A signature's fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The stream's number.
    pub stream: u16,
    /// The trial's number, modulo 256.
    pub trial: u8,
    /// The packet's number in its stream, from 0, modulo 2^40.
    pub sequence: u64,
    /// The cycle counter as the packet was built, modulo 2^48.
    pub time: u64,
}

impl Signature {
    /// As it goes on the wire.
    #[inline(always)]
    pub fn to_bytes(self) -> [u8; LENGTH] {
        let first = First::new(self.stream, self.trial).with(self.sequence);
        let second = first.second(Time::new(self.time));
        let (first, second) = (first.0.to_be_bytes(), second.to_be_bytes());
        let mut bytes = [0; LENGTH];
        let (left, right) = bytes.split_at_mut(8);
        left.copy_from_slice(&first);
        right.copy_from_slice(&second);
        bytes
    }

    /// Reads a signature without looking at its check.
    #[inline(always)]
    pub fn read(bytes: &[u8; LENGTH]) -> Self {
        let (first, second) = words(bytes);
        Self {
            stream: (first >> 48) as u16,
            trial: (first >> SEQUENCE_BITS) as u8,
            sequence: first & SEQUENCE_MASK,
            time: second >> 16,
        }
    }

    /// Reads a signature; `None` if its check is wrong: damaged, or no signature at all.
    #[inline(always)]
    pub fn parse(bytes: &[u8; LENGTH]) -> Option<Self> {
        let (first, second) = words(bytes);
        (fold(sum_of(first) + sum_of(second)) == SUM).then(|| Self::read(bytes))
    }
}

/// Cycles from `sent` to `now`, both modulo 2^48; what seems to come from the future took no time.
#[inline(always)]
pub fn cycles_between(sent: u64, now: u64) -> u64 {
    let passed = now.wrapping_sub(sent) & TIME_MASK;
    // Counters of two CPUs may differ by a few cycles; half the range is a day.
    if passed >> (TIME_BITS - 1) == 0 { passed } else { 0 }
}

/// The difference of two sequence numbers modulo 2^40, as the nearest signed number.
#[inline(always)]
pub fn sequence_distance(from: u64, to: u64) -> i64 {
    let shift = 64 - SEQUENCE_BITS;
    (to.wrapping_sub(from) << shift).cast_signed() >> shift
}

/// The first eight bytes: stream, trial, sequence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct First(pub(crate) u64);

impl First {
    #[inline(always)]
    pub(crate) const fn new(stream: u16, trial: u8) -> Self {
        Self((stream as u64) << 48 | (trial as u64) << SEQUENCE_BITS)
    }

    #[inline(always)]
    pub(crate) const fn with(self, sequence: u64) -> Self {
        Self(self.0 | (sequence & SEQUENCE_MASK))
    }

    /// The last eight bytes that belong to these first ones.
    #[inline(always)]
    pub(crate) const fn second(self, time: Time) -> u64 {
        time.word | (!fold_twice(time.sum + sum_of(self.0) as u32)) as u64
    }
}

/// The signatures of packets that follow each other from `sequence` on, as they go on the wire.
///
/// All but 32 bits of their numbers are mostly the same: then it is computed in words of 32 bits, for twice as many at once by vectors.
#[inline(always)]
pub(crate) fn write_all(signatures: &mut [[u32; 4]], number: First, sequence: u64, time: Time) {
    let first = number.with(sequence).0;
    let (upper, lower) = ((first >> 32) as u32, first as u32);
    if lower.checked_add(signatures.len() as u32).is_none() {
        for (place, signature) in signatures.iter_mut().enumerate() {
            let first = number.with(sequence + place as u64);
            let second = first.second(time);
            let words = [first.0 >> 32, first.0, second >> 32, second];
            *signature = words.map(|word| (word as u32).to_be());
        }
        return;
    }
    let sum = time.sum + (upper >> 16) + (upper & 0xffff);
    let (third, fourth) = (((time.word >> 32) as u32).to_be(), time.word as u32);
    for (place, signature) in signatures.iter_mut().enumerate() {
        let second = lower + place as u32;
        let check = !fold_twice(sum + (second >> 16) + (second & 0xffff));
        *signature = [upper.to_be(), second.to_be(), third, (fourth | u32::from(check)).to_be()];
    }
}

/// A time, in its place in the last eight bytes, with what it and [`SUM`] contribute to the check.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Time {
    word: u64,
    sum: u32,
}

impl Time {
    #[inline(always)]
    pub(crate) const fn new(cycles: u64) -> Self {
        let word = (cycles & TIME_MASK) << 16;
        // check = SUM − the other words, which in ones' complement is ~(~SUM + the other words).
        Self { word, sum: sum_of(word) as u32 + !SUM as u32 }
    }
}

#[inline(always)]
fn words(bytes: &[u8; LENGTH]) -> (u64, u64) {
    let word = u128::from_be_bytes(*bytes);
    ((word >> 64) as u64, word as u64)
}

/// The sum of the four 16-bit words of `word`, below 2^18.
#[inline(always)]
const fn sum_of(word: u64) -> u64 {
    let halves = (word >> 16 & 0x0000_ffff_0000_ffff) + (word & 0x0000_ffff_0000_ffff);
    (halves >> 32) + (halves & 0xffff_ffff)
}

#[inline(always)]
const fn fold(sum: u64) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

/// The same for sums below 2^32: adding the halves crosswise leaves the folded sum, carry included, in the upper one.
#[inline(always)]
const fn fold_twice(sum: u32) -> u16 {
    (sum.wrapping_add(sum.rotate_left(16)) >> 16) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use warmlane_wire::checksum;

    proptest! {
        #[test]
        fn what_is_written_is_read(stream: u16, trial: u8, sequence in 0..1_u64 << 40, time in 0..1_u64 << 48) {
            let signature = Signature { stream, trial, sequence, time };
            let bytes = signature.to_bytes();
            prop_assert_eq!(Signature::parse(&bytes), Some(signature));
            prop_assert_eq!(checksum::sum(&bytes), SUM, "what makes it neutral to other checksums");
        }

        #[test]
        fn no_damage_of_one_byte_passes(sequence: u64, time: u64, place in 0..LENGTH, damage in 1..=255_u8) {
            let mut bytes = Signature { stream: 7, trial: 1, sequence, time }.to_bytes();
            bytes[place] ^= damage;
            // Ones' complement cannot tell 0x0000 from 0xffff; a change of one byte never makes one of the other.
            prop_assert_eq!(Signature::parse(&bytes), None);
        }
    }

    #[test]
    fn many_at_once_are_the_same() {
        let time = 0x1234_5678_9abc;
        for sequence in [0, 7, 0xffff, u64::from(u32::MAX) - 10, u64::from(u32::MAX), (1 << 40) - 3] {
            let mut signatures = [[0; 4]; 32];
            write_all(&mut signatures, First::new(513, 9), sequence, Time::new(time));
            for (place, words) in (0..).zip(signatures) {
                let sequence = (sequence + place) % (1 << 40);
                let expected = Signature { stream: 513, trial: 9, sequence, time }.to_bytes();
                assert_eq!(words.map(u32::to_ne_bytes).as_flattened(), expected, "{sequence}");
            }
        }
    }

    #[test]
    fn numbers_go_round() {
        assert_eq!(sequence_distance((1 << 40) - 1, 1), 2);
        assert_eq!(sequence_distance(1, (1 << 40) - 1), -2);
        assert_eq!(cycles_between((1 << 48) - 5, (1 << 48) + 5), 10);
        assert_eq!(cycles_between(10, 5), 0);
    }
}
