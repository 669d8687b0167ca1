//! What can be said of a forwarder, in a file or by a program. [`ForwardSettings::check`] makes a [`Config`](super::Config)
//! of it.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor, value::SeqAccessDeserializer};
use warmlane_mem::PoolKind;
use warmlane_settings::{Located, from_text, list_from_text};
use warmlane_table::IpPrefix;
use warmlane_wire::MacAddress;

use super::InterfaceAddress;
use super::flow::FlowEntry;
use super::overlay::OverlayEntry;
use super::rule::{RssKey, RuleEntry};
use super::value::{ValueError, unicast, unicast_mac};

/// A forwarder. `D` is what is said of a port's driver, which only matters to who opens ports.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", bound(deserialize = "D: Deserialize<'de>"))]
pub struct ForwardSettings<D> {
    /// How many lanes share the ports' queues.
    pub lanes: Option<Located<i64>>,
    /// How many packets a lane gathers before it works on them.
    pub burst: Option<Located<i64>>,
    /// Where buffers come from.
    #[serde(default)]
    pub pool: PoolEntry,
    /// How many ICMP errors each lane may send.
    #[serde(default)]
    pub icmp: IcmpEntry,
    /// The ports.
    #[serde(default, rename = "port")]
    pub ports: Vec<PortEntry<D>>,
    /// Neighbours whose Ethernet address is known.
    #[serde(default, rename = "neighbour")]
    pub neighbours: Vec<NeighbourEntry>,
    /// The routes.
    #[serde(default, rename = "route")]
    pub routes: Vec<RouteEntry>,
    /// Flows that don't go by their routes.
    #[serde(default, rename = "flow")]
    pub flows: Vec<FlowEntry>,
    /// Rules of ports for what they receive.
    #[serde(default, rename = "rule")]
    pub rules: Vec<RuleEntry>,
    /// Neighbours that the embedded Internet table is spread over.
    #[serde(default)]
    pub full_table: FullTableEntry,
    /// Networks bridged over IP by VXLAN.
    #[serde(default)]
    pub vxlan: Vec<OverlayEntry>,
    /// The same by GENEVE.
    #[serde(default)]
    pub geneve: Vec<OverlayEntry>,
}

impl<D> Default for ForwardSettings<D> {
    fn default() -> Self {
        Self {
            lanes: None,
            burst: None,
            pool: PoolEntry::default(),
            icmp: IcmpEntry::default(),
            ports: Vec::new(),
            neighbours: Vec::new(),
            routes: Vec::new(),
            flows: Vec::new(),
            rules: Vec::new(),
            full_table: FullTableEntry::default(),
            vxlan: Vec::new(),
            geneve: Vec::new(),
        }
    }
}

/// Buffers.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct PoolEntry {
    /// How many.
    pub buffers: Option<Located<i64>>,
    /// Bytes of data that one holds.
    pub data_size: Option<Located<i64>>,
    /// `depot`, `stack` or `ring`.
    #[serde(deserialize_with = "pool_kind")]
    pub kind: Option<PoolKind>,
}

/// ICMP errors that each lane may send.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct IcmpEntry {
    /// A second, on average.
    pub rate: Option<Located<i64>>,
    /// At once.
    pub burst: Option<Located<i64>>,
}

/// A port.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PortEntry<D> {
    /// Its name.
    pub name: Located<String>,
    /// What it is made of.
    pub driver: D,
    /// Our addresses on its link.
    #[serde(default, deserialize_with = "list_from_text")]
    pub addresses: Vec<Located<InterfaceAddress>>,
    /// Largest IP packet that the link carries, in bytes.
    pub mtu: Option<Located<i64>>,
    /// Our Ethernet address there.
    #[serde(default, deserialize_with = "optional_mac")]
    pub mac: Option<Located<MacAddress>>,
    /// Merge received frames of a flow.
    #[serde(default)]
    pub gro: bool,
    /// Spread received flows over lanes.
    pub rss: Option<RssKey>,
}

