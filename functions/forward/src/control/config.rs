//! The configuration of a forwarder: [`ForwardSettings`], which a TOML file or flags fill, and what they come to once they
//! are checked, a [`Config`]. That is complete: what it refers to exists, so building [`Routes`](super::Routes) from it
//! can't meet an unknown name.

mod check;
mod error;
mod flow;
mod overlay;
mod rule;
mod settings;
mod value;

use std::net::IpAddr;

use serde::de::{DeserializeOwned, IgnoredAny};

pub use self::settings::{
    ForwardSettings, FullTableEntry, Host, IcmpEntry, NeighbourEntry, PoolEntry, PortEntry, RouteEntry, Via,
    ViaEntry,
};
pub use error::{ConfigError, ConfigProblem};
pub use flow::{FlowConfig, FlowEntry};
pub use overlay::{AccessEntry, GroupConfig, OverlayConfig, OverlayEntry, StationEntry};
pub use rule::{Network, Protocol, RssKey, RuleEntry};
pub use value::{OrText, ValueError};
use warmlane_mem::{PoolConfig, PoolKind};
use warmlane_port::steering::Rule;
use warmlane_settings::{SettingsError, from_toml};
use warmlane_table::IpPrefix;
use warmlane_wire::MacAddress;

/// Smallest MTU of a link that carries IPv4 (RFC 791 section 3.2).
pub const MINIMUM_MTU_IPV4: u16 = 68;

/// Smallest MTU of a link that carries IPv6 (RFC 8200 section 5).
pub const MINIMUM_MTU_IPV6: u16 = 1280;

/// MTU of a port that says nothing (RFC 894).
pub const DEFAULT_MTU: u16 = 1500;

/// A whole forwarder, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// How many lanes share the ports' queues.
    pub lanes: usize,
    /// How many packets a lane gathers at once, at most 256.
    pub burst: usize,
    /// Where buffers come from.
    pub pool: PoolSettings,
    /// How many ICMP errors each lane may send.
    pub icmp: IcmpLimits,
    /// The ports; a port's number, as in [`Packet::port`](warmlane_mem::Packet::port), is its index here.
    pub ports: Vec<PortConfig>,
    /// Neighbours whose Ethernet address is known.
    pub neighbours: Vec<NeighbourConfig>,
    /// Routes; no prefix is there twice.
    pub routes: Vec<RouteConfig>,
    /// Flows that don't go by their routes; none is there twice.
    pub flows: Vec<FlowConfig>,
    /// Next hops of the embedded Internet table.
    pub full_table: FullTableConfig,
    /// Networks bridged over IP, each with its own accesses, and of one protocol each with its own identifier.
    pub overlays: Vec<OverlayConfig>,
}

/// Buffers: how many, how large, which pool. What isn't given is the pool's own default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolSettings {
    /// Number of buffers.
    pub buffers: Option<u32>,
    /// Bytes of data that one buffer holds.
    pub data_size: Option<usize>,
    /// Kind of pool.
    pub kind: Option<PoolKind>,
}

impl PoolSettings {
    /// The settings as pools take them.
    pub fn pool_config(&self, name: &str) -> PoolConfig {
        let mut config = PoolConfig { name: name.to_owned(), ..PoolConfig::default() };
        config.buffers = self.buffers.unwrap_or(config.buffers);
        config.data_size = self.data_size.unwrap_or(config.data_size);
        config.kind = self.kind.unwrap_or(config.kind);
        config
    }
}

/// How many ICMP errors one lane sends (RFC 1812 section 4.3.2.8, RFC 4443 section 2.4 (f)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IcmpLimits {
    /// A second, on average.
    pub rate: u32,
    /// At once.
    pub burst: u32,
}

impl Default for IcmpLimits {
    fn default() -> Self {
        Self { rate: 1000, burst: 50 }
    }
}

