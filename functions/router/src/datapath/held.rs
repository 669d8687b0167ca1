//! Packets that wait for their next neighbour's Ethernet address, so that the first one of a connection isn't lost.
//!
//! Whoever scans a network makes the router wait for hundreds of neighbours that nobody is. That must take neither the pool's
//! buffers nor the places of neighbours that are there: both are bounded, the interface by which most neighbours are waited
//! for gives way first, and each interface has a quota of new neighbours a second (RFC 6583 sections 6.1 and 7.3).

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use warmlane_forward::control::Unresolved;
use warmlane_forward::datapath::TokenBucket;
use warmlane_mem::{Burst, Packet};
use warmlane_wire::{Ipv4Header, Ipv6Header};

/// What a lane may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HoldLimits {
    /// Buffers of packets that wait.
    pub buffers: usize,
    /// Neighbours that are waited for at a time, at least 1. New ones, of packets that come in by one interface, may be twice
    /// as many in a second.
    pub neighbours: u16,
}

impl HoldLimits {
    /// Neighbours that a lane waits for at a time, if nothing else is said.
    pub const USUAL_NEIGHBOURS: u16 = 512;

    /// Most neighbours that a lane can wait for: what it does with each new one grows with their number.
    pub const MOST_NEIGHBOURS: u16 = 4096;

    /// For one of so many lanes that take packets from a pool with so many buffers: together they hold at most an eighth of it,
    /// so that all other traffic has enough.
    pub fn share(pool: u32, lanes: usize, neighbours: u16) -> Self {
        Self {
            buffers: pool as usize / 8 / lanes.max(1),
            neighbours: neighbours.clamp(1, Self::MOST_NEIGHBOURS),
        }
    }
}

/// Packets that wait for one neighbour at most (RFC 1122 section 2.3.2.2 asks for at least one), and their share of the buffers.
const PACKETS_PER_NEIGHBOUR: u16 = 128;
const SHARE_OF_NEIGHBOUR: usize = 8;

/// How long the kernel asks before it gives up: three times, a second each (RFC 4861 section 10), and a little.
const RESOLVE_TIMEOUT_MILLISECONDS: u64 = 3_300;

/// How long until a neighbour is asked for again: the kernel may have been unable to ask just then, as while a link comes up.
/// A little more than how long control takes a request for a repetition.
const ASK_AGAIN_MILLISECONDS: u64 = 1_100;

/// Packets that are tried again in vain are back within this time; what comes later is new, and the neighbour is asked for
/// anew.
const BACK_MILLISECONDS: u64 = 10;

/// A neighbour that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NeighbourKey {
    /// The kernel's number of the link.
    pub link: u32,
    /// The neighbour's address.
    pub address: IpAddr,
}

#[derive(Clone, Copy)]
struct Waiting {
    neighbour: NeighbourKey,
    /// By which port its first packet came in.
    port: usize,
    /// Since when, in cycles.
    since: u64,
    /// When it was asked for last, in cycles.
    asked: u64,
    packets: u16,
    buffers: usize,
    /// When the last of them was taken out to be tried again.
    emptied: u64,
    /// It is waited for no longer.
    is_late: bool,
}

struct Held {
    packet: Packet,
    /// The index of its neighbour.
    index: u16,
}

/// What follows from a packet that should be held.
#[derive(Default)]
pub(crate) struct Kept {
    /// The neighbour to be asked for.
    pub(crate) ask: Option<NeighbourKey>,
    /// The packet itself, if there is no space for it.
    pub(crate) refused: Option<Packet>,
    /// One that gave way.
    pub(crate) evicted: Option<Packet>,
}

/// What would become of a packet that should be held.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Forecast {
    /// Whom it would wait for; `None` if the packet doesn't say.
    pub(crate) neighbour: Option<IpAddr>,
    /// Packets that wait for the same already.
    pub(crate) waiting: u16,
    /// Buffers that are held, of so many.
    pub(crate) buffers: usize,
    pub(crate) limit: usize,
    /// It would be kept.
    pub(crate) is_kept: bool,
}

/// What is known of a port by which packets come in.
struct Ingress {
    /// Neighbours that its packets wait for.
    waiting: usize,
    /// New ones that may be asked for.
    quota: TokenBucket,
}