/// A neighbour.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct NeighbourEntry {
    /// Its IP address.
    #[serde(deserialize_with = "host")]
    pub address: Located<IpAddr>,
    /// Its Ethernet address.
    #[serde(deserialize_with = "mac")]
    pub mac: Located<MacAddress>,
    /// The name of the port it is behind.
    pub port: Located<String>,
    /// VLAN that frames to it are tagged with.
    pub vlan: Option<Located<i64>>,
}

/// A route. Exactly one of `via` (with or without `port`), `port`, `drop` and `unreachable` says which way it goes.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RouteEntry {
    /// Where to.
    #[serde(deserialize_with = "from_text")]
    pub prefix: Located<IpPrefix>,
    /// Through neighbours.
    pub via: Option<Located<Via>>,
    /// To all addresses, as neighbours on the link of this port; with `via`, the port that the neighbour is on.
    pub port: Option<Located<String>>,
    /// Nowhere, without a word.
    #[serde(default)]
    pub drop: bool,
    /// Nowhere, and the sender is told.
    #[serde(default)]
    pub unreachable: bool,
}

/// The ways of a route: in a file, `"192.0.2.1"` or `[{ via = "192.0.2.1", weight = 2 }, ..]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Via(pub Vec<ViaEntry>);

/// A neighbour that a route leads through.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ViaEntry {
    /// Its address.
    #[serde(deserialize_with = "host")]
    pub via: Located<IpAddr>,
    /// Its share.
    pub weight: Option<Located<i64>>,
}

/// Neighbours that the embedded table is spread over.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct FullTableEntry {
    /// For IPv4 prefixes.
    #[serde(deserialize_with = "hosts")]
    pub ipv4: Vec<Located<IpAddr>>,
    /// For IPv6 prefixes.
    #[serde(deserialize_with = "hosts")]
    pub ipv6: Vec<Located<IpAddr>>,
}

impl<'de> Deserialize<'de> for Via {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EitherForm;
        impl<'de> Visitor<'de> for EitherForm {
            type Value = Via;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a next hop, as in \"192.0.2.1\", or a list as in [{ via = \"192.0.2.1\", weight = 1 }]",
                )
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Via, E> {
                let via = unicast(text).map_err(E::custom)?.into();
                Ok(Via(vec![ViaEntry { via, weight: None }]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Via, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(Via)
            }
        }
        // `deserialize_any` keeps the spans of what is inside, which an untagged enum would lose.
        deserializer.deserialize_any(EitherForm)
    }
}

fn pool_kind<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PoolKind>, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "kebab-case")]
    enum Kind {
        Depot,
        Stack,
        Ring,
    }
    Ok(Some(match Kind::deserialize(deserializer)? {
        Kind::Depot => PoolKind::Depot,
        Kind::Stack => PoolKind::Stack,
        Kind::Ring => PoolKind::Ring,
    }))
}

/// The address of one host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Host(pub IpAddr);

impl FromStr for Host {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        unicast(text).map(Self)
    }
}

pub(super) fn host<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Located<IpAddr>, D::Error> {
    from_text::<_, Host>(deserializer).map(|host| host.map(|Host(address)| address))
}

/// Of a host or a group.
pub(super) fn optional_address<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Located<IpAddr>>, D::Error> {
    from_text(deserializer).map(Some)
}

fn hosts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Located<IpAddr>>, D::Error> {
    let hosts = list_from_text::<_, Host>(deserializer)?;
    Ok(hosts.into_iter().map(|host| host.map(|Host(address)| address)).collect())
}

/// The Ethernet address of one interface.
struct UnicastMac(MacAddress);

impl FromStr for UnicastMac {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        unicast_mac(text).map(Self)
    }
}

pub(super) fn mac<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Located<MacAddress>, D::Error> {
    from_text::<_, UnicastMac>(deserializer).map(|mac| mac.map(|UnicastMac(mac)| mac))
}

fn optional_mac<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Located<MacAddress>>, D::Error> {
    mac(deserializer).map(Some)
}
