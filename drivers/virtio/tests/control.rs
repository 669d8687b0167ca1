//! A device's control queue, at which a device is played that writes to rings by the specification, and lies.

use std::sync::{Arc, Mutex};
use std::time::Duration;
use warmlane_sys::pages::MappingError;
use warmlane_virtio::bus::{
    Agreed, BusMemory, ControlError, ControlQueue, LONGEST_COMMAND, Notify, RingAreas,
};
use warmlane_virtio::features::{EVENT_INDEX, IN_ORDER, PACKED, VERSION_1};

/// Descriptors of the ring, of which a command takes two: it goes round after a few.
const SIZE: u16 = 8;

/// Longer than any device takes here.
const LONG: Duration = Duration::from_secs(60);

/// Flags of descriptors (virtio 1.2, section 2.7.5), and of those of packed rings (section 2.8.1).
const NEXT: u16 = 1;
const WRITE: u16 = 2;
const AVAILABLE: u16 = 1 << 7;
const USED: u16 = 1 << 15;

/// What the device does with a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Answers(u8),
    /// The same, but not at once.
    AnswersLate,
    /// It says that it is done, and has answered nothing.
    ForgetsAnswer,
    /// It never does anything.
    Silent,
    /// It names a buffer that it wasn't given.
    OtherName,
    /// It has used more buffers than it was given.
    OtherIndex,
}

#[derive(Debug)]
struct State {
    areas: RingAreas,
    is_packed: bool,
    manner: Manner,
    /// What it was told.
    commands: Vec<Vec<u8>>,
    /// Buffers that it has used, and where it is in a packed ring.
    used: u16,
    slot: u16,
    wrap: bool,
}

/// The device. Its addresses are those of this process.
#[derive(Clone, Debug)]
struct Device(Arc<Mutex<State>>);

fn read<T>(address: u64) -> T {
    // SAFETY: inside the memory of the queue, which its driver holds while it tells the device of something and until that has answered, at a multiple of the
    // size of what is there.
    unsafe { std::ptr::with_exposed_provenance::<T>(address as usize).read_volatile() }
}

fn write<T>(address: u64, value: T) {
    // SAFETY: as above.
    unsafe { std::ptr::with_exposed_provenance_mut::<T>(address as usize).write_volatile(value) };
}

/// A descriptor: where, how long, and the two words behind that.
fn descriptor(areas: RingAreas, slot: u16) -> (u64, u32, u16, u16) {
    let place = areas.descriptors + 16 * u64::from(slot);
    (read(place), read(place + 8), read(place + 12), read(place + 14))
}

impl State {
    /// The two descriptors of the next command, by address and length, and its name.
    fn next(&self) -> ([(u64, u32); 2], u16) {
        let areas = self.areas;
        if self.is_packed {
            let (first, second) = (descriptor(areas, self.slot), descriptor(areas, self.slot + 1));
            let whose = if self.wrap { AVAILABLE } else { USED };
            assert_eq!(first.3, NEXT | whose);
            assert_eq!(second.3, WRITE | whose);
            return ([(first.0, first.1), (second.0, second.1)], second.2);
        }
        assert_eq!(read::<u16>(areas.driver + 2), self.used.wrapping_add(1), "one at a time");
        let head: u16 = read(areas.driver + 4 + 2 * u64::from(self.used % SIZE));
        let first = descriptor(areas, head);
        assert_eq!(first.2, NEXT);
        let second = descriptor(areas, first.3);
        assert_eq!(second.2, WRITE);
        ([(first.0, first.1), (second.0, second.1)], head)
    }

    fn put_back(&mut self, name: u16, count: u16) {
        let areas = self.areas;
        if self.is_packed {
            let place = areas.descriptors + 16 * u64::from(self.slot);
            write(place + 8, 1_u32);
            write(place + 12, name);
            write(place + 14, if self.wrap { AVAILABLE | USED } else { 0 });
            self.wrap ^= self.slot + 2 >= SIZE;
            self.slot = (self.slot + 2) % SIZE;
        } else {
            let place = areas.device + 4 + 8 * u64::from(self.used % SIZE);
            write(place, u32::from(name));
            write(place + 4, 1_u32);
            self.used = self.used.wrapping_add(count);
            write(areas.device + 2, self.used);
        }
    }

