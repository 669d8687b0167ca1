//! A port on a device: the device with its rings, as the thread that looks after it knows them.

use super::capabilities::{Location, Locations};
use super::device::{Device, Facts, Problem};
use super::queues::{self, ControlRing};
use super::registers::{COMMON_BYTES, Common, Network};
use crate::address::PciAddress;
use crate::bus::Taken;
use crate::error::PciError;
use crate::options::PciOptions;
use crate::vfio::{
    self, Bar, ConfigSpace, Crossing, DeviceMemory, Reach, Registers as _, VfioDevice, Window,
};
use crate::worker::{Attended, Events, Stoppable, Worker};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use warmlane_driver_common::peer::Event;
use warmlane_driver_common::{Environment, Reporter, Severity, SharedPool};
use warmlane_mem::{METADATA_BYTES, Region};
use warmlane_port::Port;
use warmlane_virtio::bus::{Agreed, BusMemory, BusRings, ControlQueue, Notify, is_ring_size, longest_frame};
use warmlane_virtio::features::{
    DEVICE_OFFLOADS, DRIVER_OFFLOADS, IN_ORDER, MERGEABLE, PACKED, RSS, VERSION_1, header_length,
};

/// Rings of a pair. The device fills the first.
const RINGS: usize = 2;

/// The interrupt of changes of the configuration, and that of the first pair's ring that the device fills; those of other pairs are behind it.
const CONFIG_VECTOR: u16 = 0;
const RECEIVE_VECTOR: u16 = 1;

/// Bytes of an Ethernet header and a VLAN tag, which a frame may have besides its packet.
const HEADER_AND_TAG: u32 = 14 + 4;

/// Bytes that a buffer of a pool has at least, if the device is to fill it.
const BUFFER_BYTES: u16 = 2048;

/// The longest IP packet that a device carries, which says `mtu`; `None` if it sets no limit.
fn largest_mtu(agreed: u64, mtu: Option<u16>) -> Option<u32> {
    let in_one_buffer = longest_frame(agreed).map(|longest| longest - HEADER_AND_TAG);
    mtu.map(u32::from).into_iter().chain(in_one_buffer).min()
}

/// A ring's place for notifications.
#[derive(Debug)]
struct Doorbell {
    window: Window,
    offset: usize,
    ring: u16,
}

impl Notify for Doorbell {
    fn notify(&self) {
        // Behind all that was published: registers are in order with memory.
        self.window.write16(self.offset, self.ring);
    }
}

/// A device that answers.
struct Card {
    vfio: VfioDevice,
    space: ConfigSpace,
    device: Device<Window>,
    notify: Window,
    multiplier: u32,
    /// Pairs of queues that it has interrupts for.
    interrupts: u16,
}

fn wrong(address: PciAddress) -> impl Fn(Problem) -> PciError {
    move |problem| PciError::Device { address, problem }
}

impl Card {
    fn new(vfio: VfioDevice) -> Result<Self, PciError> {
        let address = vfio.address();
        let failed = |action| move |source| PciError::Vfio { address, action, source };
        let space = vfio.config().map_err(failed("find its configuration"))?;
        let locations = Locations::find(&space.read().map_err(failed("read its configuration"))?);
        let vectors = vfio.count_interrupts().map_err(failed("ask for its interrupts"))?;
        let interrupts = u16::try_from(vectors).unwrap_or(u16::MAX).saturating_sub(RECEIVE_VECTOR);
        if !locations.has_msix || interrupts == 0 {
            let problem =
                "it has too few interrupts (MSI-X, 2 are needed): QEMU gives it them with vectors=3";
            return Err(wrong(address)(problem.to_owned()));
        }
        space.enable_registers().map_err(failed("switch it on"))?;
        let mut bars = BTreeMap::<u8, Arc<Bar>>::new();
        let mut window = |location: Option<Location>, least: u32, what: &str| {
            let location = location.filter(|location| location.length >= least);
            let Location { bar, offset, length } =
                location.ok_or_else(|| wrong(address)(format!("it has no {what} that virtio 1.0 knows")))?;
            let mapped = match bars.get(&bar) {
                Some(bar) => Arc::clone(bar),
                None => Arc::new(vfio.bar(bar).map_err(failed("map its registers"))?),
            };
            let window = Window::new(&mapped, offset, length);
            bars.insert(bar, mapped);
            window.ok_or_else(|| wrong(address)(format!("its {what} are outside of BAR {bar}")))
        };
        let common = Common(window(locations.common, COMMON_BYTES, "common registers")?);
        let notify = window(locations.notify, 2, "registers for notifications")?;
        let network = locations.device.map(|_| window(locations.device, 6, "registers of a network device"));
        let device = Device { common, network: network.transpose()?.map(Network) };
        Ok(Self { vfio, space, device, notify, multiplier: locations.notify_multiplier, interrupts })
    }

