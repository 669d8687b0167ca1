//! What would change a forecast: each piece of advice was tried in the model, on top of those before it.

use super::configuration::{Configuration, Function};
use super::figures::{Asked, Figures};
use super::lanes;
use super::working_set::{buffer_bytes, share};
use crate::error::LabError;
use crate::memory_traffic::mix::Mix;
use crate::memory_traffic::parameters::Parameters;
use crate::memory_traffic::question::{BUFFERS, Question};
use serde::Serialize;
use warmlane_mem::PoolKind;

/// What to change, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// Of what it is: `pool`, `hot-set`, `buffers`, `ring-depth`, `instances`, `memory-channels`.
    pub about: &'static str,
    /// What to do.
    pub change: String,
    /// Why.
    pub reason: String,
}

/// Less than this part of the traffic, or of the misses, is no reason to change anything.
const LEAST_PART: f64 = 0.05;
/// Nor are fewer lines a packet than this.
const LEAST_LINES: f64 = 0.1;

/// The part of the memory channels' figure that traffic gets in practice.
const USABLE: f64 = 0.8;

/// More lines than those of one alone are too many by this part.
const CROWDED: f64 = 0.2;

/// The shortest ring that is advised.
const SHORTEST_RING: u32 = 64;

/// In which way the second figures are better, if they are.
fn gain(before: &Figures, after: &Figures) -> Option<String> {
    let is_less = |before: f64, after: f64| before - after >= LEAST_LINES.max(before * LEAST_PART);
    let [lines, fewer] = [before, after].map(|figures| figures.per_packet.both());
    if is_less(lines, fewer) {
        return Some(format!("lines from and to memory fall from {lines:.1} to {fewer:.1} a packet"));
    }
    let [misses, fewer_misses] = [before, after].map(|figures| figures.per_packet.second_misses);
    (is_less(misses, fewer_misses) && fewer <= lines + LEAST_LINES).then(|| {
        format!(
            "lines that the second level doesn't have fall from {misses:.1} to {fewer_misses:.1} a packet"
        )
    })
}

/// A configuration that gets better, step by step.
struct Advisor<'a> {
    asked: &'a Asked,
    now: Configuration,
    figures: Figures,
    advice: Vec<Advice>,
}

/// All advice for a configuration with these figures.
///
/// # Errors
/// [`LabError`], of the model.
pub fn advise(
    asked: &Asked,
    configuration: &Configuration,
    figures: &Figures,
) -> Result<Vec<Advice>, LabError> {
    let mut advisor = Advisor { asked, now: configuration.clone(), figures: *figures, advice: Vec::new() };
    advisor.buffers();
    advisor.pool()?;
    advisor.hot_set()?;
    advisor.rings()?;
    advisor.instances()?;
    advisor.channels(figures);
    Ok(advisor.advice)
}

