//! Units of pcapng timestamps.

const NANOSECONDS: u64 = 1_000_000_000;

/// How an interface's timestamps become nanoseconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimestampUnit {
    scale: Scale,
    /// `if_tsoffset`, in nanoseconds.
    offset: i128,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    /// Coarser than or equal to a nanosecond, by a power of ten.
    Multiply(u64),
    /// Finer than a nanosecond, by a power of ten.
    Divide(u64),
    /// 2^-n seconds.
    Binary(u32),
}

impl TimestampUnit {
    /// Microseconds: what holds for an interface without `if_tsresol`.
    pub(crate) const MICROSECONDS: Self = Self { scale: Scale::Multiply(1_000), offset: 0 };

    /// From the byte of `if_tsresol` (draft-ietf-opsawg-pcapng, Interface Description Block options): the low
    /// seven bits are the negative exponent, the top bit chooses between base 10 and base 2.
    pub(crate) fn with_resolution(self, resolution: u8) -> Self {
        let exponent = u32::from(resolution & 0x7f);
        let scale = if resolution & 0x80 != 0 {
            Scale::Binary(exponent)
        } else if exponent <= 9 {
            Scale::Multiply(10_u64.pow(9 - exponent))
        } else {
            // A unit so fine that 64 bits of it are less than a nanosecond gives 0 for every timestamp.
            10_u64.checked_pow(exponent - 9).map_or(Scale::Multiply(0), Scale::Divide)
        };
        Self { scale, ..self }
    }

    /// `if_tsoffset`: whole seconds to add to each timestamp.
    pub(crate) fn with_offset_seconds(self, seconds: i64) -> Self {
        Self { offset: i128::from(seconds) * i128::from(NANOSECONDS), ..self }
    }

    /// Clamps to 0 and `u64::MAX` what lies outside of them.
    pub(crate) fn nanoseconds(self, value: u64) -> u64 {
        let nanoseconds = match self.scale {
            Scale::Multiply(factor) => value.saturating_mul(factor),
            Scale::Divide(divisor) => value / divisor,
            Scale::Binary(exponent) => {
                // 64 + 30 bits: no overflow.
                let wide = (u128::from(value) * u128::from(NANOSECONDS)) >> exponent;
                u64::try_from(wide).unwrap_or(u64::MAX)
            }
        };
        if self.offset == 0 {
            return nanoseconds;
        }
        let shifted = (i128::from(nanoseconds) + self.offset).max(0);
        u64::try_from(shifted).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_is_a_second_in_every_unit() {
        let unit = TimestampUnit::MICROSECONDS;
        assert_eq!(unit.nanoseconds(1_000_000), NANOSECONDS);
        for (resolution, value) in [(0, 1), (3, 1_000), (9, NANOSECONDS), (12, 1_000_000_000_000)] {
            assert_eq!(unit.with_resolution(resolution).nanoseconds(value), NANOSECONDS, "10^-{resolution}");
        }
        for exponent in [0_u8, 10, 32, 63] {
            assert_eq!(
                unit.with_resolution(0x80 | exponent).nanoseconds(1 << exponent),
                NANOSECONDS,
                "2^-{exponent}"
            );
        }
    }

    #[test]
    fn offsets_move_both_ways_and_extremes_clamp() {
        let unit = TimestampUnit::MICROSECONDS;
        assert_eq!(unit.with_offset_seconds(5).nanoseconds(1), 5_000_001_000);
        assert_eq!(unit.with_offset_seconds(-5).nanoseconds(6_000_000), NANOSECONDS);
        assert_eq!(unit.with_offset_seconds(-5).nanoseconds(1), 0);
        assert_eq!(unit.with_offset_seconds(i64::MAX).nanoseconds(u64::MAX), u64::MAX);
        assert_eq!(unit.with_offset_seconds(i64::MIN).nanoseconds(u64::MAX), 0);
        for resolution in 0..=u8::MAX {
            // No unit may overflow.
            unit.with_resolution(resolution).nanoseconds(u64::MAX);
        }
        assert_eq!(unit.with_resolution(127).nanoseconds(u64::MAX), 0);
        assert_eq!(unit.with_resolution(0).nanoseconds(u64::MAX), u64::MAX);
    }
}
