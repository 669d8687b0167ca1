//! Reads the configuration again while packets flow.

use super::settings::Settings;
use super::{Arguments, path, service};
use anyhow::bail;
use serde_json::Value;
use warmlane::assembly::router::{Interfaces, UserPorts};
use warmlane::assembly::{Assembly, Report};
use warmlane::functions::router::control::kernel::View;
use warmlane::functions::router::control::{Follower, Host, Reference, RouterSettings};

/// What a running router goes by.
pub(super) struct Running<'a> {
    pub(super) arguments: &'a Arguments,
    pub(super) now: Settings,
    pub(super) interfaces: Interfaces,
}

impl<'a> Running<'a> {
    /// Together with what lanes have, and what is counted.
    pub(super) fn with<'b>(
        &'b mut self,
        user_ports: &'b mut UserPorts,
        assembly: &'b Assembly,
    ) -> RunningHost<'a, 'b> {
        RunningHost { running: self, user_ports, assembly }
    }

    fn reload(
        &mut self,
        follower: &mut Follower,
        user_ports: &mut UserPorts,
        assembly: &Assembly,
    ) -> anyhow::Result<Vec<String>> {
        let Some(file) = &self.arguments.config else {
            bail!("there is nothing to read again: the router was started without --config");
        };
        let new = self.arguments.settings.with_file(Some(file))?;
        let (settings, path_settings) = (new.changeable()?, new.path_settings()?);
        check_names(follower, &new, &settings)?;
        let mut changed = self.now.changes(&new)?;
        // First what holds for packets, or interfaces that come would begin with what held before: bypassing netfilter, say.
        follower.set(&settings)?;
        match self.interfaces.reload(path_settings, follower, user_ports, assembly, &mut path::tell) {
            Ok(of_interfaces) => changed.extend(of_interfaces),
            Err(error) => {
                follower.set(&self.now.changeable()?)?;
                return Err(error.into());
            }
        }
        self.now = new;
        Ok(changed)
    }
}

/// Refuses settings for interfaces that the router doesn't have, and isn't to get.
pub(super) fn check_names(
    follower: &Follower,
    asked: &Settings,
    settings: &RouterSettings,
) -> anyhow::Result<()> {
    let is_known = |name: &str| follower.knows(name) || asked.interfaces.iter().any(|known| known == name);
    match settings.source_checks.names().find(|name| !is_known(name)) {
        Some(name) => bail!(
            "urpf names '{name}', which is neither an interface of this router nor a VLAN on one: `ip link` lists them"
        ),
        None => Ok(()),
    }
}

/// What the control socket asks of the program.
pub(super) struct RunningHost<'a, 'b> {
    running: &'b mut Running<'a>,
    user_ports: &'b mut UserPorts,
    assembly: &'b Assembly,
}

impl Host for RunningHost<'_, '_> {
    fn counters(&mut self) -> Value {
        serde_json::to_value(Report::of(self.assembly)).unwrap_or_default()
    }

    fn paths(&mut self) -> Value {
        self.running.interfaces.status()
    }

    fn warnings(&mut self, view: &View) -> Vec<String> {
        let mut warnings = self.running.interfaces.warnings(view);
        warnings.extend(self.user_ports.warnings());
        warnings
    }

    fn verify(&mut self, reference: Reference<'_>) -> (usize, Vec<String>) {
        self.running.interfaces.verify(reference)
    }

    fn reload(&mut self, follower: &mut Follower) -> Result<Vec<String>, String> {
        let Self { running, user_ports, assembly } = self;
        let reloaded = service::reloading(|| running.reload(follower, user_ports, assembly));
        reloaded.map_err(|error| format!("nothing was changed: {error:#}"))
    }
}
