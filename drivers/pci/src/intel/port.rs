//! A port on a card: the card with its rings, as the thread that looks after it knows them.

use super::chip::{Chip, Problem, Setup};
use super::counters::CardCounters;
use super::lent;
use super::memory::{BUFFER_BYTES, RingMemory};
use super::receive::{CardReceive, ReceiveRing};
use super::rings::{Broken, Rings};
use super::transmit::{CardTransmit, OFFLOADS, TransmitRing};
use crate::address::PciAddress;
use crate::bus::Taken;
use crate::error::PciError;
use crate::options::PciOptions;
use crate::vfio::{self, ConfigSpace, Crossing, DeviceMemory, Reach, VfioDevice, Window};
use crate::worker::{Attended, Events, Stoppable, Worker};
use std::sync::Arc;
use std::time::{Duration, Instant};
use warmlane_driver_common::peer::Event;
use warmlane_driver_common::{Environment, Reporter, Severity, SharedPool};
use warmlane_mem::Region;
use warmlane_port::{Capabilities, Layered, Offloads, Port, ReceiveQueue, TransmitOffloads, TransmitQueue};
use warmlane_virtio::bus::is_ring_size;

/// Interrupts that are used besides those of queues: of changes.
const CHANGES: usize = 1;

/// Bytes of an Ethernet header, of a VLAN tag, and of a check sequence, which a frame may have besides its packet.
const HEADER: u32 = 14;
const TAG: u32 = 4;
const CHECK_SEQUENCE: u32 = 4;

/// Bytes of an IP packet: those that any port carries, and the most that this one can.
const USUAL_MTU: u32 = 1500;
const LARGEST_MTU: u32 = 9212;

/// How often the card is asked for its counts, and whether it still sends.
const PERIOD: Duration = Duration::from_secs(1);

/// How long a card with a link may send nothing of what it has before it is started anew.
const STUCK: Duration = Duration::from_secs(5);

/// A card that answers.
struct Card<C> {
    vfio: VfioDevice,
    space: ConfigSpace,
    chip: C,
    /// Queues that it has, and an interrupt for each.
    queues: usize,
}

fn wrong(address: PciAddress) -> impl Fn(Problem) -> PciError {
    move |problem| PciError::Device { address, problem }
}

fn failed(address: PciAddress, action: &'static str) -> impl Fn(std::io::Error) -> PciError {
    move |source| PciError::Vfio { address, action, source }
}

impl<C: Chip<Window>> Card<C> {
    fn new(vfio: VfioDevice) -> Result<Self, PciError> {
        let address = vfio.address();
        let space = vfio.config().map_err(failed(address, "find its configuration"))?;
        let vectors = vfio.count_interrupts().map_err(failed(address, "ask for its interrupts"))?;
        let queues = (vectors as usize).saturating_sub(CHANGES).min(C::MOST_QUEUES);
        if queues == 0 {
            return Err(wrong(address)("it has too few interrupts (MSI-X, 2 are needed)".to_owned()));
        }
        space.enable_registers().map_err(failed(address, "switch it on"))?;
        let bar = Arc::new(vfio.bar(0).map_err(failed(address, "map its registers"))?);
        let window = Window::new(&bar, 0, C::REGISTER_BYTES)
            .ok_or_else(|| wrong(address)(format!("it has only {} bytes of registers", bar.length())))?;
        Ok(Self { vfio, space, chip: C::new(window), queues })
    }
}

impl<C: Chip<Window>> Stoppable for Card<C> {
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
    _given: Vec<DeviceMemory>,
    /// This process's, one for each pair of rings.
    memories: Vec<Arc<RingMemory>>,
    /// The pool, if the card reaches that.
    _pool: Option<Arc<SharedPool>>,
}

/// When a card was last seen to send.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    progress: Option<u64>,
    since: Option<Instant>,
}

impl Watch {
    /// Notes how much the card has sent; `None`: it has nothing to send. Says whether it has sent no more for too long.
    pub(crate) fn is_stuck(&mut self, progress: Option<u64>, now: Instant) -> bool {
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
    /// The card is to reach this, but for some buffers.
    shared: Option<Region>,
    _crossing: Option<Arc<Crossing>>,
}

/// What is known of a card, and its rings while it runs.
struct Attendance<C: Chip<Window>> {
    rings: Vec<Arc<Rings<C::Queue>>>,
    wanted: Wanted,
    events: Arc<Events>,
    alarm: Event,
    counters: CardCounters,
    /// One for each pair of rings.
    watches: Vec<Watch>,
    mac: Option<[u8; 6]>,
}

impl<C: Chip<Window>> Attended for Attendance<C> {
    type Card = Card<C>;
    type Running = Running;

    const PERIOD: Duration = PERIOD;

