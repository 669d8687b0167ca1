//! Several lanes on one CPU.

use crate::control_groups::ControlGroups;
use crate::error::LabError;
use crate::experiment::Experiment;
use crate::paced::{Paced, Shape};
use crate::peer::{Peer, PeerError};
use crate::plot::{Axis, Figure, Marks};
use crate::record::{Claim, Findings};
use crate::setting::Setting;
use crate::statistics::median;
use crate::table::{Cell, Column};
use crate::verdict::{Answer, Prediction};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use warmlane_lane::{IdlePolicy, LaneConfig};
use warmlane_sys::clock::Clock;
use warmlane_sys::{affinity, priority};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "share",
    question: "What do lanes lose that share a CPU, with each other or with somebody else?",
    claim: Claim {
        source: "Liang Cunming, 'Practices for Building Core/Efficient Applications', DPDK Summit China 2015, 'Multi-pThreads per Core'",
        says: "by yielding when nothing was received and with 512 descriptors, four threads on one core reach about 90 % of line rate; shares can be \
               given by weights",
        predictions: &PREDICTIONS,
    },
    method: "The first CPU sends, the second has the lanes, each with a ring of its own and a microsecond of work for each packet. For rates it fills \
             all rings all the time; lanes that find nothing yield at once (as `--cpus` with the same number several times has them do), or, for \
             comparison, never. Weights are those of nice values 0 and 5 (1,024 and 335, 3.06 to 1), or of two control groups, one for each lane (3 to 1), \
             which are made inside the one that this process is in and removed afterwards. Beside a busy loop of the same weight, without control groups \
             or with one for the lane and one for the loop, one lane is sent nine twentieths of what it can do, into a ring of 8,192. DPDK's lanes (peers/share.c) poll \
             rings of 512 and do the same work; their part is that of one lane of DPDK. Ways take turns within each round; figures are medians of \
             the rounds, each of ten times the length.",
    steps: Some(steps),
    run,
};

const PREDICTIONS: [Prediction; 8] = [
    Prediction::at_least(
        "four lanes on one CPU with rings of 512, of one lane's rate",
        "%",
        90.0,
        "a smaller part",
    ),
    Prediction::at_least("the same with rings of 2,048", "%", 90.0, "a smaller part"),
    Prediction::check(
        "rates of two lanes with weights of 3.06 to 1",
        "times",
        [WEIGHTS * 0.9, WEIGHTS * 1.1],
        "another ratio",
    ),
    Prediction::check(
        "rates of two lanes in control groups with weights of 3 to 1",
        "times",
        [GROUP_RATIO * 0.9, GROUP_RATIO * 1.1],
        "another ratio",
    ),
    Prediction::at_least("beside a busy loop, of one lane's rate", "%", 45.0, "a smaller part"),
    Prediction::at_least(
        "beside a busy loop in a control group of the same weight, of one lane's rate",
        "%",
        45.0,
        "a smaller part",
    ),
    Prediction::at_most(
        "packets lost beside a busy loop, at nine twentieths of one lane's rate",
        "%",
        0.0,
        "some",
    ),
    Prediction::at_most(
        "packets lost beside a busy loop in a control group of the same weight, at nine twentieths of one lane's rate",
        "%",
        0.0,
        "some",
    ),
];

/// Of nice values 0 and 5: sched_prio_to_weight of the kernel.
const WEIGHTS: f64 = 1_024.0 / 335.0;
const LOWER: i32 = 5;
/// Of control groups: the first lane's and the second's.
const GROUP_WEIGHTS: [u64; 2] = [3, 1];
const GROUP_RATIO: f64 = GROUP_WEIGHTS[0] as f64 / GROUP_WEIGHTS[1] as f64;
const RINGS: [usize; 3] = [128, 512, 2_048];
const LANES: usize = 4;
/// What a lane does with a packet, in nanoseconds: about what AF_XDP with copies takes.
const WORK: u64 = 1_000;
/// Of what a lane alone can do, what is sent to it beside somebody else.
const BESIDE: f64 = 0.45;
const BESIDE_RING: usize = 8_192;
const ALONE: Way = Way::Lanes { lanes: 1, ring: 2_048, yields: true };
const DPDK_RING: usize = 512;
/// So many lanes of DPDK, and whether they yield. The first is what the others are compared with.
const DPDK: [(usize, bool); 4] = [(1, false), (2, false), (LANES, false), (LANES, true)];
const MOST_ROUNDS: usize = 5;

