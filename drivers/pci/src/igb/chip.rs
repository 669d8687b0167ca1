//! The card from its reset until it runs (4.5).

use super::queue::{IgbQueue, vector_bit};
use super::registers::{
    BYTES, HASH_IN_DESCRIPTOR, HashKey, HeadWriteBack, InterruptCause, InterruptMask, InterruptMode,
    InterruptUnmask, LongestFrame, OtherVectors, QUEUES, QueueVectors, ReceiveBaseHigh, ReceiveBaseLow,
    ReceiveBuffers, ReceiveDescriptors, ReceiveDropped, ReceiveHead, ReceiveLength, ReceiveTail, Redirection,
    SPREAD, TransmitBaseHigh, TransmitBaseLow, TransmitDescriptors, TransmitHead, TransmitLength,
    TransmitTail, VectorAutoClear, VectorCause, VectorInterval, VectorMask, VectorUnmask,
};
use crate::intel::chip::{Chip, NvmLimit, Problem, Setup, becomes};
use crate::intel::counters::{CardCounters, collect};
use crate::intel::memory::{RingMemory, Side};
use crate::intel::registers::{ReceiveChecksums, ReceiveQueues, Register as _, Typed};
use crate::vfio::Registers;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;
use warmlane_wire::toeplitz::MICROSOFT_KEY;

/// How long the card may take to read its NVM, if it says so at all, as QEMU's doesn't (10.2): as long as Intel's own driver waits (FreeBSD's
/// `sys/dev/e1000/e1000_mac.c`, `e1000_get_auto_rd_done_generic`).
const NVM: Duration = Duration::from_millis(10);

/// How long a queue may take until it is in use.
const ENABLE: Duration = Duration::from_millis(100);

/// Entries of the redirection table (7.1.1.7).
const ENTRIES: usize = 128;

/// In [`QueueVectors`]: the entry counts.
const VALID: u32 = 0x80;

/// The bit of the vector by which changes interrupt.
const CHANGES: u32 = 1 << 0;

/// A card.
#[derive(Debug)]
pub(crate) struct Igb<R> {
    registers: Typed<R>,
}

impl<R: Registers> Igb<R> {
    /// It interrupts no more.
    fn mask_all(&self) {
        self.registers.write(InterruptMask::new(InterruptCause::ALL.bits()));
        self.registers.write(VectorMask::ALL);
    }

    /// Vector 0 is of changes, the others are of what queues have received.
    fn set_up_interrupts(&self, queues: usize) {
        let registers = &self.registers;
        let mode = InterruptMode::SEVERAL_VECTORS | InterruptMode::CLEAR_ON_READ;
        // Before the others, which mean something else without.
        registers.write(mode | InterruptMode::CLEAR_PENDING);
        for word in 0..QUEUES / 2 {
            // Those of receiving are in the lower byte of each half.
            let entry = |queue: usize| if queue < queues { VALID | (1 + queue as u32) } else { 0 };
            registers.write_at(word, QueueVectors::new(entry(word) | entry(word + 8) << 16));
        }
        registers.write(OtherVectors::FIRST);
        for vector in 0..=queues {
            registers.write_at(vector, VectorInterval::NONE);
        }
        let vectors = (0..queues).fold(CHANGES, |bits, queue| bits | vector_bit(queue));
        registers.write(VectorAutoClear::new(vectors));
    }

    /// Flows are spread over so many queues (7.1.1.7).
    fn spread(&self, queues: usize) {
        let registers = &self.registers;
        for (number, bytes) in MICROSOFT_KEY.as_chunks::<4>().0.iter().enumerate() {
            registers.write_at(number, HashKey::new(u32::from_le_bytes(*bytes)));
        }
        for number in 0..ENTRIES / 4 {
            let entries = [0, 1, 2, 3].map(|entry| ((4 * number + entry) % queues) as u8);
            registers.write_at(number, Redirection::new(u32::from_le_bytes(entries)));
        }
        registers.write(ReceiveQueues::new(SPREAD));
    }

