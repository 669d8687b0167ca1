//! What a buffer holds, and which buffers can be had.

use crate::common::{Everything, KINDS, config, pool, take_all};
use std::process::Command;
use warmlane_mem::plan::{Demands, PlanError};
use warmlane_mem::{
    Burst, Cursor, Frames, MAXIMUM_BUFFERS, Offsets, Packet, Pool, PoolConfig, PoolError, PoolKind,
    Variations,
};

#[test]
fn a_buffer_is_clean_when_taken_again() {
    for kind in KINDS {
        let pool = pool(kind, 1);
        let mut packet = pool.take().expect("one buffer");
        packet.fill(&[7; 100]).expect("it fits");
        packet.trim_front(50).expect("100 bytes are there");
        packet.set_port(3);
        packet.set_timestamp(1);
        Everything::SAMPLE.put(&mut packet);
        assert_eq!(Everything::of(&packet), Everything::SAMPLE);
        let id = packet.id();
        drop(packet);
        let packet = pool.take().expect("it was returned");
        assert_eq!(packet.id(), id);
        assert_eq!((packet.len(), packet.packet_length(), packet.segments()), (0, 0, 1));
        assert_eq!((packet.headroom(), packet.tailroom()), (128, 2_048));
        assert_eq!((packet.port(), packet.timestamp()), (0, 0));
        assert_eq!(Everything::of(&packet), Everything::default());
        drop(packet);
        assert_eq!(take_all(&pool).len(), 1, "it was returned once");
    }
}

#[test]
fn data_size_is_bounded_at_both_ends() {
    let pool = pool(PoolKind::Depot, 2);
    let mut packet = pool.take().expect("a buffer");
    assert!(packet.fill(&[0; 2_049]).is_err());
    packet.fill(&[1; 2_048]).expect("it fits exactly");
    assert!(packet.append(1).is_err());
    packet.prepend(128).expect("the headroom is 128").fill(2);
    assert!(packet.prepend(1).is_err());
    assert_eq!(packet.len(), 2_176);
    assert_eq!((packet.data()[127], packet.data()[128]), (2, 1));
    assert!(packet.trim_front(2_177).is_err());
    packet.trim_front(2_176).expect("all of it");
    assert!(packet.is_empty());
    // A neighbour's header was not touched by any of this.
    assert_eq!(pool.take().expect("the other").len(), 0);
}

#[test]
fn the_application_has_its_own_bytes() {
    #[derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::KnownLayout, zerocopy::Immutable)]
    #[repr(C)]
    struct Mine {
        flow: u32,
        class: u32,
        colour: u32,
    }
    let pool = pool(PoolKind::Depot, 1);
    let mut packet = pool.take().expect("a buffer");
    *packet.application_mut::<Mine>() = Mine { flow: u32::MAX, class: 7, colour: 9 };
    packet.fill(&[0xff; 2_048]).expect("fits");
    let mine: &Mine = packet.application();
    assert_eq!((mine.flow, mine.class, mine.colour), (u32::MAX, 7, 9));
}

#[test]
fn copies_stay_inside_their_buffers() {
    // Buffers without a byte between them, and sizes around one line, the unit of copying.
    for (data_size, headroom, fits) in [(16, 48, 0), (63, 1, 0), (64, 64, 64), (127, 1, 64), (128, 0, 128)] {
        let buffer = PoolConfig { data_size, headroom, ..config(PoolKind::Depot, 8) };
        let pool =
            Pool::new(&PoolConfig { stride: Some(buffer.buffer_bytes()), ..buffer }).expect("plain pages");
        let _lane = pool.attach().expect("first attachment");
        for length in [1, 16, 64, 65, 128, 129] {
            let mut burst = Burst::new();
            assert!(pool.take_bulk(&mut burst, 8));
            burst.iter_mut().for_each(|packet| *packet.application_mut::<u64>() = 7);
            burst.clear();
            let mut frames = Frames::new();
            frames.push(&vec![0xff; length]).expect("few frames");
            let copied = pool.take_copies(&mut burst, &frames, &mut Cursor::default(), 8);
            let intact = |packet: &Packet| *packet.application::<u64>() == 7;
            assert!(copied.packets == 8 && burst.iter().all(intact), "{length} bytes into {data_size}");
            let expected = if length <= fits { length } else { 0 };
            assert!(
                burst.iter().all(|packet| packet.packet_length() == expected),
                "{length} bytes into {data_size}"
            );
        }
    }
}

