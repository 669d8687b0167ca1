//! The stage contract, and small stages made from closures.

use crate::every::Every;
use crate::outputs::Outputs;
use crate::trace::Explanation;
use crate::wake_ups::WakeUps;
use std::any::Any;
use std::borrow::Cow;
use std::time::Duration;
use warmlane_counters::{DropCounters, Source, drop_reasons};
use warmlane_mem::{Burst, Packet};
use warmlane_port::{BurstExt, TransmitOffloads};

/// What a stage would have counted ([`Stage::rehearse`]).
pub type Rehearsed = Vec<Box<dyn Source>>;

/// Code that takes a burst and passes it on.
///
/// Packets that a stage leaves in the burst go to the next stage. To drop a packet, a stage removes it and counts it
/// ([`BurstExt::keep`]). A stage can also have named outputs, each of which leads to a port, another lane or another stage.
///
/// Most stages need only [`process`](Self::process), and every `FnMut(&mut Burst)` is a stage. A tuple of two to eight stages is a stage,
/// too: they run one after the other, without a copy or a call by pointer in between. If a stage such as the forwarder sends everything
/// by its outputs, nothing can follow it in a tuple; later stages are connected to its outputs instead
/// ([`passes_on`](Self::passes_on)).
pub trait Stage: Send {
    /// Works on one burst, which has come by the stage's first input and is never empty. If you replace the burst with another one,
    /// give that the same [limit](Burst::limit).
    fn process(&mut self, burst: &mut Burst, outputs: &mut Outputs<'_>);

    /// What reports and pictures call the stage, unless its pipeline gives it another name.
    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed(short_name(std::any::type_name::<Self>()))
    }

    /// The names of the stage's outputs, by number from 0. No two may be alike. Passing packets on is not an output and has no name.
    /// If the outputs depend on how the stage was made, implement [`output_count`](Self::output_count) and
    /// [`output_name`](Self::output_name) instead.
    fn outputs(&self) -> &'static [&'static str] {
        &[]
    }

    /// How many outputs there are.
    fn output_count(&self) -> usize {
        self.outputs().len()
    }

    /// The name of an output.
    fn output_name(&self, output: usize) -> Cow<'static, str> {
        match self.outputs().get(output) {
            Some(name) => Cow::Borrowed(name),
            None => Cow::Owned(format!("output{output}")),
        }
    }

    /// Whether packets of this output may be lost without harm, such as copies for a capture. The lane never waits for such an output,
    /// even if it leads to a lossless queue.
    fn is_optional(&self, output: usize) -> bool {
        let _ = output;
        false
    }

    /// Whether it leaves packets in the burst. `false` says that all packets leave by its outputs or end here. Then nothing can follow it
    /// in a tuple: such a pipeline is refused when it is built.
    fn passes_on(&self) -> bool {
        true
    }

    /// Of a tuple: the name of a stage that no packet can reach, because the one before doesn't [pass on](Self::passes_on) any.
    fn unreachable(&self) -> Option<Cow<'static, str>> {
        None
    }

    /// What packets may still need when they come here, such as checksums or segmentation. If an input delivers packets that need
    /// more, that is done in software [before](warmlane_port::software_offload), so by default a stage sees complete packets only.
    /// A stage that accepts partial checksums may change their field only by what changes in the pseudo header; one that accepts
    /// segmentation may get packets longer than any link's frames. Asked once, when the pipeline is built.
    fn accepts(&self) -> TransmitOffloads {
        TransmitOffloads::NONE
    }

    /// What packets that it makes or changes may need in addition. It is done in software in front of outputs that can't do it. Asked
    /// once, when the pipeline is built.
    fn leaves(&self) -> TransmitOffloads {
        TransmitOffloads::NONE
    }

    /// How many inputs there are: at least one.
    fn input_count(&self) -> usize {
        1
    }

    /// The name of an input. No two may be alike. The first is the one that the stage before leads to.
    fn input_name(&self, input: usize) -> Cow<'static, str> {
        if input == 0 { Cow::Borrowed("in") } else { Cow::Owned(format!("input{input}")) }
    }

    /// Like [`process`](Self::process), for packets that came by the input with this number.
    fn process_input(&mut self, input: usize, burst: &mut Burst, outputs: &mut Outputs<'_>) {
        let _ = input;
        self.process(burst, outputs);
    }

    /// Whether [`poll`](Self::poll) is to be called. Asked once, when the pipeline is built.
    fn is_polled(&self) -> bool {
        false
    }

    /// Called once in each poll of the lane, before packets are received: for stages that make packets, hold them for a while, or watch
    /// the clock. `now` is the time-stamp counter's reading. Packets that it appends to `burst` are passed on. In a tuple the burst may
    /// already have packets of earlier stages, so look how much [`space`](Burst::space) there is. Returns how many packets it made or
    /// let go; while [`Outputs::must_wait`] says so, it should do neither. Once the lane is asked to stop, a stage that
    /// [is done](Self::is_done) is no longer polled.
    fn poll(&mut self, now: u64, burst: &mut Burst, outputs: &mut Outputs<'_>) -> usize {
        let _ = (now, burst, outputs);
        0
    }

    /// Called at the end of each poll that found nothing to do.
    fn idle(&mut self, outputs: &mut Outputs<'_>) {
        let _ = outputs;
    }

    /// Called when the lane is about to sleep. If the stage will have something to do by itself, it says by when it must be polled again
    /// ([`WakeUps::by`]); then it calls `then`, which sleeps. If it doesn't call `then`, the lane doesn't sleep but goes on polling, with
    /// pauses. That is the default for stages that are polled.
    fn sleep(&mut self, wake_ups: WakeUps<'_>, then: &mut dyn FnMut(WakeUps<'_>)) {
        if !self.is_polled() {
            then(wake_ups);
        }
    }

    /// Called when the lane is asked to stop: make nothing new.
    fn stop(&mut self) {}

    /// Whether the stage has nothing more to do by itself. A lane ends once its inputs have ended and all its stages are done.
    fn is_done(&self) -> bool {
        true
    }

    /// Called at the end, so that the stage gives away what it still holds. Packets that it appends to `burst` are passed on. Returns how
    /// many packets came out, and is called again until that is none.
    fn finish(&mut self, burst: &mut Burst, outputs: &mut Outputs<'_>) -> usize {
        let _ = (burst, outputs);
        0
    }

    /// What it counts, for reports and metrics. Asked once, before it moves to its lane.
    fn counters(&self) -> Vec<Box<dyn Source>> {
        Vec::new()
    }

    /// Notes what will decide about a packet: what the stage looks up for it, and what it finds. Asked before the packet is processed,
    /// and only for packets that somebody [traces](crate::Graph::trace). What the stage counts and where the packet goes is traced
    /// anyway.
    fn explain(&self, input: usize, packet: &Packet, explanation: &mut Explanation) {
        let _ = (input, packet, explanation);
    }

    /// Does with a burst what [`process_input`](Self::process_input) would do, as a rehearsal ([`Graph::rehearse`](crate::Graph::rehearse)):
    /// the outputs lead nowhere, and nothing that the stage counts, learns or holds may change. Returns what it would have counted, or
    /// `None` if it can't rehearse; then the burst is lost.
    fn rehearse(&mut self, input: usize, burst: &mut Burst, outputs: &mut Outputs<'_>) -> Option<Rehearsed> {
        let _ = (input, burst, outputs);
        None
    }

    /// Itself, if somebody has put it around another stage and will take it away again.
    fn as_any(&mut self) -> Option<&mut dyn Any> {
        None
    }

    /// This stage, with `action` called about every `period`, whether packets come or not: to expire entries, for example, or to report.
    fn every<F>(self, period: Duration, action: F) -> Every<Self, F>
    where
        Self: Sized,
        F: FnMut(&mut Self, &mut Outputs<'_>) + Send,
    {
        Every::new(self, period, action)
    }
}

