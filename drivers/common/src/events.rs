//! What happens to the ports of a program while it runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use warmlane_counters::{Description, Entry, Labels, Registry, Role, Source};

use crate::peer::ConnectionStatus;

/// Asks how a port's connection is. `None` when the port is closed.
type Ask = dyn Fn() -> Option<ConnectionStatus> + Send + Sync;

/// Sentences that wait to be told. More are lost, and counted.
const WAITING: usize = 64;

/// How serious it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Good to know.
    Note,
    /// Something is wrong.
    Warning,
}

/// What happens to a program's ports while they are open: connections that come and go, and what drivers' threads report. For who tells people.
pub struct PortEvents {
    connections: Vec<Watched>,
    reports: (SyncSender<Report>, Receiver<Report>),
    lost: Arc<AtomicU64>,
}

struct Report {
    port: Arc<str>,
    severity: Severity,
    sentence: String,
}

/// By which the threads of a port report what happens to it.
#[derive(Clone)]
pub struct Reporter {
    port: Arc<str>,
    reports: SyncSender<Report>,
    lost: Arc<AtomicU64>,
}

impl Reporter {
    /// The port's name.
    pub fn port(&self) -> &str {
        &self.port
    }

    /// Reports a sentence. It never waits.
    pub fn report(&self, severity: Severity, sentence: impl Into<String>) {
        let report = Report { port: Arc::clone(&self.port), severity, sentence: sentence.into() };
        if self.reports.try_send(report).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl std::fmt::Debug for Reporter {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Reporter").field("port", &self.port).finish_non_exhaustive()
    }
}

impl Default for PortEvents {
    fn default() -> Self {
        Self { connections: Vec::new(), reports: sync_channel(WAITING), lost: Arc::default() }
    }
}

struct Watched {
    port: String,
    status: Arc<Ask>,
    /// As it was told last. `None`: the port reports what becomes of it.
    last: Option<ConnectionStatus>,
}

/// A connection among what is counted.
struct Shown(Arc<Ask>);

impl Shown {
    const NOW: Description = Description {
        set: "port",
        name: "connections",
        unit: "connections",
        help: "1 while the other side is connected (`pci`: the link is up), and else 0.",
        role: Role::Gauge,
    };

    const MADE: Description = Description {
        set: "port",
        name: "connected",
        unit: "times",
        help: "Times that the other side connected (`pci`: that the link came up).",
        role: Role::Note,
    };
}

impl Source for Shown {
    fn read(&self, each: &mut dyn FnMut(Entry)) {
        let ConnectionStatus { connected, connections, .. } = (self.0)().unwrap_or_default();
        each(Entry::of(Self::NOW, connected.into()));
        each(Entry::of(Self::MADE, connections));
    }
}

impl PortEvents {
    /// One more connection, of this port. What becomes of it is told.
    pub(crate) fn add(
        &mut self,
        port: String,
        status: impl Fn() -> Option<ConnectionStatus> + Send + Sync + 'static,
    ) {
        let last = Some(ConnectionStatus::default());
        self.connections.push(Watched { port, status: Arc::new(status), last });
    }

    /// As [`add`](Self::add), for a port that reports itself what becomes of it.
    pub(crate) fn count(
        &mut self,
        port: String,
        status: impl Fn() -> Option<ConnectionStatus> + Send + Sync + 'static,
    ) {
        self.connections.push(Watched { port, status: Arc::new(status), last: None });
    }

    /// For threads of the port of this name.
    pub fn reporter(&self, port: &str) -> Reporter {
        Reporter { port: port.into(), reports: self.reports.0.clone(), lost: Arc::clone(&self.lost) }
    }

    /// Shows how each connection is, under the label `port`.
    pub fn register(&self, registry: &Registry) {
        for Watched { port, status, .. } in &self.connections {
            registry.add(Labels::new().with("port", port), Shown(Arc::clone(status)));
        }
    }

