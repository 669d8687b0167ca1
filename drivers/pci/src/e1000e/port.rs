//! A port on a card: the card with its rings, as the thread that looks after it knows them.

use super::chip::{Chip, Problem, Setup};
use super::counters::{CardCounters, collect};
use super::memory::RingMemory;
use super::receive::{CardReceive, ReceiveRing};
use super::registers::{BYTES, Typed};
use super::rings::{Broken, Rings};
use super::transmit::{CardTransmit, OFFLOADS, TransmitRing};
use crate::address::PciAddress;
use crate::bus::Taken;
use crate::error::PciError;
use crate::options::PciOptions;
use crate::vfio::{self, ConfigSpace, DeviceMemory, Reach, VfioDevice, Window};
use crate::worker::{Attended, Events, Stoppable, Worker};
use std::sync::Arc;
use std::time::{Duration, Instant};
use warmlane_driver_common::Environment;
use warmlane_driver_common::peer::Event;
use warmlane_port::{Capabilities, Layered, Offloads, Port, TransmitOffloads};
use warmlane_virtio::bus::is_ring_size;

/// Interrupts that are used: of changes, and of what was received, in the order of [`InterruptVectors`](super::registers::InterruptVectors).
const VECTORS: u32 = 2;

/// Bytes of an Ethernet header, and of a VLAN tag, which a frame may have besides its packet.
const HEADER: u32 = 14;
const TAG: u32 = 4;

/// Bytes of an IP packet: those that any port carries, and the most that this one can.
const USUAL_MTU: u32 = 1500;
const LARGEST_MTU: u32 = 9212;

/// How often the card is asked for its counts, and whether it still sends.
const PERIOD: Duration = Duration::from_secs(1);

/// How long a card with a link may send nothing of what it has before it is started anew.
const STUCK: Duration = Duration::from_secs(5);

/// A card that answers.
struct Card {
    vfio: VfioDevice,
    space: ConfigSpace,
    chip: Chip<Window>,
}

fn wrong(address: PciAddress) -> impl Fn(Problem) -> PciError {
    move |problem| PciError::Device { address, problem }
}

fn failed(address: PciAddress, action: &'static str) -> impl Fn(std::io::Error) -> PciError {
    move |source| PciError::Vfio { address, action, source }
}

impl Card {
    fn new(vfio: VfioDevice) -> Result<Self, PciError> {
        let address = vfio.address();
        let space = vfio.config().map_err(failed(address, "find its configuration"))?;
        let vectors = vfio.count_interrupts().map_err(failed(address, "ask for its interrupts"))?;
        if vectors < VECTORS {
            return Err(wrong(address)("it has too few interrupts (MSI-X, 2 are needed)".to_owned()));
        }
        space.enable_registers().map_err(failed(address, "switch it on"))?;
        let bar = Arc::new(vfio.bar(0).map_err(failed(address, "map its registers"))?);
        let window = Window::new(&bar, 0, BYTES)
            .ok_or_else(|| wrong(address)(format!("it has only {} bytes of registers", bar.length())))?;
        Ok(Self { vfio, space, chip: Chip { registers: Typed(window) } })
    }
}

impl Stoppable for Card {
    fn reset(&self) -> bool {
        self.chip.reset().is_ok()
    }

    fn force_reset(&self) -> bool {
        self.vfio.can_reset() && self.vfio.reset().is_ok()
    }

    fn keep_out(&self) -> bool {
        self.space.disable_memory_access().is_ok()
    }
}

/// What a card has while it runs; dropped in this order.
struct Running {
    /// The card's.
    _given: DeviceMemory,
    /// This process's.
    memory: Arc<RingMemory>,
}

/// When a card was last seen to send.
#[derive(Debug, Default)]
pub(super) struct Watch {
    progress: Option<u64>,
    since: Option<Instant>,
}

impl Watch {
    /// Notes how much the card has sent; `None`: it has nothing to send. Says whether it has sent no more for too long.
    pub(super) fn is_stuck(&mut self, progress: Option<u64>, now: Instant) -> bool {
        if progress.is_none() || progress != self.progress {
            *self = Self { progress, since: Some(now) };
        }
        self.since.is_some_and(|since| progress.is_some() && now.duration_since(since) > STUCK)
    }
}

/// What a port wants of its card.
struct Wanted {
    name: String,
    ring_size: u16,
    setup: Setup,
}

/// What is known of a card, and its rings while it runs.
struct Attendance {
    rings: Arc<Rings<Window>>,
    wanted: Wanted,
    events: Arc<Events>,
    counters: CardCounters,
    watch: Watch,
    mac: Option<[u8; 6]>,
}

impl Attended for Attendance {
    type Card = Card;
    type Running = Running;

    const PERIOD: Duration = PERIOD;

