//! A card from its reset until it runs, as far as the cards are alike.
//!
//! In parentheses are the sections of the two datasheets: of the 82574's first, of the 82576's second.

use super::counters::CardCounters;
use super::memory::RingMemory;
use super::queue::Queue;
use super::registers::{
    ADDRESSES, AddressHigh, AddressLow, Control, GROUP_WORDS, Groups, NvmControl, PhyAccess, ReceiveControl,
    Register, Status, TransmitControl, Typed, phy,
};
use crate::vfio::Registers;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long accesses to memory that have begun may take. The card is reset in any case then (3.1.3.10 of the 82574).
const QUIET: Duration = Duration::from_millis(100);

/// How long a reset takes until the card may be asked for anything, and at most.
const SETTLE: Duration = Duration::from_millis(10);
const RESET: Duration = Duration::from_secs(2);

/// How long the card sets up its PHY after that, with what it has read from its NVM, and says nothing of when it is done (errata of the 82574; FreeBSD's
/// `sys/dev/e1000/e1000_82571.c`, `e1000_reset_hw_82571`).
const PHY_SETUP: Duration = Duration::from_millis(25);

/// How long the PHY may take for one access: 64 bits at 2.5 MHz, many times over.
const PHY: Duration = Duration::from_millis(50);

/// How long the card may take to see a link that its PHY has.
const SEEN: Duration = Duration::from_millis(100);

/// How long a link may take that is negotiated anew: two or three seconds are usual.
const NEGOTIATION: Duration = Duration::from_secs(5);

/// How often something that takes a while is looked at.
const LOOK: Duration = Duration::from_micros(100);

/// What is wrong, and the remedy if there is one.
pub(crate) type Problem = String;

/// How a card is to receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Setup {
    /// Bytes of the longest frame, with its check sequence.
    pub(crate) longest: u32,
    /// Also frames for other stations.
    pub(crate) is_promiscuous: bool,
    /// It looks at checksums.
    pub(crate) looks_at_checksums: bool,
}

/// Bytes of the longest frame with its check sequence that is received without asking for longer ones.
const USUAL_LONGEST: u32 = 1522;

/// A card of a kind, over its registers.
pub(crate) trait Chip<R: Registers>: Debug + Send + Sync + 'static {
    /// A pair of its rings.
    type Queue: Queue;

    /// Bytes of its registers, from the start of base address register 0 on.
    const REGISTER_BYTES: u32;

    /// Pairs of rings that it has.
    const MOST_QUEUES: usize;

    fn new(registers: R) -> Self;

    /// Registers that all cards have.
    fn registers(&self) -> &Typed<R>;

    /// It accesses no memory any more, and forgets what it was told of some.
    fn reset(&self) -> Result<(), Problem>;

    /// Starts a card that was reset, on these pairs of rings of which it has no descriptor yet. Its first interrupt is of changes, the others are of what the pairs
    /// have received, in their order.
    fn start(&self, memories: &[Arc<RingMemory>], setup: Setup) -> Result<(), Problem>;

    /// What lanes use of a pair of rings.
    fn queue(&self, number: usize) -> Self::Queue;

    /// Takes note of changes that it has interrupted for, so that it does so for the next ones.
    fn acknowledge_changes(&self);

    /// Adds what was counted since the last time.
    fn collect(&self, queues: usize, counters: &CardCounters);
}

/// Whether something becomes so in time.
pub(crate) fn becomes(limit: Duration, is_so: impl Fn() -> bool) -> bool {
    let end = Instant::now() + limit;
    while !is_so() {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(LOOK);
    }
    true
}

impl<R: Registers> Typed<R> {
    /// Whether the card is there no more: all registers are all ones.
    fn is_gone(&self) -> bool {
        self.read::<Status>().bits() == u32::MAX
    }

    /// Resets the card; `mask` has it interrupt no more.
    pub(crate) fn reset(&self, mask: impl Fn(), nvm: NvmLimit) -> Result<(), Problem> {
        mask();
        // Before the reset, which doesn't wait for what is under way. And QEMU's e1000e (7.2) resets nothing but its address.
        self.write(ReceiveControl::OFF);
        self.write(TransmitControl::OFF);
        self.change(|control: Control| control | Control::MASTER_DISABLE);
        becomes(QUIET, || !self.read::<Status>().has(Status::MASTER_ENABLED));
        if self.is_gone() {
            return Err("it doesn't answer".to_owned());
        }
        self.write(Control::RESET);
        std::thread::sleep(SETTLE);
        let is_reset = becomes(RESET, || !self.read::<Control>().has(Control::RESET));
        let is_read = || self.read::<NvmControl>().has(NvmControl::READ_DONE);
        let has_read = match nvm {
            NvmLimit::Required => becomes(RESET, is_read),
            NvmLimit::AtMost(limit) => {
                becomes(limit, is_read);
                true
            }
        };
        if !is_reset || !has_read || self.is_gone() {
            return Err("it can't be reset".to_owned());
        }
        std::thread::sleep(PHY_SETUP);
        mask();
        Ok(())
    }

