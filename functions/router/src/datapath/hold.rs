//! Packets that wait for their next station's Ethernet address, so that the first one of a connection isn't lost.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use warmlane_forward::control::Unresolved;
use warmlane_mem::{Burst, Packet};
use warmlane_wire::{Ipv4Header, Ipv6Header};

/// Packets that a lane holds at most, and for one station (RFC 1122 section 2.3.2.2 asks for at least one).
const PACKETS: usize = 1024;
const PACKETS_PER_STATION: u16 = 128;

/// Stations that are waited for at a time.
const STATIONS: usize = 512;

/// How long the kernel asks before it gives up: three times, a second each (RFC 4861 section 10), and a little.
const PATIENCE_MILLISECONDS: u64 = 3_300;

/// How long until a station is asked for again: the kernel may have been unable to ask just then, as while a link comes up.
/// A little more than how long control takes a request for a repetition.
const ASK_AGAIN_MILLISECONDS: u64 = 1_100;

/// Packets that are tried again in vain are back within this time; what comes later is new, and the station is asked for
/// anew.
const BACK_MILLISECONDS: u64 = 10;

/// A station that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Station {
    /// The kernel's number of the link.
    pub link: u32,
    /// The station's address.
    pub address: IpAddr,
}

#[derive(Clone, Copy)]
struct Waiting {
    station: Station,
    /// Since when, in cycles.
    since: u64,
    /// When it was asked for last, in cycles.
    asked: u64,
    packets: u16,
    /// When the last of them was taken out to be tried again.
    emptied: u64,
    /// It is waited for no longer.
    is_late: bool,
}

struct Held {
    packet: Packet,
    /// The place of its station.
    place: u16,
}

/// What became of a packet that should be held.
pub(crate) enum Kept {
    /// It waits, as others do for the same station.
    Waits,
    /// It waits as the first: the station is to be asked for.
    First(Station),
    /// There is no room, or it is no IP packet.
    Refused(Packet),
}

/// One lane's packets that wait. None of its work grows with packets times stations: whoever scans a network fills both.
pub(crate) struct Hold {
    held: VecDeque<Held>,
    /// Stations by place.
    waiting: Vec<Option<Waiting>>,
    /// Places without a station.
    free: Vec<u16>,
    /// Where each station is. It never grows: with less than half of its room in use, it is tidied up where it is.
    places: HashMap<Station, u16>,
    cycles_per_millisecond: u64,
    /// The routes' version that the packets were tried with last.
    version: u64,
    /// Packets, from the front, to try with this version.
    untried: usize,
    /// When was looked for packets that waited too long.
    looked: u64,
}

