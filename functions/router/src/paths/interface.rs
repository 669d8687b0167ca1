//! One interface on a kernel path.

use std::sync::Arc;

use warmlane_bpf::{
    ArrayMap, AttachPoint, Attachment, BpfError, DeviceMap, HashMap as BpfHashMap, Object, PerCpuArrayMap,
    PrefixMap, QueueMap, SharedMap,
};
use warmlane_table::IpPrefix;

use super::choice::Path;
use super::copies::CopySource;
use super::flows::Flows;
use super::knowledge::Knowledge;
use super::layout::{Decision, Egress, Ingress, Question, Settings};
use super::report::PathView;
use crate::control::kernel::LinkIndex;

const IMAGE: &[u8] = warmlane_bpf::include_object!("../../bpf/forward.bpf.o");

/// The first moment of the clock that says until when a program is led: then it leaves all to the kernel.
const LONG_AGO: u64 = 1;

/// An interface with its program.
#[derive(Debug)]
pub(super) struct Interface {
    pub(super) name: String,
    pub(super) link: LinkIndex,
    pub(super) path: Path,
    /// Frames can be redirected to it, as far as is known.
    pub(super) sends_redirected: bool,
    /// It was deleted, or isn't the router's any more.
    pub(super) is_gone: bool,
    known: Knowledge,
    /// What may be in its maps besides, as telling it something went wrong halfway.
    leftovers: Option<Box<Knowledge>>,
    settings: ArrayMap<Settings>,
    vlans: BpfHashMap<u32, Ingress>,
    egresses: BpfHashMap<u32, Egress>,
    devices: DeviceMap,
    own_addresses: BpfHashMap<[u8; 4], u32>,
    mtus_ipv4: PrefixMap<[u8; 4], u32>,
    mtus_ipv6: PrefixMap<[u8; 16], u32>,
    pub(super) view: PathView,
    decisions: PerCpuArrayMap<Decision>,
    /// What the programs want to know about flows.
    pub(super) questions: QueueMap<Question>,
    shared_flows: [SharedMap; 2],
    has_flows: bool,
    object: Object,
    attachments: Vec<Attachment>,
}

impl Interface {
    /// Makes what the program needs; it isn't at work yet.
    pub(super) fn new(name: &str, link: LinkIndex, path: Path) -> Result<Self, BpfError> {
        let mut object = Object::new(IMAGE)?;
        let counters = Arc::new(object.per_cpu_array("counters")?);
        let reasons = Arc::new(object.per_cpu_array("reasons")?);
        let copies = CopySource::new(&mut object)?;
        let view = PathView { interface: name.to_owned(), path, counters, reasons, copies };
        Ok(Self {
            name: name.to_owned(),
            link,
            path,
            sends_redirected: true,
            is_gone: false,
            known: Knowledge::default(),
            leftovers: None,
            settings: object.array("settings")?,
            vlans: object.hash("vlans")?,
            egresses: object.hash("egresses")?,
            devices: object.devices("devices")?,
            own_addresses: object.hash("own_addresses")?,
            mtus_ipv4: object.prefixes("mtus_ipv4")?,
            mtus_ipv6: object.prefixes("mtus_ipv6")?,
            view,
            decisions: object.per_cpu_array("decisions")?,
            questions: object.queue("questions")?,
            shared_flows: [object.shared("flows_ipv4")?, object.shared("flows_ipv6")?],
            has_flows: false,
            object,
            attachments: Vec::new(),
        })
    }

    /// Lets the programs know of established flows, once they work.
    pub(super) fn share(&mut self, flows: &Flows) -> Result<(), BpfError> {
        let [ipv4, ipv6] = &mut self.shared_flows;
        self.has_flows = true;
        flows.share(ipv4, ipv6)
    }