/// A port.
#[derive(Debug, Clone, PartialEq)]
pub struct PortConfig {
    /// Its name, unique.
    pub name: String,
    /// Our addresses on the port's link.
    pub addresses: Vec<InterfaceAddress>,
    /// Largest IP packet that the link carries, in bytes, without Ethernet header.
    pub mtu: u16,
    /// Our Ethernet address. Without one the port takes unicast frames whoever they are for.
    pub mac: Option<MacAddress>,
    /// Frames of a flow that are received together are merged ([`warmlane_port::Port::merging`]). Whoever opens the port sees to it.
    pub gro: bool,
    /// Flows are spread over lanes by their hash ([`Self::steering`]). Likewise.
    pub rss: Option<RssKey>,
    /// Which lane packets are for, or that they are dropped. Likewise.
    pub rules: Vec<Rule>,
}

/// An address of ours together with the length of its link's prefix, as in `192.0.2.1/24`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// The address.
    pub address: IpAddr,
    /// Bits of it that all hosts on the link share.
    pub length: u8,
}

/// A neighbour on a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NeighbourConfig {
    /// Its IP address.
    pub address: IpAddr,
    /// Its Ethernet address.
    pub mac: MacAddress,
    /// Number of the port it is behind.
    pub port: usize,
    /// VLAN that frames to it are tagged with.
    pub vlan: Option<u16>,
}

/// A route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteConfig {
    /// Where to.
    pub prefix: IpPrefix,
    /// Which way.
    pub target: RouteTarget,
}

/// Which way a route goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteTarget {
    /// Through these neighbours (their numbers) in the ratio of the weights.
    Via(Vec<(usize, u16)>),
    /// All addresses are hosts on the link of the port with this number.
    OnLink(usize),
    /// Nowhere, without a word.
    Drop,
    /// Nowhere, and the sender is told.
    Unreachable,
}

/// Over which neighbours (their numbers) the embedded table's prefixes are spread.
///
/// A prefix goes to entry *h* mod *n* of its family's list of *n*, where *h* is the 64-bit FNV-1a hash of the prefix's
/// text, as in `192.0.2.0/24` or `2001:db8::/32` (RFC 5952). An empty list leaves the family's table out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FullTableConfig {
    /// For IPv4 prefixes.
    pub ipv4: Vec<usize>,
    /// For IPv6 prefixes.
    pub ipv6: Vec<usize>,
}

impl FullTableConfig {
    /// Which of `count` entries the prefix with this text goes to. `count` of zero gives zero.
    pub fn entry(prefix: &str, count: usize) -> usize {
        let hash = prefix.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        (hash % (count as u64).max(1)) as usize
    }
}

impl Default for Config {
    /// One lane, bursts of 64, no ports yet.
    fn default() -> Self {
        Self {
            lanes: 1,
            burst: 64,
            pool: PoolSettings::default(),
            icmp: IcmpLimits::default(),
            ports: Vec::new(),
            neighbours: Vec::new(),
            routes: Vec::new(),
            flows: Vec::new(),
            full_table: FullTableConfig::default(),
            overlays: Vec::new(),
        }
    }
}

impl Config {
    /// Reads and checks a configuration. What it says of ports' drivers is skipped.
    ///
    /// # Errors
    /// [`ConfigError`]: the first thing that is wrong, with its place and what to do.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        Self::with_drivers::<Option<IgnoredAny>>(text).map(|(config, _)| config)
    }

    /// The same with what each port says as its `driver`: who opens ports knows what that is.
    ///
    /// # Errors
    /// [`ConfigError`]: the first thing that is wrong, with its place and what to do.
    pub fn with_drivers<D: DeserializeOwned>(text: &str) -> Result<(Self, Vec<D>), ConfigError> {
        let settings: ForwardSettings<D> = from_toml(text).map_err(SettingsError::cast)?;
        settings.check().map_err(|fault| fault.in_text(text))
    }
}
