//! The atomics of what is model-checked here: `--cfg loom` puts loom's in their place.

#[cfg(loom)]
pub(crate) use loom::hint::spin_loop;
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
#[cfg(not(loom))]
pub(crate) use std::hint::spin_loop;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

#[cfg(not(loom))]
pub(crate) use warmlane_sys::barrier::{heavy as heavy_barrier, light as light_barrier};
#[cfg(not(loom))]
pub(crate) use warmlane_sys::event::Event;

#[cfg(loom)]
pub(crate) use modelled::{Event, heavy_barrier, light_barrier};

#[cfg(loom)]
mod modelled {
    use loom::sync::atomic::{Ordering, fence};
    use loom::sync::{Condvar, Mutex};

    /// What the other side's heavy barrier makes of it.
    pub(crate) fn light_barrier() {
        fence(Ordering::SeqCst);
    }

    pub(crate) fn heavy_barrier() -> bool {
        fence(Ordering::SeqCst);
        true
    }

    /// As an eventfd: signals stay until they are taken note of.
    #[derive(Default)]
    pub(crate) struct Event(Mutex<bool>, Condvar);

    impl Event {
        pub(crate) fn new() -> std::io::Result<Self> {
            Ok(Self::default())
        }

        pub(crate) fn signal(&self) {
            *self.0.lock().unwrap() = true;
            self.1.notify_one();
        }

        pub(crate) fn clear(&self) {
            *self.0.lock().unwrap() = false;
        }

        pub(crate) fn wait(&self) {
            let mut signalled = self.0.lock().unwrap();
            while !*signalled {
                signalled = self.1.wait(signalled).unwrap();
            }
        }
    }
}
