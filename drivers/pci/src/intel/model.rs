//! A card played by a program: its registers, and what it does to memory. It can lie.
//!
//! It is written by the datasheets, and strict: it asserts that no address it is given is outside of the memory that it has, and that what it is told makes sense.
//! What differs between cards is in a [`Kind`].

mod access;
pub(crate) mod lab;
mod segmenter;

use super::chip::Chip;
use super::descriptor::{DataDescriptor, Received};
use super::memory::{BUFFER_BYTES, DESCRIPTOR_BYTES, RingMemory, Side};
use super::registers::{
    AddressHigh, AddressLow, Control, Missed, NvmControl, PhyAccess, ReceiveControl, Register,
    TransmitControl, phy,
};
pub(crate) use segmenter::Segmenter;
use segmenter::complement;
use std::collections::VecDeque;
use std::fmt::Debug;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use warmlane_driver_common::SharedPool;
use warmlane_mem::{METADATA_BYTES, Pool, Region};

/// Where the card finds the memory of its first pair of rings, and how far it is from each to the next.
const START: u64 = 1 << 32;

/// Where it finds a pool's.
const POOL: u64 = START << 16;

/// Its address.
pub(crate) const ADDRESS: [u8; 6] = [2, 0, 0, 0, 0, 7];

/// Counts that are cleared by reading.
const COUNTS: std::ops::Range<usize> = 0x4000..0x4100;

/// Interrupts that a card has at most.
const VECTORS: usize = 25;

/// How long behind a reset it sets up its PHY, which is to be left alone meanwhile.
const PHY_SETUP: Duration = Duration::from_millis(25);

/// Where the registers of a ring are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingPlaces {
    /// The lower half of the address; the upper one is behind it.
    pub(crate) base: usize,
    pub(crate) length: usize,
    pub(crate) head: usize,
    pub(crate) tail: usize,
}

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    Link,
    /// By this queue.
    Received(usize),
}

/// What a descriptor for sending says.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Told {
    /// How the frames behind it are cut.
    Cut(Segmenter),
    /// Where a checksum starts in the frames behind it, and where it is stored.
    Sum(usize, usize),
    Data {
        length: usize,
        is_to_be_cut: bool,
        /// Bytes of the whole frame, or those behind its headers if it is to be cut, if it says so.
        of: Option<usize>,
    },
}

/// What differs between cards.
pub(crate) trait Kind: Debug + Send + Sync {
    /// Bytes of its registers.
    fn bytes(&self) -> u32;

    fn queues(&self) -> usize;

    fn ring(&self, side: Side, queue: usize) -> RingPlaces;

    /// Whether it works on a ring, if it receives or sends at all.
    fn has_enabled(&self, state: &State, side: Side, queue: usize) -> bool;

    /// Where a frame that came belongs.
    fn queue_of(&self, state: &State, frame: &[u8]) -> usize;

    /// What both words of a descriptor for sending say.
    fn understand(&self, words: [u64; 2]) -> Told;

    /// It interrupts, if it is to.
    fn cause(&self, state: &mut State, cause: Cause);

    /// This was written to one of its own registers, which was something else before.
    fn write(&self, state: &mut State, offset: usize, before: u32, value: u32);

    /// What it has in its own registers after a reset, if not zero.
    fn reset(&self, _state: &mut State) {}

    /// What it says of a frame besides, in the first word of its last descriptor.
    fn first_word(&self, _state: &State, _frame: &[u8]) -> u64 {
        !0
    }
}

/// A card that a [`Model`] can play.
pub(crate) trait Played: Chip<Model> {
    const KIND: &'static dyn Kind;
}

/// A queue for sending.
#[derive(Clone, Debug, Default)]
struct Sender {
    /// What it has of the next frame.
    begun: Vec<u8>,
    /// Whether that is to be cut.
    is_to_be_cut: bool,
    of: Option<usize>,
    /// Where the checksum starts that it completes, and where it is stored.
    sum: Option<(usize, usize)>,
    /// How it cuts. It remembers this or a checksum.
    cut: Option<Segmenter>,
}

