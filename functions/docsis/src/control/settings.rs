//! A service group as a TOML file. What files refer to has a name there, and a number in a [`ServiceGroup`].

use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use thiserror::Error;
use warmlane_settings::SettingsError;
use warmlane_wire::{EtherType, IpProtocol};

use super::error::ConfigError;
use super::generate::{Generated, generate};
use super::service_group::{
    Action, Channel, ChannelKind, Classifier, FilterGroup, FilterRule, Group, Modem, ServiceFlow,
    ServiceGroup,
};
use crate::lower::TunnelAddresses;
use crate::upper::Match;

/// A file that describes no service group.
#[derive(Debug, Error)]
pub enum ParseGroupError {
    /// It isn't TOML, or has a key or value that isn't known.
    #[error(transparent)]
    Toml(#[from] SettingsError<String>),
    /// A name that nothing has.
    #[error("{user} refers to {what} '{name}', which there isn't")]
    NoSuch {
        /// What is missing.
        what: &'static str,
        /// Its name.
        name: String,
        /// Who refers to it.
        user: String,
    },
    /// A modem without a flow.
    #[error(
        "modem {modem} has no flow: give it at least one, the first is that of packets that no classifier matches"
    )]
    NoFlow {
        /// Its address.
        modem: String,
    },
    /// The tunnel's addresses are of two families.
    #[error("the tunnel goes from {source_address} to {destination}: both must be IPv4, or both IPv6")]
    Families {
        /// Where it begins.
        source_address: IpAddr,
        /// Where it ends.
        destination: IpAddr,
    },
    /// What it describes can't work.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// The file.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
