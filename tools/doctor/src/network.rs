//! The network interfaces: what their drivers allow, and how near they are.

use crate::finding::Finding;
use crate::kernel::{self, Version};
use crate::processor;
use crate::tree::Tree;
use crate::xdp_drivers;
use std::io;
use warmlane_driver_common::Interface;
use warmlane_sys::topology::Topology;

/// Queues beyond this are no loss: few machines give a data plane more lanes.
const MANY_QUEUES: u32 = 8;

/// Drivers of devices that exist in the kernel only, and for which no better driver can be had.
const SOFTWARE: &[&str] =
    &["802.1Q VLAN Support", "bridge", "dummy", "ifb", "macvlan", "team", "vrf", "vxlan"];

/// One finding for each interface, by their order; one in all if they can't be listed.
pub(crate) fn interfaces(tree: Tree, interfaces: &io::Result<Vec<Interface>>) -> Vec<Finding> {
    match interfaces {
        Ok(interfaces) => interfaces.iter().map(|interface| examine(tree, interface)).collect(),
        Err(error) => vec![Finding::not_known("interface", format!("interfaces can't be listed: {error}"))],
    }
}

fn examine(tree: Tree, interface: &Interface) -> Finding {
    support(tree, interface).of(&interface.name)
}

fn support(tree: Tree, interface: &Interface) -> Finding {
    let name = "interface";
    let about = describe(interface);
    if interface.mac.is_none() || interface.mac == Some([0; 6]) {
        return Finding::good(name, format!("{about}: not an Ethernet link, of no use as a port"));
    }
    // The nearest thing first: what is far away stays slow with any driver.
    if let Some(finding) = distance(tree, interface, &about) {
        return finding;
    }
    let Some(driver) = &interface.driver else {
        return Finding::not_known(name, format!("{about}: the kernel does not name its driver"));
    };
    if SOFTWARE.contains(&driver.as_str()) {
        return Finding::good(
            name,
            format!("{about}: a device inside the kernel, of use over packet sockets only"),
        );
    }
    let Some(known) = xdp_drivers::find(driver) else {
        return Finding::better(
            name,
            format!("{about}: the driver is not known to run XDP programs, so the kernel does it later (generic XDP)"),
            format!(
                "`xdp-loader features {}` (xdp-tools, Linux 6.3 or later) says for certain; else a card with native \
                 support: ixgbe, i40e, ice, igc, mlx5_core, ..",
                interface.name
            ),
        )
        .worth(
            "generic XDP copies each packet out of the kernel's own structure: not much faster than a packet socket; \
             one core dropped 4.8 Mpps in the kernel's path and 24 Mpps in native XDP (CoNEXT 2018)",
        );
    };
    let running = kernel::release(tree).map(|(_, version)| version);
    let reached = |since: Version| running.is_none_or(|running| running >= since);
    if !reached(known.native) {
        return Finding::better(
            name,
            format!("{about}: the driver runs XDP programs only from Linux {} on", text(known.native)),
            format!("install Linux {} or later", text(known.zero_copy.unwrap_or(known.native))),
        )
        .worth("native XDP dropped 24 Mpps on one core, the kernel's own path 4.8 at best (CoNEXT 2018)");
    }
    match known.zero_copy {
        Some(since) if reached(since) => queues(interface, &about, "native XDP, AF_XDP without copies"),
        Some(since) => Finding::better(
            name,
            format!("{about}: native XDP; AF_XDP without copies only from Linux {} on", text(since)),
            format!("install Linux {} or later", text(since)),
        )
        .worth("a copy of each packet less: zero copy exceeds 20 Mpps a core"),
        None => queues(
            interface,
            &about,
            "native XDP; AF_XDP copies each packet, for this driver has no zero copy",
        ),
    }
}

fn describe(interface: &Interface) -> String {
    let mut text = interface.driver.clone().unwrap_or_else(|| "driver unknown".to_owned());
    if let Some(address) = &interface.pci_address {
        text.push_str(" at ");
        text.push_str(address);
    }
    text.push_str(match (interface.up, interface.carrier) {
        (true, true) => ", up",
        (true, false) => ", up without link",
        (false, _) => ", down",
    });
    text
}

