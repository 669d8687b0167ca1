//! Model checking of how a thread that sleeps is woken by what comes meanwhile; how to run it and what a model is, says `loom.rs`:
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p warmlane-sync --release --test loom_wake_ups
//! ```
#![cfg(loom)]

mod models;

use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use models::model;
use warmlane_sync::mailbox::mailbox;

/// What a thread sleeps on: an eventfd, whose signal stays until it is taken note of, or a thread's state in the kernel.
#[derive(Default)]
struct Signal(Mutex<bool>, Condvar);

impl Signal {
    fn set(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_one();
    }

    fn clear(&self) {
        *self.0.lock().unwrap() = false;
    }

    fn wait(&self) {
        let mut is_set = self.0.lock().unwrap();
        while !*is_set {
            is_set = self.1.wait(is_set).unwrap();
        }
    }
}

/// The control side leaves two messages and calls the lane after each; the lane takes note of the call, looks for messages, and sleeps. If a
/// call could get lost, it would sleep for ever, which loom tells.
#[test]
fn a_call_tells_of_every_message() {
    model(3, || {
        let (mut sender, mut receiver) = mailbox::<u32>(2).unwrap();
        let called = Arc::new(Signal::default());
        let caller = called.clone();
        let thread = thread::spawn(move || {
            for number in 1..=2 {
                assert!(sender.send(number).is_ok());
                caller.set();
            }
        });
        let mut found = 0;
        loop {
            while let Ok(number) = receiver.receive() {
                assert_eq!(number, found + 1);
                found = number;
            }
            if found == 2 {
                break;
            }
            called.wait();
            called.clear();
        }
        thread.join().unwrap();
    });
}

/// A socket or file of the kernel's (`AF_XDP`, `AF_PACKET`, TAP), by its sources (Linux 6.18: `sock_def_readable` in net/core/sock.c and
/// `wq_has_sleeper` in include/linux/wait.h; `do_poll` and `poll_schedule_timeout` in fs/select.c): whoever puts something into the ring looks after that whether
/// anybody waits, with a barrier in between, and who polls puts itself into the queue of those that wait before it looks at the ring.
#[derive(Default)]
struct Socket {
    /// What was put into the ring, and never taken back.
    produced: AtomicU32,
    has_sleeper: AtomicBool,
    woken: Signal,
}

impl Socket {
    fn deliver(&self, count: u32) {
        self.produced.store(count, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.has_sleeper.load(Ordering::Relaxed) {
            self.woken.set();
        }
    }

    /// poll(2), by a thread that has taken so many.
    fn poll(&self, taken: u32) {
        self.has_sleeper.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        loop {
            // What wakes the thread from here on keeps it from going to sleep.
            self.woken.clear();
            if self.produced.load(Ordering::Acquire) != taken {
                break;
            }
            self.woken.wait();
        }
        self.has_sleeper.store(false, Ordering::Relaxed);
    }
}

/// The lane needs to ask for nothing: it takes what is there, and polls for the rest.
#[test]
fn a_socket_tells_of_all_that_came_before_the_sleep() {
    model(3, || {
        let socket = Arc::new(Socket::default());
        let kernel = socket.clone();
        let thread = thread::spawn(move || {
            kernel.deliver(1);
            kernel.deliver(2);
        });
        let mut taken = 0;
        while taken < 2 {
            taken = socket.produced.load(Ordering::Acquire);
            if taken < 2 {
                socket.poll(taken);
            }
        }
        thread.join().unwrap();
    });
}
