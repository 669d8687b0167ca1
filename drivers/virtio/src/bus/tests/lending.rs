//! A device on the same memory, which is this crate's own, and reaches a pool of the driver's.

use super::super::*;
use crate::features::{
    DEVICE_OFFLOADS, DRIVER_OFFLOADS, EVENT_INDEX, IN_ORDER, MERGEABLE, PACKED, VERSION_1,
};
use crate::queue::device::{PackedDevice, SplitDevice, Start};
use warmlane_mem::{Burst, Checksum, Packet, PoolConfig};
use warmlane_testkit::exchange::{contents, packet_of};

const SIZE: u16 = 64;
/// Where the device finds the rings, and the pool.
const RINGS: u64 = 1 << 32;
const POOL: u64 = 1 << 40;

struct World {
    /// The driver's, and the device's.
    pools: [Pool; 2],
    driver: Port,
    device: Port,
    driver_rings: BusRings,
    shared: Arc<SharedPool>,
    layout: Layout,
    memory: Arc<GuestMemory>,
}

fn pool(buffers: u32) -> Pool {
    Pool::new(&PoolConfig { buffers, ..PoolConfig::default() }).unwrap()
}

fn memory(features: u64, shared: &Arc<SharedPool>) -> Option<BusMemory> {
    let agreed = Agreed { features, rings: 2, ring_size: SIZE, control: None };
    BusMemory::new("test", agreed, |_| Ok::<_, MappingError>(RINGS)).unwrap().lend(shared)
}

/// One side of a port over these rings.
fn over(rings: &[Arc<Ring>], pool: &Pool, side: RingSide, features: u64) -> Port {
    let end: Arc<dyn Send + Sync> = Arc::new(());
    over_rings(("test", "test"), pool, rings, (side, features), &end)
}

fn world(features: u64) -> World {
    let pools = [pool(512), pool(512)];
    let shared = SharedPool::new(pools[0].region(), POOL);
    let mut memory = memory(features, &shared).unwrap();
    let (layout, lent) = (memory.layout, Arc::clone(&memory.memory));
    let driver_rings = BusRings::new(1).unwrap();
    let device_rings: Vec<_> = (0..2).map(|_| Arc::new(Ring::new(&Event::new().unwrap()).unwrap())).collect();
    for (number, ring) in device_rings.iter().enumerate() {
        let has_index = features & EVENT_INDEX != 0;
        let side = if layout.is_packed {
            let ring = layout.packed_ring(number, &lent).unwrap();
            AnySide::PackedDevice(PackedDevice::new(ring, 1 << 15, has_index, Start::Base).unwrap())
        } else {
            AnySide::SplitDevice(SplitDevice::new(layout.split_ring(number, &lent).unwrap(), has_index))
        };
        let active =
            Active { side, memory: Arc::clone(&lent), features, is_enabled: true, call: None, log: None };
        ring.change(|place| *place = Some(active));
        let notify = Box::new(Event::new().unwrap());
        driver_rings.start(number, (&mut memory, number), notify, None).unwrap();
    }
    let driver = over(&driver_rings.rings, &pools[0], RingSide::Driver, features);
    let device = over(&device_rings, &pools[1], RingSide::Device, features);
    World { pools, driver, device, driver_rings, shared, layout, memory: lent }
}

fn send(port: &mut Port, packets: Vec<Packet>) {
    let mut burst = Burst::with_limit(256);
    for packet in packets {
        burst.push(packet).unwrap();
    }
    port.transmit[0].transmit(&mut burst);
    assert!(burst.is_empty(), "{} are left", burst.len());
}

fn receive(port: &mut Port) -> Vec<Packet> {
    let mut burst = Burst::with_limit(256);
    // Of a packed ring, chains come one at a time.
    while port.receive[0].receive(&mut burst) > 0 {}
    burst.drain().collect()
}

fn bytes(packet: &Packet) -> Vec<u8> {
    packet.segment_data().flatten().copied().collect()
}

impl World {
    /// Buffers that the driver's port has lent.
    fn lent(&self) -> u64 {
        self.pools[0].ledger().outstanding()
    }

    /// Closes the ports, and then resets the device. Nothing is left out of the pools then.
    fn end(self) {
        let Self { pools, driver, device, driver_rings, shared, memory, .. } = self;
        drop((driver, device, memory));
        driver_rings.stop();
        assert!(pools[0].ledger().outstanding() > 0, "the device may still use them");
        drop(shared);
        assert_eq!(pools.map(|pool| pool.ledger().outstanding()), [0, 0]);
    }
}

const PLAIN: u64 = VERSION_1 | MERGEABLE;
const ALL: [u64; 6] = [
    PLAIN,
    PLAIN | EVENT_INDEX,
    PLAIN | IN_ORDER,
    PLAIN | PACKED,
    PLAIN | PACKED | IN_ORDER,
    VERSION_1 | PACKED | EVENT_INDEX,
];

#[test]
fn packets_stay_where_they_are_in_either_direction() {
    for features in ALL {
        let mut world = world(features);
        assert_eq!(world.lent(), u64::from(SIZE), "what the device fills");
        for round in 0..200 {
            let count = 1 + round % 40;
            let frame = |number| contents(number, 14 + 7 * number + round);
            let packets = (0..count).map(|number| packet_of(&world.pools[0], &frame(number))).collect();
            send(&mut world.driver, packets);
            assert!(world.lent() >= u64::from(SIZE) + count as u64, "they are not copied");
            let received = receive(&mut world.device);
            let expected: Vec<_> = (0..count).map(frame).collect();
            assert_eq!(received.iter().map(bytes).collect::<Vec<_>>(), expected, "{features:x}");
            send(&mut world.device, received);
            let back = receive(&mut world.driver);
            assert_eq!(back.iter().map(bytes).collect::<Vec<_>>(), expected, "{features:x}");
            assert!(back.iter().all(|packet| world.pools[0].region().holds_chain(packet)));
        }
        // Those that were sent last are only taken back when something is sent again.
        assert_eq!(world.lent(), u64::from(SIZE) + 1 + 199 % 40);
        world.end();
    }
}

