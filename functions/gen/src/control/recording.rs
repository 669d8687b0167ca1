//! Recorded packets, to be sent again: when they were, faster or slower, and between other endpoints.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use thiserror::Error;
use warmlane_mem::Frames;
use warmlane_wire::{IpProtocol, LinkLayer, MacAddress, checksum, ipv4, ipv6, tcp, udp};

use super::profile::ProfileError;
use super::template::FCS;
use crate::datapath::{MAXIMUM_CHECKSUMS, Pattern, Plan, Shape, StreamPlan};

/// Packets in the order of a capture.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// Nanoseconds from the first packet, never falling.
    times: Vec<u64>,
    frames: Vec<Vec<u8>>,
    first: u64,
}

/// An address, or the first bits of one, that becomes another: `10.0.0.0/8=198.0.0.0/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rewrite {
    from: IpAddr,
    to: IpAddr,
    length: u8,
}

/// A text that is no rewrite.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "\"{text}\" is no pair of addresses: expected two of one family, as in 10.0.0.1=198.18.0.1, or prefixes of one length, as in 10.0.0.0/8=198.0.0.0/8"
)]
pub struct RewriteError {
    /// What was given.
    pub text: String,
}

impl FromStr for Rewrite {
    type Err = RewriteError;

    fn from_str(text: &str) -> Result<Self, RewriteError> {
        let side = |text: &str| {
            let (address, length) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
            let address: IpAddr = address.trim().parse().ok()?;
            let longest = if address.is_ipv4() { 32 } else { 128 };
            let length = length.map_or(Some(longest), |length| length.trim().parse().ok())?;
            (length <= longest).then_some((address, length))
        };
        let pair = text.split_once('=').and_then(|(from, to)| Some((side(from)?, side(to)?)));
        match pair {
            Some(((from, length), (to, other))) if length == other && from.is_ipv4() == to.is_ipv4() => {
                Ok(Self { from, to, length })
            }
            _ => Err(RewriteError { text: text.to_owned() }),
        }
    }
}

impl fmt::Display for Rewrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}={}/{}", self.from, self.length, self.to, self.length)
    }
}

impl Rewrite {
    fn ipv4(self, address: u32) -> Option<u32> {
        let (IpAddr::V4(from), IpAddr::V4(to)) = (self.from, self.to) else { return None };
        let host = u32::MAX.checked_shr(self.length.into()).unwrap_or(0);
        ((address ^ from.to_bits()) & !host == 0).then_some(to.to_bits() & !host | address & host)
    }

    fn ipv6(self, address: u128) -> Option<u128> {
        let (IpAddr::V6(from), IpAddr::V6(to)) = (self.from, self.to) else { return None };
        let host = u128::MAX.checked_shr(self.length.into()).unwrap_or(0);
        ((address ^ from.to_bits()) & !host == 0).then_some(to.to_bits() & !host | address & host)
    }
}

/// Between which addresses a recording is sent.
#[derive(Clone, Debug, Default)]
pub struct Endpoints {
    /// The source of all frames, if it is not to stay.
    pub source: Option<MacAddress>,
    /// Their destination.
    pub destination: Option<MacAddress>,
    /// Addresses that become others, as source and as destination. Of several that fit the first counts.
    pub addresses: Vec<Rewrite>,
}

impl Recording {
    /// No packets.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a packet: nanoseconds of a clock, and the whole frame without check sequence. One that is older than the
    /// one before counts as of the same time.
    pub fn push(&mut self, nanoseconds: u64, frame: &[u8]) {
        if self.frames.is_empty() {
            self.first = nanoseconds;
        }
        let last = self.times.last().copied().unwrap_or(0);
        self.times.push(nanoseconds.saturating_sub(self.first).max(last));
        self.frames.push(frame.to_vec());
    }

    /// How many packets there are.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Whether its packets have times that differ.
    pub fn has_times(&self) -> bool {
        self.times.last().is_some_and(|last| *last > 0)
    }

