//! The card from its reset until it runs (4.6), and what lanes use of it.

use super::descriptor;
use super::registers::{
    BYTES, BusControl, BusControl2, CONTROL_RESERVED, ChangeInterval, ExtendedControl, InterruptAutoClear,
    InterruptCause, InterruptMask, InterruptUnmask, InterruptVectors, ReceiveAbsoluteDelay, ReceiveBaseHigh,
    ReceiveBaseLow, ReceiveDelay, ReceiveDescriptors, ReceiveHead, ReceiveInterval, ReceiveLength,
    ReceiveReports, ReceiveTail, TransmitArbitration, TransmitBaseHigh, TransmitBaseLow, TransmitDescriptors,
    TransmitGap, TransmitHead, TransmitLength, TransmitTail,
};
use crate::intel::chip::{Chip, NvmLimit, Problem, Setup};
use crate::intel::counters::{CardCounters, collect};
use crate::intel::descriptor::{Context, Piece, Tso};
use crate::intel::memory::{RingMemory, Side};
use crate::intel::queue::Queue;
use crate::intel::registers::{Control, ReceiveChecksums, ReceiveQueues, Register as _, Status, Typed};
use crate::vfio::Registers;
use std::fmt::Debug;
use std::sync::Arc;
use warmlane_mem::Packet;

/// A card.
#[derive(Clone, Debug)]
pub(crate) struct E1000e<R> {
    registers: Typed<R>,
}

impl<R: Registers> E1000e<R> {
    /// Has these causes interrupt, even if they came up before.
    fn unmask(&self, causes: InterruptCause) {
        self.registers.write(InterruptUnmask::new(causes.bits()));
    }

    /// Has them interrupt no more.
    fn mask(&self, causes: InterruptCause) {
        self.registers.write(InterruptMask::new(causes.bits()));
    }

    /// What the card needs and doesn't do by itself. The other bits of these registers are left as they are.
    fn set_reserved_bits(&self) {
        let registers = &self.registers;
        registers.change(|control: Control| control.without(Control::new(CONTROL_RESERVED)));
        registers.change(|control: ExtendedControl| {
            control.without(ExtendedControl::RESERVED_ZERO) | ExtendedControl::RESERVED_ONE
        });
        registers.change(|arbitration: TransmitArbitration| {
            arbitration.without(TransmitArbitration::RESERVED_ZERO) | TransmitArbitration::RESERVED_ONE
        });
        registers.change(|control: BusControl| control | BusControl::RESERVED_ONE);
        registers.change(|control: BusControl2| control | BusControl2::RESERVED_ONE);
    }

    fn start_receiving(&self, memory: &RingMemory, setup: Setup) {
        let registers = &self.registers;
        let sums = if setup.looks_at_checksums { ReceiveChecksums::ALL } else { ReceiveChecksums::NONE };
        registers.write(sums);
        registers.write(ReceiveReports::EXTENDED | ReceiveReports::NO_ACK_INTERRUPT);
        registers.write(ReceiveQueues::ONE);
        let address = memory.ring_address(Side::Receive);
        registers.write(ReceiveBaseLow::new(address as u32));
        registers.write(ReceiveBaseHigh::new((address >> 32) as u32));
        registers.write(ReceiveLength::new(memory.ring_bytes()));
        registers.write(ReceiveHead::new(0));
        registers.write(ReceiveTail::new(0));
        registers.write(ReceiveDelay::new(0));
        registers.write(ReceiveAbsoluteDelay::new(0));
        registers.write(ReceiveDescriptors::EACH);
        registers.enable_receiving(setup);
    }

    fn start_transmitting(&self, memory: &RingMemory) {
        let registers = &self.registers;
        let address = memory.ring_address(Side::Transmit);
        registers.write(TransmitBaseLow::new(address as u32));
        registers.write(TransmitBaseHigh::new((address >> 32) as u32));
        registers.write(TransmitLength::new(memory.ring_bytes()));
        registers.write(TransmitHead::new(0));
        registers.write(TransmitTail::new(0));
        registers.write(TransmitDescriptors::EACH_REPORT);
        registers.write(TransmitGap::USUAL);
        registers.enable_transmitting();
    }
}

impl<R: Registers + Clone + Debug + Send + Sync + 'static> Chip<R> for E1000e<R> {
    type Queue = Self;

    const REGISTER_BYTES: u32 = BYTES;
    const MOST_QUEUES: usize = 1;

    fn new(registers: R) -> Self {
        Self { registers: Typed(registers) }
    }

    fn registers(&self) -> &Typed<R> {
        &self.registers
    }

    fn reset(&self) -> Result<(), Problem> {
        self.registers.reset(|| self.mask(InterruptCause::ALL), NvmLimit::Required)?;
        self.registers.write(ReceiveLength::new(0));
        self.registers.write(TransmitLength::new(0));
        Ok(())
    }

    fn start(&self, memories: &[Arc<RingMemory>], setup: Setup) -> Result<(), Problem> {
        let [memory] = memories else { return Err("it has one pair of rings".to_owned()) };
        let registers = &self.registers;
        self.set_reserved_bits();
        registers.set_link_up()?;
        registers.clear_filters();
        registers.change(|control: ExtendedControl| control | ExtendedControl::CLEAR_PENDING);
        registers.write(InterruptVectors::USED);
        registers.write(InterruptAutoClear::new(InterruptCause::RECEIVED.bits()));
        registers.write(ChangeInterval::LONG);
        registers.write(ReceiveInterval::NONE);
        self.start_receiving(memory, setup);
        self.start_transmitting(memory);
        registers.write(InterruptCause::ALL);
        self.unmask(InterruptCause::OTHER | InterruptCause::LINK);
        Ok(())
    }

    fn queue(&self, _: usize) -> Self {
        self.clone()
    }

    fn acknowledge_changes(&self) {
        self.registers.write(InterruptCause::OTHER | InterruptCause::LINK);
        // A model of it (QEMU 7.2) masks what has interrupted.
        self.unmask(InterruptCause::OTHER | InterruptCause::LINK);
    }

    fn collect(&self, _: usize, counters: &CardCounters) {
        collect(&self.registers, counters);
    }
}

impl<R: Registers + Debug + Send + Sync> Queue for E1000e<R> {
    const MOST_PAYLOAD: usize = descriptor::LENGTH as usize;

    #[inline(always)]
    fn set_receive_tail(&self, position: u16) {
        self.registers.write(ReceiveTail::new(position.into()));
    }

    #[inline(always)]
    fn set_transmit_tail(&self, position: u16) {
        self.registers.write(TransmitTail::new(position.into()));
    }

    fn arm(&self) {
        // What was taken by polling is no reason to wake up; what comes between the two is one.
        self.registers.write(InterruptCause::RECEIVED);
        self.unmask(InterruptCause::RECEIVED);
        // Both are on their way until something is read behind them (PCI Express Base Specification, "Transaction Ordering").
        let _: Status = self.registers.read();
    }

    fn disarm(&self) {
        self.mask(InterruptCause::RECEIVED);
    }

    #[inline(always)]
    fn data(piece: Piece) -> u64 {
        descriptor::data(piece)
    }

    #[inline]
    fn checksum(_: &Packet, start: u16, offset: u8) -> Option<Context> {
        descriptor::checksum(start, offset)
    }

    fn segmentation(tso: Tso) -> Option<Context> {
        Some(descriptor::segmentation(tso))
    }
}
