//! The addresses that are the kernel's own: packets to them stay with it.

use crate::bpf::Attachment;
use crate::system;
use std::collections::HashSet;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// What a port's steering takes for the kernel's own addresses; see [`Steering::Router`](crate::Steering).
///
/// Whoever follows the kernel's addresses calls [`refresh`](Self::refresh) when they change, or adds and removes them
/// one by one. Without anyone doing so, they are those of the moment when the port was opened.
#[derive(Clone)]
pub struct LocalAddresses {
    attachment: Weak<Attachment>,
    known: Arc<Mutex<HashSet<IpAddr>>>,
}

impl std::fmt::Debug for LocalAddresses {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("LocalAddresses").field(&self.addresses()).finish()
    }
}

impl LocalAddresses {
    pub(crate) fn new(attachment: &Arc<Attachment>, known: HashSet<IpAddr>) -> Self {
        Self { attachment: Arc::downgrade(attachment), known: Arc::new(Mutex::new(known)) }
    }

    /// The kernel's addresses of this moment, of all interfaces of this thread's network namespace.
    pub(crate) fn of_the_kernel() -> io::Result<HashSet<IpAddr>> {
        Ok(system::addresses()?.into_iter().map(|(_, address)| address).collect())
    }

    /// What is taken for the kernel's.
    pub fn addresses(&self) -> Vec<IpAddr> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().copied().collect()
    }

    /// Packets to `address` stay with the kernel from now on.
    ///
    /// # Errors
    /// The kernel refuses: more than 65,536 addresses of a family.
    pub fn insert(&self, address: IpAddr) -> io::Result<()> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        self.set(address, true)?;
        known.insert(address);
        Ok(())
    }

    /// Packets to `address` are forwarded from now on.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn remove(&self, address: IpAddr) -> io::Result<()> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        self.set(address, false)?;
        known.remove(&address);
        Ok(())
    }

    /// Reads the kernel's addresses, of all interfaces of this thread's network namespace, and takes these and no
    /// others from now on. Returns how many came or went.
    ///
    /// # Errors
    /// The kernel does not tell, or refuses.
    pub fn refresh(&self) -> io::Result<usize> {
        let now = Self::of_the_kernel()?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut changes = 0;
        // What is new comes first: in between, rather one packet too many stays with the kernel.
        for address in now.difference(&known) {
            self.set(*address, true)?;
            changes += 1;
        }
        for address in known.difference(&now) {
            self.set(*address, false)?;
            changes += 1;
        }
        *known = now;
        Ok(changes)
    }

    fn set(&self, address: IpAddr, is_local: bool) -> io::Result<()> {
        // Without the port, there is nothing to steer.
        let Some(attachment) = self.attachment.upgrade() else { return Ok(()) };
        attachment.program.set_address(address, is_local)
    }
}
