//! Full fences against acquire and release in the rings of virtio that the driver has.

mod aarch64;
mod ends;

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
use ends::{End, Packed, Split};
use warmlane_virtio::ring::packed::PackedRing;
use warmlane_virtio::ring::split::SplitRing;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "packed-ring",
    question: "What do full fences on flags and indices cost in a ring of virtio, where acquire and release are enough?",
    claim: Claim {
        source: super::sources::ARM,
        says: "in virtio's packed ring, C11's one-way barriers in place of full ones, an acquire load and a release store of a \
               descriptor's flag, gained 9 % on a ThunderX2 and 11 % on an Ampere; they are recommended throughout",
        predictions: &PREDICTIONS,
    },
    method: "The rings are those of the virtio driver, in either format, with 256 descriptors. One lane is their driver: it makes buffers \
             available, and takes them back. The other is the device: it looks which are available, reads where they are, and gives them back. \
             No data is touched: of a packet's way this is the ring alone. One buffer at a time or up to 32 are published together, and \
             the order is that of the driver's code (a packed ring: an acquire fence behind the flags, a release store of the first flag; a split one: \
             an acquire load and a release store of the index), or a full fence at the same places. All eight take turns. The instructions for AArch64 \
             are emitted by rustc from the driver's code, whole functions stand in tools/lab/src/experiments/packed_ring/aarch64.s, and a test compiles \
             them anew. They are read, not run, on another processor.",
    steps: None,
    run,
};

const DESCRIPTORS: u16 = 256;
/// Buffers that are published together.
const BATCHES: [u16; 2] = [1, 32];
/// Steps between two looks at the clock, by a batch of 32.
const STEPS: u16 = 32;

const FASTER: &str = "full fences that are faster";

const PREDICTIONS: [Prediction; 5] = [
    Prediction::effects(
        "acquire and release against full fences, packed, one by one",
        "%",
        [9.0, 11.0],
        "full fences that cost nothing",
    ),
    Prediction::at_least("one-way against full, packed, one by one", "%", -3.0, FASTER),
    Prediction::at_least("one-way against full, packed, by 32", "%", -3.0, FASTER),
    Prediction::at_least("one-way against full, split, one by one", "%", -3.0, FASTER),
    Prediction::at_least("one-way against full, split, by 32", "%", -3.0, FASTER),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Packed,
    Split,
}

/// One of the eight. They stand in pairs, one-way first.
#[derive(Clone, Copy, Debug)]
struct Variant {
    format: Format,
    batch: u16,
    full: bool,
}

fn variants() -> Vec<Variant> {
    let formats = [Format::Packed, Format::Split].into_iter();
    let batches = formats.flat_map(|format| BATCHES.map(|batch| (format, batch)));
    batches.flat_map(|(format, batch)| [false, true].map(|full| Variant { format, batch, full })).collect()
}

impl Variant {
    fn name(self) -> String {
        let format = if self.format == Format::Packed { "packed" } else { "split" };
        let batch = if self.batch == 1 { "one by one".to_owned() } else { format!("by {}", self.batch) };
        let order = if self.full { "full fences" } else { "acquire and release" };
        format!("{format}, {batch}, {order}")
    }

    /// What orders on AArch64, when the device looks and when it gives back.
    fn on_aarch64(self) -> String {
        let format = if self.format == Format::Packed { "packed" } else { "split" };
        let end = if self.full { "_with_full_fence" } else { "" };
        let of =
            |what: &str| aarch64::orderings(aarch64::LISTING, &format!("{format}_{what}{end}")).join(" + ");
        format!("{}, {}", of("take"), of("publish"))
    }

    fn measure(self, cpu: usize) -> Result<Box<dyn Measure>, LabError> {
        let batch = self.batch;
        match (self.format, self.full) {
            (Format::Packed, false) => {
                measure(cpu, batch, Packed::<false>::ends(PackedRing::leaked(DESCRIPTORS)))
            }
            (Format::Packed, true) => {
                measure(cpu, batch, Packed::<true>::ends(PackedRing::leaked(DESCRIPTORS)))
            }
            (Format::Split, false) => {
                measure(cpu, batch, Split::<false>::ends(SplitRing::leaked(DESCRIPTORS)))
            }
            (Format::Split, true) => measure(cpu, batch, Split::<true>::ends(SplitRing::leaked(DESCRIPTORS))),
        }
    }
}

fn measure<E: End>(cpu: usize, batch: u16, ends: (E, E)) -> Result<Box<dyn Measure>, LabError> {
    let (mut driver, mut device) = ends;
    let steps = STEPS * 32 / batch;
    let filler = Partner::start(cpu, move || Ok(filling(steps.into(), move || driver.drive(batch).into())));
    let work = move || {
        let mut done = 0;
        for _ in 0..steps {
            let count = device.serve(batch);
            if count == 0 {
                pause();
            }
            done += u64::from(count);
        }
        assert_eq!(device.wrong(), 0, "buffers that were not where the driver had said");
        done
    };
    Ok(beside(filler.map_err(LabError::setup)?, work))
}

