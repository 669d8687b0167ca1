//! Lanes that sleep: what has to wake them does, and what can't keeps them awake.

use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use warmlane_lane::{
    IdlePolicy, Input, LaneConfig, LaneCountersView, Lanes, Outputs, PassThrough, Pipeline, Stage, every,
};
use warmlane_mem::{Burst, PacketSender, Pool, PoolConfig, channel};
use warmlane_port::{QueueCounters, ReceiveQueue, queue_report, replaceable};
use warmlane_sys::affinity;
use warmlane_testkit::exchange::until;
use warmlane_testkit::queues::Sink;

const ROUNDS: u64 = 200;

fn pool() -> Pool {
    Pool::new(&PoolConfig { buffers: 1_024, ..PoolConfig::default() }).expect("1,024 buffers")
}

/// A lane that sleeps whenever it can, between this input and a sink, with this stage.
fn lane(input: impl Into<Input>, stage: impl Stage + 'static) -> (Lanes, LaneCountersView) {
    let pipeline = Pipeline::new(input, stage, Box::new(Sink::new(64)));
    let mut lanes = Lanes::new();
    let config = LaneConfig { name: "sleepy".into(), idle: IdlePolicy::Power, ..LaneConfig::default() };
    lanes.spawn(config, pipeline).expect("a thread");
    let counters = lanes.views()[0].counters.clone();
    (lanes, counters)
}

fn send(sender: &mut PacketSender, pool: &Pool) {
    let mut burst = Burst::new();
    pool.take_burst(&mut burst, 1);
    assert_eq!(sender.send(&mut burst), 1);
}

/// Waits until it sleeps again after so many sleeps.
fn wait_for_sleep(counters: &LaneCountersView, before: u64) {
    until("the lane sleeps", || counters.sleeps() > before);
}

/// Each of many packets finds the lane asleep, or about to be, and wakes it.
#[test]
fn what_another_lane_sends_wakes_it() {
    let pool = pool();
    let (mut sender, receiver) = channel(256).expect("a power of two");
    let (mut lanes, counters) = lane(receiver, PassThrough);
    for round in 0..ROUNDS {
        wait_for_sleep(&counters, counters.wake_ups());
        send(&mut sender, &pool);
        until("the packet is received", || counters.packets() == round + 1);
    }
    // A packet that comes just before it sleeps needn't wake it.
    assert!(counters.sleeps() >= counters.wake_ups() && counters.wake_ups() > ROUNDS / 2, "{counters:?}");
    // It looks when it is woken, and not all the time.
    assert!(counters.polls() < 20 * (counters.sleeps() + ROUNDS), "{counters:?}");
    // That nobody will send any more wakes it, too.
    wait_for_sleep(&counters, counters.wake_ups());
    drop(sender);
    lanes.join().expect("no panic");
    assert_eq!(pool.ledger().outstanding(), 0);
}

/// Queues that it is given while it sleeps, which only it can look for.
#[test]
fn what_is_left_for_it_wakes_it_if_it_is_called() {
    const GIVEN: u64 = 50;
    let pool = pool();
    let (mut port, mut replacer) =
        replaceable::wrap(replaceable::vacant("p", "none", 1)).expect("some memory");
    let (mut lanes, counters) = lane(port.receive.remove(0), PassThrough);
    let waker = lanes.waker();
    // After some polls it looks there less often.
    while counters.polls() < 200 {
        wait_for_sleep(&counters, counters.wake_ups());
        waker.wake();
    }
    // An end that went would wake it, too.
    let mut far = Vec::new();
    for _ in 0..GIVEN {
        let before = counters.wake_ups();
        wait_for_sleep(&counters, before);
        let (sender, queue) = socket(&pool);
        far.push(sender);
        replacer.receive_by(vec![queue]);
        waker.wake();
        until("the call wakes it", || counters.wake_ups() == before + 1);
        until("it takes the queue", || replacer.settle());
    }
    lanes.stop();
    lanes.join().expect("no panic");
}

/// A lane that finds a few packets now and then, and not far apart, doesn't want to be woken for each.
#[test]
fn it_naps_where_packets_are_not_far_apart() {
    let pool = pool();
    let (mut sender, receiver) = channel(256).expect("a power of two");
    let (mut lanes, counters) = lane(receiver, PassThrough);
    let mut burst = Burst::new();
    until("it naps", || {
        // Between any two of them it is tempted to sleep.
        for _ in 0..50 {
            pool.take_burst(&mut burst, 1);
            sender.send(&mut burst);
            burst.clear();
            let sent = Instant::now();
            while sent.elapsed() < Duration::from_micros(40) {
                std::hint::spin_loop();
            }
        }
        counters.naps() > 20
    });
    assert!(counters.asleep_cycles() <= counters.idle_cycles(), "{counters:?}");
    lanes.stop();
    lanes.join().expect("no panic");
}

