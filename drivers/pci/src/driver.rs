//! The driver as the rest of the program sees it.

use crate::bus::{Bus, VFIO};
use crate::e1000e::E1000e;
use crate::error::PciError;
use crate::igb::Igb;
use crate::intel;
use crate::kind::Kind;
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
        "zero-copy" "true|false": "let the device fill the pool's own buffers, and send from them: no copies, and \
            a device that is trusted with all packets; without it, false";
    };
    type Options = PciOptions;

    fn open(options: &PciOptions, environment: &mut Environment<'_>) -> Result<Port, OpenError> {
        open(options, environment).map_err(OpenError::new)
    }
}

fn open(options: &PciOptions, environment: &mut Environment<'_>) -> Result<Port, PciError> {
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
    let reporter = environment.reporter();
    let mut port = match kind {
        Kind::Virtio => virtio::open(options, environment, &reporter, taken, device),
        Kind::E1000e => intel::open::<E1000e<_>>(options, environment, &reporter, taken, device),
        Kind::Igb => intel::open::<Igb<_>>(options, environment, &reporter, taken, device),
    }?;
    notes.append(&mut port.capabilities.notes);
    port.capabilities.notes = notes;
    Ok(port)
}
