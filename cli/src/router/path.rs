//! Which way packets of each interface take.

use super::settings::Settings;
use crate::messages;
use anyhow::bail;
use std::collections::{BTreeMap, BTreeSet};
use warmlane::assembly::router::UserPortsError;
use warmlane::drivers::common::{Interface, InterfaceName};
use warmlane::drivers::xdp::XdpError;
use warmlane::functions::forward::control::SourceCheck;
use warmlane::functions::router::paths::{BpfError, Path, PathChoice, Plan, plan as plan_paths};
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

/// Whether what an interface does best is to be taken.
pub(super) fn is_best(settings: &Settings, name: &str) -> bool {
    choice(settings, name).is_ok_and(|choice| choice == PathChoice::Best)
}

/// Interfaces that are left to the kernel though they were named, as they are occupied, or their drivers refuse: a sentence each.
#[derive(Default)]
pub(super) struct Left(BTreeMap<String, String>);

impl Left {
    /// Takes an interface out of plans, for which what is best was asked, and returns what is to be said of that. There must be others to go
    /// on with: in the plans, or `beside` them.
    ///
    /// # Errors
    /// What is in the way, if the operator has said which path it is to be, or nothing would be left.
    pub(super) fn take(
        &mut self,
        plans: &mut Vec<Plan>,
        beside: usize,
        settings: &Settings,
        name: Option<String>,
        error: impl Into<anyhow::Error>,
    ) -> anyhow::Result<String> {
        let error = error.into();
        let is_planned = |name: &String| plans.iter().any(|plan| plan.interface == *name);
        let has_others = plans.len() + beside > 1;
        let name = name.filter(|name| is_planned(name) && has_others && is_best(settings, name));
        let Some(name) = name else { return Err(error) };
        plans.retain(|plan| plan.interface != name);
        let sentence = format!(
            "interface '{name}' is left to the kernel: {error:#}. The others go on; once that is mended, reload, or start the router again"
        );
        self.0.insert(name, sentence.clone());
        Ok(sentence)
    }

    /// Why, a sentence for each.
    pub(super) fn sentences(&self) -> impl Iterator<Item = &String> {
        self.0.values()
    }

    /// These without them.
    pub(super) fn without(&self, names: &[String]) -> Vec<String> {
        names.iter().filter(|name| !self.0.contains_key(*name)).cloned().collect()
    }
}

/// Plans tc for an interface whose driver refuses the XDP program that was planned there as the best, and says whether that was it.
pub(super) fn go_on_by_tc(plans: &mut [Plan], settings: &Settings, error: &BpfError) -> bool {
    let BpfError::Attach { interface, .. } = error else { return false };
    let refused = plans.iter_mut().find(|plan| plan.interface == *interface && plan.path == Path::Xdp);
    let Some(plan) = refused.filter(|plan| is_best(settings, &plan.interface)) else { return false };
    (plan.path, plan.reason) = (Path::Tc, "its driver refuses XDP programs");
    true
}

/// What AF_XDP says, if that is what is in the way of a port.
pub(super) fn of_xdp(error: &anyhow::Error) -> Option<&XdpError> {
    match error.downcast_ref()? {
        UserPortsError::Xdp(error) => Some(error),
        _ => None,
    }
}

/// Opens by these plans what lanes need. Where they would be best, as the driver can exchange packets without copies, and it then refuses
/// that, all is planned again without lanes there, and opened anew. Returns what was opened, with the plans that hold and what was refused.
///
/// # Errors
/// What is in the way of opening, or of planning again.
pub(super) fn open_by<T>(
    mut plans: Vec<Plan>,
    is_best: impl Fn(&str) -> bool,
    mut open: impl FnMut(&[Plan]) -> anyhow::Result<T>,
    mut plan_again: impl FnMut(&BTreeSet<String>) -> anyhow::Result<Vec<Plan>>,
) -> anyhow::Result<(Vec<Plan>, BTreeSet<String>, T)> {
    let mut refused = BTreeSet::new();
    loop {
        let error = match open(&plans) {
            Ok(opened) => return Ok((plans, refused, opened)),
            Err(error) => error,
        };
        let (name, reason) = match of_xdp(&error) {
            Some(XdpError::NoZeroCopy { name, reason }) => (name, reason.clone()),
            Some(XdpError::NoXdp { name, source, .. }) => (name, source.to_string()),
            _ => return Err(error),
        };
        // Each once, so that this ends.
        if !is_best(name) || !refused.insert(name.clone()) {
            return Err(error);
        }
        messages::note(format_args!(
            "interface '{name}': lanes would get copies of packets ({reason}), so it takes no part in path user, unless --path {name}=user says so"
        ));
        plans = plan_again(&refused)?;
    }
}