impl Hold {
    pub(crate) fn new(cycles_per_second: u64) -> Self {
        Self {
            held: VecDeque::with_capacity(PACKETS),
            waiting: vec![None; STATIONS],
            free: (0..STATIONS as u16).collect(),
            places: HashMap::with_capacity(2 * STATIONS),
            cycles_per_millisecond: (cycles_per_second / 1000).max(1),
            version: 0,
            untried: 0,
            looked: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.places.is_empty()
    }

    /// Keeps a packet.
    #[cold]
    pub(crate) fn keep(&mut self, packet: Packet, whom: Unresolved, now: u64) -> Kept {
        let Some(address) = whom.gateway.or_else(|| destination(&packet)) else {
            return Kept::Refused(packet);
        };
        let station = Station { link: whom.link, address };
        if self.held.len() == PACKETS {
            return Kept::Refused(packet);
        }
        if let Some(&place) = self.places.get(&station)
            && let Some(Some(waiting)) = self.waiting.get_mut(usize::from(place))
        {
            if waiting.packets == PACKETS_PER_STATION {
                return Kept::Refused(packet);
            }
            let back = BACK_MILLISECONDS * self.cycles_per_millisecond;
            let is_new = waiting.packets == 0 && now.saturating_sub(waiting.emptied) > back;
            waiting.packets += 1;
            self.held.push_back(Held { packet, place });
            if is_new {
                (waiting.since, waiting.asked) = (now, now);
                return Kept::First(station);
            }
            return Kept::Waits;
        }
        let Some(place) = self.free.pop() else { return Kept::Refused(packet) };
        if let Some(waiting) = self.waiting.get_mut(usize::from(place)) {
            *waiting =
                Some(Waiting { station, since: now, asked: now, packets: 1, emptied: now, is_late: false });
        }
        self.places.insert(station, place);
        self.held.push_back(Held { packet, place });
        Kept::First(station)
    }

    /// Gives back packets: in `again` those that may go on since routes have changed, in `lost` those that waited too
    /// long. Says which stations are to be asked for once more.
    #[cold]
    pub(crate) fn release(
        &mut self,
        version: u64,
        now: u64,
        again: &mut Burst,
        lost: &mut Burst,
        ask: impl FnMut(Station),
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
        while self.untried > 0 && again.room() > 0 {
            self.untried -= 1;
            let Some(Held { packet, place }) = self.held.pop_front() else { break };
            self.forget(place, now);
            drop(again.push(packet));
        }
    }

    fn forget(&mut self, place: u16, now: u64) {
        if let Some(Some(waiting)) = self.waiting.get_mut(usize::from(place)) {
            waiting.packets = waiting.packets.saturating_sub(1);
            waiting.emptied = now;
        }
    }

    fn expire(&mut self, now: u64, lost: &mut Burst) {
        let patience = PATIENCE_MILLISECONDS * self.cycles_per_millisecond;
        let mut has_late_packets = false;
        for waiting in self.waiting.iter_mut().flatten() {
            waiting.is_late = now.saturating_sub(waiting.since) > patience;
            has_late_packets |= waiting.is_late && waiting.packets > 0;
        }
        if has_late_packets {
            // Once round, so that the order stays.
            let untried = self.untried;
            for number in 0..self.held.len() {
                let Some(held) = self.held.pop_front() else { break };
                let waiting = self.waiting.get(usize::from(held.place)).copied().flatten();
                if lost.room() == 0 || !waiting.is_some_and(|waiting| waiting.is_late) {
                    self.held.push_back(held);
                    continue;
                }
                self.untried -= usize::from(number < untried);
                self.forget(held.place, now);
                drop(lost.push(held.packet));
            }
        }
        for (place, slot) in (0..).zip(&mut self.waiting) {
            if let Some(waiting) = slot
                && waiting.is_late
                && waiting.packets == 0
            {
                self.places.remove(&waiting.station);
                self.free.push(place);
                *slot = None;
            }
        }
    }

    fn insist(&mut self, now: u64, mut ask: impl FnMut(Station)) {
        let interval = ASK_AGAIN_MILLISECONDS * self.cycles_per_millisecond;
        for waiting in self.waiting.iter_mut().flatten() {
            if waiting.packets > 0 && now.saturating_sub(waiting.asked) >= interval {
                waiting.asked = now;
                ask(waiting.station);
            }
        }
    }

    /// Gives back all that is held, as far as there is room.
    pub(crate) fn finish(&mut self, lost: &mut Burst) {
        while lost.room() > 0
            && let Some(held) = self.held.pop_front()
        {
            drop(lost.push(held.packet));
        }
        if self.held.is_empty() {
            self.waiting.fill(None);
            self.places.clear();
            self.free.clear();
            self.free.extend(0..STATIONS as u16);
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
mod tests {
    use super::*;
    use warmlane_mem::{Pool, PoolConfig};

    const SECOND: u64 = 1_000_000;

    fn packet(pool: &Pool, last: u8) -> Packet {
        let mut packet = pool.take().unwrap();
        let mut frame = [0; 60];
        frame[14] = 0x45;
        frame[30..34].copy_from_slice(&[192, 0, 2, last]);
        packet.fill(&frame).unwrap();
        packet.set_l3_offset(14);
        packet
    }

    const ON_LINK: Unresolved = Unresolved { link: 7, gateway: None, port: 0, vlan: None };

    fn release(hold: &mut Hold, version: u64, now: u64) -> (usize, usize) {
        let (mut again, mut lost) = (Burst::new(), Burst::new());
        hold.release(version, now, &mut again, &mut lost, |_| ());
        (again.len(), lost.len())
    }

    #[test]
    fn packets_wait_for_a_change_and_not_for_ever() {
        let pool = Pool::new(&PoolConfig { buffers: 64, ..PoolConfig::default() }).unwrap();
        let mut hold = Hold::new(SECOND);
        let station = |last: u8| Station { link: 7, address: IpAddr::from([192, 0, 2, last]) };
        assert!(matches!(hold.keep(packet(&pool, 1), ON_LINK, 0), Kept::First(first) if first == station(1)));
        assert!(matches!(hold.keep(packet(&pool, 1), ON_LINK, 10), Kept::Waits));
        assert!(matches!(hold.keep(packet(&pool, 2), ON_LINK, SECOND), Kept::First(_)));
        assert_eq!(release(&mut hold, 0, 2 * SECOND), (0, 0));
        assert_eq!(release(&mut hold, 1, 2 * SECOND + 5_000), (3, 0));
        // Tried in vain: it waits on, and no longer for that.
        let back = 2 * SECOND + 5_100;
        assert!(matches!(hold.keep(packet(&pool, 1), ON_LINK, back), Kept::Waits));
        assert_eq!(release(&mut hold, 1, 3 * SECOND + 100), (0, 0));
        assert_eq!(release(&mut hold, 1, 4 * SECOND), (0, 1));
        assert_eq!(release(&mut hold, 1, 5 * SECOND), (0, 0));
        assert!(hold.is_empty());
        assert_eq!(pool.ledger().outstanding(), 0);
    }

    /// A station that was found, and lost again soon, is asked for again: its first packet is not one that was tried in vain.
    #[test]
    fn a_station_that_is_lost_again_is_asked_for_again() {
        let pool = Pool::new(&PoolConfig { buffers: 64, ..PoolConfig::default() }).unwrap();
        let mut hold = Hold::new(SECOND);
        assert!(matches!(hold.keep(packet(&pool, 1), ON_LINK, 0), Kept::First(_)));
        assert_eq!(release(&mut hold, 1, 5_000), (1, 0));
        assert!(matches!(hold.keep(packet(&pool, 1), ON_LINK, 3 * SECOND), Kept::First(_)));
        assert!(matches!(hold.keep(packet(&pool, 1), ON_LINK, 3 * SECOND + 100), Kept::Waits));
        assert_eq!(release(&mut hold, 1, 4 * SECOND), (0, 0));
        assert_eq!(release(&mut hold, 1, 7 * SECOND), (0, 2));
    }

    #[test]
    fn stations_are_asked_for_again() {
        let pool = Pool::new(&PoolConfig { buffers: 64, ..PoolConfig::default() }).unwrap();
        let mut hold = Hold::new(SECOND);
        assert!(matches!(hold.keep(packet(&pool, 1), ON_LINK, 0), Kept::First(_)));
        let mut asked = Vec::new();
        for tenths in 1..33 {
            let (mut again, mut lost) = (Burst::new(), Burst::new());
            hold.release(0, tenths * SECOND / 10, &mut again, &mut lost, |_| asked.push(tenths));
        }
        assert_eq!(asked, [11, 22]);
        // Whoever has nothing to wait for is not asked.
        assert_eq!(release(&mut hold, 1, 33 * SECOND / 10), (1, 0));
        hold.release(1, 45 * SECOND / 10, &mut Burst::new(), &mut Burst::new(), |_| panic!("asked"));
    }

    #[test]
    fn there_is_a_bound() {
        let pool = Pool::new(&PoolConfig { buffers: 2048, ..PoolConfig::default() }).unwrap();
        let mut hold = Hold::new(SECOND);
        let gateway = |last: u8| Unresolved { gateway: Some(IpAddr::from([192, 0, 2, last])), ..ON_LINK };
        let mut kept = 0;
        for _ in 0..200 {
            kept += usize::from(!matches!(hold.keep(packet(&pool, 9), gateway(1), 0), Kept::Refused(_)));
        }
        assert_eq!(kept, usize::from(PACKETS_PER_STATION));
        for last in 2..30 {
            for _ in 0..100 {
                kept +=
                    usize::from(!matches!(hold.keep(packet(&pool, 9), gateway(last), 0), Kept::Refused(_)));
            }
        }
        assert_eq!(kept, PACKETS);
        let mut lost = Burst::new();
        let mut given = 0;
        while !hold.is_empty() {
            hold.finish(&mut lost);
            given += lost.len();
            lost.clear();
        }
        assert_eq!(given, PACKETS);
    }

    /// A scan: hundreds of stations that nobody is, all full, and new ones all the time.
    #[test]
    fn a_scan_is_given_up_in_order_and_leaves_room() {
        let pool = Pool::new(&PoolConfig { buffers: 2048, ..PoolConfig::default() }).unwrap();
        let mut hold = Hold::new(SECOND);
        let gateway = |number: u16| Unresolved {
            gateway: Some(IpAddr::from([10, 0, (number >> 8) as u8, number as u8])),
            ..ON_LINK
        };
        for round in 0..3_u64 {
            let begin = round * 10 * SECOND;
            for number in 0..600 {
                let kept = hold.keep(packet(&pool, number as u8), gateway(number), begin + u64::from(number));
                assert_eq!(matches!(kept, Kept::First(_)), usize::from(number) < STATIONS, "{number}");
            }
            assert!(matches!(hold.keep(packet(&pool, 7), gateway(7), begin + 700), Kept::Waits));
            let mut order = Vec::new();
            for millisecond in 3_300..3_320 {
                let (mut again, mut lost) = (Burst::new(), Burst::with_limit(64));
                hold.release(0, begin + millisecond * SECOND / 1000, &mut again, &mut lost, |_| ());
                order.extend(lost.iter().map(|packet| packet.data()[33]));
            }
            let in_turn = (0..STATIONS).map(|number| number as u8).chain([7]);
            assert_eq!(order, in_turn.collect::<Vec<_>>());
            assert!(hold.is_empty());
            assert_eq!(hold.free.len(), STATIONS);
        }
        assert_eq!(pool.ledger().outstanding(), 0);
        assert!(hold.places.capacity() < 4 * STATIONS);
    }
}
