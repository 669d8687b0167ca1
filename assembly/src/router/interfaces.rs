//! The interfaces of a running router and their paths: some come and go, and the others go on.

use super::paths::{LeftInterfaces, PathSettings, Remark, go_on_by_tc, with_causes};
use super::ports::{UserPorts, UserPortsError};
use crate::lanes::Assembly;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use thiserror::Error;
use warmlane_counters::Registry;
use warmlane_router::control::kernel::View;
use warmlane_router::control::{Follower, Reference};
use warmlane_router::paths::{BpfError, KernelPaths, Path, PathView, Plan, PlanError};
use warmlane_xdp::XdpError;

/// Why an interface can't be forwarded by as it is to be.
#[derive(Debug, Error)]
pub enum InterfaceError {
    /// It has no path.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Something is said of an interface that isn't among those of the router.
    #[error("path names '{interface}', which is no interface of this router: `ip link` lists them")]
    Unknown {
        /// Its name.
        interface: String,
    },
    /// Sources are to be checked where that can't be.
    #[error(
        "urpf is not checked on path {path} of interface '{interface}': say --path {interface}=user, or --urpf {interface}=off and use the kernel's rp_filter"
    )]
    SourceCheck {
        /// The interface.
        interface: String,
        /// Its path.
        path: Path,
    },
    /// A program of a path in the kernel is not at work.
    #[error(transparent)]
    Program(#[from] BpfError),
    /// Lanes can't have it.
    #[error(transparent)]
    Ports(#[from] UserPortsError),
    /// It can't come to lanes that run.
    #[error("interface '{interface}' can't come to path user")]
    ToUserPath {
        /// Its name.
        interface: String,
        /// Why not.
        source: UserPortsError,
    },
    /// Lanes would be best for what is there again.
    #[error("path user would be best ({reason}), for which the router has to be started again")]
    UserPathIsBest {
        /// Why.
        reason: &'static str,
    },
}

impl InterfaceError {
    fn of_program(&self) -> Option<&BpfError> {
        match self {
            Self::Program(error) => Some(error),
            _ => None,
        }
    }

    /// The interface at which something else is, or that refuses, if that is all that is wrong.
    fn refusing_interface(&self) -> Option<&str> {
        match self {
            Self::Program(error) => error.refusing_interface(),
            Self::Ports(UserPortsError::Xdp(XdpError::ProgramThere { name, .. }))
            | Self::ToUserPath { source: UserPortsError::Xdp(XdpError::ProgramThere { name, .. }), .. } => {
                Some(name)
            }
            _ => None,
        }
    }
}

/// All interfaces that have been on kernel paths, for who looks at them beside the router.
#[derive(Clone, Debug, Default)]
pub struct PathViews(Arc<Mutex<Vec<PathView>>>);

impl PathViews {
    fn add(&self, view: PathView) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(view);
    }

    /// Those that there are now.
    pub fn all(&self) -> Vec<PathView> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A router's interfaces, each on its path.
pub struct Interfaces {
    /// What is said of them.
    settings: PathSettings,
    plans: Vec<Plan>,
    paths: KernelPaths,
    registry: Arc<Registry>,
    views: PathViews,
    /// Those that were deleted.
    gone: BTreeSet<String>,
    /// Those that are left to the kernel, occupied by others or refused by their drivers.
    left: LeftInterfaces,
    /// Those whose drivers refused at the start what makes path user the best.
    refused: BTreeSet<String>,
    /// Why one that is there again could not be taken, as it was last said.
    refusals: BTreeMap<String, String>,
}

impl Interfaces {
    /// Puts those on kernel paths that are to be there. What the programs count goes into the registry. Where something is in the way, and the path
    /// was to be the best, the interface is left to the kernel, as those are that are `left` already. Drivers have `refused` lanes for some.
    /// What there is to say goes to `tell` at once.
    ///
    /// # Errors
    /// [`InterfaceError`]: an interface can't be taken, and has to be.
    pub fn open(
        mut plans: Vec<Plan>,
        (mut left, refused): (LeftInterfaces, BTreeSet<String>),
        settings: PathSettings,
        offload_established: bool,
        follower: &mut Follower,
        registry: &Arc<Registry>,
        tell: &mut dyn FnMut(Remark),
    ) -> Result<Self, InterfaceError> {
        // What stands there already is known before a packet is forwarded past it.
        follower.set_links(plans.iter().map(|plan| plan.link).collect());
        let mut paths = KernelPaths::new();
        if offload_established && let Err(error) = paths.offload_established() {
            tell(Remark::Note(error.to_string()));
        }
        while let Err(error) = change(&mut paths, &plans, &[], follower.view(), tell) {
            if go_on_by_tc(&mut plans, &settings, &error) {
                continue;
            }
            let refusing = error.refusing_interface().map(str::to_owned);
            let sentence = left.take(&mut plans, 0, &settings, refusing, error.into())?;
            tell(Remark::Warning(sentence));
        }
        let (registry, gone, refusals) = (Arc::clone(registry), BTreeSet::new(), BTreeMap::new());
        let views = PathViews::default();
        let interfaces = Self { settings, plans, paths, registry, views, gone, left, refused, refusals };
        interfaces.paths.views().for_each(|view| interfaces.add_view(view.clone()));
        Ok(interfaces)
    }

    fn add_view(&self, view: PathView) {
        self.registry.add(view.labels(), view.clone());
        self.views.add(view);
    }

    /// Those that are or were on kernel paths, also when there are more.
    pub fn views(&self) -> PathViews {
        self.views.clone()
    }

    /// What each takes.
    pub fn plans(&self) -> &[Plan] {
        &self.plans
    }

    /// How it is with them, in a line.
    pub fn sentence(&self) -> String {
        let one = |plan: &Plan| {
            let is_gone = self.gone.contains(&plan.interface);
            let path = if is_gone { "gone".to_owned() } else { plan.path.to_string() };
            format!("{} ({path})", plan.interface)
        };
        let all: Vec<String> = self.plans.iter().map(one).collect();
        format!("forwarding between {}", all.join(", "))
    }

    /// How it is with them, for the control socket.
    pub fn status(&self) -> Value {
        let one = |plan: &Plan| {
            let mut one = json!({
                "interface": plan.interface, "path": plan.path.to_string(), "reason": plan.reason,
            });
            if self.gone.contains(&plan.interface) {
                one["gone"] = json!(true);
            }
            one
        };
        self.plans.iter().map(one).collect()
    }

    /// What of paths inside the kernel is not as an operator may think, a sentence each.
    pub fn warnings(&self, view: &View) -> Vec<String> {
        let mut warnings = self.paths.warnings(view);
        warnings.extend(self.left.sentences().cloned());
        warnings
    }

    /// Compares paths inside the kernel with it: see [`KernelPaths::verify`].
    pub fn verify(&mut self, reference: Reference<'_>) -> (usize, Vec<String>) {
        self.paths.verify(reference)
    }

    /// Follows the kernel. `changed` says that links or addresses may be different; then those are taken again that were deleted and
    /// made anew. What there is to say goes to `tell` at once.
    pub fn follow(
        &mut self,
        follower: &mut Follower,
        user_ports: &mut UserPorts,
        assembly: &Assembly,
        changed: bool,
        tell: &mut dyn FnMut(Remark),
    ) {
        follower.set_links(self.plans.iter().map(|plan| plan.link).collect());
        self.paths.follow(follower.view(), changed);
        follower.set_flow_count(self.paths.flow_count());
        self.paths.take_remarks().into_iter().map(Remark::Warning).for_each(&mut *tell);
        if !changed {
            return;
        }
        for plan in self.gone(follower.view()) {
            if plan.path == Path::User && !self.gone.contains(&plan.interface) {
                tell(Remark::Warning(went_away(&plan.interface)));
            }
            if let Some(link) =
                follower.view().link_by_name(&plan.interface).filter(|link| link.is_up).cloned()
            {
                follower.set_links(self.plans.iter().map(|plan| plan.link).chain([link.index]).collect());
                let again = match plan.path {
                    Path::User => {
                        let taken = user_ports.add(&link.name, follower, assembly, tell);
                        taken.map(|()| Plan { link: link.index, ..plan }).map_err(InterfaceError::from)
                    }
                    Path::Xdp | Path::Tc => self.take_again(&link.name, follower.view(), tell),
                };
                self.say_again(&link.name, again, tell);
            }
        }
        self.gone = self.gone(follower.view()).into_iter().map(|plan| plan.interface).collect();
    }

    /// Of those on path user that are not there, a sentence each.
    pub fn losses(&self) -> Vec<String> {
        let is_lost = |plan: &&Plan| plan.path == Path::User && self.gone.contains(&plan.interface);
        self.plans.iter().filter(is_lost).map(|plan| went_away(&plan.interface)).collect()
    }

    /// Those whose interfaces are not there.
    fn gone(&self, view: &View) -> Vec<Plan> {
        self.plans.iter().filter(|plan| !view.links().contains_key(&plan.link)).cloned().collect()
    }

    /// Puts one that is there again on a path in the kernel.
    fn take_again(
        &mut self,
        name: &str,
        view: &View,
        tell: &mut dyn FnMut(Remark),
    ) -> Result<Plan, InterfaceError> {
        let mut planned = self.settings.plan(&[name.to_owned()], &self.refused, tell)?;
        let plan = planned.pop().ok_or_else(|| PlanError::NoInterface { name: name.to_owned() })?;
        if plan.path == Path::User {
            return Err(InterfaceError::UserPathIsBest { reason: plan.reason });
        }
        self.change(std::slice::from_ref(&plan), &[], view, tell)?;
        Ok(plan)
    }

    /// Goes by the new plan of an interface that is there again, or says once why there is none.
    fn say_again(&mut self, name: &str, again: Result<Plan, InterfaceError>, tell: &mut dyn FnMut(Remark)) {
        match again {
            Ok(plan) => {
                self.refusals.remove(name);
                tell(Remark::Note(format!(
                    "interface '{name}' is there again: path {}: {}",
                    plan.path, plan.reason
                )));
                self.plans.iter_mut().filter(|known| known.interface == *name).for_each(|known| {
                    *known = plan.clone();
                });
            }
            Err(error) => {
                let sentence = format!(
                    "interface '{name}' is there again, and left to the kernel: {}",
                    with_causes(&error)
                );
                if self.refusals.insert(name.to_owned(), sentence.clone()).as_ref() != Some(&sentence) {
                    tell(Remark::Warning(sentence));
                }
            }
        }
    }

    /// Goes on with the interfaces and paths of new settings: says what is different then, a sentence each. Those that were left to the kernel
    /// are tried again; where something is in the way at one that is new, that is left to the kernel as at the start. What else there is to
    /// say goes to `tell` at once.
    ///
    /// # Errors
    /// An interface can't be taken, and nothing is different.
    pub fn reload(
        &mut self,
        new: PathSettings,
        follower: &mut Follower,
        user_ports: &mut UserPorts,
        assembly: &Assembly,
        tell: &mut dyn FnMut(Remark),
    ) -> Result<Vec<String>, InterfaceError> {
        let known = |name: &String| self.plans.iter().find(|plan| plan.interface == *name);
        let is_changed =
            |name: &&String| known(name).is_none() || self.settings.choice(name) != new.choice(name);
        let changed: Vec<String> = new.interfaces.iter().filter(is_changed).cloned().collect();
        let mut planned = new.plan(&changed, &self.refused, tell)?;
        // What it would be again is left as it is.
        planned.retain(|plan| known(&plan.interface).is_none_or(|known| known.path != plan.path));
        let is_closed = |plan: &&Plan| {
            !new.interfaces.contains(&plan.interface)
                || planned.iter().any(|new| new.interface == plan.interface)
        };
        let closed: Vec<Plan> = self.plans.iter().filter(is_closed).cloned().collect();
        let others = self.plans.iter().filter(|plan| !is_closed(plan)).count();
        let have_paths: BTreeSet<String> = self.plans.iter().map(|plan| plan.interface.clone()).collect();
        // What stands there already is known before a packet is forwarded past it.
        follower.set_links(self.plans.iter().chain(&planned).map(|plan| plan.link).collect());
        let mut left = LeftInterfaces::default();
        while let Err(error) = self.replace(&planned, &closed, follower, user_ports, assembly, tell) {
            if error.of_program().is_some_and(|error| go_on_by_tc(&mut planned, &new, error)) {
                continue;
            }
            // One that has a path keeps it.
            let refusing = error.refusing_interface().filter(|name| !have_paths.contains(*name));
            let refusing = refusing.map(str::to_owned);
            left.take(&mut planned, others, &new, refusing, error)?;
        }
        let sentence = |new: &Plan| {
            let before = closed.iter().find(|plan| plan.interface == new.interface);
            let before = before.map_or("is new".to_owned(), |plan| format!("was on path {}", plan.path));
            format!("interface '{}' {before}: path {}: {}", new.interface, new.path, new.reason)
        };
        let mut said: Vec<String> = planned.iter().map(sentence).collect();
        let removed = closed.iter().filter(|plan| !new.interfaces.contains(&plan.interface));
        said.extend(removed.map(|plan| format!("interface '{}' is left to the kernel", plan.interface)));
        said.extend(left.sentences().cloned());
        let plan =
            |name: &String| planned.iter().chain(&self.plans).find(|plan| plan.interface == *name).cloned();
        self.plans = new.interfaces.iter().filter_map(plan).collect();
        self.gone.retain(|name| new.interfaces.contains(name));
        (self.left, self.settings) = (left, new);
        Ok(said)
    }

    /// Puts interfaces on paths, all or none, and takes others away; who is in both lists moves.
    fn replace(
        &mut self,
        opened: &[Plan],
        closed: &[Plan],
        follower: &mut Follower,
        user_ports: &mut UserPorts,
        assembly: &Assembly,
        tell: &mut dyn FnMut(Remark),
    ) -> Result<(), InterfaceError> {
        // What moves from lanes leaves them first, as what it moves to may need its place in the driver; what moves to them has left that
        // place by then. Those that leave for good come last, for that can't fail, unless others need their ports.
        let (to_lanes, to_kernel): (Vec<&Plan>, Vec<&Plan>) =
            opened.iter().partition(|plan| plan.path == Path::User);
        let from_lanes = closed.iter().filter(|plan| plan.path == Path::User);
        let is_crowded = to_lanes.len() > user_ports.vacant();
        let goes_first =
            |plan: &&Plan| is_crowded || to_kernel.iter().any(|other| other.interface == plan.interface);
        let (moving, leaving): (Vec<&Plan>, Vec<&Plan>) = from_lanes.partition(goes_first);
        for plan in &moving {
            user_ports.remove(&plan.interface, follower, &self.registry);
        }
        let mut undo = Undo { moving, ..Undo::default() };
        let result = self.change(opened, closed, follower.view(), tell).and_then(|()| {
            undo.is_changed = true;
            for plan in &to_lanes {
                user_ports.add(&plan.interface, follower, assembly, tell).map_err(|source| {
                    InterfaceError::ToUserPath { interface: plan.interface.clone(), source }
                })?;
                undo.added.push(plan);
            }
            Ok(())
        });
        if let Err(error) = result {
            for plan in undo.added {
                user_ports.remove(&plan.interface, follower, &self.registry);
            }
            let mut undone = Vec::new();
            if undo.is_changed {
                undone.push(self.change(closed, opened, follower.view(), tell));
            }
            for plan in undo.moving {
                let again = user_ports.add(&plan.interface, follower, assembly, tell);
                undone.push(again.map_err(InterfaceError::from));
            }
            for failure in undone.into_iter().filter_map(Result::err) {
                let sentence = format!("what changed could not all be undone: {}", with_causes(&failure));
                tell(Remark::Warning(sentence));
            }
            return Err(error);
        }
        for plan in leaving {
            user_ports.remove(&plan.interface, follower, &self.registry);
        }
        Ok(())
    }

    fn change(
        &mut self,
        opened: &[Plan],
        closed: &[Plan],
        view: &View,
        tell: &mut dyn FnMut(Remark),
    ) -> Result<(), InterfaceError> {
        for new in change(&mut self.paths, opened, closed, view, tell)? {
            self.add_view(new);
        }
        Ok(())
    }
}

/// See [`KernelPaths::change`]. What there is to say is said, whether it succeeds or not.
fn change(
    paths: &mut KernelPaths,
    opened: &[Plan],
    closed: &[Plan],
    view: &View,
    tell: &mut dyn FnMut(Remark),
) -> Result<Vec<PathView>, BpfError> {
    let changed = paths.change(opened, closed, view);
    paths.take_remarks().into_iter().map(Remark::Warning).for_each(tell);
    changed
}

/// What has been done so far of what is to be done as a whole.
#[derive(Default)]
struct Undo<'a> {
    /// Those that have left lanes for the kernel.
    moving: Vec<&'a Plan>,
    /// Paths in the kernel are others.
    is_changed: bool,
    /// Those that lanes have got.
    added: Vec<&'a Plan>,
}

fn went_away(interface: &str) -> String {
    format!("interface {interface} went away: it was deleted or moved to another network namespace")
}