/// One frame over and over, frames of a line each, and others are written in different ways.
#[test]
fn copies_are_of_the_frames_in_their_order() {
    let pool = Pool::new(&config(PoolKind::Depot, 64)).expect("plain pages");
    let _lane = pool.attach().expect("first attachment");
    for lengths in [&[60][..], &[64], &[300], &[60, 64, 1], &[60, 0, 64], &[60, 300, 64, 0, 65], &[0, 128]] {
        let mut frames = Frames::new();
        let mut wanted = Vec::new();
        for (number, &length) in lengths.iter().enumerate() {
            let frame: Vec<u8> = (0..length).map(|place| (place ^ (number * 31)) as u8).collect();
            frames.push(&frame).expect("few frames");
            wanted.push(frame);
        }
        let mut cursor = Cursor::default();
        let mut wanted = wanted.iter().cycle();
        for count in [1, 7, 64, 33] {
            let mut burst = Burst::new();
            // Something else is in the buffers, and known of them.
            assert!(pool.take_bulk(&mut burst, count));
            burst.iter_mut().for_each(|packet| packet.fill(&[0xee; 500]).expect("fits"));
            burst.clear();
            let copied = pool.take_copies(&mut burst, &frames, &mut cursor, count);
            assert_eq!((copied.packets, copied.bytes), (count, burst.bytes()), "{lengths:?}");
            for packet in &burst[..] {
                let frame = wanted.next().expect("it goes round");
                assert_eq!((packet.data(), packet.packet_length()), (&frame[..], frame.len()), "{lengths:?}");
            }
        }
    }
}

/// With a lane's cache and without, for frames of no line, one and several.
#[test]
fn variations_are_copies_with_numbers_of_their_own() {
    let pool = Pool::new(&config(PoolKind::Depot, 128)).expect("plain pages");
    let words = |number: u32| [number.wrapping_mul(0x9e37_79b9), !number];
    let end = |number: u32| [number, 1, 2, number ^ 0xffff];
    let numbers: Vec<_> = (0..40).map(words).collect();
    let trailers: Vec<_> = (100..140).map(end).collect();
    let offsets = Offsets::new([Some(26), Some(0), None, Some(62)]).expect("they are in the line");
    for attached in [false, true] {
        let _lane = attached.then(|| pool.attach().expect("first attachment"));
        // Numbers may have one byte inside of a frame, or none.
        let lengths = [0_usize, 1, 15, 16, 27, 60, 63, 64, 65, 300].into_iter();
        let trailers = [&trailers[..], &trailers[..30], &[]];
        for (length, trailers) in lengths.flat_map(|length| trailers.map(|trailers| (length, trailers))) {
            let frame: Vec<u8> = (0..length).map(|place| place as u8 | 0x40).collect();
            let mut frames = Frames::new();
            frames.push(&frame).expect("few frames");
            let mut burst = Burst::new();
            let variations = Variations { offsets: &offsets, numbers: &numbers, trailers };
            // Also more than there are.
            for (wanted, taken) in [(3, 3), (50, if trailers.len() == 30 { 30 } else { 40 })] {
                burst.clear();
                let copied = pool.take_variations(&mut burst, &frames, &variations, wanted);
                assert_eq!((copied.packets, copied.bytes), (taken, burst.bytes()), "{length} bytes");
                for (number, packet) in burst.iter().enumerate() {
                    let mut expected = frame.clone();
                    let [first, second] = numbers[number];
                    for (offset, number) in [(26, first), (0, first >> 16), (62, second >> 16)] {
                        let own = (number as u16).to_be_bytes();
                        expected.iter_mut().skip(offset).zip(own).for_each(|(byte, own)| *byte = own);
                    }
                    if let (Some(place), Some(own)) = (expected.last_chunk_mut::<16>(), trailers.get(number))
                    {
                        place.copy_from_slice(own.map(u32::to_ne_bytes).as_flattened());
                    }
                    assert_eq!(
                        packet.data(),
                        expected,
                        "number {number} of {length} bytes, attached {attached}"
                    );
                }
            }
        }
    }
}

