//! Full fences against acquire and release on a ring of descriptors with flags.

use crate::error::LabError;
use crate::experiment::Experiment;
use crate::measure::Measure;
use crate::partner::{Partner, beside};
use crate::plot::{Axis, Figure, Marks};
use crate::record::{Claim, Findings};
use crate::ring_shape::{filling, pause};
use crate::setting::{Lanes, Setting};
use crate::table::{Cell, Column};
use crate::verdict::{Answer, Prediction};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use warmlane_sync::padded::CachePadded;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "barriers",
    question: "What do full fences cost on a ring of descriptors, where acquire and release are enough?",
    claim: Claim {
        source: super::sources::ARM,
        says: "in virtio's packed ring, C11's one-way barriers in place of full ones, an acquire load and a release store of a \
               descriptor's flag, gained 9 % on a ThunderX2 and 11 % on an Ampere; they are recommended throughout",
        predictions: &PREDICTIONS,
    },
    method: "One lane fills descriptors of 16 bytes (address, length, flag) in a ring of 256, the other reads them and hands \
             them back, as the two ends of virtio's packed ring do: a flag in each descriptor says whose it is. Four ways \
             take turns. Descriptor by descriptor, each handed back at once: acquire loads and release stores of the flag, or relaxed ones with a \
             full fence after each load that found its descriptor ready and before each store. By bursts of up to 32, handed back together: \
             one acquire fence after the loads and one release fence before the stores, or full fences there. So what the order costs \
             and what handing back together gains stand apart. The instructions are those that rustc and clang emit (LLVM lowers both alike); those of Arm are \
             read, not run, on another processor.",
    steps: None,
    run,
};

const DESCRIPTORS: usize = 256;
const BURST: usize = 32;
/// Bursts between two looks at the clock.
const BURSTS: usize = 32;

const PREDICTIONS: [Prediction; 3] = [
    Prediction::effects(
        "acquire and release against full fences, by descriptor",
        "%",
        [9.0, 11.0],
        "full fences that cost nothing",
    ),
    Prediction::at_least("one-way against full, by descriptor", "%", -3.0, "full fences that are faster"),
    Prediction::at_least("one-way against full, by burst", "%", -3.0, "full fences that are faster"),
];

#[derive(Clone, Copy, PartialEq)]
enum Variant {
    OneWayByDescriptor,
    FullByDescriptor,
    OneWayByBurst,
    FullByBurst,
}

/// A way, its name, and the instructions that order a descriptor or a burst on x86-64 and on AArch64.
const VARIANTS: [(Variant, &str, &str, &str); 4] = [
    (Variant::OneWayByDescriptor, "acquire and release, by descriptor", "none", "ldar, stlr"),
    (Variant::FullByDescriptor, "full fences, by descriptor", "2 lock or", "2 dmb ish"),
    (Variant::OneWayByBurst, "acquire and release, by burst", "none", "dmb ishld, dmb ish"),
    (Variant::FullByBurst, "full fences, by burst", "2 lock or", "2 dmb ish"),
];

/// Sixteen bytes, as in virtio's packed ring.
#[derive(Default)]
struct Descriptor {
    address: AtomicU64,
    length: AtomicU32,
    /// Twice the number of the turn while it is free, one more while it is full. It wraps, which no turn outlives.
    flag: AtomicU32,
}

struct Ring(CachePadded<[Descriptor; DESCRIPTORS]>);

/// One end: it knows whose descriptors are next from the number of those before.
struct End {
    ring: Arc<Ring>,
    position: usize,
    variant: Variant,
    /// 0 for who fills, 1 for who empties: what the flag has in front of the turn when it is this end's.
    full: u32,
}