    /// The card's address, if it has one.
    pub(crate) fn address(&self) -> Option<[u8; 6]> {
        let (low, high): (AddressLow, AddressHigh) = (self.read(), self.read());
        let ([a, b, c, d], [e, f, _, _]) = (low.bits().to_le_bytes(), high.bits().to_le_bytes());
        high.has(AddressHigh::VALID).then_some([a, b, c, d, e, f])
    }

    /// Whether it has a link.
    pub(crate) fn is_link_up(&self) -> bool {
        self.read::<Status>().has(Status::LINK_UP) && !self.is_gone()
    }

    /// Whether it still receives and sends as it was told to: somebody may have reset it, as root can by sysfs.
    pub(crate) fn is_running(&self) -> bool {
        let (receive, transmit): (ReceiveControl, TransmitControl) = (self.read(), self.read());
        receive.has(ReceiveControl::ENABLE) && transmit.has(TransmitControl::ENABLE)
    }

    /// Does something with a register of the PHY.
    fn access_phy(&self, access: PhyAccess) -> Result<PhyAccess, Problem> {
        self.write(access);
        let is_done = || self.read::<PhyAccess>().has(PhyAccess::READY);
        let result: PhyAccess = if becomes(PHY, is_done) { self.read() } else { PhyAccess::ERROR };
        if result.has(PhyAccess::ERROR) { Err("its PHY doesn't answer".to_owned()) } else { Ok(result) }
    }

    /// Has the card see its link. If somebody has sent the PHY to sleep, as the kernel's driver does when its interface is down, or the link is gone with the reset, as
    /// that of QEMU's igb is, it is negotiated anew, and waited for: what is sent before would be lost.
    pub(crate) fn set_link_up(&self) -> Result<(), Problem> {
        let unused = Control::MASTER_DISABLE | Control::FLOW_CONTROL | Control::VLAN_MODE;
        self.change(|control: Control| control.without(unused) | Control::SET_LINK_UP);
        let control = self.access_phy(PhyAccess::read(phy::CONTROL))?.data();
        if control & phy::POWER_DOWN != 0 || !becomes(SEEN, || self.is_link_up()) {
            let awake = control & !phy::POWER_DOWN | phy::NEGOTIATE | phy::RESTART;
            self.access_phy(PhyAccess::write(phy::CONTROL, awake))?;
            // There may be no cable.
            becomes(NEGOTIATION, || self.is_link_up());
        }
        Ok(())
    }

    /// The card's first address is there since the reset; no others count, and no groups.
    pub(crate) fn clear_filters(&self) {
        for number in 1..ADDRESSES {
            self.write_at(number, AddressHigh::new(0));
        }
        for number in 0..GROUP_WORDS {
            self.write_at(number, Groups::new(0));
        }
    }

    /// Frames are received from now on.
    pub(crate) fn enable_receiving(&self, setup: Setup) {
        let always = ReceiveControl::ENABLE | ReceiveControl::BROADCAST | ReceiveControl::ALL_GROUPS;
        let choices = [
            (setup.longest > USUAL_LONGEST, ReceiveControl::LONG),
            (setup.is_promiscuous, ReceiveControl::ALL_STATIONS),
        ];
        let chosen = choices.into_iter().filter(|(is_chosen, _)| *is_chosen);
        self.write(chosen.fold(always | ReceiveControl::STRIP_CRC, |control, (_, bit)| control | bit));
    }

    /// Frames are sent from now on.
    pub(crate) fn enable_transmitting(&self) {
        let control = TransmitControl::ENABLE | TransmitControl::PAD | TransmitControl::ATTEMPTS;
        self.write(control | TransmitControl::COLLISION_DISTANCE);
    }
}

/// Whether a card has to say that it has read its NVM after a reset.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NvmLimit {
    /// It can't be used before.
    Required,
    /// It is waited for so long, and used in any case.
    AtMost(Duration),
}
