//! All interfaces on kernel paths, and what their programs are told.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use thiserror::Error;
use warmlane_bpf::BpfError;
use warmlane_table::{IpPrefix, Prefix};

use super::choice::Path;
use super::flows::Flows;
use super::interface::{Interface, Knowledge};
use super::layout::{Egress, Ingress, Settings};
use super::plan::Plan;
use super::report::PathView;
use super::switches;
use super::verify::Suspects;
use crate::coarse_clock::coarse_now;
use crate::control::kernel::{Conntrack, Link, LinkIndex, View, XdpFeatures, shortened};
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
        let mut begun = Vec::new();
        if let Err(error) = self.open(opened, view, &mut begun) {
            for index in begun {
                self.interfaces[index].detach();
            }
            self.interfaces.truncate(count);
            self.members = members;
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
        self.tell(view)?;
        // What drivers can't do yet, they may once a program is attached.
        self.remarks.truncate(remarks);
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
        let (count, decisions) = suspects.examine(interfaces, changed.max(self.told), fresh, socket);
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
    const LEAD: u64 = 3_000_000_000;
    coarse_now() + LEAD
}

/// How many prefixes with MTUs of their own the programs have space for.
const MOST_MTUS: usize = 65_536;

/// What packets to a prefix may be as long as: the least of its own MTU and of those of all around it, for which of them a packet goes by
/// is not known here.
fn route_mtus(own: &HashMap<IpPrefix, u32>) -> HashMap<IpPrefix, u32> {
    if own.len() > MOST_MTUS {
        let everything = [IpPrefix::V4(Prefix::containing(0, 0)), IpPrefix::V6(Prefix::containing(0, 0))];
        let least = own.values().copied().min().unwrap_or(0);
        return everything.into_iter().map(|prefix| (prefix, least)).collect();
    }
    let length = |prefix: &IpPrefix| match prefix {
        IpPrefix::V4(prefix) => prefix.length(),
        IpPrefix::V6(prefix) => prefix.length(),
    };
    let least = |prefix: &IpPrefix| {
        let around = (0..=length(prefix)).filter_map(|length| own.get(&shortened(*prefix, length)));
        around.copied().min().unwrap_or(0)
    };
    own.keys().map(|prefix| (*prefix, least(prefix))).collect()
}

/// Two bits for each address, as `is_own_address` in `bpf/forward.h` looks at them.
fn own_address_bits(addresses: &BTreeSet<Ipv4Addr>) -> u64 {
    let of_one = |address: &Ipv4Addr| {
        let hash = u32::from_ne_bytes(address.octets()).wrapping_mul(0x9e37_79b1);
        1_u64 << (hash >> 26) | 1 << (hash >> 20 & 63)
    };
    addresses.iter().map(of_one).fold(0, |bits, one| bits | one)
}

/// The least MTU of any route of IPv4, or of IPv6; 0 if none has one.
fn least_mtu(mtus: &HashMap<IpPrefix, u32>, of_ipv4: bool) -> u32 {
    let of_family = mtus.iter().filter(|(prefix, _)| matches!(prefix, IpPrefix::V4(_)) == of_ipv4);
    of_family.map(|(_, mtu)| *mtu).min().unwrap_or(0)
}

fn ingress(link: &Link, view: &View, offloads: bool) -> Ingress {
    // What a bridge takes is no business of routes, and what comes in by a tunnel without Ethernet headers is not as programs expect it.
    let is_ours = link.is_up && link.mac.is_some() && !local::is_member(view, link);
    let mut flags = if is_ours { switches::flags(&link.name) } else { 0 };
    for (is_ipv6, policy) in [false, true].into_iter().zip(view.switches().multipath_hash) {
        if policy.is_none() {
            flags &= !(if is_ipv6 { Ingress::FORWARDS_IPV6 } else { Ingress::FORWARDS_IPV4 });
        }
    }
    for (is_ipv6, forwards, established_only) in [
        (false, Ingress::FORWARDS_IPV4, Ingress::ESTABLISHED_ONLY_IPV4),
        (true, Ingress::FORWARDS_IPV6, Ingress::ESTABLISHED_ONLY_IPV6),
    ] {
        if offloads && !view.is_left_though_established(link.index, is_ipv6) {
            flags |= if view.is_left(link.index, is_ipv6) { established_only } else { 0 };
        } else if view.is_left(link.index, is_ipv6) {
            flags &= !forwards;
        }
    }
    Ingress { link: link.index, flags }
}

fn settings(link: &Link, view: &View, offloads: bool) -> Settings {
    let [a, b, c, d, e, f] = local::mac(view, link.index);
    Settings {
        untagged: ingress(link, view, offloads),
        mac: [a, b, c, d, e, f, 0, 0],
        checksums_left: u32::from(!link.kind.is_empty()),
        ..Settings::default()
    }
}

/// The VLANs on a link, by their number.
fn vlans(link: &Link, view: &View, offloads: bool) -> BTreeMap<u32, Ingress> {
    let on_it = view.links().values().filter(|other| other.lower == Some(link.index));
    on_it
        // Frames for another Ethernet address than the link's are the kernel's.
        .filter(|other| other.mac == link.mac)
        .filter_map(|other| Some((u32::from(other.vlan?), ingress(other, view, offloads))))
        .collect()
}

/// Where packets may leave: by these links and the VLANs on them.
fn egresses(view: &View, members: &BTreeMap<String, LinkIndex>) -> BTreeMap<LinkIndex, Egress> {
    let is_member = |link: &LinkIndex| members.values().any(|member| member == link);
    let of = |link: &Link| {
        let flags = if link.mac.is_some() { Egress::IS_ETHERNET } else { 0 };
        match (link.vlan, link.lower) {
            _ if is_member(&link.index) => Some(Egress { device: link.index, vlan: 0, flags }),
            (Some(vlan), Some(lower)) if is_member(&lower) => Some(Egress { device: lower, vlan, flags }),
            _ => None,
        }
    };
    let up = view.links().values().filter(|link| link.is_up && !view.is_left_at_egress(link.index));
    up.filter_map(|link| Some((link.index, of(link)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_mtu_around_counts() {
        let ipv4 = |text: &str| IpPrefix::V4(text.parse().unwrap());
        let ipv6 = |text: &str| IpPrefix::V6(text.parse().unwrap());
        let own = HashMap::from([
            (ipv4("10.0.0.0/8"), 1300),
            (ipv4("10.1.0.0/16"), 1400),
            (ipv4("192.0.2.0/24"), 1200),
            (ipv6("::/0"), 1280),
            (ipv6("2001:db8::/32"), 1400),
        ]);
        let all = route_mtus(&own);
        assert_eq!(all.len(), 5);
        assert_eq!(all[&ipv4("10.1.0.0/16")], 1300);
        assert_eq!(all[&ipv4("192.0.2.0/24")], 1200);
        assert_eq!(all[&ipv6("2001:db8::/32")], 1280);
        assert_eq!((least_mtu(&all, true), least_mtu(&all, false)), (1200, 1280));
        let many = (0..=MOST_MTUS as u32)
            .map(|number| (IpPrefix::V4(Prefix::containing(number << 8, 24)), 1000 + number));
        let one = route_mtus(&many.collect());
        assert_eq!((one.len(), one[&ipv4("0.0.0.0/0")], one[&ipv6("::/0")]), (2, 1000, 1000));
    }
}
