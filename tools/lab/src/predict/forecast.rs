//! What was predicted of a configuration, for people and for programs.

use super::advice::{self, Advice};
use super::configuration::{Configuration, Function, HELD};
use super::figures::{Asked, Figures};
use super::working_set::{self, Part};
use crate::error::LabError;
use crate::memory_traffic::replay::PerFrame;
use serde::Serialize;
use std::fmt;

/// Of a configuration on a machine at a rate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Forecast {
    /// Whose configuration.
    pub function: Function,
    /// On which machine.
    pub machine: String,
    /// Lanes of an instance.
    pub lanes: usize,
    /// Side by side.
    pub instances: usize,
    /// Sizes of frames, as asked for.
    pub frames: String,
    /// Mean bytes of a frame, with its frame check sequence.
    pub frame_bytes: f64,
    /// Gbit/s of frames of an instance.
    pub gbps: f64,
    /// Packets a second of an instance.
    pub packets_per_second: f64,
    /// Parts of the working set; the last is all of them.
    pub working_set: Vec<Part>,
    /// Lines for each packet.
    pub per_packet: PerFrame,
    /// Traffic of memory, of all instances.
    pub memory: Memory,
    /// What would change that.
    pub advice: Vec<Advice>,
    /// What was taken for granted.
    pub assumed: Vec<String>,
}

/// Traffic of memory.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Memory {
    /// GB/s read.
    pub read: f64,
    /// GB/s written.
    pub written: f64,
    /// GB/s that the machine's channels carry at most, if that is known.
    pub channels_gbs: Option<f64>,
    /// The part of that, in percent.
    pub percent: Option<f64>,
}

impl Memory {
    fn new(asked: &Asked, figures: &Figures) -> Self {
        let channels_gbs = asked.model.memory_gbs;
        let percent = channels_gbs.filter(|all| *all > 0.0).map(|all| figures.both() / all * 100.0);
        Self { read: figures.read, written: figures.written, channels_gbs, percent }
    }
}

impl Forecast {
    /// Asks the model, and for advice.
    ///
    /// # Errors
    /// [`LabError`].
    pub fn of(asked: &Asked, configuration: &Configuration) -> Result<Self, LabError> {
        asked.check(configuration)?;
        let figures = asked.figures(configuration)?;
        Ok(Self {
            function: configuration.function,
            machine: asked.model.name.clone(),
            lanes: configuration.lanes,
            instances: configuration.instances,
            frames: asked.load.frames.clone(),
            frame_bytes: asked.load.sizes.mean(),
            gbps: asked.load.gbps(),
            packets_per_second: asked.load.packets_per_second,
            working_set: working_set::parts(asked, configuration, &figures),
            per_packet: figures.per_packet,
            memory: Memory::new(asked, &figures),
            advice: advice::advise(asked, configuration, &figures)?,
            assumed: assumed(asked, configuration),
        })
    }
}

/// What the file doesn't say.
fn assumed(asked: &Asked, configuration: &Configuration) -> Vec<String> {
    let model = &asked.model;
    let mut all = vec![format!(
        "lanes have {} of the {} ways of the shared level: the part that was fitted to published figures of a Xeon Gold 6148",
        asked.ways, model.shared.ways
    )];
    let [lanes, instances] = asked.together(configuration);
    if lanes * instances < configuration.all_lanes() {
        all.push(format!(
            "{} lanes on {} cores that share a last level: {} are modelled together, the others have caches of their own",
            configuration.all_lanes(),
            model.cores,
            lanes * instances
        ));
    }
    if configuration.ports.iter().any(|port| port.posts) {
        all.push(format!("receive rings are full of buffers, and {HELD} wait in each transmit ring"));
    }
    match configuration.function {
        Function::Docsis => all.push("what is received and what is sent have half of the buffers each".to_owned()),
        _ => all.push(
            "packets come and go by all ports alike, to all prefixes alike: more lines of tables than most traffic needs".to_owned(),
        ),
    }
    if configuration.function == Function::Router {
        all.push("the file doesn't say the kernel's routes".to_owned());
    }
    all
}

/// Bytes as people read them.
fn readable(bytes: u64) -> String {
    match bytes {
        0..10_240 => format!("{bytes} B"),
        10_240..10_485_760 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}

impl fmt::Display for Forecast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { function, machine, lanes, instances, frames, .. } = self;
        let several = if *instances > 1 { format!("{instances} times ") } else { String::new() };
        writeln!(
            f,
            "{several}{function} with {lanes} lane(s) on {machine}, {:.1} Gbit/s{} of frames '{frames}' ({:.0} bytes): {:.3} Mpps\n",
            self.gbps,
            if *instances > 1 { " each" } else { "" },
            self.frame_bytes,
            self.packets_per_second / 1e6
        )?;
        writeln!(f, "{:<48} {:>10} {:>10}  lives in", "working set", "a lane", "together")?;
        for Part { name, lane_bytes, bytes, level } in &self.working_set {
            writeln!(f, "{name:<48} {:>10} {:>10}  {level}", readable(*lane_bytes), readable(*bytes))?;
        }
        let PerFrame { accesses, first_misses, second_misses, reads, writes } = self.per_packet;
        writeln!(f, "\nlines a packet: {accesses:.1} accessed by cores")?;
        writeln!(f, "  {first_misses:.2} not in the first level")?;
        writeln!(f, "  {second_misses:.2} not in the second level")?;
        writeln!(f, "  {reads:.2} read from memory, {writes:.2} written to it, devices' lines included")?;
        let Memory { read, written, channels_gbs, percent } = self.memory;
        write!(f, "\nmemory: {read:.2} GB/s read, {written:.2} GB/s written")?;
        match (channels_gbs, percent) {
            (Some(all), Some(percent)) => writeln!(f, ", {percent:.1} % of {all} GB/s")?,
            _ => writeln!(
                f,
                "; what its channels carry isn't known: memory-gbs in a file for --machine says it"
            )?,
        }
        writeln!(
            f,
            "\nadvice:{}",
            if self.advice.is_empty() { " nothing that would change this" } else { "" }
        )?;
        for Advice { about, change, reason } in &self.advice {
            writeln!(f, "  {about}: {change}\n    {reason}")?;
        }
        writeln!(f, "\ntaken for granted:")?;
        self.assumed.iter().try_for_each(|sentence| writeln!(f, "  {sentence}"))
    }
}
