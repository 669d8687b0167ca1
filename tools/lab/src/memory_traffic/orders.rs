//! In which order pools hand out their buffers: asked of the pools themselves.
//!
//! The way of buffers is that of a downstream: a lane takes bursts for the card's receive ring; the other lane takes a buffer for each packet
//! to the remote PHY, frees those that were received, and frees what is sent once the card's transmit ring is full. Each step is made
//! when the one before it is done, so that the order is the same each time. What is received and what is sent have a pool each, as in the
//! downstream that the published figures are from.

use super::machines::Model;
use crate::error::LabError;
use std::collections::VecDeque;
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use warmlane_mem::{Burst, Packet, Pool, PoolConfig, PoolKind};

/// Packets of a burst.
pub const BURST: usize = 32;

/// Bursts in which as many wait between the lanes as should on average; `peers/pool_order.c` has the same.
const ROUND: usize = 16;

/// How many buffers are where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UnderWay {
    /// In the card's receive ring.
    pub posted: usize,
    /// Between the lanes, on average: they come and go in whole bursts, so that of 80 there are 64 for half of the time, and 96 for the other.
    pub queued: usize,
    /// In the card's transmit ring.
    pub held: usize,
    /// A time with more between the lanes.
    pub peak: Option<Peak>,
}

/// A time in which the lower MAC's lane falls behind: it stands still until so many frames more wait for it, keeps up for as long, and then does
/// two bursts for each that arrives until no more wait than before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peak {
    /// Bursts that are received before it.
    pub after: usize,
    /// Bursts that wait more.
    pub bursts: usize,
}

impl Peak {
    /// Bursts that wait more once so many and one have been received.
    const fn waiting(self, step: usize) -> usize {
        let Self { after, bursts } = self;
        let since = (step + 1).saturating_sub(after);
        if since <= bursts {
            since
        } else if since <= 2 * bursts {
            bursts
        } else {
            (3 * bursts).saturating_sub(since)
        }
    }

    /// Bursts that are received until it is over.
    pub const fn until(self) -> usize {
        self.after + 3 * self.bursts
    }
}

impl UnderWay {
    /// So many together, in whole bursts: half of those that don't wait between the lanes in each ring, and an odd burst in the receive ring.
    pub fn of(buffers: usize, queued: usize) -> Self {
        let queued = queued.next_multiple_of(BURST);
        let bursts = buffers.saturating_sub(queued).div_ceil(BURST).max(2);
        let held = bursts / 2;
        Self { posted: (bursts - held) * BURST, queued, held: held * BURST, peak: None }
    }

    /// Bursts between the lanes once burst `step` is taken, but for those of a peak.
    const fn waiting(self, step: usize) -> usize {
        let one_more = step % ROUND < self.queued % BURST * ROUND / BURST;
        self.queued / BURST + if one_more { 1 } else { 0 }
    }

    /// Bursts that the lower MAC's lane has had once burst `step` is taken for the receive ring, counted from 0.
    pub fn through(self, step: usize) -> usize {
        let behind =
            self.posted / BURST + self.waiting(step) + self.peak.map_or(0, |peak| peak.waiting(step));
        (step + 1).saturating_sub(behind)
    }
}

/// Whose pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// This project's, of a kind, with magazines of so many, and the hot set of a depot.
    Ours(PoolKind, u32, u32),
    /// DPDK's, by the name of its operations, with caches of so many.
    Dpdk(&'static str, u32),
}

/// Buffers in the order in which they were used, as bytes from their pool's first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// Each buffer that a frame was received into.
    pub received: Vec<u64>,
    /// Each buffer that a packet to the remote PHY was made in.
    pub sent: Vec<u64>,
    /// Lines of a buffer's header.
    pub header_lines: u64,
}

/// How many packets to the remote PHY there are once so many frames are framed.
pub fn sent_after(frames: usize, per_thousand: usize) -> usize {
    frames * per_thousand / 1_000
}

