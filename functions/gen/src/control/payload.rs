//! What is behind the headers.

use std::str::FromStr;

use crate::datapath::random::WyRand;

/// A pattern that fills payloads of any length.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Payload {
    /// Bytes of zero.
    #[default]
    Zeros,
    /// Bytes of 0xff.
    Ones,
    /// Bytes 0, 1, 2, ... 255, 0, ...
    Counting,
    /// Bytes that look random, the same ones for the same seed.
    Random(u64),
    /// These bytes over and over. None give zeros.
    Repeated(Vec<u8>),
}

impl FromStr for Payload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let hex = |digits: &str| -> Option<Vec<u8>> {
            let nibbles: Option<Vec<u8>> =
                digits.chars().map(|digit| digit.to_digit(16).map(|digit| digit as u8)).collect();
            let (pairs, odd) = nibbles.as_ref()?.as_chunks::<2>();
            (odd.is_empty() && !pairs.is_empty())
                .then(|| pairs.iter().map(|[high, low]| high << 4 | low).collect())
        };
        match text {
            "zeros" => return Ok(Self::Zeros),
            "ones" => return Ok(Self::Ones),
            "counting" => return Ok(Self::Counting),
            "random" => return Ok(Self::Random(1)),
            _ => {}
        }
        let repeated =
            text.strip_prefix("text:").filter(|text| !text.is_empty()).map(|text| text.as_bytes().to_vec());
        let repeated = repeated.or_else(|| text.strip_prefix("hex:").and_then(hex));
        repeated.map(Self::Repeated).ok_or_else(|| {
            format!(
                "\"{text}\" is no payload: expected zeros, ones, counting, random, \"text:...\" or \"hex:...\" with pairs of digits"
            )
        })
    }
}

impl Payload {
    /// `length` bytes of it.
    pub fn bytes(&self, length: usize) -> Vec<u8> {
        match self {
            Self::Zeros => vec![0; length],
            Self::Ones => vec![0xff; length],
            Self::Counting => (0..=255).cycle().take(length).collect(),
            Self::Random(seed) => {
                let mut random = WyRand::new(*seed);
                (0..length).map(|_| random.next() as u8).collect()
            }
            Self::Repeated(bytes) if bytes.is_empty() => vec![0; length],
            Self::Repeated(bytes) => bytes.iter().copied().cycle().take(length).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_what_the_name_says() {
        assert_eq!(Payload::Zeros.bytes(3), [0; 3]);
        assert_eq!(Payload::Ones.bytes(3), [0xff; 3]);
        let counting = Payload::Counting.bytes(258);
        assert_eq!((counting[0], counting[255], counting[256], counting[257]), (0, 255, 0, 1));
        assert_eq!(Payload::Repeated(b"ab".to_vec()).bytes(5), b"ababa");
        assert_eq!(Payload::Repeated(Vec::new()).bytes(2), [0; 2]);
        let random = Payload::Random(7).bytes(1_000);
        assert_eq!(random, Payload::Random(7).bytes(1_000));
        assert_ne!(random, Payload::Random(8).bytes(1_000));
        assert!((0..=u8::MAX).filter(|byte| random.contains(byte)).count() > 200);
    }
}
