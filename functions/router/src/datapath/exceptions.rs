//! What a router's lane does with packets that the forwarder can't send on by itself.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use warmlane_forward::Exceptions;
use warmlane_forward::control::{TableNumber, Unresolved};
use warmlane_forward::datapath::Punted;
use warmlane_mem::{Burst, Packet};
use warmlane_port::TransmitQueue;
use warmlane_sync::mailbox::Sender;
use warmlane_sys::clock::{self, Clock};
use warmlane_wire::MacAddress;

use super::hold::{Hold, Kept, Station};

/// Wakes the control side up if it sleeps: a system call at most once for each of its turns.
#[derive(Debug, Clone)]
pub(crate) struct Bell {
    pub(crate) sleeps: Arc<AtomicBool>,
    pub(crate) end: Arc<UnixStream>,
}

impl Bell {
    fn ring(&self) {
        if self.sleeps.swap(false, Ordering::SeqCst) {
            // Full means that it rings already.
            let _ = (&*self.end).write(&[1]);
        }
    }
}

/// Where punted packets of one port go.
pub struct PuntPort {
    /// The queue that takes them.
    pub queue: Box<dyn TransmitQueue>,
    /// How the kernel gets them.
    pub entrance: Entrance,
}

/// How the kernel gets a punted packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entrance {
    /// By the port that it came in by, as it was.
    Port,
    /// By another interface, with this address, without which the kernel would take it for somebody else's. Packets that
    /// are looked up in tables of their own because of where they came in can't go that way: they would be routed by others.
    Other(MacAddress),
}

/// Holds packets while the kernel finds out where they go, and punts others to it.
pub struct RouterExceptions {
    hold: Hold,
    requests: Sender<Station>,
    bell: Bell,
    /// By the number of the port that packets came in by.
    punts: Vec<PuntPort>,
    /// Room for one packet on its way there.
    punted: Burst,
}

impl RouterExceptions {
    pub(crate) fn new(requests: Sender<Station>, bell: Bell, punts: Vec<PuntPort>) -> Self {
        let hold = Hold::new(Clock::calibrated().cycles_per_second());
        Self { hold, requests, bell, punts, punted: Burst::with_limit(1) }
    }

    fn request(requests: &mut Sender<Station>, bell: &Bell, station: Station) {
        // If there is no room, control has hundreds to ask for: this one is given up in time.
        let _ = requests.send(station);
        bell.ring();
    }
}

impl Exceptions for RouterExceptions {
    const CHECKS_SOURCES: bool = true;

    /// One at a time, as the kernel takes them: so what it refuses is known at once, and would be late anyway if it waited.
    #[cold]
    fn punt(&mut self, mut packet: Packet, table: Option<TableNumber>) -> Punted {
        let Some(port) = self.punts.get_mut(usize::from(packet.port())) else { return Punted::Unwanted };
        if let Entrance::Other(mac) = port.entrance {
            // Without its tag, a packet of an unknown VLAN would get where it must not.
            if table != Some(0) {
                return Punted::Unwanted;
            }
            match readdressed(packet, mac) {
                Some(changed) => packet = changed,
                None => return Punted::Unwanted,
            }
        }
        drop(self.punted.push(packet));
        port.queue.transmit(&mut self.punted);
        if self.punted.is_empty() {
            return Punted::Taken;
        }
        self.punted.clear();
        Punted::Refused
    }

    #[cold]
    fn hold(&mut self, packet: Packet, whom: Unresolved) -> Result<(), Packet> {
        match self.hold.keep(packet, whom, clock::cycles()) {
            Kept::Waits => Ok(()),
            Kept::First(station) => {
                Self::request(&mut self.requests, &self.bell, station);
                Ok(())
            }
            Kept::Refused(packet) => Err(packet),
        }
    }

    #[inline]
    fn release(&mut self, version: u64, again: &mut Burst, lost: &mut Burst) {
        if !self.hold.is_empty() {
            let (requests, bell) = (&mut self.requests, &self.bell);
            let ask = |station| Self::request(requests, bell, station);
            self.hold.release(version, clock::cycles(), again, lost, ask);
        }
    }

    fn flush(&mut self) {
        self.punts.iter_mut().for_each(|port| port.queue.flush());
    }

    fn finish(&mut self, lost: &mut Burst) {
        self.hold.finish(lost);
    }
}

