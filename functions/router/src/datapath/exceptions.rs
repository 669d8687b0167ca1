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

/// Where punted packets go: an interface through which the kernel takes them as if they had come in by it.
pub struct PuntPort {
    /// The queue that takes them.
    pub queue: Box<dyn TransmitQueue>,
    /// The interface's own address, without which the kernel would take them for somebody else's.
    pub mac: MacAddress,
}

/// Holds packets while the kernel finds out where they go, and punts others to it.
pub struct RouterExceptions {
    hold: Hold,
    requests: Sender<Station>,
    bell: Bell,
    punt: Option<PuntPort>,
    punted: Burst,
}

impl RouterExceptions {
    pub(crate) fn new(requests: Sender<Station>, bell: Bell, punt: Option<PuntPort>) -> Self {
        Self {
            hold: Hold::new(Clock::calibrated().cycles_per_second()),
            requests,
            bell,
            punt,
            punted: Burst::with_limit(BURST_CAPACITY),
        }
    }

    fn request(requests: &mut Sender<Station>, bell: &Bell, station: Station) {
        // If there is no room, control has hundreds to ask for: this one is given up in time.
        let _ = requests.send(station);
        bell.ring();
    }

    fn send_punted(&mut self) {
        if let Some(port) = &mut self.punt {
            port.queue.transmit(&mut self.punted);
            // What it doesn't take now would be late anyway; its queue counts it.
            self.punted.clear();
        }
    }
}

impl Exceptions for RouterExceptions {
    const CHECKS_SOURCES: bool = true;

    #[cold]
    fn punt(&mut self, mut packet: Packet, table: TableNumber) -> Result<(), Packet> {
        // The kernel would look packets of a VRF up in the wrong table if they came in outside of it.
        let Some(port) = self.punt.as_ref().filter(|_| table == 0) else { return Err(packet) };
        // Tags are the interface's that it came in by; the kernel gets it without.
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
            let [a, b, c, d, e, f] = port.mac.0;
            [header[0], header[1], header[2], header[3], header[4], header[5]] = [a, b, c, d, e, f];
            [header[12], header[13]] = ethertype;
        }
        if self.punted.room() == 0 {
            self.send_punted();
        }
        self.punted.push(packet)
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
        if !self.punted.is_empty() {
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
        if let Some(port) = &mut self.punt {
            port.queue.flush();
        }
    }

    fn finish(&mut self, lost: &mut Burst) {
        self.hold.finish(lost);
    }
}

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;
