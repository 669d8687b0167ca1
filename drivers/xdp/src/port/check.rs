//! Whether a port can be opened on an interface without doing harm.

use crate::bpf::Steering;
use crate::error::XdpError;
use crate::find;
use crate::options::XdpOptions;
use std::net::IpAddr;
use warmlane_driver_common::{Interface, SystemError};

/// Kinds of interfaces that consist of others.
const AGGREGATES: [&str; 3] = ["bridge", "bond", "team"];

/// Whether [`open`](super::open) would refuse this interface out of hand. Changes nothing.
///
/// # Errors
/// [`XdpError`] says what is wrong with the interface or the configuration, and the remedy.
pub fn check(options: &XdpOptions, queues: u32) -> Result<(), XdpError> {
    check_link(options, queues, &find::interface(&options.interface)?)
}

/// Refuses interfaces that can't work, or where it would do harm, before anything is changed.
pub(super) fn check_link(options: &XdpOptions, queues: u32, link: &Interface) -> Result<(), XdpError> {
    let name = options.interface.clone();
    link.check_ethernet()?;
    if AGGREGATES.contains(&link.kind.as_str()) {
        return Err(XdpError::Aggregate { name, kind: link.kind.clone() });
    }
    if let Some(bridge) = link.bridge() {
        let other = Interface::by_index(bridge.index).ok().flatten();
        let master = other.map_or_else(|| bridge.index.to_string(), |other| other.name);
        return Err(XdpError::Enslaved { name, master, kind: bridge.kind.clone() });
    }
    if !link.up {
        return Err(XdpError::Down { name });
    }
    if let Some(program) = link.xdp_program {
        return Err(XdpError::ProgramThere { name, program });
    }
    let available = link.receive_queues.unwrap_or(1).min(link.transmit_queues.unwrap_or(1));
    if queues > available {
        return Err(XdpError::Queues { name, wanted: queues, available });
    }
    if options.steering == Steering::All && !options.take_all {
        let addresses = reachable_addresses(link)?;
        if !addresses.is_empty() {
            let addresses = addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            return Err(XdpError::CutsOff { name, addresses });
        }
    }
    Ok(())
}

/// The addresses that others can reach an interface by.
fn reachable_addresses(link: &Interface) -> Result<Vec<IpAddr>, XdpError> {
    let mut addresses = link
        .addresses()
        .map_err(|source| SystemError::Failed { action: "list the kernel's addresses".to_owned(), source })?;
    addresses.retain(|address| match address {
        IpAddr::V4(address) => !address.is_link_local(),
        IpAddr::V6(address) => !address.is_unicast_link_local(),
    });
    Ok(addresses)
}
