//! The card from its reset until it runs (4.6).

use super::memory::{DESCRIPTOR_BYTES, RingMemory, Side};
use super::registers::{
    ADDRESS_STRIDE, ADDRESSES, AddressHigh, AddressLow, BusControl, BusControl2, ChangeInterval, Control,
    ExtendedControl, GROUP_WORDS, GROUPS, InterruptAutoClear, InterruptCause, InterruptVectors, NvmControl,
    PhyAccess, ReceiveAbsoluteDelay, ReceiveBaseHigh, ReceiveBaseLow, ReceiveChecksums, ReceiveControl,
    ReceiveDelay, ReceiveDescriptors, ReceiveHead, ReceiveInterval, ReceiveLength, ReceiveQueues,
    ReceiveReports, ReceiveTail, Register, Status, TransmitArbitration, TransmitBaseHigh, TransmitBaseLow,
    TransmitControl, TransmitDescriptors, TransmitGap, TransmitHead, TransmitLength, TransmitTail, Typed,
    phy,
};
use crate::vfio::Registers;
use std::time::{Duration, Instant};

/// How long accesses to memory that have begun may take. The card is reset in any case then (3.1.3.10).
const QUIET: Duration = Duration::from_millis(100);

/// How long a reset takes until the card may be asked for anything, and at most.
const SETTLE: Duration = Duration::from_millis(10);
const RESET: Duration = Duration::from_secs(2);

/// How long the card sets up its PHY after that, with what it has read from its NVM, and says nothing of when it is done (errata; FreeBSD's
/// `sys/dev/e1000/e1000_82571.c`, `e1000_reset_hw_82571`).
const PHY_SETUP: Duration = Duration::from_millis(25);

/// How long the PHY may take for one access: 64 bits at 2.5 MHz, many times over.
const PHY: Duration = Duration::from_millis(50);

/// How long a link may take that is negotiated anew: two or three seconds are usual.
const NEGOTIATION: Duration = Duration::from_secs(5);

/// How often something that takes a while is looked at.
const LOOK: Duration = Duration::from_micros(100);

/// What is wrong, and the remedy if there is one.
pub(super) type Problem = String;

/// How the card is to receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Setup {
    /// Also frames longer than 1,518 bytes.
    pub(super) is_jumbo: bool,
    /// Also frames for other stations.
    pub(super) is_promiscuous: bool,
    /// It looks at checksums.
    pub(super) looks_at_checksums: bool,
}

/// A card.
#[derive(Debug)]
pub(super) struct Chip<R> {
    pub(super) registers: Typed<R>,
}

/// Whether something becomes so in time.
fn becomes(limit: Duration, is_so: impl Fn() -> bool) -> bool {
    let end = Instant::now() + limit;
    while !is_so() {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(LOOK);
    }
    true
}

impl<R: Registers> Chip<R> {
    fn change<T: Register>(&self, change: impl FnOnce(T) -> T) {
        self.registers.write(change(self.registers.read::<T>()));
    }

    /// Whether it is there no more: all registers are all ones.
    fn is_gone(&self) -> bool {
        self.registers.read::<Status>().bits() == u32::MAX
    }

    /// It accesses no memory any more, and forgets what it was told of some.
    pub(super) fn reset(&self) -> Result<(), Problem> {
        let registers = &self.registers;
        registers.mask(InterruptCause::ALL);
        // Before the reset, which doesn't wait for what is under way. And QEMU's (7.2) resets nothing but its address.
        registers.write(ReceiveControl::OFF);
        registers.write(TransmitControl::OFF);
        self.change(|control: Control| control | Control::MASTER_DISABLE);
        becomes(QUIET, || !registers.read::<Status>().has(Status::MASTER_ENABLED));
        if self.is_gone() {
            return Err("it doesn't answer".to_owned());
        }
        registers.write(Control::RESET);
        std::thread::sleep(SETTLE);
        let is_reset = becomes(RESET, || {
            !registers.read::<Control>().has(Control::RESET)
                && registers.read::<NvmControl>().has(NvmControl::READ_DONE)
        });
        if !is_reset || self.is_gone() {
            return Err("it can't be reset".to_owned());
        }
        std::thread::sleep(PHY_SETUP);
        registers.mask(InterruptCause::ALL);
        registers.write(ReceiveLength::new(0));
        registers.write(TransmitLength::new(0));
        Ok(())
    }

    /// Its address, if it has one.
    pub(super) fn address(&self) -> Option<[u8; 6]> {
        let (low, high): (AddressLow, AddressHigh) = (self.registers.read(), self.registers.read());
        let ([a, b, c, d], [e, f, _, _]) = (low.bits().to_le_bytes(), high.bits().to_le_bytes());
        high.has(AddressHigh::VALID).then_some([a, b, c, d, e, f])
    }

    /// Whether it has a link.
    pub(super) fn is_link_up(&self) -> bool {
        self.registers.read::<Status>().has(Status::LINK_UP) && !self.is_gone()
    }

    /// Does something with a register of the PHY.
    fn access_phy(&self, access: PhyAccess) -> Result<PhyAccess, Problem> {
        self.registers.write(access);
        let is_done = || self.registers.read::<PhyAccess>().has(PhyAccess::READY);
        let result: PhyAccess = if becomes(PHY, is_done) { self.registers.read() } else { PhyAccess::ERROR };
        if result.has(PhyAccess::ERROR) { Err("its PHY doesn't answer".to_owned()) } else { Ok(result) }
    }