    /// How many pairs of queues are used of those that it has, if there should be so many.
    fn pairs(&self, environment: &Environment<'_>) -> Result<u16, PciError> {
        let wanted = environment.queues;
        if wanted <= 1 {
            return Ok(1);
        }
        let address = self.vfio.address();
        let there = self.device.count_pairs().map_err(wrong(address))?;
        let (pairs, interrupts) = (there.min(queues::MOST_PAIRS), self.interrupts);
        let pairs = usize::from(pairs.min(interrupts)).min(wanted);
        // Who only receives shares out what there is.
        if pairs < wanted && environment.direction.transmits() {
            return Err(PciError::Queues { address, there, interrupts, wanted });
        }
        // No more than there are, of which there are less than 2^16.
        Ok(pairs as u16)
    }

    /// What a ring is told by, whose place for that is so many multipliers from the start.
    fn doorbell(&self, ring: u16, place: u16) -> Result<Doorbell, Problem> {
        let offset = usize::from(place).checked_mul(self.multiplier as usize);
        let offset = offset.filter(|offset| self.notify.has16(*offset));
        let offset =
            offset.ok_or_else(|| format!("ring {ring} is told of what is new outside of its registers"))?;
        Ok(Doorbell { window: self.notify.clone(), offset, ring })
    }
}

impl Stoppable for Card {
    fn reset(&self) -> bool {
        self.device.reset().is_ok()
    }

    fn force_reset(&self) -> bool {
        self.vfio.can_reset() && self.vfio.reset().is_ok()
    }

    fn keep_out(&self) -> bool {
        self.space.disable_memory_access().is_ok()
    }
}

/// What a port wants of its device.
#[derive(Clone)]
struct DeviceSettings {
    name: String,
    features: u64,
    ring_size: u16,
    pairs: u16,
    /// The device is to reach this, but for some buffers.
    shared: Option<Region>,
    _crossing: Option<Arc<Crossing>>,
}

/// What a device has while it runs; dropped in this order.
struct Running {
    features: u64,
    ring_size: u16,
    /// The device's.
    _given: Vec<DeviceMemory>,
    /// This process's, one for each pair of rings. The first has the control queue as well.
    memories: Vec<BusMemory>,
    /// The pool, if the device reaches that.
    _pool: Option<Arc<SharedPool>>,
}

/// Tells a device of its control queue, which is in the memory of the first pair.
fn set_up_control(card: &Card, memory: &BusMemory, ring: ControlRing) -> Result<ControlQueue, Problem> {
    let areas = memory.control_areas().ok_or("its control queue has no memory")?;
    let place = card.device.set_up(ring.number, ring.size, areas, None)?;
    let doorbell = card.doorbell(ring.number, place)?;
    memory.control_queue(Box::new(doorbell)).ok_or_else(|| "its control queue has no memory".to_owned())
}

fn no_buffers(address: PciAddress, pool: &SharedPool, pairs: u16, ring_size: u16) -> PciError {
    let pool = pool.region().pool().name().to_owned();
    PciError::NoBuffers { address, pool, needed: u32::from(pairs) * u32::from(ring_size) }
}