    fn start(&mut self, card: &Card, running: &mut Option<Running>) -> Result<bool, PciError> {
        let address = card.vfio.address();
        let wrong = wrong(address);
        card.space.enable_registers().map_err(failed(address, "switch it on"))?;
        card.chip.reset().map_err(&wrong)?;
        self.mac = card.chip.address();
        let mut given = None;
        let memory = RingMemory::new(&self.wanted.name, self.wanted.ring_size, |mapping| {
            Ok(given.insert(DeviceMemory::new(&card.vfio, mapping)?).address())
        })?;
        let Some(given) = given else { return Err(wrong("it has no memory".to_owned())) };
        let memory = Arc::new(memory);
        *running = Some(Running { _given: given, memory: Arc::clone(&memory) });
        card.space.enable_memory_access().map_err(failed(address, "let it access memory"))?;
        let interrupts = [self.events.config.clone(), self.events.receive.clone()];
        card.vfio.set_interrupts(&interrupts).map_err(failed(address, "set up its interrupts"))?;
        card.chip.start(&memory, self.wanted.setup).map_err(&wrong)?;
        let is_link_up = card.chip.is_link_up();
        let registers = || card.chip.registers.clone();
        let transmit = TransmitRing::new(&memory, registers(), is_link_up);
        self.rings.start(ReceiveRing::new(&memory, registers()), transmit);
        self.watch = Watch::default();
        Ok(is_link_up)
    }

    fn close_rings(&mut self) {
        self.rings.stop();
    }

    fn look(&mut self, card: &Card, _running: &Running) -> Result<bool, &'static str> {
        if let Some(Broken(reason)) = self.rings.broken() {
            return Err(reason);
        }
        if !card.chip.is_running() {
            return Err("somebody else has reset it");
        }
        // In this order: of what changes behind it, it interrupts again.
        card.chip.acknowledge_changes();
        let is_link_up = card.chip.is_link_up();
        self.rings.set_link(is_link_up);
        collect(&card.chip.registers, &self.counters);
        // Without a link nothing is sent.
        let progress = self.rings.transmit.lock().as_mut().and_then(TransmitRing::progress);
        if self.watch.is_stuck(progress.filter(|_| is_link_up), Instant::now()) {
            return Err("it sends nothing of what it has to send");
        }
        Ok(is_link_up)
    }

    fn alarm(&self) -> &Event {
        &self.rings.alarm
    }
}

/// Opens a port on a card.
///
/// # Errors
/// [`PciError`] says what is wrong with the options or the card, and the remedy.
pub(crate) fn open(
    options: &PciOptions,
    environment: &Environment<'_>,
    // Behind the device, which is dropped first then: the kernel waits for whoever has it open.
    taken: Option<Taken>,
    vfio: VfioDevice,
) -> Result<Port, PciError> {
    let PciOptions { address, ring_size, packed, offloads, promiscuous, .. } = *options;
    if !is_ring_size(ring_size) {
        return Err(PciError::RingSize { size: ring_size });
    }
    if packed {
        return Err(PciError::NotPacked { address });
    }
    let mtu = environment.mtu.unwrap_or(USUAL_MTU).max(USUAL_MTU);
    if mtu > LARGEST_MTU {
        return Err(PciError::Mtu { address, mtu, largest: LARGEST_MTU });
    }
    let setup =
        Setup { is_jumbo: mtu > USUAL_MTU, is_promiscuous: promiscuous, looks_at_checksums: offloads };
    let events = Events::new()?;
    let rings = Arc::new(Rings::new(events.receive.clone()).map_err(PciError::Thread)?);
    let without_iommu = vfio.reach() == Reach::All;
    // Not all kernels can tell.
    let _ = vfio.set_request(&events.request);
    let card = Card::new(vfio)?;
    let attendance = Attendance {
        rings: Arc::clone(&rings),
        wanted: Wanted { name: environment.name.clone(), ring_size, setup },
        events: Arc::clone(&events),
        counters: CardCounters::new(),
        watch: Watch::default(),
        mac: None,
    };
    let counted = attendance.counters.view();
    // From here on it is stopped and given back in order, whatever comes.
    let worker = Worker::start(attendance, card, taken, &environment.name, &events)?;
    let mut notes = Vec::new();
    if without_iommu {
        notes.push(vfio::warning(address));
    }
    let running = worker.running.as_ref();
    notes.extend(running.and_then(|running| running.memory.fallback()).map(str::to_owned));
    let mac = worker.attended.mac;
    let end = worker.spawn()?;
    let receive = CardReceive::new(Arc::clone(&rings), environment.pool.region(), counted, Arc::clone(&end));
    let (receive_checksums, does) =
        if offloads { (Layered::OUTER, OFFLOADS) } else { (Layered::NONE, TransmitOffloads::NONE) };
    let transmit = CardTransmit::new(rings, (mtu + HEADER + TAG) as usize, does, end);
    Ok(Port {
        name: environment.name.clone(),
        driver: "pci",
        capabilities: Capabilities {
            mac,
            mtu: Some(mtu),
            maximum_frame: mtu + HEADER,
            offloads: Offloads { receive_checksums, transmit: does, ..Offloads::default() },
            notes,
            ..Capabilities::default()
        },
        receive: vec![Box::new(receive)],
        transmit: vec![Box::new(transmit)],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_is_stuck_that_has_something_to_send_and_does_not() {
        let (mut watch, begin) = (Watch::default(), Instant::now());
        let mut look = |seconds, progress| watch.is_stuck(progress, begin + Duration::from_secs(seconds));
        assert!(!look(0, Some(3)) && !look(4, Some(3)));
        // It has got on, and then has nothing.
        assert!(!look(6, Some(4)) && !look(20, None));
        assert!(!look(40, Some(4)) && !look(45, Some(4)));
        assert!(look(46, Some(4)) && look(47, Some(4)));
        assert!(!look(48, Some(5)));
    }
}
