//! What is done beside lanes and programs, over and over.

use super::reload::Running;
use super::service::Service;
use crate::messages;
use std::time::Duration;
use warmlane::assembly::{Assembly, Signals};
use warmlane::drivers::common::LocalSink as _;
use warmlane::drivers::xdp::{LeftFamilies, LocalFilter};
use warmlane::functions::router::control::{Follower, Host as _, Server};

/// A running router's control side.
pub(super) struct Control<'a> {
    pub(super) running: Running<'a>,
    pub(super) service: Service,
    pub(super) follower: &'a mut Follower,
    pub(super) server: &'a mut Server,
    /// Of each port on the user path.
    pub(super) filters: &'a [(String, LocalFilter)],
    pub(super) signals: &'a Signals,
}

impl Control<'_> {
    /// Waits for something to do, at most so long, and does it.
    pub(super) fn poll(&mut self, assembly: &Assembly, timeout: Duration) {
        let follower = &mut *self.follower;
        follower.poll(timeout, &self.server.descriptors());
        let changed = follower.take_local_change();
        if changed && let Err(error) = set_local(self.filters, follower) {
            messages::complain(format_args!("what is the box's own can't be left with the kernel: {error}"));
        }
        self.running.interfaces.follow(&self.running.now, follower.view(), changed);
        let mut host = self.running.with(assembly);
        if self.signals.take_reload() {
            match host.reload(follower) {
                Ok(changed) if changed.is_empty() => messages::note("read again, nothing is different"),
                Ok(changed) => {
                    for change in changed {
                        messages::note(format_args!("read again, {change}"));
                    }
                }
                Err(sentence) => messages::complain(sentence),
            }
        }
        self.server.serve(follower, &mut host);
        for remark in follower.take_remarks() {
            messages::complain(remark);
        }
        self.service.watch(assembly, follower.follows());
        self.service.say(self.running.interfaces.sentence());
    }
}

/// Tells each port's program what is the kernel's own.
pub(super) fn set_local(filters: &[(String, LocalFilter)], follower: &Follower) -> std::io::Result<()> {
    let addresses = follower.local_addresses();
    for (name, filter) in filters {
        filter.set_addresses(&addresses)?;
        let [ipv4, ipv6] = [false, true].map(|is_ipv6| follower.is_left(name, is_ipv6));
        filter.set_own(follower.local_mac(name), LeftFamilies { ipv4, ipv6 })?;
    }
    Ok(())
}
