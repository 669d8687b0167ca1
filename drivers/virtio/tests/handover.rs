//! What a back end leaves behind when it ends, however it does: rings in which the next one goes on, and a log of the pages that it has written,
//! for a migration.

mod common;

use common::front_end::{BUFFER, FrontEnd, GUEST, MEMORY, RECEIVE, RING, SIZE, TRANSMIT};
use common::{connected, pool, until};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use warmlane_mem::{Burst, LaneThread, Pool};
use warmlane_testkit::exchange::{bytes_of, contents, packet_of};
use warmlane_testkit::process::Process;
use warmlane_virtio::features::{
    EVENT_INDEX, INDIRECT, LOG_ALL, MERGEABLE, PACKED, PROTOCOL_FEATURES, VERSION_1,
};
use warmlane_virtio::protocol::{Inflight, Log, Request, RingState};
use warmlane_virtio::vhost::{VhostOptions, open};
use warmlane_virtio::{Role, VirtioPort};

const SPLIT: u64 = VERSION_1 | MERGEABLE | PROTOCOL_FEATURES;
const PAGE: u64 = 4096;

/// Flags of a packed ring's descriptors.
const AVAILABLE: u16 = 1 << 7;
const USED: u16 = 1 << 15;

fn file(bytes: u64) -> File {
    let file = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, bytes).unwrap();
    file.into()
}

fn back_end(path: &Path, pool: &Pool) -> VirtioPort {
    open("ours", &VhostOptions::new(path.to_str().unwrap(), Role::Server), 1, pool).unwrap()
}

/// A driver's place in a packed ring.
#[derive(Clone, Copy)]
struct Place {
    slot: u16,
    wrap: bool,
}

impl Place {
    const START: Self = Self { slot: 0, wrap: true };

    fn advance(&mut self, count: u16) {
        self.slot += count;
        if self.slot >= SIZE {
            self.slot -= SIZE;
            self.wrap = !self.wrap;
        }
    }

    fn available(self) -> u16 {
        if self.wrap { AVAILABLE } else { USED }
    }

    fn is_used(self, flags: u16) -> bool {
        flags & (AVAILABLE | USED) == if self.wrap { AVAILABLE | USED } else { 0 }
    }
}

/// What a driver does with a packed ring by which it sends, besides what the front end can do for it.
struct PackedDriver<'a> {
    front_end: &'a FrontEnd,
    posted: Place,
    reaped: Place,
}

impl<'a> PackedDriver<'a> {
    fn new(front_end: &'a FrontEnd) -> Self {
        Self { front_end, posted: Place::START, reaped: Place::START }
    }

    /// Sends a frame in so many descriptors, by the buffer of the slot.
    fn send(&mut self, id: u16, frame: &[u8], parts: u16) {
        let place = FrontEnd::buffer(TRANSMIT, self.posted.slot);
        self.front_end.write(place, &[&[0; 12][..], frame].concat());
        let whole = 12 + frame.len() as u32;
        let mut descriptors = Vec::new();
        let mut start = 0;
        for part in 0..parts {
            let length = if part + 1 == parts { whole - start } else { whole / u32::from(parts) };
            let next = u16::from(part + 1 < parts);
            descriptors.push((self.posted, GUEST + place + u64::from(start), length, next));
            start += length;
            self.posted.advance(1);
        }
        // The first is made available last.
        for (at, guest, length, next) in descriptors.into_iter().rev() {
            let place = RING + u64::from(at.slot) * 16;
            self.front_end.descriptor(place, guest, length, id, at.available() | next);
        }
    }

    /// Takes the next one back, which had so many descriptors; its name.
    fn reap(&mut self, parts: u16) -> Option<u16> {
        let place = RING + u64::from(self.reaped.slot) * 16;
        if !self.reaped.is_used(self.front_end.read16(place + 14)) {
            return None;
        }
        self.reaped.advance(parts);
        Some(self.front_end.read16(place + 12))
    }
}

/// Receives so many frames, if they come.
fn receive(port: &mut VirtioPort, count: usize) -> Vec<Vec<u8>> {
    let mut burst = Burst::with_limit(count);
    until("frames have come", || {
        port.port.receive[0].receive(&mut burst);
        burst.len() == count
    });
    burst.drain().map(|packet| bytes_of(&packet)).collect()
}

