//! What is said of how a port steers packets to lanes.

use std::str::FromStr;

use serde::Deserialize;
use serde::de::Deserializer;
use warmlane_port::steering::{Action, Match, Rss, Rule, Steering, SteeringError};
use warmlane_settings::{Located, from_text};
use warmlane_table::{IpPrefix, Ipv4Prefix, Ipv6Prefix};
use warmlane_wire::toeplitz::{MICROSOFT_KEY, SYMMETRIC_KEY};
use warmlane_wire::{IpProtocol, MacAddress};

use super::check::{Checked, number, port_number};
use super::value::ValueError;
use super::{ConfigProblem, PortConfig};

/// By which key a port spreads flows over lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RssKey {
    /// That of Microsoft's verification suite, with which most cards start.
    Microsoft,
    /// One by which both directions of a flow go to one lane.
    Symmetric,
}

impl FromStr for RssKey {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text {
            "microsoft" => Ok(Self::Microsoft),
            "symmetric" => Ok(Self::Symmetric),
            _ => Err(ValueError::RssKey { text: text.to_owned() }),
        }
    }
}

/// A rule of a port: packets with all of what is said go where it says. Of several that fit the first counts.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RuleEntry {
    /// The name of the port that packets come in by.
    pub port: Located<String>,
    /// The Ethernet address that frames go to.
    #[serde(default, deserialize_with = "optional_mac")]
    pub mac: Option<Located<MacAddress>>,
    /// `tcp`, `udp`, `sctp`, `icmp`, `icmpv6`, or a number.
    #[serde(default, deserialize_with = "optional_protocol")]
    pub protocol: Option<Located<IpProtocol>>,
    /// The address or prefix that packets come from.
    #[serde(default, deserialize_with = "optional_prefix")]
    pub from: Option<Located<IpPrefix>>,
    /// The port of TCP, UDP or SCTP that they come from.
    pub from_port: Option<Located<i64>>,
    /// The address or prefix that they go to.
    #[serde(default, deserialize_with = "optional_prefix")]
    pub to: Option<Located<IpPrefix>>,
    /// The port that they go to.
    pub to_port: Option<Located<i64>>,
    /// The identifier of a VXLAN or GENEVE network.
    pub vni: Option<Located<i64>>,
    /// The queue, which is the lane's with this number.
    pub queue: Option<Located<i64>>,
    /// What packets are marked with.
    pub mark: Option<Located<i64>>,
    /// They are dropped.
    #[serde(default)]
    pub drop: bool,
}

impl RuleEntry {
    /// A rule of a port that says nothing yet.
    pub const fn of(port: Located<String>) -> Self {
        Self {
            port,
            mac: None,
            protocol: None,
            from: None,
            from_port: None,
            to: None,
            to_port: None,
            vni: None,
            queue: None,
            mark: None,
            drop: false,
        }
    }

    fn rule(&self, lanes: usize) -> Checked<Rule> {
        let within = |given: &Option<Located<i64>>, what: &str, most: u32| {
            given.as_ref().map(|given| number(Some(given), what, 0, 0..=most)).transpose()
        };
        let port = |given, what| Ok(within(given, what, u16::MAX.into())?.map(|port| port as u16));
        let of = Match {
            mac: self.mac.as_ref().map(|mac| mac.0),
            protocol: self.protocol.as_deref().copied(),
            source: self.from.as_deref().copied(),
            destination: self.to.as_deref().copied(),
            source_port: port(&self.from_port, "`from-port`")?,
            destination_port: port(&self.to_port, "`to-port`")?,
            vni: within(&self.vni, "`vni`", (1 << 24) - 1)?,
        };
        let queue = port(&self.queue, "`queue`")?;
        let mark = within(&self.mark, "`mark`", u32::MAX)?;
        if self.drop && (queue.is_some() || mark.is_some()) {
            return Err(self.port.fault(ConfigProblem::RuleDropsAll));
        }
        let action = if self.drop { Action::Drop } else { Action::Receive { queue, mark } };
        let rule = Rule { of, action };
        rule.check(lanes).map_err(|error| self.port.fault(ConfigProblem::Rule(Box::new(error))))?;
        Ok(rule)
    }
}

/// Gives each port its rules, in their order.
pub(super) fn check(entries: &[RuleEntry], ports: &mut [PortConfig], lanes: usize) -> Checked<()> {
    for entry in entries {
        let port = port_number(&entry.port, ports)?;
        let rule = entry.rule(lanes)?;
        ports[port].rules.push(rule);
    }
    Ok(())
}

impl PortConfig {
    /// How the port's packets are steered to as many lanes: for [`Port::steered`](warmlane_port::Port::steered).
    ///
    /// # Errors
    /// [`SteeringError`], if the rules aren't for so many lanes.
    pub fn steering(&self, lanes: usize) -> Result<Steering, SteeringError> {
        let key = self.rss.map(|key| match key {
            RssKey::Microsoft => &MICROSOFT_KEY,
            RssKey::Symmetric => &SYMMETRIC_KEY,
        });
        Steering::new(&self.rules, key.filter(|_| lanes > 1).map(|key| Rss::even(key, lanes)), lanes)
    }
}

/// An address, or a prefix.
pub struct Network(pub IpPrefix);

impl FromStr for Network {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let prefix = match text.parse() {
            Ok(std::net::IpAddr::V4(address)) => IpPrefix::V4(Ipv4Prefix::containing(address.to_bits(), 32)),
            Ok(std::net::IpAddr::V6(address)) => IpPrefix::V6(Ipv6Prefix::containing(address.to_bits(), 128)),
            Err(_) => text.parse()?,
        };
        Ok(Self(prefix))
    }
}

/// A protocol that rules can name.
pub struct Protocol(pub IpProtocol);

impl FromStr for Protocol {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        Ok(Self(match text {
            "tcp" => IpProtocol::TCP,
            "udp" => IpProtocol::UDP,
            "sctp" => IpProtocol::SCTP,
            "icmp" => IpProtocol::ICMP,
            "icmpv6" => IpProtocol::ICMPV6,
            number => {
                IpProtocol(number.parse().map_err(|_| ValueError::RuleProtocol { text: number.to_owned() })?)
            }
        }))
    }
}

fn optional_mac<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Located<MacAddress>>, D::Error> {
    from_text(d).map(Some)
}

fn optional_prefix<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Located<IpPrefix>>, D::Error> {
    from_text::<_, Network>(d).map(|network| Some(network.map(|Network(prefix)| prefix)))
}

fn optional_protocol<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Located<IpProtocol>>, D::Error> {
    from_text::<_, Protocol>(d).map(|named| Some(named.map(|Protocol(protocol)| protocol)))
}