#[expect(clippy::struct_excessive_bools, reason = "a set of ways to go wrong")]
#[derive(Debug)]
pub(crate) struct State {
    kind: &'static dyn Kind,
    words: Vec<u32>,
    memories: Vec<Arc<RingMemory>>,
    /// A pool that it reaches.
    pool: Option<Region>,
    /// How often it has filled a buffer of that, and sent from one.
    pub(crate) in_pool: [u32; 2],
    pub(crate) phy: [u16; 32],
    /// It is connected.
    pub(crate) has_link: bool,
    /// Its PHY has negotiated since it lost its link.
    pub(crate) has_negotiated: bool,
    /// Causes that interrupt, and those that it has interrupted for, of a kind that has no registers for that.
    pub(crate) unmasked: u32,
    pub(crate) told: u32,
    /// How it was when it was reset: receive and transmit control, and whether it accessed memory.
    pub(crate) at_reset: Vec<(u32, u32, bool)>,
    /// When it was last reset by what was written to its registers.
    reset_at: Option<Instant>,
    /// Frames that it has sent.
    pub(crate) sent: Vec<Vec<u8>>,
    /// By which queue each.
    pub(crate) sent_by: Vec<usize>,
    senders: Vec<Sender>,
    /// How often it was told of a checksum.
    pub(crate) sums: u32,
    /// How often it was told how to cut.
    pub(crate) cuts: u32,
    /// How often each of its interrupts has come.
    pub(crate) interrupts: [u32; VECTORS],
    /// How often it was told of descriptors to be filled, and of those to be sent.
    pub(crate) tails: [u32; 2],
    /// What is written to its registers is on its way until one is read, or until a frame has come.
    pub(crate) is_far: bool,
    posted: VecDeque<(usize, u32)>,
    /// It sends nothing.
    pub(crate) is_stuck: bool,
    /// It is not there.
    pub(crate) is_gone: bool,
    pub(crate) never_resets: bool,
    pub(crate) never_reads: bool,
    pub(crate) has_dead_phy: bool,
}

impl State {
    pub(crate) fn get<T: Register>(&self) -> T {
        self.get_at(0)
    }

    pub(crate) fn get_at<T: Register>(&self, number: usize) -> T {
        T::new(self.words[T::place(number) / 4])
    }

    pub(crate) fn set<T: Register>(&mut self, value: T) {
        self.set_at(0, value);
    }

    pub(crate) fn set_at<T: Register>(&mut self, number: usize, value: T) {
        self.words[T::place(number) / 4] = value.bits();
    }

    /// Sets a register, without more.
    pub(crate) fn put_back(&mut self, offset: usize, value: u32) {
        self.words[offset / 4] = value;
    }

    /// As after a reset: all but the link.
    fn reset(&mut self) {
        self.words.fill(0);
        let [a, b, c, d, e, f] = ADDRESS;
        self.set(AddressLow::new(u32::from_le_bytes([a, b, c, d])));
        self.set(AddressHigh::new(u32::from_le_bytes([e, f, 0, 0])) | AddressHigh::VALID);
        if !self.never_reads {
            self.set(NvmControl::READ_DONE);
        }
        (self.unmasked, self.told) = (0, 0);
        self.senders.fill(Sender::default());
        self.kind.reset(self);
    }

    /// What is at an address of the card's, if that is in its memory.
    fn at(&self, address: u64, length: usize) -> NonNull<u8> {
        if let Some(region) = self.pool.as_ref().filter(|_| address >= POOL) {
            let (_, offset) = region.offsets().locate(address - POOL).expect("a buffer");
            assert!((METADATA_BYTES as u64..).contains(&offset), "{offset} is the packet's own");
            assert!(offset as usize + length <= region.end(), "{offset} and {length} bytes");
            // SAFETY: in a buffer of the region, as was just seen.
            return unsafe { region.address().add((address - POOL) as usize) };
        }
        let number = (address / START).checked_sub(1).expect("an address of its own") as usize;
        let memory = self.memories.get(number).expect("it has this memory");
        let descriptors = 2 * usize::from(memory.size()) * DESCRIPTOR_BYTES;
        let bytes = descriptors + 2 * usize::from(memory.size()) * usize::from(BUFFER_BYTES);
        let offset = (address % START) as usize;
        assert!(offset + length <= bytes, "{address:#x} and {length} bytes");
        // SAFETY: the first buffer is behind all descriptors, which begin the mapping; the offset is inside, as was just seen.
        unsafe { memory.buffer(Side::Receive, 0).sub(descriptors).add(offset) }
    }

