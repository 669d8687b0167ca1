//! A configuration space of any bytes, and a text as a device's address: what is found is possible, and what is read is written the same again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use warmlane_pci::PciAddress;
use warmlane_pci::virtio::Locations;

fuzz_target!(|data: &[u8]| {
    let mut space = [0; 256];
    let length = data.len().min(space.len());
    space[..length].copy_from_slice(&data[..length]);
    let found = Locations::find(&space);
    for location in [found.common, found.notify, found.device].into_iter().flatten() {
        assert!(location.bar < 6 && location.length > 0, "{found:?}");
        assert!(location.offset.checked_add(location.length).is_some(), "{found:?}");
    }
    if let Some(Ok(address)) = std::str::from_utf8(data).ok().map(str::parse::<PciAddress>) {
        assert_eq!(address.to_string().parse(), Ok(address));
    }
});
