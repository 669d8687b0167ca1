//! The ports of the user path. Interfaces come to them and leave them while lanes run.

use super::paths::Remark;
use super::punt::PuntInterface;
use crate::lanes::{Assembly, StartError, share_out};
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thiserror::Error;
use warmlane_counters::Registry;
use warmlane_driver_common::{Interface, InterfaceName, LocalSink as _};
use warmlane_kernel::KernelError;
use warmlane_lane::{LanePort, Output, Waker};
use warmlane_mem::Pool;
use warmlane_port::replaceable::{self, Replacer};
use warmlane_port::{Port, PortView};
use warmlane_router::control::Follower;
use warmlane_router::datapath::{Entrance, Entrances};
use warmlane_sync::ring::RingError;
use warmlane_wire::ethernet::MacAddressError;
use warmlane_xdp::{
    self as xdp, LeftFamilies, Monitor, TunnelEnds, Umem, XdpError, XdpMode, XdpOptions, XdpPort,
};

/// Ports for interfaces that come later, besides those that others leave.
const SPARE: usize = 8;

/// How long lanes are waited for to let go of what was taken from them: on a busy machine one may stand still for seconds.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How many vacant ports [`UserPorts`] have besides those of so many interfaces: none without lanes.
pub const fn spare_ports(interfaces: usize) -> usize {
    if interfaces == 0 { 0 } else { SPARE }
}

