//! Follows the kernel: takes in its events, keeps the tables like it, requests neighbours, and lists everything anew when in
//! doubt.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io::{self, Read as _};
use std::net::IpAddr;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use thiserror::Error;
use warmlane_counters::counters;
use warmlane_forward::control::{LaneRoutes, LiveError, TableCounters, TableCountersView};
use warmlane_sync::mailbox::{Receiver, mailbox};
use warmlane_sync::ring::RingError;
use warmlane_table::IpPrefix;

use super::desired::{Desired, RoutedPort};
use super::fib::Fib;
use super::hook_watch::{AboutHooks, HookWatch};
use super::kernel::{
    Event, EventSocket, Hook, LinkIndex, Received, RequestSocket, Route, RouteQuestion, Switches, View,
};
use super::local;
use super::settings::RouterSettings;
use super::tunnels::LocalEnd;
use super::warnings;
use crate::coarse_clock::coarse_now;
use crate::datapath::{Hold, HoldLimits, NeighbourKey, TunnelEnds, Waker};

mod comparison;
mod neighbours;
mod remark;

use remark::remark;

/// Datagrams of events that are taken in before the tables follow.
const DATAGRAMS: usize = 2048;

/// Rounds of events that are taken in before everything is listed anew.
const MOST_ROUNDS: u32 = 10_000;

/// After something that makes the kernel take routes away without a word, how long to wait for more of the kind.
const SETTLE: Duration = Duration::from_millis(100);

/// Requests for neighbours that a lane may have under way.
const REQUESTS: usize = 1024;

