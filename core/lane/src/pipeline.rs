//! The usual task: inputs, stages, outputs.

use crate::builder::PipelineBuilder;
use crate::counters::StageCounters;
use crate::ends::{Input, Output};
use crate::graph::{Graph, LaneDrop};
use crate::outputs::{End, Line, Outputs};
use crate::probe::StageProbes;
use crate::stage::Stage;
use crate::task::{Poll, Task, TaskFailed};
use crate::timing::StageTimedCounters;
use crate::wake_ups::{WakeUps, sleep_all};
use std::sync::Arc;
use warmlane_counters::Counter;
use warmlane_mem::Burst;
use warmlane_port::QueueStatus;
use warmlane_sys::clock::{self, Clock};
use warmlane_sys::tracepoints;

/// Empty polls between two checks of whether an idle queue has ended, and of what transmit queues still hold: asking costs
/// a system call with some drivers.
const POLLS_PER_CHECK: u32 = 64;

/// The same for polls that moved packets: a queue may break while others are busy.
const BUSY_POLLS_PER_CHECK: u32 = 4_096;

/// A queue that still holds what was sent is flushed again after so many nanoseconds, though nothing wakes the lane.
const FLUSH_AGAIN: u64 = 50_000;

/// How often packets may go from stage to stage within one poll, besides once for each edge: only a cycle of stages gets
/// there.
const ROUNDS: usize = 16;

/// Where packets come from, and the stage they go to.
pub(crate) struct Source {
    pub(crate) input: Input,
    /// Its index among the graph's inputs.
    pub(crate) node: usize,
    /// The number that each packet is given as its port.
    pub(crate) port: Option<u16>,
    pub(crate) stage: usize,
    pub(crate) stage_input: usize,
    /// Lossless lines that its packets can get to: nothing is received while something waits there.
    pub(crate) waits_for: Vec<u16>,
    /// All ways out of the pipeline that its packets can get to.
    pub(crate) leads_to: Vec<u16>,
    /// Bursts that a poll takes from it at most, as long as they are full.
    pub(crate) bursts: usize,
    pub(crate) received: Counter,
    /// When the lane stops, it still brings what other lanes have sent, or passes on what is theirs.
    pub(crate) goes_on: bool,
}

impl Source {
    /// An input that leads to a stage's input, and which node of the graph it is.
    pub(crate) fn new(
        input: Input,
        node: (usize, Option<u16>),
        to: (usize, usize),
        waits_for: Vec<u16>,
        leads_to: Vec<u16>,
    ) -> Self {
        let ((node, port), (stage, stage_input)) = (node, to);
        let received = Counter::new();
        Self {
            input,
            node,
            port,
            stage,
            stage_input,
            waits_for,
            leads_to,
            bursts: 1,
            received,
            goes_on: false,
        }
    }

    /// Whether it has passed packets on to other lanes, and brought none.
    #[inline]
    fn has_passed_on(&self) -> bool {
        matches!(&self.input, Input::Queue(queue) if queue.has_passed_on())
    }
}

/// A stage in its place.
pub(crate) struct Slot {
    pub(crate) stage: Box<dyn Stage>,
    pub(crate) is_polled: bool,
    /// The line of each output.
    pub(crate) edges: Vec<u16>,
    /// The line of what is left in the burst.
    pub(crate) next: u16,
    /// Lossless lines that its packets can get to.
    pub(crate) waits_for: Vec<u16>,
    pub(crate) counters: StageCounters,
}