/// A way to share.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// So many lanes with rings of this size, which yield or don't.
    Lanes { lanes: usize, ring: usize, yields: bool },
    /// Two, of which the second has less weight: by its nice value, or by its control group.
    Weights { groups: bool },
    /// One, beside a loop, sent all it can take, or a rate that it should keep up with. Both may have control groups of their own.
    BesideLoop { groups: bool, paced: bool },
    /// Those of [`DPDK`] with this index.
    Dpdk(usize),
}

impl Way {
    fn name(self) -> String {
        match self {
            Self::Lanes { lanes: 1, .. } => "one lane".to_owned(),
            Self::Lanes { lanes, yields: true, .. } => format!("{lanes} lanes"),
            Self::Lanes { lanes, .. } => format!("{lanes} lanes that never yield"),
            Self::Weights { groups: false } => "2 lanes, 3.06 to 1".to_owned(),
            Self::Weights { groups: true } => "2 lanes in groups, 3 to 1".to_owned(),
            Self::BesideLoop { groups, paced } => {
                let place = if groups { " in groups" } else { "" };
                format!("beside a busy loop{place}{}", if paced { ", at 45 %" } else { "" })
            }
            Self::Dpdk(index) => match DPDK[index] {
                (1, _) => "DPDK, one lane".to_owned(),
                (lanes, true) => format!("DPDK, {lanes} lanes that yield"),
                (lanes, false) => format!("DPDK, {lanes} lanes"),
            },
        }
    }

    /// The one lane that it is compared with.
    const fn alone(self) -> Self {
        match self {
            Self::Dpdk(_) => Self::Dpdk(0),
            _ => ALONE,
        }
    }

    /// What weights its control groups have, if it takes any.
    const fn weights(self) -> Option<&'static [u64]> {
        match self {
            Self::Weights { groups: true } => Some(&GROUP_WEIGHTS),
            Self::BesideLoop { groups: true, .. } => Some(&[1, 1]),
            _ => None,
        }
    }

    const fn ring(self) -> usize {
        match self {
            Self::Lanes { ring, .. } => ring,
            Self::Weights { .. } => 2_048,
            Self::BesideLoop { .. } => BESIDE_RING,
            Self::Dpdk(_) => DPDK_RING,
        }
    }
}

fn ways() -> Vec<Way> {
    let lanes = |lanes, ring, yields| Way::Lanes { lanes, ring, yields };
    let alone = [ALONE];
    let shared = RINGS.into_iter().flat_map(|ring| [lanes(LANES, ring, true), lanes(LANES, ring, false)]);
    let weights = [false, true].map(|groups| Way::Weights { groups });
    let beside = [(false, false), (false, true), (true, false), (true, true)]
        .map(|(groups, paced)| Way::BesideLoop { groups, paced });
    alone
        .into_iter()
        .chain(shared)
        .chain(weights)
        .chain(beside)
        .chain((0..DPDK.len()).map(Way::Dpdk))
        .collect()
}

/// One lane alone goes with each of them, as what they are compared with.
fn steps() -> Vec<String> {
    ways().into_iter().map(Way::name).collect()
}

/// What one way came to.
#[derive(Clone, Copy, Debug)]
struct Shared {
    /// Millions of packets a second.
    rate: f64,
    /// Of the first lane's rate to the second's.
    ratio: f64,
    /// Of what was sent, in percent.
    lost: f64,
}

