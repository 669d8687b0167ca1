//! Whether what transmit needs should stand in a buffer's first line.

use super::held::{self, AT_ONCE, RINGS};
use super::lines::lines;
use crate::error::LabError;
use crate::experiment::Experiment;
use crate::measure::Measure;
use crate::modelled::{self, Access, Workload};
use crate::plot::{Axis, Figure, Marks};
use crate::record::{Claim, Findings};
use crate::setting::{Lanes, Setting};
use crate::table::{Cell, Column};
use crate::verdict::{Answer, Prediction};
use warmlane_sys::pages::TableMemory;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "header",
    question: "what does a second cache line of packet header cost on transmit?",
    claim: Claim {
        source: "Paul Emmerich, \"TX performance regression caused by the mbuf cachline split\", dpdk-dev, 2015-05-11",
        says: "with one line of header (DPDK 1.7.1) a generator sends 14.1 Mpps by the simple path and 10.7 by the full-featured one; with \
               the pool pointer and the offload fields in a second line (2.0.0) 11.0 and 9.3, of which the commit that split the \
               line explains most: +28 % and +15 % for one line",
        predictions: &PREDICTIONS,
    },
    method: "The seed's generator as a loop of the lab's own: take 32 buffers from a LIFO cache, reset their headers, write a sequence number \
             into the data, write descriptors into a transmit ring, and free the 32 buffers that the ring has held longest: together if they \
             are of one pool (simple), or one by one after looking at reference count, segments and offloads (full-featured). The \
             loops differ in nothing but the line in which fields stand: all in the first; only the pool's pointer in the second; pool, next \
             segment and offload fields in the second, as in DPDK 2.0. The ring's length says how many buffers \
             are under way. No device reads the buffers.",
    steps: None,
    run,
};

/// The ring that drivers have by default, as the seed's: index in [`RINGS`].
const USUAL_RING: usize = 0;

const PREDICTIONS: [Prediction; 2] = [
    Prediction::effect(
        "one line against two, simple path, ring of 512",
        "%",
        28.0,
        "a second line that costs nothing",
    ),
    Prediction::effect(
        "one line against two, full-featured path, ring of 512",
        "%",
        15.0,
        "a second line that costs nothing",
    ),
];

/// Words in a line.
const WORDS: usize = 8;
/// Lines from one buffer to the next: odd, so that all sets are used, and the same for all variants.
const STRIDE: usize = 37;
/// Two lines of header and two of headroom stand before the data, in all variants.
const DATA_LINE: usize = 4;
/// Bursts in a unit of work.
const BURSTS: usize = 50;

/// Words of the header that all variants have in the first line: data offset, reference count and segments; flags; lengths.
const REARM: usize = 1;
const FLAGS: usize = 2;
const LENGTHS: usize = 3;
/// Bytes of a frame.
const FRAME: u64 = 60;
/// An Ethernet header of 14 bytes and an IPv4 one of 20 (in units of 128).
const OFFLOADS: u64 = 20 * 128 + 14;

type Lines = TableMemory<[u64; WORDS]>;

const LAYOUTS: [&str; 3] = ["all in one line", "pool in the second", "pool, next, offloads in the second"];
const PATHS: [&str; 2] = ["simple", "full-featured"];

/// The generator; `POOL`, `NEXT` and `OFFLOAD` say in which word of the header these fields stand.
struct Generator<const POOL: usize, const NEXT: usize, const OFFLOAD: usize, const FULL: bool> {
    lines: Lines,
    /// Free buffers of each pool, by their number. There is one pool, but a field in the header says so.
    pools: Vec<Vec<u32>>,
    /// The ring that a device would read: address, and length with flags.
    descriptors: Vec<[u64; 2]>,
    /// The buffer behind each descriptor.
    sent: Vec<u32>,
    next: usize,
    sequence: u64,
}

