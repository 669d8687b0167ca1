//! What the checksum inside a tunnel costs who computes it.

use crate::benches::fixture;
use crate::benches::vxlan::{ACCESS, frame_to_encapsulate, gateway};
use crate::error::LabError;
use crate::experiment::Experiment;
use crate::measure::Measure;
use crate::plot::{Axis, Figure, Marks};
use crate::record::{Claim, Findings};
use crate::setting::{Lanes, Setting};
use crate::table::{Cell, Column};
use crate::verdict::{Answer, Prediction};
use warmlane_lane::{KeptOutputs, Stage as _};
use warmlane_mem::{BURST_CAPACITY, Burst, Checksum, LaneCache, Packet};
use warmlane_port::software_offload::complete_checksum;
use warmlane_vxlan::Gateway;
use warmlane_wire::checksum::pseudo_ipv4;
use warmlane_wire::{IpProtocol, ethernet, ipv4, udp};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "vxlan-csum",
    question: "What does a VXLAN gateway gain if a network card computes the checksums inside, and how much of that does good software leave?",
    claim: Claim {
        source: super::sources::INTEL_TALK,
        says: "a VXLAN gateway on a 40-gigabit card that computes inner checksums takes fewer cycles a packet at 128 bytes than one that does it in software; \
               the bars of the slide have no figures",
        predictions: &PREDICTIONS,
    },
    method: "Bursts of 64 frames of UDP, whose checksums are left to others, are encapsulated by the gateway of `warmlane forward`, between 16 hosts here and stations behind 16 \
             tunnel ends. Then the checksum inside is left to a card (nothing is done), computed by Warmlane's vector code, or computed naively: a 16-bit word at a time, as RFC 1071 \
             has it in section 4.1. The headers are taken off again, and the field gets back what it had, in all three ways. Frames and tables are in the cache. There is no card here: what it takes \
             for one to be told, a few bits of a descriptor, is not measured. The three ways take turns.",
    steps: None,
    run,
};

const NO_GAIN: &str = "a checksum that costs nothing";

/// What is less would be noise.
const NOTICEABLE: f64 = 1.03;

const PREDICTIONS: [Prediction; 2] = [
    Prediction::at_least("in software against left to a card, 128 bytes", "times", NOTICEABLE, NO_GAIN),
    Prediction::at_least("naively against left to a card, 128 bytes", "times", NOTICEABLE, NO_GAIN),
];

/// Bytes of a frame: the source's, and up to the longest that the tunnel carries.
const SIZES: [usize; 4] = [CLAIMED, 256, 512, 1_464];
const CLAIMED: usize = 128;

/// Who computes the checksum.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Card,
    Software,
    Naive,
}

const WAYS: [(Way, &str); 3] =
    [(Way::Card, "left to a card"), (Way::Software, "in software"), (Way::Naive, "naively")];

/// Where things are in a frame without a tunnel, and what the gateway puts in front over IPv4: Ethernet, IPv4, UDP and VXLAN.
const TRANSPORT: usize = ethernet::HEADER_LENGTH + ipv4::HEADER_LENGTH;
const FIELD: usize = TRANSPORT + udp::CHECKSUM_OFFSET;
const IN_FRONT: usize = TRANSPORT + udp::HEADER_LENGTH + 8;

/// Bursts in a piece of work.
const BURSTS: usize = 16;
const PACKETS: usize = 64;
const _: () = assert!(PACKETS <= BURST_CAPACITY);

/// Encapsulates the same burst again and again.
struct Encapsulating {
    way: Way,
    gateway: Gateway,
    outputs: KeptOutputs,
    burst: Burst,
    /// What the checksum field of each packet has before: the sum of the pseudo header.
    pseudo: Vec<[u8; 2]>,
    _lane: LaneCache,
}

impl Encapsulating {
    fn new(way: Way, length: usize) -> Result<Self, LabError> {
        let (pool, lane) = fixture::pool(EXPERIMENT.name)?;
        let gateway = gateway(&pool)?;
        let (mut burst, mut pseudo) = (Burst::new(), Vec::new());
        for number in 0..PACKETS {
            // Each to another station, and from another host from time to time.
            let frame = frame_to_encapsulate(number * 37, length).map_err(LabError::setup)?;
            let mut packet = pool.take().ok_or_else(|| LabError::setup("there is no buffer"))?;
            packet.fill(&frame).map_err(LabError::setup)?;
            pseudo.push(pseudo_sum(&frame).to_be_bytes());
            // There is space.
            drop(burst.push(packet));
        }
        let outputs = KeptOutputs::of(&gateway);
        let mut encapsulating = Self { way, gateway, outputs, burst, pseudo, _lane: lane };
        if encapsulating.encapsulate() != PACKETS as u64 {
            return Err(LabError::setup("frames are not encapsulated"));
        }
        Ok(encapsulating)
    }

    /// Once to the wire and back; says how many packets got there.
    fn encapsulate(&mut self) -> u64 {
        for (packet, pseudo) in self.burst.iter_mut().zip(&self.pseudo) {
            packet.set_port(ACCESS);
            packet.data_mut()[FIELD..FIELD + 2].copy_from_slice(pseudo);
            packet.set_checksum(Checksum::Partial {
                start: TRANSPORT as u16,
                offset: udp::CHECKSUM_OFFSET as u8,
            });
        }
        self.gateway.process(&mut self.burst, &mut self.outputs.outputs());
        let mut count = 0;
        for packet in self.burst.iter_mut() {
            let is_complete = match self.way {
                Way::Card => true,
                Way::Software => complete_checksum(packet).is_ok(),
                Way::Naive => complete_naively(packet),
            };
            count += u64::from(is_complete && packet.trim_front(IN_FRONT).is_ok());
        }
        count
    }
}

