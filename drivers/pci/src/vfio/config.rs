//! Configuration space (PCI Local Bus Specification 3.0, chapter 6).

use super::VfioDevice;
use std::io;

/// Bytes of the part that all devices have.
const BYTES: usize = 256;

/// Offsets of registers (section 6.1).
const COMMAND: u64 = 4;
const STATUS: usize = 6;
const CAPABILITIES: usize = 0x34;

/// Bits of the command register (section 6.2.2).
const MEMORY: u16 = 1 << 1;
const BUS_MASTER: u16 = 1 << 2;
const NO_INTX: u16 = 1 << 10;

/// Bit of the status register (section 6.2.3).
const HAS_CAPABILITIES: u16 = 1 << 4;

/// Where the first capability can be: behind the header (section 6.7).
const FIRST_CAPABILITY: u8 = 0x40;

/// A device's configuration space.
#[derive(Debug)]
pub(crate) struct ConfigSpace {
    device: VfioDevice,
    offset: u64,
}

impl ConfigSpace {
    pub(super) const fn new(device: VfioDevice, offset: u64) -> Self {
        Self { device, offset }
    }

    /// All of it.
    pub(crate) fn read(&self) -> io::Result<[u8; BYTES]> {
        let mut bytes = [0; BYTES];
        let read = rustix::io::pread(self.device.fd(), &mut bytes, self.offset)?;
        if read == BYTES { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    /// The device answers at its registers, and interrupts by messages only.
    pub(crate) fn enable_registers(&self) -> io::Result<()> {
        self.change(|command| command | MEMORY | NO_INTX)
    }

    /// It may access memory. What it was told by whoever had it before must be forgotten by then.
    pub(crate) fn enable_memory_access(&self) -> io::Result<()> {
        self.change(|command| command | BUS_MASTER)
    }

    /// It accesses memory no more.
    pub(crate) fn disable_memory_access(&self) -> io::Result<()> {
        self.change(|command| command & !BUS_MASTER)
    }

    fn change(&self, change: impl Fn(u16) -> u16) -> io::Result<()> {
        let place = self.offset + COMMAND;
        let mut bytes = [0; 2];
        rustix::io::pread(self.device.fd(), &mut bytes, place)?;
        let bytes = change(u16::from_le_bytes(bytes)).to_le_bytes();
        rustix::io::pwrite(self.device.fd(), &bytes, place)?;
        Ok(())
    }
}

/// A device's capabilities: what each begins with, and where it is. A list that bites its own tail ends after as many as there is room for.
#[derive(Debug)]
pub(crate) struct CapabilityIterator<'a> {
    space: &'a [u8; BYTES],
    next: u8,
    left: usize,
}

impl<'a> CapabilityIterator<'a> {
    pub(crate) fn new(space: &'a [u8; BYTES]) -> Self {
        let status = u16::from_le_bytes([space[STATUS], space[STATUS + 1]]);
        let next = if status & HAS_CAPABILITIES == 0 { 0 } else { space[CAPABILITIES] };
        // Each has at least four bytes.
        Self { space, next, left: (BYTES - usize::from(FIRST_CAPABILITY)) / 4 }
    }
}

impl<'a> Iterator for CapabilityIterator<'a> {
    /// What kind it is, and all from there on.
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        // The lower two bits are reserved.
        let at = self.next & !3;
        if at < FIRST_CAPABILITY || self.left == 0 {
            return None;
        }
        self.left -= 1;
        let rest = &self.space[at.into()..];
        self.next = rest[1];
        Some((rest[0], rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_capabilities_end() {
        let mut space = [0_u8; BYTES];
        assert_eq!(CapabilityIterator::new(&space).count(), 0);
        space[STATUS] = HAS_CAPABILITIES as u8;
        space[CAPABILITIES] = 0x43;
        (space[0x40], space[0x41]) = (9, 0xfc);
        (space[0xfc], space[0xfd]) = (17, 0x10);
        let kinds: Vec<_> = CapabilityIterator::new(&space).map(|(kind, rest)| (kind, rest.len())).collect();
        assert_eq!(kinds, [(9, 192), (17, 4)]);
        // Its own successor.
        space[0xfd] = 0xfc;
        assert_eq!(CapabilityIterator::new(&space).count(), 48);
    }
}