/// The front end of a machine that lives on, and connects again.
fn reconnect(former: &FrontEnd, path: &Path, features: u64) -> FrontEnd {
    let mut next = FrontEnd::connect(path.to_str().unwrap(), features);
    next.file = former.file.try_clone().unwrap();
    next
}

/// Back ends come one after the other, in the middle of what there is to do. The front end says of each packed ring only that it has begun at its start.
fn goes_on(features: u64, notes: Option<&File>, parts: u16) {
    let _lane = LaneThread::enter();
    let (folder, pool) = (tempfile::tempdir().unwrap(), pool());
    let path = folder.path().join("vhost.sock");
    let mut memory: Option<FrontEnd> = None;
    let (mut posted, mut reaped) = (Place::START, Place::START);
    let (mut sent, mut came, mut back) = (0_u16, 0_u16, 0_u16);
    for _ in 0..40 {
        let mut port = back_end(&path, &pool);
        let front_end = match &memory {
            None => FrontEnd::connect(path.to_str().unwrap(), features),
            Some(former) => reconnect(former, &path, features),
        };
        front_end.introduce();
        if let Some(notes) = notes {
            let length = notes.metadata().unwrap().len();
            let inflight = Inflight { length, offset: 0, rings: 2, ring_size: SIZE };
            front_end.say(&Request::SetInflight(inflight), &[notes.as_fd()]);
        }
        for ring in [TRANSMIT, RECEIVE] {
            front_end.start(ring, front_end.first_base());
        }
        until("the port knows", || connected(&port));
        let mut driver = PackedDriver { front_end: &front_end, posted, reaped };
        while (sent - back + 1) * parts <= SIZE {
            driver.send(sent % SIZE, &contents(sent.into(), 60), parts);
            sent += 1;
        }
        // It takes some, and is gone.
        for frame in receive(&mut port, 7) {
            assert_eq!(frame, contents(came.into(), 60));
            came += 1;
        }
        while let Some(id) = driver.reap(parts) {
            assert_eq!(id, back % SIZE);
            back += 1;
        }
        assert_eq!(back, came, "each is given back once");
        PackedDriver { posted, reaped, .. } = driver;
        memory = Some(front_end);
        drop(port);
    }
    drop(memory);
    assert_eq!(pool.ledger().outstanding(), 0);
}

#[test]
fn the_next_back_end_goes_on_by_notes() {
    for parts in [1, 2] {
        goes_on(SPLIT | PACKED | EVENT_INDEX, Some(&file(1 << 16)), parts);
    }
}

/// As QEMU has it, which keeps no notes for network cards, with a driver that makes no chains.
#[test]
fn the_next_back_end_goes_on_by_the_ring_itself() {
    goes_on(SPLIT | PACKED | INDIRECT, None, 1);
}

/// The memory that a back end makes has room for what it is asked for, and is what the next one takes.
#[test]
fn memory_for_notes_is_made() {
    let _lane = LaneThread::enter();
    let (folder, pool) = (tempfile::tempdir().unwrap(), pool());
    let path = folder.path().join("vhost.sock");
    let port = back_end(&path, &pool);
    for (features, bytes) in [(SPLIT, 2 * (16 + 64 * 16)), (SPLIT | PACKED, 2 * (32 + 64 * 32))] {
        let front_end = FrontEnd::connect(path.to_str().unwrap(), features);
        front_end.introduce();
        let wanted = Inflight { length: 0, offset: 0, rings: 2, ring_size: SIZE };
        front_end.say(&Request::GetInflight(wanted), &[]);
        let (payload, file) = front_end.hear_with_file();
        let Ok(Request::SetInflight(given)) = Request::decode(32, &payload) else {
            panic!("{payload:?}");
        };
        assert!(given.length >= bytes && (given.rings, given.ring_size) == (2, SIZE), "{given:?}");
        let file = file.unwrap();
        assert_eq!(rustix::fs::fstat(&file).unwrap().st_size.cast_unsigned(), given.length);
        front_end.say(&Request::SetInflight(given), &[file.as_fd()]);
        for ring in [TRANSMIT, RECEIVE] {
            front_end.start(ring, front_end.first_base());
        }
        until("the port knows", || connected(&port));
        drop(front_end);
        until("the connection is over", || !connected(&port));
    }
}

