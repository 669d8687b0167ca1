//! The keys of the file, with the places of their values.

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};
use std::fmt;
use toml::Spanned;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    pub(super) rate: Option<Spanned<String>>,
    pub(super) pattern: Option<Spanned<String>>,
    #[serde(default, rename = "stream")]
    pub(super) streams: Vec<Spanned<Stream>>,
    pub(super) cable: Option<Spanned<Cable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Cable {
    pub(super) modems: Option<Spanned<i64>>,
    pub(super) size: Option<Spanned<Size>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stream {
    pub(super) name: Option<String>,
    pub(super) share: Option<Spanned<i64>>,
    pub(super) size: Option<Spanned<Size>>,
    pub(super) payload: Option<Spanned<String>>,
    pub(super) signature: Option<bool>,
    pub(super) packet: Packet,
    #[serde(default)]
    pub(super) vary: Vec<Spanned<Vary>>,
}

/// `64`, or a text that names a mix.
pub(super) enum Size {
    Number(i64),
    Text(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Packet {
    #[serde(default)]
    pub(super) ethernet: Ethernet,
    #[serde(default)]
    pub(super) vlan: Vec<Vlan>,
    pub(super) ipv4: Option<Spanned<Ipv4>>,
    pub(super) ipv6: Option<Spanned<Ipv6>>,
    pub(super) udp: Option<Spanned<Udp>>,
    pub(super) tcp: Option<Spanned<Tcp>>,
    pub(super) icmp: Option<Spanned<Icmp>>,
    pub(super) vxlan: Option<Spanned<Vxlan>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct Ethernet {
    pub(super) source: Option<Spanned<String>>,
    pub(super) destination: Option<Spanned<String>>,
    pub(super) ethertype: Option<Spanned<i64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Vlan {
    pub(super) id: Spanned<i64>,
    pub(super) priority: Option<Spanned<i64>>,
    #[serde(default)]
    pub(super) service: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ipv4 {
    pub(super) source: Spanned<String>,
    pub(super) destination: Spanned<String>,
    pub(super) dscp: Option<Spanned<i64>>,
    pub(super) ttl: Option<Spanned<i64>>,
    pub(super) identification: Option<Spanned<i64>>,
    #[serde(default)]
    pub(super) dont_fragment: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ipv6 {
    pub(super) source: Spanned<String>,
    pub(super) destination: Spanned<String>,
    pub(super) dscp: Option<Spanned<i64>>,
    pub(super) hop_limit: Option<Spanned<i64>>,
    pub(super) flow_label: Option<Spanned<i64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Udp {
    pub(super) source: Option<Spanned<i64>>,
    pub(super) destination: Option<Spanned<i64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tcp {
    pub(super) source: Option<Spanned<i64>>,
    pub(super) destination: Option<Spanned<i64>>,
    pub(super) sequence: Option<Spanned<i64>>,
    pub(super) acknowledgement: Option<Spanned<i64>>,
    pub(super) flags: Option<Spanned<String>>,
    pub(super) window: Option<Spanned<i64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Icmp {
    pub(super) identifier: Option<Spanned<i64>>,
    pub(super) sequence: Option<Spanned<i64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Vxlan {
    pub(super) vni: Spanned<i64>,
    pub(super) source: Option<Spanned<i64>>,
    #[serde(default)]
    pub(super) checksum: bool,
    pub(super) inner: Box<Packet>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Vary {
    pub(super) field: String,
    pub(super) order: Option<Spanned<String>>,
    pub(super) count: Option<Spanned<i64>>,
    pub(super) step: Option<i64>,
    pub(super) exponent: Option<f64>,
    pub(super) values: Option<Vec<Spanned<Value>>>,
}

/// A number, or an address.
pub(super) enum Value {
    Number(i64),
    Text(String),
}

/// Both of these are a number or a text.
macro_rules! number_or_text {
    ($type:ident, $expected:literal) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct EitherForm;
                impl Visitor<'_> for EitherForm {
                    type Value = $type;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expected)
                    }

                    fn visit_i64<E: de::Error>(self, number: i64) -> Result<$type, E> {
                        Ok($type::Number(number))
                    }

                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$type, E> {
                        Ok($type::Text(text.to_owned()))
                    }
                }
                deserializer.deserialize_any(EitherForm)
            }
        }
    };
}

number_or_text!(Size, "a frame size, as in 64, or a mix, as in \"imix\"");
number_or_text!(Value, "a number, or an address, as in \"198.18.0.1\"");