    /// Replaces addresses. Checksums that depend on them change with them (RFC 1624), so that wrong ones stay wrong.
    pub fn rewrite(&mut self, endpoints: &Endpoints) {
        for frame in &mut self.frames {
            for (offset, mac) in [(0, endpoints.destination), (6, endpoints.source)] {
                if let (Some(mac), Some(bytes)) = (mac, frame.get_mut(offset..offset + 6)) {
                    bytes.copy_from_slice(&mac.0);
                }
            }
            if !endpoints.addresses.is_empty() {
                rewrite_addresses(frame, &endpoints.addresses);
            }
        }
    }

    /// When its packets leave at `speed` times the recorded one, over and over; `cycles_per_second` are the clock's.
    /// A round ends a mean gap after its last packet.
    pub fn pattern(&self, speed: f64, cycles_per_second: u64) -> Pattern {
        let cycles_per_nanosecond = cycles_per_second as f64 / 1e9 / speed;
        let last = self.times.last().copied().unwrap_or(0);
        let gap = last / (self.times.len() as u64).saturating_sub(1).max(1);
        let times = self.times.iter().copied().chain([last + gap.max(1)]);
        #[expect(clippy::cast_sign_loss, reason = "times and speeds are not negative")]
        Pattern::Recorded(times.map(|time| (time as f64 * cycles_per_nanosecond) as u64).collect())
    }

    /// What a transmit lane works from.
    ///
    /// # Errors
    /// [`ProfileError`], if there are no packets, or too many.
    pub fn plan(&self) -> Result<Plan, ProfileError> {
        if self.frames.is_empty() {
            return Err(ProfileError::NoStream);
        }
        let mut frames = Frames::new();
        let mut shapes = Vec::with_capacity(self.frames.len());
        for (number, frame) in (0_u32..).zip(&self.frames) {
            frames.push(frame)?;
            shapes.push(Shape { frame: number, length: frame.len() as u32, bases: [0; MAXIMUM_CHECKSUMS] });
        }
        let mean_size = frames.bytes() as f64 / self.frames.len() as f64 + FCS as f64;
        let stream = StreamPlan {
            name: Arc::from("recording"),
            signed: false,
            shapes: shapes.into(),
            fields: Box::default(),
            checksums: Box::default(),
            one_field: None,
        };
        Ok(Plan { frames, streams: Box::new([stream]), schedule: Box::default(), mean_size })
    }
}

/// Replaces addresses in an IP packet, and corrects its checksums.
fn rewrite_addresses(frame: &mut [u8], rewrites: &[Rewrite]) {
    let Ok(link) = LinkLayer::parse(frame) else { return };
    let network = frame.len() - link.payload.len();
    let Some(packet) = frame.get_mut(network..) else { return };
    match packet.first().map(|first| first >> 4) {
        Some(4) => rewrite_ipv4(packet, rewrites),
        Some(6) => rewrite_ipv6(packet, rewrites),
        _ => {}
    }
}

/// A checksum in a packet, and which it is.
struct Checksum {
    offset: usize,
    is_udp: bool,
}

/// Where the upper layer's checksum is, if it covers addresses.
fn upper_checksum(protocol: IpProtocol, upper: usize) -> Option<Checksum> {
    match protocol {
        IpProtocol::UDP => Some(Checksum { offset: upper + udp::CHECKSUM_OFFSET, is_udp: true }),
        IpProtocol::TCP => Some(Checksum { offset: upper + tcp::CHECKSUM_OFFSET, is_udp: false }),
        IpProtocol::ICMPV6 => Some(Checksum { offset: upper + 2, is_udp: false }),
        _ => None,
    }
}

