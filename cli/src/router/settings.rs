//! What a router is started with: from flags, from a file, or from both.

use crate::idle::{IdleFlags, Preset};
use crate::machine::MachineFlags;
use anyhow::{Context as _, bail};
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use serde::Deserialize;
use std::fmt::Display;
use std::fs;
use std::path::Path;
use warmlane::assembly::router::PathSettings;
use warmlane::drivers::xdp::{XdpMode, XdpOptions};
use warmlane::functions::forward::control::config::IcmpLimits;
use warmlane::functions::router::control::{RouterSettings, SourceChecks};
use warmlane::functions::router::datapath::HoldLimits;
use warmlane::functions::router::paths::Paths;
use warmlane::lane::most_on_one_cpu;
use warmlane::mem::PoolConfig;

/// The fewest packet buffers: some bursts on their way, in either direction, and those that a lane keeps in reserve.
const FEWEST_BUFFERS: u32 = 1_024;

/// The file's keys are the flags' names. What a flag says, counts more.
#[expect(clippy::struct_excessive_bools, reason = "as many flags")]
#[derive(clap::Args, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct Settings {
    /// The interfaces to forward between.
    #[arg(value_name = "INTERFACE")]
    pub(crate) interfaces: Vec<String>,
    /// Where packets are forwarded that come in by an interface: in user space by lanes (user), in its driver by an XDP program
    /// (xdp), in the kernel's stack by a tc program (tc), or where that interface does best (best). For all interfaces, or
    /// for the one that is named; may be given several times.
    #[arg(long, value_name = "[INTERFACE=]PATH")]
    #[serde(deserialize_with = "one_or_several")]
    pub(super) path: Vec<String>,
    /// Lanes: threads that forward, each pinned to a CPU of its own. Interfaces need as many queues. Usually 1.
    #[arg(long, value_name = "COUNT")]
    pub(super) lanes: Option<usize>,
    /// The CPUs of the lanes, one for each, separated by commas; lanes that are given the same share it. Usually isolated ones, and the
    /// highest.
    #[arg(long, value_name = "CPU,...", value_delimiter = ',')]
    pub(super) cpus: Vec<usize>,
    /// How packets are exchanged with the kernel: without copies if the driver can, in the driver if it can (best); without
    /// copies or not at all; with copies, in the driver; with copies, in the network stack, which works on any interface
    /// and is the slowest.
    #[arg(long, value_name = "MODE", value_parser = PossibleValuesParser::new(XdpMode::WORDS).try_map(|word| word.parse::<XdpMode>()))]
    pub(super) mode: Option<XdpMode>,
    /// Packet buffers, 1,024 at least. Usually 4,096 for each receive queue and 2,048 for each lane and interface, and at least 16,384.
    #[arg(long, value_name = "COUNT")]
    pub(super) buffers: Option<u32>,
    /// Neighbours that each lane waits for at a time, 4,096 at most. New ones, of packets that come in by one interface, may be
    /// twice as many in a second. Usually 512.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=i64::from(HoldLimits::MOST_NEIGHBOURS)))]
    pub(super) pending_neighbours: Option<u16>,
    /// Packets a second that each lane may hand to the kernel for an ICMP error. Usually 1000.
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
    /// What lanes do when there is nothing to do: poll on for two seconds and then sleep (latency), poll on as long as packets come
    /// at short intervals and else sleep (balanced), or sleep at once (power). Usually balanced.
    #[arg(long, value_enum, conflicts_with = "spin")]
    pub(super) idle: Option<Preset>,
    /// How long a packet may wait for its lane to wake up, as in 50us. Lanes sleep where this machine keeps that, and else poll.
    #[arg(long, value_name = "TIME", conflicts_with_all = ["spin", "idle"])]
    pub(super) wake_within: Option<String>,
    #[command(flatten)]
    pub(super) machine: MachineFlags,
    /// Let the lanes' own system calls do the interfaces' work instead of interrupts. It only helps where these are deferred:
    /// `napi_defer_hard_irqs` and `gro_flush_timeout` in /sys/class/net/INTERFACE.
    #[arg(long)]
    pub(super) busy_poll: bool,
    /// Leave packets whose time to live ends here to the kernel, so that it is the kernel that answers traceroute.
    #[arg(long)]
    pub(super) pass_expiring: bool,
    /// Take packets past netfilter (nftables, iptables), IPsec and tc. Without this, what would pass something there is left to
    /// the kernel.
    #[arg(long)]
    pub(super) bypass_netfilter: bool,
    /// Forward flows of TCP and UDP past netfilter (nftables, iptables) once conntrack has them established, on the paths xdp and tc, with
    /// their NAT: as `flow add` of nftables does. Rules see their first packets and some later ones.
    #[arg(long)]
    pub(super) offload_established: bool,
}

