//! What people are told of events.

use crate::control::desired::RoutedPort;
use crate::control::kernel::{Event, LinkIndex, View};

/// What people should know of an event, before it is taken in. That a port is gone says its driver.
pub(super) fn remark(view: &View, ports: &[RoutedPort], event: &Event, remarks: &mut Vec<String>) {
    let is_port = |index: LinkIndex| ports.iter().any(|port| port.link == index);
    match event {
        Event::Link(now) if is_port(now.index) => {
            let Some(before) = view.links().get(&now.index) else { return };
            if before.name != now.name {
                remarks.push(format!("interface {} is now called {}", before.name, now.name));
            }
            if before.is_up != now.is_up {
                let what = if now.is_up { "up again" } else { "down" };
                remarks.push(format!("interface {} was set {what}", now.name));
            }
            if before.is_up && now.is_up && before.has_carrier != now.has_carrier {
                let what = if now.has_carrier { "has a carrier again" } else { "has lost its carrier" };
                remarks.push(format!("interface {} {what}", now.name));
            }
            let master = now.master.filter(|_| before.master != now.master);
            if let Some(master) = master.and_then(|master| view.links().get(&master))
                && master.vrf_table.is_none()
            {
                remarks.push(format!(
                    "interface {} is a member of {} now: what comes in there is left to the kernel",
                    now.name, master.name
                ));
            }
            if before.mtu != now.mtu {
                let limit = ports.iter().find(|port| port.link == now.index).map_or(0, |port| port.mtu_limit);
                let beyond = if now.mtu > u32::from(limit) {
                    format!("; packets over {limit} bytes are not taken until Warmlane is started again")
                } else {
                    String::new()
                };
                remarks.push(format!(
                    "interface {} has an MTU of {} now, after {}{beyond}",
                    now.name, now.mtu, before.mtu
                ));
            }
        }
        _ => {}
    }
}
