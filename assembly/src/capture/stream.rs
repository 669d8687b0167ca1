//! What probes, and programs in the kernel, have copied, as a stream of pcapng.

use super::paths::PathSource;
use super::{CaptureRequest, Interface, Seen, Source};
use crate::turns::has_enough;
use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use warmlane_pcap::{BlockInterface, BlockPacket, Blocks, PacketDirection};
use warmlane_sys::clock::{self, Clock};

/// How often to look, while packets come all the time, whether the client has had enough.
const TURNS_PER_LOOK: u32 = 64;

/// How long packets gather between turns. A lane writes to lines that the last turn has read, and pays for each one; so there are to be few turns, and
/// rings still large enough for what comes meanwhile.
const REST: Duration = Duration::from_millis(1);

/// How often what was copied before the end is read: more often than a ring has packets for.
const LAST_TURNS: u32 = 256;

/// Packets of a probe that are read before the next one's.
const AT_ONCE: usize = 1_024;

/// A capture at work.
pub(super) struct Capture {
    interfaces: Vec<Interface>,
    sources: Vec<Source>,
    in_kernel: Vec<PathSource>,
    /// What reasons mean; others are left out.
    reasons: BTreeMap<String, String>,
    ports: Vec<String>,
    snap_length: u32,
    left: u64,
    /// Nanoseconds since 1970 when the clock showed these cycles.
    began: (u64, u64),
    bytes: Vec<u8>,
    /// Where each packet is in these, and when it was seen, in nanoseconds since 1970.
    order: Vec<(u64, Range<usize>)>,
    /// All of them in the order of time.
    ordered: Vec<u8>,
}

