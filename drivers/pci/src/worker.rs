//! The thread that looks after a device that is driven: links that go down, rings that can't be used any more, a device that is unplugged.

use crate::bus::Taken;
use crate::error::PciError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Write as _};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use warmlane_driver_common::peer::Event;

/// How long after a device was given up it is tried again.
const RETRY: Duration = Duration::from_millis(250);

/// Bytes of the thread's stack.
const STACK: usize = 256 << 10;

/// What wakes up the thread, and lanes.
pub(crate) struct Events {
    stop: Event,
    /// The device says that something other than its rings changed.
    pub(crate) config: Event,
    /// It has filled buffers. Lanes wait for it.
    pub(crate) receive: Event,
    /// The kernel wants it back.
    pub(crate) request: Event,
}

impl Events {
    /// None of which is signalled.
    pub(crate) fn new() -> Result<Arc<Self>, PciError> {
        let new = || Event::new().map_err(PciError::Thread);
        Ok(Arc::new(Self { stop: new()?, config: new()?, receive: new()?, request: new()? }))
    }
}

/// A device as the thread knows it.
pub(crate) trait Attended: Send + 'static {
    /// How often [`look`](Self::look) is called though nothing has happened; `None`: never.
    const PERIOD: Option<Duration>;

    /// Starts the device, which is stopped. Says whether its link is up.
    fn start(&mut self) -> Result<bool, PciError>;

    /// Lanes don't use the device any more, and then it has no memory of ours.
    fn stop(&mut self);

    /// Whether it was started, and not stopped since.
    fn is_running(&self) -> bool;

    /// Whether the link of the running device is up, or why it has to be started anew.
    fn look(&mut self) -> Result<bool, &'static str>;

    /// It is gone, and was stopped: lets go of all that keeps the kernel from forgetting it.
    fn let_go(&mut self);

    /// Signalled by lanes when they can't use their rings any more.
    fn alarm(&self) -> &Event;
}

/// The thread, and what it looks after; dropped in this order.
pub(crate) struct Worker<A: Attended> {
    pub(crate) attended: A,
    /// Given back last: the kernel waits for whoever has the device open.
    _taken: Option<Taken>,
    name: String,
    events: Arc<Events>,
    is_there: bool,
    /// As it was last told of: up until something else is heard.
    link: bool,
    restarted: Option<Instant>,
}

impl<A: Attended> Worker<A> {
    /// Starts the device. It is stopped and given back in order, whatever comes.
    pub(crate) fn start(
        attended: A,
        taken: Option<Taken>,
        name: &str,
        events: &Arc<Events>,
    ) -> Result<Self, PciError> {
        let mut worker = Self {
            attended,
            _taken: taken,
            name: name.to_owned(),
            events: Arc::clone(events),
            is_there: true,
            link: true,
            restarted: None,
        };
        let link = worker.attended.start()?;
        worker.note_link(link);
        Ok(worker)
    }

    /// Looks after the device in a thread of its own, until the result is dropped.
    pub(crate) fn spawn(self) -> Result<Arc<dyn Send + Sync>, PciError> {
        let events = Arc::clone(&self.events);
        let builder = std::thread::Builder::new().name(format!("pci {}", self.name)).stack_size(STACK);
        let thread = builder.spawn(|| self.run()).map_err(PciError::Thread)?;
        Ok(Arc::new(Membership { events, thread: Some(thread) }))
    }

    fn say(&self, what: &str) {
        // Nobody may be there to read it.
        let _ = writeln!(io::stderr(), "warmlane: port '{}': {what}", self.name);
    }

    /// Starts the device again.
    fn restart(&mut self, reason: &str) {
        // One that breaks its rings as soon as it has them doesn't keep a CPU busy: it is stopped, and started after a pause.
        let is_too_early = self.restarted.is_some_and(|last| last.elapsed() < RETRY);
        if self.attended.is_running() || !is_too_early {
            self.say(&format!("the device is reset, for {reason}"));
        }
        self.attended.stop();
        if is_too_early {
            return;
        }
        self.restarted = Some(Instant::now());
        match self.attended.start() {
            Ok(link) => self.note_link(link),
            Err(error) => self.say(&format!("{error}; it is tried again")),
        }
    }