    /// Calls `tell` with the name of each port of which something is new since the last time, and a sentence. What became of a connection more often meanwhile is
    /// said once.
    pub fn tell(&mut self, mut tell: impl FnMut(&str, Severity, &str)) {
        for Report { port, severity, sentence } in self.reports.1.try_iter() {
            tell(&port, severity, &sentence);
            let lost = self.lost.swap(0, Ordering::Relaxed);
            if lost > 0 {
                tell(
                    &port,
                    Severity::Warning,
                    &format!("{lost} more reports, of this port or others, were lost"),
                );
            }
        }
        for watched in &mut self.connections {
            watched.tell_change(|port, sentence| tell(port, Severity::Note, sentence));
        }
    }
}

impl Watched {
    fn tell_change(&mut self, mut tell: impl FnMut(&str, &str)) {
        let Self { port, status, last: Some(last) } = self else { return };
        let Some(now) = status().filter(|now| now != last) else { return };
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

impl std::fmt::Debug for PortEvents {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("PortEvents")
            .field("connections", &self.connections.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::Connection;

    #[test]
    fn what_becomes_of_a_connection_is_said_once() {
        let connection = Arc::new(Connection::default());
        let mut events = PortEvents::default();
        let looked_at = Arc::clone(&connection);
        events.add("east".to_owned(), move || Some(looked_at.status()));
        let mut said = || {
            let mut sentences = Vec::new();
            events.tell(|port, _, sentence| sentences.push(format!("{port}: {sentence}")));
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
        let (mut events, registry) = (PortEvents::default(), Registry::new());
        let looked_at = Arc::downgrade(&connection);
        events.add("east".to_owned(), move || Some(looked_at.upgrade()?.status()));
        events.register(&registry);
        let values = || {
            let mut values = Vec::new();
            registry.read(|labels, entry| {
                assert_eq!(labels.get("port"), Some("east"));
                values.push((entry.description.name, entry.value));
            });
            values
        };
        assert_eq!(values(), [("connections", 0), ("connected", 0)]);
        connection.up();
        assert_eq!(values(), [("connections", 1), ("connected", 1)]);
        connection.down("closed".to_owned());
        assert_eq!(values(), [("connections", 0), ("connected", 1)]);
        drop(connection);
        assert_eq!(values(), [("connections", 0), ("connected", 0)]);
    }

    #[test]
    fn what_a_port_reports_itself_is_counted_and_not_told_twice() {
        let connection = Arc::new(Connection::default());
        let (mut events, registry) = (PortEvents::default(), Registry::new());
        let looked_at = Arc::clone(&connection);
        events.count("east".to_owned(), move || Some(looked_at.status()));
        events.register(&registry);
        connection.up();
        events.tell(|_, _, sentence| panic!("{sentence}"));
        let mut values = Vec::new();
        registry.read(|_, entry| values.push(entry.value));
        assert_eq!(values, [1, 1]);
    }

    #[test]
    fn reports_are_told_in_order_and_the_lost_counted() {
        let mut events = PortEvents::default();
        let reporter = events.reporter("west");
        reporter.report(Severity::Warning, "its link is down");
        reporter.report(Severity::Note, "its link is up");
        let told = |events: &mut PortEvents| {
            let mut told = Vec::new();
            events
                .tell(|port, severity, sentence| told.push((port.to_owned(), severity, sentence.to_owned())));
            told
        };
        let west = |severity, sentence: &str| ("west".to_owned(), severity, sentence.to_owned());
        let expected = [west(Severity::Warning, "its link is down"), west(Severity::Note, "its link is up")];
        assert_eq!(told(&mut events), expected);
        (0..WAITING + 3).for_each(|number| reporter.report(Severity::Note, number.to_string()));
        let all = told(&mut events);
        assert_eq!(all.len(), WAITING + 1);
        assert!(all[1].2.starts_with("3 more reports"), "{all:?}");
        drop(events);
        reporter.report(Severity::Note, "nobody hears it");
    }
}
