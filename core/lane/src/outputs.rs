//! The outputs of a stage, and what they lead to.

use crate::ends::Output;
use crate::graph::LaneDrop;
use crate::probe::{EdgeProbes, Probe, ProbeConfig, ProbeReader, StageProbes};
use crate::stage::Stage;
use warmlane_counters::{Counter, DropCounters, DropReason, Reason};
use warmlane_mem::{BURST_CAPACITY, Burst, Packet};
use warmlane_port::channel::ChannelTransmit;
use warmlane_port::{QueueCountersView, QueueStatus, TransmitOffloads, TransmitQueue, software_offload};
use warmlane_sync::ring::RingError;
use warmlane_sys::tracepoints;

/// What a line leads to.
pub(crate) enum End {
    /// A port's queue.
    Queue(Box<dyn TransmitQueue>),
    /// Another lane.
    Channel(warmlane_mem::PacketSender),
    /// Another stage of this lane: the stage's index and its input.
    Stage { stage: usize, input: usize },
    /// Nothing: packets stay, for a test to look at.
    Kept,
    /// It has ended or broken.
    Closed(QueueStatus),
}

/// Packets on their way to a port, another lane or another stage.
pub(crate) struct Line {
    /// What waits. Boxed, so that a burst changes hands by its pointer.
    pub(crate) burst: Box<Burst>,
    pub(crate) end: End,
    /// It is waited for, and nothing that could lead here is received meanwhile.
    pub(crate) is_lossless: bool,
    /// Something was sent since the last flush.
    pub(crate) is_unflushed: bool,
    /// It took nothing when asked in this poll, and is not asked again: that may cost a system call each time.
    pub(crate) refuses: bool,
    /// Packets that were sent.
    pub(crate) sent: Counter,
}

impl Line {
    pub(crate) fn new(end: End) -> Self {
        let is_lossless = match &end {
            End::Queue(queue) => queue.is_lossless(),
            End::Channel(_) => true,
            End::Stage { .. } | End::Kept | End::Closed(_) => false,
        };
        let burst = Box::new(Burst::with_limit(BURST_CAPACITY));
        Self { burst, end, is_lossless, is_unflushed: false, refuses: false, sent: Counter::new() }
    }

    pub(crate) fn to(output: Output) -> Self {
        Self::new(match output {
            Output::Queue(queue) => End::Queue(queue),
            Output::Channel(channel) => End::Channel(channel),
        })
    }

    /// It loses nothing, and has not ended.
    pub(crate) const fn is_open(&self) -> bool {
        self.is_lossless && matches!(self.end, End::Queue(_) | End::Channel(_))
    }

    /// Makes sure that packets get what they may need, in software if what the line leads to can't do it. Packets to other lanes are
    /// complete, as those lanes don't know what this one receives.
    pub(crate) fn complete(&mut self, needs: TransmitOffloads) {
        if needs.is_none() {
            return;
        }
        self.end = match std::mem::replace(&mut self.end, End::Kept) {
            End::Queue(queue) => End::Queue(software_offload::on_transmit(queue, needs)),
            End::Channel(channel) => {
                End::Queue(software_offload::on_transmit(Box::new(ChannelTransmit::new(channel)), needs))
            }
            end => end,
        };
    }

    /// The queue holds packets that it took and can't pass on yet.
    pub(crate) fn is_holding(&self) -> bool {
        matches!(&self.end, End::Queue(queue) if queue.is_holding())
    }

    /// What the queue counts, if it leads to one.
    pub(crate) fn counters(&self) -> Option<QueueCountersView> {
        match &self.end {
            End::Queue(queue) => Some(queue.counters()),
            _ => None,
        }
    }

    /// Sends what waits, as far as it is taken, and returns how many packets were.
    #[inline]
    pub(crate) fn transmit(&mut self) -> usize {
        let sent = match &mut self.end {
            End::Queue(queue) => queue.transmit(&mut self.burst),
            End::Channel(channel) => channel.send(&mut self.burst),
            End::Stage { .. } | End::Kept | End::Closed(_) => return 0,
        };
        self.is_unflushed |= sent > 0;
        self.refuses = sent == 0;
        self.sent.add(sent as u64);
        sent
    }
}

/// A stage's outputs: by each, packets go to a port, another lane or another stage.
pub struct Outputs<'a> {
    pub(crate) lines: &'a mut [Line],
    /// The line of each output; a number beyond all lines if it isn't connected.
    edges: &'a [u16],
    /// The lane's.
    drops: &'a StageProbes,
    must_wait: bool,
}

/// Where an output leads that isn't connected: beyond all lines.
pub(crate) const UNCONNECTED: u16 = u16::MAX;

impl<'a> Outputs<'a> {
    #[inline]
    pub(crate) const fn new(lines: &'a mut [Line], edges: &'a [u16], drops: &'a StageProbes) -> Self {
        Self { lines, edges, drops, must_wait: false }
    }