impl End {
    /// Works on up to a burst of descriptors; returns how many were this end's.
    fn burst(&mut self, mut work: impl FnMut(&Descriptor, usize)) -> usize {
        let slots = &self.ring.0;
        let ready = |position: usize, order: Ordering| {
            let turn = 2 * (position / DESCRIPTORS) as u32;
            (slots[position % DESCRIPTORS].flag.load(order)) == turn + self.full
        };
        // The flag's next value: full after free; free in the next turn after full.
        let flag = |position: usize| 2 * (position / DESCRIPTORS) as u32 + self.full + 1;
        let mut count = 0;
        match self.variant {
            Variant::OneWayByBurst | Variant::FullByBurst => {
                let full = self.variant == Variant::FullByBurst;
                while count < BURST && ready(self.position + count, Ordering::Relaxed) {
                    count += 1;
                }
                if count > 0 {
                    // Acquire, pairs with the other end's release fence: what it wrote before its flags is seen after it.
                    fence(if full { Ordering::SeqCst } else { Ordering::Acquire });
                    for position in self.position..self.position + count {
                        work(&slots[position % DESCRIPTORS], position);
                    }
                    // Release, pairs with the other end's acquire fence: who sees a flag sees what was written before it.
                    fence(if full { Ordering::SeqCst } else { Ordering::Release });
                    for position in self.position..self.position + count {
                        slots[position % DESCRIPTORS].flag.store(flag(position), Ordering::Relaxed);
                    }
                }
            }
            Variant::FullByDescriptor => {
                while count < BURST && ready(self.position + count, Ordering::Relaxed) {
                    let position = self.position + count;
                    fence(Ordering::SeqCst);
                    work(&slots[position % DESCRIPTORS], position);
                    fence(Ordering::SeqCst);
                    slots[position % DESCRIPTORS].flag.store(flag(position), Ordering::Relaxed);
                    count += 1;
                }
            }
            Variant::OneWayByDescriptor => {
                // Acquire, pairs with the other end's release: what it wrote before its flag is seen after it.
                while count < BURST && ready(self.position + count, Ordering::Acquire) {
                    let position = self.position + count;
                    work(&slots[position % DESCRIPTORS], position);
                    slots[position % DESCRIPTORS].flag.store(flag(position), Ordering::Release);
                    count += 1;
                }
            }
        }
        self.position += count;
        count
    }
}

fn fill(descriptor: &Descriptor, position: usize) {
    descriptor.address.store(position as u64 * 2048, Ordering::Relaxed);
    descriptor.length.store(position as u32 % 1500, Ordering::Relaxed);
}

/// Whether the descriptor is what was filled in.
fn is_right(descriptor: &Descriptor, position: usize) -> bool {
    descriptor.address.load(Ordering::Relaxed) == position as u64 * 2048
        && descriptor.length.load(Ordering::Relaxed) == position as u32 % 1500
}

fn ends(variant: Variant) -> (End, End) {
    let ring = Arc::new(Ring(CachePadded::new(std::array::from_fn(|_| Descriptor::default()))));
    (
        End { ring: Arc::clone(&ring), position: 0, variant, full: 0 },
        End { ring, position: 0, variant, full: 1 },
    )
}

fn measure(variant: Variant, cpu: usize) -> Result<Box<dyn Measure>, LabError> {
    let (mut writer, mut reader) = ends(variant);
    let filler = Partner::start(cpu, move || Ok(filling(BURSTS, move || writer.burst(fill))));
    let work = move || {
        let (mut done, mut wrong) = (0, 0);
        for _ in 0..BURSTS {
            let count = reader.burst(|descriptor, position| {
                wrong += usize::from(!is_right(descriptor, position));
            });
            if count == 0 {
                pause();
            }
            done += count as u64;
        }
        assert_eq!(wrong, 0, "descriptors that did not hold what was written");
        done
    };
    Ok(beside(filler.map_err(LabError::setup)?, work))
}

