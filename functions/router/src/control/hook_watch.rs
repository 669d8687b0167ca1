//! Keeps up with what packets on their way pass in the kernel, and says which of them are left to it for that.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::net::netlink::{NETFILTER, XFRM};

use super::desired::{Desired, RoutedPort};
use super::kernel::{
    ChangeSocket, Hook, HookKind, HookPlace, Link, LinkIndex, View, told_hooks, untold_hooks,
};
use super::settings::RouterSettings;

/// How often what the kernel doesn't tell of is looked at.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Multicast groups (`include/uapi/linux/netfilter/nfnetlink.h: NFNLGRP_NFTABLES`, `linux/xfrm.h: XFRMNLGRP_POLICY`,
/// `linux/rtnetlink.h: RTNLGRP_TC`), each as the bit of its number.
const NFTABLES: u32 = 1 << 6;
const IPSEC_POLICY: u32 = 1 << 3;
const TRAFFIC_CONTROL: u32 = 1 << 3;

/// Hears of changes to hooks, and lists them anew.
#[derive(Debug)]
pub(crate) struct HookWatch {
    sockets: Vec<ChangeSocket>,
    /// The links of interfaces on any path.
    links: BTreeSet<LinkIndex>,
    told: Vec<Hook>,
    looked: Instant,
    /// What was said of them last.
    said: Vec<String>,
    failure: Option<String>,
    /// How often something was told, or found to be different.
    changes: u64,
}

impl HookWatch {
    /// Starts listening, in this thread's network namespace. What a kernel hasn't got is not listened to.
    pub(crate) fn start() -> Self {
        let all = [(Some(NETFILTER), NFTABLES), (Some(XFRM), IPSEC_POLICY), (None, TRAFFIC_CONTROL)];
        let sockets = all.into_iter().filter_map(|(protocol, group)| ChangeSocket::new(protocol, group).ok());
        Self {
            sockets: sockets.collect(),
            links: BTreeSet::new(),
            told: Vec::new(),
            looked: Instant::now(),
            said: Vec::new(),
            failure: None,
            changes: 0,
        }
    }

    /// Looks at these links, too, from the next time on; says whether they are others than before.
    pub(crate) fn set_links(&mut self, links: BTreeSet<LinkIndex>) -> bool {
        let are_others = self.links != links;
        self.links = links;
        are_others
    }

    /// How often hooks may have become others, or their rules.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// What to wait on.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().map(ChangeSocket::descriptor)
    }

    /// In how long they are looked at again, whatever is told.
    pub(crate) fn due(&self) -> Duration {
        LOOK_AGAIN.saturating_sub(self.looked.elapsed())
    }

    /// Lists all hooks, whatever was told.
    pub(crate) fn list(&mut self, view: &View, ports: &[RoutedPort]) -> Vec<Hook> {
        self.look(view, ports, true)
    }

    /// The hooks as they are now, if they may be others than before.
    pub(crate) fn changed(&mut self, view: &View, ports: &[RoutedPort]) -> Option<Vec<Hook>> {
        // Each is read empty.
        let was_told =
            self.sockets.iter_mut().filter_map(|socket| socket.has_changed().then_some(())).count() > 0;
        self.changes += u64::from(was_told);
        (was_told || self.due().is_zero()).then(|| self.look(view, ports, was_told || self.failure.is_some()))
    }

    fn look(&mut self, view: &View, ports: &[RoutedPort], was_told: bool) -> Vec<Hook> {
        self.looked = Instant::now();
        let desired = Desired::new(view, ports);
        let of_lanes = || view.links().values().filter(|link| desired.port_of(link.index).is_some());
        // What is in a VLAN comes in by the interface below it.
        let on_a_path = |link: &&Link| {
            let mut both = [Some(link.index), link.lower].into_iter().flatten();
            both.any(|index| self.links.contains(&index))
        };
        let ours: BTreeMap<LinkIndex, &Link> = of_lanes()
            .chain(view.links().values().filter(on_a_path))
            .map(|link| (link.index, link))
            .collect();
        let told = if was_told { told_hooks(view.links()) } else { Ok(self.told.clone()) };
        let listed: io::Result<Vec<Hook>> = told.and_then(|told| {
            let mut all = told.clone();
            all.extend(untold_hooks(of_lanes(), ours.into_values())?);
            self.told = told;
            Ok(all)
        });
        match listed {
            Ok(mut hooks) => {
                hooks.sort();
                hooks.dedup();
                self.failure = None;
                hooks
            }
            // What can't be told is taken for the worst.
            Err(error) => {
                let what = format!("what can't be listed ({error})");
                self.failure = Some(what.clone());
                let (at, kind) = (HookPlace::Everywhere, HookKind::Other);
                vec![Hook { what, ipv4: true, ipv6: true, at, kind, except_established: false }]
            }
        }
    }

    /// What is to be said of hooks that wasn't.
    pub(crate) fn take_remarks(&mut self, view: &View) -> Vec<String> {
        let now = sentences(view);
        let mut remarks: Vec<String> =
            now.iter().filter(|sentence| !self.said.contains(sentence)).cloned().collect();
        if now.is_empty() && !self.said.is_empty() {
            remarks.push(
                "packets pass nothing in the kernel any more that would keep them there: all are forwarded"
                    .to_owned(),
            );
        }
        self.said = now;
        remarks
    }
}