    fn work(&mut self) {
        if self.manner == Manner::Silent {
            return;
        }
        let ([(command, length), (answer, room)], name) = self.next();
        assert_eq!(room, 1, "an answer is a byte");
        self.commands.push((0..u64::from(length)).map(|at| read::<u8>(command + at)).collect());
        match self.manner {
            Manner::Answers(value) => write(answer, value),
            Manner::AnswersLate => write(answer, 0_u8),
            _ => {}
        }
        let name = if self.manner == Manner::OtherName { name ^ 5 } else { name };
        self.put_back(name, if self.manner == Manner::OtherIndex { 2 } else { 1 });
    }
}

impl Notify for Device {
    fn notify(&self) {
        if self.0.lock().unwrap().manner == Manner::AnswersLate {
            let device = self.clone();
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(20));
                device.0.lock().unwrap().work();
            });
        } else {
            self.0.lock().unwrap().work();
        }
    }
}

fn queue(features: u64, manner: Manner) -> (ControlQueue, Device) {
    let agreed = Agreed { features: features | VERSION_1, rings: 2, ring_size: 64, control: Some(SIZE) };
    let memory = BusMemory::new("test", agreed, |mapping| {
        Ok::<_, MappingError>(mapping.as_ptr().as_ptr().expose_provenance() as u64)
    });
    let memory = memory.unwrap();
    let areas = memory.control_areas().unwrap();
    let state = State {
        areas,
        is_packed: features & PACKED != 0,
        manner,
        commands: Vec::new(),
        used: 0,
        slot: 0,
        wrap: true,
    };
    let device = Device(Arc::new(Mutex::new(state)));
    (memory.control_queue(Box::new(device.clone())).unwrap(), device)
}

const FORMATS: [u64; 4] = [0, EVENT_INDEX, PACKED, PACKED | IN_ORDER];

#[test]
fn commands_come_whole_and_are_answered_many_times_round_the_ring() {
    for features in FORMATS {
        let (mut queue, device) = queue(features, Manner::Answers(0));
        let commands: Vec<Vec<u8>> =
            (0..200_usize).map(|number| vec![number as u8; 1 + number * 97 % LONGEST_COMMAND]).collect();
        for (number, command) in commands.iter().enumerate() {
            let value = (number % 3 == 2) as u8;
            device.0.lock().unwrap().manner = Manner::Answers(value);
            let expected = if value == 0 { Ok(()) } else { Err(ControlError::Refused(value)) };
            assert_eq!(queue.run(command, LONG), expected, "{number}");
        }
        assert!(device.0.lock().unwrap().commands == commands);
        device.0.lock().unwrap().manner = Manner::AnswersLate;
        assert_eq!(queue.run(&[1, 2, 3], LONG), Ok(()));
    }
}

#[test]
fn a_device_that_never_answers_is_not_waited_for_without_end() {
    for features in FORMATS {
        let (mut queue, _device) = queue(features, Manner::Silent);
        assert_eq!(queue.run(&[4, 0, 2, 0], Duration::from_millis(50)), Err(ControlError::Silent));
    }
}

#[test]
fn a_device_that_lies_about_its_queue_is_not_believed() {
    for features in FORMATS {
        let run = |manner| queue(features, manner).0.run(&[4, 0, 2, 0], Duration::from_millis(50));
        assert_eq!(run(Manner::Answers(1)), Err(ControlError::Refused(1)));
        assert_eq!(run(Manner::ForgetsAnswer), Err(ControlError::Refused(0xff)));
        assert!(matches!(run(Manner::OtherName), Err(ControlError::Broken(_))));
        // A packed ring has no index.
        if features & PACKED == 0 {
            assert!(matches!(run(Manner::OtherIndex), Err(ControlError::Broken(_))));
        }
    }
}
