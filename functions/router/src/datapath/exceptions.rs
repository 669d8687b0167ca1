//! What a router's lane does with packets that the forwarder can't send on by itself.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use warmlane_forward::Exceptions;
use warmlane_forward::control::{TableNumber, Unresolved};
use warmlane_mem::{BURST_CAPACITY, Burst, Packet};
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

/// A port, and what waits for it.
struct Punt {
    port: PuntPort,
    packets: Burst,
}

impl Punt {
    fn send(&mut self) {
        self.port.queue.transmit(&mut self.packets);
        // What it doesn't take now would be late anyway; its queue counts it.
        self.packets.clear();
    }
}

/// Holds packets while the kernel finds out where they go, and punts others to it.
pub struct RouterExceptions {
    hold: Hold,
    requests: Sender<Station>,
    bell: Bell,
    /// By the number of the port that packets came in by.
    punts: Vec<Punt>,
    /// Something waits for one of them.
    has_punted: bool,
}

impl RouterExceptions {
    pub(crate) fn new(requests: Sender<Station>, bell: Bell, punts: Vec<PuntPort>) -> Self {
        let punt = |port| Punt { port, packets: Burst::with_limit(BURST_CAPACITY) };
        Self {
            hold: Hold::new(Clock::calibrated().cycles_per_second()),
            requests,
            bell,
            punts: punts.into_iter().map(punt).collect(),
            has_punted: false,
        }
    }

    fn request(requests: &mut Sender<Station>, bell: &Bell, station: Station) {
        // If there is no room, control has hundreds to ask for: this one is given up in time.
        let _ = requests.send(station);
        bell.ring();
    }

    #[cold]
    fn send_punted(&mut self) {
        self.has_punted = false;
        self.punts.iter_mut().filter(|punt| !punt.packets.is_empty()).for_each(Punt::send);
    }
}

impl Exceptions for RouterExceptions {
    const CHECKS_SOURCES: bool = true;

    #[cold]
    fn punt(&mut self, mut packet: Packet, table: TableNumber) -> Result<(), Packet> {
        let Some(punt) = self.punts.get_mut(usize::from(packet.port())) else { return Err(packet) };
        if let Entrance::Other(mac) = punt.port.entrance {
            if table != 0 {
                return Err(packet);
            }
            packet = readdressed(packet, mac)?;
        }
        if punt.packets.room() == 0 {
            punt.send();
        }
        self.has_punted = true;
        punt.packets.push(packet)
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
        if self.has_punted {
            self.send_punted();
        }
        if !self.hold.is_empty() {
            let (requests, bell) = (&mut self.requests, &self.bell);
            let ask = |station| Self::request(requests, bell, station);
            self.hold.release(version, clock::cycles(), again, lost, ask);
        }
    }

    fn flush(&mut self) {
        self.send_punted();
        self.punts.iter_mut().for_each(|punt| punt.port.queue.flush());
    }

    fn finish(&mut self, lost: &mut Burst) {
        self.hold.finish(lost);
    }
}

/// For another interface: without tags, which are the interface's that it came in by, and addressed to that one.
fn readdressed(mut packet: Packet, mac: MacAddress) -> Result<Packet, Packet> {
    let Some(surplus) = usize::from(packet.l3_offset()).checked_sub(ETHERNET) else { return Err(packet) };
    let ethertype = match packet.data().get(usize::from(packet.l3_offset())).map(|byte| byte >> 4) {
        Some(4) => [0x08, 0x00],
        Some(6) => [0x86, 0xdd],
        _ => return Err(packet),
    };
    if packet.trim_front(surplus).is_err() {
        return Err(packet);
    }
    packet.set_l3_offset(ETHERNET as u8);
    if let Some(header) = packet.data_mut().first_chunk_mut::<ETHERNET>() {
        let [a, b, c, d, e, f] = mac.0;
        [header[0], header[1], header[2], header[3], header[4], header[5]] = [a, b, c, d, e, f];
        [header[12], header[13]] = ethertype;
    }
    Ok(packet)
}

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;
