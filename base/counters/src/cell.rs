//! Counters in memory: who writes, who reads.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use warmlane_sync::padded::CachePadded;

/// Makes what contains it `!Sync`: it may move to another thread, but not be used by two.
pub(crate) type OneThread = PhantomData<Cell<()>>;

/// Adds with a plain load, add and store: no locked instruction, which would cost about 20 cycles even on a line that
/// no other thread has. Right as long as there is one writer, which is what the types of this module are for. Relaxed:
/// no other memory hangs on a count.
#[inline(always)]
pub(crate) fn add(cell: &AtomicU64, count: u64) {
    cell.store(cell.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
}

/// The value, as far as it is visible here.
#[inline(always)]
pub(crate) fn get(cell: &AtomicU64) -> u64 {
    cell.load(Ordering::Relaxed)
}

/// A counter in a set, lent by the set's writer.
#[derive(Clone, Copy)]
pub struct CounterRef<'a> {
    cell: &'a AtomicU64,
    _one_thread: PhantomData<&'a Cell<()>>,
}

impl CounterRef<'_> {
    /// Adds `count`.
    #[inline(always)]
    pub fn add(self, count: u64) {
        add(self.cell, count);
    }

    /// The count so far.
    #[inline(always)]
    pub fn get(self) -> u64 {
        get(self.cell)
    }
}

/// A value in a set that goes up and down, lent by the set's writer.
#[derive(Clone, Copy)]
pub struct GaugeRef<'a> {
    cell: &'a AtomicU64,
    _one_thread: PhantomData<&'a Cell<()>>,
}

impl GaugeRef<'_> {
    /// Replaces the value.
    #[inline(always)]
    pub fn set(self, value: u64) {
        self.cell.store(value, Ordering::Relaxed);
    }

    /// The value.
    #[inline(always)]
    pub fn get(self) -> u64 {
        get(self.cell)
    }
}

/// The highest value so far, lent by the set's writer.
#[derive(Clone, Copy)]
pub struct PeakRef<'a>(GaugeRef<'a>);

impl PeakRef<'_> {
    /// Raises it to this value if it is lower.
    #[inline(always)]
    pub fn raise(self, value: u64) {
        self.0.set(self.0.get().max(value));
    }

    /// The value.
    #[inline(always)]
    pub fn get(self) -> u64 {
        self.0.get()
    }
}

/// What a set gives its writer for an entry of each [`Role`](crate::Role): of the same names.
pub mod role {
    /// See the module.
    pub type In<'a> = super::CounterRef<'a>;
    /// See the module.
    pub type Out<'a> = super::CounterRef<'a>;
    /// See the module.
    pub type Note<'a> = super::CounterRef<'a>;
    /// See the module.
    pub type Gauge<'a> = super::GaugeRef<'a>;
    /// See the module.
    pub type Peak<'a> = super::PeakRef<'a>;
}

/// The cells of a set with `N` entries, as its writer has them: on cache lines of their own.
pub struct Cells<const N: usize> {
    cells: Arc<CachePadded<[AtomicU64; N]>>,
    _one_thread: OneThread,
}

impl<const N: usize> Cells<N> {
    /// The entry at `index`, which is known when the program is compiled.
    #[inline(always)]
    pub fn entry<'a, R: From<Entry<'a>>>(&'a self, index: usize) -> R {
        R::from(Entry(&self.cells[index]))
    }

    /// The cells, to read.
    pub fn view(&self) -> CellsView<N> {
        CellsView { cells: Arc::clone(&self.cells) }
    }
}

impl<const N: usize> Default for Cells<N> {
    fn default() -> Self {
        let cells = std::array::from_fn(|_| AtomicU64::new(0));
        Self { cells: Arc::new(CachePadded::new(cells)), _one_thread: PhantomData }
    }
}

/// A cell of the writer's, on its way into what it is lent as.
pub struct Entry<'a>(&'a AtomicU64);