impl Settings {
    /// What a file of this text says.
    ///
    /// # Errors
    /// Names the place of what is wrong.
    pub(super) fn from_toml(text: &str) -> anyhow::Result<Self> {
        let settings: Self = toml::from_str(text)?;
        settings.changeable()?;
        settings.paths()?;
        Ok(settings)
    }

    /// What the file says, if there is one, where the flags say nothing.
    pub(crate) fn with_file(&self, file: Option<&Path>) -> anyhow::Result<Self> {
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
        let idle = [flags.idle_flags(), from_file.idle_flags()]
            .into_iter()
            .find(IdleFlags::is_given)
            .unwrap_or_default();
        let interfaces = if flags.interfaces.is_empty() { from_file.interfaces } else { flags.interfaces };
        let settings = Self {
            interfaces,
            path: if flags.path.is_empty() { from_file.path } else { flags.path },
            lanes: flags.lanes.or(from_file.lanes),
            cpus: if flags.cpus.is_empty() { from_file.cpus } else { flags.cpus },
            mode: flags.mode.or(from_file.mode),
            buffers: flags.buffers.or(from_file.buffers),
            pending_neighbours: flags.pending_neighbours.or(from_file.pending_neighbours),
            icmp_rate: flags.icmp_rate.or(from_file.icmp_rate),
            urpf: if flags.urpf.is_empty() { from_file.urpf } else { flags.urpf },
            spin: idle.spin,
            idle: idle.idle,
            wake_within: idle.wake_within,
            machine: flags.machine.or(from_file.machine),
            busy_poll: flags.busy_poll || from_file.busy_poll,
            pass_expiring: flags.pass_expiring || from_file.pass_expiring,
            bypass_netfilter: flags.bypass_netfilter || from_file.bypass_netfilter,
            offload_established: flags.offload_established || from_file.offload_established,
        };
        if settings.interfaces.is_empty() {
            bail!("say which interfaces to forward between, as in `warmlane router eth0 eth1`");
        }
        if let Some(count) = settings.buffers.filter(|count| *count < FEWEST_BUFFERS) {
            bail!(
                "{count} buffers are too few to forward with: say --buffers {FEWEST_BUFFERS} or more, or leave it out"
            );
        }
        if settings.lanes == Some(0) {
            bail!("a router needs at least one lane: say --lanes 1 or more");
        }
        if !settings.cpus.is_empty() && settings.cpus.len() != settings.lane_count() {
            bail!(
                "{} lane(s) need as many CPUs, and cpus names {}: say --lanes {1}, or other --cpus",
                settings.lane_count(),
                settings.cpus.len()
            );
        }
        let most = HoldLimits::MOST_NEIGHBOURS;
        if !(1..=most).contains(&settings.pending_neighbours()) {
            bail!(
                "a lane can wait for 1 to {most} neighbours at a time: say such a number for pending-neighbours"
            );
        }
        settings.changeable()?;
        settings.paths()?;
        settings.idle_flags().policy()?;
        settings.machine.settings()?;
        Ok(settings)
    }

    /// What lanes do when there is nothing to do.
    pub(super) fn idle_flags(&self) -> IdleFlags {
        IdleFlags { spin: self.spin, idle: self.idle, wake_within: self.wake_within.clone() }
    }

    /// Where packets of which interface are forwarded.
    pub(crate) fn paths(&self) -> anyhow::Result<Paths> {
        Ok(Paths::parse(self.path.iter().map(String::as_str))?)
    }

    /// By what the paths of interfaces are decided.
    pub(super) fn path_settings(&self) -> anyhow::Result<PathSettings> {
        Ok(PathSettings {
            interfaces: self.interfaces.clone(),
            paths: self.paths()?,
            source_checks: self.changeable()?.source_checks,
            has_xdp_mode: self.mode.is_some(),
        })
    }

    /// What can be changed while packets flow.
    pub(super) fn changeable(&self) -> anyhow::Result<RouterSettings> {
        let usual = IcmpLimits::default();
        Ok(RouterSettings {
            icmp: IcmpLimits { rate: self.icmp_rate.unwrap_or(usual.rate), ..usual },
            source_checks: SourceChecks::parse(self.urpf.iter().map(String::as_str))?,
            bypass_netfilter: self.bypass_netfilter,
            offload_established: self.offload_established,
        })
    }

    /// How many neighbours a lane waits for at a time.
    pub(super) fn pending_neighbours(&self) -> u16 {
        self.pending_neighbours.unwrap_or(HoldLimits::USUAL_NEIGHBOURS)
    }