/// The last part of a type's path, without its parameters.
fn short_name(path: &'static str) -> &'static str {
    let path = path.split('<').next().unwrap_or(path);
    let mut parts = path.rsplit("::");
    match parts.next() {
        Some("{{closure}}") | None => "closure",
        Some(name) => name,
    }
}

impl<F: FnMut(&mut Burst) + Send> Stage for F {
    #[inline]
    fn process(&mut self, burst: &mut Burst, _outputs: &mut Outputs<'_>) {
        self(burst);
    }

    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed("closure")
    }
}

/// The stage that does nothing: a wire between two ports.
#[derive(Clone, Copy, Debug, Default)]
pub struct PassThrough;

impl Stage for PassThrough {
    fn process(&mut self, _burst: &mut Burst, _outputs: &mut Outputs<'_>) {}

    fn accepts(&self) -> TransmitOffloads {
        TransmitOffloads::ALL
    }

    fn rehearse(&mut self, _: usize, _: &mut Burst, _: &mut Outputs<'_>) -> Option<Rehearsed> {
        Some(Vec::new())
    }
}

drop_reasons! {
    /// Why [`per_packet`] drops.
    pub enum FilterDrop {
        /// A filter in the pipeline said not to keep the packet.
        Filtered: "filtered", Notice;
    }
}

/// A stage from a closure that looks at one packet at a time and says whether to keep it. The others are dropped as
/// [`FilterDrop::Filtered`]; for reasons of your own, write a stage and use [`BurstExt::keep`].
pub fn per_packet(keep: impl FnMut(&mut Packet) -> bool + Send) -> impl Stage {
    PerPacket { keep, drops: DropCounters::new() }
}

struct PerPacket<F> {
    keep: F,
    drops: DropCounters<FilterDrop>,
}

impl<F: FnMut(&mut Packet) -> bool + Send> Stage for PerPacket<F> {
    #[inline]
    fn process(&mut self, burst: &mut Burst, outputs: &mut Outputs<'_>) {
        burst.keep(&self.drops, |packet| {
            if (self.keep)(packet) {
                return Ok(());
            }
            outputs.show_dropped(FilterDrop::Filtered, packet);
            Err(FilterDrop::Filtered)
        });
    }

    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed("filter")
    }

    fn counters(&self) -> Vec<Box<dyn Source>> {
        vec![Box::new(self.drops.view())]
    }
}

/// A stage with named outputs, from a closure.
pub fn branch<F>(outputs: &'static [&'static str], process: F) -> Branch<F>
where
    F: FnMut(&mut Burst, &mut Outputs<'_>) + Send,
{
    Branch { outputs, process }
}

/// See [`branch`].
#[derive(Debug)]
pub struct Branch<F> {
    outputs: &'static [&'static str],
    process: F,
}

impl<F: FnMut(&mut Burst, &mut Outputs<'_>) + Send> Stage for Branch<F> {
    #[inline]
    fn process(&mut self, burst: &mut Burst, outputs: &mut Outputs<'_>) {
        (self.process)(burst, outputs);
    }

    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed("branch")
    }

    fn outputs(&self) -> &'static [&'static str] {
        self.outputs
    }
}