/// Starts a device and its rings, of which those that the device fills signal `received`, one each. Its memory is in `running` before it is told of it.
fn start(
    card: &Card,
    running: &mut Option<Running>,
    rings: &BusRings,
    settings: &DeviceSettings,
    (config, received): (&Event, &[Event]),
) -> Result<Facts, PciError> {
    let address = card.vfio.address();
    let wrong = wrong(address);
    let failed = |action| move |source| PciError::Vfio { address, action, source };
    card.space.enable_registers().map_err(failed("switch it on"))?;
    // Resets it first.
    let features =
        card.device.negotiate(settings.features, card.vfio.reach() == Reach::Given).map_err(&wrong)?;
    card.space.enable_memory_access().map_err(failed("let it access memory"))?;
    let facts = card.device.facts(features).map_err(&wrong)?;
    let pairs = settings.pairs;
    let has_control = pairs > 1;
    let control = has_control.then(|| card.device.control_ring(features, pairs)).transpose();
    let control = control.map_err(&wrong)?;
    let ring_size = card.device.ring_size(2 * pairs, settings.ring_size).map_err(&wrong)?;
    let mut memories = Vec::new();
    let mut given = Vec::new();
    let share = |region: &Region| {
        let (memory, pool) = DeviceMemory::of_pool(&card.vfio, region)?;
        given.push(memory);
        Ok::<_, PciError>(pool)
    };
    let pool = settings.shared.as_ref().map(share).transpose()?;
    for pair in 0..pairs {
        let control = control.filter(|_| pair == 0).map(|ring| ring.size);
        let agreed = Agreed { features, rings: RINGS, ring_size, control };
        let memory = BusMemory::new(&format!("pci {}", settings.name), agreed, |mapping| {
            let memory = DeviceMemory::new(&card.vfio, mapping)?;
            let address = memory.address();
            given.push(memory);
            Ok::<_, PciError>(address)
        })?;
        memories.push(match &pool {
            None => memory,
            Some(pool) => memory.lend(pool).ok_or_else(|| no_buffers(address, pool, pairs, ring_size))?,
        });
    }
    let running = running.insert(Running { features, ring_size, _given: given, memories, _pool: pool });
    let interrupts: Vec<_> = std::iter::once(config).chain(received).cloned().collect();
    card.vfio.set_interrupts(&interrupts).map_err(failed("set up its interrupts"))?;
    if !card.device.common.set_config_vector(CONFIG_VECTOR) {
        return Err(wrong("it has no interrupt for changes of its configuration".to_owned()));
    }
    let mut doorbells = Vec::new();
    for (pair, memory) in (0..pairs).zip(&running.memories) {
        for (place, vector) in [Some(RECEIVE_VECTOR + pair), None].into_iter().enumerate() {
            let ring = 2 * pair + place as u16;
            let told = card.device.set_up(ring, ring_size, memory.areas(place), vector);
            let doorbell = told.and_then(|told| card.doorbell(ring, told));
            doorbells.push(doorbell.map_err(&wrong)?);
        }
    }
    let control = control.map(|ring| set_up_control(card, &running.memories[0], ring));
    let mut control = control.transpose().map_err(&wrong)?;
    card.device.start();
    // Before lanes have rings that the device doesn't use yet (section 5.1.6.5.6.1).
    if let Some(control) = &mut control {
        card.device.use_pairs(control, features, pairs).map_err(&wrong)?;
    }
    for (ring, doorbell) in doorbells.into_iter().enumerate() {
        let (pair, place) = (ring / RINGS, ring % RINGS);
        let interrupt = (place == 0).then(|| received[pair].clone());
        let memory = (&mut running.memories[pair], place);
        rings.start(ring, memory, Box::new(doorbell), interrupt).map_err(PciError::Thread)?;
    }
    rings.set_link(facts.link);
    Ok(facts)
}

/// What is known of a device, and its rings while it runs.
struct Attendance {
    rings: BusRings,
    settings: DeviceSettings,
    events: Arc<Events>,
    /// Lanes wait for them: the device has filled buffers of a pair.
    received: Vec<Event>,
    /// As it last said of itself.
    facts: Facts,
}

impl Attended for Attendance {
    type Card = Card;
    type Running = Running;

    /// The device says what changes, but not that somebody else has reset it.
    const PERIOD: Duration = Duration::from_secs(1);

    fn start(&mut self, card: &Card, running: &mut Option<Running>) -> Result<bool, PciError> {
        let signals = (&self.events.config, &self.received[..]);
        let result = start(card, running, &self.rings, &self.settings, signals);
        match result {
            Ok(facts) => {
                self.facts = facts;
                Ok(facts.link)
            }
            Err(error) => {
                card.device.give_up();
                Err(error)
            }
        }
    }

    fn close_rings(&mut self) {
        self.rings.stop();
    }

    fn look(&mut self, card: &Card, running: &Running) -> Result<bool, &'static str> {
        if let Some(reason) = self.rings.broken() {
            return Err(reason);
        }
        if let Some(reason) = card.device.failure() {
            return Err(reason);
        }
        if let Ok(facts) = card.device.facts(running.features) {
            self.rings.set_link(facts.link);
            self.facts = facts;
        }
        Ok(self.facts.link)
    }

    fn alarm(&self) -> &Event {
        self.rings.alarm()
    }
}

/// A device can fill the pool's buffers: they have space for its header in front of a packet, and for the packet.
fn check_buffers(address: PciAddress, pool: &str, region: &Region) -> Result<(), PciError> {
    let there = region.data_size();
    if there < usize::from(BUFFER_BYTES) {
        let pool = pool.to_owned();
        return Err(PciError::SmallBuffers { address, pool, there, needed: BUFFER_BYTES });
    }
    let needed = header_length(VERSION_1);
    if usize::from(region.start()) < METADATA_BYTES + needed {
        return Err(wrong(address)(format!(
            "buffers of pool {pool:?} have less headroom than the {needed} bytes of a virtio header: give them more, or leave zero-copy out"
        )));
    }
    Ok(())
}