    /// Both words of a descriptor.
    fn words_at(&self, address: u64) -> [&AtomicU64; 2] {
        let place = self.at(address, DESCRIPTOR_BYTES).cast::<AtomicU64>();
        // SAFETY: inside (`at`), and 16 bytes aligned as all descriptors are; both sides access it atomically.
        unsafe { [place.as_ref(), place.add(1).as_ref()] }
    }

    fn descriptor(&self, places: RingPlaces, number: u32) -> [&AtomicU64; 2] {
        let [low, high] = [places.base, places.base + 4].map(|place| u64::from(self.words[place / 4]));
        self.words_at((high << 32 | low) + u64::from(number) * DESCRIPTOR_BYTES as u64)
    }

    fn copy_from(&self, address: u64, length: usize) -> Vec<u8> {
        // SAFETY: inside (`at`); in these tests nobody writes meanwhile.
        unsafe { std::slice::from_raw_parts(self.at(address, length).as_ptr(), length) }.to_vec()
    }

    fn copy_to(&self, address: u64, data: &[u8]) {
        // SAFETY: as above, nobody reads meanwhile.
        unsafe {
            self.at(address, data.len()).copy_from_nonoverlapping(NonNull::from(data).cast(), data.len());
        };
    }

    /// Descriptors of a ring, its head and its tail.
    fn positions(&self, places: RingPlaces) -> [u32; 3] {
        let [length, head, tail] =
            [places.length, places.head, places.tail].map(|place| self.words[place / 4]);
        [length / DESCRIPTOR_BYTES as u32, head, tail]
    }

    fn cause(&mut self, cause: Cause) {
        self.kind.cause(self, cause);
    }

    /// All interrupts that came.
    pub(crate) fn all_interrupts(&self) -> u32 {
        self.interrupts.iter().sum()
    }

    /// Its link comes or goes.
    pub(crate) fn change_link(&mut self) {
        self.has_link = !self.has_link;
        self.cause(Cause::Link);
    }

    /// Sends what there is up to the tail.
    fn send(&mut self, queue: usize) {
        let places = self.kind.ring(Side::Transmit, queue);
        let [count, mut head, tail] = self.positions(places);
        assert!(tail < count.max(1), "a tail of {tail} in a ring of {count}");
        let is_enabled = self.get::<TransmitControl>().has(TransmitControl::ENABLE)
            && self.kind.has_enabled(self, Side::Transmit, queue);
        while head != tail && is_enabled && !self.is_stuck {
            let words = self.descriptor(places, head).map(|word| word.load(Ordering::Acquire));
            let word = words[1];
            assert_eq!(word & DataDescriptor::DONE, 0, "{word:#x}");
            match self.kind.understand(words) {
                Told::Cut(cut) => {
                    assert!(self.senders[queue].begun.is_empty(), "within a frame");
                    (self.senders[queue].sum, self.senders[queue].cut) = (None, Some(cut));
                    self.cuts += 1;
                }
                Told::Sum(start, field) => {
                    assert!(self.senders[queue].begun.is_empty(), "within a frame");
                    (self.senders[queue].sum, self.senders[queue].cut) = (Some((start, field)), None);
                    self.sums += 1;
                }
                Told::Data { length, is_to_be_cut, of } => {
                    assert_ne!(word & DataDescriptor::ADD_CRC, 0, "{word:#x}");
                    self.in_pool[1] += u32::from(words[0] >= POOL);
                    let data = self.copy_from(words[0], length);
                    self.take_data(queue, data, word, (is_to_be_cut, of));
                }
            }
            if word & DataDescriptor::REPORT != 0 {
                self.descriptor(places, head)[1].store(word | DataDescriptor::DONE, Ordering::Release);
            }
            head = (head + 1) % count;
            self.words[places.head / 4] = head;
        }
    }

