//! What is the 82574's own in a card played by a program.

use super::chip::E1000e;
use super::descriptor::{CONTEXT, DATA, LENGTH, SEGMENT, SEGMENTATION};
use super::registers::{
    BYTES, InterruptAutoClear, InterruptCause, InterruptMask, InterruptUnmask, ReceiveBaseLow, ReceiveHead,
    ReceiveLength, ReceiveTail, TransmitBaseLow, TransmitHead, TransmitLength, TransmitTail,
};
use crate::intel::memory::Side;
use crate::intel::model::{Cause, Kind, Model, Played, RingPlaces, Segmenter, State, Told};
use crate::intel::registers::Register;

/// The bits that say of which kind a descriptor for sending is (7.2.10): the extension, and the type.
const KINDS: u64 = 1 << 29 | 0xf << 20;

/// The interrupts that it is told to use.
const CHANGED: usize = 0;
const RECEIVED: usize = 1;

#[derive(Debug)]
struct Playing;

impl Played for E1000e<Model> {
    const KIND: &'static dyn Kind = &Playing;
}

/// Interrupts for causes that it has not interrupted for since they came up.
fn interrupt(state: &mut State) {
    let causes = state.get::<InterruptCause>();
    let unmasked = causes.bits() & state.unmasked;
    let new = unmasked & !state.told;
    let received = InterruptCause::RECEIVED.bits();
    for (vector, causes) in [(CHANGED, new & !received), (RECEIVED, new & received)] {
        state.interrupts[vector] += u32::from(causes != 0);
    }
    let cleared = unmasked & state.get::<InterruptAutoClear>().bits();
    state.set(causes.without(InterruptCause::new(cleared)));
    state.told = unmasked & !cleared;
}

/// How a frame is to be cut (7.2.10, 7.3).
fn segmenter(first: u64, second: u64) -> Segmenter {
    assert_eq!(second >> 24 & 0b111, 0b111, "of TCP over IPv4: {second:#x}");
    assert_eq!(first >> 48, 0, "the checksum of TCP is up to the end of the frame");
    let byte = |word: u64, shift: u32| (word >> shift & 0xff) as usize;
    Segmenter {
        network: byte(first, 0),
        network_field: byte(first, 8),
        network_end: (first >> 16 & 0xffff) as usize,
        transport: byte(first, 32),
        transport_field: byte(first, 40),
        headers: byte(second, 40),
        size: (second >> 48) as usize,
        payload: (second & LENGTH) as usize,
    }
}

impl Kind for Playing {
    fn bytes(&self) -> u32 {
        BYTES
    }

    fn queues(&self) -> usize {
        1
    }

    fn ring(&self, side: Side, _: usize) -> RingPlaces {
        match side {
            Side::Receive => RingPlaces {
                base: ReceiveBaseLow::OFFSET,
                length: ReceiveLength::OFFSET,
                head: ReceiveHead::OFFSET,
                tail: ReceiveTail::OFFSET,
            },
            Side::Transmit => RingPlaces {
                base: TransmitBaseLow::OFFSET,
                length: TransmitLength::OFFSET,
                head: TransmitHead::OFFSET,
                tail: TransmitTail::OFFSET,
            },
        }
    }

    fn has_enabled(&self, _: &State, _: Side, _: usize) -> bool {
        true
    }

    fn queue_of(&self, _: &State, _: &[u8]) -> usize {
        0
    }

    fn understand(&self, [first, second]: [u64; 2]) -> Told {
        if second & KINDS == CONTEXT && second & SEGMENTATION != 0 {
            return Told::Cut(segmenter(first, second));
        }
        if second & KINDS == CONTEXT {
            let [_, _, _, _, start, field, end, end_high] = first.to_le_bytes();
            assert_eq!((end, end_high), (0, 0), "up to the end of the frame");
            return Told::Sum(start.into(), field.into());
        }
        assert_eq!(second & KINDS, DATA, "neither of data nor of a sum: {second:#x}");
        let length = (second & LENGTH) as usize;
        Told::Data { length, is_to_be_cut: second & SEGMENT != 0, of: None }
    }

    fn cause(&self, state: &mut State, cause: Cause) {
        let causes = match cause {
            Cause::Link => InterruptCause::LINK | InterruptCause::OTHER,
            Cause::Received(_) => InterruptCause::RECEIVED,
        };
        state.set(state.get::<InterruptCause>() | causes);
        interrupt(state);
    }

    fn write(&self, state: &mut State, offset: usize, before: u32, value: u32) {
        match offset {
            // Ones clear.
            InterruptCause::OFFSET => state.set(InterruptCause::new(before & !value)),
            InterruptUnmask::OFFSET => state.unmasked |= value,
            InterruptMask::OFFSET => state.unmasked &= !value,
            _ => return,
        }
        interrupt(state);
    }
}
