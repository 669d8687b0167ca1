//! Starting, stopping and joining lanes.

use crate::counters::{LaneCounters, LaneCountersView};
use crate::error::LaneError;
use crate::graph::Graph;
use crate::idle::{Idle, IdlePolicy, Signals};
use crate::task::{Poll, Task, TaskFailed};
use crate::waker::Waker;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use warmlane_counters::{Labels, Registry};
use warmlane_mem::LaneThread;
use warmlane_sys::event::Event;
use warmlane_sys::{affinity, clock, tracepoints};

/// How long a lane that was asked to stop may go without moving a packet before it is ended all the same.
const DRAIN_PATIENCE: Duration = Duration::from_secs(2);

/// How long a lane that was asked to stop goes on at most, unless it is told otherwise.
const STOP_WITHIN: Duration = Duration::from_secs(10);

/// How a lane is to run.
#[derive(Clone, Debug)]
pub struct LaneConfig {
    /// The thread's name, and what reports call it.
    pub name: String,
    /// The CPU to run on; `None` leaves that to the system.
    pub cpu: Option<usize>,
    /// What it does when there is nothing to do.
    pub idle: IdlePolicy,
    /// Other lanes run on the same CPU: one that finds nothing lets them run at once, and one that is busy keeps its slice.
    pub shares_cpu: bool,
    /// How long it goes on at most once it is asked to stop, even if packets still move; 10 seconds by default. It is also ended if
    /// none has moved for two seconds. Pipelines then count what has not left ([`LaneDrop::Unsent`](crate::LaneDrop::Unsent)).
    pub stop_within: Duration,
}

impl Default for LaneConfig {
    fn default() -> Self {
        Self {
            name: String::new(),
            cpu: None,
            idle: IdlePolicy::default(),
            shares_cpu: false,
            stop_within: STOP_WITHIN,
        }
    }
}

/// A lane from the outside.
#[derive(Clone, Debug)]
pub struct LaneView {
    /// The lane's name.
    pub name: String,
    /// The CPU it was pinned to.
    pub cpu: Option<usize>,
    /// The number of its thread in the system.
    pub thread: u32,
    /// Its counters; they can be read while it runs.
    pub counters: LaneCountersView,
    /// What its task is made of, if that is a pipeline or has some inside.
    pub graphs: Vec<Arc<Graph>>,
    /// Known once it was joined: what broke.
    pub failed: Option<TaskFailed>,
    /// Known once it was joined: whether it was ended before it was done, after it was asked to stop. Either no packet had moved for
    /// two seconds, or [`LaneConfig::stop_within`] was over.
    pub cut_short: bool,
}

/// How lanes are asked to end.
struct Stop {
    asked: AtomicBool,
    /// For those that sleep: signalled once, and never cleared. `None`, as there are too many descriptors: they don't sleep.
    event: Option<Event>,
}

impl Default for Stop {
    fn default() -> Self {
        Self { asked: AtomicBool::new(false), event: Event::new().ok() }
    }
}

impl Stop {
    fn ask(&self) {
        self.asked.store(true, Ordering::Relaxed);
        if let Some(event) = &self.event {
            event.signal();
        }
    }

    fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }
}

/// The lanes of a program.
#[derive(Default)]
pub struct Lanes {
    stop: Arc<Stop>,
    views: Vec<LaneView>,
    /// What calls each of `views`. `None`, as there are too many descriptors: it doesn't sleep.
    calls: Vec<Option<Event>>,
    /// Those of `views` that were not joined yet, in their order.
    threads: Vec<JoinHandle<LaneEnd>>,
}

impl Lanes {
    /// No lanes yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a lane: a thread, pinned, polling `task`.
    ///
    /// # Errors
    /// [`LaneError`], if there is no thread or the CPU can't be used; the task is dropped then.
    pub fn spawn(&mut self, config: LaneConfig, task: impl Task + 'static) -> Result<(), LaneError> {
        let counters = LaneCounters::new();
        let view = counters.view();
        let (name, cpu, graphs) = (config.name.clone(), config.cpu, task.graphs());
        let (ready, started) = mpsc::sync_channel(1);
        let called = Event::new().ok();
        let thread = {
            let (stop, called) = (Arc::clone(&self.stop), called.clone());
            std::thread::Builder::new()
                .name(name.clone())
                .spawn(move || run(config, task, (&stop, called.as_ref()), &counters, &ready))
                .map_err(|source| LaneError::Spawn { lane: name.clone(), source })?
        };
        match started.recv() {
            Ok(Ok(number)) => {
                self.views.push(LaneView {
                    name,
                    cpu,
                    thread: number,
                    counters: view,
                    graphs,
                    failed: None,
                    cut_short: false,
                });
                self.calls.push(called);
                self.threads.push(thread);
                Ok(())
            }
            Ok(Err(error)) => Err(error),
            Err(mpsc::RecvError) => {
                Err(LaneError::Panicked { lane: name, message: panic_message(thread.join().err()) })
            }
        }
    }

    /// Registers what the lanes, their stages, inputs and outputs count, under the label `lane` and their own names.
    pub fn register(&self, registry: &Registry) {
        for lane in &self.views {
            let labels = Labels::new().with("lane", &lane.name);
            registry.add(labels.clone(), lane.counters.clone());
            for graph in &lane.graphs {
                graph.register(registry, &labels);
            }
        }
    }

    /// What wakes those that were started so far.
    pub fn waker(&self) -> Waker {
        Waker::new(self.calls.iter().flatten().cloned().collect())
    }