impl<'a> From<Entry<'a>> for CounterRef<'a> {
    #[inline(always)]
    fn from(entry: Entry<'a>) -> Self {
        Self { cell: entry.0, _one_thread: PhantomData }
    }
}

impl<'a> From<Entry<'a>> for GaugeRef<'a> {
    #[inline(always)]
    fn from(entry: Entry<'a>) -> Self {
        Self { cell: entry.0, _one_thread: PhantomData }
    }
}

impl<'a> From<Entry<'a>> for PeakRef<'a> {
    #[inline(always)]
    fn from(entry: Entry<'a>) -> Self {
        Self(entry.into())
    }
}

/// The cells of a set, as its readers have them.
#[derive(Clone)]
pub struct CellsView<const N: usize> {
    cells: Arc<CachePadded<[AtomicU64; N]>>,
}

impl<const N: usize> CellsView<N> {
    /// The value of the entry at `index`.
    pub fn get(&self, index: usize) -> u64 {
        get(&self.cells[index])
    }

    /// Whether both read the same set.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.cells, &other.cells)
    }
}

/// A 64-bit counter on its own cache line. One thread adds; it can move to another, but not be shared or cloned. Anyone reads by a
/// [`CounterView`].
///
/// ```
/// let counter = warmlane_counters::Counter::new();
/// let view = counter.view();
/// std::thread::spawn(move || counter.add(3)).join().unwrap();
/// assert_eq!(view.get(), 3);
/// ```
///
/// Two writers don't compile:
/// ```compile_fail,E0277
/// let counter = warmlane_counters::Counter::new();
/// std::thread::scope(|scope| {
///     scope.spawn(|| counter.add(1));
/// });
/// ```
#[derive(Default)]
pub struct Counter(Cells<1>);

impl Counter {
    /// Zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `count`.
    #[inline(always)]
    pub fn add(&self, count: u64) {
        self.0.entry::<CounterRef<'_>>(0).add(count);
    }

    /// The count so far.
    #[inline(always)]
    pub fn get(&self) -> u64 {
        self.0.entry::<CounterRef<'_>>(0).get()
    }

    /// The counter, to read.
    pub fn view(&self) -> CounterView {
        CounterView(self.0.view())
    }
}

/// Reads a [`Counter`] from any thread.
#[derive(Clone)]
pub struct CounterView(CellsView<1>);

impl CounterView {
    /// The count, as far as it is visible here.
    pub fn get(&self) -> u64 {
        self.0.get(0)
    }
}

impl fmt::Debug for CounterRef<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.get(), formatter)
    }
}

impl fmt::Debug for GaugeRef<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.get(), formatter)
    }
}

impl fmt::Debug for Counter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.get(), formatter)
    }
}

impl fmt::Debug for CounterView {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.get(), formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_sees_the_count_grow_and_end_right() {
        const COUNTS: u64 = 1_000_000;
        let counter = Counter::new();
        let view = counter.view();
        let writer = std::thread::spawn(move || (0..COUNTS).for_each(|_| counter.add(3)));
        let mut last = 0;
        while last < 3 * COUNTS {
            let now = view.get();
            assert!(now >= last && now.is_multiple_of(3), "{now} after {last}");
            last = now;
        }
        writer.join().unwrap();
        assert_eq!(view.get(), 3 * COUNTS);
    }

    #[test]
    fn it_wraps() {
        let counter = Counter::new();
        counter.add(u64::MAX);
        counter.add(2);
        assert_eq!(counter.get(), 1);
    }

    #[test]
    fn a_set_has_cache_lines_of_its_own() {
        let cells = Cells::<3>::default();
        let address = (&raw const cells.cells[0]).addr();
        assert_eq!(address % align_of::<CachePadded<u8>>(), 0);
        // The reference counts, which readers write, are on another line.
        assert!(Arc::as_ptr(&cells.cells).addr() >= align_of::<CachePadded<u8>>());
    }
}
