//! What a front end says, and what becomes of it.
//!
//! Whatever it says wrong ends its connection, and changes nothing before.

use crate::connection::control::{Refusal, Session};
use crate::connection::inbound::Message;
use crate::connection::outgoing::Outgoing;
use crate::features::{self, LOG_ALL, PACKED, PROTOCOL_FEATURES, protocol};
use crate::log::{DirtyLog, RingLog};
use crate::memory::{GuestMemory, MAXIMUM_SLOTS};
use crate::protocol::{Log, MemoryRegion, Reply, Request, RingAddresses, RingDescriptor, RingState};
use crate::queue::notify::boxed;
use crate::queue::ring::{Active, Ring};
use crate::ring::LONGEST;
use crate::vhost::device::{Resumption, device, written_parts};
use crate::vhost::inflight::InflightMemory;
use rustix::fd::OwnedFd;
use std::sync::Arc;
use warmlane_driver_common::peer::{Event, Extent, PeerMapping};

/// Protocol features that are there.
const PROTOCOL: u64 = protocol::MULTIQUEUE
    | protocol::LOG_MEMORY
    | protocol::REPLY_ACK
    | protocol::MTU
    | protocol::INFLIGHT
    | protocol::RESET_DEVICE
    | protocol::MEMORY_SLOTS
    | protocol::STATUS;

/// What is known of a ring.
#[derive(Debug, Default)]
struct Setting {
    size: u32,
    addresses: Option<RingAddresses>,
    base: u32,
    /// The driver may begin: it was said where it kicks, or that it doesn't.
    is_started: bool,
    is_enabled: bool,
    call: Option<Event>,
    /// It was started by this connection. Before, another back end may have been killed.
    was_started: bool,
}

impl Setting {
    /// As it is when the ring was stopped: what was said of it holds no longer.
    fn stopped(&self) -> Self {
        Self { is_enabled: self.is_enabled, was_started: self.was_started, ..Self::default() }
    }
}

/// A connection with a front end.
pub(super) struct DeviceSession {
    rings: Vec<Arc<Ring>>,
    settings: Vec<Setting>,
    offered: u64,
    features: u64,
    protocol_features: u64,
    memory: Arc<GuestMemory>,
    status: u64,
    log: Option<Arc<DirtyLog>>,
    inflight: Option<InflightMemory>,
    alarm: Event,
}

/// An answer, and a file that goes with it.
type Answer = (Reply, Option<OwnedFd>);

impl DeviceSession {
    /// `rings` are those that the lanes have: of each pair first the driver's receive ring.
    pub(super) fn new(rings: Vec<Arc<Ring>>, offered: u64, alarm: Event) -> Self {
        let settings = rings.iter().map(|_| Setting::default()).collect();
        Self {
            rings,
            settings,
            offered: offered | PROTOCOL_FEATURES | LOG_ALL,
            features: 0,
            protocol_features: 0,
            memory: Arc::default(),
            status: 0,
            log: None,
            inflight: None,
            alarm,
        }
    }

