//! A device's registers, played by a program that can lie.

use crate::vfio::Registers;
use std::sync::{Arc, Mutex, MutexGuard};

#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    pub(super) size: u16,
    pub(super) vector: u16,
    pub(super) enabled: bool,
    pub(super) areas: [u64; 3],
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) offered: u64,
    pub(super) accepted: u64,
    pub(super) status: u8,
    /// Each status that was set.
    pub(super) log: Vec<u8>,
    pub(super) queues: Vec<Queue>,
    pub(super) link: u16,
    /// Pairs of queues that it says it has.
    pub(super) pairs: u16,
    /// What it says of RSS: bytes of a key, entries of a table, kinds of hashes.
    pub(super) rss: (u8, u16, u32),
    /// Interrupts that it has.
    pub(super) vectors: u16,
    /// It takes no features.
    pub(super) refuses: bool,
    /// Its queues keep their sizes.
    pub(super) stubborn: bool,
    /// Its configuration changes each time.
    pub(super) restless: bool,
    generation: u8,
    selects: [u32; 2],
    queue: usize,
}

/// Registers of one of two kinds; what is behind them is shared.
#[derive(Clone, Debug)]
pub(super) struct Model {
    state: Arc<Mutex<State>>,
    is_network: bool,
}

impl Model {
    pub(super) fn new(offered: u64) -> Self {
        let queue = Queue { size: 256, ..Queue::default() };
        let state = State {
            offered,
            queues: vec![queue; 2],
            link: 1,
            pairs: 1,
            vectors: 3,
            status: 15,
            ..State::default()
        };
        Self { state: Arc::new(Mutex::new(state)), is_network: false }
    }

    pub(super) fn network(&self) -> Self {
        Self { is_network: true, ..self.clone() }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

/// One half of a number.
fn half(whole: u64, which: u32) -> u32 {
    if which < 2 { (whole >> (32 * which)) as u32 } else { 0 }
}

impl Registers for Model {
    fn read8(&self, offset: usize) -> u8 {
        let mut state = self.state();
        match (self.is_network, offset) {
            (true, 0..6) => [2, 0, 0, 0, 0, 7][offset],
            (true, 17) => state.rss.0,
            (false, 20) => state.status,
            (false, 21) => {
                state.generation = state.generation.wrapping_add(state.restless.into());
                state.generation
            }
            _ => panic!("read of a byte at {offset}"),
        }
    }

    fn read16(&self, offset: usize) -> u16 {
        let state = self.state();
        let queue = state.queues.get(state.queue).cloned().unwrap_or_default();
        match (self.is_network, offset) {
            (true, 6) => state.link,
            (true, 8) => state.pairs,
            (true, 18) => state.rss.1,
            (false, 18) => state.queues.len() as u16,
            (false, 24) => queue.size,
            (false, 26) => queue.vector,
            (false, 30) => state.queue as u16,
            _ => panic!("read of a word at {offset}"),
        }
    }

    fn read32(&self, offset: usize) -> u32 {
        let state = self.state();
        match (self.is_network, offset) {
            (true, 20) => state.rss.2,
            (false, 4) => half(state.offered, state.selects[0]),
            _ => panic!("read of a long word at {offset}"),
        }
    }

    fn write8(&self, offset: usize, value: u8) {
        let mut state = self.state();
        assert_eq!((self.is_network, offset), (false, 20), "write of a byte");
        state.log.push(value);
        state.status = if state.refuses { value & !8 } else { value };
    }

    fn write16(&self, offset: usize, value: u16) {
        let mut state = self.state();
        let (stubborn, vectors) = (state.stubborn, state.vectors);
        if (self.is_network, offset) == (false, 22) {
            state.queue = value.into();
            return;
        }
        let number = state.queue;
        let queue = &mut state.queues[number];
        match offset {
            24 => queue.size = if stubborn { 7 } else { value },
            26 => queue.vector = if value < vectors { value } else { 0xffff },
            28 => queue.enabled = value == 1,
            _ => panic!("write of a word at {offset}"),
        }
    }

    fn write32(&self, offset: usize, value: u32) {
        let mut state = self.state();
        match offset {
            0 => state.selects[0] = value,
            8 => state.selects[1] = value,
            12 => {
                let shift = 32 * state.selects[1];
                state.accepted = state.accepted & !(0xffff_ffff << shift) | u64::from(value) << shift;
            }
            32..56 if offset.is_multiple_of(4) => {
                let number = state.queue;
                let place = &mut state.queues[number].areas[(offset - 32) / 8];
                let shift = offset % 8 * 8;
                *place = *place & !(0xffff_ffff << shift) | u64::from(value) << shift;
            }
            _ => panic!("write of a long word at {offset}"),
        }
    }
}