impl<const POOL: usize, const NEXT: usize, const OFFLOAD: usize, const FULL: bool>
    Generator<POOL, NEXT, OFFLOAD, FULL>
{
    fn new(ring: usize) -> Result<Self, LabError> {
        let buffers = ring + 2 * AT_ONCE;
        let mut generator = Self {
            lines: lines(buffers * STRIDE)?,
            pools: vec![(0..buffers as u32).collect()],
            descriptors: vec![[0; 2]; ring],
            sent: vec![u32::MAX; ring],
            next: 0,
            sequence: 0,
        };
        // Before it can be freed, a buffer must have been sent.
        for _ in 0..ring / AT_ONCE {
            generator.send();
        }
        Ok(generator)
    }

    #[inline(always)]
    fn word(&mut self, buffer: u32, word: usize) -> &mut u64 {
        &mut self.lines[buffer as usize * STRIDE + word / WORDS][word % WORDS]
    }

    /// Takes a burst and puts it into the ring, where one was just freed.
    #[inline(always)]
    fn send(&mut self) {
        for slot in self.next..self.next + AT_ONCE {
            let Some(buffer) = self.pools[0].pop() else { return };
            *self.word(buffer, REARM) = 0x0001_0001_0080;
            *self.word(buffer, FLAGS) = 0;
            *self.word(buffer, LENGTHS) = FRAME << 32 | FRAME;
            // What was reset of DPDK's headers since 1.8, wherever it lies.
            *self.word(buffer, NEXT) = 0;
            if FULL {
                *self.word(buffer, OFFLOAD) = OFFLOADS;
            }
            self.sequence += 1;
            let sequence = self.sequence;
            *self.word(buffer, DATA_LINE * WORDS) = sequence;
            let mut command = *self.word(buffer, LENGTHS);
            if FULL {
                // Which offloads, how many segments, and whether another one follows.
                let flags = *self.word(buffer, FLAGS);
                if flags != 0 {
                    command |= *self.word(buffer, OFFLOAD) << 40;
                } else {
                    command |= (*self.word(buffer, OFFLOAD) & 1) << 40;
                }
                command |= *self.word(buffer, NEXT);
            }
            self.descriptors[slot] = [u64::from(buffer) * (STRIDE * 64) as u64, command];
            self.sent[slot] = buffer;
        }
        self.next += AT_ONCE;
        if self.next == self.sent.len() {
            self.next = 0;
        }
    }

    /// Frees the burst that the ring has held longest.
    #[inline(always)]
    fn reclaim(&mut self) {
        let slot = self.next;
        if FULL {
            for slot in slot..slot + AT_ONCE {
                let buffer = self.sent[slot];
                // Shared or chained buffers would be looked after elsewhere.
                let unshared = *self.word(buffer, REARM) >> 16 == 0x0001_0001;
                if unshared && *self.word(buffer, NEXT) == 0 {
                    let pool = *self.word(buffer, POOL);
                    self.pools[pool as usize].push(buffer);
                }
            }
            return;
        }
        let mut together = [0; AT_ONCE];
        together.copy_from_slice(&self.sent[slot..slot + AT_ONCE]);
        let pool = *self.word(together[0], POOL);
        let mut others = 0;
        for buffer in together {
            others |= *self.word(buffer, POOL) ^ pool;
        }
        if others == 0 {
            self.pools[pool as usize].extend_from_slice(&together);
        }
    }
}

impl<const POOL: usize, const NEXT: usize, const OFFLOAD: usize, const FULL: bool> Measure
    for Generator<POOL, NEXT, OFFLOAD, FULL>
{
    fn work(&mut self) -> u64 {
        for _ in 0..BURSTS {
            self.reclaim();
            self.send();
        }
        std::hint::black_box(&mut self.descriptors);
        (BURSTS * AT_ONCE) as u64
    }
}

fn variant<const POOL: usize, const NEXT: usize, const OFFLOAD: usize, const FULL: bool>(
    ring: usize,
) -> Result<Box<dyn Measure>, LabError> {
    Ok(Box::new(Generator::<POOL, NEXT, OFFLOAD, FULL>::new(ring)?))
}

/// The cycles of each layout, by each path.
type Costs = [[f64; 3]; 2];