/// Inputs, stages and outputs that one lane works: receive, process, transmit.
///
/// Packets that a queue doesn't take at once wait in front of it, up to a burst of 256. Those beyond are dropped and counted, by the
/// stage that sends by this output or under [`LaneDrop`]. In front of lossless queues and other lanes nothing is dropped: packets that
/// could lead there are not received until those that wait have been taken. If a call of a transmit queue is costly, several bursts are
/// gathered for each call.
///
/// At its end ([`Task::finish`]) it asks its stages for what they hold and waits for lossless outputs to take it, for at most two
/// seconds. If the lane was ended early ([`LaneConfig`](crate::LaneConfig)), it doesn't wait, but offers it as long as some is taken.
/// What is left is counted as [`LaneDrop::Unsent`].
pub struct Pipeline {
    pub(crate) sources: Vec<Source>,
    /// Inputs that have nothing to receive from at present: they are looked at only now and then.
    pub(crate) vacant: Vec<Source>,
    pub(crate) slots: Vec<Slot>,
    /// Of each stage, while it isn't timed: then it has them.
    pub(crate) timed: Vec<Option<StageTimedCounters>>,
    pub(crate) lines: Vec<Line>,
    pub(crate) graph: Arc<Graph>,
    pub(crate) drops: StageProbes,
    /// What is received.
    pub(crate) burst: Box<Burst>,
    /// What goes from stage to stage.
    pub(crate) work: Box<Burst>,
    /// Whether a stage is polled, and whether a line leads to a stage: else neither is looked for.
    pub(crate) has_polled: bool,
    pub(crate) has_inner: bool,
    /// Packets that the last transmission left waiting.
    pub(crate) waiting: usize,
    /// The input that is asked first; each is in turn.
    pub(crate) first: usize,
    /// Empty polls in a row.
    pub(crate) idle: u32,
    /// Polls that moved packets since the last check.
    pub(crate) busy: u32,
    /// Inputs that have brought nothing in this poll, but passed packets on to other lanes.
    pub(crate) passed_on: usize,
    pub(crate) is_stopping: bool,
}

impl Pipeline {
    /// From `input` through `stage` to `output`.
    pub fn new(input: impl Into<Input>, stage: impl Stage + 'static, output: impl Into<Output>) -> Self {
        let mut builder = Self::builder();
        let name = stage.name().into_owned();
        let (input, stage, output) =
            (builder.input("input", input), builder.stage(name, stage), builder.output("output", output));
        Self::row(builder.connect(input, stage).connect(stage, output))
    }

    /// From `input` to `stage`, which keeps or drops all packets.
    pub fn sink(input: impl Into<Input>, stage: impl Stage + 'static) -> Self {
        let mut builder = Self::builder();
        let name = stage.name().into_owned();
        let (input, stage) = (builder.input("input", input), builder.stage(name, stage));
        Self::row(builder.connect(input, stage))
    }

    fn row(builder: &mut PipelineBuilder) -> Self {
        builder.build().expect("names are told apart, and each edge is there once")
    }

    /// A builder for pipelines with several inputs, outputs or stages.
    pub fn builder() -> PipelineBuilder {
        PipelineBuilder::default()
    }

    /// How many packets to gather from an input before the stages run, 1 to 256.
    #[must_use]
    pub fn with_burst(mut self, packets: usize) -> Self {
        *self.burst = Burst::with_limit(packets);
        self.set_bursts();
        self
    }

    /// What the pipeline is made of, and what it counts. Keep it when the pipeline moves to its lane.
    pub const fn graph(&self) -> &Arc<Graph> {
        &self.graph
    }

    pub(crate) fn set_bursts(&mut self) {
        let (lines, all) = (&self.lines, warmlane_mem::BURST_CAPACITY / self.burst.limit());
        let is_costly = |&line: &u16| {
            let end = lines.get(usize::from(line)).map(|line| &line.end);
            matches!(end, Some(End::Queue(queue)) if queue.is_costly_to_call())
        };
        for source in &mut self.sources {
            // What waits in front of a queue. Where calls cost little, fewer packets under way leave more space in the cache; and a
            // line that loses nothing must have space for what is received.
            let gathers = source.waits_for.is_empty() && source.leads_to.iter().any(is_costly);
            source.bursts = if gathers { all } else { 1 };
        }
    }

    /// Sends what waits for queues and other lanes; says how many packets left.
    #[inline]
    pub(crate) fn transmit(&mut self) -> usize {
        let (mut sent, mut waiting) = (0, 0);
        for line in self.lines.iter_mut().filter(|line| !line.burst.is_empty()) {
            if !line.refuses {
                sent += line.transmit();
            }
            waiting += line.burst.len();
        }
        self.waiting = waiting;
        sent
    }

    /// The same in a new poll: queues that took nothing in the last one are asked again.
    #[inline]
    fn transmit_again(&mut self) -> usize {
        for line in &mut self.lines {
            line.refuses = false;
        }
        self.transmit()
    }