fn run(setting: &Setting, progress: &mut dyn FnMut(&str)) -> Result<Findings, LabError> {
    let cpu = setting.second_cpu()?;
    progress("four ways in turns");
    let mut variants =
        VARIANTS.iter().map(|(variant, ..)| measure(*variant, cpu)).collect::<Result<Vec<_>, _>>()?;
    let turns = setting.take_turns(Lanes::Two, &mut variants)?;
    let columns = Column::list(
        "ordering | cost [cycles/descriptor] | against one-way [times] | x86-64 orders by | AArch64 orders by | line transfer [cycles]",
    );
    let rows =
        VARIANTS.iter().zip(&turns.medians).enumerate().map(|(number, ((_, name, x86, arm), &cycles))| {
            // The one-way ones stand before the full ones.
            let one_way = turns.medians[number / 2 * 2];
            let against = (cycles / one_way).into();
            vec![
                Cell::from(*name),
                cycles.into(),
                against,
                (*x86).into(),
                (*arm).into(),
                turns.line_transfer.into(),
            ]
        });
    let rows = rows.collect();
    let figure = Figure {
        title: "What a descriptor costs between two lanes".to_owned(),
        x: Axis::linear("ordering"),
        y: Axis::linear("cycles per descriptor"),
        marks: Marks::Bars {
            groups: VARIANTS.iter().map(|(_, name, ..)| (*name).to_owned()).collect(),
            series: vec![("descriptor".to_owned(), turns.medians.clone())],
        },
    };
    let medians = &turns.medians;
    let answers = answers(medians, cfg!(target_arch = "aarch64")).to_vec();
    Ok(Findings { columns, rows, figures: vec![figure], answers, conclusion: conclusion(medians) })
}

/// How many per cent more full fences take than one-way ones: by descriptor, by burst.
fn gains(medians: &[f64]) -> [f64; 2] {
    [0, 2].map(|one_way| (medians[one_way + 1] / medians[one_way] - 1.0) * 100.0)
}

fn answers(medians: &[f64], on_arm: bool) -> [Answer; 3] {
    let [by_descriptor, by_burst] = gains(medians);
    let figure = Answer::from(by_descriptor);
    let elsewhere = "the claim is of Arm's barriers; here acquire and release are no instruction at all, and the full fence is \
                     one that the claim's code never had";
    [if on_arm { figure } else { figure.but_cannot_tell(elsewhere) }, by_descriptor.into(), by_burst.into()]
}

fn conclusion(medians: &[f64]) -> String {
    let [by_descriptor, by_burst] = gains(medians);
    format!(
        "Full fences cost {by_descriptor:.0} % more than acquire and release descriptor by descriptor, and {by_burst:.0} % more by bursts; handing \
         back together instead of one by one changes the cost of the one-way ring by {:+.0} %, whatever orders it. {} On Arm, \
         acquire and release of a flag are a load and a store of their own (ldar, stlr), where a full fence is a dmb ish on each side; by bursts \
         the one-way ring has a dmb ishld in place of one of the two, so that only the loads wait there.",
        (medians[2] / medians[0] - 1.0) * 100.0,
        if cfg!(target_arch = "x86_64") {
            "On x86-64 acquire and release are plain loads and stores that the hardware orders anyway, and a full fence (lock or) \
             waits until every earlier store has its line, which the other lane has: so the figure is no measure of the claim's."
        } else {
            "The claim's gain is of a whole packet's way through a virtual machine; here the ring is all there is."
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::tests::assert_judged;

    #[test]
    fn turned_figures_refute_the_claim() {
        assert_judged(
            &PREDICTIONS,
            &answers(&[10.0, 11.0, 5.0, 5.5], true),
            &answers(&[11.0, 10.0, 5.5, 5.0], true),
        );
        // Elsewhere the claim's figure says nothing, but which is faster can be told.
        let told = answers(&[11.0, 10.0, 5.5, 5.0], false).map(|answer| answer.cannot_tell.is_none());
        assert_eq!(told, [false, true, true]);
    }

    #[test]
    fn descriptors_arrive_as_they_were_filled() {
        for (variant, name, ..) in VARIANTS {
            let (mut writer, mut reader) = ends(variant);
            let (mut filled, mut read) = (0, 0);
            for _ in 0..40 {
                filled += writer.burst(fill);
                filled += writer.burst(fill);
                read +=
                    reader.burst(|descriptor, position| assert!(is_right(descriptor, position), "{name}"));
            }
            assert!(filled > 2 * DESCRIPTORS && filled - read <= DESCRIPTORS, "{name}: {filled}, {read}");
        }
    }

    #[test]
    fn there_is_a_row_for_each_way() {
        let Some(setting) = Setting::tiny_on_two_cpus() else { return };
        let findings = setting.try_out(run);
        findings.assert_rows(VARIANTS.len());
    }
}