    fn start_ring(&self, number: usize, memory: &RingMemory, drops: bool) -> Result<(), Problem> {
        let registers = &self.registers;
        let address = memory.ring_address(Side::Receive);
        registers.write_at(number, ReceiveBaseLow::new(address as u32));
        registers.write_at(number, ReceiveBaseHigh::new((address >> 32) as u32));
        registers.write_at(number, ReceiveLength::new(memory.ring_bytes()));
        let buffers = ReceiveBuffers::SIZE | ReceiveBuffers::ADVANCED;
        registers.write_at(number, if drops { buffers | ReceiveBuffers::DROP } else { buffers });
        registers.write_at(number, ReceiveHead::new(0));
        registers.write_at(number, ReceiveTail::new(0));
        registers.write_at(number, ReceiveDescriptors::EACH | ReceiveDescriptors::ENABLE);
        let address = memory.ring_address(Side::Transmit);
        registers.write_at(number, TransmitBaseLow::new(address as u32));
        registers.write_at(number, TransmitBaseHigh::new((address >> 32) as u32));
        registers.write_at(number, TransmitLength::new(memory.ring_bytes()));
        registers.write_at(number, HeadWriteBack::NONE);
        registers.write_at(number, TransmitHead::new(0));
        registers.write_at(number, TransmitTail::new(0));
        registers.write_at(number, TransmitDescriptors::EACH_REPORT | TransmitDescriptors::ENABLE);
        // Tails that are written before are lost (4.5.9).
        let is_enabled = becomes(ENABLE, || {
            registers.read_at::<ReceiveDescriptors>(number).has(ReceiveDescriptors::ENABLE)
                && registers.read_at::<TransmitDescriptors>(number).has(TransmitDescriptors::ENABLE)
        });
        if is_enabled { Ok(()) } else { Err(format!("its queue {number} can't be used")) }
    }
}

impl<R: Registers + Clone + Debug + Send + Sync + 'static> Chip<R> for Igb<R> {
    type Queue = IgbQueue<R>;

    const REGISTER_BYTES: u32 = BYTES;
    const MOST_QUEUES: usize = QUEUES;

    fn new(registers: R) -> Self {
        Self { registers: Typed(registers) }
    }

    fn registers(&self) -> &Typed<R> {
        &self.registers
    }

    fn reset(&self) -> Result<(), Problem> {
        self.registers.reset(|| self.mask_all(), NvmLimit::AtMost(NVM))?;
        for number in 0..QUEUES {
            // The first is in use after a reset.
            self.registers.write_at(number, ReceiveDescriptors::new(0));
            self.registers.write_at(number, TransmitDescriptors::new(0));
            self.registers.write_at(number, ReceiveLength::new(0));
            self.registers.write_at(number, TransmitLength::new(0));
        }
        Ok(())
    }

    fn start(&self, memories: &[Arc<RingMemory>], setup: Setup) -> Result<(), Problem> {
        let registers = &self.registers;
        registers.set_link_up()?;
        registers.clear_filters();
        self.set_up_interrupts(memories.len());
        let sums = if setup.looks_at_checksums { ReceiveChecksums::ALL } else { ReceiveChecksums::NONE };
        registers.write(sums | ReceiveChecksums::new(HASH_IN_DESCRIPTOR));
        registers.write(LongestFrame::new(setup.longest));
        let has_several = memories.len() > 1;
        if has_several {
            self.spread(memories.len());
        } else {
            registers.write(ReceiveQueues::ONE);
        }
        // Before receiving is switched on, which a first ring has to be there for (4.5.9).
        for (number, memory) in memories.iter().enumerate() {
            self.start_ring(number, memory, has_several)?;
        }
        registers.enable_receiving(setup);
        registers.enable_transmitting();
        registers.write(InterruptCause::ALL);
        registers.write(VectorCause::new(VectorMask::ALL.bits()));
        registers.write(InterruptUnmask::new(InterruptCause::LINK.bits()));
        registers.write(VectorUnmask::new(CHANGES));
        Ok(())
    }

    fn queue(&self, number: usize) -> IgbQueue<R> {
        IgbQueue { registers: self.registers.clone(), number }
    }

    fn acknowledge_changes(&self) {
        self.registers.write(InterruptCause::ALL);
    }

    fn collect(&self, queues: usize, counters: &CardCounters) {
        collect(&self.registers, counters);
        for number in 0..queues {
            let dropped = self.registers.read_at::<ReceiveDropped>(number).bits();
            // What is gone reads as all ones.
            if dropped != u32::MAX {
                counters.missed().add((dropped & ReceiveDropped::COUNT.bits()).into());
            }
        }
    }
}
