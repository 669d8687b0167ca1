//! What a front end says, and what becomes of it.
//!
//! Whatever it says wrong ends its connection, and changes nothing before.

use crate::connection::control::{Refusal, Session};
use crate::connection::inbound::Message;
use crate::connection::outgoing::Outgoing;
use crate::features::{self, EVENT_INDEX, PACKED, PROTOCOL_FEATURES, protocol};
use crate::memory::{GuestMemory, MAXIMUM_SLOTS};
use crate::protocol::{MemoryRegion, Reply, Request, RingAddresses, RingDescriptor, RingState};
use crate::queue::device::{PackedDevice, SplitDevice};
use crate::queue::ring::{Active, AnySide, Ring};
use crate::ring::{LONGEST, packed, split};
use rustix::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use warmlane_driver_common::peer::{Event, Extent, PeerMapping};

/// Protocol features that are there.
const PROTOCOL: u64 = protocol::MULTIQUEUE
    | protocol::REPLY_ACK
    | protocol::MTU
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
    alarm: Event,
}

impl DeviceSession {
    /// `rings` are those that the lanes have: of each pair first the driver's receive ring.
    pub(super) fn new(rings: Vec<Arc<Ring>>, offered: u64, alarm: Event) -> Self {
        let settings = rings.iter().map(|_| Setting::default()).collect();
        Self {
            rings,
            settings,
            offered: offered | PROTOCOL_FEATURES,
            features: 0,
            protocol_features: 0,
            memory: Arc::default(),
            status: 0,
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
                *setting = Setting { is_enabled: setting.is_enabled, ..Setting::default() };
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
                        active.call = call;
                        if let Some(call) = &active.call {
                            call.signal();
                        }
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
            Request::ResetDevice | Request::ResetOwner => self.reset(),
            Request::SetMemoryTable(_)
            | Request::GetMaximumMemorySlots
            | Request::AddMemoryRegion(_)
            | Request::RemoveMemoryRegion(_) => return self.obey_about_memory(request, &descriptors),
            // The MTU is the driver's affair; who owns the session is known.
            Request::SetOwner | Request::SetMtu(_) => {}
            Request::SetLogBase(_)
            | Request::SetLogDescriptor
            | Request::SendRarp(_)
            | Request::GetInflight(_)
            | Request::SetInflight(_) => {
                return Err(format!("message {}, which was not offered", request.number()));
            }
        }
        Ok(None)
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
                self.map(&mut memory, region, file)?;
            }
            Request::RemoveMemoryRegion(region) => {
                memory.clone_from(&self.memory);
                memory.remove(region).map_err(|error| error.to_string())?;
            }
            _ => return Ok(Some(Reply::Number(MAXIMUM_SLOTS as u64))),
        }
        self.memory = Arc::new(memory);
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
        let side = device(&self.memory, self.features, setting, addresses)
            .map_err(|what| format!("ring {number}: {what}"))?;
        let active = Active {
            side,
            memory: Arc::clone(&self.memory),
            features: self.features,
            is_enabled: setting.is_enabled,
            call: setting.call.clone(),
        };
        self.rings[number].change(|place| *place = Some(active));
        Ok(())
    }

    /// As if nothing had been said of rings.
    fn reset(&mut self) {
        for (ring, setting) in self.rings.iter().zip(&mut self.settings) {
            ring.reset();
            *setting = Setting { is_enabled: setting.is_enabled, ..Setting::default() };
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
        lost.or_else(|| self.rings.iter().find_map(|ring| ring.broken()))
    }

    fn take(&mut self, message: Message) -> Result<Vec<Outgoing>, Refusal> {
        let Message { header, payload, descriptors } = message;
        if header.is_reply {
            return Err("an answer to nothing".to_owned());
        }
        let request = Request::decode(header.request, &payload).map_err(|error| error.to_string())?;
        check_descriptors(&request, descriptors.len())?;
        let reply = self.obey(&request, descriptors)?;
        let wants_ack = header.needs_reply && self.protocol_features & protocol::REPLY_ACK != 0;
        let reply = reply.or_else(|| wants_ack.then_some(Reply::Number(0)));
        let answer = |reply: Reply| Outgoing { bytes: reply.encode(header.request), file: None };
        Ok(reply.map(answer).into_iter().collect())
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

/// The device's side of a ring.
fn device(
    memory: &GuestMemory,
    features: u64,
    setting: &Setting,
    addresses: RingAddresses,
) -> Result<AnySide, &'static str> {
    // At most 2^15.
    let size = setting.size as u16;
    let part = |address: u64, bytes: usize, alignment: usize| -> Result<NonNull<u8>, &'static str> {
        let place = memory.user(address, bytes).ok_or("a part of it is outside the memory")?;
        let is_aligned = place.addr().get().is_multiple_of(alignment);
        is_aligned.then_some(place).ok_or("a part of it is at an odd address")
    };
    let RingAddresses { descriptors, available, used, .. } = addresses;
    let event_index = features & EVENT_INDEX != 0;
    if features & PACKED != 0 {
        let parts = packed::Parts {
            descriptors: part(descriptors, packed::descriptors_bytes(size), packed::DESCRIPTORS_ALIGNMENT)?,
            driver: part(available, packed::SUPPRESSION_BYTES, packed::SUPPRESSION_ALIGNMENT)?,
            device: part(used, packed::SUPPRESSION_BYTES, packed::SUPPRESSION_ALIGNMENT)?,
        };
        // SAFETY: the parts are mapped and aligned, by `part`, for as long as the memory is held, as `Active` does; the size was checked when it was
        // said. Descriptors may point at the ring itself: what is there is then copied, or overwritten by whole packets, as the other
        // side could do as well.
        let ring = unsafe { packed::PackedRing::new(parts, size) };
        PackedDevice::new(ring, setting.base, event_index)
            .map(AnySide::PackedDevice)
            .ok_or("it is to go on at a place that it doesn't have")
    } else {
        if !size.is_power_of_two() {
            return Err("its size is no power of two");
        }
        let parts = split::Parts {
            descriptors: part(descriptors, split::descriptors_bytes(size), split::DESCRIPTORS_ALIGNMENT)?,
            available: part(available, split::available_bytes(size), split::AVAILABLE_ALIGNMENT)?,
            used: part(used, split::used_bytes(size), split::USED_ALIGNMENT)?,
        };
        // SAFETY: as above.
        let ring = unsafe { split::SplitRing::new(parts, size) };
        Ok(AnySide::SplitDevice(SplitDevice::new(ring, event_index)))
    }
}

/// What is offered to a driver.
pub(super) const fn offered(pairs: usize, offloads: bool) -> u64 {
    let rings = if pairs > 1 { features::RINGS } else { features::RINGS & !features::MULTIQUEUE };
    let packets = if offloads { features::DEVICE_OFFLOADS | features::DRIVER_OFFLOADS } else { 0 };
    rings | packets
}
