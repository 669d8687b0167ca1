//! A peak, over time: many frames wait at once between the lanes, and then no longer.

use super::orders::{BURST, Peak, UnderWay};
use super::parameters::Parameters;
use super::question::{Load, Question};
use super::replay::{self, Setup};
use super::touches::Touches;
use crate::error::LabError;
use crate::plot::{Axis, Figure, Marks, PlotError, Series, figures};
use serde::Serialize;
use std::fmt;

/// Frames that the paper once saw under way.
pub const FRAMES: usize = 20_000;

/// Points of a pool's line while as many frames arrive as wait at the peak.
const POINTS: usize = 25;

/// Parts of a peak, all of the same length.
const PARTS: [&str; 5] = ["before", "growing", "at its height", "shrinking", "after"];

/// What a pool's traffic is, over time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OverTime {
    /// Which pool.
    pub pool: String,
    /// Lines between memory and caches for each frame that is received, in even steps of time.
    pub lines: Vec<f64>,
}

/// All pools' with so many instances.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Picture {
    /// Side by side.
    pub instances: usize,
    /// Each pool's.
    pub pools: Vec<OverTime>,
}

/// What was predicted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Course {
    /// For which machine.
    pub machine: String,
    /// What the paper doesn't say.
    pub parameters: Parameters,
    /// Gbit/s of each instance.
    pub gbps: f64,
    /// Whether frames get CRCs.
    pub crc: bool,
    /// Frames that wait more at the peak than before and after.
    pub waiting: usize,
    /// Milliseconds from one figure to the next.
    pub step_ms: f64,
    /// For each number of instances.
    pub pictures: Vec<Picture>,
    /// What else is to be known.
    pub notes: Vec<String>,
}

impl OverTime {
    /// The average in a fifth of the time: of [`PARTS`], the one with this number.
    fn average(&self, part: usize) -> f64 {
        let each = self.lines.len() / PARTS.len();
        let lines = self.lines.get(part * each..(part + 1) * each).unwrap_or_default();
        lines.iter().sum::<f64>() / lines.len() as f64
    }
}

/// Bursts that wait more at the peak, and how many arrive in a step of time.
const fn bursts(frames: usize) -> (usize, usize) {
    let each = frames.div_ceil(BURST).div_ceil(POINTS);
    let each = if each == 0 { 1 } else { each };
    (each * POINTS, each)
}

impl Course {
    /// A peak of so many frames under each of the loads, which differ in their instances only.
    ///
    /// # Errors
    /// [`LabError`], also if the pools hold fewer buffers than are under way at the peak.
    pub fn of(
        question: &Question,
        loads: &[Load],
        frames: usize,
        touches: &Touches,
        progress: &(dyn Fn(&str) + Sync),
    ) -> Result<Self, LabError> {
        let Some(first) = loads.first() else { return Err(LabError::setup("no number of instances")) };
        let (waiting, each) = bursts(frames);
        let mut pictures = Vec::new();
        for load in loads {
            question.check(*load)?;
            let mut pools = Vec::new();
            for (pool, kind) in &question.pools {
                progress(&format!("{pool}, {} instances", load.instances));
                let (setup, frames_of) = question.setup(*load, touches)?;
                let kind = question.planned(*kind, load.instances);
                let setup = Setup { ring: kind.is_ring().then_some(question.buffers), ..setup };
                let Timed { setup, from, frames } = timed(question, setup, waiting);
                let order = kind.order(
                    &question.model,
                    question.buffers,
                    setup.under_way,
                    frames,
                    setup.per_thousand,
                )?;
                let costs = replay::run_by_steps(&question.model, &setup, &order, &frames_of, from, each)
                    .map_err(LabError::setup)?;
                let lines = costs.iter().take(PARTS.len() * POINTS).map(|cost| cost.both()).collect();
                pools.push(OverTime { pool: pool.clone(), lines });
            }
            pictures.push(Picture { instances: load.instances, pools });
        }
        let instances: Vec<_> = loads.iter().map(|load| load.instances).collect();
        Ok(Self {
            machine: question.model.name.clone(),
            parameters: question.parameters,
            gbps: first.gbps,
            crc: first.crc,
            waiting: waiting * BURST,
            step_ms: (each * BURST) as f64 / question.frames_per_second(first.gbps) * 1e3,
            pictures,
            notes: question.notes(&instances),
        })
    }

    /// One picture for each number of instances, with a line for each pool.
    ///
    /// # Errors
    /// [`PlotError`].
    pub fn plot(&self) -> Result<String, PlotError> {
        let series = |line: &OverTime| Series {
            name: line.pool.clone(),
            points: line
                .lines
                .iter()
                .enumerate()
                .map(|(step, lines)| ((step as f64 + 0.5) * self.step_ms, *lines))
                .collect(),
        };
        let picture = |Picture { instances, pools }: &Picture| Figure {
            title: format!("{} frames wait at once, instances: {instances}", self.waiting),
            x: Axis::linear("ms"),
            y: Axis::linear("lines from and to memory, a frame"),
            marks: Marks::Lines(pools.iter().map(series).collect()),
        };
        let pictures: Vec<_> = self.pictures.iter().map(picture).collect();
        let caption = format!(
            "Memory traffic, modelled: {}, {} Gbit/s an instance. Each fifth is {:.0} ms: {}",
            self.machine,
            self.gbps,
            self.step_ms * POINTS as f64,
            PARTS.join(", ")
        );
        figures(&pictures, Some(&caption))
    }
}

