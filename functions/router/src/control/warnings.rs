//! What is not as an operator may think: what isn't followed, and what forwarded packets no longer pass.

use super::desired::{Desired, RoutedPort, bridge_of, own_ports};
use super::hook_watch;
use super::kernel::{RuleAction, View};

/// All of it, a sentence each.
pub(crate) fn all(view: &View, ports: &[RoutedPort], bypasses_netfilter: bool) -> Vec<String> {
    let mut warnings = not_followed(view, ports);
    warnings.extend(hook_watch::sentences(view));
    if bypasses_netfilter {
        warnings.push(
            "forwarded packets pass neither netfilter nor IPsec nor tc, as --bypass-netfilter says: nothing there filters, translates, \
             encrypts or counts them"
                .to_owned(),
        );
    }
    warnings
}

/// What of the kernel's network is not followed.
pub(super) fn not_followed(view: &View, ports: &[RoutedPort]) -> Vec<String> {
    if ports.is_empty() {
        // The kernel's own lookup has all of this.
        return Vec::new();
    }
    let mut warnings = Vec::new();
    for rule in view.rules().filter(|rule| rule.looks_at_more || rule.action == RuleAction::Other) {
        let family = if rule.is_ipv6 { "-6 " } else { "" };
        let whom = rule.to.map_or(String::new(), |to| format!(" to {to}"));
        let from = rule.comes_in_by.as_ref().map_or(String::new(), |name| format!(" from interface {name}"));
        warnings.push(format!(
            "`ip {family}rule` {} looks at more than interfaces and destinations: packets{whom}{from} that get as far as it are left to the kernel, which is slower",
            rule.priority
        ));
    }
    let policies = view.switches().multipath_hash;
    for (family, _) in ["ipv4", "ipv6"].iter().zip(policies).filter(|(_, policy)| policy.is_none()) {
        warnings.push(format!(
            "`net.{family}.fib_multipath_hash_policy` looks deeper into packets than lanes do: those that several paths are there for are left to the kernel, which is slower"
        ));
    }
    if view.has_source_routes() {
        warnings.push(
            "there are routes for some sources only (`ip -6 route add … from …`): packets to their prefixes are left to the kernel, which is slower"
                .to_owned(),
        );
    }
    warnings.extend(Desired::new(view, ports).tunnel_warnings());
    for port in own_ports(ports) {
        let Some(link) = view.links().get(&port.link) else { continue };
        let on_it =
            view.links().values().filter(|other| other.lower == Some(link.index) && other.kind != "veth");
        for other in on_it.chain([link]) {
            let (name, kind) = (&other.name, &other.kind);
            let what = if let Some(master) = bridge_of(view, other.index) {
                format!("is a member of {}", master.name)
            } else if other.index == link.index {
                continue;
            } else if other.mac != link.mac {
                format!("({kind}) has an Ethernet address of its own on {}", link.name)
            } else if other.vlan.is_none() {
                warnings.push(format!(
                    "interface {name} ({kind}) stands on {}, and has its Ethernet address: what comes in for it there stays with the kernel only if it is for the box itself",
                    link.name
                ));
                continue;
            } else {
                continue;
            };
            warnings.push(format!(
                "interface {name} {what}: what comes in for it is left to the kernel, which is slower"
            ));
        }
    }
    warnings
}
