//! Who is served on a connection of its own for long: so many at a time, each by a thread, until the client or the program ends.

use std::io::{self, ErrorKind, Read as _};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use warmlane_control::TakeOver;

/// At once.
pub(crate) const MOST: usize = 4;

/// How long the program waits at its end for the last ones.
const LAST: Duration = Duration::from_secs(2);

/// How long to sleep where nothing has come.
const REST: Duration = Duration::from_millis(5);

/// How long a client may take to read something. Meanwhile packets are missed; it is only to end some time.
const UNREAD: Duration = Duration::from_secs(60);

/// How many are served. When it is dropped, they are to end.
#[derive(Default)]
pub(crate) struct Turns(Arc<Running>);

#[derive(Default)]
struct Running {
    count: Mutex<usize>,
    has_ended: Condvar,
    /// The program ends.
    is_ending: AtomicBool,
}

/// One of them.
pub(crate) struct Turn(Arc<Running>);

impl Running {
    fn count(&self) -> std::sync::MutexGuard<'_, usize> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turns {
    /// `None` if there are as many as there may be.
    pub(crate) fn begin(&self) -> Option<Turn> {
        let mut count = self.0.count();
        let has_space = *count < MOST;
        *count += usize::from(has_space);
        has_space.then(|| Turn(Arc::clone(&self.0)))
    }
}

impl Turn {
    /// Whether the program ends.
    pub(crate) fn is_ending(&self) -> bool {
        self.0.is_ending.load(Ordering::Relaxed)
    }

    /// Serves a connection by a thread of this name, which stands back behind lanes on these CPUs. Reading from it takes a moment at most.
    pub(crate) fn serve(
        self,
        name: &'static str,
        cpus: Vec<usize>,
        work: impl FnOnce(&UnixStream, &Self) + Send + 'static,
    ) -> TakeOver {
        Box::new(move |stream: UnixStream| {
            let work = move || {
                warmlane_control::stand_back(&cpus);
                let is_ready = stream.set_nonblocking(false).is_ok()
                    && stream.set_write_timeout(Some(UNREAD)).is_ok()
                    && stream.set_read_timeout(Some(REST)).is_ok();
                if is_ready {
                    work(&stream, &self);
                }
                let _ = stream.shutdown(std::net::Shutdown::Both);
            };
            // Without a thread the connection ends.
            let _ = std::thread::Builder::new().name(name.to_owned()).spawn(work);
        })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *self.0.count() -= 1;
        self.0.has_ended.notify_all();
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        // What lanes have copied is to be written. They may not have ended yet.
        self.0.is_ending.store(true, Ordering::Relaxed);
        let running = &*self.0;
        drop(running.has_ended.wait_timeout_while(running.count(), LAST, |count| *count > 0));
    }
}

/// Whether nothing has been said within the moment that a read takes.
pub(crate) fn is_silence(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// Waits a little; says whether the client wants no more: it has closed its side.
pub(crate) fn has_enough(mut stream: &UnixStream) -> io::Result<bool> {
    match stream.read(&mut [0; 64]) {
        Ok(count) => Ok(count == 0),
        Err(error) if is_silence(&error) => Ok(false),
        Err(error) => Err(error),
    }
}
