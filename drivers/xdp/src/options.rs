//! What a port should be like.

use crate::bpf::Steering;
use serde::de::IntoDeserializer as _;
use serde::de::value::{Error as ValueError, StrDeserializer};
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// How to exchange packets with the kernel.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum XdpMode {
    /// Without copies if the interface's driver can, else with; in the driver if it can, else in the network stack.
    #[default]
    Best,
    /// Without copies, or not at all.
    ZeroCopy,
    /// With copies, in the driver.
    Copy,
    /// With copies, in the network stack: works on any interface, and is the slowest.
    Generic,
}

impl XdpMode {
    /// The words for the modes, the default first.
    pub const WORDS: [&'static str; 4] = ["best", "zero-copy", "copy", "generic"];
}

/// By the word that configuration files have for it.
impl FromStr for XdpMode {
    type Err = ValueError;

    fn from_str(word: &str) -> Result<Self, ValueError> {
        let deserializer: StrDeserializer<'_, ValueError> = word.into_deserializer();
        Self::deserialize(deserializer)
    }
}

impl std::fmt::Display for XdpMode {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [best, zero_copy, copy, generic] = Self::WORDS;
        formatter.write_str(match self {
            Self::Best => best,
            Self::ZeroCopy => zero_copy,
            Self::Copy => copy,
            Self::Generic => generic,
        })
    }
}

/// What a port should be like.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a key of its own in files")]
pub struct XdpOptions {
    /// The interface's name.
    pub interface: String,
    /// Entries in each ring: a power of two from 64 to 32,768; `None` is [`RING`](Self::RING).
    #[serde(default)]
    pub ring: Option<u32>,
    /// How to exchange packets.
    #[serde(default)]
    pub mode: XdpMode,
    /// Which packets come here, and which stay with the kernel.
    #[serde(default)]
    pub steering: Steering,
    /// Take everything even if nobody can reach the kernel's addresses on this interface any more.
    #[serde(default)]
    pub take_all: bool,
    /// Packets whose time to live ends here stay with the kernel, which answers them. Not if everything is taken.
    #[serde(default)]
    pub pass_expiring: bool,
    /// Let our own system calls do the interface's work (`SO_PREFER_BUSY_POLL`). It only helps where the interface's
    /// interrupts are deferred (`napi_defer_hard_irqs` and `gro_flush_timeout` under `/sys/class/net/NAME`).
    #[serde(default)]
    pub busy_poll: bool,
    /// Leave the checksums that are to be completed to the card, or to the kernel, where packets are copied (Linux 6.11 or later).
    #[serde(default = "yes")]
    pub offloads: bool,
}

const fn yes() -> bool {
    true
}

impl Default for XdpOptions {
    fn default() -> Self {
        Self {
            interface: String::new(),
            ring: None,
            mode: XdpMode::default(),
            steering: Steering::default(),
            take_all: false,
            pass_expiring: false,
            busy_poll: false,
            offloads: true,
        }
    }
}

impl XdpOptions {
    /// Entries in a ring, if nothing is said.
    pub const RING: u32 = 2048;
    /// The most entries of a ring.
    pub const LONGEST_RING: u32 = 32_768;

    /// The defaults, for this interface.
    pub fn new(interface: &str) -> Self {
        Self { interface: interface.to_owned(), ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_have_one_word_each() {
        for word in XdpMode::WORDS {
            assert_eq!(word.parse::<XdpMode>().unwrap().to_string(), word);
        }
        assert_eq!(XdpMode::default().to_string(), XdpMode::WORDS[0]);
        assert!("fast".parse::<XdpMode>().unwrap_err().to_string().contains("zero-copy"));
    }
}
