//! Which of the kernel's tables a packet is looked up in, by its rules (`ip rule`).
//!
//! What of a rule depends on the interface that a packet comes in by is decided here, so that each interface has a list of
//! steps; what depends on the destination becomes part of the table that the steps are flattened to. Rules that look at
//! more of a packet may be about it or not: what gets as far as them is left to the kernel, which knows.

use std::collections::BTreeSet;

use warmlane_table::{IpPrefix, Ipv4Prefix, Ipv6Prefix};

use super::desired::HopKey;
use super::kernel::{LinkIndex, Rule, RuleAction, View};

/// The kernel's tables where it has no rules, in this order (`include/uapi/linux/rtnetlink.h`).
pub(crate) const USUAL_TABLES: [u32; 3] = [255, 254, 253];

/// What is done with packets that no step before this one has settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    /// Only with packets to these addresses.
    pub(crate) to: Option<IpPrefix>,
    pub(crate) action: StepAction,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StepAction {
    /// Look them up in this table of the kernel's; if it has no route, go on.
    Table(u32),
    /// Do this, whatever their destination.
    Settle(HopKey),
}

/// The steps for packets of one interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Policy {
    ipv4: Vec<Step>,
    ipv6: Vec<Step>,
    /// The table of the VRF that the interface is in.
    pub(crate) vrf: Option<u32>,
}

impl Policy {
    /// For packets that come in by an interface; `None`: by one that no rule and no VRF names.
    pub(crate) fn of(view: &View, link: Option<LinkIndex>) -> Self {
        let link = link.and_then(|link| view.links().get(&link));
        let vrf = link.and_then(|link| view.links().get(&link.master?)?.vrf_table);
        let name = link.map(|link| link.name.as_str());
        let steps = |is_ipv6| {
            if link.is_some_and(|link| view.is_left(link.index, is_ipv6)) {
                return vec![Step { to: None, action: StepAction::Settle(HopKey::Punt) }];
            }
            let rules: Vec<&Rule> = view.rules().filter(|rule| rule.is_ipv6 == is_ipv6).collect();
            let mut steps = Vec::new();
            if rules.is_empty() {
                // A kernel without CONFIG_IP_MULTIPLE_TABLES.
                let all = [&USUAL_TABLES[..1], vrf.as_slice(), &USUAL_TABLES[1..]].concat();
                steps
                    .extend(all.into_iter().map(|table| Step { to: None, action: StepAction::Table(table) }));
            }
            for rule in rules {
                steps.extend(step(rule, name, vrf));
                // The kernel knows what its rules say for a VRF that has no route.
                if steps.last().is_some_and(|last| Some(&last.action) == vrf.map(StepAction::Table).as_ref())
                {
                    break;
                }
            }
            if vrf.is_some() {
                steps.push(Step { to: None, action: StepAction::Settle(HopKey::Punt) });
            }
            steps
        };
        Self { ipv4: steps(false), ipv6: steps(true), vrf }
    }

    /// The steps for packets to these addresses, or to part of them.
    pub(crate) fn steps(&self, prefix: IpPrefix) -> &[Step] {
        match prefix {
            IpPrefix::V4(_) => &self.ipv4,
            IpPrefix::V6(_) => &self.ipv6,
        }
    }

    /// The steps of each family.
    pub(crate) fn families(&self) -> [&[Step]; 2] {
        [&self.ipv4, &self.ipv6]
    }

    /// The kernel's tables that are asked, lowest number first.
    pub(crate) fn tables(&self) -> BTreeSet<u32> {
        let all = self.ipv4.iter().chain(&self.ipv6);
        all.filter_map(|step| match step.action {
            StepAction::Table(table) => Some(table),
            StepAction::Settle(_) => None,
        })
        .collect()
    }

    /// Prefixes at which the steps are others than for the addresses around them, or that steps settle as a whole.
    pub(crate) fn boundaries(&self) -> impl Iterator<Item = IpPrefix> {
        self.families().into_iter().zip(all()).flat_map(|(steps, all)| {
            steps.iter().filter_map(move |step| match (&step.to, &step.action) {
                (Some(to), _) => Some(*to),
                (None, StepAction::Settle(_)) => Some(all),
                (None, StepAction::Table(_)) => None,
            })
        })
    }

    /// Whether this is one of the [`boundaries`](Self::boundaries).
    pub(crate) fn is_boundary(&self, prefix: IpPrefix) -> bool {
        let is_all = length(prefix) == 0;
        self.steps(prefix).iter().any(|step| match (&step.to, &step.action) {
            (Some(to), _) => *to == prefix,
            (None, StepAction::Settle(_)) => is_all,
            (None, StepAction::Table(_)) => false,
        })
    }
}

impl Step {
    /// Whether the step is for all packets to these addresses.
    pub(crate) fn covers(&self, prefix: IpPrefix) -> bool {
        self.to.is_none_or(|to| contains(to, prefix))
    }
}

/// What a rule means for packets that come in by the interface of this name; `None` if nothing.
fn step(rule: &Rule, name: Option<&str>, vrf: Option<u32>) -> Option<Step> {
    let about = |action| Some(Step { to: rule.to, action });
    let left_to_the_kernel = about(StepAction::Settle(HopKey::Punt));
    if let Some(wanted) = &rule.comes_in_by {
        // Whether a rule for a VRF's device, or for one of its members, is about the members' packets depends on the
        // kernel's version (`net/core/fib_rules.c: fib_rule_match`).
        if vrf.is_some() {
            return left_to_the_kernel;
        }
        if Some(wanted.as_str()) != name {
            return None;
        }
    }
    if rule.is_for_output {
        // Nothing is known of the way out before the lookup, but for VRFs.
        return if vrf.is_some() { left_to_the_kernel } else { None };
    }
    if rule.looks_at_more {
        return if rule.action == RuleAction::Nothing { None } else { left_to_the_kernel };
    }
    match rule.action {
        RuleAction::Table(table) => about(StepAction::Table(table)),
        RuleAction::Vrf => vrf.and_then(|table| about(StepAction::Table(table))),
        RuleAction::Blackhole => about(StepAction::Settle(HopKey::Drop)),
        RuleAction::Unreachable => about(StepAction::Settle(HopKey::Unreachable)),
        RuleAction::Prohibit => about(StepAction::Settle(HopKey::Prohibited)),
        RuleAction::Nothing => None,
        RuleAction::Other => left_to_the_kernel,
    }
}

/// Whether all addresses of one prefix are in the other.
pub(crate) fn contains(wide: IpPrefix, narrow: IpPrefix) -> bool {
    match (wide, narrow) {
        (IpPrefix::V4(wide), IpPrefix::V4(narrow)) => wide.covers(&narrow),
        (IpPrefix::V6(wide), IpPrefix::V6(narrow)) => wide.covers(&narrow),
        _ => false,
    }
}

/// The prefixes that all addresses of each family are in.
pub(crate) fn all() -> [IpPrefix; 2] {
    [IpPrefix::V4(Ipv4Prefix::all()), IpPrefix::V6(Ipv6Prefix::all())]
}

/// Bits of a prefix.
pub(crate) fn length(prefix: IpPrefix) -> u8 {
    match prefix {
        IpPrefix::V4(prefix) => prefix.length(),
        IpPrefix::V6(prefix) => prefix.length(),
    }
}
