//! Follows the addresses that are the kernel's own, for ports that leave packets to them with it.

use crate::interface::{self, Interface};
use crate::netlink::{Changes, Requests};
use std::collections::HashSet;
use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

/// An Ethernet address that no frame is sent to alone: that of a group.
const NOBODY: [u8; 6] = [0xff; 6];

/// What leaves packets with the kernel, by their addresses.
pub trait LocalSink: Send {
    /// The number of the interface that packets come in by; `None` once the port is closed.
    fn interface(&self) -> Option<u32>;

    /// Packets to these addresses stay with the kernel from now on, and to no others.
    ///
    /// # Errors
    /// The kernel refuses.
    fn set_addresses(&self, addresses: &HashSet<IpAddr>) -> io::Result<()>;

    /// Frames to this Ethernet address are the interface's own from now on, and no others.
    ///
    /// # Errors
    /// The kernel refuses.
    fn set_mac(&self, mac: [u8; 6]) -> io::Result<()>;
}

/// Follows the kernel's own addresses: those of all interfaces of the network namespace that it was made in.
///
/// It has no thread: whoever runs the program calls [`follow`](Self::follow) when its descriptor is readable, or now and
/// then.
pub struct AddressFollower {
    changes: Changes,
    requests: Requests,
    addresses: HashSet<IpAddr>,
    sinks: Vec<Box<dyn LocalSink>>,
}

impl std::fmt::Debug for AddressFollower {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("AddressFollower").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

impl AddressFollower {
    /// Reads the addresses of the calling thread's network namespace.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn new() -> io::Result<Self> {
        // Listening starts before reading, so that nothing falls in between.
        let (changes, requests) = (Changes::of_addresses()?, Requests::open()?);
        let mut follower = Self { changes, requests, addresses: HashSet::new(), sinks: Vec::new() };
        follower.read()?;
        Ok(follower)
    }

    /// The kernel's own addresses, as of the last look.
    pub fn addresses(&self) -> &HashSet<IpAddr> {
        &self.addresses
    }

    /// Tells `sink` of changes from now on, and of what there is at once.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn add(&mut self, sink: Box<dyn LocalSink>) -> io::Result<()> {
        tell(&mut self.requests, &self.addresses, sink.as_ref())?;
        self.sinks.push(sink);
        Ok(())
    }

    /// Whether there is nobody to tell.
    pub fn is_idle(&self) -> bool {
        self.sinks.is_empty()
    }

    /// What to wait on.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.changes.descriptor()
    }

    /// Passes on what has changed since the last time. Does not wait. Sinks of ports that are closed are forgotten.
    ///
    /// # Errors
    /// The kernel refuses. What was missed comes with the next change.
    pub fn follow(&mut self) -> io::Result<()> {
        if !self.changes.take()? {
            return Ok(());
        }
        self.read()?;
        self.sinks.retain(|sink| sink.interface().is_some());
        for sink in &self.sinks {
            tell(&mut self.requests, &self.addresses, sink.as_ref())?;
        }
        Ok(())
    }

    fn read(&mut self) -> io::Result<()> {
        let all = interface::addresses(&mut self.requests)?;
        self.addresses = all.into_iter().map(|(_, address)| address).collect();
        Ok(())
    }
}

fn tell(requests: &mut Requests, addresses: &HashSet<IpAddr>, sink: &dyn LocalSink) -> io::Result<()> {
    sink.set_addresses(addresses)?;
    let Some(index) = sink.interface() else { return Ok(()) };
    match Interface::by_index_with(requests, index)? {
        // What a bridge takes is not for the interface itself.
        Some(interface) if interface.bridge().is_some() => sink.set_mac(NOBODY),
        Some(interface) => sink.set_mac(interface.mac.unwrap_or(NOBODY)),
        None => Ok(()),
    }
}
