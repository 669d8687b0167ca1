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
/// What a stage leaves in the burst goes on to whatever follows; a packet is dropped by removing it, and who removes it counts it
/// ([`BurstExt::keep`]). A stage can have named
/// outputs besides, each of which leads to a port, another lane or another stage. Most stages need only
/// [`process`](Self::process), and every `FnMut(&mut Burst)` is one. Tuples of up to eight stages are stages: one after the other,
/// without a copy or a call by pointer in between. Behind one that sends all by its outputs, such as a forwarder, stages are connected
/// to these outputs instead ([`passes_on`](Self::passes_on)).
pub trait Stage: Send {
    /// Works on one burst, which is never empty. It is called by the stage's first input. Who puts another burst in its place
    /// makes it with the same limit.
    fn process(&mut self, burst: &mut Burst, outputs: &mut Outputs<'_>);

    /// What reports and pictures call the stage, unless it is given another name in its pipeline.
    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed(short_name(std::any::type_name::<Self>()))
    }

    /// The names of the outputs that there are besides going on, numbered from 0 and each unique in this stage. One whose outputs
    /// depend on how it was made says [how many](Self::output_count) there are, and [their names](Self::output_name).
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

    /// Whether what leaves by this output may be lost without harm, as copies for a capture: it is never waited for, even if
    /// it leads to a lossless queue.
    fn is_optional(&self, output: usize) -> bool {
        let _ = output;
        false
    }

    /// Whether it leaves packets in the burst. `false` says that they all leave by its outputs or end here, so that in a row nothing
    /// can stand behind it: a pipeline in which something does is refused.
    fn passes_on(&self) -> bool {
        true
    }

    /// For stages put together from others: the name of one that no packet can get to, as the one before doesn't
    /// [pass on](Self::passes_on).
    fn unreachable(&self) -> Option<Cow<'static, str>> {
        None
    }

    /// What packets may still need when they come here: partial checksums, segmentation. Where an input brings more than that,
    /// it is done [before](warmlane_port::software_offload), so a stage that doesn't say sees complete packets only. One that does
    /// adds nothing to a partial checksum's field but what changes the pseudo header, and knows that a packet to be segmented
    /// may be longer than any link's frames. Asked once, when the pipeline is put together.
    fn accepts(&self) -> TransmitOffloads {
        TransmitOffloads::NONE
    }

    /// What packets that it makes or changes may need besides. Outputs that can't do that get it done in software. Asked once.
    fn leaves(&self) -> TransmitOffloads {
        TransmitOffloads::NONE
    }

    /// How many inputs there are, from 1.
    fn input_count(&self) -> usize {
        1
    }

    /// The name of an input, unique in this stage. The first is where the stage before leads to.
    fn input_name(&self, input: usize) -> Cow<'static, str> {
        if input == 0 { Cow::Borrowed("in") } else { Cow::Owned(format!("input{input}")) }
    }

    /// Like [`process`](Self::process), for packets that came by the input with this number.
    fn process_input(&mut self, input: usize, burst: &mut Burst, outputs: &mut Outputs<'_>) {
        let _ = input;
        self.process(burst, outputs);
    }

    /// Whether [`poll`](Self::poll) is to be called. Asked once, when the pipeline is put together.
    fn is_polled(&self) -> bool {
        false
    }

    /// Called once in each poll of the lane, before packets are received, with the time-stamp counter's reading: for stages
    /// that make packets, hold them for a while, or watch the clock. What it appends to `burst` goes on; in a row there may be
    /// packets of the stages before in it, so there is [`space`](Burst::space) for so many only. Says how many packets it made or
    /// let go. While [`Outputs::must_wait`] it should do neither. Once the lane is asked to stop, a stage that
    /// [is done](Self::is_done) is polled no more.
    fn poll(&mut self, now: u64, burst: &mut Burst, outputs: &mut Outputs<'_>) -> usize {
        let _ = (now, burst, outputs);
        0
    }

    /// Called in polls that found nothing to do.
    fn idle(&mut self, outputs: &mut Outputs<'_>) {
        let _ = outputs;
    }

    /// The lane is about to sleep: says by when the stage has to be polled again, if by itself it has something to do
    /// ([`WakeUps::by`]), and calls `then`, which sleeps. Without that call the lane doesn't sleep, but polls on with pauses: so it is
    /// for stages that are polled and don't say more.
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

    /// Called at the end: passes on what the stage still holds. What it appends to `burst` goes on. Says how many packets
    /// came out, and is called again until that is none.
    fn finish(&mut self, burst: &mut Burst, outputs: &mut Outputs<'_>) -> usize {
        let _ = (burst, outputs);
        0
    }

    /// What it counts, for reports and metrics. Asked once, before it moves to its lane.
    fn counters(&self) -> Vec<Box<dyn Source>> {
        Vec::new()
    }

    /// Says by what it will decide what becomes of a packet that has come by an input: what it looks up, and what it finds. Asked before
    /// the packet is processed, and only of packets that somebody [traces](crate::Graph::trace); what was counted, and where the packet went,
    /// is seen without this.
    fn explain(&self, input: usize, packet: &Packet, explanation: &mut Explanation) {
        let _ = (input, packet, explanation);
    }

    /// Does with a burst what [`process_input`](Self::process_input) would, as a rehearsal for [`Graph::rehearse`](crate::Graph::rehearse):
    /// the outputs lead nowhere, and nothing that the stage counts, learns or holds may change. Gives what it would have counted. `None` says
    /// that it can't do that; the burst is lost then.
    fn rehearse(&mut self, input: usize, burst: &mut Burst, outputs: &mut Outputs<'_>) -> Option<Rehearsed> {
        let _ = (input, burst, outputs);
        None
    }

    /// Itself, for whoever has put it around another stage and will take it away again.
    fn as_any(&mut self) -> Option<&mut dyn Any> {
        None
    }

    /// This stage, with `action` called about every `period`, with packets or without: to expire entries, to report.
    fn every<F>(self, period: Duration, action: F) -> Every<Self, F>
    where
        Self: Sized,
        F: FnMut(&mut Self, &mut Outputs<'_>) + Send,
    {
        Every::new(self, period, action)
    }
}

/// Each says what it has to, and the last one sleeps.
pub(crate) fn sleep_all(
    stages: &mut [&mut dyn Stage],
    wake_ups: WakeUps<'_>,
    then: &mut dyn FnMut(WakeUps<'_>),
) {
    match stages {
        [] => then(wake_ups),
        [stage, stages @ ..] => stage.sleep(wake_ups, &mut |wake_ups| sleep_all(stages, wake_ups, then)),
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

/// A stage from code that looks at one packet at a time and says whether to keep it. The others are counted as
/// [`FilterDrop::Filtered`]; a stage with reasons of its own takes [`BurstExt::keep`].
pub fn per_packet(keep: impl FnMut(&mut Packet) -> bool + Send) -> impl Stage {
    PerPacket { keep, drops: DropCounters::new() }
}

struct PerPacket<F> {
    keep: F,
    drops: DropCounters<FilterDrop>,
}

impl<F: FnMut(&mut Packet) -> bool + Send> Stage for PerPacket<F> {
    #[inline]
    fn process(&mut self, burst: &mut Burst, _outputs: &mut Outputs<'_>) {
        burst
            .keep(&self.drops, |packet| if (self.keep)(packet) { Ok(()) } else { Err(FilterDrop::Filtered) });
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