fn run(setting: &Setting, progress: &mut dyn FnMut(&str)) -> Result<Findings, LabError> {
    affinity::pin_current_thread(setting.cpu)?;
    let cpu = setting.second_cpu()?;
    let (ways, rounds) = (ways(), setting.rounds.clamp(1, MOST_ROUNDS));
    let mut all: Vec<Vec<Shared>> = vec![Vec::new(); ways.len()];
    let is_wanted = |way: Way| {
        let needs = |other: &Way| *other == way || other.alone() == way;
        ways.iter().any(|other| needs(other) && setting.wants(&other.name()))
    };
    let mut peers = Vec::new();
    let mut missing = None;
    for (index, (lanes, yields)) in DPDK.into_iter().enumerate() {
        if !is_wanted(Way::Dpdk(index)) {
            peers.push(None);
            continue;
        }
        let peer = start_peer(lanes, yields, setting.cpu, cpu);
        peers.push(peer.map_err(|reason| missing = Some(reason)).ok());
    }
    if let Some(reason) = missing {
        progress(&format!("SKIPPED: DPDK's lanes: {reason}"));
    }
    let no_groups =
        ControlGroups::new(&[1]).and_then(ControlGroups::remove).err().map(|error| error.to_string());
    if let Some(reason) = &no_groups {
        progress(&format!("SKIPPED: what needs control groups, as none can be made: {reason}"));
    }
    // What one lane can do is known once it was measured.
    let mut alone = 0.0;
    for round in 0..rounds {
        for turn in 0..ways.len() {
            let number = if round == 0 { turn } else { (turn + round) % ways.len() };
            let way = ways[number];
            if !is_wanted(way) || way.weights().is_some() && no_groups.is_some() {
                all[number].push(Shared::NOTHING);
                continue;
            }
            progress(&format!("{}, round {} of {rounds}", way.name(), round + 1));
            let shared = measure(way, alone, setting.length * 10, cpu, &mut peers)?;
            if number == 0 {
                alone = shared.rate;
            }
            all[number].push(shared);
        }
    }
    let found: Vec<Shared> = all
        .iter()
        .map(|of_way| {
            let middle = |figure: fn(&Shared) -> f64| median(&of_way.iter().map(figure).collect::<Vec<_>>());
            Shared {
                rate: middle(|way| way.rate),
                ratio: middle(|way| way.ratio),
                lost: middle(|way| way.lost),
            }
        })
        .collect();
    Ok(findings(&ways, &found, no_groups.as_deref()))
}

impl Shared {
    const NOTHING: Self = Self { rate: f64::NAN, ratio: f64::NAN, lost: f64::NAN };
}

/// A program with so many lanes of DPDK on the second CPU, which the first one sends to.
fn start_peer(lanes: usize, yields: bool, cpu: usize, second: usize) -> Result<Peer, PeerError> {
    let (ring, work) = (DPDK_RING.to_string(), Clock::calibrated().cycles_for(WORK).to_string());
    let mut arguments = vec!["--ring", &ring, "--work", &work];
    if yields {
        arguments.push("--yield");
    }
    Peer::start("share", &format!("0@{cpu},(1-{lanes})@{second}"), &arguments)
}