impl Kind {
    /// Whether it goes through all buffers, one after the other.
    pub fn is_ring(self) -> bool {
        match self {
            Self::Ours(kind, ..) => kind == PoolKind::Ring,
            Self::Dpdk(operations, _) => operations.starts_with("ring"),
        }
    }

    /// Has so many frames go round in a pool of so many buffers, laid out for a machine.
    ///
    /// # Errors
    /// [`LabError::Setup`], if the pool can't be had or runs out of buffers.
    pub fn order(
        self,
        model: &Model,
        buffers: u32,
        under_way: UnderWay,
        frames: usize,
        per_thousand: usize,
    ) -> Result<Order, LabError> {
        match self {
            Self::Ours(kind, magazine, hot) => {
                let config = |name: &str| {
                    model.lay_out(PoolConfig {
                        name: name.to_owned(),
                        buffers,
                        kind,
                        magazine: Some(magazine),
                        hot_set: (hot > 0).then_some(hot),
                        ..PoolConfig::default()
                    })
                };
                let pool = |name| Pool::new(&config(name)).map_err(LabError::setup);
                ours(&pool("received")?, &pool("sent")?, under_way, frames, per_thousand)
            }
            Self::Dpdk(..) if under_way.peak.is_some() => {
                Err(LabError::setup("DPDK's pools aren't asked for a peak: compare ring, stack and depot"))
            }
            Self::Dpdk(operations, cache) => {
                dpdk(operations, cache, buffers, under_way, frames, per_thousand)
            }
        }
    }
}

fn empty() -> LabError {
    LabError::setup("the pool has run out of buffers: give it more")
}

/// The lane that takes.
fn ours(
    pool: &Pool,
    sent: &Pool,
    under_way: UnderWay,
    frames: usize,
    per_thousand: usize,
) -> Result<Order, LabError> {
    let stride = pool.stride() as u64;
    let offset = |packet: &Packet| u64::from(packet.id().index()) * stride;
    let mut order = Order { header_lines: 1, ..Order::default() };
    std::thread::scope(|scope| {
        let (give, theirs) = channel::<Vec<Packet>>();
        let (tell, told) = channel::<Option<Vec<u64>>>();
        scope.spawn(move || lower_lane([pool, sent], under_way.held, per_thousand, &theirs, &tell));
        let _lane = pool.attach().map_err(LabError::setup)?;
        let mut waiting = VecDeque::new();
        let mut burst = Burst::with_limit(BURST);
        let (mut step, mut given) = (0, 0);
        while given < frames {
            if pool.take_burst(&mut burst, BURST) < BURST {
                return Err(empty());
            }
            order.received.extend(burst.iter().map(offset));
            waiting.extend(burst.drain());
            while given < under_way.through(step) * BURST {
                let through = waiting.drain(..BURST).collect();
                given += BURST;
                let sent = give.send(through).ok().and_then(|()| told.recv().ok()).flatten();
                order.sent.extend(sent.ok_or_else(empty)?);
            }
            step += 1;
        }
        Ok(order)
    })
}

/// The lane that frees.
fn lower_lane(
    [received_from, pool]: [&Pool; 2],
    held: usize,
    per_thousand: usize,
    received: &Receiver<Vec<Packet>>,
    tell: &Sender<Option<Vec<u64>>>,
) {
    let (Ok(_lane), Ok(_other_lane)) = (pool.attach(), received_from.attach()) else { return };
    let stride = pool.stride() as u64;
    let (mut frames, mut packets) = (0, 0);
    let mut ring: VecDeque<Packet> = VecDeque::new();
    for burst in received {
        frames += burst.len();
        let mut sent = Vec::new();
        while packets < sent_after(frames, per_thousand) {
            let Some(packet) = pool.take() else { break };
            sent.push(u64::from(packet.id().index()) * stride);
            ring.push_back(packet);
            packets += 1;
        }
        let is_whole = packets == sent_after(frames, per_thousand);
        free(burst);
        while ring.len() > held {
            free(ring.drain(..BURST.min(ring.len())).collect());
        }
        if tell.send(is_whole.then_some(sent)).is_err() {
            return;
        }
    }
}