/// For another interface: without tags, which are the interface's that it came in by, and addressed to that one.
fn readdressed(mut packet: Packet, mac: MacAddress) -> Option<Packet> {
    let surplus = usize::from(packet.l3_offset()).checked_sub(ETHERNET)?;
    let ethertype = match packet.data().get(usize::from(packet.l3_offset())).map(|byte| byte >> 4) {
        Some(4) => [0x08, 0x00],
        Some(6) => [0x86, 0xdd],
        _ => return None,
    };
    packet.trim_front(surplus).ok()?;
    packet.set_l3_offset(ETHERNET as u8);
    if let Some(header) = packet.data_mut().first_chunk_mut::<ETHERNET>() {
        let [a, b, c, d, e, f] = mac.0;
        [header[0], header[1], header[2], header[3], header[4], header[5]] = [a, b, c, d, e, f];
        [header[12], header[13]] = ethertype;
    }
    Some(packet)
}

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;

#[cfg(test)]
mod tests {
    use super::*;
    use warmlane_mem::{Pool, PoolConfig};
    use warmlane_port::{QueueCounters, QueueStatus};
    use warmlane_sync::mailbox::mailbox;

    /// Takes so many packets, and no more.
    struct Narrow {
        room: usize,
        taken: Arc<QueueCounters>,
    }

    impl TransmitQueue for Narrow {
        fn transmit(&mut self, burst: &mut Burst) -> usize {
            let count = burst.len().min(self.room);
            self.room -= count;
            burst.free_front(count);
            self.taken.packets.add(count as u64);
            count
        }

        fn status(&self) -> QueueStatus {
            QueueStatus::Running
        }

        fn counters(&self) -> &Arc<QueueCounters> {
            &self.taken
        }
    }

    fn exceptions(entrance: Entrance, room: usize) -> (RouterExceptions, Arc<QueueCounters>) {
        let (sender, _) = mailbox(8).unwrap();
        let end = Arc::new(UnixStream::pair().unwrap().0);
        let bell = Bell { sleeps: Arc::new(AtomicBool::new(false)), end };
        let taken = QueueCounters::new(&[]);
        let queue = Box::new(Narrow { room, taken: Arc::clone(&taken) });
        (RouterExceptions::new(sender, bell, vec![PuntPort { queue, entrance }]), taken)
    }

    fn packet(pool: &Pool, tag: bool) -> Packet {
        let mut frame = vec![0; 12];
        frame.extend(if tag { &[0x81, 0, 0, 7, 8, 0][..] } else { &[8, 0] });
        let offset = frame.len() as u8;
        frame.extend([0x45; 46]);
        let mut packet = pool.take().unwrap();
        packet.fill(&frame).unwrap();
        packet.set_l3_offset(offset);
        packet
    }

    #[test]
    fn what_the_kernel_does_not_take_is_known_at_once() {
        let pool = Pool::new(&PoolConfig { buffers: 8, ..PoolConfig::default() }).unwrap();
        let (mut exceptions, taken) = exceptions(Entrance::Port, 2);
        let punted = [0; 4].map(|_| exceptions.punt(packet(&pool, false), Some(0)));
        assert_eq!(punted, [Punted::Taken, Punted::Taken, Punted::Refused, Punted::Refused]);
        assert_eq!(taken.packets.get(), 2);
        assert_eq!(pool.ledger().outstanding(), 0);
    }

    /// Behind another entrance, the kernel would take a packet of a table of its own, or of an unknown VLAN, for another one.
    #[test]
    fn only_plain_packets_go_by_another_entrance() {
        let pool = Pool::new(&PoolConfig { buffers: 8, ..PoolConfig::default() }).unwrap();
        for (entrance, taken) in [
            (Entrance::Port, [Punted::Taken; 3]),
            (
                Entrance::Other(MacAddress([2, 0, 0, 0, 0, 9])),
                [Punted::Taken, Punted::Unwanted, Punted::Unwanted],
            ),
        ] {
            let (mut exceptions, _) = exceptions(entrance, 8);
            let punted = [Some(0), Some(1), None].map(|table| exceptions.punt(packet(&pool, true), table));
            assert_eq!(punted, taken, "{entrance:?}");
        }
        assert_eq!(pool.ledger().outstanding(), 0);
    }
}
