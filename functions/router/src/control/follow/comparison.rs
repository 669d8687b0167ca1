//! Whether lanes and programs forward as the kernel would.

use std::io;

use super::{Follower, SETTLE, list, switches};
use crate::control::protocol::Host;
use crate::control::verify::{Comparison, Differences, Reference, compare};

/// How often a comparison is repeated while it finds something.
const ATTEMPTS: u32 = 5;

impl Follower {
    /// Lists the kernel's routes and compares; `host` compares paths inside the kernel. What differs only because something changes meanwhile
    /// doesn't count.
    ///
    /// # Errors
    /// The kernel's routes can't be listed.
    pub fn verify(&mut self, host: &mut dyn Host) -> io::Result<Comparison> {
        let mut persistent: Option<Differences> = None;
        let (mut routes, mut decisions, mut of_paths) = (0, 0, Vec::new());
        for _ in 0..ATTEMPTS {
            let has_lanes = self.has_lanes();
            let mut fresh = list(&mut self.request_socket, has_lanes)?;
            self.drain();
            let hooks = self.hook_watch.list(&self.view, self.fib.all_ports());
            fresh.set_hooks(self.about_hooks.holding(hooks.clone()));
            fresh.set_switches(switches(&fresh, self.fib.all_ports()));
            self.take_hooks(hooks);
            self.catch_up();
            let (mut differences, count) = compare(&fresh, &self.fib);
            routes = count;
            if let Some(before) = &persistent {
                differences.retain(|prefix, _| before.contains_key(prefix));
            }
            (decisions, of_paths) = host.verify(Reference {
                followed: &self.view,
                fresh: &fresh,
                changed: self.changed,
                socket: &mut self.request_socket,
            });
            let is_over = differences.is_empty() && of_paths.is_empty();
            persistent = Some(differences);
            if is_over {
                break;
            }
            std::thread::sleep(SETTLE);
        }
        let of_routes = persistent.unwrap_or_default().into_values();
        Ok(Comparison::new(routes, decisions, of_routes.chain(of_paths).collect()))
    }
}
