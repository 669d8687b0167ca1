//! The keys of the file, with the places of their values.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor, value::SeqAccessDeserializer};
use toml::Spanned;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    pub(super) lanes: Option<Spanned<i64>>,
    pub(super) burst: Option<Spanned<i64>>,
    #[serde(default)]
    pub(super) pool: Pool,
    #[serde(default)]
    pub(super) icmp: Icmp,
    #[serde(default, rename = "port")]
    pub(super) ports: Vec<Port>,
    #[serde(default, rename = "neighbour")]
    pub(super) neighbours: Vec<Neighbour>,
    #[serde(default, rename = "route")]
    pub(super) routes: Vec<Route>,
    #[serde(default)]
    pub(super) full_table: FullTable,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct Pool {
    pub(super) buffers: Option<Spanned<i64>>,
    pub(super) room: Option<Spanned<i64>>,
    pub(super) kind: Option<PoolKind>,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
pub(super) enum PoolKind {
    Depot,
    Stack,
    Ring,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct Icmp {
    pub(super) rate: Option<Spanned<i64>>,
    pub(super) burst: Option<Spanned<i64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Port {
    pub(super) name: Spanned<String>,
    pub(super) driver: String,
    #[serde(default)]
    pub(super) options: toml::Table,
    #[serde(default)]
    pub(super) addresses: Vec<Spanned<String>>,
    pub(super) mtu: Option<Spanned<i64>>,
    pub(super) mac: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Neighbour {
    pub(super) address: Spanned<String>,
    pub(super) mac: Spanned<String>,
    pub(super) port: Spanned<String>,
    pub(super) vlan: Option<Spanned<i64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Route {
    pub(super) prefix: Spanned<String>,
    pub(super) via: Option<Spanned<Via>>,
    pub(super) port: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) drop: bool,
    #[serde(default)]
    pub(super) unreachable: bool,
}

/// `"192.0.2.1"` or `[{ via = "192.0.2.1", weight = 2 }, ..]`.
pub(super) enum Via {
    One(String),
    Many(Vec<NextHop>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NextHop {
    pub(super) via: Spanned<String>,
    pub(super) weight: Option<Spanned<i64>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct FullTable {
    #[serde(default)]
    pub(super) ipv4: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) ipv6: Vec<Spanned<String>>,
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

            fn visit_str<E>(self, text: &str) -> Result<Via, E> {
                Ok(Via::One(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Via, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(Via::Many)
            }
        }
        // `deserialize_any` keeps the places of what is inside, which an untagged enum would lose.
        deserializer.deserialize_any(EitherForm)
    }
}