    fn look(&mut self) {
        if !self.is_there {
            return;
        }
        if !self.attended.is_running() {
            return self.restart("it does not run");
        }
        match self.attended.look() {
            Ok(link) => self.note_link(link),
            Err(reason) => self.restart(reason),
        }
    }

    fn note_link(&mut self, is_up: bool) {
        if std::mem::replace(&mut self.link, is_up) != is_up {
            self.say(if is_up { "its link is up" } else { "its link is down" });
        }
    }

    fn run(mut self) {
        loop {
            let events = Arc::clone(&self.events);
            let all = [&events.stop, &events.request, &events.config, self.attended.alarm()];
            let mut fds = all.map(|event| PollFd::new(event.fd(), PollFlags::IN));
            let is_to_retry = !self.attended.is_running();
            let pause = if is_to_retry { Some(RETRY) } else { A::PERIOD }.filter(|_| self.is_there);
            let timeout =
                pause.map(|pause| Timespec::try_from(pause).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 }));
            // Interrupted or not: nothing is ready then.
            let _ = poll(&mut fds, timeout.as_ref());
            let [stop, request, ..] = fds.map(|fd| !fd.revents().is_empty());
            if stop {
                break;
            }
            for event in all {
                event.clear();
            }
            if request && self.is_there {
                self.say("the device is unplugged: nothing comes or goes by it any more");
                self.attended.stop();
                self.attended.let_go();
                self.is_there = false;
            }
            self.look();
        }
    }
}

impl<A: Attended> Drop for Worker<A> {
    fn drop(&mut self) {
        self.attended.stop();
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
    use std::sync::atomic::{AtomicU32, Ordering};
    use warmlane_testkit::exchange::until;

    /// What became of a device, and how it is to be.
    #[derive(Default)]
    struct Fate {
        starts: AtomicU32,
        stops: AtomicU32,
        looks: AtomicU32,
        releases: AtomicU32,
        broken: Mutex<Option<&'static str>>,
    }

    struct Fake {
        fate: Arc<Fate>,
        alarm: Event,
        is_running: bool,
    }

    impl Attended for Fake {
        const PERIOD: Option<Duration> = Some(Duration::from_millis(1));

        fn start(&mut self) -> Result<bool, PciError> {
            self.fate.starts.fetch_add(1, Ordering::Relaxed);
            self.is_running = true;
            Ok(true)
        }

        fn stop(&mut self) {
            if std::mem::take(&mut self.is_running) {
                self.fate.stops.fetch_add(1, Ordering::Relaxed);
            }
        }

        fn is_running(&self) -> bool {
            self.is_running
        }

        fn look(&mut self) -> Result<bool, &'static str> {
            self.fate.looks.fetch_add(1, Ordering::Relaxed);
            self.fate.broken.lock().unwrap().take().map_or(Ok(true), Err)
        }

        fn let_go(&mut self) {
            self.fate.releases.fetch_add(1, Ordering::Relaxed);
        }

        fn alarm(&self) -> &Event {
            &self.alarm
        }
    }

    #[test]
    fn what_breaks_is_started_again_and_what_is_gone_is_not() {
        let (fate, events) = (Arc::<Fate>::default(), Events::new().unwrap());
        let fake = Fake { fate: Arc::clone(&fate), alarm: Event::new().unwrap(), is_running: false };
        let read = |count: &AtomicU32| count.load(Ordering::Relaxed);
        let end = Worker::start(fake, None, "test", &events).unwrap().spawn().unwrap();
        until("it is looked at", || read(&fate.looks) > 1);
        *fate.broken.lock().unwrap() = Some("a test");
        until("it is started again", || read(&fate.starts) == 2);
        // Soon after, it has to wait.
        *fate.broken.lock().unwrap() = Some("another test");
        until("it is started a third time", || read(&fate.starts) == 3);
        events.request.signal();
        until("it is let go", || read(&fate.releases) == 1);
        let looks = read(&fate.looks);
        events.request.signal();
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        until("that is heard", || {
            let mut fds = [PollFd::new(events.request.fd(), PollFlags::IN)];
            poll(&mut fds, Some(&now)) == Ok(0)
        });
        drop(end);
        assert_eq!((read(&fate.starts), read(&fate.stops)), (3, 3));
        assert_eq!((read(&fate.looks), read(&fate.releases)), (looks, 1), "nobody looks at what is gone");
    }
}
