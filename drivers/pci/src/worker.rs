//! The thread that looks after a device that is driven: links that go down, rings that can't be used any more, a device that is unplugged.

use crate::bus::Taken;
use crate::error::PciError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use warmlane_driver_common::peer::{Connection, ConnectionStatus, Event};
use warmlane_driver_common::{Reporter, Severity};

/// How long after a device was given up it is tried again.
const RETRY: Duration = Duration::from_millis(250);

/// Bytes of the thread's stack.
const STACK: usize = 256 << 10;

/// Devices that could not be stopped when their ports were closed: what they may still write to, and themselves. The end of the process frees all, as the kernel
/// stops a device that nobody has open any more; the next program gives back those that were taken.
static UNSTOPPED: Mutex<Vec<Box<dyn Any + Send>>> = Mutex::new(Vec::new());

/// What wakes up the thread.
pub(crate) struct Events {
    stop: Event,
    /// The device says that something other than its rings changed.
    pub(crate) config: Event,
    /// The kernel wants it back.
    pub(crate) request: Event,
}

impl Events {
    /// None of which is signalled.
    pub(crate) fn new() -> Result<Arc<Self>, PciError> {
        let new = || Event::new().map_err(PciError::Thread);
        Ok(Arc::new(Self { stop: new()?, config: new()?, request: new()? }))
    }
}

/// A device that is there, and can be kept from accessing memory.
pub(crate) trait Stoppable: Send + 'static {
    /// It resets itself when its registers ask it to; whether it has.
    fn reset(&self) -> bool;

    /// The kernel resets it; whether it has.
    fn force_reset(&self) -> bool;

    /// Nothing lets it access memory; whether that is so now.
    fn keep_out(&self) -> bool;

    /// It accesses memory no more; whether that is sure.
    fn silence(&self) -> bool {
        // If not of its own accord, then by force.
        let is_reset = self.reset() || self.force_reset();
        let is_kept_out = self.keep_out();
        is_reset || is_kept_out
    }
}

/// A device as the thread knows it.
pub(crate) trait Attended: Send + 'static {
    /// The device itself, as long as it is there.
    type Card: Stoppable;

    /// What it has while it runs: its memory above all.
    type Running: Send + 'static;

    /// How often [`look`](Self::look) is called though nothing has happened.
    const PERIOD: Duration;

    /// Starts the device, which is stopped. Before it is told of any memory, that is in `running`. Says whether its link is up. If it fails, the device is stopped.
    fn start(&mut self, card: &Self::Card, running: &mut Option<Self::Running>) -> Result<bool, PciError>;

    /// Lanes don't use its rings any more.
    fn close_rings(&mut self);

    /// Whether the link of the running device is up, or why it has to be started anew.
    fn look(&mut self, card: &Self::Card, running: &Self::Running) -> Result<bool, &'static str>;

    /// Signalled by lanes when they can't use their rings any more.
    fn alarm(&self) -> &Event;
}

/// The thread, and what it looks after; dropped in this order.
pub(crate) struct Worker<A: Attended> {
    pub(crate) attended: A,
    /// While the device runs.
    pub(crate) running: Option<A::Running>,
    /// What the device had when it could not be stopped, to which it may still write: freed as soon as it is.
    unstopped: Vec<A::Running>,
    /// `None` if it was unplugged: the kernel forgets it once nothing here holds it.
    card: Option<A::Card>,
    /// Given back last: the kernel waits for whoever has the device open.
    taken: Option<Taken>,
    reporter: Reporter,
    events: Arc<Events>,
    link: Arc<Connection>,
    /// As people last heard of the link: up until something else is said.
    told_link: bool,
    restarted: Option<Instant>,
}

impl<A: Attended> Worker<A> {
    /// Starts the device. It is stopped and given back in order, whatever comes.
    pub(crate) fn start(
        attended: A,
        card: A::Card,
        taken: Option<Taken>,
        reporter: Reporter,
        events: &Arc<Events>,
    ) -> Result<Self, PciError> {
        let mut worker = Self {
            attended,
            running: None,
            unstopped: Vec::new(),
            card: Some(card),
            taken,
            reporter,
            events: Arc::clone(events),
            link: Arc::default(),
            told_link: true,
            restarted: None,
        };
        worker.start_card()?;
        Ok(worker)
    }