    /// All lanes, running or not.
    pub fn views(&self) -> &[LaneView] {
        &self.views
    }

    /// Asks all lanes to drain and end. As long as no driver or stage blocks, they have ended after
    /// [`LaneConfig::stop_within`], and the two seconds at most for what stages hold at the end ([`Pipeline`](crate::Pipeline)).
    pub fn stop(&self) {
        self.stop.ask();
    }

    /// Whether all lanes have ended.
    pub fn are_finished(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Waits until all lanes have ended.
    ///
    /// # Errors
    /// [`LaneError::Panicked`] or [`LaneError::Failed`] of the first lane that panicked or failed, after all others have ended. What the
    /// lanes have counted is still in [`views`](Self::views).
    pub fn join(&mut self) -> Result<&[LaneView], LaneError> {
        let joined = self.views.len() - self.threads.len();
        let mut first_error = None;
        for (view, thread) in self.views[joined..].iter_mut().zip(self.threads.drain(..)) {
            match thread.join() {
                Ok(LaneEnd { cut_short, result }) => {
                    view.cut_short = cut_short;
                    view.failed = result.err();
                    if let Some(source) = &view.failed {
                        let (lane, source) = (view.name.clone(), source.clone());
                        first_error.get_or_insert(LaneError::Failed { lane, source });
                    }
                }
                Err(payload) => {
                    let message = panic_message(Some(payload));
                    let panicked = LaneError::Panicked { lane: view.name.clone(), message };
                    // A defect is told before a queue that broke.
                    match &first_error {
                        Some(LaneError::Panicked { .. }) => {}
                        _ => first_error = Some(panicked),
                    }
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
struct StopOnPanic<'a>(&'a Stop);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.ask();
        }
    }
}

/// How a lane ended.
struct LaneEnd {
    cut_short: bool,
    result: Result<(), TaskFailed>,
}

/// A lane's life.
fn run(
    config: LaneConfig,
    task: impl Task,
    (stop, called): (&Stop, Option<&Event>),
    counters: &LaneCounters,
    ready: &mpsc::SyncSender<Result<u32, LaneError>>,
) -> LaneEnd {
    let unstarted = LaneEnd { cut_short: false, result: Ok(()) };
    let _stop_on_panic = StopOnPanic(stop);
    let lane = config.name;
    if let Some(cpu) = config.cpu
        && let Err(source) = affinity::pin_current_thread(cpu)
    {
        // The receiver waits in `spawn`; it can't be gone.
        let _ = ready.send(Err(LaneError::Pin { lane, source }));
        return unstarted;
    }
    // The lane gets a cache of each pool at its first use.
    let lane_thread = LaneThread::enter();
    let _ = ready.send(Ok(affinity::current_thread()));
    // Declared after the caches, so dropped before them: what the task still holds is freed through them.
    let mut task = task;
    let idle = Idle::new(config.idle, config.shares_cpu);
    tracepoints::lane_begin(&lane, config.cpu);
    let cut_short =
        poll_until_done(&mut task, &lane_thread, idle, config.stop_within, (stop, called), counters);
    tracepoints::lane_end(&lane, cut_short);
    LaneEnd { cut_short, result: task.finish() }
}

/// Runs a task on the calling thread until it is finished, as a lane would, but without choosing a CPU: for programs with one thread, and
/// to measure what the lane's loop itself costs.
///
/// # Errors
/// [`TaskFailed`], if a part of it broke.
pub fn run_here(task: &mut impl Task, idle: IdlePolicy, counters: &LaneCounters) -> Result<(), TaskFailed> {
    let lane_thread = LaneThread::enter();
    let (stop, called) = (Stop::default(), Event::new().ok());
    let signals = (&stop, called.as_ref());
    poll_until_done(task, &lane_thread, Idle::new(idle, false), STOP_WITHIN, signals, counters);
    task.finish()
}

/// Since when a lane is on its way to its end.
struct Stopping {
    asked: Instant,
    /// When something moved for the last time.
    moved: Instant,
}

fn poll_until_done(
    task: &mut impl Task,
    lane_thread: &LaneThread,
    mut idle: Idle,
    stop_within: Duration,
    (stop, called): (&Stop, Option<&Event>),
    counters: &LaneCounters,
) -> bool {
    let mut then = clock::cycles();
    let mut stopping: Option<Stopping> = None;
    loop {
        if stopping.is_none() && stop.is_asked() {
            task.stop();
            let now = Instant::now();
            stopping = Some(Stopping { asked: now, moved: now });
        }
        let poll = task.poll();
        counters.polls().add(1);
        match poll {
            Poll::Worked(packets) => {
                idle.worked(then, packets);
                counters.busy_polls().add(1);
                counters.packets().add(packets as u64);
            }
            Poll::Idle => {
                let stopped = stop.event.as_ref().filter(|_| stopping.is_none());
                let signals = stopped.zip(called).map(|(stopped, called)| Signals { stopped, called });
                idle.wait(then, task, lane_thread, signals, counters);
            }
            Poll::Finished => return false,
        }
        let now = clock::cycles();
        let spent = now.saturating_sub(then);
        then = now;
        if let Poll::Worked(_) = poll {
            counters.busy_cycles().add(spent);
        } else {
            counters.idle_cycles().add(spent);
        }
        if let Some(stopping) = &mut stopping {
            let now = Instant::now();
            if let Poll::Worked(_) = poll {
                stopping.moved = now;
            }
            if now - stopping.moved > DRAIN_PATIENCE || now - stopping.asked > stop_within {
                return true;
            }
        }
    }
}
