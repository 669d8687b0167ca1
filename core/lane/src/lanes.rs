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
use warmlane_mem::{LaneCache, Pool};
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

/// A lane from the outside.
#[derive(Clone, Debug)]
pub struct LaneView {
    /// The lane's name.
    pub name: String,
    /// The CPU it was pinned to.
    pub cpu: Option<usize>,
    /// Its counters; they can be read while it runs.
    pub counters: Arc<LaneCounters>,
    /// Known once it was joined: whether it was asked to stop and still had packets that did not move for two
    /// seconds.
    pub cut_short: bool,
}

/// The lanes of a program.
#[derive(Default)]
pub struct Lanes {
    stop: Arc<AtomicBool>,
    views: Vec<LaneView>,
    /// Those of `views` that were not joined yet, in their order.
    threads: Vec<JoinHandle<bool>>,
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
                self.views.push(LaneView { name, cpu, counters, cut_short: false });
                self.threads.push(thread);
                Ok(())
            }
            Ok(Err(error)) => Err(error),
            Err(mpsc::RecvError) => {
                Err(LaneError::Panicked { lane: name, message: panic_message(thread.join().err()) })
            }
        }
    }

    /// All lanes, running or not.
    pub fn views(&self) -> &[LaneView] {
        &self.views
    }

    /// Asks all lanes to drain and end.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether all lanes have ended.
    pub fn are_finished(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Waits until all lanes have ended.
    ///
    /// # Errors
    /// [`LaneError::Panicked`] for the first lane that did; the others are waited for first.
    pub fn join(&mut self) -> Result<&[LaneView], LaneError> {
        let joined = self.views.len() - self.threads.len();
        let mut first_error = None;
        for (view, thread) in self.views[joined..].iter_mut().zip(self.threads.drain(..)) {
            match thread.join() {
                Ok(cut_short) => view.cut_short = cut_short,
                Err(payload) => {
                    let message = panic_message(Some(payload));
                    first_error.get_or_insert(LaneError::Panicked { lane: view.name.clone(), message });
                }
            }
        }
        first_error.map_or(Ok(&self.views), Err)
    }
}

impl Drop for Lanes {
    /// Stops the lanes and waits for them: no thread outlives what it may depend on.
    fn drop(&mut self) {
        self.stop();
        // A panic of a lane was its own; there is nobody left to tell.
        let _ = self.join();
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
    let cut_short = poll_until_done(&mut task, &mut caches, config.idle, stop, counters);
    task.finish();
    cut_short
}

fn poll_until_done(
    task: &mut impl Task,
    caches: &mut [LaneCache],
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
            Poll::Idle => {
                // Before it rests: another lane may be waiting for what this one keeps in reserve.
                for cache in &mut *caches {
                    cache.give_back_if_asked();
                }
                idle.rest();
            }
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