impl Measure for Encapsulating {
    fn work(&mut self) -> u64 {
        (0..BURSTS).map(|_| self.encapsulate()).sum()
    }
}

/// What a sender that leaves the checksum to others has in its field.
fn pseudo_sum(frame: &[u8]) -> u16 {
    let address = |at: usize| std::net::Ipv4Addr::new(frame[at], frame[at + 1], frame[at + 2], frame[at + 3]);
    let length = u16::from_be_bytes([frame[TRANSPORT + 4], frame[TRANSPORT + 5]]);
    pseudo_ipv4(address(26), address(30), IpProtocol::UDP, length).fold()
}

/// Sums up word by word what is left to hardware. Says whether anything was.
fn complete_naively(packet: &mut Packet) -> bool {
    let Checksum::Partial { start, offset } = packet.checksum() else { return false };
    let Some(segment) = packet.data_mut().get_mut(usize::from(start)..) else { return false };
    let mut sum = 0_u32;
    let mut words = segment.chunks_exact(2);
    for word in &mut words {
        sum += u32::from(u16::from_be_bytes([word[0], word[1]]));
        // Not a vector: that would be the other way.
        sum = std::hint::black_box(sum);
    }
    if let [last] = words.remainder() {
        sum += u32::from(*last) << 8;
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let checksum = match !(sum as u16) {
        // Zero would say that there is none (RFC 768).
        0 => 0xffff,
        checksum => checksum,
    };
    let Some(field) = segment.get_mut(usize::from(offset)..usize::from(offset) + 2) else { return false };
    field.copy_from_slice(&checksum.to_be_bytes());
    packet.set_checksum(Checksum::Good);
    true
}

/// Cycles a packet, in each way.
type Cycles = [f64; WAYS.len()];

fn run(setting: &Setting, progress: &mut dyn FnMut(&str)) -> Result<Findings, LabError> {
    let mut rows = Vec::new();
    for size in SIZES {
        progress(&format!("frames of {size} bytes"));
        let mut measures: Vec<Box<dyn Measure>> = Vec::new();
        for (way, _) in WAYS {
            measures.push(Box::new(Encapsulating::new(way, size)?));
        }
        let medians = setting.take_turns(Lanes::One, &mut measures)?.medians;
        rows.push((size, std::array::from_fn(|way| medians.get(way).copied().unwrap_or(f64::NAN))));
    }
    Ok(findings(&rows))
}

fn findings(rows: &[(usize, Cycles)]) -> Findings {
    let columns = Column::list(
        "frame [bytes] | left to a card [cycles/packet] | in software [cycles/packet] | naively [cycles/packet] | software [times] | naive [times]",
    );
    let cells = rows.iter().map(|&(size, cycles)| {
        let times = [cycles[1] / cycles[0], cycles[2] / cycles[0]];
        std::iter::once(size.into()).chain(cycles.into_iter().chain(times).map(Cell::from)).collect()
    });
    let series = WAYS.iter().enumerate().map(|(way, (_, name))| {
        ((*name).to_owned(), rows.iter().map(|(_, cycles)| cycles[way]).collect::<Vec<_>>())
    });
    let figure = Figure {
        title: "Encapsulating, and the checksum inside".to_owned(),
        x: Axis::linear("bytes of a frame"),
        y: Axis::linear("cycles per packet"),
        marks: Marks::Bars {
            groups: rows.iter().map(|(size, _)| size.to_string()).collect(),
            series: series.collect(),
        },
    };
    Findings {
        columns,
        rows: cells.collect(),
        figures: vec![figure],
        answers: answers(rows).to_vec(),
        conclusion: conclusion(rows),
    }
}

fn answers(rows: &[(usize, Cycles)]) -> [Answer; 2] {
    let row = rows.iter().find(|(size, _)| *size == CLAIMED);
    [1, 2].map(|way| row.map_or(f64::NAN, |(_, cycles)| cycles[way] / cycles[0]).into())
}

fn conclusion(rows: &[(usize, Cycles)]) -> String {
    let parts = rows.iter().map(|(size, [card, software, naive])| {
        format!("{size} bytes: {:.0} in software, {:.0} naively", software - card, naive - card)
    });
    format!(
        "Cycles a packet that a card would save: {}. What is left to a card costs nothing here; what software sums up it must read, so it grows with the packet.",
        parts.collect::<Vec<_>>().join("; ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::tests::assert_judged;

    #[test]
    fn there_is_a_row_for_each_size() {
        Setting::tiny().try_out(run).assert_rows(SIZES.len());
    }

    #[test]
    fn turned_figures_refute_the_claim() {
        let rows = |card, others| SIZES.map(|size| (size, [card, others, others]));
        assert_judged(&PREDICTIONS, &answers(&rows(70.0, 90.0)), &answers(&rows(90.0, 70.0)));
    }

    #[test]
    fn both_kinds_of_software_make_the_right_checksum() {
        for size in [CLAIMED, 129, 1_464] {
            let expected = |number: usize| {
                let frame = frame_to_encapsulate(number * 37, size).unwrap();
                [frame[FIELD], frame[FIELD + 1]]
            };
            for way in [Way::Software, Way::Naive] {
                let encapsulating = Encapsulating::new(way, size).unwrap();
                for (number, packet) in encapsulating.burst.iter().enumerate() {
                    assert_eq!(packet.data()[FIELD..FIELD + 2], expected(number), "{way:?} {size} {number}");
                }
            }
        }
    }
}