    /// How many packet buffers there are, for interfaces with these receive queues: rings of 2,048 entries are full on either
    /// side, and as many packets are under way.
    pub(crate) fn buffer_count(&self, receive_queues: &[u32]) -> u32 {
        let usual = || {
            let queues: u64 = receive_queues.iter().copied().map(u64::from).sum();
            let transmit_queues = self.lane_count() as u64 * receive_queues.len() as u64;
            let ring = u64::from(self.ring().unwrap_or(XdpOptions::RING));
            let count = ring.saturating_mul(2 * queues + transmit_queues);
            u32::try_from(count).unwrap_or(u32::MAX).max(PoolConfig::default().buffers)
        };
        self.buffers.unwrap_or_else(usual)
    }

    /// How many entries a ring has, if not the usual number: where lanes share a CPU, one has to wait for the turns of the others, and what
    /// comes meanwhile waits in its rings.
    pub(crate) fn ring(&self) -> Option<u32> {
        let together = u32::try_from(most_on_one_cpu(&self.cpus)).unwrap_or(u32::MAX);
        let deeper =
            together.checked_next_power_of_two().and_then(|times| XdpOptions::RING.checked_mul(times));
        (together > 1).then(|| deeper.unwrap_or(u32::MAX).min(XdpOptions::LONGEST_RING))
    }

    /// How many lanes there are.
    pub(crate) fn lane_count(&self) -> usize {
        self.lanes.unwrap_or_else(|| self.cpus.len().max(1))
    }

    /// What is different in `new`, a sentence each, apart from interfaces and their paths.
    ///
    /// # Errors
    /// Names what can't be changed while packets flow.
    pub(super) fn changes(&self, new: &Self) -> anyhow::Result<Vec<String>> {
        let mode = |settings: &Self| settings.mode.unwrap_or_default().to_string();
        let buffers =
            |settings: &Self| settings.buffers.map_or("as usual".to_owned(), |count| count.to_string());
        let fixed = [
            ("lanes", self.lane_count().to_string(), new.lane_count().to_string()),
            ("cpus", format!("{:?}", self.cpus), format!("{:?}", new.cpus)),
            ("mode", mode(self), mode(new)),
            ("buffers", buffers(self), buffers(new)),
            (
                "pending-neighbours",
                self.pending_neighbours().to_string(),
                new.pending_neighbours().to_string(),
            ),
            (
                "spin, idle and wake-within",
                format!("{:?}", self.idle_flags()),
                format!("{:?}", new.idle_flags()),
            ),
            ("machine", format!("{:?}", self.machine), format!("{:?}", new.machine)),
            ("busy-poll", self.busy_poll.to_string(), new.busy_poll.to_string()),
            ("pass-expiring", self.pass_expiring.to_string(), new.pass_expiring.to_string()),
            (
                "offload-established",
                self.offload_established.to_string(),
                new.offload_established.to_string(),
            ),
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
        if before.bypass_netfilter != after.bypass_netfilter {
            changed.push(say("bypass-netfilter", &before.bypass_netfilter, &after.bypass_netfilter));
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

    #[test]
    fn rings_are_deeper_where_lanes_share_a_cpu() {
        let ring = |cpus: &[usize]| Settings { cpus: cpus.to_vec(), ..Settings::default() }.ring();
        assert_eq!([&[][..], &[1], &[1, 2]].map(ring), [None; 3]);
        assert_eq!(
            [&[1, 1][..], &[0, 1, 1, 1], &[0; 64]].map(ring),
            [Some(4_096), Some(8_192), Some(32_768)]
        );
        let shared = Settings { cpus: vec![1, 1, 1, 1], ..Settings::default() };
        assert_eq!(shared.buffer_count(&[4, 4]), 8_192 * (2 * 8 + 4 * 2));
    }

    #[test]
    fn buffers_grow_with_queues_and_lanes() {
        let lanes = |lanes| Settings { lanes: Some(lanes), ..Settings::default() };
        assert_eq!(lanes(1).buffer_count(&[1, 1]), 16_384);
        assert_eq!(lanes(1).buffer_count(&[8, 8]), 2_048 * (32 + 2));
        assert_eq!(lanes(4).buffer_count(&[8, 8]), 2_048 * (32 + 8));
        let said = Settings { buffers: Some(2_000), ..lanes(4) };
        assert_eq!(said.buffer_count(&[8, 8]), 2_000);
    }

    #[test]
    fn pending_neighbours_are_bounded() {
        for (count, is_right) in [(0, false), (1, true), (4096, true), (4097, false)] {
            let flags = Settings {
                interfaces: vec!["a".to_owned()],
                pending_neighbours: Some(count),
                ..Settings::default()
            };
            assert_eq!(flags.with_file(None).is_ok(), is_right, "{count}");
        }
    }
}