    fn start(&mut self, card: &Card<C>, running: &mut Option<Running>) -> Result<bool, PciError> {
        let address = card.vfio.address();
        let wrong = wrong(address);
        card.space.enable_registers().map_err(failed(address, "switch it on"))?;
        card.chip.reset().map_err(&wrong)?;
        self.mac = card.chip.registers().address();
        let (mut given, mut memories) = (Vec::new(), Vec::new());
        for _ in &self.rings {
            let memory = RingMemory::new(&self.wanted.name, self.wanted.ring_size, |mapping| {
                let memory = DeviceMemory::new(&card.vfio, mapping)?;
                let address = memory.address();
                given.push(memory);
                Ok(address)
            })?;
            memories.push(Arc::new(memory));
        }
        let mut share = |region: &Region| {
            let (memory, pool) = DeviceMemory::of_pool(&card.vfio, region)?;
            given.push(memory);
            Ok::<_, PciError>(pool)
        };
        let pool = self.wanted.shared.as_ref().map(&mut share).transpose()?;
        *running = Some(Running { _given: given, memories: memories.clone(), _pool: pool.clone() });
        card.space.enable_memory_access().map_err(failed(address, "let it access memory"))?;
        let received = self.rings.iter().map(|rings| &rings.received);
        let interrupts: Vec<_> = std::iter::once(&self.events.config).chain(received).cloned().collect();
        card.vfio.set_interrupts(&interrupts).map_err(failed(address, "set up its interrupts"))?;
        card.chip.start(&memories, self.wanted.setup).map_err(&wrong)?;
        let is_link_up = card.chip.registers().is_link_up();
        for (number, (rings, memory)) in self.rings.iter().zip(&memories).enumerate() {
            let queue = || card.chip.queue(number);
            let transmit = TransmitRing::new(memory, queue(), is_link_up, pool.as_ref());
            rings.start(ReceiveRing::new(memory, queue(), pool.as_ref()), transmit);
        }
        self.watches = self.rings.iter().map(|_| Watch::default()).collect();
        Ok(is_link_up)
    }

    fn close_rings(&mut self) {
        self.rings.iter().for_each(|rings| rings.stop());
    }

    fn look(&mut self, card: &Card<C>, _running: &Running) -> Result<bool, &'static str> {
        if let Some(Broken(reason)) = self.rings.iter().find_map(|rings| rings.broken()) {
            return Err(reason);
        }
        let registers = card.chip.registers();
        if !registers.is_running() {
            return Err("somebody else has reset it");
        }
        // In this order: of what changes behind it, it interrupts again.
        card.chip.acknowledge_changes();
        let is_link_up = registers.is_link_up();
        card.chip.collect(self.rings.len(), &self.counters);
        for (rings, watch) in self.rings.iter().zip(&mut self.watches) {
            rings.set_link(is_link_up);
            // Without a link nothing is sent.
            let progress = rings.transmit.lock().as_mut().and_then(TransmitRing::progress);
            if watch.is_stuck(progress.filter(|_| is_link_up), Instant::now()) {
                return Err("it sends nothing of what it has to send");
            }
        }
        Ok(is_link_up)
    }

    fn alarm(&self) -> &Event {
        &self.alarm
    }
}

/// Opens a port on a card, with as many queues as are wanted, if it has so many.
///
/// # Errors
/// [`PciError`] says what is wrong with the options or the card, and the remedy.
pub(crate) fn open<C: Chip<Window>>(
    options: &PciOptions,
    environment: &mut Environment<'_>,
    reporter: &Reporter,
    // Behind the device, which is dropped first then: the kernel waits for whoever has it open.
    taken: Option<Taken>,
    vfio: VfioDevice,
) -> Result<Port, PciError> {
    let PciOptions { address, ring_size, packed, offloads, promiscuous, zero_copy, .. } = *options;
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
    let region = environment.pool.region();
    if zero_copy && !lent::is_possible(&region) {
        let (pool, there) = (environment.pool.name().to_owned(), region.data_size());
        return Err(PciError::SmallBuffers { address, pool, there, needed: BUFFER_BYTES });
    }
    let longest = mtu + HEADER + TAG;
    let setup = Setup {
        longest: longest + CHECK_SEQUENCE,
        is_promiscuous: promiscuous,
        looks_at_checksums: offloads,
    };
    let (events, alarm) = (Events::new()?, Event::new().map_err(PciError::Thread)?);
    let without_iommu = vfio.reach() == Reach::All;
    // Not all kernels can tell.
    let _ = vfio.set_request(&events.request);
    let crossing = zero_copy.then(|| Crossing::take_out(&vfio, environment)).transpose()?.flatten();
    let card = Card::<C>::new(vfio)?;
    let rings = (0..environment.queues.clamp(1, card.queues)).map(|_| {
        let received = Event::new().map_err(PciError::Thread)?;
        Ok(Arc::new(Rings::new(received, alarm.clone())))
    });
    let rings = rings.collect::<Result<Vec<_>, PciError>>()?;
    let attendance = Attendance {
        rings: rings.clone(),
        wanted: Wanted {
            name: environment.name.clone(),
            ring_size,
            setup,
            shared: zero_copy.then_some(region),
            _crossing: crossing,
        },
        events: Arc::clone(&events),
        alarm,
        counters: CardCounters::new(),
        watches: Vec::new(),
        mac: None,
    };
    let counted = attendance.counters.view();
    // From here on it is stopped and given back in order, whatever comes.
    let worker = Worker::start(attendance, card, taken, reporter.clone(), &events)?;
    let mut notes = Vec::new();
    if without_iommu {
        reporter.report(Severity::Warning, vfio::warning(address));
    }
    let running = worker.running.as_ref();
    notes.extend(running.and_then(|running| running.memories[0].fallback()).map(str::to_owned));
    let mac = worker.attended.mac;
    environment.count_connection(worker.link());
    let end = worker.spawn()?;
    let (receive_checksums, does) =
        if offloads { (Layered::OUTER, OFFLOADS) } else { (Layered::NONE, TransmitOffloads::NONE) };
    let (mut receive, mut transmit) =
        (Vec::<Box<dyn ReceiveQueue>>::new(), Vec::<Box<dyn TransmitQueue>>::new());
    for (number, rings) in rings.into_iter().enumerate() {
        // What the card counts is counted by one of its queues.
        let counted = (number == 0).then(|| counted.clone());
        let (region, end) = (environment.pool.region(), Arc::clone(&end));
        receive.push(Box::new(CardReceive::new(Arc::clone(&rings), region, counted, Arc::clone(&end))));
        transmit.push(Box::new(CardTransmit::new(rings, longest as usize, does, end)));
    }
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
        receive,
        transmit,
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
