//! One downstream between a source and nowhere.

use super::Row;
use crate::cable;
use crate::partner::Partner;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use warmlane_docsis::{DownstreamViews, Queues, downstream};
use warmlane_lane::{Pipeline, Task as _};
use warmlane_mem::{Burst, Frames, LaneCache, Pool, PoolConfig, PoolKind};
use warmlane_memory::{null, replay};
use warmlane_port::{QueueCountersView, QueueStatus, ReceiveQueue};
use warmlane_sys::clock::{self, Clock};

/// Packets under way in ordinary operation, as the source says.
const UNDER_WAY: u64 = 750;

/// Packets that a card's ring holds.
const RING: u64 = 4_096;

/// Buffers: more than the 20,000 that the source once saw under way.
const BUFFERS: u32 = 32_767;

/// Calls of the upper lane in a unit of work.
const CALLS: usize = 32;

/// What the source and those who ask it share. Each has one writer.
#[derive(Default)]
struct Offer {
    /// Cycles from one packet to the next, with 16 bits of fraction; 0: as fast as packets go.
    interval: AtomicU64,
    /// When this began to hold, in cycles.
    since: AtomicU64,
    /// Packets that found no space, since then.
    lost: AtomicU64,
}

/// Frames without end, at a rate or as long as few are under way.
struct Source {
    frames: Box<dyn ReceiveQueue>,
    offer: Arc<Offer>,
    views: Arc<OnceLock<DownstreamViews>>,
    /// Packets given out, of all.
    given: u64,
    /// Packets that are through, when it was last looked: again only if it matters.
    through: u64,
    /// Since when packets are due, and how many have been taken or lost since.
    since: u64,
    accounted: u64,
}

impl Source {
    /// Whether there are so many packets.
    fn has(&mut self, wanted: u64) -> bool {
        let interval = self.offer.interval.load(Ordering::Relaxed);
        if interval == 0 {
            if self.given + wanted > self.through + UNDER_WAY
                && let Some(views) = self.views.get()
            {
                self.through = through(views);
            }
            return self.given + wanted <= self.through + UNDER_WAY;
        }
        let since = self.offer.since.load(Ordering::Relaxed);
        if since != self.since {
            (self.since, self.accounted) = (since, 0);
        }
        let elapsed = u128::from(clock::cycles().saturating_sub(since)) << 16;
        let due = u64::try_from(elapsed / u128::from(interval)).unwrap_or(u64::MAX);
        let waiting = due.saturating_sub(self.accounted);
        if waiting > RING {
            let lost = waiting - RING;
            self.accounted += lost;
            self.offer.lost.store(self.offer.lost.load(Ordering::Relaxed) + lost, Ordering::Relaxed);
        }
        waiting.min(RING) >= wanted
    }
}

impl ReceiveQueue for Source {
    fn receive(&mut self, burst: &mut Burst) -> usize {
        // Whole bursts only, as a queue has under load.
        if !self.has(burst.space() as u64) {
            return 0;
        }
        let count = self.frames.receive(burst);
        self.given += count as u64;
        self.accounted += count as u64;
        count
    }

    fn status(&self) -> QueueStatus {
        self.frames.status()
    }

    fn counters(&self) -> QueueCountersView {
        self.frames.counters()
    }
}

/// Packets that are in a packet to the remote PHY, or dropped.
fn through(views: &DownstreamViews) -> u64 {
    views.lower.framed() + views.lower.drops().total() + views.upper.drops().total()
}

/// An instance whose upper lane is the caller's.
pub(super) struct Instance {
    upper: Pipeline,
    partner: Partner,
    views: DownstreamViews,
    offer: Arc<Offer>,
    framed: u64,
    _lane: LaneCache,
}

impl Instance {
    /// Attaches the calling thread, and starts the lower lane on `second_cpu`.
    pub(super) fn start(
        name: &str,
        kind: PoolKind,
        magazine: u32,
        row: Row,
        second_cpu: usize,
    ) -> Result<Self, String> {
        let told = |error: &dyn std::error::Error| error.to_string();
        let group = cable::service_group(row.crc, row.encryption)?;
        let config = PoolConfig {
            name: name.to_owned(),
            buffers: BUFFERS,
            kind,
            magazine: Some(magazine),
            ..PoolConfig::default()
        };
        let pool = Pool::new(&config).map_err(|error| told(&error))?;
        let lane = pool.attach().map_err(|error| told(&error))?;
        let config = replay::ReplayConfig { queues: 1, ..replay::ReplayConfig::default() };
        let mut port =
            replay::open(name, &Arc::new(frames()?), &pool, config).map_err(|error| told(&error))?;
        let offer = Arc::<Offer>::default();
        let views = Arc::<OnceLock<DownstreamViews>>::default();
        let source = Source {
            frames: port.receive.pop().ok_or("a replay without a queue")?,
            offer: Arc::clone(&offer),
            views: Arc::clone(&views),
            given: 0,
            through: 0,
            since: 0,
            accounted: 0,
        };
        let sink = null::sink(name, 1).transmit.pop().ok_or("a sink without a queue")?;
        let queues = Queues { receive: vec![Box::new(source)], transmit: sink };
        let made = downstream(&group, &pool, queues, None).map_err(|error| told(&error))?;
        let _ = views.set(made.views.clone());
        let (mut lower, theirs) = (made.lower, pool);
        let partner = Partner::start(second_cpu, move || {
            let lane = theirs.attach().map_err(|error| error.to_string())?;
            Ok(move || {
                let _lane = &lane;
                lower.poll();
            })
        })?;
        Ok(Self { upper: made.upper, partner, views: made.views, offer, framed: 0, _lane: lane })
    }

    /// Comes before work: offers so many packets a second, or as many as go through.
    pub(super) fn begin(&mut self, rate: Option<f64>) {
        let second = Clock::calibrated().cycles_per_second() as f64;
        #[expect(clippy::cast_sign_loss, reason = "no rate is negative")]
        let interval = rate.map_or(0, |rate| ((second / rate * 65_536.0) as u64).max(1));
        self.offer.lost.store(0, Ordering::Relaxed);
        self.offer.since.store(clock::cycles(), Ordering::Relaxed);
        self.offer.interval.store(interval, Ordering::Relaxed);
        self.framed = self.views.lower.framed();
        self.partner.resume();
    }

    /// Comes after work.
    pub(super) fn end(&mut self) {
        self.partner.pause();
    }

    /// Some calls of the upper lane; says how many packets the lower lane has framed since.
    pub(super) fn work(&mut self) -> u64 {
        for _ in 0..CALLS {
            self.upper.poll();
        }
        let framed = self.views.lower.framed();
        framed - std::mem::replace(&mut self.framed, framed)
    }

    /// Offers so many packets a second for that long; says how many were lost.
    pub(super) fn trial(&mut self, rate: f64, length: Duration) -> u64 {
        let dropped = |views: &DownstreamViews| views.lower.drops().total() + views.upper.drops().total();
        let before = dropped(&self.views);
        self.begin(Some(rate));
        let began = Instant::now();
        while began.elapsed() < length {
            self.work();
        }
        self.end();
        self.offer.lost.load(Ordering::Relaxed) + dropped(&self.views) - before
    }
}

/// Frames of the cable mix to all modems.
fn frames() -> Result<Frames, String> {
    let mut frames = Frames::default();
    for place in 0..3_000 {
        let frame = cable::frame(place, cable::mix(place))?;
        frames.push(&frame).map_err(|error| error.to_string())?;
    }
    Ok(frames)
}