impl Advisor<'_> {
    fn say(&mut self, about: &'static str, change: String, reason: String) {
        self.advice.push(Advice { about, change, reason });
    }

    /// Takes a change over if it is a gain.
    fn adopt(&mut self, changed: Configuration) -> Result<Option<String>, LabError> {
        let after = self.asked.figures(&changed)?;
        let gain = gain(&self.figures, &after);
        if gain.is_some() {
            (self.now, self.figures) = (changed, after);
        }
        Ok(gain)
    }

    /// A pool that has too few for all rings.
    fn buffers(&mut self) {
        let (has, needs) = (u64::from(self.now.pool.buffers), lanes::needed(&self.now));
        if needs > has {
            let change = format!("buffers = {needs} or more");
            let reason = format!(
                "rings, and what {} lane(s) keep, take {needs} buffers and there are {has}: rings stay partly empty, and bursts are dropped",
                self.now.lanes
            );
            self.say("buffers", change, reason);
        }
    }

    /// A ring uses all its buffers.
    fn pool(&mut self) -> Result<(), LabError> {
        if self.now.pool.kind != PoolKind::Ring {
            return Ok(());
        }
        let all = self.figures.circulating;
        let mut changed = self.now.clone();
        changed.pool.kind = PoolKind::Depot;
        if let Some(gain) = self.adopt(changed)? {
            let few = self.figures.circulating;
            let reason = format!("a ring uses each of its buffers before it uses one again: {gain}");
            self.say("pool", "kind = \"depot\"".to_owned(), reason);
            let change = format!("{few} buffers going round, not {all}: a depot finds its hot set by itself");
            let touched = buffer_bytes(self.asked, self.now.function) / 1024.0;
            let [few, all] = [few, all].map(|count| count as f64 * touched);
            let reason = format!("that is {few:.0} KiB that packets touch instead of {all:.0}");
            self.say("hot-set", change, reason);
        }
        Ok(())
    }

    /// A depot that buffers cross from lane to lane keeps whole magazines going round.
    fn hot_set(&mut self) -> Result<(), LabError> {
        if self.now.function != Function::Docsis || self.now.pool.kind != PoolKind::Depot {
            return Ok(());
        }
        let question = Question {
            model: self.asked.model.clone(),
            pools: Vec::new(),
            buffers: BUFFERS,
            frames: 0,
            placements: 1,
            mix: Mix::cable(),
            parameters: Parameters { ways: self.asked.ways, ..Parameters::FITTED },
        };
        let [_, instances] = self.asked.together(&self.now);
        let magazine = self.now.pool.magazine_size();
        let (planned, hot) = question.hot_set(magazine, instances);
        if planned == magazine {
            return Ok(());
        }
        let mut changed = self.now.clone();
        (changed.pool.magazine, changed.pool.hot_set) = (Some(planned), (hot > 0).then_some(hot));
        if let Some(gain) = self.adopt(changed)? {
            let reason = format!(
                "an instance's share of the caches holds {} buffers, and magazines of {magazine} keep others going round than those under way: {gain}",
                question.share(instances)
            );
            self.say("hot-set", format!("--lane-cache {planned}"), reason);
        }
        Ok(())
    }

    /// Buffers in rings come round late: by then others have taken their place in the cache.
    fn rings(&mut self) -> Result<(), LabError> {
        let posting = self.now.ports.iter().filter(|port| port.posts && port.option.is_some());
        let (count, entries) = (posting.clone().count(), posting.map(|port| port.entries).max().unwrap_or(0));
        if count == 0 || entries <= SHORTEST_RING {
            return Ok(());
        }
        let model = &self.asked.model;
        let [lanes, instances] = self.asked.together(&self.now);
        let space = match model.device_ways {
            0 => model.second.kib << 10,
            ways => share(model, ways.min(self.asked.ways)) / (lanes * instances) as u64,
        };
        let buffer = buffer_bytes(self.asked, self.now.function);
        #[expect(clippy::cast_sign_loss, reason = "no space is negative")]
        let fits = (space as f64 / (buffer * count as f64)) as u32;
        let shorter = fits.checked_ilog2().map_or(SHORTEST_RING, |log2| 1 << log2).max(SHORTEST_RING);
        if shorter >= entries {
            return Ok(());
        }
        let mut changed = self.now.clone();
        for port in changed.ports.iter_mut().filter(|port| port.posts && port.option.is_some()) {
            port.entries = port.entries.min(shorter);
        }
        let option = self.now.ports.iter().find_map(|port| port.option).unwrap_or("ring");
        if let Some(gain) = self.adopt(changed)? {
            let place = match model.device_ways {
                0 => format!("a second level of {} KiB", model.second.kib),
                ways => {
                    format!("a lane's share of the {ways} ways that devices write to, {} KiB,", space >> 10)
                }
            };
            let packets = self.asked.load.packets_per_second / lanes as f64 / count as f64;
            let reason = format!(
                "{place} holds {fits} buffers of each ring, and {entries} are posted: {gain}. A ring of {shorter} still rides out {:.0} µs at this rate",
                f64::from(shorter) / packets * 1e6
            );
            self.say("ring-depth", format!("{option} = {shorter}"), reason);
        }
        Ok(())
    }

    /// So many side by side that they push out each other's lines.
    fn instances(&mut self) -> Result<(), LabError> {
        let [_, together] = self.asked.together(&self.now);
        if together < 2 {
            return Ok(());
        }
        let alone = |count| Configuration { instances: count, ..self.now.clone() };
        let lines = |figures: &Figures| figures.per_packet.both();
        let crowded = lines(&self.figures);
        let one = lines(&self.asked.figures(&alone(1))?);
        let bound = one * (1.0 + CROWDED) + LEAST_LINES;
        if crowded <= bound {
            return Ok(());
        }
        let (mut most, mut found) = (1, one);
        let mut count = together / 2;
        while count > 1 {
            let now = lines(&self.asked.figures(&alone(count))?);
            if now <= bound {
                (most, found) = (count, now);
                break;
            }
            count /= 2;
        }
        let reason = format!(
            "{together} that share a last level move {crowded:.1} lines a packet, and {most} move {found:.1}: they push out each other's"
        );
        self.say("instances", format!("{most} instance(s) for each last-level cache"), reason);
        Ok(())
    }

    /// More than memory carries.
    fn channels(&mut self, before: &Figures) {
        let Some(all) = self.asked.model.memory_gbs else { return };
        let needs = before.both();
        if needs <= all * USABLE {
            return;
        }
        let reason = |what: &str| {
            let after = self.figures.both();
            let less = (after < needs * (1.0 - LEAST_PART))
                .then(|| format!(" With the advice above it is {after:.1} GB/s."));
            format!(
                "{needs:.1} GB/s are read and written at this rate, and of the {all:.1} GB/s of {what} some {:.0} can be had.{}",
                all * USABLE,
                less.unwrap_or_default()
            )
        };
        match self.asked.model.memory_channels {
            Some(channels) if channels > 0 => {
                let each = all / f64::from(channels);
                let wanted = (needs / (each * USABLE)).ceil();
                let reason = reason(&format!("{channels} channels"));
                self.say("memory-channels", format!("{wanted:.0} channels like these"), reason);
            }
            _ => {
                let reason = reason("its memory");
                self.say("memory-channels", format!("memory of {:.0} GB/s", needs / USABLE), reason);
            }
        }
    }
}
