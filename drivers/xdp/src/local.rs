//! Which packets stay with the kernel: what a port's program looks up, set from outside.

use crate::bpf::{LeftFamilies, Program, TunnelEnds};
use std::collections::{HashMap, HashSet};
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use warmlane_driver_common::LocalSink;

/// The addresses that are the kernel's, as a port's program knows them; see [`Steering::Transit`](crate::Steering).
///
/// Whoever knows the kernel's addresses keeps it up to date: a router by its own view of the kernel, other programs by an
/// [`AddressFollower`](warmlane_driver_common::AddressFollower). It outlives the port, and then does nothing.
#[derive(Clone, Debug)]
pub struct LocalFilter {
    program: Weak<Program>,
    interface: u32,
    addresses: Arc<Mutex<HashMap<IpAddr, TunnelEnds>>>,
}

impl LocalFilter {
    /// Of a program that these addresses were set in already.
    pub(crate) fn new(program: &Arc<Program>, interface: u32, addresses: &HashSet<IpAddr>) -> Self {
        let addresses = addresses.iter().map(|address| (*address, TunnelEnds::default())).collect();
        Self { program: Arc::downgrade(program), interface, addresses: Arc::new(Mutex::new(addresses)) }
    }

    /// What is of these tunnels at addresses of the kernel's own comes to sockets from now on, and nothing else of what is for such addresses. Fragments
    /// stay with the kernel.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set_tunnel_ends(&self, ends: &HashMap<IpAddr, TunnelEnds>) -> io::Result<()> {
        let Some(program) = self.program.upgrade() else { return Ok(()) };
        let mut known = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        for (address, before) in known.iter_mut() {
            let ends = ends.get(address).copied().unwrap_or_default();
            if ends != *before {
                program.set_address(*address, Some(ends))?;
                *before = ends;
            }
        }
        Ok(())
    }

    /// Frames to this Ethernet address are the interface's own from now on, and no others. All of families that are left stay with
    /// the kernel, too.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set_own(&self, mac: [u8; 6], left: LeftFamilies) -> io::Result<()> {
        // Without the port, there is nothing to steer.
        let Some(program) = self.program.upgrade() else { return Ok(()) };
        program.set_own(mac, left)
    }
}

impl LocalSink for LocalFilter {
    fn interface(&self) -> Option<u32> {
        (self.program.strong_count() > 0).then_some(self.interface)
    }

    fn set_addresses(&self, addresses: &HashSet<IpAddr>) -> io::Result<()> {
        // Without the port, there is nothing to steer.
        let Some(program) = self.program.upgrade() else { return Ok(()) };
        let mut known = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        // What is new comes first: in between, rather one packet too many stays with the kernel.
        for address in addresses {
            if !known.contains_key(address) {
                program.set_address(*address, Some(TunnelEnds::default()))?;
                known.insert(*address, TunnelEnds::default());
            }
        }
        let gone: Vec<IpAddr> =
            known.keys().filter(|address| !addresses.contains(address)).copied().collect();
        for address in gone {
            program.set_address(address, None)?;
            known.remove(&address);
        }
        Ok(())
    }

    fn set_mac(&self, mac: [u8; 6]) -> io::Result<()> {
        self.set_own(mac, LeftFamilies::default())
    }
}
