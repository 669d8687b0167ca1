//! Queues that are slow, stuck, broken or costly: what is lost there is counted.

use super::{Endless, pool, run, sink, slow_sink, source, straight};
use std::sync::Arc;
use warmlane_lane::{Failure, LaneDrop, Node, PassThrough, Pipeline, Poll, Task};
use warmlane_mem::{Burst, channel};
use warmlane_port::steering::{Action, Match, Rule, Steering};
use warmlane_port::{Capabilities, Port, QueueCountersView, QueueStatus, ReceiveQueue, replaceable};
use warmlane_testkit::queues::Source;

#[test]
fn nothing_is_lost_behind_the_shortest_idiom() {
    let pool = pool();
    let (slow, taken) = sink(1, true);
    let mut pipeline = Pipeline::new(source(&pool, 100_000), PassThrough, slow);
    let graph = Arc::clone(pipeline.graph());
    run(&mut pipeline).expect("nothing breaks");
    assert_eq!((taken.packets(), graph.drops().total()), (100_000, 0));
    assert_eq!(pool.ledger().outstanding(), 0);
}

#[test]
fn a_slow_queue_that_may_lose_packets_loses_them_with_a_reason() {
    let pool = pool();
    let (slow, taken) = slow_sink();
    let (mut pipeline, graph) = straight(&pool, 10_000, slow);
    run(&mut pipeline).expect("nothing breaks");
    let (sent, lost) = (taken.packets(), graph.drops().get(LaneDrop::OutputFull));
    assert!(lost > 0);
    assert_eq!(sent + lost, 10_000);
    assert_eq!(graph.received(), graph.sent() + graph.drops().total());
}

#[test]
fn a_broken_queue_ends_the_pipeline_and_says_why() {
    let pool = pool();
    let mut broken = source(&pool, 10);
    broken.end = QueueStatus::Failed("interface 'eth7' is gone".to_owned());
    let mut pipeline = Pipeline::new(broken, PassThrough, sink(64, false).0);
    let graph = Arc::clone(pipeline.graph());
    assert_eq!(run(&mut pipeline), Err("interface 'eth7' is gone".to_owned()));
    assert_eq!(graph.name(graph.failures()[0].node), "input");

    let (mut broken, _) = sink(0, true);
    broken.status = QueueStatus::Failed("no link".to_owned());
    let (mut pipeline, graph) = straight(&pool, u64::MAX, broken);
    assert_eq!(run(&mut pipeline), Err("no link".to_owned()));
    assert_eq!(graph.failures(), [Failure { node: Node::Output(0), reason: "no link".to_owned() }]);
    assert_eq!(graph.received(), graph.drops().total());
    assert_eq!(pool.ledger().outstanding(), 0);
}

#[test]
fn one_pipeline_forwards_both_ways_and_one_blocked_way_leaves_the_other_open() {
    let pool = pool();
    let (stuck, none) = sink(0, true);
    let (free, taken) = sink(64, true);
    let mut builder = Pipeline::builder();
    let (west, east) =
        (builder.input("west", source(&pool, 1_000)), builder.input("east", source(&pool, 1_000)));
    let (to_east, to_west) = (builder.output("to east", stuck), builder.output("to west", free));
    builder.connect(west, to_east).connect(east, to_west);
    let mut pipeline = builder.build().expect("it fits");
    for _ in 0..1_000 {
        pipeline.poll();
    }
    assert_eq!((none.packets(), taken.packets()), (0, 1_000));
    let graph = Arc::clone(pipeline.graph());
    assert_eq!((graph.inputs[0].received(), graph.drops().total()), (64, 0));
}

#[test]
fn several_tasks_run_on_one_lane() {
    let pool = pool();
    let (sender, receiver) = channel(256).expect("a power of two");
    let (sink, taken) = sink(64, true);
    let mut tasks = vec![
        Pipeline::new(source(&pool, 5_000), PassThrough, sender),
        Pipeline::new(receiver, PassThrough, sink),
    ];
    // The second ends once the first's sender is gone.
    let mut polls = 0;
    while taken.packets() < 5_000 {
        assert_ne!(tasks.poll(), Poll::Finished);
        polls += 1;
        assert!(polls < 1_000_000);
    }
    tasks.stop();
    tasks.finish().expect("nothing breaks");
    assert_eq!(tasks.graphs().len(), 2);
    drop(tasks);
    assert_eq!(pool.ledger().outstanding(), 0);
}

