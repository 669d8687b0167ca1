//! Views of made-up counters.

use super::super::made_up::{dropped, stats, value};
use super::super::model::Model;
use super::*;

fn view(looks: Vec<(u64, Vec<Value>)>) -> View {
    let mut model = Model::default();
    for (seconds, values) in looks {
        model.take(stats(seconds, values));
    }
    model.view()
}

#[test]
fn before_the_second_look_there_are_totals_but_no_rates() {
    let look = vec![dropped("lane0", "no-route", 7), value(&[("port", "a")], "queue", "packets", 9)];
    let view = view(vec![(5, look)]);
    assert_eq!((view.age, view.between), (Duration::from_secs(5), Duration::ZERO));
    assert_eq!((view.drops[0].total, view.drops[0].rate), (7, 0.0));
    assert_eq!(view.ports[0].sent, Traffic::default());
    assert_eq!(Model::default().view(), View::default());
}

#[test]
fn queues_of_a_port_are_added_and_a_wrapped_counter_goes_on() {
    let look = |packets: u64, bytes: u64| {
        let of = |direction, queue, name, count| {
            let labels = [("port", "west"), ("driver", "xdp"), ("direction", direction), ("queue", queue)];
            value(&labels, "queue", name, count)
        };
        vec![
            of("receive", "0", "packets", packets),
            of("receive", "0", "bytes", bytes),
            of("receive", "1", "packets", packets),
            of("transmit", "0", "bytes", 5),
            value(&[("input", "west.0"), ("lane", "lane0")], "input", "received", packets),
        ]
    };
    let view = view(vec![(1, look(u64::MAX, 0)), (3, look(9, 1000))]);
    let [port] = &view.ports[..] else { panic!("{view:?}") };
    assert_eq!(port.name, "west");
    assert_eq!(port.received, Traffic { packets: 10.0, bits: Some(4000.0) });
    assert_eq!(port.sent, Traffic { packets: 0.0, bits: Some(0.0) });
}

#[test]
fn without_ports_there_are_what_lanes_take_in_and_send_and_channels() {
    let look = |times: u64| {
        vec![
            value(&[("lane", "upper"), ("output", "transfer")], "output", "sent", 7 * times),
            value(&[("input", "transfer"), ("lane", "lower")], "input", "received", 6 * times),
            value(&[("channel", "ofdm0"), ("function", "docsis")], "channel", "packets", 3 * times),
            value(&[("channel", "ofdm0"), ("function", "docsis")], "channel", "bytes", 300 * times),
        ]
    };
    let view = view(vec![(1, look(1)), (2, look(2))]);
    let [channel, transfer] = &view.ports[..] else { panic!("{view:?}") };
    assert_eq!((channel.name.as_str(), transfer.name.as_str()), ("ofdm0", "transfer"));
    assert_eq!(channel.sent, Traffic { packets: 3.0, bits: Some(2400.0) });
    assert_eq!((transfer.received.packets, transfer.sent.packets, transfer.sent.bits), (6.0, 7.0, None));
}

#[test]
fn a_lane_s_cycles_have_shares_and_steps_have_cycles_where_they_are_counted() {
    let look = |times: u64| {
        let lane = |name, count| value(&[("lane", "lane0")], "lane", name, count * times);
        let of =
            |set, name, count| value(&[("lane", "lane0"), ("stage", "upper MAC")], set, name, count * times);
        vec![
            lane("busy-cycles", 300),
            lane("idle-cycles", 100),
            lane("asleep-cycles", 40),
            lane("packets", 30),
            of("stage", "processed", 30),
            of("stage", "made", 2),
            of("stage-timed", "packets", 4),
            of("stage-timed", "cycles", 12),
            of("upper", "qos-packets", 10),
            of("upper", "qos-cycles", 150),
            of("upper", "filtering-packets", 0),
            of("upper", "filtering-cycles", 0),
        ]
    };
    let view = view(vec![(1, look(1)), (2, look(2))]);
    let lane = &view.lanes[0];
    assert_eq!(
        (lane.busy, lane.asleep, lane.cycles, lane.packets),
        (Some(0.75), Some(0.1), Some(10.0), 30.0)
    );
    let stages: Vec<_> = view
        .stages
        .iter()
        .map(|stage| (stage.name.as_str(), stage.packets, stage.made, stage.cycles, stage.share))
        .collect();
    assert_eq!(
        stages,
        [
            ("lane0 upper MAC", 30.0, Some(2.0), Some(3.0), Some(0.32)),
            ("lane0 filtering", 0.0, None, None, Some(0.0)),
            ("lane0 qos", 10.0, None, Some(15.0), Some(0.5)),
        ]
    );
}

#[test]
fn what_packets_last_took_is_kept_and_no_share_is_more_than_all() {
    // Two downstreams have lanes of the same names, of which one has nothing to do.
    let look = |packets: u64, timed: u64, cycles: u64| {
        let labels = [("downstream", "1"), ("lane", "upper"), ("stage", "upper MAC")];
        vec![
            value(&[("downstream", "0"), ("lane", "upper")], "lane", "busy-cycles", 0),
            value(&labels[..2], "lane", "busy-cycles", 10 * packets),
            value(&labels, "stage", "processed", packets),
            value(&labels, "stage-timed", "packets", timed),
            value(&labels, "stage-timed", "cycles", cycles),
        ]
    };
    let looks =
        [(1, look(100, 3, 90)), (2, look(200, 7, 110)), (3, look(300, 7, 110)), (4, look(400, 8, 160))];
    let expected = [(None, None), (Some(5.0), Some(0.5)), (Some(5.0), Some(0.5)), (Some(50.0), Some(1.0))];
    for (last, expected) in expected.into_iter().enumerate() {
        let view = view(looks[..=last].to_vec());
        let [stage] = &view.stages[..] else { panic!("{view:?}") };
        assert_eq!((stage.cycles, stage.share), expected, "look {last}");
    }
}