fn run(setting: &Setting, progress: &mut dyn FnMut(&str)) -> Result<Findings, LabError> {
    let cpu = setting.second_cpu()?;
    progress("eight rings in turns");
    let variants = variants();
    let mut measures = variants.iter().map(|variant| variant.measure(cpu)).collect::<Result<Vec<_>, _>>()?;
    let turns = setting.take_turns(Lanes::Two, &mut measures)?;
    let medians = &turns.medians;
    let columns = Column::list(
        "ring | cost [cycles/buffer] | against one-way [times] | x86-64 orders by | AArch64 orders by | line transfer [cycles]",
    );
    let rows = variants.iter().zip(medians).enumerate().map(|(number, (variant, &cycles))| {
        let against = cycles / medians[number / 2 * 2];
        let here = if variant.full { "lock or, lock or" } else { "nothing" };
        vec![
            Cell::from(variant.name()),
            cycles.into(),
            against.into(),
            here.into(),
            variant.on_aarch64().into(),
            turns.line_transfer.into(),
        ]
    });
    let rows = rows.collect();
    let of = |full: bool| medians.iter().copied().skip(usize::from(full)).step_by(2).collect();
    let figure = Figure {
        title: "What a buffer costs in a ring between two lanes".to_owned(),
        x: Axis::linear("ring"),
        y: Axis::linear("cycles per buffer"),
        marks: Marks::Bars {
            groups: ["packed, one by one", "packed, by 32", "split, one by one", "split, by 32"]
                .map(str::to_owned)
                .to_vec(),
            series: vec![("acquire and release".to_owned(), of(false)), ("full fences".to_owned(), of(true))],
        },
    };
    let answers = answers(medians, cfg!(target_arch = "aarch64")).to_vec();
    Ok(Findings { columns, rows, figures: vec![figure], answers, conclusion: conclusion(medians) })
}

/// How many per cent more full fences take than one-way ones, for each format and batch.
fn gains(medians: &[f64]) -> [f64; 4] {
    [0, 2, 4, 6].map(|one_way| (medians[one_way + 1] / medians[one_way] - 1.0) * 100.0)
}

fn answers(medians: &[f64], on_arm: bool) -> [Answer; 5] {
    let gains = gains(medians);
    let figure = Answer::from(gains[0]);
    let elsewhere = "the claim is of Arm's barriers and of a whole packet's way; here acquire and release are no instruction at all";
    let [a, b, c, d] = gains.map(Answer::from);
    [if on_arm { figure } else { figure.but_cannot_tell(elsewhere) }, a, b, c, d]
}

fn conclusion(medians: &[f64]) -> String {
    let [packed, packed_batch, split, split_batch] = gains(medians);
    format!(
        "Full fences cost {packed:.0} % more in a packed ring and {split:.0} % more in a split one where each buffer is published alone, and \
         {packed_batch:.0} % and {split_batch:.0} % where up to 32 are. Publishing together changes the cost of a buffer by {:+.0} % in the packed \
         ring and by {:+.0} % in the split one, with acquire and release. On AArch64 those are, in a packed ring, a dmb ishld behind the flags of a burst and a stlr of the \
         first, and in a split one a ldarh and a stlrh of the index; a full fence is a dmb ish.",
        (medians[2] / medians[0] - 1.0) * 100.0,
        (medians[6] / medians[4] - 1.0) * 100.0,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::tests::assert_judged;

    #[test]
    fn turned_figures_refute_the_claim() {
        let as_claimed = [10.0, 11.0, 5.0, 5.5, 9.0, 10.0, 4.0, 4.4];
        let turned = [11.0, 10.0, 5.5, 5.0, 10.0, 9.0, 4.4, 4.0];
        assert_judged(&PREDICTIONS, &answers(&as_claimed, true), &answers(&turned, true));
        // Elsewhere the claim's figure says nothing, but which is faster can be told.
        let told = answers(&turned, false).map(|answer| answer.cannot_tell.is_none());
        assert_eq!(told, [false, true, true, true, true]);
    }

    #[test]
    fn the_order_on_aarch64_is_read_from_what_was_emitted() {
        let all: Vec<_> = variants().into_iter().map(Variant::on_aarch64).collect();
        let packed = ["dmb ishld, stlr", "dmb ish, dmb ish"];
        let split = ["ldarh, stlrh", "ldarh + dmb ish, dmb ish + stlrh"];
        assert_eq!(all, [packed, packed, split, split].concat());
    }

    #[test]
    fn there_is_a_row_for_each_way() {
        let Some(setting) = Setting::tiny_on_two_cpus() else { return };
        let findings = setting.try_out(run);
        findings.assert_rows(variants().len());
    }
}
