//! A service group: modems, their service flows, the channels that these share, and the tunnel to the remote PHY.

use std::collections::HashSet;
use std::net::IpAddr;
use std::time::Duration;

use warmlane_wire::MacAddress;

use super::error::ConfigError;
use super::keys::KeySource;
use crate::lower::{LONGEST_PAYLOAD, Tunnel};
use crate::upper::{Match, SNAP};

/// The least that a burst may be: a frame of 1,518 bytes with a tag (MULPI annex C.2.2.6.3).
const SMALLEST_BURST: u64 = 1_522;

/// Bytes of the largest Ethernet frame that is sent to a modem, CRC included: what a bucket must let pass.
pub const LARGEST_FRAME: u64 = LONGEST_PAYLOAD as u64;

/// What passes at once beyond the peak rate (MULPI annex C.2.2.6.8).
pub(crate) const PEAK_BURST: u64 = 1_522;

/// Identifiers of DSIDs have 20 bits.
const DSIDS: usize = 1 << 20;

/// All that a downstream instance works by. [`check`](Self::check) says what is wrong with it.
#[derive(Debug, Clone, PartialEq)]
pub struct ServiceGroup {
    /// The modems; a modem's number is its index here.
    pub modems: Vec<Modem>,
    /// The service flows; a flow's number is its index here. If it is sent over several channels, that plus one is its DSID.
    pub flows: Vec<ServiceFlow>,
    /// The channels.
    pub channels: Vec<Channel>,
    /// Sets of channels that flows are sent over; one channel alone is a group of its own.
    pub groups: Vec<Group>,
    /// What may be sent to whom.
    pub filters: Vec<FilterGroup>,
    /// The tunnel to the remote PHY.
    pub tunnel: Tunnel,
    /// Where keys come from.
    pub keys: KeySource,
    /// Bounds of time and space.
    pub limits: Limits,
    /// Whether CRCs are made anew. Without, modems can't check what they get: for measurements only.
    pub crc: bool,
    /// Whether frames are encrypted.
    pub encryption: bool,
}

/// Bounds of time and space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Packets that wait in all queues together.
    pub packets: u32,
    /// How long a packet may wait before it is dropped.
    pub age: Duration,
    /// How long a packet to the remote PHY may wait for more frames.
    pub flush: Duration,
    /// How long modems wait for a packet that is missing (MULPI annex B: 18 ms at most).
    pub resequencing: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            packets: 32_768,
            age: Duration::from_millis(500),
            flush: Duration::from_micros(100),
            resequencing: Duration::from_millis(18),
        }
    }
}

/// A modem.
#[derive(Debug, Clone, PartialEq)]
pub struct Modem {
    /// Its own Ethernet address.
    pub mac: MacAddress,
    /// The Ethernet addresses behind it that are known.
    pub cpe_macs: Vec<MacAddress>,
    /// The addresses of the devices behind it.
    pub addresses: Vec<IpAddr>,
    /// Whether only these addresses are served (subscriber management).
    pub enforces_addresses: bool,
    /// Its security association, 1 to 16383.
    pub said: u16,
    /// The filter group of packets to it, an index.
    pub filter: Option<usize>,
    /// Its classifiers.
    pub classifiers: Vec<Classifier>,
    /// The flow of packets that no classifier matches, an index.
    pub primary_flow: usize,
}

/// Which packets are of which flow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Classifier {
    /// The highest matching one decides.
    pub priority: u8,
    /// Which packets.
    pub matches: Match,
    /// The flow, an index.
    pub flow: usize,
}

/// A service flow. Rates are in bits a second, of bytes from the destination address to the CRC.
#[derive(Debug, Clone, PartialEq)]
pub struct ServiceFlow {
    /// The modem it leads to, an index.
    pub modem: usize,
    /// The channels it is sent over, an index.
    pub group: usize,
    /// Traffic priority, 0 to 7.
    pub priority: u8,
    /// Maximum sustained traffic rate; `None` for no limit.
    pub maximum_rate: Option<u64>,
    /// Maximum traffic burst in bytes.
    pub maximum_burst: u64,
    /// Peak traffic rate; `None` for no limit.
    pub peak_rate: Option<u64>,
    /// Minimum reserved traffic rate; 0 for none.
    pub minimum_rate: u64,
    /// Packets that its queue holds.
    pub queue: u32,
}

