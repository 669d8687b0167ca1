//! A card that is played, and says and writes anything: for the fuzz target.
//!
//! The first byte of the input says which card it is (its lowest bit: the 82576, else the 82574), and whether it sends what it is given, or only says so (the next bit), and whether
//! it reaches the pool (the third). The rest is a list of records: a byte of what happens, a byte of how many bytes follow, and those.
//!
//! | what | then |
//! |---|---|
//! | 0 | a frame comes, as long as the first two bytes say, and this is said of it (eight bytes) |
//! | 1 | this (eight bytes) is written back to a descriptor, so many (the first byte) behind the next one |
//! | 2 | the card says that it is done with a descriptor for sending (the first byte), unless it sends |
//! | 3 | frames are sent, as long as each pair of bytes says; the checksum of each third one is left to the card |
//! | 4 | a long packet is sent that is to be cut, into segments of as many bytes as the first two say, with as many behind its headers as the next two |
//! | 5 | the link comes or goes |
//! | others | what has come is received |

use super::model::lab::{LONGEST, Lab, packet};
use super::model::{Model, Played};
use crate::e1000e::E1000e;
use crate::igb::Igb;
use std::sync::{Mutex, PoisonError};
use warmlane_mem::{Burst, Checksum, Packet, Segmentation, SegmentationKind};
use warmlane_port::TransmitQueue as _;

/// Descriptors of each ring.
const SIZE: u16 = 64;

/// Bytes of the longest packet that is received: as many as the card has buffers for one frame, however many it says are full.
const MOST_RECEIVED: usize = 9 * 2048;

/// Where the TCP header of a long packet begins, and ends.
const TRANSPORT: usize = 34;
const HEADERS: usize = 54;

/// A card that has a memory of its own, and one that reaches the pool.
type Labs<C> = Mutex<[Option<Lab<C>>; 2]>;

static E1000E: Labs<E1000e<Model>> = Mutex::new([None, None]);
static IGB: Labs<Igb<Model>> = Mutex::new([None, None]);

/// Plays a card by the input: no panic, nothing read or written outside the memory that it was given, every buffer back, and once it behaves it is served.
///
/// # Panics
/// If that isn't so.
pub fn play(input: &[u8]) {
    let Some((&how, records)) = input.split_first() else { return };
    if how & 1 == 0 { play_on(&E1000E, how, records) } else { play_on(&IGB, how, records) }
}

fn play_on<C: Played>(labs: &Labs<C>, how: u8, mut records: &[u8]) {
    let mut places = labs.lock().unwrap_or_else(PoisonError::into_inner);
    let reaches_pool = how & 4 != 0;
    let lab = places[usize::from(reaches_pool)].get_or_insert_with(|| {
        let mut lab = Lab::new(SIZE);
        if reaches_pool {
            lab.share();
        }
        lab
    });
    let is_stuck = how & 2 == 0;
    lab.start_at_once(SIZE);
    lab.model.state().is_stuck = is_stuck;
    while let [what, length, rest @ ..] = records {
        let (data, rest) = rest.split_at(rest.len().min(usize::from(*length)));
        records = rest;
        step(lab, *what, data, is_stuck);
        if lab.rings.broken().is_some() {
            // As the port's thread does.
            lab.rings.stop();
            lab.start_at_once(SIZE);
            lab.model.state().is_stuck = is_stuck;
        }
        // It lies on, but not so that memory runs out.
        let mut state = lab.model.state();
        state.sent.clear();
        state.sent_by.clear();
    }
    // What waits for a link or for descriptors is given up.
    lab.rings.stop();
    lab.transmit.transmit(&mut Burst::new());
    lab.start_at_once(SIZE);
    let frame = vec![7; 333];
    assert!(lab.model.deliver(&frame, 0) && lab.send_frames([frame.clone()]) == 1);
    let came: Vec<Vec<u8>> = lab.take().iter().map(|packet| packet.data().to_vec()).collect();
    assert_eq!((&came, &lab.model.state().sent), (&vec![frame.clone()], &vec![frame]));
    assert_eq!(lab.missing(), 0);
}