/// Frees packets as a burst, in their order.
fn free(packets: Vec<Packet>) {
    let mut burst = Burst::with_limit(BURST);
    for packet in packets {
        // A full burst gives the packet back, which is freed by itself.
        let _ = burst.push(packet);
    }
}

/// What DPDK is started with: it needs no privilege, and no huge pages.
pub(super) const EAL: [&str; 10] =
    ["--no-pci", "--no-telemetry", "--no-huge", "--no-shconf", "-l", "0", "-m", "512", "--log-level=4", "--"];

/// The same with DPDK's pools, by `peers/pool_order`.
fn dpdk(
    operations: &str,
    cache: u32,
    buffers: u32,
    under_way: UnderWay,
    frames: usize,
    per_thousand: usize,
) -> Result<Order, LabError> {
    let file = crate::peer::file("pool_order").map_err(LabError::setup)?;
    let text = [
        ("--kind", operations.to_owned()),
        ("--cache", cache.to_string()),
        ("--buffers", buffers.to_string()),
        ("--posted", under_way.posted.to_string()),
        ("--queued", under_way.queued.to_string()),
        ("--held", under_way.held.to_string()),
        ("--frames", frames.to_string()),
        ("--sent-per-thousand", per_thousand.to_string()),
    ];
    let output = Command::new(&file)
        .args(EAL)
        .args(text.iter().flat_map(|(flag, value)| [*flag, value.as_str()]))
        .output()
        .map_err(LabError::setup)?;
    if !output.status.success() {
        return Err(LabError::setup(format!(
            "{}: {}",
            file.display(),
            String::from_utf8_lossy(&output.stderr).trim()
        )));
    }
    parse(&String::from_utf8_lossy(&output.stdout))
}