    /// Sends a piece of a frame, or the last of it.
    fn take_data(
        &mut self,
        queue: usize,
        data: Vec<u8>,
        word: u64,
        (is_to_be_cut, of): (bool, Option<usize>),
    ) {
        let sender = &mut self.senders[queue];
        if sender.begun.is_empty() {
            (sender.is_to_be_cut, sender.of) = (is_to_be_cut, of);
        }
        assert_eq!(is_to_be_cut, sender.is_to_be_cut, "in one frame");
        let completed = word & (DataDescriptor::INSERT_CHECKSUM | DataDescriptor::INSERT_IP_CHECKSUM);
        if is_to_be_cut {
            let cut = sender.cut.expect("it was told how");
            assert_eq!(
                completed,
                DataDescriptor::INSERT_CHECKSUM | DataDescriptor::INSERT_IP_CHECKSUM,
                "{word:#x}"
            );
            assert!(!sender.begun.is_empty() || data.len() > cut.headers, "headers and more are first");
        }
        sender.begun.extend(data);
        if word & DataDescriptor::END == 0 {
            return;
        }
        let mut frame = std::mem::take(&mut sender.begun);
        if is_to_be_cut {
            let mut cut = sender.cut.expect("as above");
            cut.payload = sender.of.unwrap_or(cut.payload);
            let segments = cut.cut(&frame);
            self.sent_by.extend(segments.iter().map(|_| queue));
            return self.sent.extend(segments);
        }
        assert!(sender.of.is_none_or(|of| of == frame.len()), "{:?} of {}", sender.of, frame.len());
        if completed != 0 {
            assert_eq!(completed, DataDescriptor::INSERT_CHECKSUM, "{word:#x}");
            let (start, field) = sender.sum.expect("it was told of one");
            let sum = complement(&frame[start..]);
            frame[field..field + 2].copy_from_slice(&sum.to_be_bytes());
        }
        self.sent_by.push(queue);
        self.sent.push(frame);
    }

    /// Puts a frame in the next buffers, with this said of it besides. Without enough of them, it is lost.
    fn deliver(&mut self, frame: &[u8], status: u64) -> bool {
        let queue = self.kind.queue_of(self, frame);
        let places = self.kind.ring(Side::Receive, queue);
        let [count, mut head, tail] = self.positions(places);
        let pieces: Vec<&[u8]> = frame.chunks(usize::from(BUFFER_BYTES)).collect();
        let there = if count == 0 { 0 } else { (tail + count - head) % count };
        let is_enabled = self.get::<ReceiveControl>().has(ReceiveControl::ENABLE)
            && self.kind.has_enabled(self, Side::Receive, queue);
        if !is_enabled || (there as usize) < pieces.len() {
            self.set(Missed::new(self.get::<Missed>().bits() + 1));
            return false;
        }
        for (number, piece) in pieces.iter().enumerate() {
            let address = self.descriptor(places, head)[0].load(Ordering::Acquire);
            self.in_pool[0] += u32::from(address >= POOL);
            self.copy_to(address, piece);
            let end = if number + 1 == pieces.len() { Received::END | status } else { 0 };
            let word = Received::DONE | end | (piece.len() as u64) << 32;
            let descriptor = self.descriptor(places, head);
            // Over the address.
            descriptor[0].store(self.kind.first_word(self, frame), Ordering::Relaxed);
            descriptor[1].store(word, Ordering::Release);
            head = (head + 1) % count;
        }
        self.words[places.head / 4] = head;
        self.cause(Cause::Received(queue));
        true
    }

    /// What is on its way gets there.
    fn arrive(&mut self) {
        while let Some((offset, value)) = self.posted.pop_front() {
            self.write(offset, value);
        }
    }

    fn write(&mut self, offset: usize, value: u32) {
        let before = std::mem::replace(&mut self.words[offset / 4], value);
        for queue in 0..self.kind.queues() {
            for side in [Side::Receive, Side::Transmit] {
                if offset != self.kind.ring(side, queue).tail {
                    continue;
                }
                if !self.kind.has_enabled(self, side, queue) {
                    // Nobody listens.
                    self.words[offset / 4] = before;
                    return;
                }
                self.tails[side as usize] += 1;
                if side == Side::Transmit {
                    self.send(queue);
                }
                return;
            }
        }
        match offset {
            Control::OFFSET if Control::new(value).has(Control::RESET) => {
                let accesses = !Control::new(before).has(Control::MASTER_DISABLE);
                let controls = (self.get::<ReceiveControl>().bits(), self.get::<TransmitControl>().bits());
                self.at_reset.push((controls.0, controls.1, accesses));
                self.reset_at = Some(Instant::now());
                if !self.never_resets {
                    self.reset();
                }
            }
            PhyAccess::OFFSET => {
                let register = (value >> 16 & 31) as usize;
                if value & PhyAccess::WRITE.bits() == PhyAccess::WRITE.bits() {
                    self.phy[register] = value as u16;
                    self.has_negotiated |=
                        register == phy::CONTROL as usize && value as u16 & phy::RESTART != 0;
                }
                let result = PhyAccess::new(value & 0xffff_0000 | u32::from(self.phy[register]));
                let is_early = self.reset_at.is_some_and(|reset| reset.elapsed() < PHY_SETUP);
                let end = if self.has_dead_phy || is_early { PhyAccess::ERROR } else { PhyAccess::READY };
                self.set(result | PhyAccess::READY | end);
            }
            _ => self.kind.write(self, offset, before, value),
        }
    }
}

