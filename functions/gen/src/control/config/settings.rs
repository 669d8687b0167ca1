//! What can be said of traffic, in a file or by a program. [`TrafficSettings::check`] makes a [`Config`](super::Config) of it.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};
use warmlane_settings::{Located, from_text, optional_from_text};
use warmlane_wire::MacAddress;

use super::PatternName;
use crate::control::payload::Payload;
use crate::control::rate::Rate;
use crate::control::sizes::Sizes;

/// Traffic: streams that share the time.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct TrafficSettings {
    /// How fast, all streams together, as in `1Mpps`.
    #[serde(default, deserialize_with = "optional_from_text")]
    pub rate: Option<Located<Rate>>,
    /// When packets leave: `constant`, `poisson`, `bursts:32`.
    #[serde(default, deserialize_with = "optional_from_text")]
    pub pattern: Option<Located<PatternName>>,
    /// The streams.
    #[serde(rename = "stream")]
    pub streams: Vec<Located<StreamSettings>>,
    /// A cable operator's downstream.
    pub cable: Option<Located<CableSettings>>,
}

/// A stream for each modem of a cable operator's downstream.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct CableSettings {
    /// How many modems; 300 if not given.
    pub modems: Option<Located<i64>>,
    /// How long frames are.
    #[serde(default, deserialize_with = "sizes")]
    pub size: Option<Located<Sizes>>,
}

/// Packets of one kind.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct StreamSettings {
    /// What reports call it.
    pub name: Option<String>,
    /// How many packets it sends for each one of a stream with share 1.
    pub share: Option<Located<i64>>,
    /// How long frames are, with frame check sequence; as short as possible if not given.
    #[serde(default, deserialize_with = "sizes")]
    pub size: Option<Located<Sizes>>,
    /// `zeros`, `ones`, `counting`, `random`, `text:...` or `hex:...`.
    #[serde(default, deserialize_with = "optional_from_text")]
    pub payload: Option<Located<Payload>>,
    /// Whether packets carry a signature; they do if nothing is said.
    pub signature: Option<bool>,
    /// The headers.
    pub packet: PacketSettings,
    /// Fields that differ from packet to packet.
    #[serde(default)]
    pub vary: Vec<Located<VarySettings>>,
}

/// Headers, from the outside to the inside.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct PacketSettings {
    /// Ethernet.
    pub ethernet: EthernetSettings,
    /// VLAN tags, the outer one first.
    pub vlan: Vec<VlanSettings>,
    /// IPv4.
    pub ipv4: Option<Located<Ipv4Settings>>,
    /// IPv6.
    pub ipv6: Option<Located<Ipv6Settings>>,
    /// UDP.
    pub udp: Option<Located<UdpSettings>>,
    /// TCP.
    pub tcp: Option<Located<TcpSettings>>,
    /// ICMP or ICMPv6 echo requests.
    pub icmp: Option<Located<IcmpSettings>>,
    /// A tunnel (RFC 7348).
    pub vxlan: Option<Located<VxlanSettings>>,
}

/// An Ethernet header.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct EthernetSettings {
    /// Source address.
    #[serde(default, deserialize_with = "optional_from_text")]
    pub source: Option<Located<MacAddress>>,
    /// Destination address.
    #[serde(default, deserialize_with = "optional_from_text")]
    pub destination: Option<Located<MacAddress>>,
    /// The type of what follows, where no other header says it.
    pub ethertype: Option<Located<i64>>,
}

/// A VLAN tag.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct VlanSettings {
    /// The VLAN's number.
    pub id: Located<i64>,
    /// Priority (IEEE 802.1Q PCP).
    pub priority: Option<Located<i64>>,
    /// A service tag (IEEE 802.1ad).
    #[serde(default)]
    pub service: bool,
}

/// An IPv4 header.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Ipv4Settings {
    /// Source address.
    #[serde(deserialize_with = "ipv4")]
    pub source: Located<Ipv4Addr>,
    /// Destination address.
    #[serde(deserialize_with = "ipv4")]
    pub destination: Located<Ipv4Addr>,
    /// DSCP.
    pub dscp: Option<Located<i64>>,
    /// Time to live.
    pub ttl: Option<Located<i64>>,
    /// Identification.
    pub identification: Option<Located<i64>>,
    /// Don't fragment.
    #[serde(default)]
    pub dont_fragment: bool,
}

/// An IPv6 header.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Ipv6Settings {
    /// Source address.
    #[serde(deserialize_with = "ipv6")]
    pub source: Located<Ipv6Addr>,
    /// Destination address.
    #[serde(deserialize_with = "ipv6")]
    pub destination: Located<Ipv6Addr>,
    /// DSCP.
    pub dscp: Option<Located<i64>>,
    /// Hop limit.
    pub hop_limit: Option<Located<i64>>,
    /// Flow label.
    pub flow_label: Option<Located<i64>>,
}

