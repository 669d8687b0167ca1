//! `warmlane pci`: network devices that ports can drive themselves.

use crate::messages;
use anyhow::bail;
use clap::Subcommand;
use serde_json::json;
use std::fmt::Write as _;
use warmlane::drivers::pci::PciAddress;
use warmlane::drivers::pci::bus::{Bus, NetworkDevice};

/// List the PCI network devices of this machine; take one from the kernel, or give it back.
///
/// Ports `pci:ADDRESS` drive a device themselves. While it is taken, the kernel has no interface of it: who is logged in by that
/// interface is cut off. What a killed process has taken is given back first.
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: Option<What>,
    /// Print a JSON list.
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Take a device from the kernel's driver, until `give`; needs root and the module vfio-pci.
    Take {
        /// Where it is, as the list says.
        address: PciAddress,
        /// Also if it carries the default route.
        #[arg(long)]
        force: bool,
    },
    /// Give a device back to the driver that it was taken from.
    Give {
        /// Where it is.
        address: PciAddress,
    },
}

const EXAMPLES: &str = "\
Examples:
  What there is, with whom:
    warmlane pci

  Take a device, forward by it, and give it back (as root):
    modprobe vfio-pci
    warmlane pci take 0000:00:04.0
    warmlane forward --config rest.toml --port a=pci:0000:00:04.0
    warmlane pci give 0000:00:04.0";

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let bus = Bus::default();
    for recovered in bus.recover() {
        let address = recovered.address;
        match recovered.result {
            Ok(()) => messages::note(format!("{address} was left by a process that is gone, and given back")),
            Err(error) => messages::complain(error),
        }
    }
    match arguments.what {
        Some(_) if arguments.json => bail!("--json is for the list: leave it out"),
        Some(What::Take { address, force }) => Ok(bus.take(address, force)?),
        Some(What::Give { address }) => Ok(bus.give(address)?),
        None => messages::print_list(&bus.devices()?, arguments.json, as_json, text),
    }
}

fn as_json(device: &NetworkDevice) -> serde_json::Value {
    json!({
        "address": device.address.to_string(),
        "id": id(device),
        "driver": device.driver,
        "iommu_group": device.group,
        "interfaces": device.interfaces,
        "taken_from": device.taken_from,
        "holder": device.holder,
    })
}

fn id(device: &NetworkDevice) -> String {
    format!("{:04x}:{:04x}", device.vendor, device.device)
}

fn text(devices: &[NetworkDevice]) -> String {
    let mut text = String::new();
    let mut line = |address: &str, id: &str, group: &str, driver: &str, rest: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{address:<12}  {id:<9}  {group:>5}  {driver:<12}  {rest}");
    };
    line("address", "id", "group", "driver", "interfaces");
    for device in devices {
        let rest = match (&device.taken_from, device.holder) {
            (Some(former), Some(process)) => format!("(taken from {former} by process {process})"),
            (Some(former), None) => format!("(taken from {former})"),
            (None, _) => device.interfaces.join(", "),
        };
        let group = device.group.as_deref().unwrap_or("-");
        let driver = device.driver.as_deref().unwrap_or("-");
        line(&device.address.to_string(), &id(device), group, driver, &rest);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_says_whose_each_is() {
        let device = |address: &str, driver: Option<&str>, taken_from: Option<&str>, holder| NetworkDevice {
            address: address.parse().unwrap(),
            vendor: 0x1af4,
            device: 0x1041,
            driver: driver.map(str::to_owned),
            group: Some("3".to_owned()),
            interfaces: if taken_from.is_some() { Vec::new() } else { vec!["eth0".to_owned()] },
            taken_from: taken_from.map(str::to_owned),
            holder,
        };
        let said = text(&[
            device("0000:00:03.0", Some("virtio-pci"), None, None),
            device("0000:00:04.0", Some("vfio-pci"), Some("virtio-pci"), None),
            device("0000:00:05.0", Some("vfio-pci"), Some("e1000e"), Some(1234)),
        ]);
        let lines: Vec<_> = said.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect();
        assert_eq!(lines[1], ["0000:00:03.0", "1af4:1041", "3", "virtio-pci", "eth0"]);
        assert_eq!(lines[2][3..], ["vfio-pci", "(taken", "from", "virtio-pci)"]);
        assert_eq!(lines[3][4..], ["(taken", "from", "e1000e", "by", "process", "1234)"]);
    }
}
