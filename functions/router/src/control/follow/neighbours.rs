//! Has the kernel find out and check the neighbours that lanes send to.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use warmlane_sync::mailbox::Receiver;

use super::Follower;
use crate::control::kernel::{LinkIndex, NeighbourState};

/// A neighbour is asked for at most this often.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// How often neighbours that gateways are, and whose address is of a while ago, are checked.
const CHECK_STALE: Duration = Duration::from_secs(10);

impl Follower {
    /// Lets the kernel find out what lanes asked for. `true` if there was something.
    pub(super) fn answer_requests(&mut self) -> bool {
        let mut any = false;
        for lane in 0..self.requests.len() {
            while let Some(Ok(key)) = self.requests.get_mut(lane).map(Receiver::receive) {
                any = true;
                self.ask(key.link, key.address);
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
        self.counters.neighbour_requests().add(1);
        if self.request_socket.probe(link, address).is_err() {
            self.counters.neighbour_failures().add(1);
        }
    }

    /// The kernel doesn't see the packets that we send to a neighbour, so it doesn't check whether that is still there. It is
    /// asked to, as it would by itself if it sent them.
    pub(super) fn check_stale(&mut self) {
        if self.checked.elapsed() < CHECK_STALE {
            return;
        }
        self.checked = Instant::now();
        let all: Vec<_> = self.view.neighbours().map(|known| (known.link, known.address)).collect();
        self.check_stale_among(all);
    }

    /// The same for those of these neighbours whose address has just become one of a while ago: no later than the kernel would.
    pub(super) fn check_stale_among(&mut self, neighbours: impl IntoIterator<Item = (LinkIndex, IpAddr)>) {
        for (link, address) in neighbours {
            let is_stale = matches!(self.view.neighbour(link, address), Some(NeighbourState::Stale(_)));
            if is_stale && self.is_ours(link) {
                self.ask(link, address);
            }
        }
    }
}
