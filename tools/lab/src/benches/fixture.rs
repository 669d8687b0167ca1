//! What several benches set up.

use crate::error::LabError;
use crate::measure::Measure;
use crate::setting::Setting;
use std::fmt::Display;
use std::sync::Arc;
use warmlane_lane::{Pipeline, Poll, Task as _};
use warmlane_mem::{Burst, LaneCache, Pool, PoolConfig};
use warmlane_memory::replay::{self, Frames};
use warmlane_port::{Port, QueueCountersView, ReceiveQueue, TransmitQueue};

/// A pool of the usual shape, and this lane's cache of it.
pub(crate) fn pool(name: &str) -> Result<(Pool, LaneCache), LabError> {
    let pool =
        Pool::new(&PoolConfig { name: name.to_owned(), ..PoolConfig::default() }).map_err(LabError::setup)?;
    let lane = pool.attach().map_err(LabError::setup)?;
    Ok((pool, lane))
}

/// What comes from one queue goes to another.
pub(super) struct Through {
    pub(super) burst: Burst,
    pub(super) receive: Box<dyn ReceiveQueue>,
    pub(super) transmit: Box<dyn TransmitQueue>,
    pub(super) _lane: LaneCache,
}

impl Measure for Through {
    fn work(&mut self) -> u64 {
        (0..100)
            .map(|_| {
                self.receive.receive(&mut self.burst);
                self.transmit.transmit(&mut self.burst) as u64
            })
            .sum()
    }
}

/// Polls of a piece of work.
pub(super) const POLLS: usize = 100;

/// A pipeline whose packets end in a sink: those that don't are lost.
pub(super) struct ToSink {
    pub(super) task: Pipeline,
    sink: QueueCountersView,
    /// What the sink had when the round began.
    before: u64,
    _lane: LaneCache,
}

impl ToSink {
    /// `sink` is what the sink counts.
    pub(super) const fn new(task: Pipeline, sink: QueueCountersView, lane: LaneCache) -> Self {
        Self { task, sink, before: 0, _lane: lane }
    }
}

impl Measure for ToSink {
    fn work(&mut self) -> u64 {
        let moved = |poll| if let Poll::Worked(packets) = poll { packets as u64 } else { 0 };
        (0..POLLS).map(|_| moved(self.task.poll())).sum()
    }

    fn begin(&mut self) {
        self.before = self.sink.packets();
    }

    fn forwarded(&self) -> Option<u64> {
        Some(self.sink.packets() - self.before)
    }
}

/// A port's first receive queue.
pub(super) fn receive(port: Port) -> Result<Box<dyn ReceiveQueue>, LabError> {
    port.receive.into_iter().next().ok_or_else(|| LabError::setup("the port has no receive queue"))
}

/// A port's first transmit queue.
pub(super) fn transmit(port: Port) -> Result<Box<dyn TransmitQueue>, LabError> {
    port.transmit.into_iter().next().ok_or_else(|| LabError::setup("the port has no transmit queue"))
}

/// A port that replays the caller's frames, or those that `generate` makes.
pub(super) fn replayed<E: Display>(
    name: &str,
    setting: &Setting,
    pool: &Pool,
    generate: impl FnOnce() -> Result<Frames, E>,
) -> Result<Port, LabError> {
    let frames = match &setting.frames {
        Some(frames) => Arc::clone(frames),
        None => Arc::new(generate().map_err(LabError::setup)?),
    };
    replay::open(name, &frames, pool, replay::ReplayConfig::default()).map_err(LabError::setup)
}