/// Applies a change to a checksum, if it is in the packet.
fn correct(packet: &mut [u8], checksum: &Checksum, change: impl Fn(u16) -> u16) {
    let Some(bytes) = packet.get_mut(checksum.offset..checksum.offset + 2) else { return };
    let old = u16::from_be_bytes([bytes[0], bytes[1]]);
    // A UDP checksum of 0 is none (RFC 768).
    if checksum.is_udp && old == 0 {
        return;
    }
    let new = change(old);
    let new = if checksum.is_udp { udp::sendable(new) } else { new };
    bytes.copy_from_slice(&new.to_be_bytes());
}

fn rewrite_ipv4(packet: &mut [u8], rewrites: &[Rewrite]) {
    let Ok(checked) = ipv4::check_lengths(packet) else { return };
    let header_length = checked.header.header_length();
    // Only the first fragment has the upper layer's header.
    let upper = (checked.header.fragment_offset() == 0)
        .then(|| upper_checksum(checked.header.protocol(), header_length))
        .flatten()
        .filter(|checksum| checked.header.protocol() != IpProtocol::ICMPV6 && checksum.offset < packet.len());
    for offset in [12, 16] {
        let Some(old) = packet.get(offset..).and_then(<[u8]>::first_chunk).copied().map(u32::from_be_bytes)
        else {
            return;
        };
        let Some(new) = rewrites.iter().find_map(|rewrite| rewrite.ipv4(old)) else { continue };
        packet[offset..offset + 4].copy_from_slice(&new.to_be_bytes());
        let change = |sum: u16| checksum::update_u32(sum, old, new);
        correct(packet, &Checksum { offset: 10, is_udp: false }, change);
        if let Some(upper) = &upper {
            correct(packet, upper, change);
        }
    }
}

fn rewrite_ipv6(packet: &mut [u8], rewrites: &[Rewrite]) {
    let Ok(checked) = ipv6::check(packet) else { return };
    let upper = checked.upper_layer().ok().filter(ipv6::UpperLayer::is_present);
    let upper = upper.and_then(|upper| upper_checksum(upper.protocol, upper.offset));
    for offset in [8, 24] {
        let Some(old) = packet.get(offset..).and_then(<[u8]>::first_chunk).copied().map(u128::from_be_bytes)
        else {
            return;
        };
        let Some(new) = rewrites.iter().find_map(|rewrite| rewrite.ipv6(old)) else { continue };
        packet[offset..offset + 16].copy_from_slice(&new.to_be_bytes());
        if let Some(upper) = &upper {
            correct(packet, upper, |sum| checksum::update_u128(sum, old, new));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_keep_what_is_behind_them() {
        let rewrite: Rewrite = "10.0.0.0/8=198.18.0.0/8".parse().unwrap();
        assert_eq!(rewrite.ipv4(0x0a01_0203), Some(0xc601_0203));
        assert_eq!(rewrite.ipv4(0x0b01_0203), None);
        let rewrite: Rewrite = "2001:db8::1=2001:2::9".parse().unwrap();
        assert_eq!(rewrite.ipv6(0x2001_0db8_u128 << 96 | 1), Some(0x2001_0002_u128 << 96 | 9));
        assert_eq!("0.0.0.0/0=192.0.2.0/0".parse::<Rewrite>().unwrap().ipv4(7), Some(7));
        for text in ["10.0.0.1", "10.0.0.1=::1", "10.0.0.0/8=11.0.0.0/9", "10.0.0.0/33=11.0.0.0/33", "a=b"] {
            let error = text.parse::<Rewrite>().unwrap_err().to_string();
            assert!(error.contains("expected two of one family"), "{error}");
        }
    }

    #[test]
    fn time_goes_by_the_speed_and_never_back() {
        let mut recording = Recording::new();
        for time in [5_000, 6_000, 5_500, 8_000] {
            recording.push(time, &[0; 14]);
        }
        let Pattern::Recorded(times) = recording.pattern(2.0, 4_000_000_000) else { panic!("recorded") };
        assert_eq!(*times, [0, 2_000, 2_000, 6_000, 8_000]);
        assert!(recording.has_times() && Recording::new().plan().is_err());
    }
}