    /// Whether the link is up, for as long as there is a thread that looks after it.
    pub(crate) fn link(&self) -> impl Fn() -> Option<ConnectionStatus> + Send + Sync + 'static {
        let link = Arc::downgrade(&self.link);
        move || Some(link.upgrade()?.status())
    }

    /// Looks after the device in a thread of its own, until the result is dropped.
    pub(crate) fn spawn(self) -> Result<Arc<dyn Send + Sync>, PciError> {
        let events = Arc::clone(&self.events);
        let builder =
            std::thread::Builder::new().name(format!("pci {}", self.reporter.port())).stack_size(STACK);
        let thread = builder.spawn(|| self.run()).map_err(PciError::Thread)?;
        Ok(Arc::new(Membership { events, thread: Some(thread) }))
    }

    fn warn(&self, what: &str) {
        self.reporter.report(Severity::Warning, what);
    }

    /// Starts the device, if it is there. If it fails, it is stopped.
    fn start_card(&mut self) -> Result<(), PciError> {
        let Some(card) = &self.card else { return Ok(()) };
        match self.attended.start(card, &mut self.running) {
            Ok(link) => {
                self.note_link(link);
                Ok(())
            }
            Err(error) => {
                self.stop();
                Err(error)
            }
        }
    }

    /// First lanes let go of the memory, then the device, and only then is it given back. Says whether the device does: if not, the memory is kept rather than
    /// somebody else's while the device still writes to it.
    fn stop(&mut self) -> bool {
        self.attended.close_rings();
        self.link.down(String::new());
        self.unstopped.extend(self.running.take());
        // What is gone writes nothing.
        let is_silent = self.card.as_ref().is_none_or(Stoppable::silence);
        if is_silent {
            self.unstopped.clear();
        }
        is_silent
    }

    /// Keeps what the device may still write to until the process ends, and the device with what would give it back: the kernel would wait for this process, which
    /// has it open.
    #[cold]
    fn keep(&mut self) {
        self.warn("the device can't be stopped: it and its memory are kept until this program ends");
        let kept = (std::mem::take(&mut self.unstopped), self.card.take(), self.taken.take());
        UNSTOPPED.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(kept));
    }

    /// Starts the device again.
    fn restart(&mut self, reason: &str) {
        // One that breaks its rings as soon as it has them doesn't keep a CPU busy: it is stopped, and started after a pause.
        let is_too_early = self.restarted.is_some_and(|last| last.elapsed() < RETRY);
        if self.running.is_some() || !is_too_early {
            self.warn(&format!("the device is reset, for {reason}"));
        }
        self.stop();
        if is_too_early {
            return;
        }
        self.restarted = Some(Instant::now());
        if let Err(error) = self.start_card() {
            self.warn(&format!("{error}; it is tried again"));
        }
    }

    fn look(&mut self) {
        let Some(card) = &self.card else { return };
        let Some(running) = &self.running else { return self.restart("it does not run") };
        match self.attended.look(card, running) {
            Ok(link) => self.note_link(link),
            Err(reason) => self.restart(reason),
        }
    }

    fn note_link(&mut self, is_up: bool) {
        match (self.link.status().connected, is_up) {
            (false, true) => self.link.up(),
            (true, false) => self.link.down(String::new()),
            _ => {}
        }
        if std::mem::replace(&mut self.told_link, is_up) != is_up {
            if is_up {
                self.reporter.report(Severity::Note, "its link is up");
            } else {
                self.warn("its link is down");
            }
        }
    }

    fn run(mut self) {
        loop {
            let events = Arc::clone(&self.events);
            let all = [&events.stop, &events.request, &events.config, self.attended.alarm()];
            let mut fds = all.map(|event| PollFd::new(event.fd(), PollFlags::IN));
            let is_to_retry = self.running.is_none();
            let pause = self.card.is_some().then_some(if is_to_retry { RETRY } else { A::PERIOD });
            let timeout =
                pause.map(|pause| Timespec::try_from(pause).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 }));
            // Interrupted or not: nothing is ready then.
            let _ = poll(&mut fds, timeout.as_ref());
            let ready = fds.map(|fd| !fd.revents().is_empty());
            let [stop, request, ..] = ready;
            if stop {
                break;
            }
            // Not the others, which may have been signalled since: that is for the next turn.
            for (event, _) in all.into_iter().zip(ready).filter(|(_, is_ready)| *is_ready) {
                event.clear();
            }
            if request && self.card.is_some() {
                self.warn("the device is unplugged: nothing comes or goes by it any more");
                if self.stop() {
                    self.card = None;
                } else {
                    self.keep();
                }
            }
            self.look();
        }
    }
}

