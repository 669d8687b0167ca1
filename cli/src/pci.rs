//! `warmlane pci`: network devices that ports can drive themselves.

use crate::messages;
use anyhow::bail;
use clap::Subcommand;
use serde_json::json;
use std::fmt::Write as _;
use warmlane::drivers::pci::bus::{Bus, NetworkDevice};
use warmlane::drivers::pci::{Kind, PciAddress};

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
        /// Also if it carries the default route, or isn't supported.
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
        Some(What::Take { address, force }) => take(&bus, address, force),
        Some(What::Give { address }) => {
            bus.give(address)?;
            let driver = bus.driver(address).unwrap_or_else(|| "no driver".to_owned());
            messages::note(format_args!("{address} is with {driver} again"));
            Ok(())
        }
        None => messages::print_list(&bus.devices()?, arguments.json, as_json, text),
    }
}

fn take(bus: &Bus, address: PciAddress, force: bool) -> anyhow::Result<()> {
    let before = bus.device(address)?;
    bus.take(address, force)?;
    let gone = match &before.interfaces[..] {
        [] => String::new(),
        gone => format!(", and {} gone", gone.join(", ")),
    };
    let driver = before.driver.as_deref().unwrap_or("no driver");
    messages::note(format_args!("{address} is taken from {driver}{gone}"));
    let in_the_way = bus.in_the_way(address);
    if !in_the_way.is_empty() {
        messages::complain(format_args!(
            "{address} can't be opened before the rest of its IOMMU group is taken, too: {}",
            in_the_way.join(", ")
        ));
    }
    Ok(())
}

fn as_json(device: &NetworkDevice) -> serde_json::Value {
    json!({
        "address": device.address.to_string(),
        "id": id(device),
        "supported_as": Kind::of(device).ok().map(Kind::name),
        "driver": device.driver,
        "iommu_group": device.group,
        "interfaces": device.interfaces,
        "taken_from": device.taken_from,
        "holder": device.holder,
        "user": device.user,
    })
}

fn id(device: &NetworkDevice) -> String {
    format!("{:04x}:{:04x}", device.vendor, device.device)
}

fn text(devices: &[NetworkDevice]) -> String {
    let mut text = String::new();
    let mut line = |address: &str, [id, kind]: [&str; 2], group: &str, driver: &str, rest: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{address:<12}  {id:<9}  {kind:<9}  {group:>5}  {driver:<12}  {rest}");
    };
    line("address", ["id", "supported"], "group", "driver", "interfaces");
    for device in devices {
        let rest = match (&device.taken_from, device.holder, device.user) {
            (Some(former), Some(process), _) => format!("(taken from {former} by process {process})"),
            (Some(former), None, Some(user)) => format!("(taken from {former}; process {user} has it open)"),
            (Some(former), None, None) => format!("(taken from {former})"),
            (None, _, _) => device.interfaces.join(", "),
        };
        let kind = Kind::of(device).map_or("no", Kind::name);
        let group = device.group.as_deref().unwrap_or("-");
        let driver = device.driver.as_deref().unwrap_or("-");
        line(&device.address.to_string(), [&id(device), kind], group, driver, &rest);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_says_whose_each_is() {
        let device = |address: &str, driver: Option<&str>, taken_from: Option<&str>, holder| NetworkDevice {
            vendor: 0x1af4,
            device: 0x1041,
            driver: driver.map(str::to_owned),
            group: Some("3".to_owned()),
            interfaces: if taken_from.is_some() { Vec::new() } else { vec!["eth0".to_owned()] },
            taken_from: taken_from.map(str::to_owned),
            holder,
            ..NetworkDevice::at(address.parse().unwrap())
        };
        let said = text(&[
            device("0000:00:03.0", Some("virtio-pci"), None, None),
            device("0000:00:04.0", Some("vfio-pci"), Some("virtio-pci"), None),
            device("0000:00:05.0", Some("vfio-pci"), Some("e1000e"), Some(1234)),
            NetworkDevice {
                device: 0x1042,
                user: Some(77),
                ..device("0000:00:06.0", Some("vfio-pci"), Some("e1000"), None)
            },
        ]);
        let lines: Vec<_> = said.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect();
        assert_eq!(lines[1], ["0000:00:03.0", "1af4:1041", "virtio", "3", "virtio-pci", "eth0"]);
        assert_eq!(lines[2][4..], ["vfio-pci", "(taken", "from", "virtio-pci)"]);
        assert_eq!(lines[3][5..], ["(taken", "from", "e1000e", "by", "process", "1234)"]);
        assert_eq!(lines[4][2], "no");
        assert_eq!(lines[4][5..], ["(taken", "from", "e1000;", "process", "77", "has", "it", "open)"]);
    }
}
