use super::*;
use crate::skipped::skipped;
use std::io;
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, Ordering};

fn request(name: &str, length: usize, pages: PagePreference) -> MappingRequest {
    MappingRequest { name: name.to_owned(), length, pages }
}

/// Writes a pattern, reads it back through a second mapping of the same file, and the other way round.
fn check_shared(mapping: &Mapping) {
    let length = mapping.length();
    let start = mapping.as_ptr();
    assert_eq!(start.addr().get() % HUGE_2M_BYTES, 0, "alignment");
    assert_eq!(start.addr().get() % mapping.page_size().bytes(), 0, "alignment");
    let file = mapping.file().try_clone_to_owned().unwrap();
    let second =
        AddressRange::map_shared(&file, length, mapping.page_size().bytes()).map_err(|r| r.source).unwrap();
    for offset in (0..length).step_by(1000).chain([length - 1]) {
        let pattern = (offset % 251) as u8;
        // SAFETY: both mappings have `length` bytes, and only this thread uses them.
        unsafe {
            assert_eq!(start.add(offset).read(), 0, "new memory is zero");
            start.add(offset).write(pattern);
            assert_eq!(second.start().add(offset).read(), pattern);
            second.start().add(offset).write(!pattern);
            assert_eq!(start.add(offset).read(), !pattern);
        }
    }
}

/// What the kernel says of the mapping's addresses, and of those behind it.
fn smaps_area(mapping: &Mapping) -> String {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    maps.split_once(&format!("{:x}-", mapping.as_ptr().addr())).unwrap().1.to_owned()
}

#[test]
fn a_child_process_does_not_have_it() {
    for pages in [PagePreference::Plain, PagePreference::Best] {
        let mapping = Mapping::new(&request("not-forked", 3 << 20, pages)).unwrap();
        let area = smaps_area(&mapping);
        let flags = area.lines().find_map(|line| line.strip_prefix("VmFlags:")).unwrap();
        // proc_pid_smaps(5): dc, do not copy area on fork.
        assert!(flags.split_whitespace().any(|flag| flag == "dc"), "{flags}");
    }
}

#[test]
fn plain_pages_are_shared_and_all_resident() {
    let mapping = Mapping::new(&request("plain", 5000, PagePreference::Plain)).unwrap();
    assert_eq!(mapping.page_size(), PageSize::Plain);
    assert_eq!(mapping.length(), 5000_usize.next_multiple_of(base_page_bytes()));
    assert_eq!(mapping.fallback(), None);
    let area = smaps_area(&mapping);
    assert!(area.lines().next().unwrap().contains("/memfd:plain"), "{area:.100}");
    let resident = crate::text::kilobyte_field(&area, "Rss");
    assert_eq!(resident, Some(mapping.length() as u64), "populated before it can be used");
    check_shared(&mapping);
}

