//! Follows the kernel: hears its news, keeps the tables like it, asks for neighbours, and starts over when in doubt.

use std::collections::HashMap;
use std::io::{self, Read as _};
use std::net::IpAddr;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use thiserror::Error;
use warmlane_forward::control::{LaneRoutes, LiveError};
use warmlane_sync::mailbox::{Receiver, mailbox};
use warmlane_sync::ring::RingError;

use super::fib::Fib;
use super::kernel::{Event, Heard, LinkIndex, NeighbourState, News, Questions, View};
use super::resolve::{PortSettings, Resolver};
use super::settings::RouterSettings;
use super::verify::{Differences, Verdict, compare};
use super::warnings;
use crate::datapath::{Bell, PuntPort, RouterExceptions, Station};

/// Datagrams of news that are taken in before the tables follow.
const DATAGRAMS: usize = 2048;

/// Rounds of news that are taken in before everything is listed anew.
const MOST_ROUNDS: u32 = 10_000;

/// After something that makes the kernel take routes away without a word, how long to wait for more of the kind.
const SETTLE: Duration = Duration::from_millis(100);

/// Requests for neighbours that a lane may have under way.
const REQUESTS: usize = 1024;

/// A neighbour is asked for at most this often.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// How often a comparison with the kernel is repeated while it finds something.
const VERIFY_ATTEMPTS: u32 = 5;

/// How often neighbours that gateways are, and whose address is of a while ago, are checked.
const CHECK_STALE: Duration = Duration::from_secs(10);

/// Why a router could not start.
#[derive(Debug, Error)]
pub enum StartError {
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

/// What happened so far.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct FollowCounters {
    /// Messages heard from the kernel.
    pub events: u64,
    /// Times that the tables were brought up to date.
    pub updates: u64,
    /// Times that everything was listed anew.
    pub resyncs: u64,
    /// Times that the kernel had no room for its news.
    pub overruns: u64,
    /// Neighbours asked for.
    pub resolve_requests: u64,
    /// Such requests that the kernel refused.
    pub resolve_failures: u64,
    /// Changes that the tables had no room for.
    pub table_errors: u64,
}

/// The control side of a router.
pub struct Follower {
    pub(crate) view: View,
    pub(crate) fib: Fib,
    news: News,
    pub(crate) questions: Questions,
    requests: Vec<Receiver<Station>>,
    bell: Bell,
    woken: UnixStream,
    asked: HashMap<(LinkIndex, IpAddr), Instant>,
    checked: Instant,
    resync: Option<Instant>,
    /// The tables were too full, or a lane hung: nothing is tried until everything is.
    held_back: bool,
    counters: FollowCounters,
    remarks: Vec<String>,
}

