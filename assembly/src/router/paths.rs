//! Which way packets of each interface take.

use super::interfaces::InterfaceError;
use super::ports::UserPortsError;
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use warmlane_driver_common::{Interface, InterfaceName};
use warmlane_forward::control::SourceCheck;
use warmlane_router::control::SourceChecks;
use warmlane_router::paths::{BpfError, Path, PathChoice, Paths, Plan, PlanError, plan};
use warmlane_xdp::{self as xdp, XdpError, XdpOptions};

/// A sentence for whoever runs the router.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Remark {
    /// They may like to know it.
    Note(String),
    /// They should know it: something is wrong.
    Warning(String),
}

/// What is said of a router's interfaces, by which their paths are decided.
#[derive(Clone, Debug, Default)]
pub struct PathSettings {
    /// Their names.
    pub interfaces: Vec<String>,
    /// Where packets that come in by them are forwarded.
    pub paths: Paths,
    /// How sources are checked there, which only lanes do.
    pub source_checks: SourceChecks,
    /// That AF_XDP is asked for in a certain mode, so that lanes are what is best.
    pub has_xdp_mode: bool,
}

impl PathSettings {
    /// What is said of an interface's path.
    pub(super) fn choice(&self, name: &str) -> PathChoice {
        match self.paths.of(name) {
            // What only lanes can do.
            PathChoice::Best if self.has_xdp_mode || self.checks_sources(name) => {
                PathChoice::Only(Path::User)
            }
            choice => choice,
        }
    }

    /// Whether what an interface does best is to be taken.
    pub fn is_best(&self, name: &str) -> bool {
        self.choice(name) == PathChoice::Best
    }

    fn checks_sources(&self, name: &str) -> bool {
        self.source_checks.of(name) != SourceCheck::Off
    }

    /// Decides for each of these interfaces; those that are `refused` don't get lanes for being best with them. What there is to say goes
    /// to `tell` at once.
    ///
    /// # Errors
    /// [`InterfaceError`]: what is said can't be.
    pub fn plan(
        &self,
        names: &[String],
        refused: &BTreeSet<String>,
        tell: &mut dyn FnMut(Remark),
    ) -> Result<Vec<Plan>, InterfaceError> {
        let all = &self.interfaces;
        let is_repeated = |(place, name): &(usize, &String)| all[..*place].contains(name);
        if let Some((_, name)) = all.iter().enumerate().find(is_repeated) {
            return Err(PlanError::Twice { name: name.clone() }.into());
        }
        if let Some(name) = self.paths.names().find(|name| !all.iter().any(|known| known == name)) {
            return Err(InterfaceError::Unknown { interface: name.to_owned() });
        }
        let mut plans = plan(names, |name| match self.choice(name) {
            PathChoice::Best if refused.contains(name) => PathChoice::BestInKernel,
            choice => choice,
        })?;
        // At the XDP hook a packet whose tag the card has taken out looks like one without.
        for plan in plans.iter_mut().filter(|plan| plan.path == Path::Xdp && strips_tags(&plan.interface)) {
            match self.paths.of(&plan.interface) {
                PathChoice::Best | PathChoice::BestInKernel => {
                    plan.path = Path::Tc;
                    plan.reason = "the card takes VLAN tags out of packets: with `ethtool -K INTERFACE rxvlan off` path xdp would be best";
                }
                PathChoice::Only(_) => tell(Remark::Note(format!(
                    "interface '{name}': what comes in with VLAN tags is taken for packets without, as the card takes them out: `ethtool -K {name} rxvlan off`",
                    name = plan.interface
                ))),
            }
        }
        let is_in_kernel = |plan: &&Plan| plan.path != Path::User && self.checks_sources(&plan.interface);
        match plans.iter().find(is_in_kernel) {
            Some(Plan { interface, path, .. }) => {
                Err(InterfaceError::SourceCheck { interface: interface.clone(), path: *path })
            }
            None => Ok(plans),
        }
    }
}

/// Whether packets come without the VLAN tags that they had on the wire. On a veth pair there is no wire.
fn strips_tags(interface: &str) -> bool {
    let found = InterfaceName::new(interface).ok().and_then(|name| Interface::find(&name).ok());
    found.is_some_and(|found| found.strips_vlan_tags && found.kind != "veth")
}

/// The interfaces that lanes forward by.
pub fn on_user_path(plans: &[Plan]) -> Vec<String> {
    plans.iter().filter(|plan| plan.path == Path::User).map(|plan| plan.interface.clone()).collect()
}

/// Plans tc for an interface whose driver refuses the XDP program that was planned there as the best, and says whether that was it.
pub(super) fn go_on_by_tc(plans: &mut [Plan], settings: &PathSettings, error: &BpfError) -> bool {
    let BpfError::Attach { interface, .. } = error else { return false };
    let refused = plans.iter_mut().find(|plan| plan.interface == *interface && plan.path == Path::Xdp);
    let Some(plan) = refused.filter(|plan| settings.is_best(&plan.interface)) else { return false };
    (plan.path, plan.reason) = (Path::Tc, "its driver refuses XDP programs");
    true
}

/// Interfaces that are left to the kernel though they were named, as they are occupied, or their drivers refuse: a sentence each.
#[derive(Debug, Default)]
pub struct LeftInterfaces(BTreeMap<String, String>);

