//! All interfaces on kernel paths, and what their programs are told.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use thiserror::Error;
use warmlane_bpf::BpfError;

use super::choice::Path;
use super::flows::Flows;
use super::interface::Interface;
use super::knowledge::{Knowledge, egresses, least_mtu, own_address_bits, route_mtus, settings, vlans};
use super::layout::Egress;
use super::plan::Plan;
use super::report::PathView;
use super::verify::Suspects;
use crate::coarse_clock::coarse_now;
use crate::control::kernel::{Conntrack, LinkIndex, View, XdpFeatures};
use crate::control::{Reference, local};

/// How often the kernel's switches are looked at: it doesn't tell of them.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How many questions about flows an interface gets answered in a turn.
const QUESTIONS: usize = 1024;

/// Why established flows can't be forwarded past netfilter.
#[derive(Debug, Error)]
pub enum OffloadError {
    /// Conntrack can't be asked.
    #[error(
        "conntrack can't be asked ({0}), so flows of packets that pass netfilter are left to the kernel: `modprobe nf_conntrack_netlink`, or a kernel with CONFIG_NF_CT_NETLINK"
    )]
    Conntrack(#[source] io::Error),
    /// The programs' maps can't be made.
    #[error(transparent)]
    Bpf(#[from] BpfError),
}

/// Interfaces on kernel paths. Their programs end when this is dropped, or when the process ends, however it does.
#[derive(Debug)]
pub struct KernelPaths {
    interfaces: Vec<Interface>,
    /// Interfaces of the router that packets may leave by, on any path, by their names.
    members: BTreeMap<String, LinkIndex>,
    looked: Instant,
    /// Established flows that are forwarded past netfilter.
    flows: Option<Flows>,
    /// When programs were told last of something new, by the coarse clock.
    told: u64,
    /// What of netfilter's rules was known, and since when.
    rule_changes: u64,
    rules_since: u64,
    /// What went wrong the last time.
    failure: Option<String>,
    /// The same of what was wrong with flows.
    flow_failure: Option<String>,
    suspects: Suspects,
    /// What was said of the kernel's switches.
    warned: Vec<String>,
    remarks: Vec<String>,
}

impl KernelPaths {
    /// None yet.
    #[expect(clippy::new_without_default, reason = "it begins to look at the clock")]
    pub fn new() -> Self {
        Self {
            interfaces: Vec::new(),
            members: BTreeMap::new(),
            looked: Instant::now(),
            flows: None,
            told: 0,
            rule_changes: 0,
            rules_since: 0,
            failure: None,
            flow_failure: None,
            suspects: Suspects::default(),
            warned: Vec::new(),
            remarks: Vec::new(),
        }
    }

    /// Lets interfaces that are opened from now on forward established flows past netfilter.
    ///
    /// # Errors
    /// Why that can't be, with the remedy.
    pub fn offload_established(&mut self) -> Result<(), OffloadError> {
        let conntrack = Conntrack::open().map_err(OffloadError::Conntrack)?;
        self.flows = Some(Flows::new(conntrack)?);
        Ok(())
    }

    /// How many directions of established flows are forwarded past netfilter.
    pub fn flow_count(&self) -> usize {
        self.flows.as_ref().map_or(0, Flows::count)
    }

    /// Puts interfaces on their paths, all or none, and then takes others away, while those that are in neither list go on.
    /// Packets may leave by those on path user, and that is all that is known of them here. Where an interface had the same path
    /// before, its counters go on; those that are new are returned, for the registry.
    ///
    /// # Errors
    /// [`BpfError`]: nothing is different then.
    pub fn change(
        &mut self,
        opened: &[Plan],
        closed: &[Plan],
        view: &View,
    ) -> Result<Vec<PathView>, BpfError> {
        let (members, count) = (self.members.clone(), self.interfaces.len());
        let moving = self.leave_shared_hooks(opened);
        let mut begun = Vec::new();
        if let Err(error) = self.open(opened, view, &mut begun) {
            for index in begun {
                self.interfaces[index].detach();
            }
            self.interfaces.truncate(count);
            self.members = members;
            self.come_back(&moving, view);
            return Err(error);
        }
        for plan in closed {
            if !opened.iter().any(|other| other.interface == plan.interface) {
                self.members.remove(&plan.interface);
            }
        }
        let is_closed = |interface: &&mut Interface| {
            closed.iter().any(|plan| plan.interface == interface.name && plan.path == interface.path)
        };
        self.interfaces.iter_mut().filter(is_closed).for_each(Interface::detach);
        if !closed.is_empty() {
            // What was on its way there left by the others until now.
            self.follow(view, true);
            warmlane_bpf::wait_for_running();
        }
        Ok(self.interfaces.iter().skip(count).map(|interface| interface.view.clone()).collect())
    }

    /// Takes away the programs of interfaces that are to have other programs at the same hooks, as with established flows both paths have at those of
    /// tc. Returns their places.
    fn leave_shared_hooks(&mut self, opened: &[Plan]) -> Vec<usize> {
        if self.flows.is_none() {
            return Vec::new();
        }
        let is_moving = |interface: &Interface| {
            let moves = |plan: &Plan| plan.interface == interface.name && plan.path != Path::User;
            !interface.is_gone && opened.iter().any(moves)
        };
        let all = (0..self.interfaces.len()).filter(|&index| is_moving(&self.interfaces[index]));
        let moving: Vec<usize> = all.collect();
        for &index in &moving {
            self.interfaces[index].detach();
        }
        moving
    }

    /// Puts them back.
    fn come_back(&mut self, moving: &[usize], view: &View) {
        for &index in moving {
            self.interfaces[index].is_gone = false;
        }
        let told = if moving.is_empty() { Ok(()) } else { self.tell(view) };
        for &index in moving {
            if let Err(error) = self.interfaces[index].attach() {
                self.interfaces[index].detach();
                self.remarks.push(format!("{error}; what comes in there is left to the kernel"));
            }
        }
        self.remarks.extend(told.err().map(|error| error.to_string()));
    }

    /// `begun` gets the places of interfaces that were started on.
    fn open(&mut self, plans: &[Plan], view: &View, begun: &mut Vec<usize>) -> Result<(), BpfError> {
        for plan in plans {
            self.members.insert(plan.interface.clone(), plan.link);
            if plan.path == Path::User {
                continue;
            }
            let is_same =
                |known: &Interface| known.name == plan.interface && known.path == plan.path && known.is_gone;
            let index = self.interfaces.iter().position(is_same).unwrap_or(self.interfaces.len());
            if index == self.interfaces.len() {
                let mut interface = Interface::new(&plan.interface, plan.link, plan.path)?;
                if let Some(flows) = &self.flows {
                    interface.share(flows)?;
                }
                self.interfaces.push(interface);
            }
            begun.push(index);
            let interface = &mut self.interfaces[index];
            (interface.link, interface.is_gone) = (plan.link, false);
        }
        let remarks = self.remarks.len();
        let told = self.tell(view);
        // What drivers can't do yet, they may once a program is attached.
        self.remarks.truncate(remarks);
        told?;
        for &index in &*begun {
            self.interfaces[index].sends_redirected = true;
        }
        begun.iter().try_for_each(|&index| self.interfaces[index].attach())?;
        self.tell(view)
    }

    /// Follows the kernel: `changed` says that links or addresses may be different. To be called now and then also if not, since the
    /// kernel tells nothing of its switches.
    pub fn follow(&mut self, view: &View, changed: bool) {
        let rules_changed = self.flows.is_some() && self.rule_changes != view.rule_changes();
        self.rule_changes = view.rule_changes();
        if rules_changed {
            self.rules_since = coarse_now();
        }
        let changed = changed || rules_changed;
        let failure = self.learn_flows().err().map(|error| error.to_string());
        self.remarks.extend(failure.iter().filter(|_| failure != self.flow_failure).cloned());
        self.flow_failure = failure;
        if self.interfaces.is_empty() || (!changed && self.looked.elapsed() < LOOK_AGAIN) {
            return;
        }
        for interface in &mut self.interfaces {
            if !interface.is_gone && !view.links().contains_key(&interface.link) {
                interface.detach();
                self.members.remove(&interface.name);
                self.remarks.push(format!("interface {} went away: it was deleted", interface.name));
            }
        }
        let warnings = self.warnings(view);
        self.remarks.extend(warnings.iter().filter(|warning| !self.warned.contains(warning)).cloned());
        self.warned = warnings;
        let failure = self.tell(view).err().map(|error| error.to_string());
        if let Some(failure) = failure.as_ref().filter(|_| failure != self.failure) {
            self.remarks
                .push(format!("{failure}; until that is over, what comes in there is left to the kernel"));
        }
        self.failure = failure;
    }

    /// Answers what the programs want to know about flows.
    fn learn_flows(&mut self) -> Result<(), BpfError> {
        let Some(flows) = &mut self.flows else { return Ok(()) };
        // First of all space for others.
        flows.forget_idle(coarse_now())?;
        for interface in &mut self.interfaces {
            for _ in 0..QUESTIONS {
                let Some(question) = interface.questions.pop()? else { break };
                flows.learn(&question)?;
            }
        }
        Ok(())
    }

    /// What is not as an operator may think, a sentence each.
    pub fn warnings(&self, view: &View) -> Vec<String> {
        if self.interfaces.iter().all(|interface| interface.is_gone) {
            return Vec::new();
        }
        let of_flows = self.flows.as_ref().map(|flows| flows.warnings(view.switches())).unwrap_or_default();
        let policies = [("ipv4", "IPv4"), ("ipv6", "IPv6")].into_iter().zip(view.switches().multipath_hash);
        let unknown = policies.filter(|(_, policy)| policy.is_none());
        let of_policies = unknown
            .map(|((family, name), _)| {
                format!(
                    "`net.{family}.fib_multipath_hash_policy` looks deeper into packets than the kernel's lookup does for programs: on the paths xdp and tc {name} is left to the kernel, with 0 or 1 it is not"
                )
            });
        let masters = self.interfaces.iter().filter_map(|interface| {
            let link = view.links().get(&interface.link).filter(|link| local::is_member(view, link))?;
            Some((&interface.name, &view.links().get(&link.master?)?.name))
        });
        let of_masters = masters.map(|(name, master)| {
            format!(
                "interface {name} is a member of {master}, which takes what comes in there: that is left to the kernel until `ip link set {name} nomaster`"
            )
        });
        of_flows.into_iter().chain(of_policies).chain(of_masters).collect()
    }

    /// What people should know and haven't been told yet.
    pub fn take_remarks(&mut self) -> Vec<String> {
        std::mem::take(&mut self.remarks)
    }

    fn tell(&mut self, view: &View) -> Result<(), BpfError> {
        self.looked = Instant::now();
        self.note_who_sends_redirected();
        let all = self.knowledge(view);
        let mut result = Ok(());
        for (interface, mut known) in self.interfaces.iter_mut().zip(all).filter(|(one, _)| !one.is_gone) {
            if interface.is_told_other_than(known.clone()) {
                self.told = coarse_now();
            }
            if interface.outlives_process() {
                known.settings.led_until = led_until();
            }
            if let Err(error) = interface.tell(known) {
                result = Err(error);
            }
        }
        result
    }

    /// What each interface's program should know.
    fn knowledge(&self, view: &View) -> Vec<Knowledge> {
        let own_addresses = local::addresses(view).into_iter().filter_map(|address| match address {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        });
        let route_mtus = route_mtus(&view.route_mtus());
        let [ipv4_mtu, ipv6_mtu] = [true, false].map(|of_ipv4| least_mtu(&route_mtus, of_ipv4));
        let [ipv4_by_destination, ipv6_by_destination] =
            [false, true].map(|is_ipv6| u32::from(view.goes_by_destination(is_ipv6)));
        let common = Knowledge {
            route_mtus,
            egresses: egresses(view, &self.members),
            own_addresses: own_addresses.collect(),
            ..Knowledge::default()
        };
        let offloads = self.flows.is_some();
        let native = self.interfaces.iter().filter(|interface| is_redirected_to(interface));
        let native: BTreeSet<LinkIndex> = native.map(|interface| interface.link).collect();
        let one = |interface: &Interface| {
            let mut known = common.clone();
            if interface.path == Path::Xdp {
                known.devices.clone_from(&native);
                for egress in known.egresses.values_mut() {
                    if native.contains(&egress.device) {
                        egress.flags |= Egress::TAKES_FRAMES;
                    }
                }
            }
            if let Some(link) = view.links().get(&interface.link) {
                known.settings = settings(link, view, offloads);
                known.vlans = vlans(link, view, offloads);
            }
            known.settings.own_address_bits = own_address_bits(&known.own_addresses);
            known.settings.rules_since = self.rules_since;
            known.settings.offloads_established = u32::from(offloads);
            known.settings.ipv4_goes_by_destination = ipv4_by_destination;
            known.settings.ipv6_goes_by_destination = ipv6_by_destination;
            known.settings.least_route_mtu_ipv4 = ipv4_mtu;
            known.settings.least_route_mtu_ipv6 = ipv6_mtu;
            known
        };
        self.interfaces.iter().map(one).collect()
    }

    /// Interfaces whose programs have been told other things than they should know, a sentence each.
    fn untold(&self, view: &View) -> Vec<String> {
        let all = self.interfaces.iter().zip(self.knowledge(view));
        let untold = all
            .filter(|(interface, known)| !interface.is_gone && interface.is_told_other_than(known.clone()));
        untold
            .map(|(interface, _)| format!("the program of {} goes by what holds no more", interface.name))
            .collect()
    }

    /// Catches up, and compares what programs have been told, and what they have decided lately, which the kernel is asked about. Returns how
    /// many decisions were compared, and what is different, a sentence each.
    pub fn verify(&mut self, reference: Reference<'_>) -> (usize, Vec<String>) {
        let Reference { followed, fresh, changed, socket } = reference;
        self.follow(followed, true);
        let untold = self.untold(fresh);
        let mut suspects = std::mem::take(&mut self.suspects);
        let interfaces = self.interfaces.iter().filter(|interface| !interface.is_gone);
        let of_late = interfaces.flat_map(Interface::decisions);
        let (count, decisions) = suspects.examine(of_late, changed.max(self.told), fresh, socket);
        self.suspects = suspects;
        (count, [untold, decisions].concat())
    }

    /// Finds out which interfaces frames can be redirected to, and remarks on those that they can't be.
    fn note_who_sends_redirected(&mut self) {
        let on_xdp = |interface: &&mut Interface| interface.path == Path::Xdp && !interface.is_gone;
        if self.interfaces.iter_mut().filter(on_xdp).count() == 0 {
            return;
        }
        // Older kernels don't tell, and where it isn't so, what is redirected is lost there without a word.
        let features = XdpFeatures::list().ok().flatten();
        for interface in self.interfaces.iter_mut().filter(on_xdp) {
            let sends = features.as_ref().is_none_or(|features| {
                features.get(&interface.link).is_some_and(|features| features.sends_redirected())
            });
            if std::mem::replace(&mut interface.sends_redirected, sends) && !sends {
                self.remarks.push(format!(
                    "interface {} can't send what is redirected to it, so packets for it are left to the kernel: on a veth pair that needs `ethtool -K OTHER gro on` at the other end, on others a driver that can",
                    interface.name
                ));
            }
        }
    }

    /// What the programs count, which stays readable when they have ended.
    pub fn views(&self) -> impl Iterator<Item = &PathView> {
        self.interfaces.iter().map(|interface| &interface.view)
    }
}

impl Drop for KernelPaths {
    fn drop(&mut self) {
        if !self.interfaces.is_empty() {
            self.interfaces.clear();
            warmlane_bpf::wait_for_running();
        }
    }
}

fn is_redirected_to(interface: &Interface) -> bool {
    interface.path == Path::Xdp && !interface.is_gone && interface.sends_redirected
}

/// For programs that would outlive us: how long they may go on without having heard of us.
fn led_until() -> u64 {
    const LEAD: u64 = 2_000_000_000;
    coarse_now() + LEAD
}
