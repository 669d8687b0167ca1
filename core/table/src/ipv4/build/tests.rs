use super::*;
use crate::NextHopId;
#[test]
fn without_space_the_table_stays_as_it_is() {
    let prefix = |text: &str| text.parse::<Ipv4Prefix>().unwrap();
    let hop = |number| NextHopId::new(number).unwrap();
    let mut table =
        Ipv4Table::from_routes([(prefix("10.0.0.0/8"), hop(1)), (prefix("10.1.0.0/24"), hop(2))]).unwrap();
    let end = table.hops.end();
    table.hops.set_limit(end);
    let full = TableError::Full { bytes: (end + 2) * size_of::<u16>() };
    assert_eq!(table.insert(prefix("11.0.1.0/24"), hop(3)), Err(full));
    // Halfway through a block of words.
    let full = TableError::Full { bytes: (end + 2) * size_of::<u16>() };
    assert_eq!(table.insert(prefix("11.0.1.1/32"), hop(3)), Err(full));
    assert_eq!(
        (table.len(), table.lookup(0x0b00_0101), table.lookup(0x0a01_0001)),
        (2, NextHopId::NONE, hop(2))
    );
    // Halfway through the root words: 10.0.0.0/19 is changed by then and the run in 10.1.0.0/19 written in place; there is no
    // space for that of 11.0.0.0/19.
    let full = TableError::Full { bytes: (end + 2) * size_of::<u16>() };
    let batch = [("10.0.0.0/8", None), ("11.0.1.0/24", Some(hop(3)))].map(|(text, hop)| (prefix(text), hop));
    assert_eq!(table.apply(batch), Err(full));
    // A batch, of which the last change has no space.
    let batch = [("10.1.0.0/24", Some(hop(1))), ("12.0.0.0/8", Some(hop(4))), ("13.0.1.0/24", Some(hop(5)))];
    let batch = batch.map(|(text, hop)| (prefix(text), hop));
    assert!(matches!(table.apply(batch), Err(TableError::Full { .. })));
    assert_eq!((table.len(), table.lookup(0x0c00_0000)), (2, NextHopId::NONE));
    assert_eq!(table.insert(prefix("0.0.0.0/1"), hop(5)), Ok(None), "needs no run");
    assert_eq!(table.remove(prefix("0.0.0.0/1")), Ok(hop(5)));
    for (address, number) in [(0x0a00_0000, 1), (0x0aff_ffff, 1), (0x0a01_0000, 2), (0x0a01_0100, 1)] {
        assert_eq!(table.lookup(address), hop(number), "{address:x}");
    }
    table.hops.set_limit(usize::MAX);
    assert_eq!(table.insert(prefix("11.0.1.1/32"), hop(3)), Ok(None));
    assert_eq!(table.lookup(0x0b00_0101), hop(3));
}

#[test]
fn what_the_bitmap_can_tell_is_written_in_place() {
    let site = |number: u32| Ipv4Prefix::containing(0x0a00_0000 | number << 8, 24);
    let host = |number: u32| Ipv4Prefix::containing(0x0a00_0001 | number << 8, 32);
    let hop = |number| NextHopId::new(number).unwrap();
    let hosts = [(host(9), hop(90))];
    let mut table =
        Ipv4Table::from_routes((0..20).map(|number| (site(number), hop(number))).chain(hosts)).unwrap();
    let slot = slot_of(0x0a00_0000);
    let state = |table: &Ipv4Table| (table.word_at(slot), table.words.used(), table.hops.used());
    let before = state(&table);
    let answers = |table: &Ipv4Table, number: u32| {
        [0, 1, 2].map(|address| table.lookup(site(number).first() + address))
    };
    for number in [0, 3, 9, 19] {
        let others = answers(&table, number + 1);
        let at_host = if number == 9 { hop(90) } else { hop(50) };
        table.insert(site(number), hop(50)).unwrap();
        assert_eq!(answers(&table, number), [hop(50), at_host, hop(50)]);
        assert_eq!(state(&table), before);
        if number != 9 {
            table.remove(site(number)).unwrap();
            assert_eq!(answers(&table, number), [NextHopId::NONE; 3]);
            assert_eq!(state(&table), before);
        }
        assert_eq!(answers(&table, number + 1), others);
        table.insert(site(number), hop(number)).unwrap();
        assert_eq!(state(&table), before);
    }
    // A batch that fails takes back what it has written.
    table.hops.set_limit(table.hops.end());
    let batch = [(site(3), hop(50)), (host(9), hop(91)), (site(100), hop(51))];
    assert!(table.apply(batch.map(|(prefix, hop)| (prefix, Some(hop)))).is_err());
    assert_eq!((answers(&table, 3), answers(&table, 9)[1], state(&table)), ([hop(3); 3], hop(90), before));
    // When most routes have gone, a run that is too long does not stay.
    table.hops.set_limit(usize::MAX);
    for number in 2..20 {
        table.remove(site(number)).unwrap();
    }
    assert!(state(&table).2 < before.2 - 4, "{} of {}", state(&table).2, before.2);
}