fn step<C: Played>(lab: &mut Lab<C>, what: u8, data: &[u8], is_stuck: bool) {
    match (what, data) {
        (0, [low, high, said @ ..]) => {
            let length = usize::from(u16::from_le_bytes([*low, *high])) % (LONGEST + 1);
            let said = said.first_chunk().copied().map_or(0, u64::from_le_bytes);
            // Not of where it ends, and how long it is: that is said by record 1.
            lab.model.deliver(&vec![9; length], said & !(0b11 | 0xffff << 32));
        }
        (1, [ahead, said @ ..]) => {
            let said = said.first_chunk().copied().map_or(0, u64::from_le_bytes);
            lab.model.write_back(u32::from(*ahead), said);
        }
        (2, [number, ..]) if is_stuck => lab.model.claim(u32::from(*number) % u32::from(SIZE)),
        (3, lengths) => {
            let mut burst = Burst::new();
            for (number, pair) in lengths.as_chunks::<2>().0.iter().take(32).enumerate() {
                let length = 1 + usize::from(u16::from_le_bytes(*pair)) % (LONGEST + 10);
                let Some(mut packet) = try_packet(lab, &vec![3; length]) else { break };
                if number % 3 == 2 && length > HEADERS {
                    packet.set_checksum(Checksum::Partial { start: TRANSPORT as u16, offset: 16 });
                }
                drop(burst.push(packet));
            }
            lab.transmit.transmit(&mut burst);
        }
        (4, [size_low, size_high, low, high, ..]) => {
            let size = u16::from_le_bytes([*size_low, *size_high]);
            let payload = usize::from(u16::from_le_bytes([*low, *high])) % 65_000;
            let mut burst = Burst::new();
            if let Some(packet) = long(lab, size, payload) {
                drop(burst.push(packet));
            }
            lab.transmit.transmit(&mut burst);
        }
        (5, _) => {
            lab.model.state().change_link();
            lab.rings.set_link(lab.chip.registers().is_link_up());
        }
        _ => assert!(lab.take().iter().all(|packet| packet.packet_length() <= MOST_RECEIVED)),
    }
    if let Some(progress) = lab.progress() {
        assert!(progress < u64::MAX / 2, "{progress}: it can't have done so much");
    }
}

/// A packet, if the pool has as many buffers.
fn try_packet<C: Played>(lab: &Lab<C>, data: &[u8]) -> Option<Packet> {
    let buffers = data.len().div_ceil(lab.pool.data_size()) as u64;
    (lab.pool.ledger().outstanding() + buffers < 2000).then(|| packet(&lab.pool, data))
}

/// A packet of TCP over IPv4 that is to be cut.
fn long<C: Played>(lab: &Lab<C>, size: u16, payload: usize) -> Option<Packet> {
    let mut frame = vec![5; HEADERS + payload];
    frame[12..14].copy_from_slice(&[8, 0]);
    let total = ((HEADERS - 14 + payload) as u16).to_be_bytes();
    frame[14..24].copy_from_slice(&[0x45, 0, total[0], total[1], 0, 0, 0x40, 0, 64, 6]);
    (frame[46], frame[47]) = (5 << 4, 0x10);
    let mut packet = try_packet(lab, &frame)?;
    packet.set_checksum(Checksum::Partial { start: TRANSPORT as u16, offset: 16 });
    let kind = SegmentationKind::Tcp4;
    packet.set_segmentation(Some(Segmentation { kind, size, congestion: false }));
    Some(packet)
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmlane_sys::random::Random;

    /// What the fuzz target does by chance and by what it finds, here by chance alone.
    #[test]
    fn a_card_that_says_anything_breaks_nothing_here() {
        let mut random = Random::new(11);
        for round in 0..600_u16 {
            let mut input = vec![round as u8];
            for _ in 0..random.below(60) {
                let (what, length) = (random.below(7) as u8, random.below(24));
                input.extend([what, length as u8]);
                let words = (0..length).map(|_| random.bits() as u8);
                let from = input.len();
                input.extend(words);
                // Mostly what a card could say: whole frames.
                if what == 1 && length >= 9 && random.percent(70) {
                    let word = 0b11 | random.pick(&[60_u64, 2048, 2049, 0xffff]) << 32;
                    input[from] %= 4;
                    input[from + 1..from + 9].copy_from_slice(&word.to_le_bytes());
                }
            }
            play(&input);
        }
    }
}
