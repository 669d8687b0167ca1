//! Turns of tests that need the machine to themselves: tests of one program run side by side.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static MACHINE: RwLock<()> = RwLock::new(());

/// A turn beside others, shared by all that one thread has asked for.
pub type BesideOthers = Rc<RwLockReadGuard<'static, ()>>;

thread_local! {
    static HELD: RefCell<Weak<RwLockReadGuard<'static, ()>>> = const { RefCell::new(Weak::new()) };
}

/// A turn beside others, for as long as this lives. A thread may ask again while it has one: if it had to wait behind a
/// thread that waits for a turn alone, both would wait for ever.
pub fn beside_others() -> BesideOthers {
    HELD.with_borrow_mut(|held| {
        held.upgrade().unwrap_or_else(|| {
            let turn = Rc::new(MACHINE.read().unwrap_or_else(PoisonError::into_inner));
            *held = Rc::downgrade(&turn);
            turn
        })
    })
}

/// A turn alone, for as long as this lives: for lanes that spin on their CPUs, and for promises about time.
pub fn alone() -> RwLockWriteGuard<'static, ()> {
    MACHINE.write().unwrap_or_else(PoisonError::into_inner)
}
