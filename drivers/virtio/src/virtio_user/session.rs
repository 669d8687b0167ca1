//! What is said to a back end, and what it answers.
//!
//! Each question is answered before the next message, and after all that is said of a ring a question follows: so no more is under
//! way than a socket holds, and once the last is answered the back end has taken everything.

use super::options::VirtioUserOptions;
use super::shared_memory::{Kept, SharedMemory};
use crate::connection::control::{Refusal, Session};
use crate::connection::inbound::Message;
use crate::connection::outgoing::Outgoing;
use crate::features::{
    DEVICE_OFFLOADS, DRIVER_OFFLOADS, EVENT_INDEX, HASH_REPORT, IN_ORDER, MERGEABLE, MULTIQUEUE, PACKED,
    PROTOCOL_FEATURES, VERSION_1, protocol,
};
use crate::layout::Layout;
use crate::protocol::{Request, RingDescriptor, RingState};
use crate::queue::notify::boxed;
use crate::queue::ring::{Active, Ring};
use crate::ring::packed::Position;
use std::io;
use std::sync::{Arc, PoisonError};
use warmlane_driver_common::peer::Event;

/// Where the memory is for the device. Any place would do that is not zero; it says nothing about this process.
const ADDRESS: u64 = 1 << 32;

/// What was asked last.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// Which features are there?
    Features,
    /// Which features has the protocol?
    ProtocolFeatures,
    /// How many pairs of queues can there be?
    QueueCount,
    /// Nothing that matters: whether all that was said before of this ring was taken.
    Ring(usize),
    /// Nothing: packets go.
    Up,
}

/// A connection with a back end.
pub(super) struct DriverSession {
    rings: Vec<Arc<Ring>>,
    wanted: u64,
    ring_size: u16,
    memory_name: String,
    step: Step,
    features: u64,
    /// Rings that are in use, from the first on.
    used_rings: usize,
    shared: Option<SharedMemory>,
    /// What the former connection left, and the next one finds.
    kept: Kept,
}

impl DriverSession {
    pub(super) fn new(
        rings: Vec<Arc<Ring>>,
        wanted: u64,
        ring_size: u16,
        memory_name: &str,
        kept: Kept,
    ) -> Self {
        let memory_name = memory_name.to_owned();
        Self {
            rings,
            wanted,
            ring_size,
            memory_name,
            step: Step::Features,
            features: 0,
            used_rings: 2,
            shared: None,
            kept,
        }
    }

    /// Knows which features there are.
    fn agree(&mut self, offered: u64) -> Result<Vec<Outgoing>, Refusal> {
        if offered & VERSION_1 == 0 {
            return Err("the back end is of the time before virtio 1.0".to_owned());
        }
        if self.wanted & !offered & PACKED != 0 {
            return Err("the back end has no packed rings: packed=false".to_owned());
        }
        self.features = self.wanted & offered;
        if self.features & MERGEABLE == 0 {
            // There is no buffer for what is longer than a frame.
            self.features &= !DRIVER_OFFLOADS;
        }
        if self.features & PROTOCOL_FEATURES == 0 {
            self.features &= !MULTIQUEUE;
            return self.lend();
        }
        self.step = Step::ProtocolFeatures;
        Ok(vec![Outgoing::request(&Request::GetProtocolFeatures, None)])
    }

    /// Knows what the protocol has.
    fn agree_on_protocol(&mut self, offered: u64) -> Result<Vec<Outgoing>, Refusal> {
        let features = offered & protocol::MULTIQUEUE;
        let said = Outgoing::request(&Request::SetProtocolFeatures(features), None);
        if features == 0 || self.features & MULTIQUEUE == 0 {
            self.features &= !MULTIQUEUE;
            return Ok(std::iter::once(said).chain(self.lend()?).collect());
        }
        self.step = Step::QueueCount;
        Ok(vec![said, Outgoing::request(&Request::GetQueueCount, None)])
    }

