//! The registers that the 82574 has for itself; the others are in [`intel::registers`](crate::intel::registers).
//!
//! Bits that are marked "errata" are reserved in the datasheet, and the card doesn't set them by itself as it needs them: Intel's own drivers do
//! (FreeBSD's `sys/dev/e1000/e1000_82571.c`, `e1000_initialize_hw_bits_82571`).

use crate::intel::registers::registers;

/// Bytes of them, from the start of base address register 0 on.
pub(super) const BYTES: u32 = 0x6000;

/// In device control: reserved, and to be zero (errata).
pub(super) const CONTROL_RESERVED: u32 = 1 << 29;

registers! {
    /// Extended device control (10.2.2).
    ExtendedControl at 0x0018 {
        /// Reserved, and to be one (errata).
        RESERVED_ONE = 1 << 22;
        /// Reserved, and to be zero (errata).
        RESERVED_ZERO = 1 << 23;
        /// The pending bit of a vector goes when its cause is unmasked.
        CLEAR_PENDING = 1 << 31;
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
    /// How what is received is reported (10.2.5.16).
    ReceiveReports at 0x5008 {
        /// TCP's acknowledgements are no cause of interrupts.
        NO_ACK_INTERRUPT = 1 << 12;
        /// Descriptors are written back in their extended form.
        EXTENDED = 1 << 15;
    }
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
