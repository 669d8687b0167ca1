//! Cards that reach the pool.

use super::on_all_cards;
use super::*;

fn lab<C: Played>(buffers: u32) -> Lab<C> {
    let mut lab = Lab::<C>::with_pool(64, &PoolConfig { buffers, ..PoolConfig::default() });
    lab.share();
    lab.start(64);
    lab
}

fn frames_are_where_the_card_put_them_and_are_sent_from_there<C: Played>() {
    let mut lab = lab::<C>(2048);
    assert_eq!(lab.pool.ledger().outstanding(), 63, "one descriptor is left out");
    for number in 0..500 {
        assert!(lab.model.deliver(&contents(number, 60 + number), 0));
        let mut burst = Burst::new();
        assert_eq!(lab.receive.receive(&mut burst), 1);
        assert_eq!(bytes(&burst[0]), contents(number, 60 + number));
        assert_eq!(lab.transmit.transmit(&mut burst), 1);
        assert_eq!(lab.model.state().sent.pop(), Some(contents(number, 60 + number)));
    }
    assert_eq!(lab.model.state().in_pool, [500, 500]);
    lab.progress();
    assert_eq!(lab.missing(), 0);
    let pool = lab.pool.clone();
    let lent = pool.ledger().outstanding();
    lab.rings.stop();
    assert!(lent > 0 && pool.ledger().outstanding() == lent, "until the card is reset, nobody else has them");
    drop(lab);
    assert_eq!(pool.ledger().outstanding(), 0);
}

fn what_cannot_be_sent_where_it_is_is_copied_in_its_order<C: Played>() {
    let mut lab = lab::<C>(2048);
    let other = Pool::new(&PoolConfig { buffers: 64, ..PoolConfig::default() }).expect("there is memory");
    let mut burst = Burst::new();
    for number in 0..20 {
        let pool = if number % 3 == 1 { &other } else { &lab.pool };
        let mut packet = packet(pool, &contents(number, if number % 5 == 0 { 3000 } else { 100 }));
        if number % 7 == 3 {
            packet.set_checksum(Checksum::Partial { start: 34, offset: 6 });
        }
        drop(burst.push(packet));
    }
    assert_eq!(lab.transmit.transmit(&mut burst), 20);
    let state = lab.model.state();
    let heads: Vec<_> = state.sent.iter().map(|frame| frame[..34].to_vec()).collect();
    let expected: Vec<_> = (0..20).map(|number| contents(number, 100)[..34].to_vec()).collect();
    assert_eq!(heads, expected);
    let plain = (0..20).filter(|number| number % 3 != 1 && number % 5 != 0 && number % 7 != 3).count();
    assert_eq!(state.in_pool[1], plain as u32);
    drop(state);
    assert_eq!((other.ledger().outstanding(), lab.missing()), (0, 0));
}

fn frames_in_several_buffers_are_copied<C: Played>() {
    let mut lab = lab::<C>(2048);
    for number in 0..70 {
        assert!(lab.model.deliver(&contents(number, 5000), 0));
        let packets = lab.take();
        assert_eq!(packets.iter().map(bytes).collect::<Vec<_>>(), [contents(number, 5000)]);
    }
    assert_eq!((lab.model.state().in_pool[0], lab.missing()), (210, 0));
}

fn without_buffers_the_card_loses_frames_until_there_are_some<C: Played>() {
    let mut lab = lab::<C>(100);
    assert!((0..10).all(|number| lab.model.deliver(&contents(number, 60), 0)));
    let mut kept = lab.take();
    assert_eq!(kept.len(), 10);
    kept.extend(std::iter::from_fn(|| lab.pool.take()));
    let delivered = (0..100).filter(|number| lab.model.deliver(&contents(*number, 60), 0)).count();
    assert!(delivered < 64, "{delivered}");
    kept.extend(lab.take());
    assert!(!lab.model.deliver(&contents(0, 60), 0));
    assert_eq!(lab.take().len(), 0);
    drop(kept);
    assert_eq!(lab.take().len(), 0);
    assert!((0..63).all(|number| lab.model.deliver(&contents(number, 60), 0)));
    assert_eq!(lab.take().len(), 63);
    assert_eq!(lab.missing(), 0);
}

fn what_a_broken_ring_had_is_free_when_the_card_was_reset<C: Played>() {
    let mut lab = lab::<C>(2048);
    lab.model.state().is_stuck = true;
    assert_eq!(lab.send(0, &[60; 20]), 20);
    lab.model.write_back(0, Received::DONE | Received::END | 4000 << 32);
    assert!(lab.take().is_empty());
    assert!(lab.rings.broken().is_some());
    assert_eq!(lab.pool.ledger().outstanding(), 63 + 20, "the card may still write there");
    lab.start(64);
    assert_eq!(lab.missing(), 0);
    assert!(lab.model.deliver(&contents(3, 77), 0));
    assert_eq!(lab.take().iter().map(bytes).collect::<Vec<_>>(), [contents(3, 77)]);
}

on_all_cards! {
    frames_are_where_the_card_put_them_and_are_sent_from_there,
    what_cannot_be_sent_where_it_is_is_copied_in_its_order,
    frames_in_several_buffers_are_copied,
    without_buffers_the_card_loses_frames_until_there_are_some,
    what_a_broken_ring_had_is_free_when_the_card_was_reset,
}