/// A finding if no CPU that this process may use is on the interface's NUMA node.
fn distance(tree: Tree, interface: &Interface, about: &str) -> Option<Finding> {
    let node = interface.numa_node? as usize;
    let topology = Topology::from_root(tree.root()).ok()?;
    let near: Vec<usize> = topology.nodes.iter().find(|found| found.id == node)?.cpus.clone();
    let allowed = processor::allowed(tree)?;
    if near.is_empty() || near.iter().any(|cpu| allowed.contains(cpu)) {
        return None;
    }
    let near = warmlane_sys::format_list(&near);
    let finding = Finding::better(
        "interface",
        format!("{about}: it is on NUMA node {node}, whose CPUs {near} this process may not use"),
        format!("start it with `taskset -c {near} warmlane ...`"),
    );
    Some(finding.worth(
        "the card writes packets into its own socket's cache; a lane on the other socket fetches each line over the \
         link between them, which takes about as long as memory does",
    ))
}

/// Enough queues for as many lanes as one would start?
fn queues(interface: &Interface, about: &str, support: &str) -> Finding {
    let name = "interface";
    match interface.receive_queues {
        Some(queues) => {
            let plural = if queues == 1 { "queue" } else { "queues" };
            let lanes = if queues < MANY_QUEUES {
                format!(", so at most {queues} of the lanes can receive from it")
            } else {
                String::new()
            };
            Finding::good(name, format!("{about}: {support}; {queues} receive {plural}{lanes}"))
        }
        None => Finding::good(name, format!("{about}: {support}")),
    }
}

fn text(version: Version) -> String {
    format!("{}.{}", version.0, version.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Status;
    use crate::fixture::Fixture;

    fn interface(driver: &str) -> Interface {
        Interface {
            name: "eth0".to_owned(),
            index: 2,
            driver: Some(driver.to_owned()),
            mac: Some([2, 0, 0, 0, 0, 1]),
            mtu: 1_500,
            up: true,
            carrier: true,
            receive_queues: Some(2),
            transmit_queues: Some(2),
            pci_address: Some("0000:3b:00.1".to_owned()),
            ..Interface::default()
        }
    }

    fn on(release: &str, driver: &str) -> Finding {
        examine(Fixture::with(&[("proc/sys/kernel/osrelease", release)]).tree(), &interface(driver))
    }

    #[test]
    fn what_a_driver_can_depends_on_the_kernel() {
        let finding = on("6.12.0", "ixgbe");
        assert_eq!((finding.status, finding.subject.as_deref()), (Status::Good, Some("eth0")));
        assert!(
            finding.found.starts_with("ixgbe at 0000:3b:00.1, up: native XDP, AF_XDP without copies; 2 ")
        );

        let finding = on("6.1.0-18-amd64", "virtio_net");
        assert_eq!(finding.remedy.as_deref(), Some("install Linux 6.11 or later"));
        assert!(on("6.12.0", "veth").found.contains("copies each packet"));
        assert!(on("5.4.0", "igc").found.contains("only from Linux 5.13 on"));
        let finding = on("6.12.0", "e1000e");
        assert_eq!(finding.status, Status::CouldBeBetter);
        assert!(finding.remedy.unwrap().contains("xdp-loader features eth0"));
    }

    #[test]
    fn loopback_is_no_port() {
        let mut lo = interface("loopback");
        lo.mac = Some([0; 6]);
        let finding = examine(Fixture::new().tree(), &lo);
        assert_eq!(finding.status, Status::Good);
        assert!(finding.found.contains("of no use as a port"), "{finding:?}");
        // Nor has a bridge a card that could be exchanged.
        assert_eq!(on("6.12.0", "bridge").status, Status::Good);
    }

    #[test]
    fn an_interface_on_the_other_socket() {
        let fixture = Fixture::with(&[
            ("proc/sys/kernel/osrelease", "6.12.0"),
            ("proc/self/status", "Cpus_allowed_list:\t0-3\n"),
            ("sys/devices/system/cpu/cpu0/topology/core_id", "0\n"),
            ("sys/devices/system/node/node0/cpulist", "0-3\n"),
            ("sys/devices/system/node/node1/cpulist", "4-7\n"),
        ]);
        let mut far = interface("ice");
        far.numa_node = Some(1);
        let finding = examine(fixture.tree(), &far);
        assert_eq!(finding.status, Status::CouldBeBetter);
        assert!(finding.remedy.unwrap().contains("taskset -c 4-7 "));
        fixture.write("proc/self/status", "Cpus_allowed_list:\t0-4\n");
        assert_eq!(examine(fixture.tree(), &far).status, Status::Good);
    }

    #[test]
    fn interfaces_that_cannot_be_listed() {
        let error = Err(io::Error::from_raw_os_error(1));
        let findings = interfaces(Fixture::new().tree(), &error);
        assert_eq!((findings.len(), findings[0].status), (1, Status::NotKnown));
    }
}