impl ServiceFlow {
    /// Bytes of the longest frame that its buckets ever let pass, CRC included.
    pub fn longest_frame(&self) -> u32 {
        let maximum = if self.maximum_rate.is_some() { self.maximum_burst } else { LARGEST_FRAME };
        let peak = if self.peak_rate.is_some() { PEAK_BURST } else { LARGEST_FRAME };
        maximum.min(peak).min(LARGEST_FRAME) as u32
    }

    /// A flow without limits, of lowest priority.
    pub const fn best_effort(modem: usize, group: usize) -> Self {
        Self {
            modem,
            group,
            priority: 0,
            maximum_rate: None,
            maximum_burst: 3_044,
            peak_rate: None,
            minimum_rate: 0,
            queue: 1_024,
        }
    }
}

/// What a channel is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChannelKind {
    /// DOCSIS 3.1.
    Ofdm,
    /// DOCSIS 3.0 and before.
    ScQam,
}

/// A downstream channel.
#[derive(Debug, Clone, PartialEq)]
pub struct Channel {
    /// What reports call it.
    pub name: String,
    /// What it is made of.
    pub kind: ChannelKind,
    /// Bits a second that it carries, MAC headers included.
    pub rate: u64,
    /// The L2TPv3 session of its pseudowire.
    pub session: u32,
    /// The PSP flow of its pseudowire, 0 to 7.
    pub psp_flow: u8,
}

/// Channels that share flows.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// The channels, indices.
    pub channels: Vec<usize>,
}

/// Rules for packets to a modem; the first that matches decides.
#[derive(Debug, Clone, PartialEq)]
pub struct FilterGroup {
    /// The rules.
    pub rules: Vec<FilterRule>,
    /// What becomes of packets that none matches.
    pub otherwise: Action,
}

/// A rule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FilterRule {
    /// Which packets.
    pub matches: Match,
    /// What becomes of them.
    pub action: Action,
}

/// What a filter does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// It lets the packet pass.
    Permit,
    /// It drops the packet.
    Deny,
}

