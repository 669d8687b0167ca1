//! Counters by a number that the program computes: a backend, a port, a byte.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use warmlane_sync::padded::CachePadded;

use crate::cell::{self, OneThread};

/// Counters in a row: whole cache lines.
const ROW: usize = 16;

type Rows = Arc<[CachePadded<[AtomicU64; ROW]>]>;

/// As many counters as one likes, by number. One thread adds; it can move to another, but not be shared or cloned.
/// Anyone reads by a [`CounterTableView`].
///
/// ```
/// let packets = warmlane_counters::CounterTable::new(256);
/// let view = packets.view();
/// packets.add(0x2a, 3);
/// assert_eq!((view.get(0x2a), view.get(0x2b)), (3, 0));
/// ```
pub struct CounterTable {
    rows: Rows,
    length: usize,
    _one_thread: OneThread,
}

impl CounterTable {
    /// `length` counters, all zero.
    pub fn new(length: usize) -> Self {
        let row = || CachePadded::new([const { AtomicU64::new(0) }; ROW]);
        let rows = (0..length.div_ceil(ROW)).map(|_| row()).collect();
        Self { rows, length, _one_thread: PhantomData }
    }

    /// Adds `count` to the counter of this number; beyond the last nothing is counted.
    #[inline(always)]
    pub fn add(&self, number: usize, count: u64) {
        if let Some(cell) = cell_at(&self.rows, number) {
            cell::add(cell, count);
        }
    }

    /// The counters, to read.
    pub fn view(&self) -> CounterTableView {
        CounterTableView { rows: Arc::clone(&self.rows), length: self.length }
    }
}

/// Reads a [`CounterTable`] from any thread.
#[derive(Clone)]
pub struct CounterTableView {
    rows: Rows,
    length: usize,
}

impl CounterTableView {
    /// The count of this number; zero beyond the last.
    pub fn get(&self, number: usize) -> u64 {
        cell_at(&self.rows, number).map_or(0, cell::get)
    }

    /// All counts in their order.
    pub fn iter(&self) -> impl Iterator<Item = u64> {
        (0..self.length).map(|number| self.get(number))
    }
}

#[inline(always)]
fn cell_at(rows: &Rows, number: usize) -> Option<&AtomicU64> {
    rows.get(number / ROW).map(|row| &row[number % ROW])
}

impl fmt::Debug for CounterTable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.view(), formatter)
    }
}

impl fmt::Debug for CounterTableView {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_has_its_own_count() {
        let table = CounterTable::new(33);
        let view = table.view();
        (0..33).for_each(|number| table.add(number, number as u64 + 1));
        table.add(1_000, 1);
        assert_eq!(view.iter().collect::<Vec<_>>(), (1..=33).collect::<Vec<_>>());
        assert_eq!((view.get(32), view.get(1_000)), (33, 0));
        assert_eq!(format!("{:?}", CounterTable::new(2)), "[0, 0]");
    }
}