    fn obey(&mut self, request: &Request, mut descriptors: Vec<OwnedFd>) -> Result<Option<Reply>, Refusal> {
        match *request {
            Request::GetFeatures => return Ok(Some(Reply::Number(self.offered))),
            Request::SetFeatures(features) => self.set_features(features)?,
            Request::GetProtocolFeatures => return Ok(Some(Reply::Number(PROTOCOL))),
            Request::SetProtocolFeatures(features) => {
                if features & !PROTOCOL != 0 {
                    return Err(format!("protocol features {features:#x}: only {PROTOCOL:#x} were offered"));
                }
                self.protocol_features = features;
            }
            Request::GetQueueCount => return Ok(Some(Reply::Number(self.rings.len() as u64 / 2))),
            Request::SetRingSize(RingState { index, value }) => {
                let is_possible = (1..=LONGEST).contains(&value)
                    && (value.is_power_of_two() || self.features & PACKED != 0);
                if !is_possible {
                    return Err(format!(
                        "ring {index} with {value} descriptors: it needs a power of two up to {LONGEST}"
                    ));
                }
                self.change(index, |setting| setting.size = value)?;
            }
            Request::SetRingAddresses(addresses) => {
                self.change(addresses.index, |setting| setting.addresses = Some(addresses))?;
            }
            Request::SetRingBase(RingState { index, value }) => {
                self.change(index, |setting| setting.base = value)?;
            }
            Request::GetRingBase(RingState { index, .. }) => {
                let number = self.number(index)?;
                self.stop(number);
                let setting = &mut self.settings[number];
                let value = setting.base;
                *setting = setting.stopped();
                self.set_kick(number, None)?;
                return Ok(Some(Reply::Ring(RingState { index, value })));
            }
            Request::SetRingKick(ring) => {
                let kick = event(ring, descriptors.pop())?;
                let number = self.number(ring.index.into())?;
                self.set_kick(number, kick)?;
                self.change(ring.index.into(), |setting| setting.is_started = true)?;
            }
            Request::SetRingCall(ring) => {
                let call = event(ring, descriptors.pop())?;
                let number = self.number(ring.index.into())?;
                self.settings[number].call.clone_from(&call);
                self.rings[number].change(|active| {
                    if let Some(active) = active {
                        // The driver may have waited for the former one.
                        if let Some(call) = &call {
                            call.signal();
                        }
                        active.call = boxed(call);
                    }
                });
            }
            // Nobody is told of that: the connection ends.
            Request::SetRingError(ring) => {
                self.number(ring.index.into())?;
            }
            Request::SetRingEnabled(RingState { index, value }) => {
                let number = self.number(index)?;
                self.settings[number].is_enabled = value != 0;
                self.rings[number].change(|active| {
                    if let Some(active) = active {
                        active.is_enabled = value != 0;
                    }
                });
            }
            Request::SetStatus(status) => {
                self.status = status & 0xff;
                if self.status == 0 {
                    self.reset();
                }
            }
            Request::GetStatus => return Ok(Some(Reply::Number(self.status))),
            Request::ResetDevice | Request::ResetOwner => {
                self.reset();
                self.settings.iter_mut().for_each(|setting| setting.base = 0);
            }
            Request::SetMemoryTable(_)
            | Request::GetMaximumMemorySlots
            | Request::AddMemoryRegion(_)
            | Request::RemoveMemoryRegion(_) => return self.obey_about_memory(request, &descriptors),
            // The MTU is the driver's affair; who owns the session is known; front ends look at the log when they want to.
            Request::SetOwner | Request::SetMtu(_) | Request::SetLogDescriptor => {}
            Request::SetLogBase(log) => {
                self.set_log(log, &descriptors)?;
                return Ok(Some(Reply::Number(0)));
            }
            Request::SetInflight(inflight) => {
                let file = descriptors.first().ok_or("notes of buffers without a file")?;
                let is_packed = self.features & PACKED != 0;
                self.inflight = Some(InflightMemory::new(inflight, file, is_packed, &self.alarm)?);
            }
            Request::SendRarp(_) | Request::GetInflight(_) => {
                return Err(format!("message {}, which was not offered", request.number()));
            }
        }
        Ok(None)
    }

    /// Does what is said, and answers.
    fn answer(&mut self, request: &Request, descriptors: Vec<OwnedFd>) -> Result<Option<Answer>, Refusal> {
        if let Request::GetInflight(wanted) = *request {
            let (inflight, file) = InflightMemory::make(wanted, self.features & PACKED != 0)?;
            return Ok(Some((Reply::Inflight(inflight), Some(file))));
        }
        Ok(self.obey(request, descriptors)?.map(|reply| (reply, None)))
    }

    /// From now on it is logged what is written, if [`LOG_ALL`] says so.
    fn set_log(&mut self, Log { length, offset }: Log, files: &[OwnedFd]) -> Result<(), Refusal> {
        let file = files.first().ok_or("a log without a file")?;
        let mapping = PeerMapping::new(file, Extent { offset, length }, false, &self.alarm)
            .map_err(|error| format!("a log of {error}"))?;
        self.log = Some(Arc::new(DirtyLog::new(mapping)));
        self.check_log()?;
        self.restart_all()
    }

    fn check_log(&self) -> Result<(), Refusal> {
        if self.log.as_ref().is_none_or(|log| log.covers(self.memory.end())) {
            return Ok(());
        }
        Err("the log of written pages is shorter than the memory".to_owned())
    }

