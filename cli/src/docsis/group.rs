//! The service group: from a file, or generated.

use anyhow::Context as _;
use std::path::PathBuf;
use std::time::Duration;
use warmlane::functions::docsis::control::{Generated, ServiceGroup, generate, parse_group};

/// What a service group is made of.
#[derive(clap::Args, Debug)]
pub(super) struct GroupFlags {
    /// Read the service group (channels, groups, modems, keys) from this TOML file in place of generating it: see docs/docsis.md.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["modems", "ofdm", "sc_qam", "maximum_rate"])]
    pub(super) config: Option<PathBuf>,
    /// How many modems there are.
    #[arg(long, value_name = "COUNT", default_value_t = 300, value_parser = clap::value_parser!(u16).range(1..=16_383))]
    pub(super) modems: u16,
    /// How many OFDM channels there are; they are bonded.
    #[arg(long, value_name = "COUNT", default_value_t = 6, value_parser = clap::value_parser!(u16).range(1..=64))]
    ofdm: u16,
    /// How many SC-QAM channels there are; they are bonded, and every second modem uses them.
    #[arg(long, value_name = "COUNT", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=64))]
    sc_qam: u16,
    /// Maximum sustained rate of each modem's primary flow in bits a second; no limit if not given.
    #[arg(long, value_name = "BITS", value_parser = clap::value_parser!(u64).range(1..))]
    maximum_rate: Option<u64>,
    /// What both ends make keys from: whoever knows it can decrypt. 1 if not given.
    #[arg(long, value_name = "NUMBER")]
    key_seed: Option<u64>,
    /// Don't make CRCs anew, as modems then can't check them: to see what they cost.
    #[arg(long)]
    no_crc: bool,
    /// Don't encrypt: to see what that costs.
    #[arg(long)]
    no_encryption: bool,
}

impl GroupFlags {
    /// The service group, checked.
    pub(super) fn read(&self) -> anyhow::Result<ServiceGroup> {
        let mut group = if let Some(file) = &self.config {
            let name = file.display();
            let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {name}"))?;
            parse_group(&text).with_context(|| name.to_string())?
        } else {
            let Self { modems, ofdm, sc_qam, maximum_rate, .. } = *self;
            generate(&Generated { modems, ofdm, sc_qam, maximum_rate })
        };
        group.crc &= !self.no_crc;
        group.encryption &= !self.no_encryption;
        group.keys.seed = self.key_seed.unwrap_or(group.keys.seed);
        group.check()?;
        Ok(group)
    }

    /// The same, where lanes that share CPUs are held up for longer than modems would wait for a packet.
    pub(super) fn read_patient(&self, patience: Duration) -> anyhow::Result<ServiceGroup> {
        let mut group = self.read()?;
        (group.limits.resequencing, group.limits.age) = (patience, patience);
        Ok(group)
    }
}
