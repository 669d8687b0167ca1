//! The registers that the 82576 has for itself; the others are in [`intel::registers`](crate::intel::registers).

use crate::intel::registers::registers;

/// Bytes of them, from the start of base address register 0 on.
pub(super) const BYTES: u32 = 0x1_0000;

/// Pairs of queues.
pub(super) const QUEUES: usize = 16;

registers! {
    /// Causes of interrupts: those that are set are cleared by writing ones (8.8.7).
    InterruptCause at 0x1500 {
        /// The link has come or gone.
        LINK = 1 << 2;
        /// All there are.
        ALL = u32::MAX;
    }
    /// Causes that interrupt from now on, by the vector of other causes (8.8.9).
    InterruptUnmask at 0x1508 {}
    /// Causes that don't (8.8.10).
    InterruptMask at 0x150c {}
    /// How it interrupts (8.8.15).
    InterruptMode at 0x1514 {
        /// Reading the causes clears them (NSICR).
        CLEAR_ON_READ = 1 << 0;
        /// By several vectors (Multiple_MSIX).
        SEVERAL_VECTORS = 1 << 4;
        /// The pending bit of a vector goes when its cause is unmasked (PBA_support).
        CLEAR_PENDING = 1 << 31;
    }
    /// Vectors that interrupt from now on, a bit each (8.8.3).
    VectorUnmask at 0x1524 {}
    /// Vectors that don't (8.8.4).
    VectorMask at 0x1528 {
        /// All there are.
        ALL = (1 << 25) - 1;
    }
    /// Vectors whose causes are cleared when they have interrupted (8.8.5).
    VectorAutoClear at 0x152c {}
    /// Vectors that have something to interrupt for: those that are set are cleared by writing ones (8.8.1).
    VectorCause at 0x1580 {}
    /// Time between two interrupts by a vector (8.8.12).
    VectorInterval at 0x1680 each 4 {
        /// At once: lanes ask for each interrupt, and links seldom change.
        NONE = 0;
    }
    /// By which vectors queues interrupt: of queues n and n + 8 for receiving and sending, a byte each (8.8.13).
    QueueVectors at 0x1700 each 4 {}
    /// By which vectors others do (8.8.14).
    OtherVectors at 0x1740 {
        /// Vector 0 for all of [`InterruptCause`], and none for timers.
        FIRST = 0x80 << 8;
    }
    /// Bytes of the longest frame that is received, with its check sequence (8.10).
    LongestFrame at 0x5004 {}
    /// To which queue frames go, by the last seven bits of their hash: a byte each (8.10).
    Redirection at 0x5c00 each 4 {}
    /// The key that is hashed with: its bytes as they are in memory (8.10).
    HashKey at 0x5c80 each 4 {}
    /// Where a ring for receiving is: the lower half of its address (8.10, as all below here up to 0xc03f).
    ReceiveBaseLow at 0xc000 each 0x40 {}
    /// The upper half.
    ReceiveBaseHigh at 0xc004 each 0x40 {}
    /// Its bytes.
    ReceiveLength at 0xc008 each 0x40 {}
    /// Its buffers (8.10.2).
    ReceiveBuffers at 0xc00c each 0x40 {
        /// Of 2,048 bytes.
        SIZE = 2;
        /// Named by advanced descriptors, one buffer each.
        ADVANCED = 0b001 << 25;
        /// Frames that find no descriptor are dropped, rather than those of all queues wait for this one.
        DROP = 1 << 31;
    }
    /// The card's first descriptor.
    ReceiveHead at 0xc010 each 0x40 {}
    /// The first that isn't the card's any more.
    ReceiveTail at 0xc018 each 0x40 {}
    /// When descriptors are fetched and written back, and whether at all.
    ReceiveDescriptors at 0xc028 each 0x40 {
        /// Eight are fetched ahead once there are eight, and each is written back when it is done. With several vectors Intel's own driver for Linux does the
        /// same for the 82576 (`drivers/net/ethernet/intel/igb/igb.h`, `IGB_RX_WTHRESH`).
        EACH = 8 | 8 << 8 | 1 << 16;
        /// It is in use; comes up when the card has it ready.
        ENABLE = 1 << 25;
    }
    /// Frames that found no descriptor and were dropped; cleared by reading.
    ReceiveDropped at 0xc030 each 0x40 {
        /// The bits that count.
        COUNT = 0xfff;
    }
    /// Where a ring for sending is: the lower half of its address (8.12, as all below here).
    TransmitBaseLow at 0xe000 each 0x40 {}
    /// The upper half.
    TransmitBaseHigh at 0xe004 each 0x40 {}
    /// Its bytes.
    TransmitLength at 0xe008 each 0x40 {}
    /// The card's first descriptor.
    TransmitHead at 0xe010 each 0x40 {}
    /// The first that isn't the card's any more.
    TransmitTail at 0xe018 each 0x40 {}
    /// When descriptors are fetched and written back, and whether at all.
    TransmitDescriptors at 0xe028 each 0x40 {
        /// As for receiving; those are written back that ask for it.
        EACH_REPORT = 8 | 1 << 8 | 1 << 16;
        /// As for receiving.
        ENABLE = 1 << 25;
    }
    /// Whether the card writes the head to memory, rather than descriptors.
    HeadWriteBack at 0xe038 each 0x40 {
        /// It doesn't.
        NONE = 0;
    }
}

/// What is said of checksums and hashes besides, in [`ReceiveChecksums`](crate::intel::registers::ReceiveChecksums): descriptors hold the hash of what was
/// received, not a sum, without which nothing is spread (PCSD).
pub(super) const HASH_IN_DESCRIPTOR: u32 = 1 << 13;

/// In [`ReceiveQueues`](crate::intel::registers::ReceiveQueues): flows are spread over queues (RSS), by the hash of addresses and ports of TCP and UDP over IPv4 and IPv6, and
/// of the addresses of other packets (8.10).
pub(super) const SPREAD: u32 = 0b010 | TCP_IPV4 | IPV4 | IPV6 | TCP_IPV6 | UDP_IPV4 | UDP_IPV6;
const TCP_IPV4: u32 = 1 << 16;
const IPV4: u32 = 1 << 17;
const IPV6: u32 = 1 << 20;
const TCP_IPV6: u32 = 1 << 21;
const UDP_IPV4: u32 = 1 << 22;
const UDP_IPV6: u32 = 1 << 23;