#[test]
fn a_run_becomes_wide_with_the_first_large_number() {
    let site = |number: u32| Ipv4Prefix::containing(0x0a00_0000 | number << 8, 24);
    let hop = |number| NextHopId::new(number).unwrap();
    let mut table = Ipv4Table::from_routes((0..20).map(|number| (site(number), hop(number)))).unwrap();
    let slot = slot_of(0x0a00_0000);
    let base = |table: &Ipv4Table| portable::base(table.word_at(slot));
    let narrow = base(&table);
    // The last number that has a byte goes in place, and the next one into a new run.
    table.insert(site(3), hop(253)).unwrap();
    assert_eq!((base(&table), table.lookup(site(3).first())), (narrow, hop(253)));
    let used = table.hops.used();
    table.insert(site(3), hop(254)).unwrap();
    assert!(!narrow.is_wide() && base(&table).is_wide());
    // 20 hops and what comes after them: each takes a byte more.
    assert_eq!(table.hops.used(), used + 10);
    let wide = base(&table);
    for (number, other) in [(3, 60_000), (3, 3), (4, NextHopId::MAXIMUM)] {
        table.insert(site(number), hop(other)).unwrap();
        assert_eq!((base(&table), table.lookup(site(number).first())), (wide, hop(other)));
        assert_eq!(table.lookup(site(5).last()), hop(5));
    }
    table.remove(site(19)).unwrap();
    assert_eq!(table.lookup(site(19).first()), NextHopId::NONE);
}

#[test]
fn without_memory_the_table_stays_as_it_is() {
    let prefix = |text: &str| text.parse::<Ipv4Prefix>().unwrap();
    let hop = |number| NextHopId::new(number).unwrap();
    let mut table = Ipv4Table::from_routes([(prefix("10.0.0.0/8"), hop(1))]).unwrap();
    table.words.refuse_memory(true);
    let site = |number: u32| Ipv4Prefix::containing(0x0a00_0001 + (number << 8), 32);
    let routes = || (0..1 << 16).map(|number| (site(number), Some(hop(2))));
    // As many blocks as need more than the memory that is there.
    assert!(matches!(table.apply(routes()), Err(TableError::Memory { .. })));
    assert_eq!((table.len(), table.lookup(0x0a00_0001), table.words.used()), (1, hop(1), ROOT_WORDS));
    table.words.refuse_memory(false);
    assert_eq!(table.apply(routes()), Ok(()));
    assert_eq!(
        (table.len(), table.lookup(0x0aff_ff01), table.lookup(0x0aff_ff02)),
        (1 + (1 << 16), hop(2), hop(1))
    );
    let removals: Vec<_> = routes().map(|(prefix, _)| (prefix, None)).collect();
    assert_eq!(table.apply(removals), Ok(()));
    assert_eq!((table.len(), table.words.used(), table.hops.used()), (1, ROOT_WORDS, SINGLES));
}