    fn obey_about_memory(&mut self, request: &Request, files: &[OwnedFd]) -> Result<Option<Reply>, Refusal> {
        let mut memory = GuestMemory::default();
        match request {
            Request::SetMemoryTable(regions) => {
                for (region, file) in regions.iter().zip(files) {
                    self.map(&mut memory, region, file)?;
                }
            }
            Request::AddMemoryRegion(region) => {
                memory.clone_from(&self.memory);
                let file = files.first().ok_or("a region of memory without a file")?;
                if !memory.add_again(region) {
                    self.map(&mut memory, region, file)?;
                }
            }
            Request::RemoveMemoryRegion(region) => {
                memory.clone_from(&self.memory);
                memory.remove(region).map_err(|error| error.to_string())?;
            }
            _ => return Ok(Some(Reply::Number(MAXIMUM_SLOTS as u64))),
        }
        self.memory = Arc::new(memory);
        self.check_log()?;
        self.restart_all()?;
        Ok(None)
    }

    fn number(&self, index: u32) -> Result<usize, Refusal> {
        let number = usize::try_from(index).ok().filter(|number| *number < self.rings.len());
        number.ok_or_else(|| {
            format!(
                "ring {index}: this port has {} pairs of rings (queues={})",
                self.rings.len() / 2,
                self.rings.len() / 2
            )
        })
    }

    fn set_features(&mut self, features: u64) -> Result<(), Refusal> {
        if features & !self.offered != 0 {
            return Err(format!("features {features:#x}: only {:#x} were offered", self.offered));
        }
        self.features = features;
        if features & PROTOCOL_FEATURES == 0 {
            // Nobody will enable them (specification, "Ring states").
            for setting in &mut self.settings {
                setting.is_enabled = true;
            }
        }
        self.restart_all()
    }

    fn map(&self, memory: &mut GuestMemory, region: &MemoryRegion, file: &OwnedFd) -> Result<(), Refusal> {
        let extent = Extent { offset: region.offset, length: region.length };
        let mapping = PeerMapping::new(file, extent, false, &self.alarm)
            .map_err(|error| format!("a region of memory of {error}"))?;
        memory.add(region, mapping).map_err(|error| error.to_string())
    }

    fn set_kick(&self, number: usize, kick: Option<Event>) -> Result<(), Refusal> {
        let failed = |error| format!("ring {number}: can't wait for its event: {error}");
        self.rings[number].doorbell.set_kick(kick).map_err(failed)
    }

    /// Changes what is known of a ring, and what it is by that.
    fn change(&mut self, index: u32, change: impl FnOnce(&mut Setting)) -> Result<(), Refusal> {
        let number = self.number(index)?;
        self.stop(number);
        change(&mut self.settings[number]);
        self.start(number)
    }

    fn restart_all(&mut self) -> Result<(), Refusal> {
        (0..self.rings.len()).try_for_each(|number| {
            self.stop(number);
            self.start(number)
        })
    }

    /// Stops a ring, and remembers where.
    fn stop(&mut self, number: usize) {
        if let Some(active) = self.rings[number].change(Option::take) {
            self.settings[number].base = active.side.base();
        }
    }

    /// Starts a ring, if all of it is known.
    fn start(&mut self, number: usize) -> Result<(), Refusal> {
        let setting = &self.settings[number];
        let Some(addresses) = setting.addresses.filter(|_| setting.is_started && setting.size > 0) else {
            return Ok(());
        };
        let resumption = Resumption {
            base: setting.base,
            is_first: !setting.was_started,
            notes: self.inflight.as_ref().map(|inflight| (inflight, number)),
        };
        // At most 2^15.
        let size = setting.size as u16;
        let side = device(&self.memory, self.features, size, addresses, resumption)
            .map_err(|what| format!("ring {number}: {what}"))?;
        let log = self.log.as_ref().filter(|_| self.features & LOG_ALL != 0).map(|log| {
            let parts = written_parts(&self.memory, self.features, size, addresses);
            RingLog::new(Arc::clone(log), parts)
        });
        // The device has said already when it wants to be told.
        log.iter().for_each(RingLog::ring);
        let active = Active {
            side,
            memory: Arc::clone(&self.memory),
            features: self.features,
            is_enabled: setting.is_enabled,
            call: boxed(setting.call.clone()),
            log,
        };
        self.settings[number].was_started = true;
        self.rings[number].change(|place| *place = Some(active));
        Ok(())
    }