/// Why lanes can't have an interface.
#[derive(Debug, Error)]
pub enum UserPortsError {
    /// AF_XDP can't be had there.
    #[error(transparent)]
    Xdp(#[from] XdpError),
    /// The kernel can't be given what only it can forward.
    #[error("the interface by which the kernel gets packets")]
    Punt(#[source] KernelError),
    /// That interface has no Ethernet address.
    #[error("the address of interface {interface}")]
    PuntAddress {
        /// Its name.
        interface: String,
        /// What is wrong.
        source: MacAddressError,
    },
    /// The queues don't go round.
    #[error(transparent)]
    Share(#[from] StartError),
    /// Queues can't be made replaceable.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// The programs can't be told what is the box's own.
    #[error(transparent)]
    Local(#[from] io::Error),
    /// No interface was on path user at the start.
    #[error(
        "there are no lanes, as no interface was on path user, for which the router has to be started again"
    )]
    NoLanes,
    /// No port is vacant.
    #[error("lanes have {ports} ports, all of which have interfaces: the router has to be started again")]
    NoPort {
        /// How many there are.
        ports: usize,
    },
    /// It can't be sent by from each lane.
    #[error("it has fewer queues to send by than there are lanes")]
    FewQueues,
}

/// The ports of path user, without the queues that lanes have of them.
pub struct UserPorts {
    /// By the port's number.
    slots: Vec<Slot>,
    /// What is the same for all.
    options: XdpOptions,
    /// Those that lanes are best for only as long as nothing is copied.
    only_without_copies: BTreeSet<String>,
    entrances: Entrances,
    umem: Umem,
    pool: Pool,
    /// Lanes: each port has a queue to send by for each.
    lanes: usize,
    /// What tells lanes that sleep of queues that they were given.
    waker: Waker,
}

/// A port that an interface can have.
struct Slot {
    replacer: Replacer,
    /// Of what leads to the kernel.
    punt_replacer: Replacer,
    taken: Option<Taken>,
}

/// What an interface has of it, without queues, which lanes have.
struct Taken {
    interface: String,
    monitor: Monitor,
    punt: PuntInterface,
    /// That checksums are missing was said.
    is_said: bool,
}

impl Taken {
    fn warning(&self) -> Option<String> {
        let name = &self.interface;
        (self.monitor.left_checksums() > 0).then(|| {
            format!(
                "interface {name}: senders leave checksums to hardware that there isn't, so what lanes forward of theirs is broken: \
                 `ethtool -K OTHER tx off txvlan off` at its other end, or --path {name}=tc"
            )
        })
    }
}

/// What lanes have of them, for [`Assembly::route`].
pub struct LaneQueues {
    /// Ports of interfaces.
    pub(super) ports: Vec<Port>,
    /// Those of the kernel's entrances.
    pub(super) punts: Vec<PortView>,
    pub(super) entrances: Entrances,
    /// By lane: ports behind those.
    vacant: Vec<Vec<LanePort>>,
    /// By lane, and then by port: ways to the kernel.
    outputs: Vec<Vec<(String, Output)>>,
}

impl LaneQueues {
    /// Checks that they are for so many lanes.
    ///
    /// # Errors
    /// [`StartError::OtherLanes`].
    pub(super) fn check(&self, lanes: usize) -> Result<(), StartError> {
        match self.vacant.len() {
            opened if self.ports.is_empty() || opened == lanes => Ok(()),
            opened => Err(StartError::OtherLanes { opened, lanes }),
        }
    }

    /// What the next lane has besides the ports of interfaces: vacant ports, and ways to the kernel.
    pub(super) fn take_extra(&mut self) -> (Vec<LanePort>, Vec<(String, Output)>) {
        (self.vacant.remove(0), self.outputs.remove(0))
    }
}

impl UserPorts {
    /// Opens ports of these interfaces, and [some](spare_ports) vacant ones; `options` are for all of them, and some are opened
    /// `only_without_copies`. Each has a queue to send by for each lane. Packets come from here on. What there is to say goes to `tell` at
    /// once.
    ///
    /// # Errors
    /// [`UserPortsError`]: an interface can't be had, or what leads to the kernel.
    pub fn open(
        interfaces: &[String],
        options: XdpOptions,
        only_without_copies: BTreeSet<String>,
        lanes: usize,
        pool: &Pool,
        follower: &Follower,
        tell: &mut dyn FnMut(Remark),
    ) -> Result<(Self, LaneQueues), UserPortsError> {
        // All that can be refused comes before the first packet.
        let punts: Vec<_> =
            interfaces.iter().map(|_| PuntInterface::open(lanes, pool)).collect::<Result<_, _>>()?;
        let (umem, count) = (Umem::new(pool)?, interfaces.len() + spare_ports(interfaces.len()));
        let entrances = Entrances::new(count);
        let mut all = Self {
            slots: Vec::new(),
            options,
            only_without_copies,
            entrances: entrances.clone(),
            umem,
            pool: pool.clone(),
            lanes,
            waker: Waker::default(),
        };
        let (mut ports, mut vacant, mut of_punts, mut views) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (number, (interface, (mut punt, punt_port))) in interfaces.iter().zip(punts).enumerate() {
            let opened = all.open_one(interface, follower)?;
            all.connect(number, &mut punt, &opened, tell);
            let XdpPort { port, monitor } = opened;
            views.push(punt_port.view());
            let ((port, replacer), (punt_port, punt_replacer)) =
                (replaceable::wrap(port)?, replaceable::wrap(punt_port)?);
            ports.push(port);
            of_punts.push(punt_port);
            let taken = Taken { interface: interface.clone(), monitor, punt, is_said: false };
            all.slots.push(Slot { replacer, punt_replacer, taken: Some(taken) });
        }
        for number in interfaces.len()..count {
            let (port, replacer) =
                replaceable::wrap(replaceable::vacant(format!("vacant{number}"), "xdp", lanes))?;
            let mut punt_port = replaceable::vacant(format!("vacant{number}-kernel"), "tap", lanes);
            punt_port.receive.clear();
            let (punt_port, punt_replacer) = replaceable::wrap(punt_port)?;
            vacant.push(port);
            of_punts.push(punt_port);
            all.slots.push(Slot { replacer, punt_replacer, taken: None });
        }
        all.set_local(follower)?;
        let outputs = share_out(of_punts, lanes)?.into_iter().map(outputs).collect();
        let queues =
            LaneQueues { ports, punts: views, entrances, vacant: share_out(vacant, lanes)?, outputs };
        Ok((all, queues))
    }

    /// Lets the kernel get what only it can forward of the port of this number as if it had come in there, if that can be.
    fn connect(&self, number: usize, punt: &mut PuntInterface, port: &XdpPort, tell: &mut dyn FnMut(Remark)) {
        let (entrance, note) = punt.connect(port);
        self.entrances.set(number, entrance);
        note.map(Remark::Note).into_iter().for_each(tell);
    }

    fn options_of(&self, interface: &str) -> XdpOptions {
        let is_only_without_copies = self.only_without_copies.contains(interface);
        let mode = if is_only_without_copies { XdpMode::ZeroCopy } else { self.options.mode };
        XdpOptions { interface: interface.to_owned(), mode, ..self.options.clone() }
    }

    fn open_one(&self, interface: &str, follower: &Follower) -> Result<XdpPort, XdpError> {
        let queues = u32::try_from(self.lanes).unwrap_or(u32::MAX);
        xdp::open(&self.options_of(interface), queues, &self.umem, &follower.local_addresses())
    }

    /// Tells each port's program what is the kernel's own.
    ///
    /// # Errors
    /// A program's maps can't be written.
    pub fn set_local(&self, follower: &Follower) -> io::Result<()> {
        let addresses = follower.local_addresses();
        let tunnel_ends = follower.tunnel_ends().into_iter().map(|(address, end)| {
            // As many ports as a program can know: those of others stay with the kernel.
            let mut ports = end.udp_ports.into_iter().chain([0; 2]);
            let udp_ports = [(); 2].map(|()| ports.next().unwrap_or(0));
            (address, TunnelEnds { udp_ports, packets: end.takes_packets })
        });
        let tunnel_ends = tunnel_ends.collect();
        for Taken { interface, monitor, .. } in self.taken() {
            monitor.local.set_addresses(&addresses)?;
            monitor.local.set_tunnel_ends(&tunnel_ends)?;
            let [ipv4, ipv6] = [false, true].map(|is_ipv6| follower.is_left(interface, is_ipv6));
            monitor.local.set_own(follower.local_mac(interface), LeftFamilies { ipv4, ipv6 })?;
        }
        Ok(())
    }

    fn taken(&self) -> impl Iterator<Item = &Taken> {
        self.slots.iter().filter_map(|slot| slot.taken.as_ref())
    }

    /// What of them is not as an operator may think, a sentence each.
    pub fn warnings(&self) -> Vec<String> {
        self.taken().filter_map(Taken::warning).collect()
    }

    /// Says to `tell` what they [warn](Self::warnings) of, each once.
    pub fn warn(&mut self, tell: &mut dyn FnMut(Remark)) {
        let taken = self.slots.iter_mut().filter_map(|slot| slot.taken.as_mut());
        for taken in taken.filter(|taken| !taken.is_said) {
            if let Some(warning) = taken.warning() {
                taken.is_said = true;
                tell(Remark::Warning(warning));
            }
        }
    }

    /// Lets it wake the lanes that have them.
    #[must_use]
    pub fn with_waker(self, waker: Waker) -> Self {
        Self { waker, ..self }
    }

    /// Closes what lanes have given back.
    pub fn collect(&mut self) {
        for slot in &mut self.slots {
            slot.replacer.collect();
            slot.punt_replacer.collect();
        }
    }

    /// Waits until lanes have let go of all that was taken from them. An interface that left a moment ago has its old program and
    /// sockets until then, and could not come again.
    fn settle(&mut self) {
        let end = Instant::now() + TIMEOUT;
        self.waker.wake();
        for slot in &mut self.slots {
            for replacer in [&mut slot.replacer, &mut slot.punt_replacer] {
                while !replacer.settle() && Instant::now() < end {}
            }
        }
    }

    /// How many ports have no interface.
    pub(super) fn vacant(&self) -> usize {
        self.slots.iter().filter(|slot| slot.taken.is_none()).count()
    }

    /// Lets lanes forward by an interface: one that is new, or was made again.
    ///
    /// # Errors
    /// It can't be; its packets stay with the kernel.
    pub(super) fn add(
        &mut self,
        interface: &str,
        follower: &mut Follower,
        assembly: &Assembly,
        tell: &mut dyn FnMut(Remark),
    ) -> Result<(), UserPortsError> {
        if self.slots.is_empty() {
            return Err(UserPortsError::NoLanes);
        }
        let had_it = |slot: &Slot| slot.taken.as_ref().is_some_and(|taken| taken.interface == interface);
        let number = self.slots.iter().position(had_it);
        let number = number.or_else(|| self.slots.iter().position(|slot| slot.taken.is_none()));
        let number = number.ok_or(UserPortsError::NoPort { ports: self.slots.len() })?;
        self.settle();
        let queues = u32::try_from(self.lanes).unwrap_or(u32::MAX);
        xdp::check(&self.options_of(interface), queues)?;
        if let Some(taken) = &mut self.slots[number].taken {
            // It leads to an interface that is no more, and stands in the way.
            taken.punt.disconnect();
        }
        let opened = self.open_one(interface, follower)?;
        let name = InterfaceName::new(interface).map_err(XdpError::from)?;
        let link = Interface::find(&name).map_err(XdpError::from)?;
        let slot = &mut self.slots[number];
        if !slot.replacer.fits(&opened.port, self.lanes) {
            return Err(UserPortsError::FewQueues);
        }
        let mut punt = if let Some(taken) = slot.taken.take() {
            taken.punt
        } else {
            let (punt, port) = PuntInterface::open(self.lanes, &self.pool)?;
            assembly.add_punt(&port.view());
            slot.punt_replacer.send_by(port.transmit);
            punt
        };
        self.connect(number, &mut punt, &opened, tell);
        opened.port.view().register(assembly.registry());
        let XdpPort { port, monitor } = opened;
        let slot = &mut self.slots[number];
        slot.taken = Some(Taken { interface: interface.to_owned(), monitor, punt, is_said: false });
        // Packets find what they need: first a queue to leave by, then routes that lead there, and only then they come.
        slot.replacer.send_by(port.transmit);
        follower.set_port(number, interface, link.index, link.mtu);
        slot.replacer.receive_by(port.receive);
        self.waker.wake();
        self.set_local(follower)?;
        Ok(())
    }

    /// Gives an interface back to the kernel. What lanes have of its packets they forward yet.
    pub(super) fn remove(&mut self, interface: &str, follower: &mut Follower, registry: &Arc<Registry>) {
        let has_it = |slot: &&mut Slot| slot.taken.as_ref().is_some_and(|taken| taken.interface == interface);
        let Some((number, slot)) = self.slots.iter_mut().enumerate().find(|(_, slot)| has_it(slot)) else {
            return;
        };
        let Some(Taken { interface, monitor, mut punt, .. }) = slot.taken.take() else { return };
        // If it comes again, somebody has said so.
        self.only_without_copies.remove(&interface);
        // If the interface is gone, nothing comes any more in any case.
        let _ =
            monitor.local.set_own(follower.local_mac(&interface), LeftFamilies { ipv4: true, ipv6: true });
        slot.replacer.receive_by(Vec::new());
        self.waker.wake();
        slot.replacer.settle();
        follower.leave_port(number);
        // What is on its way there nevertheless is counted as the interface's.
        let vacant = |name: &str, driver| {
            let port = replaceable::vacant(name, driver, self.lanes);
            port.view().register(registry);
            port.transmit
        };
        slot.replacer.send_by(vacant(&interface, "xdp"));
        slot.punt_replacer.send_by(vacant(punt.name(), "tap"));
        self.waker.wake();
        slot.replacer.settle();
        slot.punt_replacer.settle();
        punt.disconnect();
        self.entrances.set(number, Entrance::Port);
    }
}

/// A lane's ways to the kernel.
fn outputs(ports: Vec<LanePort>) -> Vec<(String, Output)> {
    ports.into_iter().filter_map(|port| Some((port.name, Output::from(port.transmit?)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_for_as_many_lanes_as_there_were_to_be() {
        let queues_of = |ports: Vec<Port>| LaneQueues {
            ports,
            punts: Vec::new(),
            entrances: Entrances::new(1),
            vacant: share_out(Vec::new(), 2).unwrap(),
            outputs: vec![Vec::new(), Vec::new()],
        };
        let queues = queues_of(vec![replaceable::vacant("eth0".to_owned(), "xdp", 2)]);
        queues.check(2).unwrap();
        for lanes in [1, 3] {
            let sentence = queues.check(lanes).unwrap_err().to_string();
            assert!(
                sentence.contains("2 lanes") && sentence.contains(&format!("not for {lanes}")),
                "{sentence}"
            );
        }
        // Without ports there are no lanes.
        queues_of(Vec::new()).check(1).unwrap();
    }
}
