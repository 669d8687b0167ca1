//! The registers that are used.
//!
//! Bits that are marked "errata" are reserved in the datasheet, and the card doesn't set them by itself as it needs them: Intel's own drivers do
//! (FreeBSD's `sys/dev/e1000/e1000_82571.c`, `e1000_initialize_hw_bits_82571`).

use crate::vfio::Registers;

/// Bytes of them, from the start of base address register 0 on.
pub(super) const BYTES: u32 = 0x6000;

/// A register of 32 bits.
pub(super) trait Register: Copy {
    /// Bytes from the start of base address register 0.
    const OFFSET: usize;

    /// With these bits.
    fn new(bits: u32) -> Self;

    /// Its bits.
    fn bits(self) -> u32;

    /// Whether all these bits are set.
    fn has(self, other: Self) -> bool {
        self.bits() & other.bits() == other.bits()
    }

    /// All bits but these.
    fn without(self, other: Self) -> Self {
        Self::new(self.bits() & !other.bits())
    }
}

macro_rules! registers {
    ($(
        $(#[$doc:meta])*
        $name:ident at $offset:literal { $($(#[$bit_doc:meta])* $bit:ident = $bits:expr;)* }
    )+) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            pub(super) struct $name(u32);

            impl $name {
                $($(#[$bit_doc])* pub(super) const $bit: Self = Self($bits);)*
            }

            impl Register for $name {
                const OFFSET: usize = $offset;

                fn new(bits: u32) -> Self {
                    Self(bits)
                }

                fn bits(self) -> u32 {
                    self.0
                }
            }

            impl std::ops::BitOr for $name {
                type Output = Self;

                fn bitor(self, other: Self) -> Self {
                    Self(self.0 | other.0)
                }
            }
        )+
    };
}

registers! {
    /// Device control (10.2.2.1).
    Control at 0x0000 {
        /// It begins no access to memory any more (3.1.3.10).
        MASTER_DISABLE = 1 << 2;
        /// The link that the PHY has is recognised.
        SET_LINK_UP = 1 << 6;
        /// All but the PHY is reset; goes out by itself.
        RESET = 1 << 26;
        /// Reserved, and to be zero (errata).
        RESERVED_ZERO = 1 << 29;
        /// Pause frames are obeyed, and sent.
        FLOW_CONTROL = 0b11 << 27;
        /// VLAN tags are put on and taken off.
        VLAN_MODE = 1 << 30;
    }
    /// Device status (10.2.2.2).
    Status at 0x0008 {
        /// The link is up.
        LINK_UP = 1 << 1;
        /// Accesses to memory may be under way (3.1.3.10).
        MASTER_ENABLED = 1 << 19;
    }
    /// NVM control (10.2.2).
    NvmControl at 0x0010 {
        /// What a reset reads from there is read.
        READ_DONE = 1 << 9;
    }
    /// Extended device control (10.2.2).
    ExtendedControl at 0x0018 {
        /// Reserved, and to be one (errata).
        RESERVED_ONE = 1 << 22;
        /// Reserved, and to be zero (errata).
        RESERVED_ZERO = 1 << 23;
        /// The pending bit of a vector goes when its cause is unmasked.
        CLEAR_PENDING = 1 << 31;
    }
    /// A register of the PHY is read or written (10.2.2.7).
    PhyAccess at 0x0020 {
        /// Of the PHY, which has the address 1.
        WRITE = 0b01 << 26 | 1 << 21;
        /// As above.
        READ = 0b10 << 26 | 1 << 21;
        /// It is done.
        READY = 1 << 28;
        /// It failed.
        ERROR = 1 << 30;
    }
    /// Causes of interrupts: those that are set are cleared by writing ones (10.2.4.1).
    InterruptCause at 0x00c0 {
        /// The link has come or gone.
        LINK = 1 << 2;
        /// A frame was received, or several were.
        RECEIVED = 1 << 20;
        /// Something that has no vector of its own.
        OTHER = 1 << 24;
        /// All there are.
        ALL = u32::MAX;
    }
    /// Causes that interrupt from now on (10.2.4.5).
    InterruptUnmask at 0x00d0 {}
    /// Causes that don't (10.2.4.6).
    InterruptMask at 0x00d8 {}
    /// Causes that are cleared when they have interrupted (10.2.4.7).
    InterruptAutoClear at 0x00dc {}
    /// Which vector each cause interrupts by: three bits, and one that says that they count (10.2.4.9).
    InterruptVectors at 0x00e4 {
        /// Vector 0 for changes, and vector 1 for what was received.
        USED = 0b1000 << 16 | 0b1001;
    }
    /// Time between two interrupts by vector 0, in units of 256 ns (10.2.4.3).
    ChangeInterval at 0x00e8 {
        /// 16 ms: what interrupts by it is not urgent, and may be as frequent as packets.
        LONG = 0xffff;
    }
    /// The same for vector 1.
    ReceiveInterval at 0x00ec {
        /// At once: lanes ask for each interrupt.
        NONE = 0;
    }
    /// Receive control (10.2.5.1). Without other bits, buffers have 2,048 bytes.
    ReceiveControl at 0x0100 {
        /// Nothing is received.
        OFF = 0;
        /// Frames are received.
        ENABLE = 1 << 1;
        /// Also those for other stations.
        ALL_STATIONS = 1 << 3;
        /// Also those for any group.
        ALL_GROUPS = 1 << 4;
        /// Also those longer than 1,522 bytes with their check sequence.
        LONG = 1 << 5;
        /// Also those for everybody.
        BROADCAST = 1 << 15;
        /// Without their check sequence.
        STRIP_CRC = 1 << 26;
    }
    /// Transmit control (10.2.6.1), with values of 4.6.6.
    TransmitControl at 0x0400 {
        /// Nothing is sent.
        OFF = 0;
        /// Frames are sent.
        ENABLE = 1 << 1;
        /// Short ones are filled up.
        PAD = 1 << 3;
        /// Attempts before a frame that collides is given up.
        ATTEMPTS = 15 << 4;
        /// Bytes on the wire within which a frame may collide, for full duplex.
        COLLISION_DISTANCE = 63 << 12;
    }
    /// Gaps between frames (10.2.6.2).
    TransmitGap at 0x0410 {
        /// What 4.6.6 says.
        USUAL = 8 | 2 << 10 | 10 << 20;
    }
    /// Where the ring for receiving is: the lower half of its address (10.2.5.5).
    ReceiveBaseLow at 0x2800 {}
    /// The upper half (10.2.5.6).
    ReceiveBaseHigh at 0x2804 {}
    /// Its bytes (10.2.5.7).
    ReceiveLength at 0x2808 {}
    /// The card's first descriptor (10.2.5.8).
    ReceiveHead at 0x2810 {}
    /// The first that isn't the card's any more (10.2.5.9).
    ReceiveTail at 0x2818 {}
    /// How long interrupts wait for more frames (10.2.5.10): not at all.
    ReceiveDelay at 0x2820 {}
    /// When descriptors are fetched and written back (10.2.5.11).
    ReceiveDescriptors at 0x2828 {
        /// Each is written back when it is done; 32 are fetched ahead.
        EACH = 1 << 24 | 1 << 16 | 4 << 8 | 32;
    }
    /// As [`ReceiveDelay`], from the first frame on (10.2.5.12).
    ReceiveAbsoluteDelay at 0x282c {}
    /// Where the ring for sending is: the lower half of its address (10.2.6.4).
    TransmitBaseLow at 0x3800 {}
    /// The upper half (10.2.6.5).
    TransmitBaseHigh at 0x3804 {}
    /// Its bytes (10.2.6.6).
    TransmitLength at 0x3808 {}
    /// The card's first descriptor (10.2.6.7).
    TransmitHead at 0x3810 {}
    /// The first that isn't the card's any more (10.2.6.8).
    TransmitTail at 0x3818 {}
    /// When descriptors are fetched and written back (10.2.6.11).
    TransmitDescriptors at 0x3828 {
        /// Each is written back that asks for it, when it is done; 31 are fetched ahead. Bit 22 must be set.
        EACH_REPORT = 1 << 24 | 1 << 22 | 1 << 8 | 31;
    }
    /// How the queues for sending take turns: queue 0 (10.2.6).
    TransmitArbitration at 0x3840 {
        /// Reserved, and to be one (errata).
        RESERVED_ONE = 1 << 26;
        /// Reserved, and to be zero (errata).
        RESERVED_ZERO = 0b1111 << 27;
    }
    /// Frames with a wrong check sequence (10.2.7, as all below here up to 0x40ff; cleared by reading).
    CrcErrors at 0x4000 {}
    /// Frames with errors of the PHY.
    ReceiveErrors at 0x400c {}
    /// Frames for which there was no space in the card.
    Missed at 0x4010 {}
    /// Frames that collided too often.
    ExcessiveCollisions at 0x4018 {}
    /// Frames that found no descriptor, and waited in the card.
    NoDescriptor at 0x40a0 {}
    /// Frames below 64 bytes.
    Undersized at 0x40a4 {}
    /// Frames longer than what is received.
    Oversized at 0x40ac {}
    /// What is summed of what is received (10.2.5.15).
    ReceiveChecksums at 0x5000 {
        /// Nothing.
        NONE = 0;
        /// IPv4 headers, and TCP and UDP.
        ALL = 0b11 << 8;
    }
    /// How what is received is reported (10.2.5.16).
    ReceiveReports at 0x5008 {
        /// TCP's acknowledgements are no cause of interrupts.
        NO_ACK_INTERRUPT = 1 << 12;
        /// Descriptors are written back in their extended form.
        EXTENDED = 1 << 15;
    }
    /// The station's address: its first four bytes (10.2.5.22).
    AddressLow at 0x5400 {}
    /// Its last two (10.2.5.23).
    AddressHigh at 0x5404 {
        /// It counts.
        VALID = 1 << 31;
    }
    /// Several queues for receiving (10.2.5): none but the first.
    ReceiveQueues at 0x5818 {}
    /// Control of PCI Express (10.2.2).
    BusControl at 0x5b00 {
        /// Reserved, and to be one (errata).
        RESERVED_ONE = 1 << 22;
    }
    /// Control of PCI Express, continued (10.2.2).
    BusControl2 at 0x5b64 {
        /// Without it, completions that come late while the link saves power (ASPM) can stop what is sent (errata).
        RESERVED_ONE = 1 << 0;
    }
}

/// From one of the 16 addresses to the next.
pub(super) const ADDRESS_STRIDE: usize = 8;
pub(super) const ADDRESSES: usize = 16;

/// The table of groups (10.2.5.21): its place and its words.
pub(super) const GROUPS: usize = 0x5200;
pub(super) const GROUP_WORDS: usize = 128;

/// Registers of the PHY (IEEE 802.3, clause 22.2.4).
pub(super) mod phy {
    /// Basic control.
    pub(in crate::e1000e) const CONTROL: u32 = 0;
    /// In basic control: negotiate again, sleep, negotiate.
    pub(in crate::e1000e) const RESTART: u16 = 1 << 9;
    pub(in crate::e1000e) const POWER_DOWN: u16 = 1 << 11;
    pub(in crate::e1000e) const NEGOTIATE: u16 = 1 << 12;
}

impl PhyAccess {
    /// A read of one of its registers.
    pub(super) const fn read(register: u32) -> Self {
        Self(Self::READ.0 | register << 16)
    }

    /// A write.
    pub(super) const fn write(register: u32, value: u16) -> Self {
        Self(Self::WRITE.0 | register << 16 | value as u32)
    }

    /// What was read.
    pub(super) const fn data(self) -> u16 {
        self.0 as u16
    }
}

/// Registers by their types.
#[derive(Clone, Debug)]
pub(super) struct Typed<R>(pub(super) R);

impl<R: Registers> Typed<R> {
    pub(super) fn read<T: Register>(&self) -> T {
        T::new(self.0.read32(T::OFFSET))
    }

    #[inline(always)]
    pub(super) fn write<T: Register>(&self, value: T) {
        self.0.write32(T::OFFSET, value.bits());
    }

    /// Has these causes interrupt, even if they came up before.
    pub(super) fn unmask(&self, causes: InterruptCause) {
        self.write(InterruptUnmask(causes.0));
    }

    /// Has them interrupt no more.
    pub(super) fn mask(&self, causes: InterruptCause) {
        self.write(InterruptMask(causes.0));
    }
}
