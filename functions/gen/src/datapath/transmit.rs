//! The lane that sends.

use std::sync::Arc;
use warmlane_lane::{Outputs, Stage, polled_stage};
use warmlane_mem::{Burst, Cursor, Pool};
use warmlane_port::{QueueCountersView, QueueStatus};
use warmlane_sys::clock;

use super::histogram::Histogram;
use super::one_field::PerPacket;
use super::orders::Orders;
use super::pacer::{Pacer, Pattern};
use super::plan::{Plan, StreamState};
use super::random::WyRand;
use super::write::{self, Stamp};

/// What to send, and when.
#[derive(Clone, Debug)]
pub struct TransmitOrder {
    /// The packets.
    pub plan: Arc<Plan>,
    /// Goes into every signature.
    pub trial: u8,
    /// When packets leave.
    pub pattern: Pattern,
    /// Packets a cycle of the cycle counter, for patterns that have a rate.
    pub packets_per_cycle: f64,
    /// Cycles that the trial lasts.
    pub duration: u64,
    /// Packets after which it ends, if it has not before.
    pub count: u64,
    /// Packets that are handed to the port at once, at most.
    pub burst: usize,
    /// Cycles of delay that are made up for; packets that were due longer ago are skipped and counted.
    pub patience: u64,
    /// Where random numbers start.
    pub seed: u64,
}

/// What was sent.
#[derive(Clone, Debug)]
pub struct TransmitReport {
    /// Packets that fell due.
    pub offered: u64,
    /// Packets that the port took and did not drop.
    pub sent: u64,
    /// Packets that were built: those that left, and those that the port had no space for.
    pub built: u64,
    /// Their bytes, without frame check sequence.
    pub bytes: u64,
    /// Packets skipped because the lane was held up.
    pub slipped: u64,
    /// Packets that the port had no space for until the end.
    pub refused: u64,
    /// Packets that the port took and dropped.
    pub dropped: u64,
    /// Times that the pool had no buffer.
    pub starved: u64,
    /// Packets handed to the port, by stream.
    pub streams: Vec<u64>,
    /// Cycles from one packet handed to the port to the next; those handed over together are 0 apart.
    pub gaps: Histogram,
    /// Cycles from the first packet handed over to the last.
    pub span: u64,
    /// Packets that were handed over together with the last: what left in the span is all but these.
    pub last_burst: u64,
    /// Whether it went on until its duration or its count was reached.
    pub is_whole: bool,
    /// Why the port takes nothing more, if it broke or came to its end.
    pub failure: Option<String>,
}

/// Orders for a [`Transmitter`].
pub type TransmitOrders = Orders<TransmitOrder, TransmitReport>;

/// The output that packets leave by.
const OUT: usize = 0;

/// A stage that sends what it is ordered to, by its output `out`, which must lead to a queue. Between orders it idles.
///
/// It transmits by itself, as it has to know when its packets leave.
pub struct Transmitter {
    pool: Pool,
    /// What the queue counts.
    queue: QueueCountersView,
    orders: Arc<TransmitOrders>,
    seen: u64,
    burst: Burst,
    trial: Option<Box<Trial>>,
    stopping: bool,
}

/// The order at hand.
struct Trial {
    plan: Arc<Plan>,
    states: Box<[StreamState]>,
    pacer: Pacer,
    cursor: Cursor,
    /// Place in the plan's schedule.
    turn: usize,
    random: WyRand,
    per_packet: PerPacket,
    number: u8,
    end: u64,
    limit: u64,
    patience: u64,
    sent: u64,
    bytes: u64,
    drops_before: u64,
    /// Packets that the lane came too late for, as the trial ended.
    given_up: u64,
    /// Packets that fell due while the port had no space for those before them, as the trial ended.
    refused: u64,
    starved: u64,
    gaps: Histogram,
    first: Option<u64>,
    last: u64,
    last_burst: u64,
}

