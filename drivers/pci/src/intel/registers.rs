//! The registers that the cards have in common, and how registers are read and written.
//!
//! In parentheses are the sections of the two datasheets: of the 82574's first, of the 82576's second.

use crate::vfio::Registers;

/// A register of 32 bits, or several that are alike.
pub(crate) trait Register: Copy {
    /// Bytes from the start of base address register 0.
    const OFFSET: usize;

    /// Bytes from one to the next, if there are several.
    const STRIDE: usize;

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

    /// Where one of several is.
    fn place(number: usize) -> usize {
        Self::OFFSET + number * Self::STRIDE
    }
}

/// Declares registers by their names, their places (`each` says how far it is from one to the next) and their bits.
macro_rules! registers {
    ($(
        $(#[$doc:meta])*
        $name:ident at $offset:literal $(each $stride:literal)? { $($(#[$bit_doc:meta])* $bit:ident = $bits:expr;)* }
    )+) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            pub(crate) struct $name(u32);

            impl $name {
                $($(#[$bit_doc])* pub(crate) const $bit: Self = Self($bits);)*
            }

            impl $crate::intel::registers::Register for $name {
                const OFFSET: usize = $offset;
                const STRIDE: usize = 0 $(+ $stride)?;

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

pub(crate) use registers;

registers! {
    /// Device control (10.2.2.1; 8.2.1).
    Control at 0x0000 {
        /// It begins no access to memory any more (3.1.3.10 of the 82574).
        MASTER_DISABLE = 1 << 2;
        /// The link that the PHY has is recognised.
        SET_LINK_UP = 1 << 6;
        /// All but the PHY is reset; goes out by itself.
        RESET = 1 << 26;
        /// Pause frames are obeyed, and sent.
        FLOW_CONTROL = 0b11 << 27;
        /// VLAN tags are put on and taken off.
        VLAN_MODE = 1 << 30;
    }
    /// Device status (10.2.2.2; 8.2.2).
    Status at 0x0008 {
        /// The link is up.
        LINK_UP = 1 << 1;
        /// Accesses to memory may be under way.
        MASTER_ENABLED = 1 << 19;
    }
    /// NVM control (10.2.2; 8.4.1).
    NvmControl at 0x0010 {
        /// What a reset reads from there is read.
        READ_DONE = 1 << 9;
    }
    /// A register of the PHY is read or written (10.2.2.7; 8.2.4).
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
    /// Receive control (10.2.5.1; 8.10.1). Without other bits, buffers have 2,048 bytes.
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
    /// Transmit control (10.2.6.1; 8.12), with values of the 82574's 4.6.6, which are those that the 82576 has by itself.
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
    /// Frames with a wrong check sequence (10.2.7; 8.19; as all below here up to 0x40ff; cleared by reading).
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
    /// What is summed of what is received (10.2.5.15; 8.10).
    ReceiveChecksums at 0x5000 {
        /// Nothing.
        NONE = 0;
        /// IPv4 headers, and TCP and UDP.
        ALL = 0b11 << 8;
    }
    /// The table of groups (10.2.5.21; 8.10).
    Groups at 0x5200 each 4 {}
    /// A station's address: its first four bytes (10.2.5.22; 8.10).
    AddressLow at 0x5400 each 8 {}
    /// Its last two (10.2.5.23; 8.10).
    AddressHigh at 0x5404 each 8 {
        /// It counts.
        VALID = 1 << 31;
    }
    /// Several queues for receiving (10.2.5; 8.10): none but the first, without other bits.
    ReceiveQueues at 0x5818 {
        /// No others.
        ONE = 0;
    }
}

/// Addresses of stations that both cards have in one piece.
pub(crate) const ADDRESSES: usize = 16;

/// Words of the table of groups.
pub(crate) const GROUP_WORDS: usize = 128;

/// Registers of the PHY (IEEE 802.3, clause 22.2.4).
pub(crate) mod phy {
    /// Basic control.
    pub(crate) const CONTROL: u32 = 0;
    /// In basic control: negotiate again, sleep, negotiate.
    pub(crate) const RESTART: u16 = 1 << 9;
    pub(crate) const POWER_DOWN: u16 = 1 << 11;
    pub(crate) const NEGOTIATE: u16 = 1 << 12;
}

impl PhyAccess {
    /// A read of one of its registers.
    pub(crate) const fn read(register: u32) -> Self {
        Self(Self::READ.0 | register << 16)
    }

    /// A write.
    pub(crate) const fn write(register: u32, value: u16) -> Self {
        Self(Self::WRITE.0 | register << 16 | value as u32)
    }

    /// What was read.
    pub(crate) const fn data(self) -> u16 {
        self.0 as u16
    }
}

/// Registers by their types.
#[derive(Clone, Debug)]
pub(crate) struct Typed<R>(pub(crate) R);

impl<R: Registers> Typed<R> {
    pub(crate) fn read<T: Register>(&self) -> T {
        self.read_at(0)
    }

    /// The one with this number, of several that are alike.
    pub(crate) fn read_at<T: Register>(&self, number: usize) -> T {
        T::new(self.0.read32(T::place(number)))
    }

    #[inline(always)]
    pub(crate) fn write<T: Register>(&self, value: T) {
        self.write_at(0, value);
    }

    /// The one with this number, of several that are alike.
    #[inline(always)]
    pub(crate) fn write_at<T: Register>(&self, number: usize, value: T) {
        self.0.write32(T::place(number), value.bits());
    }

    /// Writes what comes of what is there.
    pub(crate) fn change<T: Register>(&self, change: impl FnOnce(T) -> T) {
        self.write(change(self.read::<T>()));
    }
}