#[test]
fn reserved_pages_or_the_command_that_reserves_them() {
    for (preference, pages) in
        [(PagePreference::Huge2M, PageSize::Huge2M), (PagePreference::Huge1G, PageSize::Huge1G)]
    {
        match Mapping::new(&request("huge", 1, preference)) {
            Ok(mapping) => {
                assert_eq!((mapping.page_size(), mapping.length()), (pages, pages.bytes()));
                check_shared(&mapping);
            }
            Err(error @ MappingError::Unavailable { .. }) => {
                skipped(&format!("{pages} are not tested here: {error}"));
                let text = error.to_string();
                assert!(text.starts_with(&format!("huge: {pages} can't be had for 1 bytes: ")), "{text}");
                assert!(text.contains("nr_hugepages") || text.contains("no such pages"), "{text}");
            }
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn transparent_pages_are_really_huge_or_refused() {
    match Mapping::new(&request("thp", 3 << 20, PagePreference::Transparent)) {
        Ok(mapping) => {
            assert_eq!(mapping.length(), 4 << 20);
            assert_eq!(resident::huge_bytes(&mapping.range), Some(4 << 20));
            check_shared(&mapping);
        }
        Err(error @ MappingError::Unavailable { .. }) => {
            skipped(&format!("transparent huge pages are not tested here: {error}"));
            assert!(error.to_string().contains("transparent"), "{error}");
        }
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn the_best_always_works_and_says_what_it_is_not() {
    let mapping = Mapping::new(&request("best", 3 << 20, PagePreference::Best)).unwrap();
    match mapping.page_size() {
        PageSize::Huge1G | PageSize::Huge2M => assert_eq!(mapping.fallback(), None),
        pages => {
            let sentence = mapping.fallback().unwrap();
            eprintln!("{sentence}");
            assert!(sentence.starts_with("best: 2 MiB huge pages can't be had ("), "{sentence}");
            assert!(sentence.contains(&format!("; so it is on {pages}: ")), "{sentence}");
        }
    }
    check_shared(&mapping);
}

#[test]
fn the_file_cant_be_resized_by_whoever_gets_it() {
    let mapping = Mapping::new(&request("sealed", 1 << 20, PagePreference::Plain)).unwrap();
    for size in [0, 4 << 20] {
        // SAFETY: a size change of a file; that it must fail is what is tested.
        let result = unsafe { libc::ftruncate(mapping.file().as_raw_fd(), size) };
        assert_eq!((result, io::Error::last_os_error().raw_os_error()), (-1, Some(libc::EPERM)));
    }
}

#[test]
fn it_is_unmapped_when_dropped_while_the_file_lives_on() {
    let mapping = Mapping::new(&request("dropped-mapping", 1 << 20, PagePreference::Plain)).unwrap();
    let file = mapping.file().try_clone_to_owned().unwrap();
    let mapped = || std::fs::read_to_string("/proc/self/maps").unwrap().contains("dropped-mapping");
    assert!(mapped());
    drop(mapping);
    assert!(!mapped());
    assert!(AddressRange::map_shared(&file, 1 << 20, HUGE_2M_BYTES).is_ok());
}

#[test]
fn bad_requests_are_told_apart() {
    let error = |name: &str, length, pages| Mapping::new(&request(name, length, pages)).unwrap_err();
    let zero = error("packets", 0, PagePreference::Best);
    assert_eq!(zero.to_string(), "packets: a mapping of 0 bytes was asked for; ask for at least one");
    for length in [1 << 46, usize::MAX - 5, usize::MAX] {
        for pages in [PagePreference::Best, PagePreference::Transparent, PagePreference::Plain] {
            let error = error("packets", length, pages);
            assert!(
                matches!(error, MappingError::TooLarge { length: told, .. } if told == length),
                "{error}"
            );
        }
    }
    for name in ["a\0b", &"x".repeat(250)] {
        assert!(matches!(error(name, 1, PagePreference::Best), MappingError::InvalidName { .. }));
    }
}

#[test]
fn a_pool_that_is_too_small_gets_the_right_number() {
    let pool = HugePagePool { page_bytes: 2 << 20, total: 10, free: 6, reserved: 4 };
    let refusal = |code| Refusal { call: "mmap", source: io::Error::from_raw_os_error(code) };
    let shortfall = pool_shortfall(&pool, 8, &refusal(libc::ENOMEM));
    assert_eq!(shortfall.reason, "8 needed, 2 of the pool's 10 free");
    assert!(shortfall.remedy.contains("16"), "{}", shortfall.remedy);
    let shortfall = pool_shortfall(&pool, 2, &refusal(libc::EFAULT));
    assert!(shortfall.reason.contains("but mmap failed: Bad address"), "{}", shortfall.reason);
    assert!(shortfall.remedy.contains("hugetlb"), "{}", shortfall.remedy);
}

/// A mapping that cannot be had must not take another thread's memory with it: with MAP_FIXED the kernel may unmap what
/// was there before it finds that it has no huge page to put there.
#[test]
fn failing_for_huge_pages_leaves_other_threads_memory_alone() {
    if huge_pages::machine_pools()
        .iter()
        .any(|pool| pool.page_bytes == HUGE_2M_BYTES as u64 && pool.obtainable() > 0)
    {
        skipped("this machine has huge pages to give, and the test needs them refused");
        return;
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    assert!(Mapping::new(&request("none", HUGE_2M_BYTES, PagePreference::Huge2M)).is_err());
                }
            });
        }
        for round in 1..3_000_u32 {
            let mut memory: TableMemory<u32> = TableMemory::zeroed(HUGE_2M_BYTES / 4).expect("2 MiB");
            memory[round as usize] = round;
            std::thread::yield_now();
            assert_eq!(memory[round as usize], round);
        }
        stop.store(true, Ordering::Relaxed);
    });
}
