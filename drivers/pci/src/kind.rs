//! Which devices can be driven, and as what.

use crate::bus::NetworkDevice;
use crate::error::PciError;
use crate::{e1000e, igb, intel, virtio};

/// Devices that are driven in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Virtio network devices.
    Virtio,
    /// Intel's 82574.
    E1000e,
    /// Intel's 82576.
    Igb,
}

impl Kind {
    /// The kind of a device.
    ///
    /// # Errors
    /// No driver here knows it.
    pub fn of(known: &NetworkDevice) -> Result<Self, PciError> {
        let NetworkDevice { address, vendor, device, .. } = *known;
        match vendor {
            virtio::VENDOR if virtio::DEVICES.contains(&device) => Ok(Self::Virtio),
            intel::VENDOR if e1000e::DEVICES.contains(&device) => Ok(Self::E1000e),
            intel::VENDOR if igb::DEVICES.contains(&device) => Ok(Self::Igb),
            _ => Err(PciError::Unknown { address, vendor, device }),
        }
    }

    /// What people call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Virtio => "virtio",
            Self::E1000e => "82574",
            Self::Igb => "82576",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_known_by_who_made_them_and_which_they_are() {
        let kind = |vendor, device| {
            let address = "0000:00:04.0".parse().unwrap();
            let known = NetworkDevice { vendor, device, ..NetworkDevice::at(address) };
            Kind::of(&known)
        };
        assert_eq!(kind(0x1af4, 0x1041).ok(), Some(Kind::Virtio));
        assert_eq!(kind(0x8086, 0x10d3).ok(), Some(Kind::E1000e));
        assert_eq!(kind(0x8086, 0x10c9).ok(), Some(Kind::Igb));
        // Of the same makers: a disk, and another card; and numbers of one with the other's.
        for (vendor, device) in [(0x1af4, 0x1042), (0x8086, 0x100e), (0x8086, 0x1041), (0x1af4, 0x10d3)] {
            let error = kind(vendor, device).unwrap_err().to_string();
            assert!(error.contains(&format!("{vendor:04x}:{device:04x}")), "{error}");
        }
    }
}
