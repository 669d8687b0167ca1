//! A card played by a program: its registers, and what it does to memory. It can lie.
//!
//! It is written by the datasheet, and strict: it asserts that no address it is given is outside of the memory that it has, and that what it is told makes sense.

mod segmenter;

use super::descriptor::{CONTEXT, DataDescriptor, Received, TsoContext};
use super::memory::{BUFFER_BYTES, DESCRIPTOR_BYTES, RingMemory, Side};
use super::registers::{
    AddressHigh, AddressLow, Control, InterruptAutoClear, InterruptCause, InterruptMask, InterruptUnmask,
    Missed, NvmControl, PhyAccess, ReceiveBaseHigh, ReceiveBaseLow, ReceiveControl, ReceiveHead,
    ReceiveLength, ReceiveTail, Register, Status, TransmitBaseHigh, TransmitBaseLow, TransmitControl,
    TransmitHead, TransmitLength, TransmitTail,
};
use crate::vfio::Registers;
use segmenter::{Segmenter, complement};
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Where the card finds its memory.
pub(super) const START: u64 = 1 << 32;

/// Its address.
pub(super) const ADDRESS: [u8; 6] = [2, 0, 0, 0, 0, 7];

/// Counts that are cleared by reading (10.2.7).
const COUNTS: std::ops::Range<usize> = 0x4000..0x4100;

/// How long behind a reset it sets up its PHY, which is to be left alone meanwhile.
const PHY_SETUP: Duration = Duration::from_millis(25);

/// The bits that say of which kind a descriptor for sending is (7.2.10): the extension, and the type.
const KINDS: u64 = 1 << 29 | 0xf << 20;

#[expect(clippy::struct_excessive_bools, reason = "a set of ways to go wrong")]
#[derive(Debug)]
pub(super) struct State {
    words: Vec<u32>,
    memory: Option<Arc<RingMemory>>,
    pub(super) phy: [u16; 32],
    pub(super) has_link: bool,
    unmasked: u32,
    /// Causes that it has interrupted for.
    told: u32,
    /// How it was when it was reset: receive and transmit control, and whether it accessed memory.
    pub(super) at_reset: Vec<(u32, u32, bool)>,
    /// When it was last reset by what was written to its registers.
    reset_at: Option<Instant>,
    /// Frames that it has sent, and what it has of the next.
    pub(super) sent: Vec<Vec<u8>>,
    begun: Vec<u8>,
    /// Whether that is to be cut.
    is_begun_to_be_cut: bool,
    /// Where the checksum starts that it completes, and where it is stored.
    sum: Option<(usize, usize)>,
    /// How often it was told of one.
    pub(super) sums: u32,
    /// How it cuts. It remembers this or a checksum.
    cut: Option<Segmenter>,
    /// How often it was told that.
    pub(super) cuts: u32,
    pub(super) interrupts: u32,
    /// How often it was told of descriptors to be filled, and of those to be sent.
    pub(super) tails: [u32; 2],
    /// What is written to its registers is on its way until one is read, or until a frame has come.
    pub(super) is_far: bool,
    posted: VecDeque<(usize, u32)>,
    /// It sends nothing.
    pub(super) is_stuck: bool,
    /// It is not there.
    pub(super) is_gone: bool,
    pub(super) never_resets: bool,
    pub(super) never_reads: bool,
    pub(super) has_dead_phy: bool,
}

impl State {
    fn get<T: Register>(&self) -> T {
        T::new(self.words[T::OFFSET / 4])
    }

    pub(super) fn set<T: Register>(&mut self, value: T) {
        self.words[T::OFFSET / 4] = value.bits();
    }