impl Follower {
    /// Lists the kernel's network, and fills the tables for up to this many lanes. `ports` are names of interfaces, which
    /// must not be opened for larger packets than they carry now.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(
        ports: &[String],
        lanes: usize,
        hash_seed: u64,
        settings: &RouterSettings,
    ) -> Result<Self, StartError> {
        let netlink = |action| move |source| StartError::Netlink { action, source };
        // First listen, then read, so that nothing falls in between.
        let news = News::new().map_err(netlink("listen to the kernel"))?;
        let mut questions = Questions::new().map_err(netlink("ask the kernel"))?;
        let mut view = list(&mut questions).map_err(netlink("list the kernel's routes"))?;
        let ports = ports.iter().map(|name| {
            let link =
                view.link_by_name(name).ok_or_else(|| StartError::NoInterface { name: name.clone() })?;
            let name = name.clone();
            Ok(PortSettings {
                name,
                link: link.index,
                mtu_limit: u16::try_from(link.mtu).unwrap_or(u16::MAX),
            })
        });
        let ports = ports.collect::<Result<Vec<_>, StartError>>()?;
        let mut fib = Fib::new(ports, lanes, hash_seed)?;
        let mut changes = view.take_changes();
        changes.links = true;
        changes.objects = true;
        fib.update(&view, &changes)?;
        fib.set(&view, settings)?;
        let (woken, end) = UnixStream::pair().map_err(netlink("make a socket"))?;
        woken.set_nonblocking(true).map_err(netlink("make a socket"))?;
        end.set_nonblocking(true).map_err(netlink("make a socket"))?;
        let bell = Bell { sleeps: Arc::new(AtomicBool::new(false)), end: Arc::new(end) };
        Ok(Self {
            view,
            fib,
            news,
            questions,
            requests: Vec::new(),
            bell,
            woken,
            asked: HashMap::new(),
            checked: Instant::now(),
            resync: None,
            held_back: false,
            counters: FollowCounters::default(),
            remarks: Vec::new(),
        })
    }

    /// Goes on with these settings, from the next bursts on.
    ///
    /// # Errors
    /// [`StartError::Live`]: a lane hangs.
    pub fn set(&mut self, settings: &RouterSettings) -> Result<(), StartError> {
        Ok(self.fib.set(&self.view, settings)?)
    }

    /// What a lane needs: the tables, and who takes what can't be sent on. `punts` lead to the kernel, one for each port.
    ///
    /// # Errors
    /// [`StartError::Live`]: more lanes than the router was started for.
    pub fn lane(
        &mut self,
        name: &str,
        punts: Vec<PuntPort>,
    ) -> Result<(LaneRoutes, RouterExceptions), StartError> {
        let (sender, receiver) = mailbox(REQUESTS)?;
        let routes = self.fib.lane(name)?;
        self.requests.push(receiver);
        Ok((routes, RouterExceptions::new(sender, self.bell.clone(), punts)))
    }

    /// The kernel's network as it is known.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The tables.
    pub fn fib(&self) -> &Fib {
        &self.fib
    }

    /// What happened so far.
    pub fn counters(&self) -> FollowCounters {
        self.counters
    }

    /// What people should know and haven't been told yet.
    pub fn take_remarks(&mut self) -> Vec<String> {
        std::mem::take(&mut self.remarks)
    }

    /// Whether lanes forward by this link: a port, or a VLAN on one.
    pub(crate) fn is_ours(&self, link: LinkIndex) -> bool {
        let resolver = Resolver { view: &self.view, ports: self.fib.ports(), sources: self.fib.sources() };
        resolver.place(link).is_some()
    }

    /// Whether an interface of this name is a port, or a VLAN on one.
    pub fn knows(&self, name: &str) -> bool {
        self.fib.ports().iter().any(|port| port.name == name)
            || self.view.link_by_name(name).is_some_and(|link| self.is_ours(link.index))
    }

    /// What is not as an operator may think, a sentence each.
    pub fn warnings(&self) -> Vec<String> {
        warnings::all(&self.view, self.fib.ports())
    }

    /// Lists the kernel's routes and compares. What differs only because something changes meanwhile doesn't count.
    ///
    /// # Errors
    /// The kernel's routes can't be listed.
    pub fn verify(&mut self) -> io::Result<Verdict> {
        let mut standing: Option<Differences> = None;
        let mut routes = 0;
        for _ in 0..VERIFY_ATTEMPTS {
            let fresh = list(&mut self.questions)?;
            self.drain();
            let (mut differences, count) = compare(&fresh, &self.fib);
            routes = count;
            if let Some(before) = &standing {
                differences.retain(|place, _| before.contains_key(place));
            }
            let is_over = differences.is_empty();
            standing = Some(differences);
            if is_over {
                break;
            }
            std::thread::sleep(SETTLE);
        }
        Ok(Verdict::new(&standing.unwrap_or_default(), routes))
    }

    /// Takes in all that the kernel has said so far, and what follows from it.
    fn drain(&mut self) {
        for _ in 0..64 {
            self.hear();
            self.catch_up();
            if self.resync.is_some() {
                self.start_over();
            } else if !self.has_news() {
                break;
            }
        }
    }

    fn has_news(&self) -> bool {
        let news = self.news.descriptor();
        let mut all = [PollFd::from_borrowed_fd(news, PollFlags::IN)];
        matches!(poll(&mut all, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(count) if count > 0)
    }

    /// Waits until something is to be done, at most `patience`, and does it. `others` are looked at, too; says whether any of
    /// them is ready.
    pub fn turn(&mut self, patience: Duration, others: &[PollFd<'_>]) -> bool {
        self.bell.sleeps.store(true, Ordering::SeqCst);
        let requested = self.answer_requests();
        let patience =
            if requested || (self.view.has_changed() && !self.held_back) { Duration::ZERO } else { patience };
        let patience = match self.resync {
            Some(at) => patience.min(at.saturating_duration_since(Instant::now())),
            None => patience,
        };
        let ready = self.wait(patience, others);
        self.bell.sleeps.store(false, Ordering::SeqCst);
        self.hear();
        self.answer_requests();
        self.catch_up();
        if self.resync.is_some_and(|at| at <= Instant::now()) {
            self.start_over();
        }
        self.check_stale();
        ready
    }

    fn wait(&mut self, patience: Duration, others: &[PollFd<'_>]) -> bool {
        let descriptors = [self.news.descriptor(), self.woken.as_fd()];
        let ours = descriptors.into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        let mut all: Vec<PollFd<'_>> = ours.chain(others.iter().cloned()).collect();
        let timeout = Timespec::try_from(patience).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 0 });
        // Interrupted by a signal: the caller looks what it was.
        let _ = poll(&mut all, Some(&timeout));
        let ready = all.iter().skip(2).any(|fd| !fd.revents().is_empty());
        let mut rings = [0; 64];
        while matches!((&self.woken).read(&mut rings), Ok(count) if count > 0) {}
        ready
    }

    fn hear(&mut self) {
        let (view, counters, remarks) = (&mut self.view, &mut self.counters, &mut self.remarks);
        let ports = self.fib.ports();
        let heard = self.news.hear(DATAGRAMS, |event| {
            counters.events += 1;
            remark(view, ports, &event, remarks);
            view.apply(event);
        });
        match heard {
            Ok(Heard::Everything | Heard::More) => {}
            Ok(Heard::Lost) => {
                self.counters.overruns += 1;
                self.resync = Some(Instant::now());
            }
            Err(error) => {
                self.remarks.push(format!("the kernel's news can't be read: {error}"));
                self.resync = Some(Instant::now() + Duration::from_secs(1));
            }
        }
    }

    /// Brings the tables up to what is known.
    fn catch_up(&mut self) {
        if !self.view.has_changed() || self.held_back {
            return;
        }
        let changes = self.view.take_changes();
        if changes.in_doubt && self.resync.is_none() {
            self.resync = Some(Instant::now() + SETTLE);
        }
        self.counters.updates += 1;
        if let Err(error) = self.fib.update(&self.view, &changes) {
            self.counters.table_errors += 1;
            self.remarks
                .push(format!("the tables could not follow the kernel: {error}; that is tried again"));
            self.view.doubt_everything();
            self.resync = Some(Instant::now() + Duration::from_secs(1));
            self.held_back = true;
        }
        for key in &changes.neighbours {
            self.asked.remove(key);
        }
    }

    /// Lists everything anew, and corrects what is different.
    fn start_over(&mut self) {
        // What was said before goes first. Else, where something got lost, an old state would come after the new one.
        for _ in 0..MOST_ROUNDS {
            self.resync = None;
            self.hear();
            if self.resync.is_none() && !self.has_news() {
                break;
            }
        }
        self.resync = None;
        self.held_back = false;
        self.counters.resyncs += 1;
        match list(&mut self.questions) {
            Ok(fresh) => {
                self.view.become_like(fresh);
                self.catch_up();
            }
            Err(error) => {
                self.remarks.push(format!("the kernel's routes can't be listed: {error}"));
                self.resync = Some(Instant::now() + Duration::from_secs(1));
                // After an error, an answer to the old question may still come.
                if let Ok(questions) = Questions::new() {
                    self.questions = questions;
                }
            }
        }
    }

    /// Lets the kernel find out what lanes asked for. `true` if there was something.
    fn answer_requests(&mut self) -> bool {
        let mut any = false;
        for place in 0..self.requests.len() {
            while let Some(Ok(station)) = self.requests.get_mut(place).map(Receiver::receive) {
                any = true;
                self.ask(station.link, station.address);
            }
        }
        any
    }

    fn ask(&mut self, link: LinkIndex, address: IpAddr) {
        let now = Instant::now();
        if self.asked.get(&(link, address)).is_some_and(|asked| now - *asked < ASK_AGAIN) {
            return;
        }
        if self.asked.len() > 65_536 {
            self.asked.clear();
        }
        self.asked.insert((link, address), now);
        self.counters.resolve_requests += 1;
        if self.questions.resolve(link, address).is_err() {
            self.counters.resolve_failures += 1;
        }
    }

    /// The kernel doesn't see the packets that we send to a neighbour, so it doesn't check whether that is still there. It is
    /// asked to, as it would by itself if it sent them.
    fn check_stale(&mut self) {
        if self.checked.elapsed() < CHECK_STALE {
            return;
        }
        self.checked = Instant::now();
        let resolver = Resolver { view: &self.view, ports: self.fib.ports(), sources: self.fib.sources() };
        let is_stale = |state| matches!(state, NeighbourState::Stale(_));
        let stale: Vec<(LinkIndex, IpAddr)> = self
            .view
            .neighbours()
            .filter(|neighbour| is_stale(neighbour.state) && resolver.place(neighbour.link).is_some())
            .map(|neighbour| (neighbour.link, neighbour.address))
            .collect();
        for (link, address) in stale {
            self.ask(link, address);
        }
    }
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Follower").field("fib", &self.fib).finish_non_exhaustive()
    }
}