/// Where the socket is of a back end that is to be killed.
const SOCKET: &str = "WARMLANE_TEST_SOCKET";

/// The back end of the next test, in a process of its own.
#[test]
fn a_back_end_that_is_killed() {
    let Some(path) = std::env::var_os(SOCKET) else { return };
    let _lane = LaneThread::enter();
    let pool = pool();
    let mut port = back_end(Path::new(&path), &pool);
    let mut burst = Burst::new();
    while rustix::process::getppid().is_some_and(|parent| parent.as_raw_nonzero().get() != 1) {
        port.port.receive[0].receive(&mut burst);
        burst.clear();
    }
}

/// Killed at any moment while it takes one burst after the other, a back end leaves a ring in which each buffer is given back once, in order.
#[test]
fn a_kill_loses_and_repeats_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vhost.sock");
    for (features, notes) in [(SPLIT | PACKED, Some(file(1 << 16))), (SPLIT | PACKED | INDIRECT, None)] {
        let mut memory: Option<FrontEnd> = None;
        let (mut posted, mut reaped) = (Place::START, Place::START);
        let (mut sent, mut back) = (0_u32, 0_u32);
        for round in 1..=12_u32 {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "a_back_end_that_is_killed"]).env(SOCKET, &path);
            let process = Process::spawn(&mut command);
            until("the back end is there", || std::os::unix::net::UnixStream::connect(&path).is_ok());
            let mut front_end = None;
            until("the back end greets", || {
                // The one that only looked may not be gone yet.
                let next = match &memory {
                    None => FrontEnd::connect(path.to_str().unwrap(), features),
                    Some(former) => reconnect(former, &path, features),
                };
                next.say(&Request::GetFeatures, &[]);
                front_end = next.hear().map(|_| next);
                front_end.is_some()
            });
            let front_end = front_end.unwrap();
            front_end.introduce();
            if let Some(notes) = &notes {
                let inflight = Inflight { length: 1 << 16, offset: 0, rings: 2, ring_size: SIZE };
                front_end.say(&Request::SetInflight(inflight), &[notes.as_fd()]);
            }
            for ring in [TRANSMIT, RECEIVE] {
                front_end.start(ring, front_end.first_base());
            }
            let mut driver = PackedDriver { front_end: &front_end, posted, reaped };
            // Killed while there is much to do: at another place each time.
            let goal = back + 1_000 + 137 * round;
            let mut exchange = |driver: &mut PackedDriver<'_>| {
                while sent - back < u32::from(SIZE) {
                    driver.send((sent % u32::from(SIZE)) as u16, &[0; 60], 1);
                    sent += 1;
                }
                while let Some(id) = driver.reap(1) {
                    assert_eq!(u32::from(id), back % u32::from(SIZE), "round {round}, {back} came back");
                    back += 1;
                }
                back
            };
            until("it takes what there is", || exchange(&mut driver) >= goal);
            process.signal("KILL");
            drop(process.finish(Duration::from_secs(60)));
            PackedDriver { posted, reaped, .. } = driver;
            memory = Some(front_end);
        }
    }
}