    /// Lets the programs work.
    pub(super) fn attach(&mut self) -> Result<(), BpfError> {
        if self.has_flows {
            self.attachments.push(self.object.attach("warmlane_leave", &self.name, AttachPoint::TcEgress)?);
            if self.path == Path::Xdp {
                self.attachments.push(self.object.attach("warmlane_tag", &self.name, AttachPoint::Tc)?);
            }
        }
        let attachment = match self.path {
            Path::Xdp => match self.object.attach("warmlane_xdp", &self.name, AttachPoint::Xdp) {
                // With frames of several buffers the driver wants a program that knows of them.
                Err(BpfError::Attach { .. }) => {
                    self.object.attach("warmlane_frags", &self.name, AttachPoint::Xdp)?
                }
                other => other?,
            },
            Path::Tc | Path::User => self.object.attach("warmlane_tc", &self.name, AttachPoint::Tc)?,
        };
        self.attachments.push(attachment);
        Ok(())
    }

    /// Lets the program work no more. What it has counted stays.
    pub(super) fn detach(&mut self) {
        self.attachments.clear();
        self.is_gone = true;
    }

    /// Whether the program stays at work if this process is killed, unless it is told otherwise.
    pub(super) fn outlives_process(&self) -> bool {
        self.attachments.iter().any(Attachment::outlives_process)
    }

    /// Decisions of late, of packets that were looked up. One that is noted meanwhile may be missing.
    pub(super) fn decisions(&self) -> impl Iterator<Item = Decision> {
        let of_slot = |slot| {
            let (once, again) = (self.decisions.get(slot).ok()?, self.decisions.get(slot).ok()?);
            Some(once.into_iter().zip(again))
        };
        let all = (0..Decision::COUNT).filter_map(of_slot).flatten();
        all.filter_map(|(once, again)| (once == again && once.decided != 0).then_some(once))
    }

    /// Whether the program has been told other things than these, clocks aside.
    pub(super) fn is_told_other_than(&self, mut new: Knowledge) -> bool {
        new.settings.led_until = self.known.settings.led_until;
        new.settings.rules_since = self.known.settings.rules_since;
        self.known != new
    }

    /// Tells the program what is different from what it knows. What takes something away comes first.
    ///
    /// # Errors
    /// It could not be told all. Then it leaves everything to the kernel, until it has been told all another time.
    pub(super) fn tell(&mut self, new: Knowledge) -> Result<(), BpfError> {
        let (old, leftovers) = (std::mem::take(&mut self.known), self.leftovers.take());
        let result = self.tell_difference(&old, leftovers.as_deref().unwrap_or(&old), &new);
        if result.is_ok() {
            self.known = new;
        } else {
            let mut all = leftovers.unwrap_or_default();
            all.take_in(old);
            all.take_in(new);
            self.leftovers = Some(all);
            self.settings.set(0, Settings { led_until: LONG_AGO, ..Settings::default() })?;
        }
        result
    }

