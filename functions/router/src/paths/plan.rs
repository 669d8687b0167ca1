//! Which path each interface of a router takes.

use std::collections::HashMap;
use std::io;

use thiserror::Error;

use super::best;
use super::choice::{Path, PathChoice};
use crate::control::kernel::{Link, LinkIndex, RequestSocket, View, XdpFeatures};
use crate::control::local;

/// The path of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The interface.
    pub interface: String,
    /// Its number.
    pub link: LinkIndex,
    /// Its path.
    pub path: Path,
    /// Why this one, in words.
    pub reason: &'static str,
}

/// Why an interface has no path.
#[derive(Debug, Error)]
pub enum PlanError {
    /// The kernel doesn't tell what interfaces there are.
    #[error("can't list the kernel's interfaces: {source}")]
    List {
        /// What it said.
        #[from]
        source: io::Error,
    },
    /// There is none of this name.
    #[error("there is no interface {name:?} in this network namespace: `ip link` lists them")]
    NoInterface {
        /// The name.
        name: String,
    },
    /// It was named twice.
    #[error("interface '{name}' is there twice: name each once")]
    Twice {
        /// Its name.
        name: String,
    },
    /// It is switched off.
    #[error("interface {name:?} is down: `ip link set {name} up`")]
    Down {
        /// Its name.
        name: String,
    },
    /// Another interface takes what comes in there.
    #[error(
        "interface {name:?} is a member of {kind} {master:?}, which takes what comes in there: name that one instead, or `ip link set {name} nomaster`"
    )]
    Member {
        /// Its name.
        name: String,
        /// The other's.
        master: String,
        /// What that is.
        kind: String,
    },
    /// It carries no Ethernet frames.
    #[error(
        "interface {name:?} carries no Ethernet frames, so packets can only leave by it, and that by path tc: say --path {name}=tc"
    )]
    NotEthernet {
        /// Its name.
        name: String,
    },
    /// It leads nowhere.
    #[error("interface {name:?} is the loopback, where nothing is forwarded: leave it out")]
    Loopback {
        /// Its name.
        name: String,
    },
}

/// Which path each of these interfaces takes, of those of the calling thread's network namespace. `choice` is what the operator says.
/// Interfaces on the user path are only looked up here: their driver checks them.
///
/// # Errors
/// [`PlanError`]
pub fn plan(interfaces: &[String], choice: impl Fn(&str) -> PathChoice) -> Result<Vec<Plan>, PlanError> {
    let mut view = View::default();
    RequestSocket::new()?.list_links(|event| view.apply(event))?;
    // A kernel that can't be asked tells as little as one that doesn't know.
    let features = XdpFeatures::list().ok().flatten();
    let mut plans: Vec<Plan> = Vec::new();
    for name in interfaces {
        if plans.iter().any(|plan| plan.interface == *name) {
            return Err(PlanError::Twice { name: name.clone() });
        }
        plans.push(plan_one(name, choice(name), &view, features.as_ref())?);
    }
    Ok(plans)
}

fn plan_one(
    name: &str,
    choice: PathChoice,
    view: &View,
    features: Option<&HashMap<LinkIndex, XdpFeatures>>,
) -> Result<Plan, PlanError> {
    let link = view.link_by_name(name).ok_or_else(|| PlanError::NoInterface { name: name.to_owned() })?;
    let of_link = features.and_then(|features| features.get(&link.index)).copied();
    let (path, reason) = match choice {
        PathChoice::Only(path) => (path, "as it was asked for"),
        PathChoice::Best => best::path(link, of_link, false),
        PathChoice::BestInKernel => best::path(link, of_link, true),
    };
    if link.mac == Some([0; 6]) {
        return Err(PlanError::Loopback { name: name.to_owned() });
    }
    if path != Path::User {
        check(link, path, view)?;
    }
    Ok(Plan { interface: name.to_owned(), link: link.index, path, reason })
}

fn check(link: &Link, path: Path, view: &View) -> Result<(), PlanError> {
    let name = link.name.clone();
    if link.mac.is_none() && path == Path::Xdp {
        return Err(PlanError::NotEthernet { name });
    }
    if let Some(master) = link.master.and_then(|master| view.links().get(&master))
        && local::is_member(view, link)
    {
        return Err(PlanError::Member { name, master: master.name.clone(), kind: master.kind.clone() });
    }
    if !link.is_up {
        return Err(PlanError::Down { name });
    }
    Ok(())
}
