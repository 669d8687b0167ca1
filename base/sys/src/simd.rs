//! Which vector instructions may be used.
//!
//! Kernels are chosen once per burst by [`detected`]. The environment variable `WARMLANE_SIMD` lowers the choice, for
//! tests and for finding out what a level is worth; it can't raise it above what the processor has.

use std::env;
use std::fmt;
use std::sync::OnceLock;

/// The variable that lowers the level: `portable`, `avx2`, `avx512` or `neon`.
pub const VARIABLE: &str = "WARMLANE_SIMD";

/// A set of vector instructions that kernels are written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Level {
    /// What every processor of the architecture has.
    Portable,
    /// x86_64 with AVX2, BMI1, BMI2, LZCNT and POPCNT, as x86-64-v3 has them.
    Avx2,
    /// x86_64 with AVX-512 F, BW, DQ, VL and CD, and all of [`Level::Avx2`].
    Avx512,
    /// Arm with Advanced SIMD.
    Neon,
}

impl Level {
    /// The levels that this processor has, lowest first.
    pub fn available() -> &'static [Self] {
        static AVAILABLE: OnceLock<Vec<Level>> = OnceLock::new();
        AVAILABLE.get_or_init(ask_the_processor)
    }

    /// The word for it in the environment variable and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Neon => "neon",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What is wrong with the environment variable. The value is ignored then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SimdError {
    /// It isn't the name of a level.
    #[error(
        "{VARIABLE} is {value:?}, which is no level; set it to portable, avx2, avx512 or neon, or unset it"
    )]
    Unknown {
        /// The variable's value.
        value: String,
    },
    /// The processor doesn't have it.
    #[error(
        "{VARIABLE} is {wanted}, but this processor has only {}; unset it or choose one of these",
        names(available)
    )]
    NotAvailable {
        /// The level asked for.
        wanted: Level,
        /// The levels there are.
        available: Vec<Level>,
    },
}

fn names(levels: &[Level]) -> String {
    levels.iter().map(|level| level.name()).collect::<Vec<_>>().join(", ")
}

/// The level to use. Found out once; after that it costs a few cycles, so ask once per burst.
#[inline]
pub fn detected() -> Level {
    decision().0
}

/// Says what is wrong with `WARMLANE_SIMD`, if anything is; to be called when the program starts.
///
/// # Errors
/// [`SimdError`] if the variable had to be ignored.
pub fn check_environment() -> Result<(), SimdError> {
    decision().1.clone()
}

/// Whether vector loads from many addresses (VPGATHER…) are faster here than as many plain ones: so it is on processors of Intel from
/// Golden Cove on. In a prototype of the IPv4 table they took a lookup from 7.2 to 5.1 cycles there (Granite Rapids), and a tenth
/// longer on Zen 4. Older ones of Intel have microcode that makes them slow (INTEL-SA-00828, Gather Data Sampling).
#[inline]
pub fn gathers_pay() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        static PAY: OnceLock<bool> = OnceLock::new();
        *PAY.get_or_init(|| {
            is_x86_feature_detected!("avx512fp16") && crate::cpuid::vendor() == *b"GenuineIntel"
        })
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

fn decision() -> &'static (Level, Result<(), SimdError>) {
    static DECISION: OnceLock<(Level, Result<(), SimdError>)> = OnceLock::new();
    DECISION.get_or_init(|| {
        let value = env::var_os(VARIABLE).map(|value| value.to_string_lossy().into_owned());
        decide(value.as_deref(), Level::available())
    })
}

/// Chooses among the levels `available`, of which the last is the highest.
fn decide(value: Option<&str>, available: &[Level]) -> (Level, Result<(), SimdError>) {
    let highest = available.last().copied().unwrap_or(Level::Portable);
    let Some(value) = value.filter(|value| !value.is_empty()) else { return (highest, Ok(())) };
    let levels = [Level::Portable, Level::Avx2, Level::Avx512, Level::Neon];
    match levels.into_iter().find(|level| level.name() == value) {
        None => (highest, Err(SimdError::Unknown { value: value.to_owned() })),
        Some(wanted) if available.contains(&wanted) => (wanted, Ok(())),
        Some(wanted) => (highest, Err(SimdError::NotAvailable { wanted, available: available.to_vec() })),
    }
}

#[cfg(target_arch = "x86_64")]
fn ask_the_processor() -> Vec<Level> {
    // The macro also asks whether the kernel saves the wide registers (XGETBV).
    let avx2 = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("lzcnt")
        && is_x86_feature_detected!("popcnt");
    let avx512 = avx2
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512cd");
    let mut levels = vec![Level::Portable];
    levels.extend(avx2.then_some(Level::Avx2));
    levels.extend(avx512.then_some(Level::Avx512));
    levels
}

#[cfg(target_arch = "aarch64")]
fn ask_the_processor() -> Vec<Level> {
    let neon = std::arch::is_aarch64_feature_detected!("neon");
    [Level::Portable].into_iter().chain(neon.then_some(Level::Neon)).collect()
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn ask_the_processor() -> Vec<Level> {
    vec![Level::Portable]
}

#[cfg(test)]
mod tests {
    use super::*;

    const X86: [Level; 2] = [Level::Portable, Level::Avx2];

    #[test]
    fn the_highest_unless_told_otherwise() {
        assert_eq!(decide(None, &X86), (Level::Avx2, Ok(())));
        assert_eq!(decide(Some(""), &X86), (Level::Avx2, Ok(())));
        assert_eq!(decide(Some("portable"), &X86), (Level::Portable, Ok(())));
        assert_eq!(decide(Some("avx2"), &X86), (Level::Avx2, Ok(())));
    }

    #[test]
    fn never_above_what_the_processor_has() {
        for name in ["avx512", "neon"] {
            let (level, result) = decide(Some(name), &X86);
            assert_eq!(level, Level::Avx2);
            let error = result.unwrap_err().to_string();
            assert!(
                error.contains(&format!("{name}, but this processor has only portable, avx2;")),
                "{error}"
            );
        }
    }

    #[test]
    fn an_unknown_word_is_ignored_and_told() {
        let (level, result) = decide(Some("AVX9"), &X86);
        assert_eq!(level, Level::Avx2);
        assert!(result.unwrap_err().to_string().contains("WARMLANE_SIMD is \"AVX9\", which is no level"));
    }

    #[test]
    fn the_detected_level_is_available() {
        assert!(Level::available().contains(&detected()));
        assert_eq!(Level::available()[0], Level::Portable);
    }

    #[test]
    fn the_variable_is_read() {
        // A process of its own, since the decision is taken once.
        let run = |value: &str| {
            let output = std::process::Command::new(env::current_exe().unwrap())
                .args(["--exact", "simd::tests::child", "--ignored", "--nocapture"])
                .env(VARIABLE, value)
                .output()
                .unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        assert!(run("portable").contains("level=portable Ok"));
        assert!(run("sse").contains("Unknown"));
    }

    #[test]
    #[ignore = "started by the test above"]
    fn child() {
        println!("level={} {:?}", detected(), check_environment());
    }
}