    /// Lets stages do what they do by themselves; says how many packets that brought.
    #[inline]
    fn poll_stages(&mut self) -> usize {
        let now = clock::cycles();
        let mut all = 0;
        for index in 0..self.slots.len() {
            let slot = &mut self.slots[index];
            if !slot.is_polled || self.is_stopping && slot.stage.is_done() {
                continue;
            }
            let must_wait = is_blocked(&self.lines, &slot.waits_for);
            let mut outputs = Outputs::new(&mut self.lines, &slot.edges, &self.drops).waiting(must_wait);
            let made = slot.stage.poll(now, &mut self.work, &mut outputs);
            if made > 0 {
                all += made;
                slot.counters.made().add(made as u64);
            }
            if !self.work.is_empty() {
                pass_on(&mut self.lines, slot.next, &mut self.work, &self.drops);
            }
            if self.has_inner {
                self.run_inner();
            }
        }
        all
    }

    /// Brings packets that wait for a stage through it, until none does.
    pub(crate) fn run_inner(&mut self) {
        let inner = self.graph.outputs.len()..self.lines.len();
        for _ in 0..ROUNDS + inner.len() {
            let mut found = false;
            for index in inner.clone() {
                let line = &mut self.lines[index];
                let End::Stage { stage, input } = line.end else { continue };
                if line.burst.is_empty() {
                    continue;
                }
                found = true;
                std::mem::swap(&mut line.burst, &mut self.work);
                line.sent.add(self.work.len() as u64);
                run(&mut self.slots[stage], &mut self.lines, input, &mut self.work, &self.drops);
            }
            if !found {
                return;
            }
        }
    }

    /// Receives from all inputs and runs the stages; says how many packets came in.
    #[inline]
    fn receive(&mut self) -> usize {
        let mut all = 0;
        self.passed_on = 0;
        let count = self.sources.len();
        self.first = if self.first + 1 < count { self.first + 1 } else { 0 };
        for turn in 0..count {
            let index = if self.first + turn < count { self.first + turn } else { self.first + turn - count };
            for _ in 0..self.sources[index].bursts {
                let source = &mut self.sources[index];
                if is_blocked(&self.lines, &source.waits_for) {
                    break;
                }
                let count = match &mut source.input {
                    // A stopped lane takes nothing new in from the world; what other lanes have sent it still carries.
                    Input::Queue(_) if self.is_stopping && !source.goes_on => 0,
                    Input::Queue(queue) => queue.receive(&mut self.burst),
                    Input::Channel(channel) => channel.receive(&mut self.burst),
                };
                if count == 0 {
                    self.passed_on += usize::from(source.has_passed_on());
                    break;
                }
                if let Some(port) = source.port {
                    for packet in self.burst.iter_mut() {
                        packet.set_port(port);
                    }
                }
                all += count;
                tracepoints::burst(source.node, count);
                source.received.add(count as u64);
                let (stage, input) = (source.stage, source.stage_input);
                run(&mut self.slots[stage], &mut self.lines, input, &mut self.burst, &self.drops);
                if self.has_inner {
                    self.run_inner();
                }
                if count < self.burst.limit() {
                    break;
                }
            }
            // What the next input brings must find space, too.
            if is_blocked(&self.lines, &self.sources[index].waits_for) {
                self.transmit();
            }
        }
        all
    }

    /// Looks after queues now and then, though there is no time.
    #[inline]
    fn count_busy(&mut self) {
        self.busy += 1;
        if self.busy == BUSY_POLLS_PER_CHECK {
            self.busy = 0;
            self.check();
        }
    }

    #[cold]
    fn when_idle(&mut self) -> Poll {
        self.idle = self.idle.saturating_add(1);
        for slot in &mut self.slots {
            slot.stage.idle(&mut Outputs::new(&mut self.lines, &slot.edges, &self.drops));
        }
        // Also what a stage has sent by the clock, past the lines.
        let is_unflushed = self.lines.iter().any(|line| line.is_unflushed);
        let checks = is_unflushed
            || self.is_stopping
            || self.sources.is_empty() && self.vacant.is_empty()
            || self.idle.is_multiple_of(POLLS_PER_CHECK);
        if checks && self.check() { Poll::Finished } else { Poll::Idle }
    }
}

/// Whether something waits in one of these lines.
#[inline]
pub(crate) fn is_blocked(lines: &[Line], waits_for: &[u16]) -> bool {
    waits_for.iter().any(|&line| lines.get(usize::from(line)).is_some_and(|line| !line.burst.is_empty()))
}

