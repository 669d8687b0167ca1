//! What lanes ask of the machine besides CPUs: flags, and a table of a file.

use anyhow::{Context as _, bail};
use serde::Deserialize;
use warmlane::assembly::{CacheShare, MachineSettings};
use warmlane::sys::frequency::Clamp;
use warmlane::sys::resctrl::Mask;

/// What lanes ask of the machine. What is changed is put back at the end.
#[derive(clap::Args, Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct MachineFlags {
    /// Each lane's share of the last-level cache: count it (watch), or let lanes fill only some of its ways, too, by a mask as in 0xf.
    /// Needs resctrl.
    #[arg(long, value_name = "watch|MASK")]
    pub(crate) cache_share: Option<String>,
    /// The frequency governor of the lanes' CPUs while they run, as in performance.
    #[arg(long, value_name = "GOVERNOR")]
    pub(crate) governor: Option<String>,
    /// The energy preference of the lanes' CPUs while they run, as in balance_power.
    #[arg(long, value_name = "PREFERENCE")]
    pub(crate) energy_preference: Option<String>,
    /// How much of a CPU's speed the scheduler should take lanes to need, at least and at most, in percent, as in 20..80 (uclamp).
    #[arg(long, value_name = "LEAST..MOST")]
    pub(crate) speed: Option<String>,
}

impl MachineFlags {
    /// These, and what others say where they say nothing.
    pub(crate) fn or(self, others: Self) -> Self {
        Self {
            cache_share: self.cache_share.or(others.cache_share),
            governor: self.governor.or(others.governor),
            energy_preference: self.energy_preference.or(others.energy_preference),
            speed: self.speed.or(others.speed),
        }
    }

    /// What they come to.
    ///
    /// # Errors
    /// A mask or a range that is none.
    pub(crate) fn settings(&self) -> anyhow::Result<MachineSettings> {
        let cache = match self.cache_share.as_deref() {
            None => CacheShare::Unwatched,
            Some("watch") => CacheShare::Watched,
            Some(mask) => CacheShare::Masked(Mask::parse(mask).map_err(anyhow::Error::msg)?),
        };
        Ok(MachineSettings {
            cache,
            governor: self.governor.clone(),
            energy_preference: self.energy_preference.clone(),
            clamp: self.speed.as_deref().map(clamp).transpose()?,
        })
    }
}

/// A range of percents.
fn clamp(text: &str) -> anyhow::Result<Clamp> {
    let percents =
        text.split_once("..").and_then(|(least, most)| Some((least.parse().ok()?, most.parse().ok()?)));
    let (least, most): (u32, u32) =
        percents.with_context(|| format!("`{text}` is no range of percents: say 20..80"))?;
    if least > most || most > 100 {
        bail!(
            "a lane needs {least} to {most} % of a CPU's speed? Say two numbers up to 100, the smaller one first"
        );
    }
    Ok(Clamp { least: least * Clamp::FULL / 100, most: most * Clamp::FULL / 100 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_not_be_is_refused_with_the_remedy() {
        let speed =
            |text: &str| MachineFlags { speed: Some(text.into()), ..MachineFlags::default() }.settings();
        assert_eq!(speed("25..100").unwrap().clamp, Some(Clamp { least: 256, most: 1_024 }));
        for text in ["80..20", "20..120"] {
            assert!(speed(text).unwrap_err().to_string().contains("the smaller one first"), "{text}");
        }
        assert!(speed("half").unwrap_err().to_string().contains("say 20..80"));
        let share = |text: &str| {
            MachineFlags { cache_share: Some(text.into()), ..MachineFlags::default() }.settings()
        };
        assert_eq!(share("watch").unwrap().cache, CacheShare::Watched);
        assert_eq!(share("0xf").unwrap().cache, CacheShare::Masked(Mask::parse("f").unwrap()));
        assert!(share("some").unwrap_err().to_string().contains("as in 0xf"));
    }

    #[test]
    fn flags_count_more_than_the_file() {
        let file: MachineFlags = toml::from_str("governor = \"powersave\"\nspeed = \"0..50\"").unwrap();
        let flags = MachineFlags { governor: Some("performance".into()), ..MachineFlags::default() };
        let both = flags.or(file);
        assert_eq!((both.governor.as_deref(), both.speed.as_deref()), (Some("performance"), Some("0..50")));
        assert!(toml::from_str::<MachineFlags>("governer = \"x\"").is_err());
    }
}
