//! Copies of packets for whoever wants to see them: what comes in, what leaves, what is dropped.
//!
//! A [`ProbeReader`] is [asked for](crate::Graph::probe) by any thread, for one point of a running pipeline. The lane then puts a queue of
//! its own in front of the port's, which copies packets into a ring of bytes; when the reader is gone, so is that. While there
//! is none, a lane only looks once per poll whether it has been asked. Packets are never held up: what finds no space in the ring
//! is counted and left out.

mod copies;
mod edges;
mod orders;
mod queues;

use crate::graph::Graph;
use std::sync::Arc;
use warmlane_counters::counters;
use warmlane_sync::spsc::Consumer;

pub(crate) use copies::{Probe, StageProbes};
pub(crate) use edges::EdgeProbes;
pub(crate) use orders::{MOST, Orders};

/// Where packets are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// What comes in by one of [`Graph::inputs`] that is a port's.
    Input(usize),
    /// What one of [`Graph::outputs`] that is a port's takes.
    Output(usize),
    /// What goes over one of [`Graph::edges`] that leads from a stage. Those of one stage that lead to the same place are seen together.
    Edge(usize),
    /// What the lane drops, what its stages show of theirs ([`Outputs::show_drop`](crate::Outputs::show_drop)), and what its ports' queues do
    /// ([`CountDropped`](warmlane_port::CountDropped)).
    Drops,
}

/// Says whether a packet is wanted, by the first bytes of its frame (its first segment) and its length.
pub type Filter = Arc<dyn Fn(&[u8], usize) -> bool + Send + Sync>;

/// What is copied.
#[derive(Clone)]
pub struct ProbeConfig {
    /// One packet in so many is looked at; 0 counts as 1.
    pub one_in: u32,
    /// Only these of them; all if there is none.
    pub filter: Option<Filter>,
    /// Bytes of each packet, at most.
    pub snap_length: usize,
    /// Bytes of the ring, a power of two.
    pub ring: usize,
}

impl Default for ProbeConfig {
    fn default() -> Self {
        Self { one_in: 1, filter: None, snap_length: 262_144, ring: 4 << 20 }
    }
}

counters! {
    /// What a probe has done.
    pub struct ProbeCounters => ProbeCountersView {
        /// Packets copied.
        copied: Note, "packets";
        /// Packets left out because the ring was full.
        missed: Note, "packets";
    }
}

/// How many bytes a record has in front of the reason's name and the frame.
pub(crate) const HEADER: usize = 24;

/// What goes in front of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Header {
    /// Bytes of the frame that are there.
    pub(crate) captured: u32,
    /// Bytes that it has.
    pub(crate) length: u32,
    /// When it was seen, by [`clock::cycles`](warmlane_sys::clock::cycles).
    pub(crate) cycles: u64,
    /// The number of the input that it came in by.
    pub(crate) port: u16,
    /// Bytes of the reason's name.
    pub(crate) reason: u8,
}

impl Header {
    pub(crate) fn to_bytes(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..4].copy_from_slice(&self.captured.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.length.to_ne_bytes());
        bytes[8..16].copy_from_slice(&self.cycles.to_ne_bytes());
        bytes[16..18].copy_from_slice(&self.port.to_ne_bytes());
        bytes[18] = self.reason;
        bytes
    }

    fn from_bytes(bytes: &[u8; HEADER]) -> Self {
        let word = |from: usize| u32::from_ne_bytes(std::array::from_fn(|index| bytes[from + index]));
        Self {
            captured: word(0),
            length: word(4),
            cycles: u64::from_ne_bytes(std::array::from_fn(|index| bytes[8 + index])),
            port: u16::from_ne_bytes([bytes[16], bytes[17]]),
            reason: bytes[18],
        }
    }
}

/// A copy of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// When it was seen, by [`clock::cycles`](warmlane_sys::clock::cycles).
    pub cycles: u64,
    /// The number that its input gave it ([`InputNode::port`](crate::InputNode::port)).
    pub port: u16,
    /// The name of the reason why it was dropped, if it was.
    pub reason: Option<&'a str>,
    /// Bytes that the frame has.
    pub length: usize,
    /// The first of them.
    pub data: &'a [u8],
}

/// The other end of a probe. Dropping it takes the probe away.
pub struct ProbeReader {
    pub(crate) ring: Consumer<u8>,
    pub(crate) counters: ProbeCountersView,
    pub(crate) bytes: Vec<u8>,
    /// Behind the ring: dropped when that is gone. None where there is no lane to remind.
    pub(crate) _reminder: Option<Reminder>,
}

/// Lets the lane look for rings that nobody reads any more.
pub(crate) struct Reminder(pub(crate) Arc<Graph>);

impl Drop for Reminder {
    fn drop(&mut self) {
        self.0.orders.remind();
    }
}

impl ProbeReader {
    /// Calls `each` for the packets that have been copied since, up to so many; says how many there were.
    pub fn read(&mut self, most: usize, mut each: impl FnMut(Record<'_>)) -> usize {
        for count in 0..most {
            let mut header = [0; HEADER];
            if !self.ring.pop_bulk(&mut header) {
                return count;
            }
            let header = Header::from_bytes(&header);
            self.bytes.resize(usize::from(header.reason) + header.captured as usize, 0);
            // The lane puts in whole records only.
            if !self.ring.pop_bulk(&mut self.bytes) {
                return count;
            }
            let (reason, data) = self.bytes.split_at(usize::from(header.reason));
            let reason = std::str::from_utf8(reason).ok().filter(|reason| !reason.is_empty());
            let Header { cycles, port, length, .. } = header;
            each(Record { cycles, port, reason, length: length as usize, data });
        }
        most
    }

    /// Whether no more will come: the lane has ended, or the port has. Ask before the last [`read`](Self::read).
    pub fn is_over(&self) -> bool {
        self.ring.is_disconnected()
    }

    /// What was copied and missed.
    pub const fn counters(&self) -> &ProbeCountersView {
        &self.counters
    }
}

impl std::fmt::Debug for ProbeReader {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ProbeReader").field("counters", &self.counters).finish_non_exhaustive()
    }
}