    /// As after a reset (4.6): all but the link.
    fn reset(&mut self) {
        self.words.fill(0);
        let [a, b, c, d, e, f] = ADDRESS;
        self.set(AddressLow::new(u32::from_le_bytes([a, b, c, d])));
        self.set(AddressHigh::new(u32::from_le_bytes([e, f, 0, 0])) | AddressHigh::VALID);
        if !self.never_reads {
            self.set(NvmControl::READ_DONE);
        }
        (self.unmasked, self.told) = (0, 0);
        self.begun.clear();
        (self.sum, self.cut) = (None, None);
    }

    /// What is at an address of the card's, if that is in its memory.
    fn at(&self, address: u64, length: usize) -> NonNull<u8> {
        let memory = self.memory.as_ref().expect("it has memory");
        let descriptors = 2 * usize::from(memory.size()) * DESCRIPTOR_BYTES;
        let bytes = descriptors + 2 * usize::from(memory.size()) * usize::from(BUFFER_BYTES);
        let offset = address.checked_sub(START).expect("an address of its own") as usize;
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

    fn base(&self, side: Side) -> u64 {
        let (low, high) = match side {
            Side::Receive => (self.get::<ReceiveBaseLow>().bits(), self.get::<ReceiveBaseHigh>().bits()),
            Side::Transmit => (self.get::<TransmitBaseLow>().bits(), self.get::<TransmitBaseHigh>().bits()),
        };
        u64::from(high) << 32 | u64::from(low)
    }

    fn descriptor(&self, side: Side, number: u32) -> [&AtomicU64; 2] {
        self.words_at(self.base(side) + u64::from(number) * DESCRIPTOR_BYTES as u64)
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

    /// Interrupts for causes that it has not interrupted for since they came up.
    fn interrupt(&mut self) {
        let causes = self.get::<InterruptCause>();
        let unmasked = causes.bits() & self.unmasked;
        if unmasked & !self.told != 0 {
            self.interrupts += 1;
        }
        let cleared = unmasked & self.get::<InterruptAutoClear>().bits();
        self.set(causes.without(InterruptCause::new(cleared)));
        self.told = unmasked & !cleared;
    }

    fn cause(&mut self, causes: InterruptCause) {
        self.set(self.get::<InterruptCause>() | causes);
        self.interrupt();
    }

    /// Its link comes or goes.
    pub(super) fn change_link(&mut self) {
        self.has_link = !self.has_link;
        self.cause(InterruptCause::LINK | InterruptCause::OTHER);
    }

    /// Sends what there is up to the tail.
    fn send(&mut self) {
        let count = self.get::<TransmitLength>().bits() / DESCRIPTOR_BYTES as u32;
        let tail = self.get::<TransmitTail>().bits();
        assert!(tail < count.max(1), "a tail of {tail} in a ring of {count}");
        let mut head = self.get::<TransmitHead>().bits();
        while head != tail && self.get::<TransmitControl>().has(TransmitControl::ENABLE) && !self.is_stuck {
            let [address, word] =
                self.descriptor(Side::Transmit, head).map(|word| word.load(Ordering::Acquire));
            assert_eq!(word & DataDescriptor::DONE, 0, "{word:#x}");
            if word & KINDS == CONTEXT && word & TsoContext::KIND != 0 {
                assert!(self.begun.is_empty(), "within a frame");
                (self.sum, self.cut) = (None, Some(Segmenter::new(address, word)));
                self.cuts += 1;
            } else if word & KINDS == CONTEXT {
                assert!(self.begun.is_empty(), "within a frame");
                let [_, _, _, _, start, field, end, end_high] = address.to_le_bytes();
                assert_eq!((end, end_high), (0, 0), "up to the end of the frame");
                (self.sum, self.cut) = (Some((start.into(), field.into())), None);
                self.sums += 1;
            } else {
                self.take_data(address, word);
            }
            if word & DataDescriptor::REPORT != 0 {
                self.descriptor(Side::Transmit, head)[1]
                    .store(word | DataDescriptor::DONE, Ordering::Release);
            }
            head = (head + 1) % count;
            self.set(TransmitHead::new(head));
        }
    }

    /// Sends a piece of a frame, or the last of it.
    fn take_data(&mut self, address: u64, word: u64) {
        assert_eq!(word & KINDS, DataDescriptor::DATA, "neither of data nor of a sum: {word:#x}");
        assert_ne!(word & DataDescriptor::ADD_CRC, 0, "{word:#x}");
        let data = self.copy_from(address, (word & DataDescriptor::LENGTH) as usize);
        let is_to_be_cut = word & DataDescriptor::SEGMENT != 0;
        if self.begun.is_empty() {
            self.is_begun_to_be_cut = is_to_be_cut;
        }
        assert_eq!(is_to_be_cut, self.is_begun_to_be_cut, "in one frame");
        let completed = word & (DataDescriptor::INSERT_CHECKSUM | DataDescriptor::INSERT_IP_CHECKSUM);
        if is_to_be_cut {
            let cut = self.cut.expect("it was told how");
            assert_eq!(
                completed,
                DataDescriptor::INSERT_CHECKSUM | DataDescriptor::INSERT_IP_CHECKSUM,
                "{word:#x}"
            );
            assert!(!self.begun.is_empty() || data.len() > cut.headers, "headers and more are first");
        }
        self.begun.extend(data);
        if word & DataDescriptor::END == 0 {
            return;
        }
        let mut frame = std::mem::take(&mut self.begun);
        if is_to_be_cut {
            let cut = self.cut.expect("as above");
            return self.sent.extend(cut.cut(&frame));
        }
        if completed != 0 {
            assert_eq!(completed, DataDescriptor::INSERT_CHECKSUM, "{word:#x}");
            let (start, field) = self.sum.expect("it was told of one");
            let sum = complement(&frame[start..]);
            frame[field..field + 2].copy_from_slice(&sum.to_be_bytes());
        }
        self.sent.push(frame);
    }

    /// Puts a frame in the next buffers, with this said of it besides. Without enough of them, it is lost.
    fn deliver(&mut self, frame: &[u8], status: u64) -> bool {
        let count = self.get::<ReceiveLength>().bits() / DESCRIPTOR_BYTES as u32;
        let mut head = self.get::<ReceiveHead>().bits();
        let pieces: Vec<&[u8]> = frame.chunks(usize::from(BUFFER_BYTES)).collect();
        let tail = self.get::<ReceiveTail>().bits();
        let there = if count == 0 { 0 } else { (tail + count - head) % count };
        if !self.get::<ReceiveControl>().has(ReceiveControl::ENABLE) || (there as usize) < pieces.len() {
            self.set(Missed::new(self.get::<Missed>().bits() + 1));
            return false;
        }
        for (number, piece) in pieces.iter().enumerate() {
            let address = self.descriptor(Side::Receive, head)[0].load(Ordering::Acquire);
            self.copy_to(address, piece);
            let end = if number + 1 == pieces.len() { Received::END | status } else { 0 };
            let word = Received::DONE | end | (piece.len() as u64) << 32;
            let descriptor = self.descriptor(Side::Receive, head);
            // A hash, over the address.
            descriptor[0].store(!0, Ordering::Relaxed);
            descriptor[1].store(word, Ordering::Release);
            head = (head + 1) % count;
        }
        self.set(ReceiveHead::new(head));
        self.cause(InterruptCause::RECEIVED);
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
                }
                let result = PhyAccess::new(value & 0xffff_0000 | u32::from(self.phy[register]));
                let is_early = self.reset_at.is_some_and(|reset| reset.elapsed() < PHY_SETUP);
                let end = if self.has_dead_phy || is_early { PhyAccess::ERROR } else { PhyAccess::READY };
                self.set(result | PhyAccess::READY | end);
            }
            InterruptCause::OFFSET => {
                // Ones clear.
                self.set(InterruptCause::new(before & !value));
                self.interrupt();
            }
            InterruptUnmask::OFFSET => {
                self.unmasked |= value;
                self.interrupt();
            }
            InterruptMask::OFFSET => {
                self.unmasked &= !value;
                self.interrupt();
            }
            ReceiveTail::OFFSET => self.tails[0] += 1,
            TransmitTail::OFFSET => {
                self.tails[1] += 1;
                self.send();
            }
            _ => {}
        }
    }
}

