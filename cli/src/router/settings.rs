//! What a router is started with: from flags, from a file, or from both.

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use serde::Deserialize;
use std::fmt::Display;
use std::fs;
use std::path::Path;
use warmlane::functions::forward::control::config::IcmpLimits;
use warmlane::functions::router::control::{RouterSettings, SourceChecks};

/// How packets are exchanged with the kernel.
#[derive(Clone, Copy, Debug, Default, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Mode {
    /// Without copies if the driver can, in the driver if it can.
    #[default]
    Best,
    /// Without copies, or not at all.
    ZeroCopy,
    /// With copies, in the driver.
    Copy,
    /// With copies, in the network stack: works on any interface, and is the slowest.
    Generic,
}

/// The file's keys are the flags' names. What a flag says, counts more.
#[derive(clap::Args, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct Settings {
    /// The interfaces to forward between.
    #[arg(value_name = "INTERFACE")]
    pub(super) interfaces: Vec<String>,
    /// Lanes: threads that forward, each pinned to a CPU of its own. Interfaces need as many queues. Usually 1.
    #[arg(long, value_name = "COUNT")]
    pub(super) lanes: Option<usize>,
    /// How packets are exchanged with the kernel.
    #[arg(long, value_enum)]
    pub(super) mode: Option<Mode>,
    /// Packet buffers.
    #[arg(long, value_name = "COUNT")]
    pub(super) buffers: Option<u32>,
    /// ICMP errors that each lane may send in a second. Usually 1000.
    #[arg(long, value_name = "COUNT")]
    pub(super) icmp_rate: Option<u32>,
    /// Drop packets whose sources are not where they come from (reverse path forwarding, RFC 3704): strict if the route
    /// back leads elsewhere, loose only if there is none, off. For all interfaces, or for the one that is named; may be
    /// given several times. Usually off.
    #[arg(long, value_name = "[INTERFACE=]MODE")]
    #[serde(deserialize_with = "one_or_several")]
    pub(super) urpf: Vec<String>,
    /// Poll without rest, also when there is no traffic: the lowest latency, and a whole core for each lane.
    #[arg(long)]
    pub(super) spin: bool,
    /// Let the lanes' own system calls do the interfaces' work instead of interrupts. It only helps where these are deferred:
    /// `napi_defer_hard_irqs` and `gro_flush_timeout` in /sys/class/net/INTERFACE.
    #[arg(long)]
    pub(super) busy_poll: bool,
    /// Leave packets whose time to live ends here to the kernel, so that it is the kernel that answers traceroute.
    #[arg(long)]
    pub(super) pass_expiring: bool,
}

impl Settings {
    /// What a file of this text says.
    ///
    /// # Errors
    /// Names the place of what is wrong.
    pub(super) fn from_toml(text: &str) -> anyhow::Result<Self> {
        let settings: Self = toml::from_str(text)?;
        settings.changeable()?;
        Ok(settings)
    }

    /// What the file says, if there is one, where the flags say nothing.
    pub(super) fn with_file(&self, file: Option<&Path>) -> anyhow::Result<Self> {
        let from_file = match file {
            Some(path) => {
                let text =
                    fs::read_to_string(path).with_context(|| format!("can't read {}", path.display()))?;
                Self::from_toml(&text)
                    .with_context(|| format!("{} is no router's configuration", path.display()))?
            }
            None => Self::default(),
        };
        let flags = self.clone();
        let interfaces = if flags.interfaces.is_empty() { from_file.interfaces } else { flags.interfaces };
        let settings = Self {
            interfaces,
            lanes: flags.lanes.or(from_file.lanes),
            mode: flags.mode.or(from_file.mode),
            buffers: flags.buffers.or(from_file.buffers),
            icmp_rate: flags.icmp_rate.or(from_file.icmp_rate),
            urpf: if flags.urpf.is_empty() { from_file.urpf } else { flags.urpf },
            spin: flags.spin || from_file.spin,
            busy_poll: flags.busy_poll || from_file.busy_poll,
            pass_expiring: flags.pass_expiring || from_file.pass_expiring,
        };
        if settings.interfaces.is_empty() {
            bail!("say which interfaces to forward between, as in `warmlane router eth0 eth1`");
        }
        if settings.lanes == Some(0) {
            bail!("a router needs at least one lane: say --lanes 1 or more");
        }
        settings.changeable()?;
        Ok(settings)
    }

