//! The interfaces of a running router and their paths: some come and go, and the others go on.

use super::path;
use super::settings::Settings;
use crate::messages;
use anyhow::bail;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use warmlane::counters::Registry;
use warmlane::functions::router::control::kernel::View;
use warmlane::functions::router::paths::{KernelPaths, Path, Plan};

/// Which they are.
pub(super) struct Interfaces {
    plans: Vec<Plan>,
    paths: KernelPaths,
    registry: Arc<Registry>,
    /// Those that were deleted.
    gone: BTreeSet<String>,
    /// Why one that is there again could not be taken, as it was last said.
    refusals: BTreeMap<String, String>,
}

impl Interfaces {
    /// Puts those on kernel paths that are to be there. What they count goes into the registry.
    pub(super) fn open(
        plans: Vec<Plan>,
        offload_established: bool,
        view: &View,
        registry: &Arc<Registry>,
    ) -> anyhow::Result<Self> {
        let mut paths = KernelPaths::new();
        if offload_established && let Err(error) = paths.offload_established() {
            messages::note(error);
        }
        paths.change(&plans, &[], view)?;
        let (registry, gone) = (Arc::clone(registry), BTreeSet::new());
        let interfaces = Self { plans, paths, registry, gone, refusals: BTreeMap::new() };
        interfaces.paths.views().for_each(|view| interfaces.registry.add(view.labels(), view.clone()));
        Ok(interfaces)
    }

    /// What each takes.
    pub(super) fn plans(&self) -> &[Plan] {
        &self.plans
    }

    /// How it is with them, in a line.
    pub(super) fn sentence(&self) -> String {
        let one = |plan: &Plan| {
            let is_gone = self.gone.contains(&plan.interface);
            let path = if is_gone { "gone".to_owned() } else { plan.path.to_string() };
            format!("{} ({path})", plan.interface)
        };
        let all: Vec<String> = self.plans.iter().map(one).collect();
        format!("forwarding between {}", all.join(", "))
    }

    /// The same for the control socket.
    pub(super) fn status(&self) -> Value {
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

    /// Follows the kernel. `changed` says that links or addresses may be different; then those are taken again that were deleted and
    /// made anew.
    pub(super) fn follow(&mut self, settings: &Settings, view: &View, changed: bool) {
        self.paths.follow(view, changed);
        self.paths.take_remarks().into_iter().for_each(messages::complain);
        if !changed {
            return;
        }
        let is_gone = |plan: &&Plan| !view.links().contains_key(&plan.link);
        let gone: BTreeSet<String> =
            self.plans.iter().filter(is_gone).map(|plan| plan.interface.clone()).collect();
        for name in &gone {
            // Lanes keep the queues that they were started with.
            let is_in_kernel =
                self.plans.iter().any(|plan| plan.interface == *name && plan.path != Path::User);
            let is_there = view.link_by_name(name).is_some_and(|link| link.is_up);
            if is_in_kernel && is_there {
                self.take_again(name, settings, view);
            }
        }
        let is_gone = |name: &String| {
            let link = self.plans.iter().find(|plan| plan.interface == *name).map(|plan| plan.link);
            link.is_some_and(|link| !view.links().contains_key(&link))
        };
        self.gone = gone.into_iter().filter(is_gone).collect();
    }

    fn take_again(&mut self, name: &String, settings: &Settings, view: &View) {
        let result = path::plan(settings, std::slice::from_ref(name)).and_then(|plans| {
            if let Some(plan) = plans.iter().find(|plan| plan.path == Path::User) {
                bail!(
                    "path user would be best ({}), for which the router has to be started again",
                    plan.reason
                );
            }
            self.change(&plans, &[], view)?;
            Ok(plans)
        });
        match result {
            Ok(plans) => {
                self.refusals.remove(name);
                for plan in plans {
                    messages::note(format_args!(
                        "interface '{name}' is there again: path {}: {}",
                        plan.path, plan.reason
                    ));
                    self.plans.iter_mut().filter(|known| known.interface == *name).for_each(|known| {
                        *known = plan.clone();
                    });
                }
            }
            Err(error) => {
                let sentence =
                    format!("interface '{name}' is there again, and left to the kernel: {error:#}");
                if self.refusals.insert(name.clone(), sentence.clone()).as_ref() != Some(&sentence) {
                    messages::complain(sentence);
                }
            }
        }
    }

    /// Goes on with the interfaces and paths of new settings: says what is different then, a sentence each.
    ///
    /// # Errors
    /// An interface can't be taken, and nothing is different; or it could only be with other lanes.
    pub(super) fn reload(
        &mut self,
        now: &Settings,
        new: &Settings,
        view: &View,
    ) -> anyhow::Result<Vec<String>> {
        let known = |name: &String| self.plans.iter().find(|plan| plan.interface == *name);
        let mut changed = Vec::new();
        for name in &new.interfaces {
            if known(name).is_none() || path::choice(now, name)? != path::choice(new, name)? {
                changed.push(name.clone());
            }
        }
        let mut planned = path::plan(new, &changed)?;
        // What it would be again is left as it is.
        planned.retain(|plan| known(&plan.interface).is_none_or(|known| known.path != plan.path));
        let is_closed = |plan: &&Plan| {
            !new.interfaces.contains(&plan.interface)
                || planned.iter().any(|new| new.interface == plan.interface)
        };
        let closed: Vec<Plan> = self.plans.iter().filter(is_closed).cloned().collect();
        if let Some(plan) = planned.iter().chain(&closed).find(|plan| plan.path == Path::User) {
            bail!(
                "the router has to be started again for interface '{}', as its path is, or would be, user",
                plan.interface
            );
        }
        self.change(&planned, &closed, view)?;
        let sentence = |new: &Plan| {
            let before = closed.iter().find(|plan| plan.interface == new.interface);
            let before = before.map_or("is new".to_owned(), |plan| format!("was on path {}", plan.path));
            format!("interface '{}' {before}: path {}: {}", new.interface, new.path, new.reason)
        };
        let mut said: Vec<String> = planned.iter().map(sentence).collect();
        let left = closed.iter().filter(|plan| !new.interfaces.contains(&plan.interface));
        said.extend(left.map(|plan| format!("interface '{}' is left to the kernel", plan.interface)));
        let plan =
            |name: &String| planned.iter().chain(&self.plans).find(|plan| plan.interface == *name).cloned();
        self.plans = new.interfaces.iter().filter_map(plan).collect();
        Ok(said)
    }

    fn change(&mut self, opened: &[Plan], closed: &[Plan], view: &View) -> anyhow::Result<()> {
        for new in self.paths.change(opened, closed, view)? {
            self.registry.add(new.labels(), new);
        }
        Ok(())
    }
}