struct File {
    crc: Option<bool>,
    encryption: Option<bool>,
    key_seed: Option<u64>,
    tunnel: TunnelSettings,
    limits: LimitSettings,
    channel: Vec<ChannelSettings>,
    group: Vec<GroupSettings>,
    filter: Vec<FilterSettings>,
    modem: Vec<ModemSettings>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
struct TunnelSettings {
    #[serde(deserialize_with = "text")]
    source_mac: Option<warmlane_wire::MacAddress>,
    #[serde(deserialize_with = "text")]
    destination_mac: Option<warmlane_wire::MacAddress>,
    source: Option<IpAddr>,
    destination: Option<IpAddr>,
    dscp: Option<u8>,
    mtu: Option<u16>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
struct LimitSettings {
    packets: Option<u32>,
    age_milliseconds: Option<u64>,
    flush_microseconds: Option<u64>,
    resequencing_milliseconds: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct ChannelSettings {
    name: String,
    kind: KindSetting,
    rate: u64,
    session: u32,
    #[serde(default)]
    psp_flow: u8,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum KindSetting {
    Ofdm,
    ScQam,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct GroupSettings {
    name: String,
    channels: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct FilterSettings {
    name: String,
    otherwise: ActionSetting,
    #[serde(default)]
    rule: Vec<RuleSettings>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ActionSetting {
    Permit,
    Deny,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct RuleSettings {
    action: ActionSetting,
    #[serde(default, rename = "match")]
    matches: MatchSettings,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct ModemSettings {
    #[serde(deserialize_with = "from_text")]
    mac: warmlane_wire::MacAddress,
    #[serde(default, deserialize_with = "texts")]
    cpe_macs: Vec<warmlane_wire::MacAddress>,
    #[serde(default)]
    addresses: Vec<IpAddr>,
    #[serde(default)]
    enforces_addresses: bool,
    said: u16,
    filter: Option<String>,
    #[serde(default)]
    flow: Vec<FlowSettings>,
    #[serde(default)]
    classifier: Vec<ClassifierSettings>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct FlowSettings {
    name: String,
    group: String,
    #[serde(default)]
    priority: u8,
    maximum_rate: Option<u64>,
    maximum_burst: Option<u64>,
    peak_rate: Option<u64>,
    #[serde(default)]
    minimum_rate: u64,
    queue: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct ClassifierSettings {
    priority: u8,
    flow: String,
    #[serde(default, rename = "match")]
    matches: MatchSettings,
}

/// Ranges are lists of two numbers.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
struct MatchSettings {
    vlan_priority: Option<(u8, u8)>,
    vlan: Option<u16>,
    #[serde(deserialize_with = "text")]
    destination_mac: Option<warmlane_wire::MacAddress>,
    #[serde(deserialize_with = "text")]
    source_mac: Option<warmlane_wire::MacAddress>,
    ethertype: Option<u16>,
    dsap: Option<u8>,
    traffic_class: Option<(u8, u8, u8)>,
    protocol: Option<u8>,
    #[serde(deserialize_with = "text")]
    source: Option<warmlane_table::IpPrefix>,
    #[serde(deserialize_with = "text")]
    destination: Option<warmlane_table::IpPrefix>,
    source_ports: Option<(u16, u16)>,
    destination_ports: Option<(u16, u16)>,
}

fn from_text<'de, D: Deserializer<'de>, T: FromStr<Err: std::fmt::Display>>(
    deserializer: D,
) -> Result<T, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

fn text<'de, D: Deserializer<'de>, T: FromStr<Err: std::fmt::Display>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    from_text(deserializer).map(Some)
}

fn texts<'de, D: Deserializer<'de>, T: FromStr<Err: std::fmt::Display>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    texts.iter().map(|text| text.parse().map_err(D::Error::custom)).collect()
}

/// Reads a service group. What the file doesn't say is as [`generate`] has it.
///
/// # Errors
/// [`ParseGroupError`]: the first thing that is wrong.
pub fn parse_group(text: &str) -> Result<ServiceGroup, ParseGroupError> {
    let file: File = warmlane_settings::from_toml(text)?;
    let usual = generate(&Generated { modems: 1, ..Generated::default() });
    let mut group = ServiceGroup {
        modems: Vec::new(),
        flows: Vec::new(),
        channels: Vec::new(),
        groups: Vec::new(),
        filters: Vec::new(),
        crc: file.crc.unwrap_or(usual.crc),
        encryption: file.encryption.unwrap_or(usual.encryption),
        ..usual
    };
    if let Some(seed) = file.key_seed {
        group.keys.seed = seed;
    }
    apply_tunnel(&file.tunnel, &mut group)?;
    apply_limits(&file.limits, &mut group);
    group.channels.extend(file.channel.iter().map(channel));
    for GroupSettings { name, channels } in &file.group {
        let number = |channel: &String| {
            find("channel", channel, file.channel.iter().map(|channel| &channel.name), || {
                format!("group '{name}'")
            })
        };
        group.groups.push(Group { channels: channels.iter().map(number).collect::<Result<_, _>>()? });
    }
    for FilterSettings { otherwise, rule, .. } in &file.filter {
        let rules = rule
            .iter()
            .map(|rule| FilterRule { matches: matches(&rule.matches), action: action(rule.action) });
        group.filters.push(FilterGroup { rules: rules.collect(), otherwise: action(*otherwise) });
    }
    for modem in &file.modem {
        add_modem(modem, &file, &mut group)?;
    }
    group.check()?;
    Ok(group)
}

/// The number of what has this name.
fn find<'a>(
    what: &'static str,
    name: &str,
    mut names: impl Iterator<Item = &'a String>,
    user: impl FnOnce() -> String,
) -> Result<usize, ParseGroupError> {
    let found = names.position(|known| known == name);
    found.ok_or_else(|| ParseGroupError::NoSuch { what, name: name.to_owned(), user: user() })
}

fn apply_tunnel(settings: &TunnelSettings, group: &mut ServiceGroup) -> Result<(), ParseGroupError> {
    let tunnel = &mut group.tunnel;
    tunnel.source = settings.source_mac.unwrap_or(tunnel.source);
    tunnel.destination = settings.destination_mac.unwrap_or(tunnel.destination);
    tunnel.dscp = settings.dscp.unwrap_or(tunnel.dscp);
    tunnel.mtu = settings.mtu.unwrap_or(tunnel.mtu);
    let (source, destination): (IpAddr, IpAddr) = match tunnel.addresses {
        TunnelAddresses::V4 { source, destination } => (source.into(), destination.into()),
        TunnelAddresses::V6 { source, destination } => (source.into(), destination.into()),
    };
    let ends = (settings.source.unwrap_or(source), settings.destination.unwrap_or(destination));
    tunnel.addresses = match ends {
        (IpAddr::V4(source), IpAddr::V4(destination)) => TunnelAddresses::V4 { source, destination },
        (IpAddr::V6(source), IpAddr::V6(destination)) => TunnelAddresses::V6 { source, destination },
        (source_address, destination) => {
            return Err(ParseGroupError::Families { source_address, destination });
        }
    };
    Ok(())
}

fn apply_limits(settings: &LimitSettings, group: &mut ServiceGroup) {
    let limits = &mut group.limits;
    limits.packets = settings.packets.unwrap_or(limits.packets);
    limits.age = settings.age_milliseconds.map_or(limits.age, Duration::from_millis);
    limits.flush = settings.flush_microseconds.map_or(limits.flush, Duration::from_micros);
    let resequencing = settings.resequencing_milliseconds;
    limits.resequencing = resequencing.map_or(limits.resequencing, Duration::from_millis);
}

fn channel(settings: &ChannelSettings) -> Channel {
    Channel {
        name: settings.name.clone(),
        kind: match settings.kind {
            KindSetting::Ofdm => ChannelKind::Ofdm,
            KindSetting::ScQam => ChannelKind::ScQam,
        },
        rate: settings.rate,
        session: settings.session,
        psp_flow: settings.psp_flow,
    }
}

const fn action(setting: ActionSetting) -> Action {
    match setting {
        ActionSetting::Permit => Action::Permit,
        ActionSetting::Deny => Action::Deny,
    }
}

fn matches(settings: &MatchSettings) -> Match {
    let every_bit = warmlane_wire::MacAddress([0xff; 6]);
    Match {
        vlan_priority: settings.vlan_priority,
        vlan: settings.vlan,
        destination_mac: settings.destination_mac.map(|address| (address, every_bit)),
        source_mac: settings.source_mac,
        ethertype: settings.ethertype.map(EtherType),
        dsap: settings.dsap,
        traffic_class: settings.traffic_class,
        protocol: settings.protocol.map(IpProtocol),
        source: settings.source,
        destination: settings.destination,
        source_ports: settings.source_ports,
        destination_ports: settings.destination_ports,
    }
}

fn add_modem(settings: &ModemSettings, file: &File, group: &mut ServiceGroup) -> Result<(), ParseGroupError> {
    let user = || format!("modem {}", settings.mac);
    let (number, first) = (group.modems.len(), group.flows.len());
    if settings.flow.is_empty() {
        return Err(ParseGroupError::NoFlow { modem: settings.mac.to_string() });
    }
    for flow in &settings.flow {
        let index = find("group", &flow.group, file.group.iter().map(|group| &group.name), user)?;
        let usual = ServiceFlow::best_effort(number, index);
        group.flows.push(ServiceFlow {
            priority: flow.priority,
            maximum_rate: flow.maximum_rate,
            maximum_burst: flow.maximum_burst.unwrap_or(usual.maximum_burst),
            peak_rate: flow.peak_rate,
            minimum_rate: flow.minimum_rate,
            queue: flow.queue.unwrap_or(usual.queue),
            ..usual
        });
    }
    let classifiers = settings.classifier.iter().map(|classifier| {
        let index = find("flow", &classifier.flow, settings.flow.iter().map(|flow| &flow.name), user)?;
        let matches = matches(&classifier.matches);
        Ok(Classifier { priority: classifier.priority, matches, flow: first + index })
    });
    let filter = settings
        .filter
        .as_ref()
        .map(|name| find("filter", name, file.filter.iter().map(|filter| &filter.name), user));
    group.modems.push(Modem {
        mac: settings.mac,
        cpe_macs: settings.cpe_macs.clone(),
        addresses: settings.addresses.clone(),
        enforces_addresses: settings.enforces_addresses,
        said: settings.said,
        filter: filter.transpose()?,
        classifiers: classifiers.collect::<Result<_, ParseGroupError>>()?,
        primary_flow: first,
    });
    Ok(())
}

#[cfg(test)]
mod tests;