    /// Lends memory, as all is known that it depends on: the same as to the former back end, if all of that is the same again.
    fn lend(&mut self) -> Result<Vec<Outgoing>, Refusal> {
        let is_packed = self.features & PACKED != 0;
        let layout = Layout { size: self.ring_size, is_packed, rings: self.used_rings, address: ADDRESS };
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).take();
        let shared = match kept.filter(|kept| kept.fits(layout, self.features)) {
            Some(kept) => kept,
            None => SharedMemory::new(&self.memory_name, layout, self.features)?,
        };
        let file = needed(shared.file.try_clone())?;
        let said = vec![
            Outgoing::request(&Request::SetOwner, None),
            Outgoing::request(&Request::SetFeatures(self.features), None),
            Outgoing::request(&Request::SetMemoryTable(vec![shared.region]), Some(file)),
        ];
        self.shared = Some(shared);
        Ok(said.into_iter().chain(self.start(0)?).collect())
    }

    /// Starts a ring: those with even numbers are for packets to this side.
    fn start(&mut self, number: usize) -> Result<Vec<Outgoing>, Refusal> {
        let Some(shared) = &mut self.shared else { return Err("rings without memory".to_owned()) };
        let side = shared.driver(number)?;
        let (layout, memory) = (shared.layout, &shared.memory);
        let (kick, call) = (needed(Event::new())?, needed(Event::new())?);
        let kick_file = needed(kick.fd().try_clone())?;
        let call_file = needed(call.fd().try_clone())?;
        let ring = &self.rings[number];
        needed(ring.doorbell.set_kick(Some(call)))?;
        ring.change(|place| {
            *place = Some(Active {
                side,
                memory: Arc::clone(memory),
                features: self.features,
                is_enabled: true,
                call: boxed(Some(kick)),
                // The memory is ours: nobody migrates it.
                log: None,
            });
        });
        let index = number as u32;
        let state = |value| RingState { index, value };
        let base = if layout.is_packed {
            let start = u32::from(Position::START.encode());
            start | start << 16
        } else {
            0
        };
        let with_file = RingDescriptor { index: number as u8, has_descriptor: true };
        let mut said = vec![
            Outgoing::request(&Request::SetRingSize(state(layout.size.into())), None),
            Outgoing::request(&Request::SetRingBase(state(base)), None),
            Outgoing::request(&Request::SetRingAddresses(layout.addresses(number)), None),
            Outgoing::request(&Request::SetRingCall(with_file), Some(call_file)),
            Outgoing::request(&Request::SetRingKick(with_file), Some(kick_file)),
        ];
        if self.features & PROTOCOL_FEATURES != 0 {
            said.push(Outgoing::request(&Request::SetRingEnabled(state(1)), None));
        }
        said.push(Outgoing::request(&Request::GetFeatures, None));
        self.step = Step::Ring(number);
        Ok(said)
    }
}

/// What a connection needs of the kernel.
fn needed<T>(result: io::Result<T>) -> Result<T, Refusal> {
    result.map_err(|error| format!("can't make what rings need: {error}"))
}

impl Session for DriverSession {
    fn begin(&mut self) -> Vec<Outgoing> {
        vec![Outgoing::request(&Request::GetFeatures, None)]
    }

    fn take(&mut self, message: Message) -> Result<Vec<Outgoing>, Refusal> {
        let asked = match self.step {
            Step::Features | Step::Ring(_) => Request::GetFeatures,
            Step::ProtocolFeatures => Request::GetProtocolFeatures,
            Step::QueueCount => Request::GetQueueCount,
            Step::Up => return Err("an answer to nothing".to_owned()),
        };
        let Message { header, payload, descriptors } = message;
        let is_answer = header.is_reply && header.request == asked.number() && descriptors.is_empty();
        let number = <[u8; 8]>::try_from(&payload[..]).ok().filter(|_| is_answer).map(u64::from_ne_bytes);
        let number = number.ok_or_else(|| format!("message {} is no answer", header.request))?;
        match self.step {
            Step::Features => self.agree(number),
            Step::ProtocolFeatures => self.agree_on_protocol(number),
            Step::QueueCount => {
                let pairs = usize::try_from(number).unwrap_or(usize::MAX).clamp(1, self.rings.len() / 2);
                self.used_rings = 2 * pairs;
                self.lend()
            }
            Step::Ring(ring) if ring + 1 < self.used_rings => self.start(ring + 1),
            Step::Ring(_) | Step::Up => {
                self.step = Step::Up;
                Ok(Vec::new())
            }
        }
    }

    fn is_up(&self) -> bool {
        self.step == Step::Up
    }

    fn broken(&self) -> Option<&'static str> {
        self.rings.iter().find_map(|ring| ring.broken())
    }
}

impl Drop for DriverSession {
    fn drop(&mut self) {
        if let Some(mut shared) = self.shared.take() {
            shared.take_back(&self.rings);
            *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(shared);
        }
        for ring in &self.rings {
            ring.release();
        }
    }
}

/// What is wanted of a back end, if it has it.
pub(super) fn wanted(pairs: usize, options: &VirtioUserOptions) -> u64 {
    let choices = [
        (pairs > 1, MULTIQUEUE),
        (options.packed, PACKED),
        (options.mergeable, MERGEABLE),
        (options.in_order, IN_ORDER),
        (options.offloads, DEVICE_OFFLOADS | DRIVER_OFFLOADS),
        (options.hash_report, HASH_REPORT),
    ];
    let chosen = choices.into_iter().filter(|(is_chosen, _)| *is_chosen);
    chosen.fold(PROTOCOL_FEATURES | VERSION_1 | EVENT_INDEX, |wanted, (_, features)| wanted | features)
}