/// One lane's packets that wait. None of its work grows with packets times neighbours: whoever scans a network fills both.
pub(crate) struct HeldPackets {
    limits: HoldLimits,
    held: VecDeque<Held>,
    /// Buffers of these packets.
    buffers: usize,
    /// Neighbours by index.
    waiting: Vec<Option<Waiting>>,
    /// Indices without a neighbour.
    free: Vec<u16>,
    /// Where each neighbour is. It never grows: with less than half of its space in use, it is tidied up where it is.
    indices: HashMap<NeighbourKey, u16>,
    /// By the number of the port; the last one is for all others.
    ingress: Vec<Ingress>,
    cycles_per_millisecond: u64,
    /// The routes' version that the packets were tried with last.
    version: u64,
    /// Packets, from the front, to try with this version.
    untried: usize,
    /// When was looked for packets that waited too long.
    looked: u64,
}

impl HeldPackets {
    /// For packets that come in by this many ports.
    pub(crate) fn new(limits: HoldLimits, ports: usize, cycles_per_second: u64) -> Self {
        let neighbours = usize::from(limits.neighbours);
        let quota = 2 * u32::from(limits.neighbours);
        let ingress = || Ingress { waiting: 0, quota: TokenBucket::new(quota, quota, cycles_per_second) };
        Self {
            limits,
            held: VecDeque::with_capacity(limits.buffers),
            buffers: 0,
            waiting: vec![None; neighbours],
            free: (0..limits.neighbours).collect(),
            indices: HashMap::with_capacity(2 * neighbours),
            ingress: std::iter::repeat_with(ingress).take(ports + 1).collect(),
            cycles_per_millisecond: (cycles_per_second / 1000).max(1),
            version: 0,
            untried: 0,
            looked: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.indices.is_empty()
    }

    /// Keeps a packet.
    #[cold]
    pub(crate) fn keep(&mut self, packet: Packet, whom: Unresolved, now: u64) -> Kept {
        let Some(address) = whom.gateway.or_else(|| destination(&packet)) else {
            return Kept { refused: Some(packet), ..Kept::default() };
        };
        let neighbour = NeighbourKey { link: whom.link, address };
        match self.indices.get(&neighbour) {
            Some(&index) => self.keep_one_more(packet, index, now),
            None => self.keep_first(packet, neighbour, now),
        }
    }

    /// What would become of a packet, and whom it would wait for with what; nothing is kept, and the quota of new neighbours counts as free.
    #[cold]
    pub(crate) fn forecast(&self, packet: &Packet, whom: Unresolved) -> Forecast {
        let address = whom.gateway.or_else(|| destination(packet));
        let neighbour = address.map(|address| NeighbourKey { link: whom.link, address });
        let index = neighbour.and_then(|neighbour| self.indices.get(&neighbour));
        let waiting = index.and_then(|&index| self.waiting.get(usize::from(index))?.as_ref());
        let needed = packet.segments();
        let is_full = self.buffers + needed > self.limits.buffers;
        let is_kept = match (neighbour, waiting) {
            (None, _) => false,
            (_, Some(waiting)) => {
                let share = self.limits.buffers / SHARE_OF_NEIGHBOUR;
                let has_its_share = waiting.packets >= PACKETS_PER_NEIGHBOUR
                    || waiting.packets > 0 && waiting.buffers + needed > share;
                !is_full && !has_its_share
            }
            (_, None) => {
                let victim = self.victim(self.ingress_of(packet));
                let freed = |index: u16| {
                    let held = self.held.iter().find(|held| held.index == index);
                    held.map_or(0, |held| held.packet.segments())
                };
                let after =
                    self.buffers - victim.filter(|_| is_full || self.free.is_empty()).map_or(0, freed);
                (!self.free.is_empty() || victim.is_some()) && after + needed <= self.limits.buffers
            }
        };
        Forecast {
            neighbour: neighbour.map(|neighbour| neighbour.address),
            waiting: waiting.map_or(0, |waiting| waiting.packets),
            buffers: self.buffers,
            limit: self.limits.buffers,
            is_kept,
        }
    }

    /// Keeps a packet to a neighbour that is waited for.
    fn keep_one_more(&mut self, packet: Packet, index: u16, now: u64) -> Kept {
        let needed = packet.segments();
        let share = self.limits.buffers / SHARE_OF_NEIGHBOUR;
        let is_full = self.buffers + needed > self.limits.buffers;
        let back = BACK_MILLISECONDS * self.cycles_per_millisecond;
        let Some(Some(waiting)) = self.waiting.get_mut(usize::from(index)) else {
            return Kept { refused: Some(packet), ..Kept::default() };
        };
        let is_first = waiting.packets == 0;
        let is_new = is_first && now.saturating_sub(waiting.emptied) > back;
        let mut kept = Kept::default();
        if is_new {
            (waiting.since, waiting.asked) = (now, now);
            kept.ask = Some(waiting.neighbour);
        }
        let has_its_share =
            waiting.packets >= PACKETS_PER_NEIGHBOUR || (!is_first && waiting.buffers + needed > share);
        if is_full || has_its_share {
            kept.refused = Some(packet);
            return kept;
        }
        waiting.packets += 1;
        waiting.buffers += needed;
        self.push(packet, index);
        kept
    }

    /// Keeps a packet to a neighbour that isn't waited for yet. Without space the neighbour is asked for all the same, so that
    /// the next packet may find it.
    fn keep_first(&mut self, packet: Packet, neighbour: NeighbourKey, now: u64) -> Kept {
        let port = self.ingress_of(&packet);
        if !self.ingress.get_mut(port).is_some_and(|ingress| ingress.quota.take(now)) {
            return Kept { refused: Some(packet), ..Kept::default() };
        }
        let mut kept = Kept { ask: Some(neighbour), ..Kept::default() };
        let needed = packet.segments();
        if self.free.is_empty() || self.buffers + needed > self.limits.buffers {
            kept.evicted = self.evict(port);
        }
        let has_space = self.buffers + needed <= self.limits.buffers;
        let Some(index) = self.free.pop_if(|_| has_space) else {
            kept.refused = Some(packet);
            return kept;
        };
        if let Some(waiting) = self.waiting.get_mut(usize::from(index)) {
            let (since, asked, emptied) = (now, now, now);
            let (packets, buffers, is_late) = (1, needed, false);
            *waiting = Some(Waiting { neighbour, port, since, asked, packets, buffers, emptied, is_late });
        }
        if let Some(ingress) = self.ingress.get_mut(port) {
            ingress.waiting += 1;
        }
        self.indices.insert(neighbour, index);
        self.push(packet, index);
        kept
    }

    /// Makes space for a packet that came in by a port: the neighbour that was waited for longest, by one packet at most, is
    /// given up. It is one of the port for whose packets most neighbours are waited for, and none of a port for which fewer
    /// are than for this one.
    fn evict(&mut self, port: usize) -> Option<Packet> {
        let index = self.victim(port)?;
        let place = self.held.iter().position(|held| held.index == index);
        let packet = place.and_then(|place| {
            self.untried -= usize::from(place < self.untried);
            self.held.remove(place)
        });
        let packet = packet.map(|held| held.packet);
        self.buffers -= packet.as_ref().map_or(0, Packet::segments);
        self.free_slot(index);
        packet
    }

    /// The neighbour that gives way to one that a packet waits for which came in by this port.
    fn victim(&self, port: usize) -> Option<u16> {
        let waiting_for = |port: usize| self.ingress.get(port).map_or(0, |ingress| ingress.waiting);
        let mine = waiting_for(port);
        let candidates = (0_u16..).zip(&self.waiting).filter_map(|(index, slot)| {
            let slot = slot.as_ref()?;
            let others = waiting_for(slot.port);
            (slot.packets <= 1 && others >= mine).then_some((index, others, slot.since))
        });
        let oldest = candidates.max_by_key(|&(_, others, since)| (others, std::cmp::Reverse(since)));
        oldest.map(|(index, ..)| index)
    }

    /// A neighbour is waited for no longer.
    fn free_slot(&mut self, index: u16) {
        let slot = self.waiting.get_mut(usize::from(index)).and_then(Option::take);
        let Some(waiting) = slot else { return };
        self.indices.remove(&waiting.neighbour);
        self.free.push(index);
        if let Some(ingress) = self.ingress.get_mut(waiting.port) {
            ingress.waiting = ingress.waiting.saturating_sub(1);
        }
    }

    /// Which of `ingress` a packet's port is.
    fn ingress_of(&self, packet: &Packet) -> usize {
        usize::from(packet.port()).min(self.ingress.len().saturating_sub(1))
    }

    fn push(&mut self, packet: Packet, index: u16) {
        self.buffers += packet.segments();
        self.held.push_back(Held { packet, index });
    }

    fn pop(&mut self) -> Option<Held> {
        let held = self.held.pop_front()?;
        self.buffers -= held.packet.segments();
        Some(held)
    }

    /// Gives back packets: in `again` those that may go on since routes have changed, in `lost` those that waited too
    /// long. Says which neighbours are to be asked for once more.
    #[cold]
    pub(crate) fn release(
        &mut self,
        version: u64,
        now: u64,
        again: &mut Burst,
        lost: &mut Burst,
        ask: impl FnMut(NeighbourKey),
    ) {
        if now.saturating_sub(self.looked) >= self.cycles_per_millisecond {
            self.looked = now;
            self.expire(now, lost);
            self.insist(now, ask);
            // Not more often than this, however often routes change.
            if version != self.version {
                self.version = version;
                self.untried = self.held.len();
            }
        }
        while self.untried > 0 && again.space() > 0 {
            self.untried -= 1;
            let Some(Held { packet, index }) = self.pop() else { break };
            self.forget(index, packet.segments(), now);
            drop(again.push(packet));
        }
    }

    /// A neighbour's packet is taken out.
    fn forget(&mut self, index: u16, buffers: usize, now: u64) {
        if let Some(Some(waiting)) = self.waiting.get_mut(usize::from(index)) {
            waiting.packets = waiting.packets.saturating_sub(1);
            waiting.buffers = waiting.buffers.saturating_sub(buffers);
            waiting.emptied = now;
        }
    }

    fn expire(&mut self, now: u64, lost: &mut Burst) {
        let timeout = RESOLVE_TIMEOUT_MILLISECONDS * self.cycles_per_millisecond;
        let mut has_late_packets = false;
        for waiting in self.waiting.iter_mut().flatten() {
            waiting.is_late = now.saturating_sub(waiting.since) > timeout;
            has_late_packets |= waiting.is_late && waiting.packets > 0;
        }
        if has_late_packets {
            // Once round, so that the order stays.
            let untried = self.untried;
            for number in 0..self.held.len() {
                let Some(held) = self.held.pop_front() else { break };
                let waiting = self.waiting.get(usize::from(held.index)).copied().flatten();
                if lost.space() == 0 || !waiting.is_some_and(|waiting| waiting.is_late) {
                    self.held.push_back(held);
                    continue;
                }
                self.untried -= usize::from(number < untried);
                self.buffers -= held.packet.segments();
                self.forget(held.index, held.packet.segments(), now);
                drop(lost.push(held.packet));
            }
        }
        for index in 0..self.limits.neighbours {
            let waiting = self.waiting.get(usize::from(index)).copied().flatten();
            if waiting.is_some_and(|waiting| waiting.is_late && waiting.packets == 0) {
                self.free_slot(index);
            }
        }
    }

    fn insist(&mut self, now: u64, mut ask: impl FnMut(NeighbourKey)) {
        let interval = ASK_AGAIN_MILLISECONDS * self.cycles_per_millisecond;
        for waiting in self.waiting.iter_mut().flatten() {
            if waiting.packets > 0 && now.saturating_sub(waiting.asked) >= interval {
                waiting.asked = now;
                ask(waiting.neighbour);
            }
        }
    }

    /// Gives back all that is held, as far as there is space.
    pub(crate) fn finish(&mut self, lost: &mut Burst) {
        while lost.space() > 0
            && let Some(held) = self.pop()
        {
            drop(lost.push(held.packet));
        }
        if self.held.is_empty() {
            (0..self.limits.neighbours).for_each(|index| self.free_slot(index));
        }
    }
}

/// Where an IP packet goes whose layer 3 offset is known.
fn destination(packet: &Packet) -> Option<IpAddr> {
    let ip = packet.data().get(usize::from(packet.l3_offset())..)?;
    match ip.first()? >> 4 {
        4 => ip.first_chunk().map(|header| IpAddr::V4(Ipv4Header(header).destination())),
        6 => ip.first_chunk().map(|header| IpAddr::V6(Ipv6Header(header).destination())),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
