//! What a driver hands out.

use std::fmt;
use std::sync::Arc;

use thiserror::Error;
use warmlane_counters::{Labels, Registry, Source};

use crate::offloads::Offloads;
use crate::queue::{QueueCountersView, ReceiveQueue, TransmitQueue};
use crate::software_offload;

/// An Ethernet address, in wire order. Protocol crates have their own type for it; this one knows no protocol.
pub type MacBytes = [u8; 6];

/// What a port can do, and what it got of what it asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// The port's own address, if it has one.
    pub mac: Option<MacBytes>,
    /// What it does for packets that software need not do.
    pub offloads: Offloads,
    /// The largest layer-3 packet in bytes, without the Ethernet header; `None` if there is no limit but
    /// `maximum_frame`.
    pub mtu: Option<u32>,
    /// The largest frame in bytes that can be sent, without the frame check sequence.
    pub maximum_frame: u32,
    /// Packets come with the time of their reception.
    pub timestamps: bool,
    /// What was chosen or fell back, one sentence each, for people.
    pub notes: Vec<String>,
}

/// A queue that was wanted of a port, and is not there.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "port '{port}' ({driver}) has no {direction} queue left: open it with more queues, or another port that can {direction}"
)]
pub struct NoQueue {
    /// The port.
    pub port: String,
    /// Its driver.
    pub driver: &'static str,
    /// The kind of queue: "receive" or "transmit". There was none, or all are taken.
    pub direction: &'static str,
}

/// A port: its queues move to lanes, the rest stays readable. It may receive only, or transmit only.
pub struct Port {
    /// Unique among the ports of a program.
    pub name: String,
    /// The driver's name.
    pub driver: &'static str,
    /// See [`Capabilities`].
    pub capabilities: Capabilities,
    /// Queues to receive from; may be empty.
    pub receive: Vec<Box<dyn ReceiveQueue>>,
    /// Queues to transmit on; may be empty.
    pub transmit: Vec<Box<dyn TransmitQueue>>,
}

impl Port {
    /// Takes the next queue to receive from.
    ///
    /// # Errors
    /// [`NoQueue`], if there is none.
    pub fn take_receive(&mut self) -> Result<Box<dyn ReceiveQueue>, NoQueue> {
        if self.receive.is_empty() {
            return Err(self.no_queue("receive"));
        }
        Ok(self.receive.remove(0))
    }

    /// Takes the next queue to transmit on.
    ///
    /// # Errors
    /// [`NoQueue`], if there is none.
    pub fn take_transmit(&mut self) -> Result<Box<dyn TransmitQueue>, NoQueue> {
        if self.transmit.is_empty() {
            return Err(self.no_queue("transmit"));
        }
        Ok(self.transmit.remove(0))
    }

    fn no_queue(&self, direction: &'static str) -> NoQueue {
        NoQueue { port: self.name.clone(), driver: self.driver, direction }
    }

    /// The same port whose receive queues [merge](software_offload::merge_received) frames of a flow.
    #[must_use]
    pub fn merging(mut self) -> Self {
        self.receive = self.receive.into_iter().map(software_offload::merge_received).collect();
        let offloads = &mut self.capabilities.offloads;
        offloads.leaves = offloads.leaves.or(software_offload::MERGED);
        offloads.in_software.merges = true;
        self
    }

    /// What stays readable of it when its queues are taken.
    pub fn view(&self) -> PortView {
        PortView {
            name: self.name.clone(),
            driver: self.driver,
            notes: self.capabilities.notes.clone(),
            receive: self.receive.iter().map(|queue| queue.counters()).collect(),
            transmit: self.transmit.iter().map(|queue| queue.counters()).collect(),
            own: self.own_counters(),
        }
    }

    fn own_counters(&self) -> Vec<Own> {
        let receive = self.receive.iter().enumerate();
        let receive = receive.map(|(number, queue)| (RECEIVE, number, queue.own_counters()));
        let transmit = self.transmit.iter().enumerate();
        let transmit = transmit.map(|(number, queue)| (TRANSMIT, number, queue.own_counters()));
        let all = receive.chain(transmit);
        all.flat_map(|(direction, queue, sources)| {
            sources.into_iter().map(move |source| Own { direction, queue, source: source.into() })
        })
        .collect()
    }
}

/// The values of the label `direction`.
const RECEIVE: &str = "receive";
const TRANSMIT: &str = "transmit";

/// What a queue counts besides what all queues do.
#[derive(Clone)]
struct Own {
    direction: &'static str,
    queue: usize,
    source: Arc<dyn Source>,
}

/// What stays readable of a port while its queues are with lanes.
#[derive(Clone)]
pub struct PortView {
    /// Its name.
    pub name: String,
    /// Its driver's.
    pub driver: &'static str,
    /// What was chosen or fell back, a sentence each.
    pub notes: Vec<String>,
    /// What its receive queues count.
    pub receive: Vec<QueueCountersView>,
    /// What its transmit queues count.
    pub transmit: Vec<QueueCountersView>,
    own: Vec<Own>,
}