/// Every page that the port has changed is in the log, and no other that it has no reason to change.
#[test]
fn what_is_written_is_logged() {
    let _lane = LaneThread::enter();
    let (folder, pool) = (tempfile::tempdir().unwrap(), pool());
    let path = folder.path().join("vhost.sock");
    for features in [SPLIT, SPLIT | EVENT_INDEX, SPLIT | PACKED] {
        let mut port = back_end(&path, &pool);
        let front_end = FrontEnd::connect(path.to_str().unwrap(), features);
        front_end.run(&port);
        let log = file((GUEST + MEMORY).div_ceil(PAGE).div_ceil(8));
        let length = log.metadata().unwrap().len();
        front_end.say(&Request::SetLogBase(Log { length, offset: 0 }), &[log.as_fd()]);
        assert_eq!(front_end.hear().unwrap(), [0; 8]);
        let clear = || log.write_all_at(&vec![0; length as usize], 0).unwrap();
        for (lap, is_logged) in [false, true, false].into_iter().enumerate() {
            let agreed = if is_logged { features | LOG_ALL } else { features };
            front_end.say(&Request::SetFeatures(agreed), &[]);
            assert_eq!(front_end.ask(&Request::GetQueueCount), 1);
            clear();
            for number in 0..SIZE {
                let place = GUEST + FrontEnd::buffer(RECEIVE, number);
                if features & PACKED == 0 {
                    front_end.descriptor(u64::from(number) * 16, place, BUFFER as u32, 2, 0);
                    front_end.make_available(RECEIVE, number);
                } else {
                    let wrap = Place { slot: 0, wrap: !is_logged };
                    let flags = wrap.available() | 2;
                    front_end.descriptor(u64::from(number) * 16, place, BUFFER as u32, number, flags);
                }
            }
            let before = contents_of(&front_end);
            // By one buffer, and by several.
            let mut burst = Burst::new();
            for length in [60, 1_514, 5_000, 9_000] {
                burst.push(packet_of(&pool, &contents(lap + 1, length))).unwrap();
            }
            assert_eq!(port.port.transmit[0].transmit(&mut burst), 4);
            // The rest, so that the ring begins anew.
            while {
                burst.push(packet_of(&pool, &contents(lap + 1, 60))).unwrap();
                port.port.transmit[0].transmit(&mut burst) > 0
            } {}
            burst.clear();
            let changed = changed_pages(&before, &contents_of(&front_end));
            let logged = logged_pages(&log, length);
            assert!(changed.len() > 10, "{changed:?}");
            if is_logged {
                assert_eq!(changed.difference(&logged).count(), 0, "{changed:?} {logged:?}");
                // What is given back without a change, and where the rings are.
                let extra = logged.difference(&changed).count();
                assert!(extra <= 4, "{changed:?} {logged:?}");
            } else {
                assert_eq!(logged, BTreeSet::new());
            }
        }
        // A log that is too short for the memory is none.
        let short = file(8);
        front_end.say(&Request::SetLogBase(Log { length: 8, offset: 0 }), &[short.as_fd()]);
        assert_eq!(front_end.hear(), None);
        until("it is known why", || {
            port.monitor.status().unwrap().reason.contains("shorter than the memory")
        });
    }
    assert_eq!(pool.ledger().outstanding(), 0);
}

/// A ring says where it is when it is stopped, and goes on there with another back end: how a migration ends. QEMU 7.2 sets the device's
/// status to 0 before it asks. After a reset of all, it begins anew.
#[test]
fn a_ring_goes_on_where_the_front_end_says() {
    let _lane = LaneThread::enter();
    let (folder, pool) = (tempfile::tempdir().unwrap(), pool());
    let path = folder.path().join("vhost.sock");
    let stopped = 0x801b_801b;
    let by_status = (Some(Request::SetStatus(0)), stopped);
    for (reset, expected) in [(None, stopped), by_status, (Some(Request::ResetOwner), 0)] {
        let mut port = back_end(&path, &pool);
        let first = FrontEnd::connect(path.to_str().unwrap(), SPLIT | PACKED);
        first.run(&port);
        let mut driver = PackedDriver::new(&first);
        for number in 0..20 {
            driver.send(number, &contents(number.into(), 60), 3);
        }
        assert_eq!(receive(&mut port, 9), (0..9).map(|number| contents(number, 60)).collect::<Vec<_>>());
        if let Some(reset) = reset {
            first.say(&reset, &[]);
        }
        first.say(&Request::GetRingBase(RingState { index: TRANSMIT, value: 0 }), &[]);
        let answer = first.hear().unwrap();
        let base = u32::from_ne_bytes(answer[4..].try_into().unwrap());
        assert_eq!(base, expected);
        drop(port);
        if expected != stopped {
            continue;
        }
        let mut port = back_end(&path, &pool);
        let second = reconnect(&first, &path, SPLIT | PACKED);
        second.introduce();
        second.start(TRANSMIT, base);
        second.start(RECEIVE, second.first_base());
        until("the port knows", || connected(&port));
        assert_eq!(receive(&mut port, 11), (9..20).map(|number| contents(number, 60)).collect::<Vec<_>>());
    }
}