/// Its registers; what is behind them is shared.
#[derive(Clone, Debug)]
pub(crate) struct Model(Arc<Mutex<State>>);

impl Model {
    pub(crate) fn new(kind: &'static dyn Kind) -> Self {
        let mut state = State {
            kind,
            words: vec![0; kind.bytes() as usize / 4],
            memories: Vec::new(),
            pool: None,
            in_pool: [0; 2],
            phy: [0; 32],
            has_link: true,
            has_negotiated: true,
            unmasked: 0,
            told: 0,
            at_reset: Vec::new(),
            reset_at: None,
            sent: Vec::new(),
            sent_by: Vec::new(),
            senders: vec![Sender::default(); kind.queues()],
            sums: 0,
            cuts: 0,
            interrupts: [0; VECTORS],
            tails: [0; 2],
            is_far: false,
            posted: VecDeque::new(),
            is_stuck: false,
            is_gone: false,
            never_resets: false,
            never_reads: false,
            has_dead_phy: false,
        };
        state.reset();
        Self(Arc::new(Mutex::new(state)))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// As it was when it was new, but for its memory.
    pub(crate) fn reset(&self) {
        let mut state = self.state();
        (state.has_link, state.has_negotiated, state.is_stuck) = (true, true, false);
        state.sent.clear();
        state.sent_by.clear();
        state.reset();
    }

    /// Memory for so many pairs of rings, which it has from now on instead of what it had.
    pub(crate) fn memories(&self, size: u16, pairs: usize) -> Vec<Arc<RingMemory>> {
        let memory = |number| {
            let memory = RingMemory::new("test", size, |_| Ok(START * (1 + number as u64)));
            Arc::new(memory.expect("there is memory"))
        };
        let memories: Vec<_> = (0..pairs).map(memory).collect();
        self.state().memories.clone_from(&memories);
        memories
    }

    /// It reaches this pool from now on.
    pub(crate) fn share(&self, pool: &Pool) -> Arc<SharedPool> {
        self.state().pool = Some(pool.region());
        SharedPool::new(pool.region(), POOL)
    }

    pub(crate) fn get<T: Register>(&self) -> T {
        self.state().get()
    }

    /// The tail of a ring of its first queue.
    pub(crate) fn tail(&self, side: Side) -> u32 {
        let state = self.state();
        state.positions(state.kind.ring(side, 0))[2]
    }

    /// A frame comes by the wire, of which it says this besides.
    pub(crate) fn deliver(&self, frame: &[u8], status: u64) -> bool {
        let mut state = self.state();
        let is_received = state.deliver(frame, status);
        state.arrive();
        is_received
    }

    /// It writes this back, whatever it has received, to the descriptor of its first queue so many behind the next one.
    pub(crate) fn write_back(&self, ahead: u32, word: u64) {
        let state = self.state();
        let places = state.kind.ring(Side::Receive, 0);
        let [count, head, _] = state.positions(places);
        state.descriptor(places, (head + ahead) % count)[1].store(word, Ordering::Release);
    }

    /// It says that it is done with a descriptor for sending of its first queue, whether it is or not.
    pub(crate) fn claim(&self, number: u32) {
        let state = self.state();
        let places = state.kind.ring(Side::Transmit, 0);
        state.descriptor(places, number)[1].fetch_or(DataDescriptor::DONE, Ordering::Release);
    }

    /// It goes on sending.
    pub(crate) fn loosen(&self) {
        let mut state = self.state();
        state.is_stuck = false;
        for queue in 0..state.kind.queues() {
            state.send(queue);
        }
    }
}
