//! What is not as an operator may think: what isn't followed, and what forwarded packets no longer pass.

use std::{fs, io};

use super::kernel::{Hooks, RuleAction, View};
use super::resolve::{PortSettings, taker};

/// All of it, a sentence each.
pub(crate) fn all(view: &View, ports: &[PortSettings]) -> Vec<String> {
    let mut warnings = not_followed(view, ports);
    let names = ports.iter().filter_map(|port| Some(view.links().get(&port.link)?.name.as_str()));
    warnings.extend(names.filter_map(|name| not_forwarding(name, &mut read)));
    warnings.extend(not_passed(Hooks::list(), fs::read_to_string(LEGACY_TABLES)));
    warnings
}

/// Where the kernel lists the tables of the older iptables that were ever used.
const LEGACY_TABLES: &str = "/proc/net/ip_tables_names";

fn read(parameter: &str) -> Option<String> {
    fs::read_to_string(format!("/proc/sys/net/{parameter}")).ok()
}

/// What the kernel would not forward that comes in by an interface. For IPv6 it looks at the switch for all interfaces only
/// (`net/ipv6/ip6_output.c: ip6_forward`), for IPv4 at the interface's (`net/ipv4/route.c: ip_route_input_slow`), which the
/// one for all sets.
fn not_forwarding(name: &str, read: &mut dyn FnMut(&str) -> Option<String>) -> Option<String> {
    let mut is_off = |parameter: &str| read(parameter).is_some_and(|text| text.trim() == "0");
    let ipv4 = is_off(&format!("ipv4/conf/{name}/forwarding")).then(|| ("IPv4", format!("ipv4.conf.{name}")));
    let ipv6 = is_off("ipv6/conf/all/forwarding").then(|| ("IPv6", "ipv6.conf.all".to_owned()));
    let families: Vec<_> = ipv4.into_iter().chain(ipv6).collect();
    let (what, how): (Vec<_>, Vec<_>) =
        families.into_iter().map(|(family, place)| (family, format!("net.{place}.forwarding=1"))).unzip();
    (!what.is_empty()).then(|| {
        format!(
            "the kernel forwards no {} that comes in by {name}, Warmlane does: `sysctl -w {}` makes that the same",
            what.join(" and "),
            how.join(" ")
        )
    })
}

/// What the kernel would have done with packets that Warmlane forwards.
fn not_passed(hooks: io::Result<Hooks>, legacy: io::Result<String>) -> Vec<String> {
    let mut warnings = Vec::new();
    match hooks {
        Ok(hooks) => {
            if !hooks.chains.is_empty() {
                warnings.push(format!(
                    "forwarded packets don't pass netfilter, which has something for them in {}: no rule there filters, counts or translates them",
                    hooks.chains.join(", ")
                ));
            }
            if hooks.ipsec_policies > 0 {
                warnings.push(format!(
                    "forwarded packets don't pass IPsec, which has policies for them ({}, `ip xfrm policy` lists them): they are sent unencrypted",
                    hooks.ipsec_policies
                ));
            }
        }
        Err(error) => warnings.push(format!(
            "forwarded packets don't pass netfilter and IPsec, and whether these have something for them can't be told: {error}"
        )),
    }
    match legacy {
        Ok(tables) if !tables.trim().is_empty() => warnings.push(format!(
            "forwarded packets don't pass netfilter, where legacy iptables has tables ({}), perhaps with rules for them",
            tables.split_whitespace().collect::<Vec<_>>().join(", ")
        )),
        // Only root may read it, and only a kernel that has these tables has it.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => warnings.push(format!(
            "forwarded packets don't pass netfilter, and whether legacy iptables has rules for them can't be told: {LEGACY_TABLES} is for root only"
        )),
        _ => {}
    }
    warnings
}

/// What of the kernel's network is not followed.
pub(super) fn not_followed(view: &View, ports: &[PortSettings]) -> Vec<String> {
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
    for port in ports {
        let Some(link) = view.links().get(&port.link) else { continue };
        let on_it =
            view.links().values().filter(|other| other.lower == Some(link.index) && other.kind != "veth");
        for other in on_it.chain([link]) {
            let (name, kind) = (&other.name, &other.kind);
            let what = if let Some(master) = taker(view, other.index) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_that_the_kernel_would_go_by_are_named() {
        let with = |ipv4: &'static str, ipv6: &'static str| {
            not_forwarding("w0", &mut |parameter| {
                let is = match parameter {
                    "ipv4/conf/w0/forwarding" => ipv4,
                    "ipv6/conf/all/forwarding" => ipv6,
                    _ => return None,
                };
                Some(format!("{is}\n"))
            })
        };
        assert_eq!(with("1", "1"), None);
        let ipv4 = with("0", "1").unwrap();
        assert!(
            ipv4.contains("no IPv4 that") && ipv4.contains("`sysctl -w net.ipv4.conf.w0.forwarding=1`"),
            "{ipv4}"
        );
        let both = with("0", "0").unwrap();
        assert!(both.contains("IPv4 and IPv6") && both.contains("net.ipv6.conf.all.forwarding=1`"), "{both}");
        // A kernel without IPv6 has no such switch.
        assert_eq!(not_forwarding("w0", &mut |_| None), None);
    }

    #[test]
    fn what_can_not_be_told_is_said() {
        let nothing = || Err(io::Error::from(io::ErrorKind::NotFound));
        assert_eq!(not_passed(Ok(Hooks::default()), nothing()), Vec::<String>::new());
        assert_eq!(not_passed(Ok(Hooks::default()), Ok(String::new())), Vec::<String>::new());
        let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
        let all = not_passed(Err(denied()), Err(denied()));
        assert!(all.len() == 2 && all.iter().all(|each| each.contains("can't be told")), "{all:?}");
        let tables = not_passed(Ok(Hooks::default()), Ok("filter\nnat\n".to_owned()));
        assert!(tables[0].contains("(filter, nat)"), "{tables:?}");
    }
}