impl<A: Attended> Drop for Worker<A> {
    fn drop(&mut self) {
        if !self.stop() {
            self.keep();
        }
    }
}

/// A port's thread. Dropped, it ends; the device is stopped and, if the port took it, given back.
struct Membership {
    events: Arc<Events>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.events.stop.signal();
        if let Some(thread) = self.thread.take() {
            // It doesn't panic, and if it did: it is over.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use warmlane_driver_common::PortEvents;
    use warmlane_testkit::exchange::until;

    /// What became of a device, and how it is to be.
    #[derive(Default)]
    struct Fate {
        /// What was done, in this order, but for looks.
        log: Mutex<Vec<&'static str>>,
        looks: AtomicU32,
        is_link_down: AtomicBool,
        /// What doesn't work.
        failing: Mutex<Vec<&'static str>>,
        broken: Mutex<Option<&'static str>>,
    }

    impl Fate {
        /// Does something; whether that works.
        fn note(&self, what: &'static str) -> bool {
            self.log.lock().unwrap().push(what);
            !self.failing.lock().unwrap().contains(&what)
        }

        fn link(&self) -> bool {
            !self.is_link_down.load(Ordering::Relaxed)
        }

        fn count(&self, what: &str) -> usize {
            self.log.lock().unwrap().iter().filter(|done| **done == what).count()
        }
    }

    struct FakeCard(Arc<Fate>);

    impl Stoppable for FakeCard {
        fn reset(&self) -> bool {
            self.0.note("reset")
        }

        fn force_reset(&self) -> bool {
            self.0.note("force")
        }

        fn keep_out(&self) -> bool {
            self.0.note("keep out")
        }
    }

    impl Drop for FakeCard {
        fn drop(&mut self) {
            self.0.note("let go");
        }
    }

    struct FakeMemory(Arc<Fate>);

    impl Drop for FakeMemory {
        fn drop(&mut self) {
            self.0.note("free");
        }
    }

    struct Fake {
        fate: Arc<Fate>,
        alarm: Event,
    }

    impl Attended for Fake {
        type Card = FakeCard;
        type Running = FakeMemory;

        const PERIOD: Duration = Duration::from_millis(1);

        fn start(&mut self, _: &FakeCard, running: &mut Option<FakeMemory>) -> Result<bool, PciError> {
            *running = Some(FakeMemory(Arc::clone(&self.fate)));
            if self.fate.note("start") { Ok(self.fate.link()) } else { Err(PciError::RingSize { size: 1 }) }
        }

        fn close_rings(&mut self) {
            self.fate.note("close");
        }

        fn look(&mut self, _: &FakeCard, _: &FakeMemory) -> Result<bool, &'static str> {
            self.fate.looks.fetch_add(1, Ordering::Relaxed);
            self.fate.broken.lock().unwrap().take().map_or(Ok(self.fate.link()), Err)
        }

        fn alarm(&self) -> &Event {
            &self.alarm
        }
    }

    fn start(fate: &Arc<Fate>, events: &Arc<Events>) -> Result<Worker<Fake>, PciError> {
        let fake = Fake { fate: Arc::clone(fate), alarm: Event::new().unwrap() };
        Worker::start(fake, FakeCard(Arc::clone(fate)), None, PortEvents::default().reporter("test"), events)
    }