/// Opens a port on a device.
///
/// # Errors
/// [`PciError`] says what is wrong with the options or the device, and the remedy.
pub(crate) fn open(
    options: &PciOptions,
    environment: &mut Environment<'_>,
    reporter: &Reporter,
    // Behind the device, which is dropped first then: the kernel waits for whoever has it open.
    taken: Option<Taken>,
    vfio: VfioDevice,
) -> Result<Port, PciError> {
    let PciOptions { address, ring_size, packed, offloads, zero_copy, .. } = *options;
    if !is_ring_size(ring_size) {
        return Err(PciError::RingSize { size: ring_size });
    }
    let region = environment.pool.region();
    if zero_copy {
        check_buffers(address, environment.pool.name(), &region)?;
    }
    let events = Events::new()?;
    let without_iommu = vfio.reach() == Reach::All;
    // Not all kernels can tell.
    let _ = vfio.set_request(&events.request);
    let crossing = zero_copy.then(|| Crossing::take_out(&vfio, environment)).transpose()?.flatten();
    let card = Card::new(vfio)?;
    let pairs = card.pairs(environment)?;
    let has_several = pairs > 1;
    let choices =
        [(packed, PACKED), (offloads, DEVICE_OFFLOADS | DRIVER_OFFLOADS), (has_several, queues::WANTED)];
    let chosen = choices.into_iter().filter(|(is_chosen, _)| *is_chosen);
    let features = chosen.fold(MERGEABLE | IN_ORDER, |wanted, (_, features)| wanted | features);
    let settings = DeviceSettings {
        name: environment.name.clone(),
        features,
        ring_size,
        pairs,
        shared: zero_copy.then_some(region),
        _crossing: crossing,
    };
    let rings = BusRings::new(pairs.into()).map_err(PciError::Thread)?;
    let received = (0..pairs).map(|_| Event::new().map_err(PciError::Thread));
    let attendance = Attendance {
        rings: rings.clone(),
        settings,
        events: Arc::clone(&events),
        received: received.collect::<Result<_, _>>()?,
        facts: Facts { link: true, ..Facts::default() },
    };
    // From here on it is stopped and given back in order, whatever comes.
    let worker = Worker::start(attendance, card, taken, reporter.clone(), &events)?;
    let mut notes = Vec::new();
    if without_iommu {
        reporter.report(Severity::Warning, vfio::warning(address));
    }
    let facts = worker.attended.facts;
    let running = worker.running.as_ref();
    notes.extend(running.and_then(|running| running.memories[0].fallback()).map(str::to_owned));
    if let Some(Running { ring_size: there, .. }) = running
        && *there < ring_size
    {
        notes.push(format!(
            "PCI device {address} has rings of {there} descriptors, and {ring_size} are asked for"
        ));
    }
    let agreed = running.map_or(0, |running| running.features);
    // What is longer the device would drop, and say nothing.
    if let (Some(largest), Some(mtu)) = (largest_mtu(agreed, facts.mtu), environment.mtu)
        && mtu > largest
    {
        return Err(PciError::Mtu { address, mtu, largest });
    }
    if has_several && agreed & RSS == 0 {
        notes.push(queues::without_rss(address));
    }
    environment.count_connection(worker.link());
    let end = worker.spawn()?;
    let mut port = rings.port((&environment.name, "pci"), environment.pool, agreed, &end);
    port.capabilities.mac = facts.address;
    port.capabilities.mtu = facts.mtu.map(u32::from);
    port.capabilities.notes = notes;
    Ok(port)
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmlane_mem::{Pool, PoolConfig};

    #[test]
    fn a_device_fills_buffers_with_space_for_its_header_and_a_frame() {
        let check = |headroom, data_size| {
            let config = PoolConfig { buffers: 64, headroom, data_size, ..PoolConfig::default() };
            let pool = Pool::new(&config).unwrap();
            let address = "0000:00:04.0".parse().unwrap();
            check_buffers(address, "main", &pool.region()).map_err(|error| error.to_string())
        };
        assert_eq!(check(12, 2048), Ok(()));
        let error = check(11, 2048).unwrap_err();
        assert!(error.contains("less headroom than the 12 bytes"), "{error}");
        let error = check(12, 2047).unwrap_err();
        assert!(error.contains("2047") && error.contains("2048"), "{error}");
    }

    #[test]
    fn a_device_carries_what_it_says_and_what_fits_a_buffer() {
        assert_eq!(largest_mtu(VERSION_1 | MERGEABLE, None), None);
        assert_eq!(largest_mtu(VERSION_1 | MERGEABLE, Some(2_000)), Some(2_000));
        // 2,048 bytes for a header of 12, one of 14, a tag, and the packet.
        assert_eq!(largest_mtu(VERSION_1, Some(9_000)), Some(2_018));
        assert_eq!(largest_mtu(VERSION_1, Some(1_400)), Some(1_400));
    }
}