/// `peers` are those of [`DPDK`] that could be started.
fn measure(
    way: Way,
    alone: f64,
    length: Duration,
    cpu: usize,
    peers: &mut [Option<Peer>],
) -> Result<Shared, LabError> {
    let (count, yields) = match way {
        Way::Lanes { lanes, yields, .. } => (lanes, yields),
        Way::Weights { .. } => (2, true),
        Way::BesideLoop { .. } => (1, true),
        Way::Dpdk(index) => {
            let Some(peer) = &mut peers[index] else { return Ok(Shared::NOTHING) };
            let rate = peer.rate(length).map_err(LabError::setup)?;
            return Ok(Shared { rate: rate / 1e6, ..Shared::NOTHING });
        }
    };
    let config = |number| LaneConfig {
        name: format!("sharing{number}"),
        cpu: Some(cpu),
        idle: IdlePolicy::Spin,
        shares_cpu: yields && count > 1,
        ..LaneConfig::default()
    };
    let cycles_of_work = Clock::calibrated().cycles_for(WORK);
    let paced = Paced::start((0..count).map(config).collect(), Shape { ring: way.ring(), cycles_of_work })?;
    if way == (Way::Weights { groups: false })
        && let Some(second) = paced.threads().get(1)
    {
        priority::set_nice(*second, LOWER).map_err(LabError::setup)?;
    }
    let busy = matches!(way, Way::BesideLoop { .. }).then(|| Busy::start(cpu)).transpose()?;
    let groups = way.weights().map(ControlGroups::new).transpose().map_err(LabError::setup)?;
    if let Some(groups) = &groups {
        for (group, thread) in
            paced.threads().into_iter().chain(busy.as_ref().map(|busy| busy.number)).enumerate()
        {
            groups.add(group, thread).map_err(LabError::setup)?;
        }
    }
    let (ran, receivers) = paced.run(|paced| match way {
        Way::BesideLoop { paced: true, .. } => paced.send_at((alone * BESIDE * 1e6).max(1.0), length),
        _ => fill(paced, count, length),
    })?;
    drop(busy);
    groups.map_or(Ok(()), ControlGroups::remove).map_err(LabError::setup)?;
    let (sent, lost) =
        receivers.iter().fold((0, 0), |(sent, lost), lane| (sent + lane.sent, lost + lane.lost));
    Ok(Shared {
        rate: ran.rate(),
        ratio: match ran.received[..] {
            [first, second] if second > 0 => first as f64 / second as f64,
            _ => f64::NAN,
        },
        lost: if matches!(way, Way::BesideLoop { paced: true, .. }) {
            100.0 * lost as f64 / ((sent + lost) as f64).max(1.0)
        } else {
            f64::NAN
        },
    })
}

/// Keeps all rings full.
fn fill(paced: &mut Paced, lanes: usize, length: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < length {
        for lane in 0..lanes {
            while paced.send(lane, 64) == 64 {}
        }
    }
}

