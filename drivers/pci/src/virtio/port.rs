//! A port on a device: the device with its rings, as the thread that looks after it knows them.

use super::capabilities::{Location, Locations};
use super::device::{Device, Facts, Problem};
use super::registers::{COMMON_BYTES, Common, Network};
use crate::address::PciAddress;
use crate::bus::Taken;
use crate::error::PciError;
use crate::options::PciOptions;
use crate::vfio::{self, Bar, ConfigSpace, DeviceMemory, Reach, Registers as _, VfioDevice, Window};
use crate::worker::{Attended, Events, Stoppable, Worker};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use warmlane_driver_common::Environment;
use warmlane_driver_common::peer::Event;
use warmlane_port::Port;
use warmlane_virtio::bus::{Agreed, BusMemory, BusRings, Notify, is_ring_size};
use warmlane_virtio::features::{DEVICE_OFFLOADS, DRIVER_OFFLOADS, IN_ORDER, MERGEABLE, PACKED};

/// Rings that are used: one pair.
const RINGS: u16 = 2;

/// The interrupt of changes of the configuration, and that of the first ring that the device fills.
const CONFIG_VECTOR: u16 = 0;
const RECEIVE_VECTOR: u16 = 1;
const VECTORS: u32 = 2;

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
        if !locations.has_msix || vectors < VECTORS {
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
        Ok(Self { vfio, space, device, notify, multiplier: locations.notify_multiplier })
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
}

/// What a device has while it runs; dropped in this order.
struct Running {
    features: u64,
    /// The device's.
    _given: DeviceMemory,
    /// This process's.
    memory: BusMemory,
}

/// Starts a device and its rings. Its memory is in `running` before it is told of it.
fn start(
    card: &Card,
    running: &mut Option<Running>,
    rings: &BusRings,
    settings: &DeviceSettings,
    events: &Events,
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
    let ring_size = card.device.ring_size(RINGS, settings.ring_size).map_err(&wrong)?;
    let mut given = None;
    let agreed = Agreed { features, rings: RINGS.into(), ring_size };
    let memory = BusMemory::new(&format!("pci {}", settings.name), agreed, |mapping| {
        let memory = given.insert(DeviceMemory::new(&card.vfio, mapping)?);
        Ok::<_, PciError>(memory.address())
    })?;
    let Some(given) = given else { return Err(wrong("it has no memory".to_owned())) };
    let running = running.insert(Running { features, _given: given, memory });
    let interrupts = [events.config.clone(), events.receive.clone()];
    card.vfio.set_interrupts(&interrupts).map_err(failed("set up its interrupts"))?;
    if !card.device.common.set_config_vector(CONFIG_VECTOR) {
        return Err(wrong("it has no interrupt for changes of its configuration".to_owned()));
    }
    let mut doorbells = Vec::new();
    for ring in 0..RINGS {
        let is_filled_by_device = ring % 2 == 0;
        let vector = is_filled_by_device.then_some(RECEIVE_VECTOR);
        let areas = running.memory.areas(ring.into());
        let place = card.device.set_up(ring, ring_size, areas, vector).map_err(&wrong)?;
        let offset = usize::from(place).checked_mul(card.multiplier as usize);
        let offset = offset.filter(|offset| card.notify.has16(*offset));
        let offset = offset
            .ok_or_else(|| wrong(format!("ring {ring} is told of what is new outside of its registers")))?;
        let interrupt = is_filled_by_device.then(|| events.receive.clone());
        doorbells.push((Doorbell { window: card.notify.clone(), offset, ring }, interrupt));
    }
    card.device.start();
    for (ring, (doorbell, interrupt)) in doorbells.into_iter().enumerate() {
        rings.start(&mut running.memory, ring, Box::new(doorbell), interrupt).map_err(PciError::Thread)?;
    }
    rings.set_link(facts.link);
    Ok(facts)
}

/// What is known of a device, and its rings while it runs.
struct Attendance {
    rings: BusRings,
    settings: DeviceSettings,
    events: Arc<Events>,
    /// As it last said of itself.
    facts: Facts,
}

impl Attended for Attendance {
    type Card = Card;
    type Running = Running;

    /// The device says what changes, but not that somebody else has reset it.
    const PERIOD: Duration = Duration::from_secs(1);

    fn start(&mut self, card: &Card, running: &mut Option<Running>) -> Result<bool, PciError> {
        let result = start(card, running, &self.rings, &self.settings, &self.events);
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

/// Opens a port on a device.
///
/// # Errors
/// [`PciError`] says what is wrong with the options or the device, and the remedy.
pub(crate) fn open(
    options: &PciOptions,
    environment: &Environment<'_>,
    // Behind the device, which is dropped first then: the kernel waits for whoever has it open.
    taken: Option<Taken>,
    vfio: VfioDevice,
) -> Result<Port, PciError> {
    let PciOptions { address, ring_size, packed, offloads, .. } = *options;
    if !is_ring_size(ring_size) {
        return Err(PciError::RingSize { size: ring_size });
    }
    let choices = [(packed, PACKED), (offloads, DEVICE_OFFLOADS | DRIVER_OFFLOADS)];
    let chosen = choices.into_iter().filter(|(is_chosen, _)| *is_chosen);
    let features = chosen.fold(MERGEABLE | IN_ORDER, |wanted, (_, features)| wanted | features);
    let settings = DeviceSettings { name: environment.name.clone(), features, ring_size };
    let events = Events::new()?;
    // No more pairs than are started: more lanes are refused then, and don't lose what they send.
    let rings = BusRings::new(usize::from(RINGS) / 2).map_err(PciError::Thread)?;
    let without_iommu = vfio.reach() == Reach::All;
    // Not all kernels can tell.
    let _ = vfio.set_request(&events.request);
    let card = Card::new(vfio)?;
    let attendance = Attendance {
        rings: rings.clone(),
        settings,
        events: Arc::clone(&events),
        facts: Facts { link: true, ..Facts::default() },
    };
    // From here on it is stopped and given back in order, whatever comes.
    let worker = Worker::start(attendance, card, taken, &environment.name, &events)?;
    let mut notes = Vec::new();
    if without_iommu {
        notes.push(vfio::warning(address));
    }
    let facts = worker.attended.facts;
    let running = worker.running.as_ref();
    notes.extend(running.and_then(|running| running.memory.fallback()).map(str::to_owned));
    let agreed = running.map_or(0, |running| running.features);
    let end = worker.spawn()?;
    let mut port = rings.port((&environment.name, "pci"), environment.pool, agreed, &end);
    port.capabilities.mac = facts.address;
    port.capabilities.mtu = facts.mtu.map(u32::from);
    port.capabilities.notes = notes;
    Ok(port)
}