/// A UDP header.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct UdpSettings {
    /// Source port.
    pub source: Option<Located<i64>>,
    /// Destination port.
    pub destination: Option<Located<i64>>,
}

/// A TCP header.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct TcpSettings {
    /// Source port.
    pub source: Option<Located<i64>>,
    /// Destination port.
    pub destination: Option<Located<i64>>,
    /// Sequence number.
    pub sequence: Option<Located<i64>>,
    /// Acknowledgement number.
    pub acknowledgement: Option<Located<i64>>,
    /// Flags by name, as in `syn,ack`.
    pub flags: Option<Located<String>>,
    /// Window.
    pub window: Option<Located<i64>>,
}

/// An echo request.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct IcmpSettings {
    /// Identifier.
    pub identifier: Option<Located<i64>>,
    /// Sequence number.
    pub sequence: Option<Located<i64>>,
}

/// A VXLAN tunnel.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct VxlanSettings {
    /// The network's number.
    pub vni: Located<i64>,
    /// UDP source port.
    pub source: Option<Located<i64>>,
    /// Whether the outer UDP header has a checksum.
    #[serde(default)]
    pub checksum: bool,
    /// The packet in the tunnel.
    pub inner: Box<PacketSettings>,
}

/// How a field differs from packet to packet.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct VarySettings {
    /// The field, as in `ipv4.source`.
    pub field: String,
    /// `count`, `list`, `random` or `zipf`.
    pub order: Option<Located<String>>,
    /// How many values, from the packet's own on.
    pub count: Option<Located<i64>>,
    /// How far they are apart.
    pub step: Option<i64>,
    /// The exponent of `zipf`.
    pub exponent: Option<f64>,
    /// The values, instead of `count`.
    pub values: Option<Vec<Located<FieldValue>>>,
}

/// A number, or an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FieldValue {
    /// A number.
    Number(i64),
    /// An IPv4, IPv6 or Ethernet address.
    Text(String),
}

impl<'de> Deserialize<'de> for FieldValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumberOrAddress)
    }
}

struct NumberOrAddress;

impl Visitor<'_> for NumberOrAddress {
    type Value = FieldValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, or an address, as in \"198.18.0.1\"")
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<FieldValue, E> {
        Ok(FieldValue::Number(number))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<FieldValue, E> {
        Ok(FieldValue::Text(text.to_owned()))
    }
}

/// `64`, or a text that names a mix.
fn sizes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Located<Sizes>>, D::Error> {
    struct NumberOrMix(Sizes);
    impl<'de> Deserialize<'de> for NumberOrMix {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct Read;
            impl Visitor<'_> for Read {
                type Value = Sizes;

                fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str("a frame size, as in 64, or a mix, as in \"imix\"")
                }

                fn visit_i64<E: de::Error>(self, number: i64) -> Result<Sizes, E> {
                    number.to_string().parse().map_err(E::custom)
                }

                fn visit_str<E: de::Error>(self, text: &str) -> Result<Sizes, E> {
                    text.parse().map_err(E::custom)
                }
            }
            deserializer.deserialize_any(Read).map(Self)
        }
    }
    let read = Located::<NumberOrMix>::deserialize(deserializer)?;
    Ok(Some(read.map(|NumberOrMix(sizes)| sizes)))
}

/// An address of one family; the standard library's errors don't say what one looks like.
struct Address<T>(T);

impl<T: FromStr + Family> FromStr for Address<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (family, example) = (T::NAME, T::EXAMPLE);
        text.parse()
            .map(Self)
            .map_err(|_| format!("\"{text}\" is no {family} address: expected one as in \"{example}\""))
    }
}

trait Family {
    const NAME: &str;
    const EXAMPLE: &str;
}

impl Family for Ipv4Addr {
    const NAME: &str = "IPv4";
    const EXAMPLE: &str = "198.18.0.1";
}

impl Family for Ipv6Addr {
    const NAME: &str = "IPv6";
    const EXAMPLE: &str = "2001:2::1";
}

fn ipv4<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Located<Ipv4Addr>, D::Error> {
    from_text::<_, Address<Ipv4Addr>>(deserializer).map(|address| address.map(|Address(address)| address))
}

fn ipv6<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Located<Ipv6Addr>, D::Error> {
    from_text::<_, Address<Ipv6Addr>>(deserializer).map(|address| address.map(|Address(address)| address))
}