    /// `old` is what the program knows, `there` all that may be in its maps.
    fn tell_difference(
        &mut self,
        old: &Knowledge,
        there: &Knowledge,
        new: &Knowledge,
    ) -> Result<(), BpfError> {
        // One that is different is put in again below: by then frames find what they are redirected to.
        let is_other = |link: &LinkIndex, egress: &Egress| new.egresses.get(link) != Some(egress);
        for (link, _) in there.egresses.iter().filter(|(link, egress)| is_other(link, egress)) {
            self.egresses.remove(*link)?;
        }
        for device in there.devices.difference(&new.devices) {
            self.devices.remove(*device)?;
        }
        for vlan in there.vlans.keys().filter(|vlan| !new.vlans.contains_key(vlan)) {
            self.vlans.remove(*vlan)?;
        }
        for address in new.own_addresses.difference(&old.own_addresses) {
            self.own_addresses.insert(address.octets(), 1)?;
        }
        for address in there.own_addresses.difference(&new.own_addresses) {
            self.own_addresses.remove(address.octets())?;
        }
        for (prefix, mtu) in
            new.route_mtus.iter().filter(|(prefix, mtu)| old.route_mtus.get(prefix) != Some(mtu))
        {
            match prefix {
                IpPrefix::V4(prefix) => {
                    self.mtus_ipv4.insert(prefix.length(), prefix.first().to_be_bytes(), *mtu)?;
                }
                IpPrefix::V6(prefix) => {
                    self.mtus_ipv6.insert(prefix.length(), prefix.first().to_be_bytes(), *mtu)?;
                }
            }
        }
        for prefix in there.route_mtus.keys().filter(|prefix| !new.route_mtus.contains_key(prefix)) {
            match prefix {
                IpPrefix::V4(prefix) => {
                    self.mtus_ipv4.remove(prefix.length(), prefix.first().to_be_bytes())?;
                }
                IpPrefix::V6(prefix) => {
                    self.mtus_ipv6.remove(prefix.length(), prefix.first().to_be_bytes())?;
                }
            }
        }
        if old.settings != new.settings {
            self.settings.set(0, new.settings)?;
        }
        for (vlan, ingress) in new.vlans.iter().filter(|(vlan, ingress)| old.vlans.get(vlan) != Some(ingress))
        {
            self.vlans.insert(*vlan, *ingress)?;
        }
        for device in new.devices.difference(&old.devices) {
            self.devices.insert(*device)?;
        }
        let is_new = |link: &LinkIndex, egress: &Egress| old.egresses.get(link) != Some(egress);
        for (link, egress) in new.egresses.iter().filter(|(link, egress)| is_new(link, egress)) {
            self.egresses.insert(*link, *egress)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use warmlane_testkit::requirements;

    /// As a kernel has it that lacks a helper which the programs call: what its verifier says reaches whoever starts the router.
    #[test]
    fn why_a_program_is_refused_is_told() {
        /// `call 69` (bpf_fib_lookup), and a helper that no kernel has.
        const LOOKUP: [u8; 8] = [0x85, 0, 0, 0, 69, 0, 0, 0];
        const NONE: [u8; 8] = [0x85, 0, 0, 0, 0xff, 0x7f, 0, 0];
        if !requirements::namespaces_and(&[]) {
            return;
        }
        let mut image = IMAGE.to_vec();
        let calls: Vec<usize> = (0..image.len() - 8).filter(|&at| image[at..at + 8] == LOOKUP).collect();
        assert!(!calls.is_empty());
        for at in calls {
            image[at..at + 8].copy_from_slice(&NONE);
        }
        let mut object = Object::new(&image).unwrap();
        let error = object.attach("warmlane_tc", "lo", AttachPoint::Tc).unwrap_err();
        assert!(matches!(error, BpfError::Refused { .. }), "{error}");
        let sentence = error.to_string();
        assert!(sentence.contains("\"warmlane_tc\"") && sentence.contains("invalid func"), "{sentence}");
    }

    /// What it was told before that went wrong is not there later, if it isn't to be.
    #[test]
    fn what_finds_no_space_leaves_nothing_behind() {
        if !requirements::namespaces_and(&[]) {
            return;
        }
        let mut interface = Interface::new("w0", 7, Path::Tc).unwrap();
        let egress = |device| Egress { device, ..Egress::default() };
        let addresses = |count: u32| (0..count).map(Ipv4Addr::from_bits).collect();
        let few = Knowledge {
            egresses: [(7, egress(7)), (8, egress(8))].into(),
            own_addresses: addresses(3),
            ..Knowledge::default()
        };
        interface.tell(few.clone()).unwrap();
        // One more than there is space for.
        let many = Knowledge { own_addresses: addresses(65_537), ..few.clone() };
        for _ in 0..2 {
            interface.tell(many.clone()).unwrap_err();
            assert!(interface.is_told_other_than(many.clone()) && interface.is_told_other_than(few.clone()));
        }
        let fewer = Knowledge { egresses: [(7, egress(7))].into(), own_addresses: addresses(2), ..few };
        interface.tell(fewer.clone()).unwrap();
        assert!(!interface.is_told_other_than(fewer));
        assert!(interface.egresses.get(8).unwrap().is_none() && interface.egresses.get(7).unwrap().is_some());
        let is_known = |address: u32| interface.own_addresses.get(address.to_be_bytes()).unwrap().is_some();
        assert_eq!([0, 1, 2, 3, 65_000].map(is_known), [true, true, false, false, false]);
    }
}