impl Transmitter {
    /// Sends packets from `pool`, as `orders` say, to the queue that counts in `queue`.
    pub fn new(pool: Pool, orders: Arc<TransmitOrders>, queue: QueueCountersView) -> Self {
        Self { pool, queue, orders, seen: 0, burst: Burst::new(), trial: None, stopping: false }
    }

    /// Before the clock starts: here, and only here, memory is allocated.
    #[cold]
    fn begin(&mut self, order: TransmitOrder) {
        let limit = order.burst.clamp(1, warmlane_mem::BURST_CAPACITY);
        self.burst = Burst::with_limit(limit);
        let states = order.plan.states();
        let gaps = Histogram::new(7);
        let drops_before = self.queue.drops().total();
        let start = clock::cycles();
        self.trial = Some(Box::new(Trial {
            pacer: Pacer::new(
                order.pattern,
                order.packets_per_cycle,
                start,
                order.patience,
                order.count,
                !order.seed,
            ),
            plan: order.plan,
            states,
            cursor: Cursor::default(),
            turn: 0,
            random: WyRand::new(order.seed),
            per_packet: PerPacket::default(),
            number: order.trial,
            // The packet that falls due as the trial ends is the next one's.
            end: start.saturating_add(order.duration),
            limit: limit as u64,
            patience: order.patience,
            sent: 0,
            bytes: 0,
            drops_before,
            given_up: 0,
            refused: 0,
            starved: 0,
            gaps,
            first: None,
            last: start,
            last_burst: 0,
        }));
    }

    /// Hands in the report. What the port has left to push out then, idle polls give it time for.
    #[cold]
    fn end(&mut self, is_whole: bool, outputs: &mut Outputs<'_>) {
        outputs.flush(OUT);
        let Some(mut trial) = self.trial.take() else { return };
        let left = self.burst.len() as u64;
        let refused = trial.refused + left;
        trial.forget_last(self.burst.len());
        self.burst.clear();
        let dropped = self.queue.drops().total() - trial.drops_before;
        let failure = match outputs.status(OUT) {
            QueueStatus::Running | QueueStatus::Vacant => None,
            QueueStatus::Finished => Some("the port came to its end".to_owned()),
            QueueStatus::Failed(why) => Some(why),
        };
        let report = TransmitReport {
            offered: trial.pacer.given(),
            sent: trial.sent.saturating_sub(dropped),
            built: trial.sent + left,
            bytes: trial.bytes,
            slipped: trial.pacer.slipped() + trial.given_up,
            refused,
            dropped,
            starved: trial.starved,
            streams: trial.states.iter().map(|state| state.sequence).collect(),
            gaps: trial.gaps,
            span: trial.first.map_or(0, |first| trial.last.saturating_sub(first)),
            last_burst: trial.last_burst,
            is_whole,
            failure,
        };
        self.orders.hand_in(self.seen, report);
    }
}

impl Trial {
    /// Appends up to `due` packets to `burst`; says how many.
    #[inline(always)]
    fn build(&mut self, burst: &mut Burst, pool: &Pool, due: u64, now: u64) -> usize {
        let stamp = Stamp::new(self.number, now);
        let plan = &*self.plan;
        if let ([stream], [state]) = (&*plan.streams, &mut *self.states) {
            if let Some(one_field) = &stream.one_field {
                let own = (&mut self.per_packet, stamp);
                let (packets, bytes) = one_field.build(
                    (burst, due as usize),
                    (pool, &plan.frames),
                    state,
                    &mut self.random,
                    own,
                );
                self.bytes += bytes;
                return packets;
            }
            let copied = pool.take_copies(burst, &plan.frames, &mut self.cursor, due as usize);
            self.bytes += copied.bytes;
            let packets = &mut burst[..];
            write::stream(packets, stream, state, &mut self.random, stamp);
            return copied.packets;
        }
        let built = pool.take_burst(burst, due as usize);
        self.bytes += write::turns(burst, plan, &mut self.states, &mut self.turn, &mut self.random, stamp);
        built
    }

