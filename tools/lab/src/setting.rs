//! What can be chosen about a measurement, and the one way in which variants take turns.

use crate::counters;
use crate::disturbance::{self, Snapshot};
use crate::error::LabError;
use crate::measure::{Measure, measure_once};
use crate::memory_traffic::machines::Model;
use crate::statistics::{self, Spread, median};
use crate::turns::{self, Round, Taken};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use warmlane_mem::Pool;
use warmlane_memory::replay::Frames;
use warmlane_port::Port;

/// How many CPUs what takes turns keeps busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lanes {
    /// The first lane's.
    One,
    /// Both lanes', with lines that move between them.
    Two,
}

/// What can be chosen about a measurement.
#[derive(Clone, Debug, Default)]
pub struct Setting {
    /// The first lane's CPU; the caller's thread is bound to it.
    pub cpu: usize,
    /// The second lane's, if there is one.
    pub second_cpu: Option<usize>,
    /// How long one round takes.
    pub length: Duration,
    /// Rounds for each figure.
    pub rounds: usize,
    /// What the order of variants in turns is drawn from.
    pub seed: u64,
    /// Frames to use instead of generated ones, where frames are moved.
    pub frames: Option<Arc<Frames>>,
    /// Packets per burst, where the bench does not prescribe them; `None` is its own choice.
    pub burst: Option<usize>,
    /// The port to send to or to receive from, where a bench has none of its own.
    pub port: Option<PortSource>,
    /// Bytes of each frame, where a bench sends some; `None` is its own choice.
    pub frame_bytes: Option<usize>,
    /// Routes or flows in the table, where a bench looks up; `None` is its own choice, of routes all.
    pub entries: Option<usize>,
    /// Only steps with this in their name; for experiments that have [`steps`](crate::experiment::Experiment::steps).
    pub only: Option<String>,
    /// The caches in which it is modelled what workloads miss, of those in [`modelled::EXPERIMENTS`](crate::modelled::EXPERIMENTS).
    pub model: Option<Model>,
    /// Where it is kept how steady each measurement was.
    pub journal: Journal,
}

type Open = dyn Fn(&Pool) -> Result<Port, String>;

/// Opens a port whose packets are in the buffers of a pool; says what is wrong if it can't.
#[derive(Clone)]
pub struct PortSource(Rc<Open>);

impl PortSource {
    /// A port that this opens.
    pub fn new(open: impl Fn(&Pool) -> Result<Port, String> + 'static) -> Self {
        Self(Rc::new(open))
    }
}

impl std::fmt::Debug for PortSource {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("PortSource").finish_non_exhaustive()
    }
}

/// How steady the measurements of an experiment were.
#[derive(Clone, Debug, Default)]
pub struct Journal(Rc<RefCell<Vec<Steadiness>>>);

/// How steady one measurement was: of some variants that took turns.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Steadiness {
    /// The step of the experiment, in its own words.
    pub step: String,
    /// How many variants took turns.
    #[serde(rename = "ways")]
    pub variants: usize,
    /// How many turns there were.
    pub turns: usize,
    /// How many of them count.
    pub counted: usize,
    /// What the order of the variants was drawn from; records of before 23 November 2026 had one fixed order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// How many times longer than its fastest round the slowest one of a variant took, where that is most.
    pub spread: Option<f64>,
    /// Why figures of it don't count, if so: those of the variants in question are missing in the table.
    pub void: Vec<String>,
}

impl Journal {
    /// What was noted so far; notes begin anew.
    pub(crate) fn take(&self) -> Vec<Steadiness> {
        self.0.take()
    }
}

impl Setting {
    /// The second lane's CPU.
    ///
    /// # Errors
    /// [`LabError::OneCpu`], if this process may use only one.
    pub fn second_cpu(&self) -> Result<usize, LabError> {
        self.second_cpu.ok_or(LabError::OneCpu)
    }

    /// The port that was named, if one was.
    ///
    /// # Errors
    /// [`LabError::Setup`], if it can't be opened.
    pub(crate) fn port(&self, pool: &Pool) -> Result<Option<Port>, LabError> {
        self.port.as_ref().map(|source| (source.0)(pool).map_err(LabError::setup)).transpose()
    }

    /// Whether a step of this name is to be done.
    pub(crate) fn wants(&self, step: &str) -> bool {
        self.only.as_ref().is_none_or(|only| step.contains(only))
    }

    pub(crate) fn all_cpus(&self) -> Vec<usize> {
        [self.cpu].into_iter().chain(self.second_cpu).collect()
    }

    /// Measures several variants in turns until there are [`rounds`](Self::rounds) of each that count, and gives
    /// the medians.
    ///
    /// # Errors
    /// [`LabError::Setup`], if a CPU can't be used; [`LabError::OneCpu`], if there is none for a second lane.
    pub fn take_turns(&self, lanes: Lanes, variants: &mut [Box<dyn Measure>]) -> Result<Turns, LabError> {
        counters::uncounted(|| {
            for variant in &mut *variants {
                measure_once(&mut **variant, self.length);
            }
        });
        let process = std::process::id();
        let taken = self.turns(lanes, variants.len(), |variant| {
            self.watch(lanes, process, || Ok(measure_once(&mut *variants[variant], self.length)))
        })?;
        Ok(Turns::of(&taken))
    }

