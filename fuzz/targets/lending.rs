//! A device on a bus that reaches a pool and lies, against the port that drives it: no panic, no packet longer than it may be, every buffer back.
//!
//! The first byte of the input says what was agreed on (`FEATURES`). The rest is a list of records: a byte of what to do, a byte of how many bytes follow, and those.
//!
//! | what | then |
//! |---|---|
//! | 0 | writes these bytes to the memory of the rings, at the place that the first two say |
//! | 1 | writes these bytes to the buffer of the pool that the first two say, from where a header would be |
//! | 2 | says that a buffer was used, of the ring that the first byte says, by the number and the length (two bytes) that follow |
//! | others | the port receives and sends |

#![no_main]

mod common;

use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use common::next;
use libfuzzer_sys::fuzz_target;
use warmlane_driver_common::SharedPool;
use warmlane_driver_common::peer::Event;
use warmlane_mem::{LaneThread, Pool};
use warmlane::sys::pages::MappingError;
use warmlane_virtio::bus::{Agreed, BusMemory, BusRings};
use warmlane_virtio::features::{EVENT_INDEX, HASH_REPORT, IN_ORDER, MERGEABLE, PACKED, VERSION_1};

const FEATURES: [u64; 5] = [MERGEABLE, EVENT_INDEX, IN_ORDER, HASH_REPORT, PACKED];
const SIZE: u16 = 64;
/// Bytes of the longest header.
const HEADER: usize = 20;

fn pool() -> &'static Pool {
    static POOL: OnceLock<Pool> = OnceLock::new();
    POOL.get_or_init(common::pool)
}

/// Writes bytes from a place in memory of so many bytes on, as far as it goes.
fn write(start: NonNull<u8>, length: usize, place: usize, bytes: &[u8]) {
    for (number, byte) in bytes.iter().enumerate() {
        // SAFETY: inside the memory, which is mapped; nothing refers to it while the device writes.
        unsafe { start.add((place + number) % length).write_volatile(*byte) };
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((chosen, mut input)) = input.split_first() else { return };
    let chosen = (0..).zip(FEATURES).filter(|(number, _)| chosen >> number & 1 != 0);
    let features = chosen.fold(VERSION_1, |all, (_, feature)| all | feature);
    let lane = LaneThread::enter();
    let region = pool().region();
    // Addresses of the device's are those of this process.
    let shared = SharedPool::new(region.clone(), region.address().addr().get() as u64);
    let agreed = Agreed { features, rings: 2, ring_size: SIZE, control: None };
    let mut there = None;
    let memory = BusMemory::new("fuzz", agreed, |mapping| {
        there = Some((mapping.as_ptr(), mapping.length()));
        Ok::<_, MappingError>(mapping.as_ptr().addr().get() as u64)
    });
    let mut memory = memory.expect("there is memory").lend(&shared).expect("the pool has enough");
    let (start, length) = there.expect("it was mapped");
    let areas = [memory.areas(0), memory.areas(1)];
    let rings = BusRings::new(1).expect("there are descriptors");
    for number in 0..2 {
        let notify = Box::new(Event::new().expect("there are descriptors"));
        rings.start(number, (&mut memory, number), notify, None).expect("each is started once");
    }
    let end: Arc<dyn Send + Sync> = Arc::new(());
    let mut port = rings.port(("fuzz", "fuzz"), pool(), features, &end);
    let mut used = [0_u16; 2];
    while let Some((what, data)) = next(&mut input) {
        match (what, data) {
            (0, [low, high, bytes @ ..]) => {
                write(start, length, u16::from_le_bytes([*low, *high]).into(), bytes);
            }
            (1, [low, high, bytes @ ..]) => {
                let index = u32::from(u16::from_le_bytes([*low, *high])) % region.buffers();
                let offset = region.offsets().of(index) as usize + usize::from(region.start()) - HEADER;
                // SAFETY: a buffer of the pool, which is mapped, in front of its data.
                let buffer = unsafe { region.address().add(offset) };
                write(buffer, region.data_size(), 0, bytes);
            }
            (2, [ring, number, low, high, ..]) => {
                let ring = usize::from(ring & 1);
                let place = |address: u64| (address - start.addr().get() as u64) as usize;
                let (number, bytes) = (u32::from(*number), u32::from(u16::from_le_bytes([*low, *high])));
                if features & PACKED == 0 {
                    let device = place(areas[ring].device);
                    let entry = [number.to_ne_bytes(), bytes.to_ne_bytes()].concat();
                    write(start, length, device + 4 + usize::from(used[ring] % SIZE) * 8, &entry);
                    used[ring] = used[ring].wrapping_add(1);
                    write(start, length, device + 2, &used[ring].to_ne_bytes());
                } else {
                    // The first turn's flags.
                    let tail = u64::from(bytes) | u64::from(number) << 32 | 0x8080 << 48;
                    let descriptor = place(areas[ring].descriptors) + usize::from(used[ring] % SIZE) * 16;
                    used[ring] = used[ring].wrapping_add(1);
                    write(start, length, descriptor + 8, &tail.to_ne_bytes());
                }
            }
            _ => common::work(&mut port, pool(), 65_600, 400),
        }
    }
    common::work(&mut port, pool(), 65_600, 400);
    drop(port);
    rings.stop();
    drop((memory, shared));
    drop(lane);
    assert_eq!(pool().ledger().outstanding(), 0);
});
