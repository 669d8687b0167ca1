//! The driver as the rest of the program sees it.

use crate::bus::{Bus, NetworkDevice, VFIO};
use crate::e1000e::{self, E1000e};
use crate::error::PciError;
use crate::igb::{self, Igb};
use crate::intel;
use crate::options::PciOptions;
use crate::vfio::VfioDevice;
use crate::virtio;
use warmlane_driver_common::{Driver, DriverHelp, Environment, OpenError, driver_help};
use warmlane_port::Port;

/// Ports on PCI devices.
#[derive(Debug)]
pub struct PciDriver;

impl Driver for PciDriver {
    const HELP: DriverHelp = driver_help! {
        "pci": "A network device that the kernel doesn't drive, by VFIO: virtio, or Intel's 82574 (e1000e) and 82576 (igb). \
            `warmlane pci` lists them, and takes and gives them. Needs root, or /dev/vfio/GROUP and \
            CAP_IPC_LOCK.";
        examples: "pci:0000:00:04.0", "pci:0000:00:04.0,take,packed=true";
        "address" "ADDRESS": "where it is, as `lspci -D` writes it";
        "take" "true|false": "take it from the kernel's driver as long as the port is open; without it, \
            `warmlane pci take` must have";
        "ring-size" "DESCRIPTORS": "of each ring, a power of two from 64 to 32768; without it, 256, and never \
            more than the device has";
        "packed" "true|false": "packed rings, of virtio; without it, false: split ones";
        "offloads" "true|false": "leave checksums and segmentation to the device, and let it leave them to \
            whoever sends its packets on: fewer, longer packets; without it, true";
        "promiscuous" "true|false": "receive what is for other stations, too, as virtio devices always do; \
            without it, false";
        "zero-copy" "true|false": "let the card fill the pool's own buffers, and send from them: no copies, and \
            a card that is trusted with all packets. Not of virtio devices; without it, false";
    };
    type Options = PciOptions;

    fn open(options: &PciOptions, environment: &mut Environment<'_>) -> Result<Port, OpenError> {
        open(options, environment).map_err(OpenError::new)
    }
}

/// Devices that are driven in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Virtio,
    E1000e,
    Igb,
}

impl Kind {
    fn of(known: &NetworkDevice) -> Result<Self, PciError> {
        let NetworkDevice { address, vendor, device, .. } = *known;
        match vendor {
            virtio::VENDOR if virtio::DEVICES.contains(&device) => Ok(Self::Virtio),
            intel::VENDOR if e1000e::DEVICES.contains(&device) => Ok(Self::E1000e),
            intel::VENDOR if igb::DEVICES.contains(&device) => Ok(Self::Igb),
            _ => Err(PciError::Unknown { address, vendor, device }),
        }
    }
}

fn open(options: &PciOptions, environment: &Environment<'_>) -> Result<Port, PciError> {
    let (bus, address) = (Bus::default(), options.address);
    let mut notes = Vec::new();
    for recovered in bus.recover() {
        notes.push(match recovered.result {
            Ok(()) => {
                format!("PCI device {} was left by a process that is gone, and given back", recovered.address)
            }
            Err(error) => error.to_string(),
        });
    }
    let known = bus.device(address)?;
    let kind = Kind::of(&known)?;
    // Given back when the port is closed; it is dropped behind the device.
    let is_to_take = options.take && known.driver.as_deref() != Some(VFIO);
    let taken = is_to_take.then(|| bus.take_for_now(address, false)).transpose()?;
    let device = VfioDevice::open(&bus, address)?;
    let mut port = match kind {
        Kind::Virtio => virtio::open(options, environment, taken, device),
        Kind::E1000e => intel::open::<E1000e<_>>(options, environment, taken, device),
        Kind::Igb => intel::open::<Igb<_>>(options, environment, taken, device),
    }?;
    notes.append(&mut port.capabilities.notes);
    port.capabilities.notes = notes;
    Ok(port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_known_by_who_made_them_and_which_they_are() {
        let kind = |vendor, device| {
            let address = "0000:00:04.0".parse().unwrap();
            let (driver, group, interfaces, taken_from, holder) = (None, None, Vec::new(), None, None);
            let known =
                NetworkDevice { address, vendor, device, driver, group, interfaces, taken_from, holder };
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