    /// As if nothing had been said of rings, but where each was stopped: QEMU 7.2 sets the status to 0 first when it stops a device, and
    /// asks for that afterwards. A machine that migrates goes on there.
    fn reset(&mut self) {
        for number in 0..self.rings.len() {
            self.stop(number);
            self.rings[number].reset();
            let setting = &mut self.settings[number];
            *setting = Setting { base: setting.base, ..setting.stopped() };
        }
    }
}

impl Session for DeviceSession {
    fn is_up(&self) -> bool {
        // Of the first pair, which every driver has. What comes by a ring that is not enabled is dropped.
        self.rings.iter().take(2).all(|ring| ring.is_enabled())
    }

    fn broken(&self) -> Option<&'static str> {
        let lost = self.memory.is_lost().then_some("the front end has cut its memory short");
        let is_log_lost = self.log.as_ref().is_some_and(|log| log.is_lost());
        let lost = lost.or_else(|| is_log_lost.then_some("the front end has cut its log short"));
        let are_notes_lost = self.inflight.as_ref().is_some_and(InflightMemory::is_lost);
        let lost = lost.or_else(|| are_notes_lost.then_some("the front end has cut its notes short"));
        lost.or_else(|| self.rings.iter().find_map(|ring| ring.broken()))
    }

    fn take(&mut self, message: Message) -> Result<Vec<Outgoing>, Refusal> {
        let Message { header, payload, descriptors } = message;
        if header.is_reply {
            return Err("an answer to nothing".to_owned());
        }
        let request = Request::decode(header.request, &payload).map_err(|error| error.to_string())?;
        check_descriptors(&request, descriptors.len())?;
        let answer = self.answer(&request, descriptors)?;
        let wants_ack = header.needs_reply && self.protocol_features & protocol::REPLY_ACK != 0;
        let answer = answer.or_else(|| wants_ack.then_some((Reply::Number(0), None)));
        let outgoing = |(reply, file): Answer| Outgoing { bytes: reply.encode(header.request), file };
        Ok(answer.map(outgoing).into_iter().collect())
    }
}

impl Drop for DeviceSession {
    fn drop(&mut self) {
        for ring in &self.rings {
            ring.release();
        }
    }
}

/// How many descriptors come with which message. What comes too much is closed.
fn check_descriptors(request: &Request, count: usize) -> Result<(), Refusal> {
    let expected = match request {
        Request::SetMemoryTable(regions) => regions.len()..=regions.len(),
        Request::AddMemoryRegion(_)
        | Request::SetLogBase(_)
        | Request::SetLogDescriptor
        | Request::SetInflight(_) => 1..=1,
        // Some front ends send the file again.
        Request::RemoveMemoryRegion(_) | Request::SetRingError(_) => 0..=1,
        Request::SetRingKick(ring) | Request::SetRingCall(ring) => {
            let count = usize::from(ring.has_descriptor);
            count..=count
        }
        _ => 0..=0,
    };
    if expected.contains(&count) {
        return Ok(());
    }
    Err(format!("message {} with {count} descriptors", request.number()))
}

/// The event that comes with a message about a ring.
fn event(ring: RingDescriptor, descriptor: Option<OwnedFd>) -> Result<Option<Event>, Refusal> {
    let event = descriptor.map(Event::of_peer).transpose();
    event.map_err(|error| format!("ring {}: {error}", ring.index))
}

/// What is offered to a driver.
pub(super) const fn offered(pairs: usize, offloads: bool, hash_report: bool) -> u64 {
    let rings = if pairs > 1 { features::RINGS } else { features::RINGS & !features::MULTIQUEUE };
    let packets = if offloads { features::DEVICE_OFFLOADS | features::DRIVER_OFFLOADS } else { 0 };
    let hashes = if hash_report { features::HASH_REPORT } else { 0 };
    rings | packets | hashes
}