impl PortView {
    /// Shows what its queues count, under the labels `port`, `driver`, `direction` (`receive` or `transmit`) and `queue`, and what a set says of
    /// itself ([`Source::label`]).
    pub fn register(&self, registry: &Registry) {
        let labels = |direction: &str, queue: usize| {
            let port = Labels::new().with("port", &self.name).with("driver", self.driver);
            port.with("direction", direction).with("queue", queue)
        };
        for (direction, queues) in [(RECEIVE, &self.receive), (TRANSMIT, &self.transmit)] {
            for (number, queue) in queues.iter().enumerate() {
                registry.add(labels(direction, number), queue.clone());
            }
        }
        for own in &self.own {
            let of_queue = labels(own.direction, own.queue);
            let labels = match own.source.label() {
                Some((name, value)) => of_queue.with(name, value),
                None => of_queue,
            };
            registry.add_shared(labels, Arc::clone(&own.source));
        }
    }
}

impl fmt::Debug for PortView {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut view = formatter.debug_struct("PortView");
        view.field("name", &self.name).field("driver", &self.driver).finish_non_exhaustive()
    }
}

impl fmt::Debug for Port {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Port")
            .field("name", &self.name)
            .field("driver", &self.driver)
            .field("capabilities", &self.capabilities)
            .field("receive", &self.receive.len())
            .field("transmit", &self.transmit.len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_queue::Numbers;
    use warmlane_mem::{Pool, PoolConfig};

    fn port(pool: &Pool) -> Port {
        Port {
            name: "left".to_owned(),
            driver: "numbers",
            capabilities: Capabilities::default(),
            receive: vec![Box::new(Numbers::new(pool, 1)), Box::new(Numbers::new(pool, 2))],
            transmit: Vec::new(),
        }
    }

    #[test]
    fn queues_are_taken_in_turn_and_then_missed_by_name() {
        let pool = Pool::new(&PoolConfig { buffers: 8, ..PoolConfig::default() }).unwrap();
        let mut port = port(&pool);
        for length in [1, 2] {
            let mut queue = port.take_receive().unwrap();
            assert_eq!(queue.receive(&mut warmlane_mem::Burst::new()), length);
        }
        let missing = port.take_receive().map(|_| ()).unwrap_err();
        assert_eq!((missing.port.as_str(), missing.direction), ("left", "receive"));
        let missing = port.take_transmit().map(|_| ()).unwrap_err().to_string();
        assert!(missing.starts_with("port 'left' (numbers) has no transmit queue"), "{missing}");
    }

    warmlane_counters::counters! {
        /// What only this kind of queue counts.
        struct OwnCounters => OwnCountersView {
            /// Interrupts.
            interrupts: Note, "interrupts";
        }
    }

    struct Counting(Numbers, OwnCounters);

    impl ReceiveQueue for Counting {
        fn receive(&mut self, burst: &mut warmlane_mem::Burst) -> usize {
            self.1.interrupts().add(1);
            self.0.receive(burst)
        }

        fn status(&self) -> crate::QueueStatus {
            self.0.status()
        }

        fn counters(&self) -> QueueCountersView {
            self.0.counters()
        }

        fn own_counters(&self) -> Vec<Box<dyn Source>> {
            vec![Box::new(self.1.view())]
        }
    }

    #[test]
    fn the_registry_shows_what_only_some_queues_count() {
        let pool = Pool::new(&PoolConfig { buffers: 8, ..PoolConfig::default() }).unwrap();
        let (mut port, registry) = (port(&pool), Registry::new());
        let counting = Box::new(Counting(Numbers::new(&pool, 1), OwnCounters::new()));
        // Also through what stands in front of it.
        port.receive[1] = crate::rate_limit::wrap(counting, 1e9, 64);
        port.view().register(&registry);
        port.receive[1].receive(&mut warmlane_mem::Burst::new());
        let seen = registry.views::<OwnCountersView>();
        let [(labels, own)] = &seen[..] else { panic!("{} sets", seen.len()) };
        assert_eq!((labels.get("port"), labels.get("queue"), own.interrupts()), (Some("left"), Some("1"), 1));
    }

    #[test]
    fn the_registry_shows_each_queue() {
        let pool = Pool::new(&PoolConfig { buffers: 8, ..PoolConfig::default() }).unwrap();
        let (mut port, registry) = (port(&pool), Registry::new());
        port.view().register(&registry);
        port.receive[1].receive(&mut warmlane_mem::Burst::new());
        drop(port.receive.drain(..));
        let mut packets = Vec::new();
        registry.read(|labels, entry| {
            if entry.description.name == "packets" {
                let label = |name| labels.get(name).map(str::to_owned);
                packets.push((label("port"), label("direction"), label("queue"), entry.value));
            }
        });
        let of = |queue: &str, value| {
            (Some("left".to_owned()), Some("receive".to_owned()), Some(queue.to_owned()), value)
        };
        assert_eq!(packets, [of("0", 0), of("1", 2)]);
    }
}
