//! The addresses that are the kernel's own: packets to them stay with it. And the interface's Ethernet address: packets to
//! another one do, too.

use crate::bpf::Attachment;
use crate::link::Link;
use crate::system;
use std::collections::HashSet;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// What a port's steering takes for the kernel's own addresses; see [`Steering::Router`](crate::Steering).
///
/// They are those of all interfaces of the network namespace, and follow the kernel's within milliseconds: an operator who
/// gives the box an address can use it. Whoever knows of others (a prefix that is local, say) adds them.
#[derive(Clone)]
pub struct LocalAddresses {
    attachment: Weak<Attachment>,
    known: Arc<Mutex<Known>>,
}

#[derive(Default)]
struct Known {
    kernel: HashSet<IpAddr>,
    added: HashSet<IpAddr>,
}

impl Known {
    fn contains(&self, address: &IpAddr) -> bool {
        self.kernel.contains(address) || self.added.contains(address)
    }
}

impl std::fmt::Debug for LocalAddresses {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("LocalAddresses").field(&self.addresses()).finish()
    }
}

impl LocalAddresses {
    pub(crate) fn new(attachment: &Arc<Attachment>, kernel: HashSet<IpAddr>) -> Self {
        let known = Known { kernel, added: HashSet::new() };
        Self { attachment: Arc::downgrade(attachment), known: Arc::new(Mutex::new(known)) }
    }

    /// The kernel's addresses of this moment, of all interfaces of this thread's network namespace.
    pub(crate) fn of_the_kernel() -> io::Result<HashSet<IpAddr>> {
        Ok(system::addresses()?.into_iter().map(|(_, address)| address).collect())
    }

    /// Follows the kernel's addresses and the Ethernet address of this interface, from a thread of its own, until the port is
    /// closed.
    pub(crate) fn follow(&self, interface: u32) -> io::Result<()> {
        // Listening starts before reading, so that nothing falls in between.
        let news = system::address_news()?;
        self.refresh()?;
        self.refresh_station(interface)?;
        let addresses = self.clone();
        let run = move || {
            while addresses.attachment.strong_count() > 0 {
                match system::hear(&news) {
                    // What fails now is tried again at the next change.
                    Ok(true) => drop((addresses.refresh(), addresses.refresh_station(interface))),
                    Ok(false) => {}
                    Err(_) => return,
                }
            }
        };
        std::thread::Builder::new().name("xdp addresses".to_owned()).spawn(run).map(drop)
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is taken for the kernel's.
    pub fn addresses(&self) -> Vec<IpAddr> {
        let known = self.lock();
        known.kernel.union(&known.added).copied().collect()
    }

    /// Packets to `address` stay with the kernel from now on, even if it is no interface's.
    ///
    /// # Errors
    /// The kernel refuses: more than 65,536 addresses of a family.
    pub fn insert(&self, address: IpAddr) -> io::Result<()> {
        let mut known = self.lock();
        self.set(address, true)?;
        known.added.insert(address);
        Ok(())
    }

    /// Takes back what [`insert`](Self::insert) did. An address of an interface stays the kernel's.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn remove(&self, address: IpAddr) -> io::Result<()> {
        let mut known = self.lock();
        known.added.remove(&address);
        if known.contains(&address) { Ok(()) } else { self.set(address, false) }
    }

    /// Reads the kernel's addresses now.
    fn refresh(&self) -> io::Result<()> {
        let mut known = self.lock();
        let now = Self::of_the_kernel()?;
        // What is new comes first: in between, rather one packet too many stays with the kernel.
        for address in now.difference(&known.kernel) {
            self.set(*address, true)?;
        }
        let before = std::mem::replace(&mut known.kernel, now);
        for address in &before {
            if !known.contains(address) {
                self.set(*address, false)?;
            }
        }
        Ok(())
    }

    /// Reads the interface's Ethernet address now.
    fn refresh_station(&self, interface: u32) -> io::Result<()> {
        let (Some(attachment), Some(link)) = (self.attachment.upgrade(), Link::ask(interface)?) else {
            return Ok(());
        };
        attachment.program.set_station(link.station())
    }

    fn set(&self, address: IpAddr, is_local: bool) -> io::Result<()> {
        // Without the port, there is nothing to steer.
        let Some(attachment) = self.attachment.upgrade() else { return Ok(()) };
        attachment.program.set_address(address, is_local)
    }
}
