//! The two magazines that a lane holds.
//!
//! With two, a lane that alternates between taking and freeing at a magazine's edge exchanges nothing: that is
//! the whole trick of Bonwick's magazine layer, and why there is no threshold to tune.

/// A magazine that the lane holds: cells `0..length` hold indices.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) number: u32,
    pub(crate) length: usize,
    /// Cells below this one name buffers that another lane may have had last and that nobody has fetched into this
    /// lane's private cache since.
    pub(crate) far: usize,
    /// It went round in the depot's hot set.
    pub(crate) hot: bool,
    /// It came from the pool, and nothing was freed into it since.
    pub(crate) only_taken_from: bool,
}

impl Held {
    pub(crate) const fn empty(number: u32) -> Self {
        Self { number, length: 0, far: 0, hot: false, only_taken_from: false }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Magazines {
    /// What is taken from and freed to.
    pub(crate) loaded: Held,
    /// Either empty or full, but for what a refill from the list under the lock brought.
    pub(crate) previous: Held,
}

impl Magazines {
    pub(crate) const fn new(loaded: u32, previous: u32) -> Self {
        Self { loaded: Held::empty(loaded), previous: Held::empty(previous) }
    }

    /// Gets indices into the empty `loaded`; `false` if there are none to be had. `exchange` turns the number of an
    /// empty magazine into a magazine with indices in it.
    pub(crate) fn refill(&mut self, exchange: impl FnOnce(u32) -> Option<Held>) -> bool {
        debug_assert!(self.loaded.length == 0);
        if self.previous.length > 0 {
            std::mem::swap(&mut self.loaded, &mut self.previous);
            return true;
        }
        let Some(held) = exchange(self.loaded.number) else { return false };
        self.loaded = held;
        true
    }

    /// Makes space in the full `loaded`, of `capacity` indices. `exchange` turns the number of a full magazine into
    /// that of an empty one.
    pub(crate) fn make_space(&mut self, capacity: usize, exchange: impl FnOnce(u32) -> u32) {
        debug_assert!(self.loaded.length == capacity);
        std::mem::swap(&mut self.loaded, &mut self.previous);
        if self.loaded.length == capacity {
            self.loaded = Held::empty(exchange(self.loaded.number));
        }
    }
}