#[test]
fn drops_have_rate_severity_and_place_and_zeros_are_not_shown() {
    let look = |bad, right| vec![dropped("lane0", "no-route", bad), dropped("lane0", "policy", right)];
    let view = view(vec![(2, look(5, 0)), (4, look(9, 0))]);
    let expected = Dropped {
        reason: "no-route".to_owned(),
        severity: "warning".to_owned(),
        place: "lane0 forwarder".to_owned(),
        rate: 2.0,
        total: 9,
    };
    assert_eq!(view.drops, [expected]);
}

#[test]
fn pools_are_as_they_are_and_latencies_the_mean_of_what_passed() {
    let look = |packets: u64, latency: u64, refused: u64| {
        let pool = |name, count| value(&[("pool", "packets")], "pool", name, count);
        let flow = |name, count| value(&[("flow", "7"), ("function", "docsis")], "flow-delay", name, count);
        let received = |name, count| value(&[("lane", "receive")], "receive", name, count);
        vec![
            pool("buffers", 100),
            pool("outstanding", 25),
            pool("lowest", 60),
            pool("refused", refused),
            flow("packets", packets),
            flow("latency", latency),
            flow("longest", 900),
            received("packets", 0),
            received("timed", packets),
            received("latency", packets * Clock::calibrated().cycles_per_second()),
        ]
    };
    let view = view(vec![(1, look(10, 1000, 1)), (2, look(14, 2000, 3))]);
    let expected = Pool { name: "packets".to_owned(), buffers: 100, outstanding: 25, most: 40, refused: 2.0 };
    assert_eq!(view.pools, [expected]);
    let latency = |name: &str, mean, longest| Latency {
        name: name.to_owned(),
        packets: 4.0,
        mean: Some(mean),
        most: None,
        longest,
    };
    assert_eq!(view.latencies, [latency("7", 250.0, Some(900)), latency("receive", 1e9, None)]);
}

#[test]
fn a_histogram_says_below_what_most_of_its_times_are() {
    let look = |short: u64, middle: u64, long: u64, longer: u64| {
        let of = |name, count| value(&[("channel", "ofdm0"), ("function", "docsis")], "latency", name, count);
        vec![
            of("below-4us", middle),
            of("below-1us", short),
            of("below-1ms", long),
            of("longer", longer),
            of("sum", 500 * (short + middle + long + longer)),
        ]
    };
    let most = |short: u64, middle: u64, long: u64, longer: u64| {
        let view = view(vec![(1, look(7, 7, 7, 7)), (2, look(7 + short, 7 + middle, 7 + long, 7 + longer))]);
        let [latency] = &view.latencies[..] else { panic!("{view:?}") };
        assert_eq!(latency.name, "ofdm0 latency");
        (latency.most.clone(), latency.mean)
    };
    let text = |text: &str, mean| (Some(text.to_owned()), Some(mean));
    assert_eq!(most(99, 1, 0, 0), text("< 1us", 500.0));
    assert_eq!(most(98, 1, 1, 0), text("< 4us", 500.0));
    assert_eq!(most(0, 0, 99, 1), text("< 1ms", 500.0));
    assert_eq!(most(9, 0, 0, 1), text("> 1ms", 500.0));
    assert_eq!(most(0, 0, 0, 0), (None, None));
}

#[test]
fn a_stage_that_is_timed_says_below_what_most_of_its_bursts_are() {
    let look = |packets: u64, counts: [u64; 3]| {
        let of =
            |name, count| value(&[("lane", "lane0"), ("stage", "forwarder")], "stage-timed", name, count);
        vec![
            of("packets", packets),
            of("cycles", packets * Clock::calibrated().cycles_per_second()),
            of("below-128", counts[1]),
            of("below-64", counts[0]),
            of("longer", counts[2]),
        ]
    };
    let most = |counts: [u64; 3]| {
        let view = view(vec![(1, look(7, [0; 3])), (2, look(7 + counts.iter().sum::<u64>(), counts))]);
        let [latency] = &view.latencies[..] else { panic!("{view:?}") };
        assert_eq!(latency.name, "lane0 forwarder");
        (latency.most.clone(), latency.mean)
    };
    let text = |text: &str| (Some(text.to_owned()), Some(1e9));
    assert_eq!(most([99, 1, 0]), text("< 64 cycles"));
    assert_eq!(most([98, 2, 0]), text("< 128 cycles"));
    assert_eq!(most([0, 98, 2]), text("> 128 cycles"));
    assert_eq!(most([0, 0, 0]), (None, None));
    // One that was never timed has nothing to say.
    let view = view(vec![(1, look(0, [0; 3])), (2, look(0, [0; 3]))]);
    assert_eq!(view.latencies, []);
}