/// What the operator says about hooks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AboutHooks {
    /// Those that are not switches are bypassed.
    pub(crate) bypass_netfilter: bool,
    /// Netfilter's are passed by established flows.
    offload_established: bool,
}

impl AboutHooks {
    pub(crate) fn of(settings: &RouterSettings) -> Self {
        let RouterSettings { bypass_netfilter, offload_established, .. } = *settings;
        Self { bypass_netfilter, offload_established }
    }

    /// The hooks that packets are left to the kernel for.
    pub(crate) fn holding(self, mut hooks: Vec<Hook>) -> Vec<Hook> {
        hooks.retain(|hook| hook.kind == HookKind::Switch || !self.bypass_netfilter);
        for hook in &mut hooks {
            hook.except_established = self.offload_established && hook.kind == HookKind::Netfilter;
        }
        hooks
    }
}

/// Which packets are left to the kernel and why, a sentence each.
pub(crate) fn sentences(view: &View) -> Vec<String> {
    type Group = (HookPlace, bool, bool, HookKind, bool);
    let mut groups: BTreeMap<Group, Vec<&str>> = BTreeMap::new();
    let has_tunnels = view.has_tunnels();
    for hook in view.hooks().iter().filter(|hook| hook.at != HookPlace::Tunnelled || has_tunnels) {
        let group = (hook.at, hook.ipv4, hook.ipv6, hook.kind, hook.except_established);
        groups.entry(group).or_default().push(&hook.what);
    }
    let sentence = |((at, ipv4, ipv6, kind, except_established), what): (Group, Vec<&str>)| {
        let families = match (ipv4, ipv6) {
            (true, false) => "IPv4",
            (false, true) => "IPv6",
            _ => "IPv4 and IPv6",
        };
        let name = |link| view.links().get(&link).map_or("an interface", |link| link.name.as_str());
        let which = match at {
            HookPlace::Everywhere => String::new(),
            HookPlace::ComingInBy(link) => format!(" that comes in by {}", name(link)),
            HookPlace::LeavingBy(link) => format!(" that leaves by {}", name(link)),
            HookPlace::Tunnelled => " of tunnels".to_owned(),
        };
        let rest = what.len().saturating_sub(SPELLED_OUT);
        let more = if rest > 0 { format!(" and {rest} more") } else { String::new() };
        let what = what[..what.len().min(SPELLED_OUT)].join(", ");
        if kind == HookKind::Switch {
            format!("{families}{which} is left to the kernel: {what}{more}")
        } else if except_established {
            format!(
                "{families}{which} is left to the kernel, where it passes {what}{more}, until a flow is established: --offload-established \
                 takes that past it on the paths xdp and tc"
            )
        } else {
            format!(
                "{families}{which} is left to the kernel, where it passes {what}{more}; --bypass-netfilter takes it past that"
            )
        }
    };
    groups.into_iter().map(sentence).collect()
}

/// How many hooks a sentence names.
const SPELLED_OUT: usize = 4;