/// What the program says: lines of `r OFFSET` and `s OFFSET`, and at last `end`.
fn parse(text: &str) -> Result<Order, LabError> {
    let mut order = Order { header_lines: 2, ..Order::default() };
    let mut has_ended = false;
    for line in text.lines() {
        match line.split_once(' ').map(|(kind, offset)| (kind, offset.parse())) {
            Some(("r", Ok(offset))) => order.received.push(offset),
            Some(("s", Ok(offset))) => order.sent.push(offset),
            None if line == "end" => has_ended = true,
            _ => return Err(LabError::setup(format!("an order of buffers has no line like '{line}'"))),
        }
    }
    if has_ended { Ok(order) } else { Err(LabError::setup("the order of buffers is cut off")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const UNDER_WAY: UnderWay = UnderWay { posted: 64, queued: 32, held: 64, peak: None };

    fn model() -> Model {
        Model::find("xeon-gold-6148").unwrap()
    }

    fn order(kind: PoolKind, magazine: u32, hot: u32) -> Order {
        Kind::Ours(kind, magazine, hot).order(&model(), 4_096, UNDER_WAY, 8_192, 1_050).unwrap()
    }

    /// Different buffers among the last 2,048 uses.
    fn different(order: &Order) -> usize {
        order.received[order.received.len() - 2_048..].iter().collect::<HashSet<_>>().len()
    }

    #[test]
    fn a_ring_uses_all_its_buffers_a_stack_few_and_a_depot_its_hot_set() {
        let (ring, stack) = (order(PoolKind::Ring, 256, 0), order(PoolKind::Stack, 0, 0));
        assert!(different(&ring) > 2_000, "{}", different(&ring));
        assert!(different(&stack) < 400, "{}", different(&stack));
        let depot = different(&order(PoolKind::Depot, 32, 128));
        assert!(depot < 700, "{depot}");
        assert_eq!(stack.sent.len(), sent_after(8_192, 1_050));
    }

    #[test]
    fn no_buffer_is_handed_out_while_it_is_in_use() {
        let Order { received, .. } = order(PoolKind::Stack, 0, 0);
        let in_use = UNDER_WAY.posted + UNDER_WAY.queued;
        for frames in received.windows(in_use) {
            assert_eq!(frames.iter().collect::<HashSet<_>>().len(), in_use);
        }
    }

    #[test]
    fn what_waits_comes_and_goes_in_bursts_and_is_right_on_average() {
        for queued in [64, 70, 80, 90] {
            let under_way = UnderWay { queued, ..UNDER_WAY };
            // In each step a burst is taken; the lower MAC's lane does none, one or two.
            let in_queue = |step: usize| step + 1 - under_way.posted / BURST - under_way.through(step);
            let all: Vec<_> = (16..16 + 16 * 4).map(in_queue).collect();
            assert!(all.iter().all(|bursts| [2, 3].contains(bursts)), "{queued}: {all:?}");
            let average = all.iter().sum::<usize>() as f64 * BURST as f64 / all.len() as f64;
            assert!((average - queued as f64).abs() <= 2.0, "{queued}: {average}");
            let kind = Kind::Ours(PoolKind::Stack, 0, 0);
            let order = kind.order(&model(), 4_096, under_way, 4_096, 1_000).unwrap();
            let different = order.received[2_048..].iter().collect::<HashSet<_>>().len();
            assert_eq!(different, under_way.posted + queued.next_multiple_of(BURST) + BURST, "{queued}");
        }
    }

    #[test]
    fn rings_share_what_is_under_way_in_whole_bursts() {
        let of = |buffers| {
            let UnderWay { posted, queued, held, .. } = UnderWay::of(buffers, 64);
            [posted, queued, held]
        };
        assert_eq!([of(640), of(672), of(641)], [[288, 64, 288], [320, 64, 288], [320, 64, 288]]);
        assert_eq!(of(0), [32, 64, 32]);
    }

    #[test]
    fn a_peak_comes_and_goes_a_burst_at_a_time() {
        let peak = Peak { after: 10, bursts: 3 };
        let waiting = |step| peak.waiting(step);
        let expected = [0, 1, 2, 3, 3, 3, 3, 2, 1, 0, 0];
        assert_eq!((9..20).map(waiting).collect::<Vec<_>>(), expected);
        assert_eq!(peak.until(), 19);
        let with_peak = UnderWay { peak: Some(peak), ..UNDER_WAY };
        // Three bursts are in the card's ring or wait in any case.
        assert_eq!([2, 3, 9, 12, 15, 18, 19].map(|step| with_peak.through(step)), [0, 1, 7, 7, 10, 16, 17]);
        let kind = Kind::Ours(PoolKind::Stack, 0, 0);
        let order = kind.order(&model(), 4_096, with_peak, 1_024, 1_050).unwrap();
        assert_eq!(order.sent.len(), sent_after(1_024, 1_050));
        let most = order.received[..16 * BURST].iter().collect::<HashSet<_>>().len();
        assert!(most >= UNDER_WAY.posted + UNDER_WAY.queued + 3 * BURST, "{most}");
        let error = Kind::Dpdk("stack", 0).order(&model(), 4_096, with_peak, 1_024, 1_050).unwrap_err();
        assert!(error.to_string().contains("aren't asked for a peak"), "{error}");
    }

    #[test]
    fn what_is_no_order_is_named() {
        let text = "r 0\nr 2240\ns 4480\nend\n";
        let order = parse(text).unwrap();
        assert_eq!((order.received, order.sent), (vec![0, 2_240], vec![4_480]));
        let error = |text| parse(text).unwrap_err().to_string();
        assert!(error("r 0\ns 64\n").contains("cut off"));
        assert!(error("r x\nend\n").contains("'r x'"));
    }

    #[test]
    fn a_pool_that_is_too_small_says_so() {
        let error =
            Kind::Ours(PoolKind::Stack, 0, 0).order(&model(), 96, UNDER_WAY, 8_192, 1_050).unwrap_err();
        assert!(error.to_string().contains("run out of buffers"), "{error}");
    }
}
