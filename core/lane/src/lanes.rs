//! Starting, stopping and joining lanes.

use crate::counters::LaneCounters;
use crate::error::LaneError;
use crate::idle::{Idle, IdlePolicy};
use crate::task::{Poll, Task};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use warmlane_mem::Pool;
use warmlane_sys::{affinity, clock};

/// How long a lane that was asked to stop may go without moving a packet before it is ended all the same.
const DRAIN_PATIENCE: Duration = Duration::from_secs(2);

/// What a lane should be like.
#[derive(Clone, Debug, Default)]
pub struct LaneConfig {
    /// The thread's name, and what reports call it.
    pub name: String,
    /// The CPU to run on; `None` leaves that to the system.
    pub cpu: Option<usize>,
    /// What to do when there is nothing to do.
    pub idle: IdlePolicy,
    /// Pools of which the lane gets its own cache.
    pub pools: Vec<Pool>,
}

/// What a lane did, told when it is joined.
#[derive(Clone, Debug)]
pub struct LaneReport {
    /// The lane's name.
    pub name: String,
    /// The CPU it was pinned to.
    pub cpu: Option<usize>,
    /// Its counters.
    pub counters: Arc<LaneCounters>,
    /// Whether it was asked to stop and still had packets that did not move for two seconds.
    pub cut_short: bool,
}

struct Running {
    name: String,
    cpu: Option<usize>,
    counters: Arc<LaneCounters>,
    thread: JoinHandle<bool>,
}

/// The lanes of a program.
#[derive(Default)]
pub struct Lanes {
    stop: Arc<AtomicBool>,
    running: Vec<Running>,
}

impl Lanes {
    /// No lanes yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a lane: a thread, pinned, attached to its pools, polling `task`.
    ///
    /// # Errors
    /// [`LaneError`], if the thread, the CPU or a pool's lane cache is not to be had; the task is dropped then.
    pub fn spawn(&mut self, config: LaneConfig, task: impl Task + 'static) -> Result<(), LaneError> {
        let counters = Arc::new(LaneCounters::default());
        let (name, cpu) = (config.name.clone(), config.cpu);
        let (ready, started) = mpsc::sync_channel(1);
        let thread = {
            let (stop, counters) = (Arc::clone(&self.stop), Arc::clone(&counters));
            std::thread::Builder::new()
                .name(name.clone())
                .spawn(move || run(config, task, &stop, &counters, &ready))
                .map_err(|source| LaneError::Spawn { lane: name.clone(), source })?
        };
        match started.recv() {
            Ok(Ok(())) => {
                self.running.push(Running { name, cpu, counters, thread });
                Ok(())
            }
            Ok(Err(error)) => Err(error),
            Err(mpsc::RecvError) => {
                Err(LaneError::Panicked { lane: name, message: panic_message(thread.join().err()) })
            }
        }
    }

    /// Each lane's name and counters, while they run.
    pub fn counters(&self) -> impl Iterator<Item = (&str, &Arc<LaneCounters>)> {
        self.running.iter().map(|lane| (lane.name.as_str(), &lane.counters))
    }

    /// Asks all lanes to drain and end.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether all lanes have ended.
    pub fn are_finished(&self) -> bool {
        self.running.iter().all(|lane| lane.thread.is_finished())
    }

    /// Waits until all lanes have ended.
    ///
    /// # Errors
    /// [`LaneError::Panicked`] for the first lane that did; the others are waited for first.
    pub fn join(self) -> Result<Vec<LaneReport>, LaneError> {
        let mut reports = Vec::new();
        let mut first_error = None;
        for Running { name, cpu, counters, thread } in self.running {
            match thread.join() {
                Ok(cut_short) => reports.push(LaneReport { name, cpu, counters, cut_short }),
                Err(payload) => {
                    let message = panic_message(Some(payload));
                    first_error.get_or_insert(LaneError::Panicked { lane: name, message });
                }
            }
        }
        first_error.map_or(Ok(reports), Err)
    }
}

fn panic_message(payload: Option<Box<dyn std::any::Any + Send>>) -> String {
    let payload = payload.unwrap_or_else(|| Box::new("no message"));
    payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}

/// Stops the other lanes when this one unwinds: half a pipeline would only fill up.
struct StopOnPanic<'a>(&'a AtomicBool);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

/// A lane's life. Returns whether it was cut short.
fn run(
    config: LaneConfig,
    task: impl Task,
    stop: &AtomicBool,
    counters: &LaneCounters,
    ready: &mpsc::SyncSender<Result<(), LaneError>>,
) -> bool {
    let _stop_on_panic = StopOnPanic(stop);
    let lane = config.name;
    if let Some(cpu) = config.cpu
        && let Err(source) = affinity::pin_current_thread(cpu)
    {
        // The receiver waits in `spawn`; it can't be gone.
        let _ = ready.send(Err(LaneError::Pin { lane, source }));
        return false;
    }
    let mut caches = Vec::new();
    for pool in &config.pools {
        match pool.attach() {
            Ok(cache) => caches.push(cache),
            Err(source) => {
                let _ = ready.send(Err(LaneError::Attach { lane, source: Box::new(source) }));
                return false;
            }
        }
    }
    let _ = ready.send(Ok(()));
    // Declared after the caches, so dropped before them: what the task still holds goes home through them.
    let mut task = task;
    let cut_short = poll_until_done(&mut task, config.idle, stop, counters);
    task.finish();
    cut_short
}

fn poll_until_done(
    task: &mut impl Task,
    policy: IdlePolicy,
    stop: &AtomicBool,
    counters: &LaneCounters,
) -> bool {
    let mut idle = Idle::new(policy);
    let mut then = clock::cycles();
    let mut patience: Option<Instant> = None;
    loop {
        if patience.is_none() && stop.load(Ordering::Relaxed) {
            task.stop();
            patience = Some(Instant::now());
        }
        let poll = task.poll();
        counters.polls.add(1);
        match poll {
            Poll::Worked(packets) => {
                idle.worked();
                counters.busy_polls.add(1);
                counters.packets.add(packets as u64);
            }
            Poll::Idle => idle.rest(),
            Poll::Finished => return false,
        }
        let now = clock::cycles();
        let spent = now.saturating_sub(then);
        then = now;
        if let Poll::Worked(_) = poll {
            counters.busy_cycles.add(spent);
            if patience.is_some() {
                patience = Some(Instant::now());
            }
        } else {
            counters.idle_cycles.add(spent);
            if patience.is_some_and(|since| since.elapsed() > DRAIN_PATIENCE) {
                return true;
            }
        }
    }
}