impl ServiceGroup {
    /// Whether all that is referred to exists, and all numbers are such that they can be kept.
    ///
    /// # Errors
    /// [`ConfigError`]: the first thing that is wrong.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.modems.is_empty() {
            return Err(ConfigError::NoModems);
        }
        if self.flows.len() >= DSIDS {
            return Err(ConfigError::TooManyFlows { flows: self.flows.len() });
        }
        if self.flows.len() > self.limits.packets as usize {
            return Err(ConfigError::TooFewPlaces { flows: self.flows.len(), packets: self.limits.packets });
        }
        self.check_channels()?;
        for (number, filter) in self.filters.iter().enumerate() {
            for rule in &filter.rules {
                check_match(&rule.matches, || format!("filter group {number}"))?;
            }
        }
        for (number, flow) in self.flows.iter().enumerate() {
            self.check_flow(number, flow)?;
        }
        let mut seen = HashSet::new();
        for (number, modem) in self.modems.iter().enumerate() {
            self.check_modem(number, modem)?;
            let addresses = modem.addresses.iter().map(ToString::to_string);
            let macs = modem.cpe_macs.iter().chain([&modem.mac]).map(ToString::to_string);
            for address in addresses.chain(macs) {
                if !seen.insert(address.clone()) {
                    return Err(ConfigError::AddressTwice { address });
                }
            }
        }
        self.check_use()
    }

    /// Whether each channel has a flow.
    fn check_use(&self) -> Result<(), ConfigError> {
        let mut is_used = vec![false; self.channels.len()];
        let groups: HashSet<usize> = self.flows.iter().map(|flow| flow.group).collect();
        for channel in
            groups.iter().filter_map(|group| self.groups.get(*group)).flat_map(|group| &group.channels)
        {
            if let Some(is_used) = is_used.get_mut(*channel) {
                *is_used = true;
            }
        }
        match is_used.iter().zip(&self.channels).find(|(is_used, _)| !**is_used) {
            Some((_, channel)) => Err(ConfigError::UnusedChannel { channel: channel.name.clone() }),
            None => Ok(()),
        }
    }

    fn check_channels(&self) -> Result<(), ConfigError> {
        let mut sessions = HashSet::new();
        for channel in &self.channels {
            let name = || channel.name.clone();
            if channel.rate == 0 {
                return Err(ConfigError::ChannelRate { channel: name() });
            }
            if !sessions.insert(channel.session) {
                return Err(ConfigError::SessionTwice { channel: name(), session: channel.session });
            }
        }
        for (group, Group { channels }) in self.groups.iter().enumerate() {
            if channels.is_empty() {
                return Err(ConfigError::EmptyGroup { group });
            }
            if let Some(channel) = channels.iter().find(|channel| **channel >= self.channels.len()) {
                return Err(ConfigError::NoSuch {
                    what: "channel",
                    number: *channel,
                    user: format!("group {group}"),
                });
            }
        }
        Ok(())
    }

    fn check_flow(&self, number: usize, flow: &ServiceFlow) -> Result<(), ConfigError> {
        let user = || format!("service flow {number}");
        if flow.group >= self.groups.len() {
            return Err(ConfigError::NoSuch { what: "group", number: flow.group, user: user() });
        }
        if flow.modem >= self.modems.len() {
            return Err(ConfigError::NoSuch { what: "modem", number: flow.modem, user: user() });
        }
        if flow.priority > 7 {
            return Err(ConfigError::Priority { flow: number, priority: flow.priority });
        }
        if flow.maximum_rate == Some(0) || flow.peak_rate == Some(0) {
            return Err(ConfigError::ZeroRate { flow: number });
        }
        if flow.maximum_burst < SMALLEST_BURST {
            return Err(ConfigError::Burst { flow: number, burst: flow.maximum_burst });
        }
        if flow.queue == 0 {
            return Err(ConfigError::NoQueue { flow: number });
        }
        Ok(())
    }

    fn check_modem(&self, number: usize, modem: &Modem) -> Result<(), ConfigError> {
        let user = || format!("modem {}", modem.mac);
        if !(1..1 << 14).contains(&modem.said) {
            return Err(ConfigError::Said { modem: modem.mac, said: modem.said });
        }
        if let Some(filter) = modem.filter
            && filter >= self.filters.len()
        {
            return Err(ConfigError::NoSuch { what: "filter group", number: filter, user: user() });
        }
        let flows = modem.classifiers.iter().map(|classifier| classifier.flow).chain([modem.primary_flow]);
        for flow in flows {
            match self.flows.get(flow) {
                None => return Err(ConfigError::NoSuch { what: "service flow", number: flow, user: user() }),
                Some(found) if found.modem != number => {
                    return Err(ConfigError::ForeignFlow { modem: modem.mac, flow });
                }
                Some(_) => {}
            }
        }
        for (index, classifier) in modem.classifiers.iter().enumerate() {
            check_match(&classifier.matches, user)?;
            let clash = modem.classifiers[..index].iter().any(|other| {
                other.priority == classifier.priority
                    && other.flow != classifier.flow
                    && other.matches.overlaps(&classifier.matches)
            });
            if clash {
                return Err(ConfigError::Overlap { modem: modem.mac, priority: classifier.priority });
            }
        }
        Ok(())
    }
}

/// Whether there can be packets that match.
fn check_match(matches: &Match, user: impl FnOnce() -> String) -> Result<(), ConfigError> {
    if matches.dsap == Some(SNAP) { Err(ConfigError::SnapDsap { user: user() }) } else { Ok(()) }
}