/// A loop on a CPU, until it is dropped.
struct Busy {
    /// Its thread's.
    number: u32,
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Busy {
    fn start(cpu: usize) -> Result<Self, LabError> {
        let stop = Arc::new(AtomicBool::new(false));
        let (seen, (ready, started)) = (Arc::clone(&stop), std::sync::mpsc::sync_channel(1));
        let thread = thread::spawn(move || {
            let pinned = affinity::pin_current_thread(cpu);
            let is_pinned = pinned.is_ok();
            // Who asked waits for it.
            let _ = ready.send(pinned.map(|()| affinity::current_thread()));
            while is_pinned && !seen.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let mut busy = Self { number: 0, stop, thread: Some(thread) };
        busy.number = started.recv().map_err(LabError::setup)??;
        Ok(busy)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // It does nothing that could fail.
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}

/// `no_groups` is why there are no control groups, if so.
fn findings(ways: &[Way], found: &[Shared], no_groups: Option<&str>) -> Findings {
    let part = |way: &Way, shared: &Shared| 100.0 * shared.rate / of(ways, found, way.alone()).rate;
    let rows = ways.iter().zip(found).map(|(way, shared)| {
        vec![
            Cell::from(way.name()),
            way.ring().into(),
            shared.rate.into(),
            part(way, shared).into(),
            shared.ratio.into(),
            shared.lost.into(),
        ]
    });
    let figure = Figure {
        title: "Lanes that share a CPU".to_owned(),
        x: Axis::linear("way and entries of each ring"),
        y: Axis::linear("of one lane's rate, %"),
        marks: Marks::Bars {
            groups: ways.iter().map(|way| format!("{} / {}", way.name(), way.ring())).collect(),
            series: vec![(
                "rate".to_owned(),
                ways.iter().zip(found).map(|(way, shared)| part(way, shared)).collect(),
            )],
        },
    };
    Findings {
        columns: Column::list(
            "way | ring | rate [Mpps] | of one lane's [%] | first to second [times] | lost [%]",
        ),
        rows: rows.collect(),
        figures: vec![figure],
        answers: answers(ways, found, no_groups).to_vec(),
        conclusion: conclusion(ways, found),
    }
}

/// Of a way; nothing if it wasn't measured.
fn of(ways: &[Way], found: &[Shared], way: Way) -> Shared {
    let place = ways.iter().position(|other| *other == way).and_then(|place| found.get(place));
    place.copied().unwrap_or(Shared::NOTHING)
}

fn answers(ways: &[Way], found: &[Shared], no_groups: Option<&str>) -> [Answer; 8] {
    let alone = found.first().map_or(f64::NAN, |shared| shared.rate);
    let part = |way| 100.0 * of(ways, found, way).rate / alone;
    let lanes = |ring| Way::Lanes { lanes: LANES, ring, yields: true };
    let in_groups = |figure: f64| match no_groups {
        Some(reason) => Answer::none(format!("no control groups can be made here: {reason}")),
        None => figure.into(),
    };
    [
        part(lanes(512)).into(),
        part(lanes(2_048)).into(),
        of(ways, found, Way::Weights { groups: false }).ratio.into(),
        in_groups(of(ways, found, Way::Weights { groups: true }).ratio),
        part(Way::BesideLoop { groups: false, paced: false }).into(),
        in_groups(part(Way::BesideLoop { groups: true, paced: false })),
        of(ways, found, Way::BesideLoop { groups: false, paced: true }).lost.into(),
        in_groups(of(ways, found, Way::BesideLoop { groups: true, paced: true }).lost),
    ]
}

fn conclusion(ways: &[Way], found: &[Shared]) -> String {
    let alone = found[0].rate;
    let part = |yields| 100.0 * of(ways, found, Way::Lanes { lanes: LANES, ring: 512, yields }).rate / alone;
    format!(
        "Four lanes on one CPU, each of which leaves it when it finds nothing, come to {:.0} % of what one lane does there; if they never leave it, \
         to {:.0} %, as each polls in vain until its slice is over. The busier the lanes, the less it matters: one that finds work keeps its slice.",
        part(true),
        part(false)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::tests::assert_judged;

    #[test]
    fn turned_figures_refute_the_claim() {
        let judged = |shared_rate: f64, ratio: f64, beside: f64, lost: f64| {
            let of_way = |way: &Way| Shared {
                rate: match way {
                    Way::Lanes { lanes: 1, .. } => 1.0,
                    Way::BesideLoop { .. } => beside,
                    _ => shared_rate,
                },
                ratio,
                lost,
            };
            let ways = ways();
            let found: Vec<Shared> = ways.iter().map(of_way).collect();
            answers(&ways, &found, None)
        };
        assert_judged(&PREDICTIONS, &judged(0.95, 3.0, 0.5, 0.0), &judged(0.3, 1.0, 0.1, 4.0));
    }

    #[test]
    fn without_control_groups_three_answers_are_missing_and_say_why() {
        let ways = ways();
        let found = vec![Shared { rate: 1.0, ratio: 3.0, lost: 0.0 }; ways.len()];
        let answers = answers(&ways, &found, Some("read only"));
        let whys: Vec<&str> = answers.iter().filter_map(|answer| answer.cannot_tell.as_deref()).collect();
        assert_eq!(whys.len(), 3);
        assert!(whys.iter().all(|why| why.contains("read only")), "{whys:?}");
    }

    #[test]
    fn there_is_a_row_for_each_way() {
        let Some(setting) = Setting::tiny_on_two_cpus() else { return };
        setting.try_out(run).assert_rows(ways().len());
    }
}
