//! Which way packets of each interface take.

use super::settings::Settings;
use crate::messages;
use anyhow::bail;
use warmlane::drivers::common::{Interface, InterfaceName};
use warmlane::functions::forward::control::SourceCheck;
use warmlane::functions::router::paths::{Path, PathChoice, Plan, plan as plan_paths};
use warmlane::port::PortView;

/// What is said of an interface's path, by which it is decided.
pub(super) fn choice(settings: &Settings, name: &str) -> anyhow::Result<PathChoice> {
    let (paths, checks) = (settings.paths()?, settings.changeable()?.source_checks);
    Ok(match paths.of(name) {
        // What only lanes can do.
        PathChoice::Best if settings.mode.is_some() || checks.of(name) != SourceCheck::Off => {
            PathChoice::Only(Path::User)
        }
        choice => choice,
    })
}

/// Decides for each of these interfaces.
pub(super) fn plan(settings: &Settings, names: &[String]) -> anyhow::Result<Vec<Plan>> {
    let (paths, checks) = (settings.paths()?, settings.changeable()?.source_checks);
    let checks_sources = |name: &str| checks.of(name) != SourceCheck::Off;
    if let Some((_, name)) = settings
        .interfaces
        .iter()
        .enumerate()
        .find(|(place, name)| settings.interfaces[..*place].contains(name))
    {
        bail!("interface '{name}' is there twice: name each once");
    }
    if let Some(name) = paths.names().find(|name| !settings.interfaces.iter().any(|known| known == name)) {
        bail!("path names '{name}', which is no interface of this router: `ip link` lists them");
    }
    // What is said can be understood: it was read when the settings were.
    let mut plans = plan_paths(names, |name| choice(settings, name).unwrap_or_default())?;
    // At the XDP hook a packet whose tag the card has taken out looks like one without.
    for plan in plans.iter_mut().filter(|plan| plan.path == Path::Xdp && strips_tags(&plan.interface)) {
        match paths.of(&plan.interface) {
            PathChoice::Best => {
                plan.path = Path::Tc;
                plan.reason = "the card takes VLAN tags out of packets: with `ethtool -K INTERFACE rxvlan off` path xdp would be best";
            }
            PathChoice::Only(_) => messages::note(format_args!(
                "interface '{name}': what comes in with VLAN tags is taken for packets without, as the card takes them out: `ethtool -K {name} rxvlan off`",
                name = plan.interface
            )),
        }
    }
    let is_in_kernel = |plan: &&Plan| plan.path != Path::User && checks_sources(&plan.interface);
    if let Some(Plan { interface, path, .. }) = plans.iter().find(is_in_kernel) {
        bail!(
            "urpf is not checked on path {path} of interface '{interface}': say --path {interface}=user, or --urpf {interface}=off and use the kernel's rp_filter"
        );
    }
    Ok(plans)
}

/// Whether packets come without the VLAN tags that they had on the wire. On a veth pair there is no wire.
fn strips_tags(interface: &str) -> bool {
    let found = InterfaceName::new(interface).ok().and_then(|name| Interface::find(&name).ok());
    found.is_some_and(|found| found.strips_vlan_tags && found.kind != "veth")
}

/// Says which way each takes and why, a line each. `ports` are those of the user path.
pub(super) fn print_notes(plans: &[Plan], ports: &[PortView]) {
    for Plan { interface, path, reason, .. } in plans {
        let port = ports.iter().find(|port| port.name == *interface);
        // Of what was obtained, the first two words are how packets are exchanged with the kernel.
        let obtained = port.and_then(|port| port.notes.first()).map_or(String::new(), |note| {
            let words: Vec<&str> = note.split(", ").take(2).collect();
            format!("; {}", words.join(", "))
        });
        messages::note(format_args!("interface '{interface}': path {path}: {reason}{obtained}"));
    }
}