/// Why a router could not start.
#[derive(Debug, Error)]
pub enum FollowError {
    /// Netlink doesn't work.
    #[error("can't {action} by netlink: {source}")]
    Netlink {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// An interface went away.
    #[error("there is no interface {name:?} in this network namespace: `ip link` lists them")]
    NoInterface {
        /// Its name.
        name: String,
    },
    /// Tables could not be made.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// A mailbox could not be made.
    #[error(transparent)]
    Ring(#[from] RingError),
}

counters! {
    /// What was heard from the kernel, and asked of it.
    pub struct KernelCounters => KernelCountersView {
        /// Events received from the kernel.
        events: Note, "events";
        /// Times that the tables were brought up to date.
        updates: Note, "updates";
        /// Times that everything was listed anew.
        resyncs: Note, "resyncs";
        /// Times that the kernel's buffer for events was full.
        overruns: Note, "overruns";
        /// Neighbours asked for.
        neighbour_requests: Note, "requests";
        /// Such requests that the kernel refused.
        neighbour_failures: Note, "requests";
        /// Changes that the tables had no space for.
        table_errors: Note, "changes";
    }
}

/// The control side of a router.
pub struct Follower {
    pub(crate) view: View,
    pub(crate) fib: Fib,
    events: EventSocket,
    pub(crate) request_socket: RequestSocket,
    requests: Vec<Receiver<NeighbourKey>>,
    waker: Waker,
    wakeups: UnixStream,
    asked: HashMap<(LinkIndex, IpAddr), Instant>,
    checked: Instant,
    resync: Option<Instant>,
    /// Since when the kernel couldn't be heard.
    deaf: Option<Instant>,
    /// The tables were too full, or a lane hung: nothing is tried until everything is.
    held_back: bool,
    counters: KernelCounters,
    tables: TableCounters,
    /// When the kernel told last of something else than neighbours, by the coarse clock.
    changed: u64,
    /// What the box itself has may have changed.
    local_changed: bool,
    remarks: Vec<String>,
    hook_watch: HookWatch,
    /// What is done about hooks.
    about_hooks: AboutHooks,
}

impl Follower {
    /// Lists the kernel's network, and fills the tables for up to this many lanes. `ports` are names of interfaces, which
    /// must not be opened for larger packets than they carry now; `vacant` ports may get interfaces [later](Self::set_port).
    ///
    /// # Errors
    /// [`FollowError`].
    pub fn start(
        ports: &[String],
        vacant: usize,
        lanes: usize,
        hash_seed: u64,
        settings: &RouterSettings,
    ) -> Result<Self, FollowError> {
        let netlink = |action| move |source| FollowError::Netlink { action, source };
        // First listen, then read, so that nothing falls in between.
        let events = EventSocket::new().map_err(netlink("listen to the kernel"))?;
        let mut request_socket = RequestSocket::new().map_err(netlink("ask the kernel"))?;
        let mut view =
            list(&mut request_socket, !ports.is_empty()).map_err(netlink("list the kernel's routes"))?;
        let ports = ports.iter().map(|name| {
            let link =
                view.link_by_name(name).ok_or_else(|| FollowError::NoInterface { name: name.clone() })?;
            let name = name.clone();
            Ok(RoutedPort { name, link: link.index, mtu_limit: mtu_limit(link.mtu) })
        });
        let mut ports = ports.collect::<Result<Vec<_>, FollowError>>()?;
        ports.extend(std::iter::repeat_with(RoutedPort::vacant).take(vacant));
        // The ends of tunnels, the forwarder and the hold stage of each lane read the tables.
        let mut fib = Fib::new(ports, 3 * lanes, hash_seed)?;
        fib.follow_networks(&view);
        let (mut hook_watch, about_hooks) = (HookWatch::start(), AboutHooks::of(settings));
        view.set_hooks(about_hooks.holding(hook_watch.list(&view, fib.all_ports())));
        view.set_switches(switches(&view, fib.all_ports()));
        // Who starts a router is told by `warnings`.
        hook_watch.take_remarks(&view);
        let mut changes = view.take_changes();
        changes.links = true;
        changes.objects = true;
        fib.update(&view, &changes)?;
        fib.set(&view, settings)?;
        let (wakeups, end) = UnixStream::pair().map_err(netlink("make a socket"))?;
        wakeups.set_nonblocking(true).map_err(netlink("make a socket"))?;
        end.set_nonblocking(true).map_err(netlink("make a socket"))?;
        let waker = Waker { sleeps: Arc::new(AtomicBool::new(false)), end: Arc::new(end) };
        let follower = Self {
            view,
            fib,
            events,
            request_socket,
            requests: Vec::new(),
            waker,
            wakeups,
            asked: HashMap::new(),
            checked: Instant::now(),
            resync: None,
            deaf: None,
            held_back: false,
            counters: KernelCounters::new(),
            tables: TableCounters::new(),
            changed: coarse_now(),
            local_changed: false,
            remarks: Vec::new(),
            hook_watch,
            about_hooks,
        };
        follower.count_entries();
        Ok(follower)
    }

    fn count_entries(&self) {
        let (ipv4, ipv6) = self.fib.route_counts();
        self.tables.ipv4_routes().set(ipv4 as u64);
        self.tables.ipv6_routes().set(ipv6 as u64);
        self.tables.next_hops().set(self.fib.next_hop_count() as u64);
        self.tables.neighbours().set(self.view.neighbour_count() as u64);
    }

    /// Says how many flows are forwarded past netfilter.
    pub fn set_flow_count(&self, flows: usize) {
        self.tables.flows().set(flows as u64);
    }

    /// Whether what the kernel says is heard.
    pub fn follows(&self) -> bool {
        self.deaf.is_none()
    }

    /// Says which links the router has by now, on all paths, so that programs of others there are found.
    pub fn set_links(&mut self, links: BTreeSet<LinkIndex>) {
        if self.hook_watch.set_links(links) {
            let hooks = self.hook_watch.list(&self.view, self.fib.all_ports());
            self.take_hooks(hooks);
        }
    }

    /// Goes on with these settings, from the next bursts on.
    ///
    /// # Errors
    /// [`FollowError::Live`]: a lane hangs.
    pub fn set(&mut self, settings: &RouterSettings) -> Result<(), FollowError> {
        self.about_hooks = AboutHooks::of(settings);
        let hooks = self.hook_watch.list(&self.view, self.fib.all_ports());
        self.take_hooks(hooks);
        Ok(self.fib.set(&self.view, settings)?)
    }

    /// Goes on with an interface for the port of this number, which was opened for packets of up to `mtu` bytes.
    pub fn set_port(&mut self, number: usize, name: &str, link: LinkIndex, mtu: u32) {
        self.change_port(number, RoutedPort { name: name.to_owned(), link, mtu_limit: mtu_limit(mtu) });
    }

    /// Goes on without an interface for the port of this number. Packets that would leave by it are the kernel's.
    pub fn leave_port(&mut self, number: usize) {
        self.change_port(number, RoutedPort::vacant());
    }

    fn change_port(&mut self, number: usize, settings: RoutedPort) {
        self.fib.set_port(number, settings);
        self.view.note_other_port();
        self.view.set_switches(switches(&self.view, self.fib.all_ports()));
        self.catch_up();
    }

    /// What a lane needs: the tables, the ends of tunnels, and the stage that holds packets, as far as `limits` allow, for neighbours
    /// that the kernel is asked for.
    ///
    /// # Errors
    /// [`FollowError::Live`]: more lanes than the router was started for.
    pub fn lane(
        &mut self,
        name: &str,
        limits: HoldLimits,
    ) -> Result<(LaneRoutes, TunnelEnds, Hold), FollowError> {
        let (sender, receiver) = mailbox(REQUESTS)?;
        let (routes, of_hold) = (self.fib.lane(name)?, self.fib.lane(&format!("{name}, hold"))?);
        let of_tunnels = self.fib.lane(&format!("{name}, tunnels"))?;
        let tunnels = TunnelEnds::new(of_tunnels, self.requests.len() as u16);
        self.requests.push(receiver);
        let hold = Hold::new(of_hold, sender, self.waker.clone(), limits, self.fib.ports().len());
        Ok((routes, tunnels, hold))
    }

    /// The kernel's network as it is known.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The tables.
    pub fn fib(&self) -> &Fib {
        &self.fib
    }

    /// The addresses that are the kernel's own: packets to them are not for lanes.
    pub fn local_addresses(&self) -> HashSet<IpAddr> {
        local::addresses(&self.view)
    }

    /// Those of them that are ends of tunnels which lanes take packets out of, and what comes to lanes there.
    pub fn tunnel_ends(&self) -> BTreeMap<IpAddr, LocalEnd> {
        self.fib.arrivals().local_ends()
    }

    /// The Ethernet address of frames that are for the port of this name itself, and not for a bridge that it is a member of,
    /// say. That of a group if there is none.
    pub fn local_mac(&self, port: &str) -> [u8; 6] {
        local::mac(&self.view, self.link_of(port))
    }

    /// Whether all packets of a family that come in by the port of this name are left to the kernel.
    pub fn is_left(&self, port: &str, is_ipv6: bool) -> bool {
        self.view.is_left(self.link_of(port), is_ipv6)
    }

    fn link_of(&self, port: &str) -> LinkIndex {
        self.fib.ports().iter().find(|known| known.name == port).map_or(0, |port| port.link)
    }

    /// Whether either, or what else paths inside the kernel are told, may have changed since the last time.
    pub fn take_local_change(&mut self) -> bool {
        std::mem::take(&mut self.local_changed)
    }

    /// What happened so far, to be added to a program's registry.
    pub fn counters(&self) -> KernelCountersView {
        self.counters.view()
    }

    /// How full tables are, to be added to a program's registry.
    pub fn table_counters(&self) -> TableCountersView {
        self.tables.view()
    }

    /// What people should know and haven't been told yet.
    pub fn take_remarks(&mut self) -> Vec<String> {
        std::mem::take(&mut self.remarks)
    }

    /// Whether lanes forward by this link: a port, or a VLAN on one.
    pub(crate) fn is_ours(&self, link: LinkIndex) -> bool {
        Desired::new(&self.view, self.fib.all_ports()).port_of(link).is_some()
    }

    /// Whether an interface of this name is a port, or a VLAN on one.
    pub fn knows(&self, name: &str) -> bool {
        self.fib.ports().iter().any(|port| port.name == name)
            || self.view.link_by_name(name).is_some_and(|link| self.is_ours(link.index))
    }

    /// What is not as an operator may think, a sentence each.
    pub fn warnings(&self) -> Vec<String> {
        warnings::all(&self.view, self.fib.all_ports(), self.about_hooks.bypass_netfilter)
    }

    /// Whether lanes forward, so that their tables are kept like the kernel's routes. Else only what programs inside the kernel are told of
    /// these is known here.
    pub fn has_lanes(&self) -> bool {
        !self.fib.ports().is_empty()
    }

    /// The route that the kernel has for packets of the box's own to an address, with all its paths.
    pub(crate) fn ask_for_route(&mut self, destination: IpAddr) -> io::Result<Option<(IpPrefix, Route)>> {
        let (ingress, source, protocol, ports, tos) = (None, None, 0, [0; 2], 0);
        let question = RouteQuestion { ingress, source, destination, protocol, ports, tos };
        self.request_socket.whole_route_of(&question)
    }

    /// Takes in all that the kernel has said so far, and what follows from it.
    fn drain(&mut self) {
        for _ in 0..64 {
            self.receive();
            self.catch_up();
            if self.resync.is_some() {
                self.start_over();
            } else if !self.has_events() {
                break;
            }
        }
    }

    fn has_events(&self) -> bool {
        let events = self.events.descriptor();
        let mut all = [PollFd::from_borrowed_fd(events, PollFlags::IN)];
        matches!(poll(&mut all, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(count) if count > 0)
    }

    /// Waits until something is to be done, at most `timeout`, and does it. `others` are waited for, too; says whether any of
    /// them is ready.
    pub fn poll(&mut self, timeout: Duration, others: &[PollFd<'_>]) -> bool {
        self.waker.sleeps.store(true, Ordering::SeqCst);
        let requested = self.answer_requests();
        let timeout =
            if requested || (self.view.has_changed() && !self.held_back) { Duration::ZERO } else { timeout };
        let timeout = match self.resync {
            Some(at) => timeout.min(at.saturating_duration_since(Instant::now())),
            None => timeout,
        };
        let ready = self.wait(timeout.min(self.hook_watch.due()), others);
        self.waker.sleeps.store(false, Ordering::SeqCst);
        self.receive();
        self.answer_requests();
        if let Some(hooks) = self.hook_watch.changed(&self.view, self.fib.all_ports()) {
            self.take_hooks(hooks);
        }
        self.catch_up();
        if self.resync.is_some_and(|at| at <= Instant::now()) {
            self.start_over();
        }
        self.check_stale();
        ready
    }

    fn wait(&mut self, timeout: Duration, others: &[PollFd<'_>]) -> bool {
        let descriptors = [self.events.descriptor(), self.wakeups.as_fd()];
        let ours = descriptors.into_iter().chain(self.hook_watch.descriptors());
        let ours = ours.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        let mut all: Vec<PollFd<'_>> = ours.chain(others.iter().cloned()).collect();
        let timeout = Timespec::try_from(timeout).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 0 });
        // Interrupted by a signal: the caller looks what it was.
        let _ = poll(&mut all, Some(&timeout));
        let ready = all.iter().rev().take(others.len()).any(|fd| !fd.revents().is_empty());
        let mut bytes = [0; 64];
        while matches!((&self.wakeups).read(&mut bytes), Ok(count) if count > 0) {}
        ready
    }

    fn receive(&mut self) {
        let (view, counters, remarks) = (&mut self.view, &self.counters, &mut self.remarks);
        let (ports, mut has_changed) = (self.fib.ports(), false);
        let received = self.events.receive(DATAGRAMS, |event| {
            counters.events().add(1);
            has_changed |= !is_of_stations(&event);
            remark(view, ports, &event, remarks);
            view.apply(event);
        });
        if has_changed || !matches!(received, Ok(Received::Everything | Received::More)) {
            self.changed = coarse_now();
        }
        match received {
            Ok(Received::Everything | Received::More) => {}
            Ok(Received::Lost) => {
                self.counters.overruns().add(1);
                self.resync = Some(Instant::now());
            }
            Err(error) => {
                self.deaf.get_or_insert_with(Instant::now);
                self.remarks.push(format!("the kernel's events can't be read: {error}"));
                self.resync = Some(Instant::now() + Duration::from_secs(1));
            }
        }
    }

    /// Goes by these hooks from now on.
    fn take_hooks(&mut self, hooks: Vec<Hook>) {
        self.view.set_hooks(self.about_hooks.holding(hooks));
        self.view.set_rule_changes(self.hook_watch.changes());
        self.view.set_switches(switches(&self.view, self.fib.all_ports()));
        self.remarks.extend(self.hook_watch.take_remarks(&self.view));
    }

    /// Brings the tables up to what is known.
    fn catch_up(&mut self) {
        if self.held_back || !(self.view.has_changed() || self.fib.has_unfinished()) {
            return;
        }
        let changes = self.view.take_changes();
        self.local_changed |= changes.links
            || changes.told
            || changes.rules
            || changes.objects
            || changes.routes.iter().any(|route| route.table == local::LOCAL_TABLE);
        if changes.in_doubt && self.resync.is_none() {
            self.resync = Some(Instant::now() + SETTLE);
        }
        self.counters.updates().add(1);
        if let Err(error) = self.fib.update(&self.view, &changes) {
            self.counters.table_errors().add(1);
            self.remarks
                .push(format!("the tables could not follow the kernel: {error}; that is tried again"));
            self.resync = Some(Instant::now() + Duration::from_secs(1));
            self.held_back = true;
        }
        self.count_entries();
        for key in &changes.neighbours {
            self.asked.remove(key);
        }
        self.check_stale_among(changes.neighbours.iter().copied());
    }

    /// Lists everything anew, and corrects what is different.
    fn start_over(&mut self) {
        // What was said before goes first. Else, where something got lost, an old state would come after the new one.
        for _ in 0..MOST_ROUNDS {
            self.resync = None;
            self.receive();
            if self.resync.is_none() && !self.has_events() {
                break;
            }
        }
        self.resync = None;
        self.held_back = false;
        self.counters.resyncs().add(1);
        let has_lanes = self.has_lanes();
        match list(&mut self.request_socket, has_lanes) {
            Ok(fresh) => {
                self.deaf = None;
                self.view.become_like(fresh);
                self.catch_up();
            }
            Err(error) => {
                self.deaf.get_or_insert_with(Instant::now);
                self.remarks.push(format!("the kernel's routes can't be listed: {error}"));
                self.resync = Some(Instant::now() + Duration::from_secs(1));
                // After an error, an answer to the old request may still come.
                if let Ok(socket) = RequestSocket::new() {
                    self.request_socket = socket;
                }
            }
        }
    }
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Follower").field("fib", &self.fib).finish_non_exhaustive()
    }
}

/// Whether an event says no more than where somebody on a link is.
fn is_of_stations(event: &Event) -> bool {
    matches!(
        event,
        Event::Neighbour(_)
            | Event::NeighbourGone(..)
            | Event::Station(..)
            | Event::StationGone(..)
            | Event::Behind(..)
            | Event::BehindGone(..)
    )
}

/// The longest packets of a port that is opened while its interface has this MTU.
fn mtu_limit(mtu: u32) -> u16 {
    u16::try_from(mtu).unwrap_or(u16::MAX)
}

/// How the kernel treats what goes on, and comes in by ports and what stands on them.
fn switches(view: &View, ports: &[RoutedPort]) -> Switches {
    let desired = Desired::new(view, ports);
    let ours = view.links().values().filter(|link| desired.port_of(link.index).is_some());
    Switches::read(ours.map(|link| (link.index, link.name.as_str())))
}

/// Lists the kernel's network: with all routes, or those that programs inside the kernel are told of.
pub(crate) fn list(socket: &mut RequestSocket, all_routes: bool) -> io::Result<View> {
    let new = || if all_routes { View::default() } else { View::for_programs() };
    let view = std::cell::RefCell::new(new());
    let start = || *view.borrow_mut() = new();
    // If the kernel changes all the time, events correct what was listed.
    socket.list_everything(start, |event| view.borrow_mut().apply(event))?;
    Ok(view.into_inner())
}
