//! What lanes use of a pair of the card's rings.

use super::descriptor;
use super::registers::{ReceiveTail, TransmitTail, VectorCause, VectorMask, VectorUnmask};
use crate::intel::descriptor::{Context, Piece, Tso};
use crate::intel::queue::Queue;
use crate::intel::registers::{Register as _, Status, Typed};
use crate::vfio::Registers;
use std::fmt::Debug;
use warmlane_mem::Packet;

/// A pair of rings.
#[derive(Clone, Debug)]
pub(crate) struct IgbQueue<R> {
    pub(super) registers: Typed<R>,
    pub(super) number: usize,
}

/// The bit of the vector by which a queue interrupts: the first vector is for changes.
pub(super) const fn vector_bit(queue: usize) -> u32 {
    1 << (1 + queue)
}

impl<R: Registers + Debug + Send + Sync> Queue for IgbQueue<R> {
    const MOST_PAYLOAD: usize = descriptor::LONGEST as usize;

    #[inline(always)]
    fn set_receive_tail(&self, position: u16) {
        self.registers.write_at(self.number, ReceiveTail::new(position.into()));
    }

    #[inline(always)]
    fn set_transmit_tail(&self, position: u16) {
        self.registers.write_at(self.number, TransmitTail::new(position.into()));
    }

    fn arm(&self) {
        let bit = vector_bit(self.number);
        // What was taken by polling is no reason to wake up; what comes between the two is one.
        self.registers.write(VectorCause::new(bit));
        self.registers.write(VectorUnmask::new(bit));
        // Both are on their way until something is read behind them (PCI Express Base Specification, "Transaction Ordering").
        let _: Status = self.registers.read();
    }

    fn disarm(&self) {
        self.registers.write(VectorMask::new(vector_bit(self.number)));
    }

    #[inline(always)]
    fn data(piece: Piece) -> u64 {
        descriptor::data(piece)
    }

    #[inline]
    fn checksum(packet: &Packet, start: u16, offset: u8) -> Option<Context> {
        descriptor::checksum(packet.data(), start, offset)
    }

    fn segmentation(tso: Tso) -> Option<Context> {
        descriptor::segmentation(tso)
    }
}