/// Of two lanes on one CPU, neither of which ever sleeps, one that has nothing to do leaves it to the other.
#[test]
fn lanes_that_share_a_cpu_leave_it_to_each_other() {
    let pool = pool();
    let cpu = affinity::allowed_cpus().expect("a CPU to run on")[0];
    let (mut sender, receiver) = channel(256).expect("a power of two");
    let (middle_sender, middle) = channel(256).expect("a power of two");
    let (sink_sender, mut sink) = channel(256).expect("a power of two");
    let mut lanes = Lanes::new();
    let shared = |name: &str| LaneConfig {
        name: name.into(),
        cpu: Some(cpu),
        idle: IdlePolicy::Spin,
        shares_cpu: true,
        ..LaneConfig::default()
    };
    lanes.spawn(shared("first"), Pipeline::new(receiver, PassThrough, middle_sender)).expect("a thread");
    lanes.spawn(shared("second"), Pipeline::new(middle, PassThrough, sink_sender)).expect("a thread");
    let mut burst = Burst::new();
    for _ in 0..ROUNDS {
        send(&mut sender, &pool);
        until("it has come through both", || sink.receive(&mut burst) == 1);
        burst.clear();
    }
    let polls = |lane: usize| lanes.views()[lane].counters.polls();
    // Each went round about as often as the other: had one kept the CPU until its slice was over, it would have polled thousands of
    // times for each turn of the other.
    let (first, second) = (polls(0), polls(1));
    assert!(first.max(second) < 100 * first.min(second), "{first} {second}");
    lanes.stop();
    lanes.join().expect("no panic");
}

/// Packets as bytes of a socket tell of them.
struct Socket {
    stream: UnixStream,
    pool: Pool,
    counters: QueueCounters,
}

impl ReceiveQueue for Socket {
    fn receive(&mut self, burst: &mut Burst) -> usize {
        let mut bytes = [0; 16];
        let count = self.stream.read(&mut bytes).unwrap_or(0);
        self.pool.take_burst(burst, count)
    }

    fn event(&mut self) -> Option<BorrowedFd<'_>> {
        Some(self.stream.as_fd())
    }

    queue_report!(always running, counters);
}

fn socket(pool: &Pool) -> (UnixStream, Box<Socket>) {
    let (far, stream) = UnixStream::pair().expect("descriptors");
    stream.set_nonblocking(true).expect("a socket");
    (far, Box::new(Socket { stream, pool: pool.clone(), counters: QueueCounters::new() }))
}

#[test]
fn a_queue_wakes_it_and_so_does_a_stop() {
    let pool = pool();
    let (mut far, queue) = socket(&pool);
    let (mut lanes, counters) = lane(queue, PassThrough);
    for round in 0..ROUNDS {
        wait_for_sleep(&counters, counters.wake_ups());
        far.write_all(&[1]).expect("the lane has the other end");
        until("the packet is received", || counters.packets() == round + 1);
    }
    assert!(counters.wake_ups() > ROUNDS / 2, "{counters:?}");
    wait_for_sleep(&counters, counters.wake_ups());
    let before = counters.wake_ups();
    lanes.stop();
    lanes.join().expect("no panic");
    assert_eq!(counters.wake_ups(), before + 1);
    assert_eq!(pool.ledger().outstanding(), 0);
}

/// Several tasks on one lane wait for all of their inputs at once.
#[test]
fn tasks_of_one_lane_are_woken_by_each_of_their_inputs() {
    let pool = pool();
    let (mut far, queue) = socket(&pool);
    let (mut sender, receiver) = channel(256).expect("a power of two");
    let tasks: Vec<Pipeline> = vec![
        Pipeline::new(queue, PassThrough, Box::new(Sink::new(64))),
        Pipeline::new(receiver, PassThrough, Box::new(Sink::new(64))),
    ];
    let mut lanes = Lanes::new();
    let config = LaneConfig { name: "both".into(), idle: IdlePolicy::Power, ..LaneConfig::default() };
    lanes.spawn(config, tasks).expect("a thread");
    let counters = lanes.views()[0].counters.clone();
    for round in 0..ROUNDS {
        wait_for_sleep(&counters, counters.wake_ups());
        if round % 2 == 0 {
            far.write_all(&[1]).expect("it is open");
        } else {
            send(&mut sender, &pool);
        }
        until("the packet is received", || counters.packets() == round + 1);
    }
    assert!(counters.wake_ups() > ROUNDS / 2, "{counters:?}");
    lanes.stop();
    lanes.join().expect("no panic");
}

#[test]
fn the_clock_wakes_it_for_stages_that_say_when() {
    let calls = Arc::new(AtomicU32::new(0));
    let pool = pool();
    let (_far, queue) = socket(&pool);
    let called = Arc::clone(&calls);
    let ticks = every(Duration::from_millis(2), move || {
        called.fetch_add(1, Ordering::Relaxed);
    });
    let (mut lanes, counters) = lane(queue, (ticks, PassThrough));
    until("the stage is called", || calls.load(Ordering::Relaxed) >= 50);
    assert!(counters.sleeps() >= 49 && counters.wake_ups() == 0, "{counters:?}");
    assert!(counters.polls() < 20 * counters.sleeps(), "{counters:?}");
    lanes.stop();
    lanes.join().expect("no panic");
}

/// Is polled, and doesn't say when it has something to do.
struct Restless(Arc<AtomicU32>);

impl Stage for Restless {
    fn process(&mut self, _burst: &mut Burst, _outputs: &mut Outputs<'_>) {}

    fn is_polled(&self) -> bool {
        true
    }

    fn poll(&mut self, _now: u64, _burst: &mut Burst, _outputs: &mut Outputs<'_>) -> usize {
        self.0.fetch_add(1, Ordering::Relaxed);
        0
    }
}

#[test]
fn a_stage_that_is_polled_and_says_no_time_keeps_it_awake() {
    let polls = Arc::new(AtomicU32::new(0));
    let pool = pool();
    let (_far, queue) = socket(&pool);
    let (mut lanes, counters) = lane(queue, (PassThrough, Restless(Arc::clone(&polls))));
    until("the stage is polled", || polls.load(Ordering::Relaxed) > 500);
    assert_eq!(counters.sleeps(), 0);
    lanes.stop();
    lanes.join().expect("no panic");
}