/// Lines of the header that each layout touches by each path when a packet is sent, and when it is freed.
type Touched = [&'static [(u64, Access)]; 2];

const TOUCHED: [[Touched; 3]; 2] = {
    const WRITE: &[(u64, Access)] = &[(0, Access::Write)];
    const WRITE_BOTH: &[(u64, Access)] = &[(0, Access::Write), (1, Access::Write)];
    const FIRST: &[(u64, Access)] = &[(0, Access::Read)];
    const SECOND: &[(u64, Access)] = &[(1, Access::Read)];
    const BOTH: &[(u64, Access)] = &[(0, Access::Read), (1, Access::Read)];
    [
        [[WRITE, FIRST], [WRITE, SECOND], [WRITE_BOTH, SECOND]],
        [[WRITE, FIRST], [WRITE, BOTH], [WRITE_BOTH, BOTH]],
    ]
};

/// What a layout touches by a path, for a model of caches.
fn workload([sent, freed]: Touched, ring: usize) -> Workload {
    let buffers = ring + 2 * AT_ONCE;
    let order = modelled::order_of_list(buffers, STRIDE, modelled::rounds(buffers, ring), AT_ONCE, ring);
    held::of_order(order, DATA_LINE as u64, sent, freed)
}

fn run(setting: &Setting, progress: &mut dyn FnMut(&str)) -> Result<Findings, LabError> {
    let mut costs = Vec::new();
    for ring in RINGS {
        progress(&format!("{ring} buffers under way"));
        for (variant, touched) in TOUCHED.into_iter().flatten().enumerate() {
            setting.model(variant, || Ok(workload(touched, ring)))?;
        }
        let mut variants = [
            variant::<7, 5, 6, false>(ring)?,
            variant::<15, 5, 6, false>(ring)?,
            variant::<15, 13, 14, false>(ring)?,
            variant::<7, 5, 6, true>(ring)?,
            variant::<15, 5, 6, true>(ring)?,
            variant::<15, 13, 14, true>(ring)?,
        ];
        let medians = setting.take_turns(Lanes::One, &mut variants)?.medians;
        let [a, b, c, d, e, f] = medians[..] else { return Err(LabError::setup("a way is missing")) };
        costs.push([[a, b, c], [d, e, f]]);
    }
    let rows = RINGS.into_iter().zip(&costs).flat_map(|(ring, costs)| {
        PATHS.into_iter().zip(costs).flat_map(move |(path, costs)| {
            LAYOUTS.into_iter().zip(costs).map(move |(layout, &cost)| -> Vec<Cell> {
                vec![ring.into(), path.into(), layout.into(), cost.into(), faster(costs[0], cost).into()]
            })
        })
    });
    Ok(Findings {
        columns: Column::list(
            "under way [buffers] | path | fields | transmit [cycles/packet] | one line is faster by [%]",
        ),
        rows: rows.collect(),
        figures: (0..PATHS.len()).map(|path| figure(path, &costs)).collect(),
        answers: answers(&costs).to_vec(),
        conclusion: conclusion(&costs),
    })
}

/// What DPDK 2.0's division of the header costs by each path, with the usual ring.
fn answers(costs: &[Costs]) -> [Answer; 2] {
    [0, 1].map(|path| faster(costs[USUAL_RING][path][0], costs[USUAL_RING][path][2]).into())
}

/// How many per cent more a second than `other` cycles give.
fn faster(cycles: f64, other: f64) -> f64 {
    (other / cycles - 1.0) * 100.0
}

fn figure(path: usize, costs: &[Costs]) -> Figure {
    let series = LAYOUTS
        .iter()
        .enumerate()
        .map(|(layout, name)| ((*name).to_owned(), costs.iter().map(|costs| costs[path][layout]).collect()));
    Figure {
        title: format!("Transmit, {} path", PATHS[path]),
        x: Axis::linear("buffers under way"),
        y: Axis::linear("cycles per packet"),
        marks: Marks::Bars { groups: RINGS.iter().map(usize::to_string).collect(), series: series.collect() },
    }
}

fn conclusion(costs: &[Costs]) -> String {
    let list = |path: usize, layout: usize| {
        let shares = RINGS.iter().zip(costs).map(|(ring, costs)| {
            let (one, other) = (costs[path][0], costs[path][layout]);
            format!("{:+.0} % ({:.1} cycles) with {ring}", faster(one, other), other - one)
        });
        shares.collect::<Vec<_>>().join(", ")
    };
    format!(
        "One line is faster than DPDK 2.0's division, by buffers under way: simple path {}; full-featured path {}. The claim says +28 % (24 cycles \
         of a 1.2 GHz core) and +15 % (17 cycles). With the pool's pointer alone in the second line: simple path {}; full-featured path {}. The \
         second line is met when the packet is freed, and the more buffers are under way, the farther it has gone by then. In the claim a \
         device was driven and a packet cost 85 to 130 cycles, so its line came from farther away and was a smaller share; here nothing but the loop \
         runs, and misses overlap as far as the processor looks ahead.",
        list(0, 2),
        list(1, 2),
        list(0, 1),
        list(1, 1),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::tests::assert_judged;

    #[test]
    fn no_buffer_is_lost_on_either_path() {
        fn check<const POOL: usize, const NEXT: usize, const OFFLOAD: usize, const FULL: bool>() {
            let mut generator = Generator::<POOL, NEXT, OFFLOAD, FULL>::new(512).unwrap();
            for _ in 0..3 {
                generator.work();
            }
            let mut all: Vec<u32> = generator.pools[0].iter().chain(&generator.sent).copied().collect();
            all.sort_unstable();
            assert_eq!(all, (0..512 + 64).collect::<Vec<u32>>());
            assert_eq!(generator.sequence, 512 + 3 * (BURSTS * AT_ONCE) as u64);
        }
        check::<7, 5, 6, false>();
        check::<15, 13, 14, true>();
    }

    #[test]
    fn turned_figures_refute_the_claim() {
        let (as_claimed, turned) =
            ([[100.0, 110.0, 128.0], [100.0, 107.0, 115.0]], [[128.0, 110.0, 100.0]; 2]);
        assert_judged(&PREDICTIONS, &answers(&[as_claimed]), &answers(&[turned]));
    }

    #[test]
    fn a_tiny_run_has_a_row_for_each_case() {
        let findings = run(&Setting::tiny(), &mut |_| ()).unwrap();
        assert_eq!(findings.rows.len(), RINGS.len() * PATHS.len() * LAYOUTS.len());
        assert!(findings.conclusion.contains("The claim says +28 %"));
        assert_eq!(findings.figures.len(), 2);
    }
}
