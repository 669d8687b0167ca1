//! A cache described on the command line.

use std::fmt;
use std::str::FromStr;
use warmlane::mem::plan::CacheShape;

/// Larger than any, and small enough that planning for it takes no time to speak of.
const LARGEST_BYTES: usize = 1 << 30;
const FORM: &str = "LEVEL:SIZE:WAYS:LINE, such as L1:32K:8:64";

/// A cache by level, size, ways and line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cache(pub(crate) CacheShape);

/// Why a description is no cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CacheError {
    /// Not four fields.
    Fields { text: String },
    /// Not a level of 1 to 4.
    Level { text: String },
    /// Not a size, or one beyond all caches.
    Size { text: String },
    /// No number of ways.
    Ways { text: String },
    /// A line is a power of two of 16 to 1,024 bytes.
    Line { text: String },
    /// The size is not sets × ways × line for any number of sets.
    Uneven { size: usize, ways: usize, line: usize },
}

impl fmt::Display for CacheError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fields { text } => write!(f, "'{text}' does not describe a cache; write {FORM}"),
            Self::Level { text } => write!(f, "'{text}' is no cache level; write L1, L2, L3 or L4"),
            Self::Size { text } => {
                write!(f, "'{text}' is no size of a cache; write up to 1G, such as 32K or 1M")
            }
            Self::Ways { text } => write!(f, "'{text}' is no number of ways; write 1 to 1024"),
            Self::Line { text } => {
                write!(
                    f,
                    "'{text}' is no length of a line; write a power of two of 16 to 1024 bytes, mostly 64"
                )
            }
            Self::Uneven { size, ways, line } => write!(
                f,
                "{size} bytes can't be divided into sets of {ways} lines of {line} bytes; \
                 `lscpu -C` shows what belongs together"
            ),
        }
    }
}

impl std::error::Error for CacheError {}

impl FromStr for Cache {
    type Err = CacheError;

    fn from_str(text: &str) -> Result<Self, CacheError> {
        let fields: Vec<&str> = text.split(':').map(str::trim).collect();
        let [level, size, ways, line] = fields[..] else {
            return Err(CacheError::Fields { text: text.to_owned() });
        };
        let level = level
            .strip_prefix(['L', 'l'])
            .and_then(|number| number.parse().ok())
            .filter(|level| (1..=4).contains(level))
            .ok_or_else(|| CacheError::Level { text: level.to_owned() })?;
        let size = bytes(size)
            .filter(|size| (1..=LARGEST_BYTES).contains(size))
            .ok_or_else(|| CacheError::Size { text: size.to_owned() })?;
        let ways = ways
            .parse()
            .ok()
            .filter(|ways| (1..=1_024).contains(ways))
            .ok_or_else(|| CacheError::Ways { text: ways.to_owned() })?;
        let line = line
            .parse::<usize>()
            .ok()
            .filter(|line| (16..=1_024).contains(line) && line.is_power_of_two())
            .ok_or_else(|| CacheError::Line { text: line.to_owned() })?;
        if !size.is_multiple_of(ways * line) {
            return Err(CacheError::Uneven { size, ways, line });
        }
        Ok(Self(CacheShape { level, sets: size / (ways * line), ways, line }))
    }
}

/// `32K`, `1M`, `1G` or plain bytes.
fn bytes(text: &str) -> Option<usize> {
    let (digits, unit) = match text.char_indices().next_back()? {
        (at, 'K' | 'k') => (&text[..at], 1 << 10),
        (at, 'M' | 'm') => (&text[..at], 1 << 20),
        (at, 'G' | 'g') => (&text[..at], 1 << 30),
        _ => (text, 1),
    };
    digits.parse::<usize>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_are_described_in_four_fields() {
        let shape = |level, sets, ways, line| Ok(Cache(CacheShape { level, sets, ways, line }));
        assert_eq!("L1:32K:8:64".parse(), shape(1, 64, 8, 64));
        assert_eq!("l2:1M:16:64".parse(), shape(2, 1_024, 16, 64));
        assert_eq!("L2:1310720:20:64".parse(), shape(2, 1_024, 20, 64));
        assert_eq!("L3:1536K:12:128".parse(), shape(3, 1_024, 12, 128));
    }

    #[test]
    fn nonsense_is_told_apart() {
        let error = |text: &str| text.parse::<Cache>().unwrap_err();
        for text in ["", "L1", "L1:32K:8", "L1:32K:8:64:1"] {
            assert_eq!(error(text), CacheError::Fields { text: text.to_owned() });
        }
        assert!(matches!(error("1:32K:8:64"), CacheError::Level { .. }));
        assert!(matches!(error("L9:32K:8:64"), CacheError::Level { .. }));
        for size in ["0", "2G", "K", "-1K", "99999999999999999999K", "32KB", "32µ"] {
            assert_eq!(error(&format!("L1:{size}:8:64")), CacheError::Size { text: size.to_owned() });
        }
        assert!(matches!(error("L1:32K:0:64"), CacheError::Ways { .. }));
        assert!(matches!(error("L1:32K:8:48"), CacheError::Line { .. }));
        assert!(matches!(error("L1:32K:8:0"), CacheError::Line { .. }));
        let uneven = error("L1:32K:12:64");
        assert_eq!(uneven, CacheError::Uneven { size: 32_768, ways: 12, line: 64 });
        assert!(uneven.to_string().contains("32768 bytes can't be divided into sets of 12 lines"));
    }
}