/// When a peak is, and how long all takes.
struct Timed {
    setup: Setup,
    /// The first step that is counted.
    from: usize,
    /// Frames that the lower MAC's lane must have had at the end.
    frames: usize,
}

/// The caches are full, then each of [`PARTS`] lasts until as many bursts have arrived as wait at the peak.
fn timed(question: &Question, setup: Setup, waiting: usize) -> Timed {
    let UnderWay { posted, queued, .. } = setup.under_way;
    let from = (replay::warm_up(&question.model, &setup) + posted + queued).div_ceil(BURST);
    let peak = Peak { after: from + waiting, bursts: waiting };
    let under_way = UnderWay { peak: Some(peak), ..setup.under_way };
    let until = peak.until() + waiting;
    Timed { setup: Setup { under_way, ..setup }, from, frames: under_way.through(until) * BURST }
}

/// For people.
impl fmt::Display for Course {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Parameters { ways, under_way, cold_lines } = self.parameters;
        writeln!(
            formatter,
            "Modelled on {}: {} frames more than usual wait between the lanes at the peak, at {} Gbit/s an instance{}; {ways} ways, {under_way} buffers \
             under way, {cold_lines} cold lines.\nLines from and to memory for each frame received, on average in {:.0} ms each:\n",
            self.machine,
            self.waiting,
            self.gbps,
            if self.crc { " with CRC" } else { "" },
            self.step_ms * POINTS as f64
        )?;
        writeln!(formatter, "instances  pool         {}", PARTS.map(|part| format!("{part:>13}")).concat())?;
        for Picture { instances, pools } in &self.pictures {
            for line in pools {
                write!(formatter, "{instances:>9}  {:<13}", line.pool)?;
                for part in 0..PARTS.len() {
                    write!(formatter, "{:>13.1}", line.average(part))?;
                }
                writeln!(formatter)?;
            }
        }
        for note in &self.notes {
            writeln!(formatter, "{note}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::machines::Model;
    use super::super::mix::Mix;
    use super::super::question::pools;
    use super::*;

    fn question(buffers: u32) -> Question {
        Question {
            model: Model::find("xeon-gold-6148").unwrap(),
            pools: pools(&["ring", "stack", "depot"].map(str::to_owned), 256, None).unwrap(),
            buffers,
            frames: 64,
            placements: 1,
            mix: Mix::cable(),
            // A peak that doesn't fit into so small a part of the caches.
            parameters: Parameters { ways: 2, under_way: 256, cold_lines: 0 },
        }
    }

    const LOAD: Load = Load { gbps: 5.0, crc: false, instances: 1 };

    #[test]
    fn a_ring_is_as_bad_after_a_peak_as_before_and_stack_and_depot_come_back() {
        let touches = Touches::recorded().unwrap();
        let course = Course::of(&question(12_288), &[LOAD], 8_000, &touches, &|_| ()).unwrap();
        let [ring, stack, depot] = &*course.pictures[0].pools else { panic!("{course:?}") };
        for line in [ring, stack, depot] {
            assert_eq!(line.lines.len(), 125, "{line:?}");
        }
        let parts = |line: &OverTime| [0, 1, 2, 3, 4].map(|part| line.average(part));
        let [before, _, height, _, _] = parts(ring);
        let last = |line: &OverTime| {
            line.lines[line.lines.len() - POINTS / 2..].iter().sum::<f64>() * 2.0 / POINTS as f64
        };
        assert!(height > 0.95 * before && last(ring) > 0.95 * before, "{course}");
        for line in [stack, depot] {
            let [before, growing, height, ..] = parts(line);
            assert!(growing > 2.0 * before && height > 5.0 * before, "{course}");
            assert!((last(line) - before).abs() < 1.0, "{course}");
            assert!(last(line) < 0.2 * last(ring), "{course}");
        }
        let picture = course.plot().unwrap();
        assert!(picture.contains("8000 frames wait at once, instances: 1"), "{picture:.500}");
        assert!(course.to_string().contains("at its height"), "{course}");
    }

    #[test]
    fn a_peak_that_pools_cannot_hold_is_named() {
        let touches = Touches::recorded().unwrap();
        let error = |question: &Question| {
            Course::of(question, &[LOAD], 8_000, &touches, &|_| ()).unwrap_err().to_string()
        };
        assert!(error(&question(4_096)).contains("run out of buffers"));
        let dpdk =
            Question { pools: pools(&["dpdk-ring".to_owned()], 256, None).unwrap(), ..question(12_288) };
        assert!(error(&dpdk).contains("aren't asked for a peak"));
    }
}