/// Lists the kernel's network.
pub(crate) fn list(questions: &mut Questions) -> io::Result<View> {
    let view = std::cell::RefCell::new(View::default());
    let start = || *view.borrow_mut() = View::default();
    // If the kernel changes all the time, news correct what was listed.
    questions.everything(start, |event| view.borrow_mut().apply(event))?;
    Ok(view.into_inner())
}

/// What people should know of an event, before it is taken in. That a port is gone says its driver.
fn remark(view: &View, ports: &[PortSettings], event: &Event, remarks: &mut Vec<String>) {
    let is_port = |index: LinkIndex| ports.iter().any(|port| port.link == index);
    match event {
        Event::Link(now) if is_port(now.index) => {
            let Some(before) = view.links().get(&now.index) else { return };
            if before.name != now.name {
                remarks.push(format!("interface {} is now called {}", before.name, now.name));
            }
            if before.is_up != now.is_up {
                let what = if now.is_up { "up again" } else { "down" };
                remarks.push(format!("interface {} was set {what}", now.name));
            }
            if before.is_up && now.is_up && before.has_carrier != now.has_carrier {
                let what = if now.has_carrier { "has a carrier again" } else { "has lost its carrier" };
                remarks.push(format!("interface {} {what}", now.name));
            }
            let master = now.master.filter(|_| before.master != now.master);
            if let Some(master) = master.and_then(|master| view.links().get(&master))
                && master.vrf_table.is_none()
            {
                remarks.push(format!(
                    "interface {} is a member of {} now: what comes in there is left to the kernel",
                    now.name, master.name
                ));
            }
            if before.mtu != now.mtu {
                let limit = ports.iter().find(|port| port.link == now.index).map_or(0, |port| port.mtu_limit);
                let beyond = if now.mtu > u32::from(limit) {
                    format!("; packets over {limit} bytes are not taken until Warmlane is started again")
                } else {
                    String::new()
                };
                remarks.push(format!(
                    "interface {} has an MTU of {} now, after {}{beyond}",
                    now.name, now.mtu, before.mtu
                ));
            }
        }
        _ => {}
    }
}