impl LeftInterfaces {
    /// Checks what so many lanes are to have, with these options. Where another program is, and the path was to be the best, the kernel keeps
    /// the interface, and it is in `plans` no more, which is said to `tell` at once.
    ///
    /// # Errors
    /// [`InterfaceError`]: an interface can't be had, and has to be.
    pub fn leave_occupied(
        plans: &mut Vec<Plan>,
        settings: &PathSettings,
        options: &XdpOptions,
        lanes: usize,
        tell: &mut dyn FnMut(Remark),
    ) -> Result<Self, InterfaceError> {
        let queues = u32::try_from(lanes).unwrap_or(u32::MAX);
        let mut left = Self::default();
        for interface in on_user_path(plans) {
            match xdp::check(&XdpOptions { interface: interface.clone(), ..options.clone() }, queues) {
                Err(error @ XdpError::ProgramThere { .. }) => {
                    let sentence =
                        left.take(plans, 0, settings, Some(interface), UserPortsError::from(error).into())?;
                    tell(Remark::Warning(sentence));
                }
                checked => checked.map_err(UserPortsError::from)?,
            }
        }
        Ok(left)
    }

    /// Takes an interface out of plans, for which what is best was asked, and returns what is to be said of that. There must be others to go
    /// on with: in the plans, or `beside` them.
    ///
    /// # Errors
    /// What is in the way, if the operator has said which path it is to be, or nothing would be left.
    pub(super) fn take(
        &mut self,
        plans: &mut Vec<Plan>,
        beside: usize,
        settings: &PathSettings,
        name: Option<String>,
        error: InterfaceError,
    ) -> Result<String, InterfaceError> {
        let is_planned = |name: &String| plans.iter().any(|plan| plan.interface == *name);
        let has_others = plans.len() + beside > 1;
        let name = name.filter(|name| is_planned(name) && has_others && settings.is_best(name));
        let Some(name) = name else { return Err(error) };
        plans.retain(|plan| plan.interface != name);
        let sentence = format!(
            "interface '{name}' is left to the kernel: {}. The others go on; once that is mended, reload, or start the router again",
            with_causes(&error)
        );
        self.0.insert(name, sentence.clone());
        Ok(sentence)
    }

    /// Why, a sentence for each.
    pub(super) fn sentences(&self) -> impl Iterator<Item = &String> {
        self.0.values()
    }

    /// These without them.
    pub fn without(&self, names: &[String]) -> Vec<String> {
        names.iter().filter(|name| !self.0.contains_key(*name)).cloned().collect()
    }
}

/// An error and its causes in one sentence.
pub(super) fn with_causes(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmlane_wire::MacAddress;

    fn plans(path: Path) -> Vec<Plan> {
        let one = |(interface, path): (&str, Path)| Plan {
            interface: interface.to_owned(),
            link: 1,
            path,
            reason: "as the test says",
        };
        [("eth0", path), ("eth1", Path::User)].map(one).to_vec()
    }

    fn settings(paths: &[&str]) -> PathSettings {
        PathSettings {
            interfaces: vec!["eth0".to_owned(), "eth1".to_owned()],
            paths: Paths::parse(paths.iter().copied()).unwrap(),
            ..PathSettings::default()
        }
    }

    fn refused() -> BpfError {
        BpfError::Attach {
            interface: "eth0".to_owned(),
            hook: "XDP",
            reason: "Operation not supported".to_owned(),
            source: None,
        }
    }

    #[test]
    fn what_refuses_xdp_goes_by_tc_if_it_was_best() {
        let best = settings(&[]);
        let mut planned = plans(Path::Xdp);
        assert!(go_on_by_tc(&mut planned, &best, &refused()));
        assert_eq!((planned[0].path, planned[1].path), (Path::Tc, Path::User));
        assert!(!go_on_by_tc(&mut planned, &best, &refused()), "tc is refused, too");
        assert!(!go_on_by_tc(&mut plans(Path::Xdp), &settings(&["xdp"]), &refused()));
    }

    #[test]
    fn what_only_lanes_do_makes_them_the_best() {
        let of = |settings: &PathSettings| ["eth0", "eth1"].map(|name| settings.choice(name));
        let mut best = settings(&["eth1=tc"]);
        assert_eq!(of(&best), [PathChoice::Best, PathChoice::Only(Path::Tc)]);
        best.source_checks = SourceChecks::parse(["eth0=strict"]).unwrap();
        assert_eq!(of(&best), [PathChoice::Only(Path::User), PathChoice::Only(Path::Tc)]);
        let with_mode = PathSettings { has_xdp_mode: true, ..settings(&["eth1=tc"]) };
        assert_eq!(of(&with_mode), [PathChoice::Only(Path::User), PathChoice::Only(Path::Tc)]);
    }

    #[test]
    fn the_kernel_keeps_what_is_occupied_if_others_are_left() {
        let mut left = LeftInterfaces::default();
        let mut planned = plans(Path::Xdp);
        let name = || Some("eth0".to_owned());
        left.take(&mut planned, 0, &settings(&["xdp"]), name(), refused().into()).unwrap_err();
        assert_eq!(planned.len(), 2, "it is to be path xdp or none");
        let sentence = left.take(&mut planned, 0, &settings(&[]), name(), refused().into()).unwrap();
        assert!(sentence.starts_with("interface 'eth0' is left to the kernel: "), "{sentence}");
        assert!(sentence.contains("Operation not supported. The others go on"), "{sentence}");
        assert_eq!(left.without(&settings(&[]).interfaces), ["eth1"]);
        let name = Some("eth1".to_owned());
        left.take(&mut planned, 0, &settings(&[]), name, refused().into()).unwrap_err();
        assert_eq!(planned.len(), 1, "it is the last");
    }

    #[test]
    fn an_error_is_said_with_its_cause_and_each_once() {
        let source = "no address".parse::<MacAddress>().unwrap_err();
        let said = format!("the address of interface warmlane0: {source}");
        let of_port = UserPortsError::PuntAddress { interface: "warmlane0".to_owned(), source };
        assert_eq!(with_causes(&InterfaceError::from(of_port)), said);
    }
}