fn frames(numbers: std::ops::Range<usize>) -> Vec<Vec<u8>> {
    numbers.map(|number| contents(number, 60)).collect()
}

/// Sends frames, as a machine does whose driver has just begun.
fn send_first(front_end: &FrontEnd, features: u64, count: usize) {
    let mut driver = PackedDriver::new(front_end);
    for (number, frame) in (0..).zip(frames(0..count)) {
        if features & PACKED == 0 {
            front_end.send(number, [0; 12], &frame);
        } else {
            driver.send(number, &frame, 1);
        }
    }
}

fn ask_base(front_end: &FrontEnd) -> u32 {
    front_end.say(&Request::GetRingBase(RingState { index: TRANSMIT, value: 0 }), &[]);
    let answer = front_end.hear().unwrap();
    u32::from_ne_bytes(answer[4..].try_into().unwrap())
}

/// A machine goes on in its rings after a stop, or a reset that keeps where they were, with the next back end; and boots again there: by the same connection its
/// rings begin anew, in memory that was cleared.
#[test]
fn rings_of_a_machine_that_boots_again_begin_anew() {
    let _lane = LaneThread::enter();
    let (folder, pool) = (tempfile::tempdir().unwrap(), pool());
    let path = folder.path().join("vhost.sock");
    let resets = [None, Some(Request::SetStatus(0)), Some(Request::ResetDevice), Some(Request::ResetOwner)];
    for (features, at_9, at_5) in [(SPLIT, 9, 5), (SPLIT | PACKED, 0x8009_8009, 0x8005_8005)] {
        for reset in &resets {
            let mut port = back_end(&path, &pool);
            let first = FrontEnd::connect(path.to_str().unwrap(), features);
            first.run(&port);
            send_first(&first, features, 20);
            assert_eq!(receive(&mut port, 9), frames(0..9));
            if let Some(reset) = reset {
                first.say(reset, &[]);
            }
            let base = ask_base(&first);
            let is_kept = !matches!(reset, Some(Request::ResetDevice | Request::ResetOwner));
            assert_eq!(base, if is_kept { at_9 } else { 0 }, "{features:#x} {reset:?}");
            drop(port);

            let mut port = back_end(&path, &pool);
            let second = reconnect(&first, &path, features);
            second.introduce();
            second.start(TRANSMIT, at_9);
            second.start(RECEIVE, second.first_base());
            until("the port knows", || connected(&port));
            assert_eq!(receive(&mut port, 11), frames(9..20));

            second.say(&Request::SetStatus(0), &[]);
            assert_eq!(second.ask(&Request::GetQueueCount), 1);
            assert!(!connected(&port));
            second.write(0, &vec![0; 2 * RING as usize]);
            for ring in [TRANSMIT, RECEIVE] {
                second.start(ring, second.first_base());
            }
            until("the port knows", || connected(&port));
            send_first(&second, features, 5);
            assert_eq!(receive(&mut port, 5), frames(0..5));
            assert_eq!(ask_base(&second), at_5);
        }
    }
    assert_eq!(pool.ledger().outstanding(), 0);
}

fn contents_of(front_end: &FrontEnd) -> Vec<u8> {
    let mut bytes = vec![0; MEMORY as usize];
    front_end.file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// Pages, by the driver's addresses.
fn changed_pages(before: &[u8], after: &[u8]) -> BTreeSet<u64> {
    let pages = before.chunks(PAGE as usize).zip(after.chunks(PAGE as usize)).enumerate();
    pages.filter(|(_, (before, after))| before != after).map(|(page, _)| GUEST / PAGE + page as u64).collect()
}

fn logged_pages(log: &File, length: u64) -> BTreeSet<u64> {
    let mut bytes = vec![0; length as usize];
    log.read_exact_at(&mut bytes, 0).unwrap();
    (0..length * 8).filter(|page| bytes[*page as usize / 8] >> (page % 8) & 1 != 0).collect()
}
