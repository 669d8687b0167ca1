//! Frames for measurements and demonstrations, the same ones for the same seed.

use std::net::{Ipv4Addr, Ipv6Addr};
use warmlane_forward::control::full_table::{self, FullTableError};
use warmlane_mem::{Frames, TooManyFrames};
use warmlane_sys::random::Random;
use warmlane_wire::builder::{BuildError, Frame};
use warmlane_wire::ethernet::MacAddress;
use warmlane_wire::ipv4::Ipv4Fields;
use warmlane_wire::ipv6::Ipv6Fields;

/// Why traffic can't be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrafficError {
    /// The frames don't fit.
    #[error(transparent)]
    TooMany(#[from] TooManyFrames),
    /// The embedded table is damaged.
    #[error("the embedded routing table")]
    Table(#[from] FullTableError),
    /// A frame can't be built as described.
    #[error("a frame of the mix")]
    Frame(#[from] BuildError),
}

/// What a mix of frames should be like.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// How many frames.
    pub count: usize,
    /// The same seed gives the same frames.
    pub seed: u64,
    /// How many in a hundred are IPv6.
    pub ipv6_percent: usize,
    /// How many in a thousand can't be forwarded: expired, damaged, without route.
    pub bad_permille: usize,
    /// Frame lengths in bytes, without the frame check sequence, drawn evenly.
    pub lengths: &'static [usize],
}

impl Mix {
    /// Frames of 60 bytes, the shortest there are, all IPv4 and all in order.
    pub const fn shortest(count: usize) -> Self {
        Self { count, seed: 1, ipv6_percent: 0, bad_permille: 0, lengths: &[60] }
    }

    /// What an Internet link carries: mostly short and full-length frames, a third of them IPv6, few of them bad.
    /// The lengths are the simple IMIX's (7 : 4 : 1), those of IPv6 a header longer.
    pub const fn internet(count: usize) -> Self {
        const IMIX: [usize; 12] = [60, 60, 60, 60, 60, 60, 60, 590, 590, 590, 590, 1_514];
        Self { count, seed: 1, ipv6_percent: 33, bad_permille: 5, lengths: &IMIX }
    }
}

/// `count` frames of `length` zero bytes.
///
/// # Errors
/// [`TooManyFrames`].
pub fn zeros(count: usize, length: usize) -> Result<Frames, TooManyFrames> {
    let mut frames = Frames::new();
    let frame = vec![0; length];
    for _ in 0..count {
        frames.push(&frame)?;
    }
    Ok(frames)
}

/// UDP frames to addresses inside random prefixes of the full table, from random hosts.
///
/// # Errors
/// [`TrafficError`].
pub fn generate(mix: &Mix) -> Result<Frames, TrafficError> {
    let ipv4 = full_table::ipv4()?;
    let ipv6 = full_table::ipv6()?;
    let mut random = Random::new(mix.seed);
    let mut frames = Frames::new();
    while frames.len() < mix.count {
        let length = mix.lengths[random.below(mix.lengths.len())];
        let bad = random.below(1_000) < mix.bad_permille;
        let mut frame = if random.percent(mix.ipv6_percent) {
            let prefix = &ipv6[random.below(ipv6.len())];
            let host = random.bits128();
            let destination = prefix.first() | host & (prefix.last() - prefix.first());
            ipv6_frame(destination.into(), length.max(62), &mut random)?
        } else {
            let prefix = &ipv4[random.below(ipv4.len())];
            let destination = prefix.first() | random.bits() as u32 & (prefix.last() - prefix.first());
            ipv4_frame(destination.into(), length, &mut random)?
        };
        if bad {
            spoil(&mut frame, &mut random);
        }
        frames.push(&frame)?;
    }
    Ok(frames)
}

const ROUTER: MacAddress = MacAddress([0x02, 0, 0, 0, 0, 0x01]);
const HOST: MacAddress = MacAddress([0x02, 0, 0, 0, 0, 0x02]);

fn ipv4_frame(destination: Ipv4Addr, length: usize, random: &mut Random) -> Result<Vec<u8>, BuildError> {
    // 16/4 lies in the middle of what is routed: never martian.
    let source = Ipv4Addr::from_bits(0x1000_0000 | random.bits() as u32 & 0x0fff_ffff);
    udp_frame(|frame| frame.ipv4(Ipv4Fields::new(source, destination)), 14 + 20 + 8, length, random)
}

fn ipv6_frame(destination: Ipv6Addr, length: usize, random: &mut Random) -> Result<Vec<u8>, BuildError> {
    let source = Ipv6Addr::from_bits(0x2600 << 112 | u128::from(random.bits()));
    udp_frame(|frame| frame.ipv6(Ipv6Fields::new(source, destination)), 14 + 40 + 8, length, random)
}

/// A frame of `length` bytes with so many bytes of headers.
fn udp_frame(
    network: impl FnOnce(Frame<'static>) -> Frame<'static>,
    headers: usize,
    length: usize,
    random: &mut Random,
) -> Result<Vec<u8>, BuildError> {
    let payload = vec![0; length.saturating_sub(headers)];
    let frame = network(Frame::new().ethernet(ROUTER, HOST)).udp(random.bits() as u16 | 1_024, 53);
    frame.payload(&payload).to_vec()
}

/// Breaks a frame in one of a few ways that happen: header bytes damaged, lifetime used up, cut short.
fn spoil(frame: &mut Vec<u8>, random: &mut Random) {
    match random.below(3) {
        0 => frame[14 + 12] ^= 0x10,
        1 => frame[14 + 8] ^= 0xff,
        _ => frame.truncate(20),
    }
}
