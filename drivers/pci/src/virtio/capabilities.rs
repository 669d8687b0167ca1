//! Where a device has its registers (virtio 1.2, section 4.1.4).

use crate::vfio::CapabilityIterator;

/// The kind of capabilities that are the vendor's own (PCI Code and ID Assignment, section 2).
const VENDOR_SPECIFIC: u8 = 9;

/// The kind of MSI-X (same).
const MSIX: u8 = 0x11;

/// Bytes of `struct virtio_pci_cap`, and with the multiplier behind it.
const LENGTH: usize = 16;
const NOTIFY_LENGTH: usize = 20;

/// Base address registers, 0 to 5.
const BARS: u8 = 6;

/// A part of what a base address register leads to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Location {
    /// Which register, 0 to 5.
    pub bar: u8,
    /// Bytes from its start.
    pub offset: u32,
    /// Bytes.
    pub length: u32,
}

/// Where a device has which registers. That the parts are inside what their base address registers lead to is checked when those are mapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Locations {
    /// Status, features, queues.
    pub common: Option<Location>,
    /// Where it is told of what is available.
    pub notify: Option<Location>,
    /// From one queue's place there to the next, in bytes.
    pub notify_multiplier: u32,
    /// What only network devices have.
    pub device: Option<Location>,
    /// It can tell interrupts apart.
    pub has_msix: bool,
}

impl Locations {
    /// Finds them in configuration space. Of each kind the first counts whose place is possible (section 4.1.4.1).
    pub fn find(space: &[u8; 256]) -> Self {
        let mut found = Self::default();
        for (kind, rest) in CapabilityIterator::new(space) {
            found.has_msix |= kind == MSIX;
            if kind == VENDOR_SPECIFIC {
                found.note(rest);
            }
        }
        found
    }

    fn note(&mut self, rest: &[u8]) {
        // The kind, the next one, its length, what is there; which BAR, of which more than one is possible with the number behind it; padding.
        let Some(&[_, _, length, what, bar, _, _, _]) = rest.first_chunk() else { return };
        let (Some(offset), Some(bytes)) = (word(rest, 8), word(rest, 12)) else { return };
        if usize::from(length) < LENGTH || bar >= BARS || offset.checked_add(bytes).is_none() || bytes == 0 {
            return;
        }
        let location = Location { bar, offset, length: bytes };
        match what {
            1 => drop(self.common.get_or_insert(location)),
            2 if self.notify.is_none() && usize::from(length) >= NOTIFY_LENGTH => {
                if let Some(multiplier) = word(rest, LENGTH) {
                    (self.notify, self.notify_multiplier) = (Some(location), multiplier);
                }
            }
            4 => drop(self.device.get_or_insert(location)),
            // Interrupts without messages, and a window for who can't map: not needed.
            _ => {}
        }
    }
}

fn word(rest: &[u8], at: usize) -> Option<u32> {
    rest.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A configuration space with these capabilities, 20 bytes each.
    fn space(capabilities: &[[u8; 20]]) -> [u8; 256] {
        let mut space = [0; 256];
        (space[6], space[0x34]) = (0x10, 0x40);
        for (number, capability) in capabilities.iter().enumerate() {
            let at = 0x40 + 20 * number;
            space[at..at + 20].copy_from_slice(capability);
            if number + 1 < capabilities.len() {
                space[at + 1] = at as u8 + 20;
            }
        }
        space
    }

    fn capability(what: u8, bar: u8, offset: u32, length: u32) -> [u8; 20] {
        let mut bytes = [0; 20];
        (bytes[0], bytes[2], bytes[3], bytes[4]) = (VENDOR_SPECIFIC, 20, what, bar);
        bytes[8..12].copy_from_slice(&offset.to_le_bytes());
        bytes[12..16].copy_from_slice(&length.to_le_bytes());
        bytes[16..].copy_from_slice(&4_u32.to_le_bytes());
        bytes
    }

    #[test]
    fn registers_are_found() {
        let mut msix = [0; 20];
        msix[0] = MSIX;
        let found = Locations::find(&space(&[
            msix,
            capability(5, 0, 0, 0),
            // Impossible ones come first and are passed over.
            capability(1, 6, 0, 4096),
            capability(1, 4, u32::MAX, 2),
            capability(1, 4, 0, 4096),
            capability(1, 5, 0, 4096),
            capability(2, 4, 12288, 4096),
            capability(4, 4, 8192, 4096),
        ]));
        let at = |offset| Some(Location { bar: 4, offset, length: 4096 });
        let expected = Locations {
            common: at(0),
            notify: at(12288),
            notify_multiplier: 4,
            device: at(8192),
            has_msix: true,
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn short_ones_and_those_at_the_end_are_none() {
        let mut short = capability(2, 4, 0, 4096);
        short[2] = 16;
        assert_eq!(Locations::find(&space(&[short])), Locations::default());
        let mut space = space(&[capability(1, 4, 0, 16)]);
        for at in (0x40..=0xfc_u8).rev().step_by(4) {
            space[0x34] = at;
            space[usize::from(at)] = VENDOR_SPECIFIC;
            let _ = Locations::find(&space);
        }
    }
}
