//! What is done beside lanes and programs, over and over.

use super::path;
use super::reload::Running;
use super::service::Service;
use crate::messages;
use std::time::Duration;
use warmlane::assembly::router::UserPorts;
use warmlane::assembly::{Assembly, Signals};
use warmlane::control::{Common, Server};
use warmlane::functions::router::control::{Follower, Host as _, RouteList, RouterAnswers};

/// A running router's control side.
pub(super) struct Control<'a> {
    pub(super) running: Running<'a>,
    pub(super) service: Service,
    pub(super) follower: &'a mut Follower,
    pub(super) common: Common,
    pub(super) server: &'a mut Server<RouteList>,
    pub(super) user_ports: UserPorts,
    pub(super) signals: &'a Signals,
}

impl Control<'_> {
    /// Waits for something to do, at most so long, and does it.
    pub(super) fn poll(&mut self, assembly: &Assembly, timeout: Duration) {
        let follower = &mut *self.follower;
        follower.poll(timeout, &self.server.descriptors());
        let changed = follower.take_local_change();
        if changed && let Err(error) = self.user_ports.set_local(follower) {
            messages::complain(format_args!("what is the box's own can't be left with the kernel: {error}"));
        }
        self.user_ports.collect();
        self.running.interfaces.follow(follower, &mut self.user_ports, assembly, changed, &mut path::tell);
        self.user_ports.warn(&mut path::tell);
        let mut host = self.running.with(&mut self.user_ports, assembly);
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
        let common = &self.common;
        self.server.serve(&mut RouterAnswers { common, follower, host: &mut host });
        for remark in follower.take_remarks() {
            messages::complain(remark);
        }
        self.service.watch(assembly, follower.follows());
        self.service.say(self.running.interfaces.sentence());
    }
}