    /// The last `count` packets built were not sent.
    fn forget_last(&mut self, count: usize) {
        for back in 1..=count {
            let stream = match self.plan.schedule.len() {
                0 => 0,
                turns => usize::from(self.plan.schedule[(self.turn + turns * back - back) % turns]),
            };
            if let Some(state) = self.states.get_mut(stream) {
                state.sequence = state.sequence.saturating_sub(1);
            }
        }
    }

    /// Notes that `sent` packets left at `now`.
    #[inline(always)]
    fn departed(&mut self, sent: u64, now: u64) {
        self.sent += sent;
        match self.first {
            None => self.first = Some(now),
            Some(_) => self.gaps.record(now.saturating_sub(self.last)),
        }
        self.gaps.record_many(0, sent - 1);
        self.last = now;
        self.last_burst = sent;
    }
}

impl Transmitter {
    /// Sends what is due; says how many packets left.
    #[inline]
    fn transmit(&mut self, now: u64, outputs: &mut Outputs<'_>) -> usize {
        let Some(trial) = &mut self.trial else {
            // A kernel may take only a part of what it is told of at once.
            if self.seen > 0 {
                outputs.flush(OUT);
            }
            return 0;
        };
        let is_stopped = self.orders.is_ended() || self.stopping;
        if self.burst.is_empty() {
            let is_over = now >= trial.end;
            // A lane that was held up across the end still owes what was due before it, as long as it would be made up
            // for at any other time.
            let owes =
                is_over && !trial.pacer.is_endless() && now <= trial.end.saturating_add(trial.patience);
            let last = now.min(trial.end.saturating_sub(1));
            let due = if is_stopped || is_over && !owes { 0 } else { trial.pacer.due(last, trial.limit) };
            if due == 0 {
                if is_stopped || is_over || trial.pacer.left() == 0 {
                    if is_over && !is_stopped {
                        trial.given_up += trial.pacer.give_up(last);
                    }
                    self.end(!is_stopped, outputs);
                } else {
                    self.wait(outputs);
                }
                return 0;
            }
            let built = trial.build(&mut self.burst, &self.pool, due, now) as u64;
            if built < due {
                trial.pacer.give_back(due - built);
                trial.starved += 1;
            }
        } else if is_stopped {
            self.end(false, outputs);
            return 0;
        } else if now > trial.end.saturating_add(trial.patience) {
            trial.refused += trial.pacer.give_up(trial.end.saturating_sub(1));
            self.end(true, outputs);
            return 0;
        }
        if self.burst.is_empty() {
            outputs.flush(OUT);
            return 0;
        }
        let sent = outputs.transmit(OUT, &mut self.burst);
        if sent == 0 {
            self.wait(outputs);
            return 0;
        }
        trial.departed(sent as u64, now);
        sent
    }

    /// Lets the queue get on, and ends the trial if it can't.
    fn wait(&mut self, outputs: &mut Outputs<'_>) {
        outputs.flush(OUT);
        if outputs.status(OUT) != QueueStatus::Running {
            self.end(false, outputs);
        }
    }
}

impl Stage for Transmitter {
    polled_stage!("transmitter", outputs: &["out"]);

    /// There is nothing that comes in.
    fn process(&mut self, _burst: &mut Burst, _outputs: &mut Outputs<'_>) {}

    #[inline]
    fn poll(&mut self, now: u64, _burst: &mut Burst, outputs: &mut Outputs<'_>) -> usize {
        if let Some(order) = self.orders.newer(&mut self.seen) {
            if self.trial.is_some() {
                self.burst.clear();
            }
            self.begin(order);
            self.orders.started(self.seen);
            // Later than the poll began, as memory was allocated.
            return self.transmit(clock::cycles(), outputs);
        }
        self.transmit(now, outputs)
    }

    fn stop(&mut self) {
        self.stopping = true;
    }

    fn is_done(&self) -> bool {
        self.stopping && self.trial.is_none()
    }

    fn finish(&mut self, _burst: &mut Burst, outputs: &mut Outputs<'_>) -> usize {
        self.end(false, outputs);
        0
    }
}