impl Capture {
    pub(super) fn new(
        request: &CaptureRequest,
        interfaces: Vec<Interface>,
        (sources, in_kernel): (Vec<Source>, Vec<PathSource>),
        reasons: BTreeMap<String, String>,
    ) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            interfaces,
            sources,
            in_kernel,
            reasons,
            ports: request.ports.clone(),
            snap_length: request.snap_length,
            left: request.count.unwrap_or(u64::MAX),
            began: (u64::try_from(now.as_nanos()).unwrap_or(u64::MAX), clock::cycles()),
            bytes: Vec::new(),
            order: Vec::new(),
            ordered: Vec::new(),
        }
    }

    /// Writes packets until there have been enough, the client has, or the lanes or the program end.
    pub(super) fn run(mut self, stream: &UnixStream, is_ending: &dyn Fn() -> bool) {
        // The client hears of an error by the end of the stream, and has what came before it.
        let _ = self.write_all(stream, is_ending);
    }

    fn write_all(&mut self, mut stream: &UnixStream, is_ending: &dyn Fn() -> bool) -> io::Result<()> {
        let mut blocks = Blocks(&mut self.bytes);
        blocks.section(concat!("warmlane ", env!("CARGO_PKG_VERSION")));
        for Interface { name, description } in &self.interfaces {
            blocks.interface(&BlockInterface { name, description, snap_length: self.snap_length });
        }
        stream.write_all(&self.bytes)?;
        for turn in 1_u32.. {
            let is_ending = is_ending();
            let is_over =
                self.in_kernel.is_empty() && self.sources.iter().all(|source| source.reader.is_over());
            let count = self.gather();
            self.write_gathered(stream)?;
            if (1..AT_ONCE).contains(&count) {
                thread::sleep(REST);
            }
            let looks = count == 0 || turn.is_multiple_of(TURNS_PER_LOOK);
            if self.left == 0
                || is_over && count == 0
                || is_ending && !is_over
                || looks && has_enough(stream)?
            {
                break;
            }
        }
        // What has been copied by now is still written.
        for _ in 0..LAST_TURNS {
            if self.left == 0 || self.gather() == 0 {
                break;
            }
            self.write_gathered(stream)?;
        }
        self.bytes.clear();
        let now = self.time(clock::cycles());
        let mut sums = vec![(0, 0); self.interfaces.len()];
        for source in &self.sources {
            if let Some((received, missed)) = sums.get_mut(source.interface as usize) {
                let counters = source.reader.counters();
                // Behind the last packet of a count nothing is missed.
                let copied = if self.left == 0 { source.read } else { counters.copied() };
                *received += copied + counters.missed();
                *missed += copied.saturating_sub(source.read) + counters.missed();
            }
        }
        for source in &self.in_kernel {
            if let Some((received, missed)) = sums.get_mut(source.interface as usize) {
                *received += source.taken + source.missed();
                *missed += source.missed();
            }
        }
        for (interface, (received, missed)) in sums.into_iter().enumerate() {
            Blocks(&mut self.bytes).statistics(interface as u32, now, received, missed);
        }
        stream.write_all(&self.bytes)
    }

    /// Writes the blocks in the order of time.
    fn write_gathered(&mut self, mut stream: &UnixStream) -> io::Result<()> {
        self.ordered.clear();
        for (_, range) in &self.order {
            self.ordered.extend_from_slice(self.bytes.get(range.clone()).unwrap_or_default());
        }
        stream.write_all(&self.ordered)
    }

    /// Makes blocks of what has been copied, in the order of time; says how many packets there were, wanted or not.
    fn gather(&mut self) -> usize {
        self.bytes.clear();
        self.order.clear();
        let Self { interfaces, sources, in_kernel, reasons, ports, left, began, bytes, order, .. } = self;
        let mut all = 0;
        for source in sources {
            let Source { reader, seen, interface, interfaces_by_port, read } = source;
            all += reader.read(AT_ONCE, |record| {
                if *left == 0 {
                    return;
                }
                *read += 1;
                let mut comment = String::new();
                let mut number = *interface;
                if let Some(reason) = record.reason {
                    let Some(sentence) = reasons.get(reason) else { return };
                    number = interfaces_by_port.get(&record.port).copied().unwrap_or(number);
                    let name =
                        interfaces.get(number as usize).map_or("", |interface| interface.name.as_str());
                    if !ports.is_empty() && !ports.iter().any(|port| port == name) {
                        return;
                    }
                    comment = format!("dropped: {reason}: {sentence}");
                }
                *left -= 1;
                let start = bytes.len();
                let timestamp_nanoseconds = time(*began, record.cycles);
                Blocks(bytes).packet(&BlockPacket {
                    interface: number,
                    timestamp_nanoseconds,
                    length: record.length,
                    data: record.data,
                    direction: match seen {
                        Seen::In | Seen::Drop => PacketDirection::Inbound,
                        Seen::Out => PacketDirection::Outbound,
                        Seen::Edge => PacketDirection::Unknown,
                    },
                    comment: &comment,
                });
                order.push((timestamp_nanoseconds, start..bytes.len()));
            });
        }
        for source in in_kernel {
            let interface = source.interface;
            let is_known = |reason: &str| reasons.contains_key(reason);
            all += source.read(AT_ONCE, is_known, |copy, comment| {
                if *left == 0 {
                    return false;
                }
                *left -= 1;
                let start = bytes.len();
                Blocks(bytes).packet(&BlockPacket {
                    interface,
                    timestamp_nanoseconds: copy.time,
                    length: copy.length,
                    data: copy.data,
                    direction: PacketDirection::Inbound,
                    comment,
                });
                order.push((copy.time, start..bytes.len()));
                true
            });
        }
        order.sort_by_key(|(time, _)| *time);
        all
    }

    fn time(&self, cycles: u64) -> u64 {
        time(self.began, cycles)
    }
}

/// Nanoseconds since 1970 at a moment of the clock.
fn time((then, at): (u64, u64), cycles: u64) -> u64 {
    then + Clock::calibrated().nanoseconds(cycles.saturating_sub(at))
}