/// Its registers; what is behind them is shared.
#[derive(Clone, Debug)]
pub(super) struct Model(Arc<Mutex<State>>);

impl Model {
    pub(super) fn new() -> Self {
        let mut state = State {
            words: vec![0; super::registers::BYTES as usize / 4],
            memory: None,
            phy: [0; 32],
            has_link: true,
            unmasked: 0,
            told: 0,
            at_reset: Vec::new(),
            reset_at: None,
            sent: Vec::new(),
            begun: Vec::new(),
            is_begun_to_be_cut: false,
            sum: None,
            sums: 0,
            cut: None,
            cuts: 0,
            interrupts: 0,
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

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// It has this memory.
    pub(super) fn give(&self, memory: &Arc<RingMemory>) {
        self.state().memory = Some(Arc::clone(memory));
    }

    pub(super) fn get<T: Register>(&self) -> T {
        self.state().get()
    }

    /// A frame comes by the wire, of which it says this besides.
    pub(super) fn deliver(&self, frame: &[u8], status: u64) -> bool {
        let mut state = self.state();
        let is_received = state.deliver(frame, status);
        state.arrive();
        is_received
    }

    /// It writes this back, whatever it has received, to the descriptor so many behind the next one.
    pub(super) fn write_back(&self, ahead: u32, word: u64) {
        let state = self.state();
        let count = state.get::<ReceiveLength>().bits() / DESCRIPTOR_BYTES as u32;
        let number = (state.get::<ReceiveHead>().bits() + ahead) % count;
        state.descriptor(Side::Receive, number)[1].store(word, Ordering::Release);
    }

    /// It says that it is done with a descriptor for sending, whether it is or not.
    pub(super) fn claim(&self, number: u32) {
        self.state().descriptor(Side::Transmit, number)[1].fetch_or(DataDescriptor::DONE, Ordering::Release);
    }

    /// It goes on sending.
    pub(super) fn loosen(&self) {
        let mut state = self.state();
        state.is_stuck = false;
        state.send();
    }
}

impl Registers for Model {
    fn read8(&self, offset: usize) -> u8 {
        panic!("read of a byte at {offset:#x}")
    }

    fn read16(&self, offset: usize) -> u16 {
        panic!("read of a word at {offset:#x}")
    }

    fn read32(&self, offset: usize) -> u32 {
        let mut state = self.state();
        if state.is_gone {
            return u32::MAX;
        }
        state.arrive();
        match offset {
            Status::OFFSET => {
                let accesses = !state.get::<Control>().has(Control::MASTER_DISABLE);
                let bits = [(state.has_link, Status::LINK_UP), (accesses, Status::MASTER_ENABLED)];
                let set = bits.into_iter().filter(|(is_set, _)| *is_set);
                let status = set.fold(Status::new(0), |status, (_, bit)| status | bit);
                state.set(status);
                status.bits()
            }
            offset if COUNTS.contains(&offset) => std::mem::take(&mut state.words[offset / 4]),
            _ => state.words[offset / 4],
        }
    }

    fn write8(&self, offset: usize, _value: u8) {
        panic!("write of a byte at {offset:#x}")
    }

    fn write16(&self, offset: usize, _value: u16) {
        panic!("write of a word at {offset:#x}")
    }

    fn write32(&self, offset: usize, value: u32) {
        let mut state = self.state();
        if state.is_gone {
            return;
        }
        state.posted.push_back((offset, value));
        if !state.is_far {
            state.arrive();
        }
    }
}