    /// How many outputs there are.
    pub const fn len(&self) -> usize {
        self.edges.len()
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.edges.is_empty()
    }

    /// `count` of the outputs from `start` on: those of one stage of a tuple.
    #[inline]
    pub(crate) fn part(&mut self, start: usize, count: usize) -> Outputs<'_> {
        let edges = self.edges.get(start..).and_then(|edges| edges.get(..count)).unwrap_or_default();
        Outputs { lines: self.lines, edges, drops: self.drops, must_wait: self.must_wait }
    }

    /// The same for a stage that is polled while something waits in front of a lossless queue behind it.
    #[inline]
    pub(crate) const fn waiting(mut self, must_wait: bool) -> Self {
        self.must_wait = must_wait;
        self
    }

    /// Whether packets wait in front of a lossless queue behind this stage, so that packets sent now could be lost. Only set in
    /// [`poll`](crate::Stage::poll).
    pub const fn must_wait(&self) -> bool {
        self.must_wait
    }

    #[inline(always)]
    fn line(&mut self, output: usize) -> Option<&mut Line> {
        let line = *self.edges.get(output)?;
        self.lines.get_mut(usize::from(line))
    }

    /// Whether the output leads somewhere that has not ended.
    pub fn is_connected(&self, output: usize) -> bool {
        self.edges
            .get(output)
            .and_then(|line| self.lines.get(usize::from(*line)))
            .is_some_and(|line| !matches!(line.end, End::Closed(_)))
    }

    /// The burst that waits to leave by this output, to append packets to; `None` if it leads nowhere.
    #[inline]
    pub fn burst(&mut self, output: usize) -> Option<&mut Burst> {
        let line = self.line(output)?;
        if matches!(line.end, End::Closed(_)) { None } else { Some(&mut line.burst) }
    }

    /// Tries to make space if the output's burst is full. Returns whether there is space now.
    #[cold]
    pub fn make_space(&mut self, output: usize) -> bool {
        let Some(&number) = self.edges.get(output) else { return false };
        let number = usize::from(number);
        let Some(line) = self.lines.get_mut(number).filter(|line| !line.refuses) else { return false };
        self.drops.edges.transmit_line(number, line) > 0
    }

    /// Sends a packet by an output. If that leads nowhere, has ended or has no space, the packet is dropped, and the lane counts it under
    /// [`LaneDrop`]. If the stage counts such drops itself, or knows a better place for the packet, use [`push`](Self::push).
    #[inline]
    pub fn send(&mut self, output: usize, packet: Packet) {
        if let Err(packet) = self.push(output, packet) {
            self.drop_unsent(output, packet);
        }
    }

    #[cold]
    fn drop_unsent(&mut self, output: usize, packet: Packet) {
        let reason = match self.line(output).map(|line| &line.end) {
            None => LaneDrop::Unconnected,
            Some(End::Closed(_)) => LaneDrop::OutputClosed,
            Some(_) => LaneDrop::OutputFull,
        };
        self.drops.count(reason, 1);
        if self.shows_drops() {
            self.show_drop(&LaneDrop::ALL[reason.index()], &packet);
        }
        drop(packet);
    }

    /// Sends a packet by an output, or gives it back.
    ///
    /// # Errors
    /// The packet, if the output leads nowhere ([`is_connected`](Self::is_connected)) or has no space.
    #[inline]
    pub fn push(&mut self, output: usize, packet: Packet) -> Result<(), Packet> {
        let mut packet = packet;
        loop {
            match self.burst(output) {
                Some(burst) => match burst.push(packet) {
                    Ok(()) => return Ok(()),
                    Err(back) => packet = back,
                },
                None => return Err(packet),
            }
            if !self.make_space(output) {
                return Err(packet);
            }
        }
    }

    /// Who is shown what goes between stages.
    pub(crate) const fn edge_probes(&self) -> &'a EdgeProbes {
        &self.drops.edges
    }

    /// Sends packets at once instead of gathering them: for stages that must know when their packets leave. Returns how many were
    /// taken from the front of `burst`.
    #[inline]
    pub fn transmit(&mut self, output: usize, burst: &mut Burst) -> usize {
        let Some(&number) = self.edges.get(output) else { return 0 };
        let number = usize::from(number);
        let Some(line) = self.lines.get_mut(number) else { return 0 };
        let edges = &self.drops.edges;
        if !line.burst.is_empty() && (edges.transmit_line(number, line) == 0 || !line.burst.is_empty()) {
            return 0;
        }
        let mut send = |burst: &mut Burst| match &mut line.end {
            End::Queue(queue) => queue.transmit(burst),
            End::Channel(channel) => channel.send(burst),
            End::Stage { .. } | End::Kept | End::Closed(_) => 0,
        };
        let sent =
            if edges.is_watched() { edges.transmit_burst(number, burst, &mut send) } else { send(burst) };
        if matches!(line.end, End::Stage { .. } | End::Kept) {
            return burst.move_to(&mut line.burst);
        }
        line.is_unflushed |= sent > 0;
        line.sent.add(sent as u64);
        sent
    }

    /// Whether anybody wants to see dropped packets.
    pub fn shows_drops(&self) -> bool {
        self.drops.is_watched()
    }

    /// Shows a packet that is dropped, or a copy of it, to whoever captures drops. The stage itself counts the drop.
    #[cold]
    pub fn show_drop(&self, reason: &DropReason, packet: &Packet) {
        self.drops.show(reason, std::slice::from_ref(packet));
    }

    /// The same by an enum's reason, if anybody wants to see dropped packets.
    #[cold]
    pub fn show_dropped<R: Reason>(&self, reason: R, packet: &Packet) {
        let Some(reason) = R::ALL.get(reason.index()) else { return };
        tracepoints::stage_drop(reason.name, packet.packet_length(), packet.port());
        if self.shows_drops() {
            self.show_drop(reason, packet);
        }
    }

    /// Counts a dropped packet that can't be shown.
    #[cold]
    pub fn miss_drop(&self) {
        self.drops.miss();
    }

    /// Makes the output's queue send what it has buffered. Idle lanes do this by themselves.
    pub fn flush(&mut self, output: usize) {
        if let Some(Line { end: End::Queue(queue), .. }) = self.line(output) {
            queue.flush();
        }
    }

    /// Whether packets can still leave by this output.
    pub fn status(&self, output: usize) -> QueueStatus {
        let line = self.edges.get(output).and_then(|line| self.lines.get(usize::from(*line)));
        match line.map(|line| &line.end) {
            Some(End::Queue(queue)) => queue.status(),
            Some(End::Channel(channel)) if !channel.is_disconnected() => QueueStatus::Running,
            Some(End::Stage { .. } | End::Kept) => QueueStatus::Running,
            Some(End::Closed(status)) => status.clone(),
            Some(End::Channel(_)) | None => QueueStatus::Finished,
        }
    }
}