#[test]
fn numbers_of_copies_stay_inside_their_buffers() {
    assert!(Offsets::new([Some(62), None, None, None]).is_some());
    for outside in [63, 64, usize::MAX - 1, usize::MAX] {
        assert!(Offsets::new([None, Some(outside), None, None]).is_none(), "{outside}");
    }
    let offsets = Offsets::new([Some(62); 4]).expect("they are in the line");
    for (data_size, headroom, fits) in [(63, 1, 0), (64, 64, 64), (127, 1, 64), (128, 0, 128)] {
        let buffer = PoolConfig { data_size, headroom, ..config(PoolKind::Depot, 8) };
        let pool =
            Pool::new(&PoolConfig { stride: Some(buffer.buffer_bytes()), ..buffer }).expect("plain pages");
        let _lane = pool.attach().expect("first attachment");
        for length in [1, 64, 65, 128, 129] {
            // Every second buffer is somebody's, in front of and behind those that are written to.
            let mut all = Burst::new();
            assert!(pool.take_bulk(&mut all, 8));
            let (mut held, mut free) = (Vec::new(), Vec::new());
            for mut packet in all.drain() {
                packet.fill(&vec![0x11; data_size]).expect("it fits");
                *packet.application_mut::<u64>() = 7;
                let whose = if packet.id().index().is_multiple_of(2) { &mut held } else { &mut free };
                whose.push(packet);
            }
            free.clear();
            let mut frames = Frames::new();
            frames.push(&vec![0xff; length]).expect("few frames");
            let (numbers, trailers) = ([[u32::MAX; 2]; 8], [[u32::MAX; 4]; 8]);
            let variations = Variations { offsets: &offsets, numbers: &numbers, trailers: &trailers };
            let mut burst = Burst::new();
            // There are no more.
            let copied = pool.take_variations(&mut burst, &frames, &variations, 8);
            assert_eq!(copied.packets, 4);
            let expected = if length <= fits { length } else { 0 };
            for packet in &burst[..] {
                assert_eq!(packet.data(), vec![0xff; expected], "{length} bytes into {data_size}");
                assert_eq!((packet.headroom(), *packet.application::<u64>()), (headroom, 7));
            }
            for packet in held {
                assert_eq!(packet.data(), vec![0x11; data_size], "{length} bytes into {data_size}");
                assert_eq!((packet.headroom(), *packet.application::<u64>()), (headroom, 7));
            }
        }
    }
}

/// What a burst has no space for is not taken.
#[test]
fn no_more_variations_are_taken_than_fit_the_burst() {
    let pool = Pool::new(&config(PoolKind::Depot, 64)).expect("plain pages");
    let _lane = pool.attach().expect("first attachment");
    let offsets = Offsets::new([None; 4]).expect("there are none");
    let mut frames = Frames::new();
    frames.push(&[1; 60]).expect("few frames");
    let variations = Variations { offsets: &offsets, numbers: &[[0; 2]; 20], trailers: &[] };
    let mut burst = Burst::with_limit(8);
    for taken in [5, 3, 0] {
        assert_eq!(pool.take_variations(&mut burst, &frames, &variations, 5).packets, taken);
    }
    burst.clear();
    assert_eq!(pool.take_variations(&mut burst, &Frames::new(), &variations, 5).packets, 0, "of no frame");
}