    /// What is done when a device is stopped that is as said.
    fn stopped(failing: &[&'static str]) -> Vec<&'static str> {
        let (fate, events) = (Arc::<Fate>::default(), Events::new().unwrap());
        fate.failing.lock().unwrap().extend(failing);
        // One that does not start is stopped likewise, and once more to be sure.
        if let Ok(worker) = start(&fate, &events) {
            drop(worker);
        }
        let log = fate.log.lock().unwrap();
        log.clone()
    }

    #[test]
    fn lanes_let_go_of_the_memory_before_the_device_and_both_before_it_is_given_back() {
        assert_eq!(stopped(&[]), ["start", "close", "reset", "keep out", "free", "let go"]);
        let by_force = ["start", "close", "reset", "force", "keep out", "free", "let go"];
        assert_eq!(stopped(&["reset"]), by_force);
        assert_eq!(stopped(&["reset", "force"]), by_force);
        assert_eq!(stopped(&["reset", "keep out"]), by_force);
        let lost = stopped(&["reset", "force", "keep out"]);
        assert_eq!(lost, ["start", "close", "reset", "force", "keep out"], "it may still write");
        assert_eq!(UNSTOPPED.lock().unwrap().len(), 1, "here, until the process ends");
        let unstarted = stopped(&["start"]);
        let again = ["close", "reset", "keep out"];
        assert_eq!(unstarted[..5], stopped(&[])[..5]);
        assert_eq!((&unstarted[5..8], &unstarted[8..]), (&again[..], &["let go"][..]));
    }

    #[test]
    fn what_a_device_may_write_to_is_freed_once_it_is_stopped() {
        let (fate, events) = (Arc::<Fate>::default(), Events::new().unwrap());
        let mut worker = start(&fate, &events).unwrap();
        fate.failing.lock().unwrap().extend(["reset", "force", "keep out"]);
        worker.restart("a test");
        assert_eq!((fate.count("start"), fate.count("free")), (2, 0), "it may still write");
        fate.failing.lock().unwrap().clear();
        drop(worker);
        assert_eq!((fate.count("free"), fate.count("let go")), (2, 1));
    }

    #[test]
    fn what_breaks_is_started_again_and_what_is_gone_is_not() {
        let (fate, events) = (Arc::<Fate>::default(), Events::new().unwrap());
        let looks = || fate.looks.load(Ordering::Relaxed);
        let end = start(&fate, &events).unwrap().spawn().unwrap();
        until("it is looked at", || looks() > 1);
        *fate.broken.lock().unwrap() = Some("a test");
        until("it is started again", || fate.count("start") == 2);
        // Soon after, it has to wait.
        *fate.broken.lock().unwrap() = Some("another test");
        until("it is started a third time", || fate.count("start") == 3);
        events.request.signal();
        until("it is let go", || fate.count("let go") == 1);
        let before = looks();
        events.request.signal();
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        until("that is heard", || {
            let mut fds = [PollFd::new(events.request.fd(), PollFlags::IN)];
            poll(&mut fds, Some(&now)) == Ok(0)
        });
        drop(end);
        assert_eq!((fate.count("start"), fate.count("free"), fate.count("let go")), (3, 3, 1));
        assert_eq!(looks(), before, "nobody looks at what is gone");
    }

    #[test]
    fn a_link_is_counted_while_there_is_a_device() {
        let (fate, events) = (Arc::<Fate>::default(), Events::new().unwrap());
        let worker = start(&fate, &events).unwrap();
        let link = worker.link();
        let seen = || link().map(|status| (status.connected, status.connections));
        assert_eq!(seen(), Some((true, 1)));
        let end = worker.spawn().unwrap();
        fate.is_link_down.store(true, Ordering::Relaxed);
        until("it is down", || seen() == Some((false, 1)));
        fate.is_link_down.store(false, Ordering::Relaxed);
        until("it is up again", || seen() == Some((true, 2)));
        events.request.signal();
        until("there is no device any more", || seen() == Some((false, 2)));
        drop(end);
        assert_eq!(seen(), None);
    }
}