#[test]
fn what_cannot_stay_where_it_is_is_copied_in_its_order() {
    for features in ALL.map(|features| features | MERGEABLE | DEVICE_OFFLOADS | DRIVER_OFFLOADS) {
        let mut world = world(features);
        let other = pool(64);
        for _ in 0..10 {
            let packets = (0..14).map(|number| {
                let pool = if number % 3 == 1 { &other } else { &world.pools[0] };
                let length = if number % 5 == 0 { 5000 } else { 100 };
                let mut packet = packet_of(pool, &contents(number, length));
                if number % 7 == 3 {
                    packet.set_checksum(Checksum::Partial { start: 34, offset: 6 });
                }
                packet
            });
            let packets: Vec<_> = packets.collect();
            let told = |packets: &[Packet]| {
                let packets = packets.iter().map(|packet| (bytes(packet), packet.checksum()));
                packets.collect::<Vec<_>>()
            };
            let expected = told(&packets);
            send(&mut world.driver, packets);
            assert_eq!(other.ledger().outstanding(), 0);
            let received = receive(&mut world.device);
            assert!(told(&received) == expected, "{features:x}: {} came", received.len());
            send(&mut world.device, received);
            let back = receive(&mut world.driver);
            assert!(told(&back) == expected, "{features:x}: {} came back", back.len());
        }
        send(&mut world.driver, Vec::new());
    }
}

#[test]
fn packets_wait_for_buffers_and_rings_for_packets() {
    for features in ALL {
        let mut world = world(features);
        let frame = contents(1, 60);
        let kept: Vec<_> = std::iter::from_fn(|| world.pools[0].take()).collect();
        send(&mut world.device, vec![packet_of(&world.pools[1], &frame)]);
        assert_eq!(receive(&mut world.driver).len(), 0);
        drop(kept);
        assert_eq!(receive(&mut world.driver).len(), 1);
        // No more are lent than the ring has descriptors.
        let mut burst = Burst::with_limit(256);
        for _ in 0..100 {
            burst.push(packet_of(&world.pools[0], &frame)).unwrap();
        }
        world.driver.transmit[0].transmit(&mut burst);
        assert_eq!(burst.len(), 100 - usize::from(SIZE));
        assert_eq!(receive(&mut world.device).len(), usize::from(SIZE));
        world.driver.transmit[0].transmit(&mut burst);
        assert!(burst.is_empty());
    }
}

#[test]
fn a_pool_that_is_too_small_is_said_to_be() {
    let pool = pool(u32::from(SIZE) - 1);
    let shared = SharedPool::new(pool.region(), POOL);
    assert!(memory(PLAIN, &shared).is_none());
    drop(shared);
    assert_eq!(pool.ledger().outstanding(), 0);
}

#[test]
fn what_a_device_was_not_lent_is_not_taken_from_it() {
    // A name that it has, said twice; more bytes than a buffer has; a name that there is none of; and less than a header.
    let lies = [[(3, 100), (3, 100)], [(3, 100), (4, 60_000)], [(3, 100), (SIZE, 100)], [(3, 0), (4, 11)]];
    for (entries, is_broken) in lies.into_iter().zip([true, true, true, false]) {
        let mut world = world(PLAIN);
        let ring = world.layout.split_ring(0, &world.memory).unwrap();
        let region = world.pools[0].region();
        for (index, (name, length)) in entries.into_iter().enumerate() {
            let header = (ring.descriptor(name).address - POOL) as usize;
            // SAFETY: the buffer that was posted under that name, which is the device's.
            unsafe {
                region.address().add(header).cast::<[u8; 12]>().write([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
            }
            ring.set_used_entry(index as u16, name, length);
        }
        ring.publish_used(2);
        let packets: Vec<_> = (0..2).flat_map(|_| receive(&mut world.driver)).collect();
        assert_eq!(world.driver_rings.broken().is_some(), is_broken, "{entries:?}");
        assert_eq!(packets.len(), usize::from(is_broken), "what was right before is taken");
        drop(packets);
        assert_eq!(world.lent(), u64::from(SIZE));
        world.end();
    }
}

#[test]
fn what_a_device_was_not_given_to_send_is_not_taken_back() {
    for names in [[0, 0], [0, 7], [0, SIZE]] {
        let mut world = world(PLAIN);
        send(&mut world.driver, vec![packet_of(&world.pools[0], &contents(1, 60))]);
        let ring = world.layout.split_ring(1, &world.memory).unwrap();
        assert_eq!(ring.available_entry(0), 0);
        for (index, name) in names.into_iter().enumerate() {
            ring.set_used_entry(index as u16, name, 0);
        }
        ring.publish_used(1);
        send(&mut world.driver, Vec::new());
        assert_eq!((world.driver_rings.broken(), world.lent()), (None, u64::from(SIZE)));
        // One more than were sent could not be: the index says so. So there is one more.
        send(&mut world.driver, vec![packet_of(&world.pools[0], &contents(1, 60))]);
        ring.publish_used(2);
        send(&mut world.driver, Vec::new());
        assert!(world.driver_rings.broken().is_some(), "{names:?}");
        world.end();
    }
}