    /// Wakes the PHY up if somebody has sent it to sleep, as the kernel's driver does when its interface is down, and waits for a link: what is sent before would
    /// be lost.
    fn wake_phy(&self) -> Result<(), Problem> {
        let control = self.access_phy(PhyAccess::read(phy::CONTROL))?.data();
        if control & phy::POWER_DOWN != 0 {
            let awake = control & !phy::POWER_DOWN | phy::NEGOTIATE | phy::RESTART;
            self.access_phy(PhyAccess::write(phy::CONTROL, awake))?;
            // There may be no cable.
            becomes(NEGOTIATION, || self.is_link_up());
        }
        Ok(())
    }

    /// Starts a card that was reset, on rings of which it has no descriptor yet.
    pub(super) fn start(&self, memory: &RingMemory, setup: Setup) -> Result<(), Problem> {
        let registers = &self.registers;
        self.set_reserved_bits();
        let unused = Control::MASTER_DISABLE | Control::FLOW_CONTROL | Control::VLAN_MODE;
        self.change(|control: Control| control.without(unused) | Control::SET_LINK_UP);
        self.wake_phy()?;
        // Its first address is there since the reset, and no others count.
        for number in 1..ADDRESSES {
            registers.0.write32(AddressHigh::OFFSET + number * ADDRESS_STRIDE, 0);
        }
        for number in 0..GROUP_WORDS {
            registers.0.write32(GROUPS + number * size_of::<u32>(), 0);
        }
        self.change(|control: ExtendedControl| control | ExtendedControl::CLEAR_PENDING);
        registers.write(InterruptVectors::USED);
        registers.write(InterruptAutoClear::new(InterruptCause::RECEIVED.bits()));
        registers.write(ChangeInterval::LONG);
        registers.write(ReceiveInterval::NONE);
        self.start_receiving(memory, setup);
        self.start_transmitting(memory);
        registers.write(InterruptCause::ALL);
        registers.unmask(InterruptCause::OTHER | InterruptCause::LINK);
        Ok(())
    }

    /// What the card needs and doesn't do by itself. The other bits of these registers are left as they are.
    fn set_reserved_bits(&self) {
        self.change(|control: Control| control.without(Control::RESERVED_ZERO));
        self.change(|control: ExtendedControl| {
            control.without(ExtendedControl::RESERVED_ZERO) | ExtendedControl::RESERVED_ONE
        });
        self.change(|arbitration: TransmitArbitration| {
            arbitration.without(TransmitArbitration::RESERVED_ZERO) | TransmitArbitration::RESERVED_ONE
        });
        self.change(|control: BusControl| control | BusControl::RESERVED_ONE);
        self.change(|control: BusControl2| control | BusControl2::RESERVED_ONE);
    }

    fn start_receiving(&self, memory: &RingMemory, setup: Setup) {
        let registers = &self.registers;
        let sums = if setup.looks_at_checksums { ReceiveChecksums::ALL } else { ReceiveChecksums::NONE };
        registers.write(sums);
        registers.write(ReceiveReports::EXTENDED | ReceiveReports::NO_ACK_INTERRUPT);
        registers.write(ReceiveQueues::new(0));
        let address = memory.ring_address(Side::Receive);
        registers.write(ReceiveBaseLow::new(address as u32));
        registers.write(ReceiveBaseHigh::new((address >> 32) as u32));
        registers.write(ReceiveLength::new(ring_bytes(memory)));
        registers.write(ReceiveHead::new(0));
        registers.write(ReceiveTail::new(0));
        registers.write(ReceiveDelay::new(0));
        registers.write(ReceiveAbsoluteDelay::new(0));
        registers.write(ReceiveDescriptors::EACH);
        let always = ReceiveControl::ENABLE | ReceiveControl::BROADCAST | ReceiveControl::ALL_GROUPS;
        let choices =
            [(setup.is_jumbo, ReceiveControl::LONG), (setup.is_promiscuous, ReceiveControl::ALL_STATIONS)];
        let chosen = choices.into_iter().filter(|(is_chosen, _)| *is_chosen);
        let control = chosen.fold(always | ReceiveControl::STRIP_CRC, |control, (_, bit)| control | bit);
        registers.write(control);
    }

    fn start_transmitting(&self, memory: &RingMemory) {
        let registers = &self.registers;
        let address = memory.ring_address(Side::Transmit);
        registers.write(TransmitBaseLow::new(address as u32));
        registers.write(TransmitBaseHigh::new((address >> 32) as u32));
        registers.write(TransmitLength::new(ring_bytes(memory)));
        registers.write(TransmitHead::new(0));
        registers.write(TransmitTail::new(0));
        registers.write(TransmitDescriptors::EACH_REPORT);
        registers.write(TransmitGap::USUAL);
        let control = TransmitControl::ENABLE | TransmitControl::PAD | TransmitControl::ATTEMPTS;
        registers.write(control | TransmitControl::COLLISION_DISTANCE);
    }

    /// Whether it still receives and sends as it was told to: somebody may have reset it, as root can by sysfs.
    pub(super) fn is_running(&self) -> bool {
        let (receive, transmit): (ReceiveControl, TransmitControl) =
            (self.registers.read(), self.registers.read());
        receive.has(ReceiveControl::ENABLE) && transmit.has(TransmitControl::ENABLE)
    }

    /// Takes note of changes that it has interrupted for, so that it does so for the next ones.
    pub(super) fn acknowledge_changes(&self) {
        self.registers.write(InterruptCause::OTHER | InterruptCause::LINK);
        // A model of it (QEMU 7.2) masks what has interrupted.
        self.registers.unmask(InterruptCause::OTHER | InterruptCause::LINK);
    }
}

/// Bytes of the descriptors of a ring.
fn ring_bytes(memory: &RingMemory) -> u32 {
    u32::from(memory.size()) * DESCRIPTOR_BYTES as u32
}