/// Gives a burst, which is empty afterwards, to a stage.
#[inline]
fn run(slot: &mut Slot, lines: &mut [Line], input: usize, burst: &mut Burst, drops: &StageProbes) {
    slot.counters.processed().add(burst.len() as u64);
    let mut outputs = Outputs::new(lines, &slot.edges, drops);
    match input {
        0 => slot.stage.process(burst, &mut outputs),
        _ => slot.stage.process_input(input, burst, &mut outputs),
    }
    if !burst.is_empty() {
        pass_on(lines, slot.next, burst, drops);
    }
}

/// Moves a burst to a line. What finds no space there is dropped.
#[inline]
pub(crate) fn pass_on(lines: &mut [Line], next: u16, burst: &mut Burst, drops: &StageProbes) {
    let reason = match lines.get_mut(usize::from(next)) {
        None => LaneDrop::Unconnected,
        Some(Line { end: End::Closed(_), .. }) => LaneDrop::OutputClosed,
        Some(line) => {
            burst.move_to(&mut line.burst);
            while !burst.is_empty() && !line.refuses && line.transmit() > 0 {
                burst.move_to(&mut line.burst);
            }
            if burst.is_empty() {
                return;
            }
            LaneDrop::OutputFull
        }
    };
    drops.drop_all(reason, burst);
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        self.graph.orders.close();
    }
}

impl Task for Pipeline {
    fn poll(&mut self) -> Poll {
        if self.graph.orders.are_new() {
            self.follow_orders();
        }
        let sent = if self.waiting > 0 { self.transmit_again() } else { 0 };
        let made = if self.has_polled { self.poll_stages() } else { 0 };
        if self.has_inner {
            self.run_inner();
        }
        let packets = self.receive() + made;
        if packets == 0 {
            // What a stage sent by the clock, and made no packets for.
            if self.transmit() + sent + self.passed_on == 0 {
                return self.when_idle();
            }
            self.idle = 0;
            self.count_busy();
            return Poll::Worked(0);
        }
        self.idle = 0;
        self.transmit();
        self.count_busy();
        Poll::Worked(packets)
    }

    fn sleep(&mut self, wake_ups: WakeUps<'_>, then: &mut dyn FnMut(WakeUps<'_>)) {
        if self.is_stopping || self.sources.is_empty() && self.vacant.is_empty() {
            return;
        }
        // It may have been woken for one.
        self.look_at_vacant();
        // From here on it can have what lives as long as the queues.
        let mut wake_ups = wake_ups;
        let Self { sources, lines, slots, .. } = self;
        let is_ready = sources.iter_mut().all(|source| {
            // What comes in there can't be taken until the line has space again.
            let event = match &mut source.input {
                _ if is_blocked(lines, &source.waits_for) => return true,
                // Of an interface that isn't there. Who lets one come wakes the lane.
                Input::Queue(queue) if queue.status() == QueueStatus::Vacant => return true,
                Input::Queue(queue) => queue.event(),
                Input::Channel(channel) => channel.event(),
            };
            event.map(|event| wake_ups.readable(event)).is_some()
        });
        if !is_ready {
            return;
        }
        for line in lines {
            let End::Queue(queue) = &mut line.end else {
                if line.burst.is_empty() {
                    continue;
                }
                return;
            };
            // What was sent is reclaimed before.
            queue.flush();
            line.is_unflushed = queue.is_holding();
            if line.is_unflushed {
                wake_ups.by(clock::cycles() + Clock::calibrated().cycles_for(FLUSH_AGAIN));
            }
            if !line.burst.is_empty() {
                let Some(event) = queue.event() else { return };
                wake_ups.writable(event);
            }
        }
        sleep_all(slots, |slot, wake_ups, then| slot.stage.sleep(wake_ups, then), wake_ups, then);
    }

    fn stop(&mut self) {
        self.is_stopping = true;
        for source in self.sources.iter_mut().chain(&mut self.vacant) {
            if let Input::Queue(queue) = &mut source.input {
                source.goes_on = queue.stop();
            }
        }
        for slot in &mut self.slots {
            slot.stage.stop();
        }
    }

    fn finish(&mut self) -> Result<(), TaskFailed> {
        self.bring_out();
        self.check();
        self.drop_the_rest();
        let mut reasons: Vec<String> = Vec::new();
        for failure in self.graph.failures() {
            if !reasons.contains(&failure.reason) {
                reasons.push(failure.reason);
            }
        }
        if reasons.is_empty() { Ok(()) } else { Err(TaskFailed { reasons }) }
    }

    fn graphs(&self) -> Vec<Arc<Graph>> {
        vec![Arc::clone(&self.graph)]
    }
}