/// Outputs for tests of stages: packets sent there stay, so that the test can look at them.
///
/// ```
/// use warmlane_lane::{KeptOutputs, Stage, branch};
/// use warmlane_mem::{Burst, Pool, PoolConfig};
///
/// let pool = Pool::new(&PoolConfig { buffers: 64, ..PoolConfig::default() })?;
/// let mut stage = branch(&["long"], |burst, outputs| {
///     for packet in burst.drain() {
///         outputs.send(0, packet);
///     }
/// });
/// let mut kept = KeptOutputs::of(&stage);
/// let mut burst = Burst::new();
/// pool.take_burst(&mut burst, 3);
/// stage.process(&mut burst, &mut kept.outputs());
/// assert_eq!(kept.burst(0).len(), 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct KeptOutputs {
    lines: Vec<Line>,
    edges: Vec<u16>,
    drops: StageProbes,
}

impl KeptOutputs {
    /// As many outputs as the stage has.
    pub fn of(stage: &impl Stage) -> Self {
        let count = stage.output_count();
        let edges = (0..count).map(|line| u16::try_from(line).unwrap_or(UNCONNECTED)).collect();
        let lines = (0..count).map(|_| Line::new(End::Kept)).collect();
        Self { lines, edges, drops: StageProbes::new() }
    }

    /// Disconnects an output.
    #[must_use]
    pub fn without(mut self, output: usize) -> Self {
        if let Some(edge) = self.edges.get_mut(output) {
            *edge = UNCONNECTED;
        }
        self
    }

    /// The outputs to give to the stage.
    pub fn outputs(&mut self) -> Outputs<'_> {
        Outputs::new(&mut self.lines, &self.edges, &self.drops)
    }

    /// Captures drops: the reader gets what the stage shows ([`Outputs::show_drop`]).
    ///
    /// # Errors
    /// There is no memory for the ring, or its size is no power of two.
    pub fn watch_drops(&mut self, config: ProbeConfig) -> Result<ProbeReader, RingError> {
        let (probe, reader) = Probe::with_reader(config, None)?;
        self.drops.change(Some(probe));
        Ok(reader)
    }

    /// What the lane would have counted of packets that the stage sent in vain.
    pub const fn drops(&self) -> &DropCounters<LaneDrop> {
        &self.drops.counters
    }

    /// Frees all packets.
    pub fn clear(&mut self) {
        self.lines.iter_mut().for_each(|line| line.burst.clear());
    }

    /// The packets that the stage has sent by this output.
    ///
    /// # Panics
    /// If there is no such output.
    pub fn burst(&mut self, output: usize) -> &mut Burst {
        &mut self.lines[output].burst
    }
}