    /// The same for what is measured otherwise, by [`watch`](Self::watch); also notes how steady it was.
    pub(crate) fn turns(
        &self,
        lanes: Lanes,
        variants: usize,
        mut measure: impl FnMut(usize) -> Result<Round, LabError>,
    ) -> Result<Taken, LabError> {
        let (cpus, rounds) = (self.cpus(lanes)?, self.rounds.max(1));
        // Each measurement has orders of its own.
        let seed = self.seed.wrapping_add(self.journal.0.borrow().len() as u64);
        let taken = turns::take(&cpus, variants, rounds, seed, |variant| {
            counters::variant(variant);
            measure(variant)
        })?;
        self.journal.0.borrow_mut().push(Steadiness::of(&taken));
        Ok(taken)
    }

    /// One round of a process's, with what the machine did to it.
    pub(crate) fn watch(
        &self,
        lanes: Lanes,
        process: u32,
        work: impl FnOnce() -> Result<f64, LabError>,
    ) -> Result<Round, LabError> {
        let cpus = self.cpus(lanes)?;
        let before = Snapshot::take(&cpus, process);
        let cycles_per_unit = work()?;
        let after = Snapshot::take(&cpus, process);
        Ok(Round { cycles_per_unit, disturbed: disturbance::between(&before, &after, self.length) })
    }

    fn cpus(&self, lanes: Lanes) -> Result<Vec<usize>, LabError> {
        match lanes {
            Lanes::One => Ok(vec![self.cpu]),
            Lanes::Two => Ok(vec![self.cpu, self.second_cpu()?]),
        }
    }
}

#[cfg(test)]
impl Setting {
    /// One short round on the first two CPUs, or the first: enough to see that all parts work, and nothing to believe.
    pub(crate) fn tiny() -> Self {
        let cpus = warmlane_sys::affinity::allowed_cpus().unwrap();
        Self {
            cpu: cpus[0],
            second_cpu: cpus.get(1).copied(),
            length: Duration::from_millis(1),
            rounds: 1,
            ..Self::default()
        }
    }

    /// The same with two CPUs, if there are.
    pub(crate) fn tiny_on_two_cpus() -> Option<Self> {
        Some(Self::tiny()).filter(|setting| setting.second_cpu.is_some())
    }

    /// What an experiment finds with this setting.
    pub(crate) fn try_out(&self, run: crate::experiment::Run) -> crate::record::Findings {
        run(self, &mut |_| ()).unwrap()
    }
}

/// What variants that took turns cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Turns {
    /// The median of each variant, in cycles per unit, over turns of one regime; `NaN` where it doesn't count.
    pub medians: Vec<f64>,
    /// What a line cost from CPU to CPU in these turns, in cycles ([`crate::line_transfer`]); `None` with one lane.
    pub line_transfer: Option<f64>,
    /// Which turns count, from 0.
    pub counted: Vec<usize>,
}

impl Turns {
    fn of(taken: &Taken) -> Self {
        let medians =
            taken.variants.iter().enumerate().map(|(number, variant)| {
                if doubt(taken, number).is_none() { median(variant) } else { f64::NAN }
            });
        Self {
            medians: medians.collect(),
            line_transfer: taken.line_transfer,
            counted: taken.counted.clone(),
        }
    }
}

/// Why the figure of a variant doesn't count, if so.
pub(crate) fn doubt(taken: &Taken, variant: usize) -> Option<String> {
    let name = || if taken.variants.len() == 1 { "it".to_owned() } else { format!("way {}", variant + 1) };
    let unsteady = || statistics::unsteady(&name(), &taken.variants[variant]);
    taken.void.clone().or_else(unsteady)
}

impl Steadiness {
    fn of(taken: &Taken) -> Self {
        let spreads = taken.variants.iter().filter_map(|variant| Spread::of(variant));
        Self {
            step: counters::current_step(),
            variants: taken.variants.len(),
            turns: taken.turns,
            counted: if taken.void.is_some() { 0 } else { taken.counted.len() },
            seed: Some(taken.seed),
            spread: spreads.map(|spread| spread.max / spread.min).reduce(f64::max),
            void: (0..taken.variants.len()).filter_map(|variant| doubt(taken, variant)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Cell;

    #[test]
    fn figures_that_do_not_count_are_missing() {
        let steady = vec![5.0, 7.0, 6.0];
        let mut taken = Taken {
            variants: vec![steady, vec![5.0, 6.0, 20.0]],
            counted: vec![0, 2, 3],
            turns: 5,
            ..Taken::default()
        };
        let turns = Turns::of(&taken);
        assert!((turns.medians[0] - 6.0).abs() < 1e-9 && turns.medians[1].is_nan(), "{turns:?}");
        assert_eq!(Cell::from(turns.medians[1]), Cell::Missing);
        let steadiness = Steadiness::of(&taken);
        assert_eq!((steadiness.turns, steadiness.counted, steadiness.spread), (5, 3, Some(4.0)));
        assert!(
            matches!(&steadiness.void[..], [reason] if reason.starts_with("way 2 varies from 5.0 to 20.0"))
        );
        taken.void = Some("9 turns of 12 were disturbed".to_owned());
        assert!(Turns::of(&taken).medians.iter().all(|median| median.is_nan()));
        assert_eq!((Steadiness::of(&taken).void.len(), Steadiness::of(&taken).counted), (2, 0));
    }
}
