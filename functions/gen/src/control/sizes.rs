//! How long frames are: one size, or a mix.

use std::str::FromStr;

use thiserror::Error;

/// Sizes of Ethernet frames in bytes, the frame check sequence counted, as RFC 2544 section 9 does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sizes {
    /// One round of frames, in the order in which they are sent; never empty.
    round: Vec<u16>,
}

/// Mixes of sizes that have a name: sizes and how many of each there are in a round.
pub const MIXES: &[(&str, &[(u16, u16)])] = &[
    // The "simple IMIX": 7 : 4 : 1.
    ("imix", &[(64, 7), (594, 4), (1518, 1)]),
    // FD.io CSIT's mix for IPv4.
    ("imix-v4", &[(64, 28), (570, 16), (1518, 4)]),
    // What a cable operator's downstream carries: 3 % of 68, 1 % of 932 and 96 % of 1,520 bytes.
    ("cable", &[(68, 3), (932, 1), (1520, 96)]),
];

/// RFC 6985 section 4: a letter for each size.
const GENOME: &[(char, u16)] = &[
    ('a', 64),
    ('b', 128),
    ('c', 256),
    ('d', 512),
    ('e', 1024),
    ('f', 1280),
    ('g', 1518),
    ('h', 2112),
    ('i', 9000),
    ('j', 16000),
    ('z', 1518),
];

/// Frames that a round has at most.
pub const MAXIMUM_ROUND: usize = 4096;

/// A text or a list that says no sizes.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{what} gives no frame sizes: expected a size from 18 to 65535, one of imix, imix-v4, cable, an RFC 6985 genome as in \"genome:aaafg\", or sizes with weights as in \"64:7,594:4,1518:1\""
)]
pub struct SizesError {
    /// What was given.
    pub what: String,
}

impl Sizes {
    /// All frames of one size.
    pub fn fixed(size: u16) -> Self {
        Self { round: vec![size] }
    }

    /// Sizes with weights, spread evenly over a round.
    ///
    /// # Errors
    /// [`SizesError`], if all weights are zero, or sum up to more than [`MAXIMUM_ROUND`].
    pub fn mix(weights: &[(u16, u16)]) -> Result<Self, SizesError> {
        let total: usize = weights.iter().map(|&(_, weight)| usize::from(weight)).sum();
        if !(1..=MAXIMUM_ROUND).contains(&total) {
            return Err(SizesError { what: format!("a mix of {total} frames") });
        }
        let order = spread(&weights.iter().map(|&(_, weight)| u32::from(weight)).collect::<Vec<_>>());
        Ok(Self { round: order.into_iter().map(|number| weights[number].0).collect() })
    }

    /// One round, in order.
    pub fn round(&self) -> &[u16] {
        &self.round
    }

    /// Mean bytes of a frame, frame check sequence counted.
    pub fn mean(&self) -> f64 {
        self.round.iter().map(|&size| f64::from(size)).sum::<f64>() / self.round.len() as f64
    }
}

/// Numbers 0.. in which each comes as often as its weight says, as evenly as can be: the k-th of w is due at the middle
/// of the k-th of w equal parts of the round.
pub(crate) fn spread(weights: &[u32]) -> Vec<usize> {
    let mut due: Vec<(f64, usize)> = Vec::new();
    for (number, &weight) in weights.iter().enumerate() {
        due.extend((0..weight).map(|turn| ((f64::from(turn) + 0.5) / f64::from(weight), number)));
    }
    due.sort_by(|a, b| a.0.total_cmp(&b.0));
    due.into_iter().map(|(_, number)| number).collect()
}

impl FromStr for Sizes {
    type Err = SizesError;

    fn from_str(text: &str) -> Result<Self, SizesError> {
        let error = || SizesError { what: format!("\"{text}\"") };
        if let Some((_, weights)) = MIXES.iter().find(|(name, _)| *name == text) {
            return Self::mix(weights);
        }
        if let Some(genome) = text.strip_prefix("genome:") {
            let size = |letter| GENOME.iter().find(|(known, _)| *known == letter).map(|&(_, size)| size);
            let round: Option<Vec<u16>> = genome.chars().map(size).collect();
            return round
                .filter(|round| (1..=MAXIMUM_ROUND).contains(&round.len()))
                .map(|round| Self { round })
                .ok_or_else(error);
        }
        let entry = |part: &str| -> Option<(u16, u16)> {
            let (size, weight) = part.split_once(':').unwrap_or((part, "1"));
            let size: u16 = size.trim().parse().ok()?;
            Some((size, weight.trim().parse().ok()?)).filter(|_| size >= 18)
        };
        let weights: Option<Vec<(u16, u16)>> = text.split(',').map(entry).collect();
        weights.ok_or_else(error).and_then(|weights| Self::mix(&weights).map_err(|_| error()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(sizes: &Sizes, size: u16) -> f64 {
        sizes.round().iter().filter(|&&other| other == size).count() as f64 / sizes.round().len() as f64
    }

    #[test]
    fn named_mixes_have_their_shares() {
        let imix: Sizes = "imix".parse().unwrap();
        assert_eq!(imix.round().len(), 12);
        assert!((share(&imix, 64) - 7.0 / 12.0).abs() < 1e-9);
        let csit: Sizes = "imix-v4".parse().unwrap();
        assert!((csit.mean() - (28.0 * 64.0 + 16.0 * 570.0 + 4.0 * 1518.0) / 48.0).abs() < 1e-9);
        let cable: Sizes = "cable".parse().unwrap();
        assert!((share(&cable, 1520) - 0.96).abs() < 1e-9 && (share(&cable, 68) - 0.03).abs() < 1e-9);
        assert!((cable.mean() - 1470.56).abs() < 1e-9);
    }

    #[test]
    fn mixes_are_spread() {
        // Of 7 : 4 : 1 no two large frames are neighbours.
        let round = "imix".parse::<Sizes>().unwrap();
        let repeated = [round.round(), round.round()].concat();
        assert!(repeated.windows(2).all(|pair| pair != [594, 594] && pair != [1518, 1518]), "{repeated:?}");
    }

    #[test]
    fn genomes_keep_their_order() {
        assert_eq!("genome:aaafg".parse::<Sizes>().unwrap().round(), [64, 64, 64, 1280, 1518]);
        assert_eq!("64".parse::<Sizes>().unwrap(), Sizes::fixed(64));
    }

    #[test]
    fn nonsense_is_refused_with_what_was_expected() {
        for text in ["", "genome:", "genome:ax", "17", "64:0", "imix3", "64:7,", "70000", "64:5000"] {
            let error = text.parse::<Sizes>().unwrap_err().to_string();
            assert!(error.contains("expected a size") && error.contains(text), "{error}");
        }
    }
}
