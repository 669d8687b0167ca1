//! Queues of lanes that sleep: what comes at once then, and what is lost.

use crate::common::{Wire, all_of, frame, in_namespace, on_link, only, opened, pair, pool, run, wait_for};
use warmlane_mem::{Burst, PoolConfig};
use warmlane_testkit::queues::drops;
use warmlane_xdp::{Umem, XdpOptions};

/// What a link has dropped of what was sent by it.
fn dropped_by_link(name: &str) -> u64 {
    let text = run(&format!("ip -json -statistics link show dev {name}"));
    let number = text.split("\"tx\":").nth(1).and_then(|sent| sent.split("\"dropped\":").nth(1));
    let digits: String = number.expect("statistics").chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a number")
}

/// Nobody knows how late a lane wakes: what a ring has space for finds buffers.
#[test]
fn a_burst_to_a_queue_that_sleeps_finds_buffers() {
    const SENT: u64 = 1900;
    on_link(1500, |_, umem| {
        let (mut incoming, _outgoing, _) = only(opened(&all_of("v0"), umem));
        let wire = Wire::on("v1");
        // It sleeps again and again.
        for _ in 0..3 {
            assert!(incoming.event().is_some());
            let dropped = dropped_by_link("v1");
            for number in 0..SENT {
                wire.send(&frame(number as usize, 60));
            }
            let mut received = 0;
            wait_for("what the link let through", || {
                let mut burst = Burst::new();
                received += incoming.receive(&mut burst) as u64;
                received + incoming.counters().drops().total() + dropped_by_link("v1") - dropped == SENT
            });
            assert_eq!(drops(&incoming.counters()), vec![]);
        }
    });
}

#[test]
fn what_a_queue_lost_in_its_sleep_is_counted_before_the_next() {
    on_link(1500, |_, umem| {
        let config = XdpOptions { ring: Some(256), ..all_of("v0") };
        let (mut incoming, _outgoing, _) = only(opened(&config, umem));
        assert!(incoming.event().is_some());
        let wire = Wire::on("v1");
        // Nobody takes anything out of the ring, and nobody polls.
        wait_for("the count", || {
            for number in 0..64 {
                wire.send(&frame(number, 60));
            }
            incoming.event();
            incoming.counters().drops().total() > 0
        });
    });
}

/// The pool is for packets under way, too.
#[test]
fn queues_that_sleep_leave_half_of_the_pool() {
    in_namespace(|| {
        let pool = pool(&PoolConfig::default());
        let umem = Umem::new(&pool).unwrap();
        let mut ports = Vec::new();
        for number in 0..6 {
            let (ours, other) = (format!("v{number}"), format!("w{number}"));
            pair(&ours, &other, 1500);
            ports.push(only(opened(&all_of(&ours), &umem)));
        }
        for (incoming, ..) in &mut ports {
            assert!(incoming.event().is_some());
        }
        let (left, half) = (pool.available(), pool.buffers() / 2);
        assert!((half..half + 1024).contains(&left), "{left} of {}", pool.buffers());
        drop(ports);
        assert_eq!(pool.ledger().outstanding(), 0);
    });
}