    /// What can be changed while packets flow.
    pub(super) fn changeable(&self) -> anyhow::Result<RouterSettings> {
        let usual = IcmpLimits::default();
        Ok(RouterSettings {
            icmp: IcmpLimits { rate: self.icmp_rate.unwrap_or(usual.rate), ..usual },
            source_checks: SourceChecks::parse(self.urpf.iter().map(String::as_str))?,
        })
    }

    /// How many lanes there are.
    pub(super) fn lane_count(&self) -> usize {
        self.lanes.unwrap_or(1)
    }

    /// What is different in `new`, a sentence each.
    ///
    /// # Errors
    /// Names what can't be changed while packets flow.
    pub(super) fn changes(&self, new: &Self) -> anyhow::Result<Vec<String>> {
        let list = |settings: &Self| settings.interfaces.join(" ");
        let mode = |settings: &Self| {
            let mode = settings.mode.unwrap_or_default().to_possible_value();
            mode.map_or(String::new(), |value| value.get_name().to_owned())
        };
        let buffers =
            |settings: &Self| settings.buffers.map_or("as usual".to_owned(), |count| count.to_string());
        let fixed = [
            ("interfaces", list(self), list(new)),
            ("lanes", self.lane_count().to_string(), new.lane_count().to_string()),
            ("mode", mode(self), mode(new)),
            ("buffers", buffers(self), buffers(new)),
            ("spin", self.spin.to_string(), new.spin.to_string()),
            ("busy-poll", self.busy_poll.to_string(), new.busy_poll.to_string()),
            ("pass-expiring", self.pass_expiring.to_string(), new.pass_expiring.to_string()),
        ];
        let fixed: Vec<String> = fixed
            .into_iter()
            .filter(|(_, now, new)| now != new)
            .map(|(name, now, new)| format!("{name} (now {now}, then {new})"))
            .collect();
        if !fixed.is_empty() {
            bail!("the router has to be started again for {}", fixed.join(" and "));
        }
        let (before, after) = (self.changeable()?, new.changeable()?);
        let say = |name: &str, before: &dyn Display, after: &dyn Display| {
            format!("{name} was {before}, is {after}")
        };
        let mut changed = Vec::new();
        if before.icmp != after.icmp {
            changed.push(say("icmp-rate", &before.icmp.rate, &after.icmp.rate));
        }
        if before.source_checks != after.source_checks {
            changed.push(say("urpf", &before.source_checks, &after.source_checks));
        }
        Ok(changed)
    }
}

/// A word, or a list of words.
fn one_or_several<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(
        untagged,
        expecting = "a word like \"strict\", or a list of words like [\"strict\", \"eth1=loose\"]"
    )]
    enum Words {
        One(String),
        Several(Vec<String>),
    }
    Ok(match Words::deserialize(from)? {
        Words::One(word) => vec![word],
        Words::Several(words) => words,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_count_more_than_the_file_and_typos_are_named() {
        let directory = std::env::temp_dir().join(format!("warmlane-settings-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let file = directory.join("router.toml");
        fs::write(&file, "interfaces = [\"a\", \"b\"]\nlanes = 2\nmode = \"zero-copy\"\nicmp-rate = 7\n")
            .unwrap();
        let flags = Settings { lanes: Some(1), ..Settings::default() };
        let both = flags.with_file(Some(&file)).unwrap();
        assert_eq!((both.interfaces.len(), both.lanes, both.icmp_rate), (2, Some(1), Some(7)));
        fs::write(&file, "interfaces = [\"a\"]\nlane = 2\n").unwrap();
        let error = format!("{:#}", Settings::default().with_file(Some(&file)).unwrap_err());
        assert!(
            error.contains("router.toml") && error.contains("`lane`") && error.contains("lanes"),
            "{error}"
        );
        let nothing = Settings::default().with_file(None).unwrap_err().to_string();
        assert!(nothing.contains("which interfaces"), "{nothing}");
        fs::remove_dir_all(&directory).unwrap();
    }
}
