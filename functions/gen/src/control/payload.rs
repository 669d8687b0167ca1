//! What is behind the headers.

use crate::datapath::random::Random;

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

impl Payload {
    /// `length` bytes of it.
    pub fn bytes(&self, length: usize) -> Vec<u8> {
        match self {
            Self::Zeros => vec![0; length],
            Self::Ones => vec![0xff; length],
            Self::Counting => (0..=255).cycle().take(length).collect(),
            Self::Random(seed) => {
                let mut random = Random::new(*seed);
                (0..length).map(|_| random.next() as u8).collect()
            }
            Self::Repeated(bytes) if bytes.is_empty() => vec![0; length],
            Self::Repeated(bytes) => bytes.iter().copied().cycle().take(length).collect(),
        }
    }
}