#[test]
#[cfg_attr(miri, ignore = "Miri grants any amount of memory, and takes minutes to plan for caches")]
fn bad_wishes_get_clear_errors() {
    let refused = |change: fn(&mut PoolConfig)| {
        let mut config = config(PoolKind::Depot, 16);
        change(&mut config);
        Pool::new(&config).expect_err("must be refused")
    };
    assert!(matches!(refused(|c| c.buffers = 0), PoolError::NoBuffers { .. }));
    assert!(matches!(refused(|c| c.buffers = MAXIMUM_BUFFERS + 1), PoolError::TooManyBuffers { .. }));
    assert!(matches!(refused(|c| c.data_size = 0), PoolError::NoSpace { .. }));
    assert!(matches!(refused(|c| c.data_size = 65_536), PoolError::BufferTooLarge { .. }));
    assert!(matches!(refused(|c| c.data_size = usize::MAX), PoolError::BufferTooLarge { .. }));
    assert!(matches!(refused(|c| c.magazine = Some(4_097)), PoolError::Magazine { .. }));
    assert!(matches!(refused(|c| c.stride = Some(2_239)), PoolError::Stride { .. }));
    assert!(matches!(refused(|c| c.stride = Some(64)), PoolError::Stride { .. }));
    assert!(matches!(refused(|c| c.stride = Some(65_600)), PoolError::Stride { .. }));
    let error = refused(|c| c.demands = Demands::XDP_UNALIGNED);
    assert!(
        matches!(error, PoolError::Plan { source: PlanError::Headroom { headroom: 128, demanded: 256 }, .. }),
        "{error}"
    );
    let error = refused(|c| {
        (c.headroom, c.demands) = (256, Demands::xdp_aligned(2_048).expect("a chunk of the kernel's"));
    });
    assert!(matches!(error, PoolError::Plan { source: PlanError::NoStride { .. }, .. }), "{error}");
    let error = refused(|c| {
        (c.headroom, c.stride) = (256, Some(4_160));
        c.demands = Demands::xdp_aligned(4_096).expect("a chunk of the kernel's");
    });
    assert!(matches!(error, PoolError::Plan { .. }), "{error}");
    let error = refused(|c| (c.buffers, c.data_size, c.demands) = (100_000, 60_000, Demands::MEMIF));
    assert!(matches!(error, PoolError::Plan { source: PlanError::Region { .. }, .. }), "{error}");
    let error = refused(|c| (c.buffers, c.data_size) = (MAXIMUM_BUFFERS, 60_000));
    assert!(matches!(error, PoolError::Memory { .. }), "{error}");
}

#[test]
fn a_thread_is_attached_once_at_a_time() {
    let pool = pool(PoolKind::Depot, 16);
    let lane = pool.attach().expect("first attachment");
    assert!(matches!(pool.attach(), Err(PoolError::AlreadyAttached { .. })));
    drop(lane);
    drop(pool.attach().expect("free again"));
}

#[test]
#[cfg_attr(miri, ignore = "to plan for caches takes it minutes")]
fn what_ports_demand_is_met() {
    let aligned = Demands::xdp_aligned(4_096).expect("a chunk of the kernel's").and(Demands::VHOST_USER);
    for (demands, stride) in [(aligned, Some(4_096)), (Demands::XDP_UNALIGNED.and(Demands::MEMIF), None)] {
        let config = PoolConfig { headroom: 256, demands, ..config(PoolKind::Depot, 16) };
        let pool = Pool::new(&config).expect("can be met");
        assert!(stride.is_none_or(|stride| stride == pool.stride()), "{}", pool.stride());
        assert!(pool.stride() >= config.buffer_bytes() && pool.stride() <= 4_096, "{}", pool.stride());
        let region = pool.region();
        assert!(region.offsets().of(7).is_multiple_of(demands.alignment as u64));
        assert!(region.address().addr().get().is_multiple_of(demands.alignment));
    }
}

#[test]
#[cfg_attr(miri, ignore = "it starts a process")]
fn another_process_can_have_the_memory_as_a_file() {
    let pool = pool(PoolKind::Depot, 4);
    let mut packets = take_all(&pool);
    for packet in &mut packets {
        packet.fill(format!("buffer {}", packet.id().index()).as_bytes()).expect("fits");
    }
    let region = pool.region();
    let (start, length) = (region.offsets().of(2) + 64 + 128, "buffer 2".len());
    // It reads a buffer, writes to it, and fails to cut the file short.
    let script = format!(
        "exec 3<&0; dd bs=1 skip={start} count={length} status=none && printf B | dd of=/proc/self/fd/3 bs=1 seek={start} \
         conv=notrunc status=none && ! truncate -s 0 /proc/self/fd/3"
    );
    let file = region.file().expect("a file").try_clone_to_owned().expect("a descriptor");
    let output = Command::new("sh").args(["-c", &script]).stdin(file).output().expect("a shell");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.stdout, b"buffer 2");
    let data = |index| packets.iter().find(|packet| packet.id().index() == index).map(Packet::data);
    assert_eq!((data(1), data(2)), (Some(&b"buffer 1"[..]), Some(&b"Buffer 2"[..])));
}
