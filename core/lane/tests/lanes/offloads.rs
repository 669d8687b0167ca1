//! Where a pipeline does in software what packets need.

use std::sync::{Arc, Mutex};
use warmlane_lane::{Outputs, PassThrough, Pipeline, Poll, Stage, Task};
use warmlane_mem::{Burst, Checksum, Packet, Pool, PoolConfig, Vlan, VlanTci, channel};
use warmlane_port::TransmitOffloads;
use warmlane_testkit::queues::{Sink, Source};

/// Gives out one packet with a partial checksum.
#[expect(clippy::unnecessary_box_returns, reason = "pipelines take boxed queues")]
fn partial(pool: &Pool) -> Box<Source> {
    let mut source = Source::new(pool, 1, |packet, _| {
        packet.fill(&[1; 60]).expect("space");
        packet.set_checksum(Checksum::Partial { start: 34, offset: 6 });
    });
    source.leaves = TransmitOffloads::NO_TUNNEL;
    Box::new(source)
}

/// What somebody saw of each packet: its checksum, and its length.
type Seen = Arc<Mutex<Vec<(Checksum, usize)>>>;

fn look(seen: &Seen, packet: &Packet) {
    seen.lock().expect("no panic").push((packet.checksum(), packet.len()));
}

#[expect(clippy::unnecessary_box_returns, reason = "pipelines take boxed queues")]
fn sink(seen: &Seen, offloads: TransmitOffloads) -> Box<Sink> {
    let seen = Arc::clone(seen);
    let mut sink = Sink::new(256).with_look(move |packet| look(&seen, packet));
    sink.offloads = offloads;
    Box::new(sink)
}

/// Sees packets, and accepts and leaves what it is told to.
struct Watch(Seen, TransmitOffloads, TransmitOffloads);

impl Stage for Watch {
    fn process(&mut self, burst: &mut Burst, _outputs: &mut Outputs<'_>) {
        burst.iter().for_each(|packet| look(&self.0, packet));
        if self.2.vlan_insert {
            for packet in burst.iter_mut() {
                packet.set_vlan(Vlan::Insert(VlanTci { control: 5, is_service: false }));
            }
        }
    }

    fn accepts(&self) -> TransmitOffloads {
        self.1
    }

    fn leaves(&self) -> TransmitOffloads {
        self.2
    }
}

fn pool() -> Pool {
    Pool::new(&PoolConfig { buffers: 64, ..PoolConfig::default() }).expect("64 buffers")
}

fn poll(mut pipeline: Pipeline) {
    while pipeline.poll() != Poll::Finished {}
    pipeline.finish().expect("nothing broke");
}

const PARTIAL: (Checksum, usize) = (Checksum::Partial { start: 34, offset: 6 }, 60);
const GOOD: (Checksum, usize) = (Checksum::Good, 60);
const NONE: TransmitOffloads = TransmitOffloads::NONE;
const ALL: TransmitOffloads = TransmitOffloads::ALL;

#[test]
fn it_is_done_before_the_first_who_cannot_deal_with_it() {
    for (accepts, does, at_stage, at_sink) in [
        (ALL, ALL, PARTIAL, PARTIAL),
        (ALL, NONE, PARTIAL, GOOD),
        (NONE, ALL, GOOD, GOOD),
        (NONE, NONE, GOOD, GOOD),
    ] {
        let (pool, stage, sink) = (pool(), Seen::default(), Seen::default());
        // A row accepts what all its stages do.
        let stages = (PassThrough, Watch(Arc::clone(&stage), accepts, NONE));
        poll(Pipeline::new(partial(&pool), stages, self::sink(&sink, does)));
        assert_eq!(
            (&stage.lock().unwrap()[..], &sink.lock().unwrap()[..]),
            (&[at_stage][..], &[at_sink][..])
        );
        assert_eq!(pool.ledger().outstanding(), 0);
    }
}

#[test]
fn what_a_stage_leaves_is_done_too() {
    let (pool, seen) = (pool(), Seen::default());
    let tag = TransmitOffloads { vlan_insert: true, ..NONE };
    let stage = Watch(Seen::default(), ALL, tag);
    poll(Pipeline::new(partial(&pool), stage, sink(&seen, TransmitOffloads::NO_TUNNEL)));
    assert_eq!(*seen.lock().unwrap(), [(Checksum::Partial { start: 38, offset: 6 }, 64)]);
}

#[test]
fn another_lane_gets_complete_packets() {
    let (pool, mut burst) = (pool(), Burst::new());
    let (sender, mut receiver) = channel(64).expect("a power of two");
    poll(Pipeline::new(partial(&pool), PassThrough, sender));
    assert_eq!(receiver.receive(&mut burst), 1);
    assert_eq!(burst[0].checksum(), Checksum::Good);
}