/// Decides for each of these interfaces; those that are `refused` don't get lanes for being best with them.
pub(super) fn plan(
    settings: &Settings,
    names: &[String],
    refused: &BTreeSet<String>,
) -> anyhow::Result<Vec<Plan>> {
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
    let mut plans = plan_paths(names, |name| match choice(settings, name).unwrap_or_default() {
        PathChoice::Best if refused.contains(name) => PathChoice::BestInKernel,
        choice => choice,
    })?;
    // At the XDP hook a packet whose tag the card has taken out looks like one without.
    for plan in plans.iter_mut().filter(|plan| plan.path == Path::Xdp && strips_tags(&plan.interface)) {
        match paths.of(&plan.interface) {
            PathChoice::Best | PathChoice::BestInKernel => {
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
        messages::note_of(
            interface,
            format_args!("interface '{interface}': path {path}: {reason}{obtained}"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plans(path: Path) -> Vec<Plan> {
        let one = |(interface, path): (&str, Path)| Plan {
            interface: interface.to_owned(),
            link: 1,
            path,
            reason: "as the test says",
        };
        [("eth0", path), ("eth1", Path::User)].map(one).to_vec()
    }

    /// A driver that says it can, and can't: without huge pages, say.
    fn open(plans: &[Plan]) -> anyhow::Result<usize> {
        match plans.iter().find(|plan| plan.interface == "eth0" && plan.path == Path::User) {
            Some(plan) => Err(UserPortsError::from(XdpError::NoZeroCopy {
                name: plan.interface.clone(),
                reason: "set up huge pages".to_owned(),
            })
            .into()),
            None => Ok(plans.iter().filter(|plan| plan.path == Path::User).count()),
        }
    }

    #[test]
    fn what_refuses_xdp_goes_by_tc_if_it_was_best() {
        let refused = BpfError::Attach {
            interface: "eth0".to_owned(),
            hook: "XDP",
            reason: "Operation not supported".to_owned(),
            source: None,
        };
        let settings = |text: &str| toml::from_str::<Settings>(text).unwrap();
        let best = settings("interfaces = [\"eth0\", \"eth1\"]");
        let mut planned = plans(Path::Xdp);
        assert!(go_on_by_tc(&mut planned, &best, &refused));
        assert_eq!((planned[0].path, planned[1].path), (Path::Tc, Path::User));
        assert!(!go_on_by_tc(&mut planned, &best, &refused), "tc is refused, too");
        let asked_for = settings("interfaces = [\"eth0\", \"eth1\"]\npath = \"xdp\"");
        assert!(!go_on_by_tc(&mut plans(Path::Xdp), &asked_for, &refused));
    }

    #[test]
    fn what_a_driver_refuses_is_planned_again_without_lanes() {
        let again = |refused: &BTreeSet<String>| {
            assert_eq!(refused.iter().collect::<Vec<_>>(), ["eth0"]);
            Ok(plans(Path::Xdp))
        };
        let (taken, refused, lanes) = open_by(plans(Path::User), |_| true, open, again).unwrap();
        assert_eq!((taken, lanes), (plans(Path::Xdp), 1));
        assert!(refused.contains("eth0") && refused.len() == 1, "{refused:?}");
        // Who gets it all the same, or asks for path user, is told why that can't be.
        let stubborn = open_by(plans(Path::User), |_| true, open, |_| Ok(plans(Path::User)));
        let asked_for = open_by(plans(Path::User), |_| false, open, |_| panic!("it isn't planned again"));
        for refused in [stubborn, asked_for] {
            let sentence = refused.unwrap_err().to_string();
            assert!(sentence.contains("\"eth0\"") && sentence.contains("huge pages"), "{sentence}");
        }
        // What is wrong with others than the driver stays an error.
        let other = |_: &[Plan]| Err::<(), _>(anyhow::anyhow!("no memory"));
        let refused = open_by(plans(Path::User), |_| true, other, |_| panic!("it isn't planned again"));
        assert_eq!(refused.unwrap_err().to_string(), "no memory");
    }
}
