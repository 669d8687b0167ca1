//! Which instructions a burst of lookups is done with

use std::fmt::{self, Display, Formatter};

/// The code that looks up a burst; all of them give the same answers
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Kernel {
    /// Plain Rust, for any processor
    Portable,
    /// The portable code compiled for x86-64-v3: population count and bit fields in one instruction each
    X86V3,
    /// AVX-512 F, BW, DQ, VL, VBMI2 and VPOPCNTDQ (Ice Lake, Zen 4 and later): many lookups in one vector
    Avx512,
}

impl Kernel {
    const ALL: [Self; 3] = [Self::Portable, Self::X86V3, Self::Avx512];

    /// Whether this machine can run it
    #[cfg(target_arch = "x86_64")]
    pub fn is_available(self) -> bool {
        // Each question is answered from a cached word, and the tables ask when they are made, not per burst.
        match self {
            Self::Portable => true,
            Self::X86V3 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("bmi1")
                    && is_x86_feature_detected!("bmi2")
                    && is_x86_feature_detected!("lzcnt")
                    && is_x86_feature_detected!("popcnt")
            }
            Self::Avx512 => {
                Self::X86V3.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512vbmi2")
                    && is_x86_feature_detected!("avx512vpopcntdq")
            }
        }
    }

    /// Whether this machine can run it
    #[cfg(not(target_arch = "x86_64"))]
    pub fn is_available(self) -> bool {
        self == Self::Portable
    }

    /// Those that this machine can run, the fastest last
    pub fn available() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|kernel| kernel.is_available())
    }

    /// The fastest that this machine can run
    pub fn best() -> Self {
        Self::available().last().unwrap_or(Self::Portable)
    }
}

impl Display for Kernel {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Portable => "portable",
            Self::X86V3 => "x86-64-v3",
            Self::Avx512 => "avx512",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portable_always_runs_and_the_best_is_available() {
        assert!(Kernel::Portable.is_available());
        assert!(Kernel::best().is_available());
        assert_eq!(Kernel::available().next(), Some(Kernel::Portable));
    }
}
