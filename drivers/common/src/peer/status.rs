//! How a connection is, for who asks.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use warmlane_counters::{Description, Entry, Labels, Registry, Role, Source};

/// How a port's connection is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionStatus {
    /// It is up.
    pub connected: bool,
    /// How often it came up.
    pub connections: u64,
    /// Why the last attempt failed or the last connection ended; empty before.
    pub reason: String,
}

/// A connection that can be asked how it is and waited for.
#[derive(Debug, Default)]
pub struct Connection {
    status: Mutex<ConnectionStatus>,
    changed: Condvar,
}

impl Connection {
    fn lock(&self) -> MutexGuard<'_, ConnectionStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How it is.
    pub fn status(&self) -> ConnectionStatus {
        self.lock().clone()
    }

    /// It came up.
    pub fn up(&self) {
        let mut status = self.lock();
        status.connected = true;
        status.connections += 1;
        self.changed.notify_all();
    }

    /// It went down, or did not come up.
    pub fn down(&self, reason: String) {
        let mut status = self.lock();
        status.connected = false;
        status.reason = reason;
        self.changed.notify_all();
    }

    /// Somebody was turned away; the connection is as it was.
    pub fn refused(&self, reason: String) {
        self.lock().reason = reason;
    }

    /// Waits until it is up; `false` if it isn't by then.
    pub fn wait(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        let mut status = self.lock();
        loop {
            let rest = end.saturating_duration_since(Instant::now());
            if status.connected || rest.is_zero() {
                return status.connected;
            }
            status = self.changed.wait_timeout(status, rest).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Asks how a port's connection is. `None` when the port is closed.
type Ask = dyn Fn() -> Option<ConnectionStatus> + Send + Sync;

/// The connections of a program's ports, for who tells people what becomes of them.
#[derive(Default)]
pub struct Connections(Vec<Watched>);

struct Watched {
    port: String,
    status: Arc<Ask>,
    last: ConnectionStatus,
}

/// A connection among what is counted.
struct Shown(Arc<Ask>);

impl Shown {
    const UP: Description = Description {
        set: "connection",
        name: "up",
        unit: "",
        help: "1 while the other side is connected, and else 0.",
        role: Role::Gauge,
    };

    const MADE: Description = Description {
        set: "connection",
        name: "made",
        unit: "",
        help: "Times that the other side connected.",
        role: Role::Note,
    };
}

impl Source for Shown {
    fn read(&self, each: &mut dyn FnMut(Entry)) {
        let ConnectionStatus { connected, connections, .. } = (self.0)().unwrap_or_default();
        each(Entry::of(Self::UP, connected.into()));
        each(Entry::of(Self::MADE, connections));
    }
}

impl Connections {
    /// One more, of this port.
    pub(crate) fn add(
        &mut self,
        port: String,
        status: impl Fn() -> Option<ConnectionStatus> + Send + Sync + 'static,
    ) {
        self.0.push(Watched { port, status: Arc::new(status), last: ConnectionStatus::default() });
    }

    /// Shows how each of them is, under the label `port`.
    pub fn register(&self, registry: &Registry) {
        for Watched { port, status, .. } in &self.0 {
            registry.add(Labels::new().with("port", port), Shown(Arc::clone(status)));
        }
    }

    /// Calls `tell` with the name of each port of which something is new since the last time, and a sentence. What happened more often meanwhile is said
    /// once.
    pub fn tell_changes(&mut self, mut tell: impl FnMut(&str, &str)) {
        for Watched { port, status, last } in &mut self.0 {
            let Some(now) = status().filter(|now| now != last) else { continue };
            let is_new = now.connections != last.connections;
            if last.connected && (is_new || !now.connected) {
                tell(port, &format!("the other side is gone: {}", now.reason));
            } else if now.reason != last.reason {
                let how = match (now.connected, is_new) {
                    (true, false) => "somebody was refused",
                    (true, true) => "nobody was connected",
                    (false, _) => "nobody is connected",
                };
                tell(port, &format!("{how}: {}", now.reason));
            }
            if now.connected && is_new {
                tell(port, "the other side is connected");
            }
            *last = now;
        }
    }
}

impl std::fmt::Debug for Connections {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Connections").field("ports", &self.0.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_becomes_of_a_connection_is_said_once() {
        let connection = Arc::new(Connection::default());
        let mut connections = Connections::default();
        let looked_at = Arc::clone(&connection);
        connections.add("east".to_owned(), move || Some(looked_at.status()));
        let mut said = || {
            let mut sentences = Vec::new();
            connections.tell_changes(|port, sentence| sentences.push(format!("{port}: {sentence}")));
            sentences
        };
        assert!(said().is_empty());
        connection.down("no such file".to_owned());
        assert_eq!(said(), ["east: nobody is connected: no such file"]);
        connection.down("no such file".to_owned());
        assert!(said().is_empty(), "it is tried again and again");
        connection.refused("wrong secret".to_owned());
        assert_eq!(said(), ["east: nobody is connected: wrong secret"]);
        connection.up();
        assert_eq!(said(), ["east: the other side is connected"]);
        connection.refused("a second one".to_owned());
        assert_eq!(said(), ["east: somebody was refused: a second one"]);
        connection.down("closed".to_owned());
        assert_eq!(said(), ["east: the other side is gone: closed"]);
        connection.up();
        connection.down("cut short".to_owned());
        connection.up();
        assert_eq!(said(), ["east: nobody was connected: cut short", "east: the other side is connected"]);
    }

    #[test]
    fn metrics_say_who_is_there_now() {
        let connection = Arc::new(Connection::default());
        let (mut connections, registry) = (Connections::default(), Registry::new());
        let looked_at = Arc::downgrade(&connection);
        connections.add("east".to_owned(), move || Some(looked_at.upgrade()?.status()));
        connections.register(&registry);
        let values = || {
            let mut values = Vec::new();
            registry.read(|labels, entry| {
                assert_eq!(labels.get("port"), Some("east"));
                values.push((entry.description.name, entry.value));
            });
            values
        };
        assert_eq!(values(), [("up", 0), ("made", 0)]);
        connection.up();
        assert_eq!(values(), [("up", 1), ("made", 1)]);
        connection.down("closed".to_owned());
        assert_eq!(values(), [("up", 0), ("made", 1)]);
        drop(connection);
        assert_eq!(values(), [("up", 0), ("made", 0)]);
    }
}
