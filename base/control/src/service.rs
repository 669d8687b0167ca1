//! A thread that answers whoever asks.

use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::thread::{Builder, JoinHandle};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use warmlane_sys::{affinity, priority};

use crate::connection::Answers;
use crate::server::Server;

/// How long it sleeps at most: connections grow old.
const TURN: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// The nice value of the thread: a lane on the same CPU gets nine tenths of it. Much less for the thread, and on a machine that is
/// busy with other things, too, nobody would ever be answered.
const BEHIND: i32 = 10;

/// A thread that answers until this is dropped. Then the socket where it was asked is gone.
#[derive(Debug)]
pub struct Service {
    /// Its other end becomes readable when this is dropped.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

/// Something that others ask, and that never waits for them.
pub trait Serve {
    /// What to wait for.
    fn descriptors(&self) -> Vec<PollFd<'_>>;

    /// Answers what has been asked. Called when one of the descriptors is ready, and every second.
    fn serve(&mut self);
}

/// A control socket and who answers there.
struct AtSocket<A: Answers> {
    server: Server<A::List>,
    answers: A,
}

impl<A: Answers> Serve for AtSocket<A> {
    fn descriptors(&self) -> Vec<PollFd<'_>> {
        self.server.descriptors()
    }

    fn serve(&mut self) {
        self.server.serve(&mut self.answers);
    }
}

impl Service {
    /// Starts a thread that answers at a control socket, as [`Self::serve`].
    ///
    /// # Errors
    /// The system has no thread or no descriptors for it.
    pub fn start<A>(server: Server<A::List>, answers: A, lanes: Vec<usize>) -> io::Result<Self>
    where
        A: Answers + Send + 'static,
        A::List: Send + 'static,
    {
        Self::serve("control", AtSocket { server, answers }, lanes)
    }

    /// Starts a thread of this name. It stays away from `lanes`, the CPUs of lanes, if this process may use any others, and else stands
    /// back behind them.
    ///
    /// # Errors
    /// The system has no thread or no descriptors for it.
    pub fn serve(name: &str, serves: impl Serve + Send + 'static, lanes: Vec<usize>) -> io::Result<Self> {
        let (stop, stopped) = UnixStream::pair()?;
        let work = move || {
            stand_back(&lanes);
            until_stopped(serves, &stopped);
        };
        let thread = Builder::new().name(name.to_owned()).spawn(work)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // One that has panicked answers no more; that is all.
            let _ = thread.join();
        }
    }
}

/// Lets all lanes go before the calling thread. Where the system refuses, it runs as others do.
pub fn stand_back(lanes: &[usize]) {
    if let Ok(mut others) = affinity::allowed_cpus() {
        others.retain(|cpu| !lanes.contains(cpu));
        if !others.is_empty() {
            let _ = affinity::run_current_thread_on(&others);
        }
    }
    let _ = priority::set_nice(affinity::current_thread(), BEHIND);
}

fn until_stopped(mut serves: impl Serve, stopped: &UnixStream) {
    loop {
        let mut all = serves.descriptors();
        all.push(PollFd::from_borrowed_fd(stopped.as_fd(), PollFlags::IN));
        match poll(&mut all, Some(&TURN)) {
            Ok(_) | Err(Errno::INTR) => {}
            // Out of memory, which may pass.
            Err(_) => std::thread::sleep(std::time::Duration::from_secs(1)),
        }
        if all.last().is_some_and(|stop| !stop.revents().is_empty()) {
            return;
        }
        drop(all);
        serves.serve();
    }
}
