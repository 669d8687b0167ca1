//! Pipelines polled by hand: where packets go, when stages are called, what is lost and how it is counted.

mod connections;
mod edges;
mod probes;
mod queues;
mod stages;
mod timings;
mod traces;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use warmlane_lane::{Graph, Outputs, PassThrough, Pipeline, Poll, Stage, Task};
use warmlane_mem::{Burst, Pool, PoolConfig};
use warmlane_port::{QueueCountersView, TransmitQueue};
use warmlane_testkit::queues::{Sink, Source};

fn pool() -> Pool {
    Pool::new(&PoolConfig { buffers: 2_048, ..PoolConfig::default() }).expect("2,048 buffers")
}

/// Gives out packets that carry their number in the first byte.
#[expect(clippy::unnecessary_box_returns, reason = "pipelines take boxed queues")]
fn source(pool: &Pool, count: u64) -> Box<Source> {
    Box::new(Source::new(pool, count, |packet, number| packet.fill(&[number as u8]).expect("fits")))
}

fn sink(each: usize, is_lossless: bool) -> (Box<Sink>, QueueCountersView) {
    let mut sink = Sink::new(each);
    sink.is_lossless = is_lossless;
    let taken = sink.counters();
    (Box::new(sink), taken)
}

/// One that takes a packet at every other call, and may lose the others.
fn slow_sink() -> (Box<Sink>, QueueCountersView) {
    let (mut slow, taken) = sink(1, false);
    slow.every = 2;
    (slow, taken)
}

/// So many packets straight to the sink.
fn straight(pool: &Pool, count: u64, sink: Box<Sink>) -> (Pipeline, Arc<Graph>) {
    let pipeline = Pipeline::new(source(pool, count), PassThrough, sink);
    let graph = Arc::clone(pipeline.graph());
    (pipeline, graph)
}

/// Polls to the end.
fn run(pipeline: &mut Pipeline) -> Result<(), String> {
    let polls = (0..1_000_000).take_while(|_| pipeline.poll() != Poll::Finished).count();
    assert!(polls < 1_000_000, "it never ends");
    pipeline.finish().map_err(|failed| failed.to_string())
}

/// Sends each packet round once more, by its other input, and counts what came by that.
struct Round(Arc<AtomicU64>);

impl Stage for Round {
    fn process(&mut self, burst: &mut Burst, outputs: &mut Outputs<'_>) {
        for packet in burst.drain() {
            assert!(outputs.push(0, packet).is_ok());
        }
    }

    fn output_count(&self) -> usize {
        1
    }

    fn input_count(&self) -> usize {
        2
    }

    fn process_input(&mut self, input: usize, burst: &mut Burst, _outputs: &mut Outputs<'_>) {
        assert_eq!(input, 1);
        self.0.fetch_add(burst.len() as u64, Ordering::Relaxed);
    }
}

/// A stage that makes packets all the time, and doesn't know of stops.
struct Endless(Pool);

impl Stage for Endless {
    fn process(&mut self, _burst: &mut Burst, _outputs: &mut Outputs<'_>) {}

    fn is_polled(&self) -> bool {
        true
    }

    fn poll(&mut self, _now: u64, burst: &mut Burst, _outputs: &mut Outputs<'_>) -> usize {
        self.0.take_burst(burst, 8)
    }
}