#[test]
fn what_leads_nowhere_is_counted() {
    let pool = pool();
    let mut pipeline = Pipeline::sink(source(&pool, 100), PassThrough);
    let graph = Arc::clone(pipeline.graph());
    run(&mut pipeline).expect("nothing breaks");
    assert_eq!(graph.drops().get(LaneDrop::Unconnected), 100);
    assert_eq!(graph.name(Node::Stage(0)), "PassThrough");
    assert_eq!(pool.ledger().outstanding(), 0);
}

/// What a lane before has sent is counted, though nothing can leave any more.
#[test]
fn packets_in_a_channel_whose_lane_broke_are_counted() {
    let pool = pool();
    let (mut sender, receiver) = channel(256).expect("a power of two");
    let (mut broken, _) = sink(0, true);
    broken.status = QueueStatus::Failed("no link".to_owned());
    let mut second = Pipeline::new(receiver, PassThrough, broken);
    let graph = Arc::clone(second.graph());
    let mut burst = Burst::with_limit(200);
    pool.take_burst(&mut burst, 200);
    assert_eq!(sender.send(&mut burst), 200);
    assert_eq!(run(&mut second), Err("no link".to_owned()));
    drop((second, sender));
    assert_eq!((graph.received(), graph.drops().total()), (200, 200));
    assert_eq!(pool.ledger().outstanding(), 0);
}

/// A lane that is asked to stop carries on what other lanes send it, for as long as they can.
#[test]
fn a_stop_leaves_nothing_in_a_channel() {
    let pool = pool();
    let (mut sender, receiver) = channel(256).expect("a power of two");
    let (sink, taken) = sink(8, true);
    let mut pipeline = Pipeline::new(receiver, PassThrough, sink);
    let mut send = |count| {
        let mut burst = Burst::with_limit(count);
        pool.take_burst(&mut burst, count);
        assert_eq!(sender.send(&mut burst), count);
    };
    send(200);
    pipeline.stop();
    (0..1_000).for_each(|_| assert_ne!(pipeline.poll(), Poll::Finished));
    assert_eq!(taken.packets(), 200);
    send(50);
    drop(sender);
    let graph = Arc::clone(pipeline.graph());
    run(&mut pipeline).expect("nothing breaks");
    assert_eq!((graph.received(), taken.packets(), graph.drops().total()), (250, 250, 0));
    assert_eq!(pool.ledger().outstanding(), 0);
}

/// The same for a lane that is ended as nothing moves.
#[test]
fn packets_in_a_channel_whose_lane_is_ended_are_counted() {
    let pool = pool();
    let (mut sender, receiver) = channel(256).expect("a power of two");
    let mut pipeline = Pipeline::new(receiver, PassThrough, sink(0, true).0);
    let graph = Arc::clone(pipeline.graph());
    let mut burst = Burst::with_limit(200);
    pool.take_burst(&mut burst, 200);
    assert_eq!(sender.send(&mut burst), 200);
    pipeline.poll();
    pipeline.stop();
    pipeline.finish().expect("nothing breaks");
    assert_eq!(graph.sent(), 0);
    assert_eq!((graph.received(), graph.drops().get(LaneDrop::Unsent)), (200, 200));
    assert_eq!(pool.ledger().outstanding(), 0);
}

/// Where a lossless output is the bottleneck, each input gets its turn.
#[test]
fn no_input_is_starved_by_another() {
    let pool = pool();
    let (slow, _) = sink(16, true);
    let mut builder = Pipeline::builder();
    let (a, b) = (builder.input("a", source(&pool, u64::MAX)), builder.input("b", source(&pool, u64::MAX)));
    let out = builder.output("out", slow);
    let mut pipeline = builder.connect(a, out).connect(b, out).build().expect("fits");
    for _ in 0..10_000 {
        pipeline.poll();
    }
    let graph = Arc::clone(pipeline.graph());
    let (a, b) = (graph.inputs[0].received(), graph.inputs[1].received());
    assert!(a.min(b) * 2 > a.max(b), "{a} and {b}");
    assert_eq!(graph.drops().total(), 0);
}

/// Several bursts are gathered for a queue that is costly to call, and only by inputs that lead there.
#[test]
fn only_inputs_in_front_of_a_costly_queue_gather() {
    let pool = pool();
    let mut costly = sink(256, false).0;
    costly.is_costly = true;
    let mut builder = Pipeline::builder();
    let sender = builder.stage("sender", Endless(pool.clone()));
    let receiver = builder.stage("receiver", |burst: &mut Burst| burst.clear());
    let (input, output) = (builder.input("in", source(&pool, u64::MAX)), builder.output("out", costly));
    let mut tester = builder.connect(input, receiver).connect(sender, output).build().expect("fits");
    assert_eq!(tester.poll(), Poll::Worked(8 + 64));

    let mut costly = sink(256, false).0;
    costly.is_costly = true;
    let mut forwarder = Pipeline::new(source(&pool, u64::MAX), PassThrough, costly);
    assert_eq!(forwarder.poll(), Poll::Worked(256));
}

/// As an interface is: when nothing comes, something may come later.
struct Open(Source);

impl ReceiveQueue for Open {
    fn receive(&mut self, burst: &mut Burst) -> usize {
        self.0.receive(burst)
    }

    fn status(&self) -> QueueStatus {
        QueueStatus::Running
    }

    fn counters(&self) -> QueueCountersView {
        self.0.counters()
    }
}

/// A lane whose only port has no interface waits for one, forwards by it, and waits for another when it has gone.
#[test]
fn a_port_comes_and_goes_while_the_lane_runs() {
    let pool = pool();
    let (mut port, mut replacer) =
        replaceable::wrap(replaceable::vacant("spare", "none", 1)).expect("memory");
    let mut pipeline = Pipeline::new(port.receive.remove(0), PassThrough, port.transmit.remove(0));
    let poll = |pipeline: &mut Pipeline| {
        // As many as there are between two looks, and more.
        for _ in 0..1_000 {
            assert_ne!(pipeline.poll(), Poll::Finished);
        }
    };
    for _ in 0..2 {
        poll(&mut pipeline);
        let (sink, taken) = sink(64, false);
        replacer.send_by(vec![sink]);
        replacer.receive_by(vec![Box::new(Open(*source(&pool, 500)))]);
        poll(&mut pipeline);
        assert_eq!(taken.packets(), 500);
        replacer.receive_by(Vec::new());
        replacer.send_by(Vec::new());
        poll(&mut pipeline);
        assert!(replacer.settle());
    }
    // Nobody can bring one any more.
    drop(replacer);
    assert_eq!(run(&mut pipeline), Ok(()));
    assert_eq!((pipeline.graph().received(), pipeline.graph().sent()), (1_000, 1_000));
    assert_eq!(pool.ledger().outstanding(), 0);
}

/// A lane that receives for another one only is not idle, and when both are stopped what is on its way arrives.
#[test]
fn what_is_steered_to_another_lane_is_work_and_gets_there() {
    let pool = pool();
    let mac = |number: u64| [2, 0, 0, 0, 0, (number % 8) as u8];
    // The last bursts are all the second lane's.
    let source = Source::new(&pool, u64::MAX, move |packet, number| {
        packet.fill(&mac(if number < 192 { number } else { 2 })).expect("fits");
    });
    let port = Port {
        name: "west".to_owned(),
        driver: "source",
        capabilities: Capabilities::default(),
        receive: vec![Box::new(source)],
        transmit: Vec::new(),
    };
    // Of eight kinds one is dropped, one stays, and the others go to the second lane.
    let rules: Vec<Rule> = (0..8)
        .map(|number| Rule {
            of: Match { mac: Some(mac(number)), ..Match::default() },
            action: match number {
                0 => Action::Drop,
                _ => Action::Receive { queue: Some(u16::from(number > 1)), mark: None },
            },
        })
        .collect();
    let mut queues = port.steered(&Steering::new(&rules, None, 2).expect("good rules")).receive.into_iter();
    let mut next = || queues.next().expect("one for each lane");
    let (first, second) = (next(), next());
    let dropped = first.counters();
    let ((west, here), (east, there)) = (sink(256, true), sink(256, true));
    let mut lanes = [Pipeline::new(first, PassThrough, west), Pipeline::new(second, PassThrough, east)];
    for round in 1..=3 {
        assert!(matches!(lanes[0].poll(), Poll::Worked(_)));
        assert_eq!((here.packets(), dropped.drops().total()), (round * 8, round * 8));
    }
    // More than the channel takes: a burst waits in front of it.
    let mut received = 192;
    while lanes[0].poll() == Poll::Worked(0) {
        received += 64;
    }
    assert!(received > 1_024, "{received}");
    lanes.iter_mut().for_each(Task::stop);
    let [mut first, mut second] = lanes;
    assert_eq!(first.poll(), Poll::Idle, "it waits for the other lane");
    second.poll();
    run(&mut first).expect("nothing breaks");
    drop(first);
    run(&mut second).expect("nothing breaks");
    assert_eq!((there.packets(), dropped.drops().total()), (received - 3 * 16, 3 * 8));
    drop(second);
    assert_eq!(pool.ledger().outstanding(), 0);
}
