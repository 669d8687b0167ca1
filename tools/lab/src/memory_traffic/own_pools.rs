//! Which lines of their own our pools' lanes take from each other: locks, indices, links, arrays. Recorded from the running code.
//!
//! A small program lets two lanes take and free in turns, and marks who does it ([`run`]); valgrind's tool lackey prints each access
//! of it. Who had a line last, and who has a copy, follows from that. A lane waits for such a line where it loads from it or changes it in place; where it
//! only stores, or where the line beside it comes over in the same burst, it goes on meanwhile.

use super::trace::{TraceError, parse, watch};
use super::workload::{Part, marks};
use crate::cache_model::LINE_BYTES;
use crate::error::LabError;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet, VecDeque};
use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::mpsc::channel;
use warmlane_mem::{Burst, Packet, Pool, PoolConfig, PoolKind};

/// What a lane does with the pool's own lines, for each packet.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LaneTouches {
    /// Lines of the other lane that it waits for.
    pub waited: f64,
    /// Those that it reads without waiting for each.
    pub read: f64,
    /// And those that it writes so, whether it has a copy or not.
    pub written: f64,
    /// Instructions.
    pub instructions: f64,
}

/// Of both lanes of a kind of pool.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct OwnPool {
    /// Its name here.
    pub kind: String,
    /// Buffers in a magazine; 0: lanes keep none.
    pub magazine: u32,
    /// Of the lane that takes.
    pub takes: LaneTouches,
    /// Of the one that frees.
    pub frees: LaneTouches,
}

/// All that were recorded.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct OwnPools {
    /// Of each kind.
    pub pool: Vec<OwnPool>,
}

/// Recorded by `warmlane lab memory-traffic --record-own-pools`.
const RECORDED: &str = include_str!("own_pools.toml");

/// The kinds, by name.
const KINDS: [(&str, PoolKind); 4] = [
    ("ring", PoolKind::Ring),
    ("stack", PoolKind::Stack),
    ("lock-free", PoolKind::LockFreeStack),
    ("depot", PoolKind::Depot),
];

/// Those that are recorded, with their magazines.
pub const RECORDS: [(&str, u32); 7] = [
    ("ring", 256),
    ("ring", 0),
    ("stack", 256),
    ("stack", 0),
    ("lock-free", 256),
    ("lock-free", 0),
    ("depot", 256),
];

impl OwnPools {
    /// Those that came with the program.
    ///
    /// # Errors
    /// [`LabError::Setup`], if they are damaged.
    pub fn recorded() -> Result<Self, LabError> {
        toml::from_str(RECORDED).map_err(LabError::setup)
    }

    /// As a text.
    ///
    /// # Errors
    /// [`LabError::Setup`].
    pub fn to_text(&self) -> Result<String, LabError> {
        toml::to_string(self).map_err(LabError::setup)
    }

    /// What both lanes of a kind touch: the one that takes, and the one that frees.
    pub(crate) fn find(&self, kind: PoolKind, magazine: u32) -> Option<[LaneTouches; 2]> {
        let (name, _) = KINDS.into_iter().find(|(_, known)| *known == kind)?;
        let found = self.pool.iter().find(|pool| pool.kind == name && pool.magazine == magazine)?;
        Some([found.takes, found.frees])
    }
}

const BURST: usize = 32;
const BUFFERS: u32 = 4_096;
/// Packets between the lanes.
const UNDER_WAY: usize = 256;
/// Bursts before the first that is watched, when the depot has found its bound or holds it, and those that are.
const WARM_UP: u64 = 128;
const WATCHED: u64 = 256;

/// Takes and frees in turns, and writes to `output` where what is.
///
/// # Errors
/// [`LabError`].
pub fn run(kind: &str, magazine: u32, mut output: impl Write) -> Result<(), LabError> {
    let unknown = || LabError::setup(format!("no pool '{kind}': known are ring, stack, lock-free, depot"));
    let (_, kind) = KINDS.into_iter().find(|(name, _)| *name == kind).ok_or_else(unknown)?;
    let config = PoolConfig {
        name: "recorded".to_owned(),
        kind,
        magazine: Some(magazine),
        buffers: BUFFERS,
        ..PoolConfig::default()
    };
    let pool = Pool::new(&config).map_err(LabError::setup)?;
    let _lane = pool.attach().map_err(LabError::setup)?;
    std::thread::scope(|scope| {
        let (give, given) = channel::<Vec<Packet>>();
        let (tell, told) = channel::<()>();
        let theirs = &pool;
        scope.spawn(move || {
            let Ok(_lane) = theirs.attach() else { return };
            let mut burst = Burst::new();
            for packets in given {
                for packet in packets {
                    let _ = burst.push(packet);
                }
                Part::Free.begin();
                burst.clear();
                Part::Nothing.begin();
                if tell.send(()).is_err() {
                    return;
                }
            }
        });
        let mut taken = Burst::with_limit(BURST);
        let mut lying = VecDeque::new();
        let refused = || LabError::setup("the second lane can't use the pool");
        for number in 0..=WARM_UP + WATCHED {
            Part::Take.begin();
            let all = pool.take_bulk(&mut taken, BURST);
            Part::Nothing.begin();
            if !all {
                return Err(LabError::setup("the pool has run out of buffers"));
            }
            if number == 0 {
                let address = |packet: &Packet| packet.data().as_ptr().addr() as u64;
                let lowest = taken.iter().map(address).min().unwrap_or(0);
                let (marks, bytes) = (marks(), pool.stride() as u64 * u64::from(BUFFERS));
                // Whatever comes first: no other memory is as near to buffers as they are to each other.
                let first = lowest.saturating_sub(bytes);
                writeln!(output, "places {marks} {first} {}", 2 * bytes).map_err(LabError::setup)?;
                output.flush().map_err(LabError::setup)?;
            }
            lying.push_back(taken.drain().collect::<Vec<_>>());
            if lying.len() * BURST > UNDER_WAY
                && let Some(oldest) = lying.pop_front()
                && (give.send(oldest).is_err() || told.recv().is_err())
            {
                return Err(refused());
            }
        }
        Ok(())
    })
}

/// Where is what, for those who watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Places {
    marks: u64,
    /// Where buffers are, and in how many bytes from there.
    first: u64,
    bytes: u64,
}

impl Places {
    fn parse(line: &str) -> Option<Self> {
        let mut numbers = line.strip_prefix("places ")?.split_whitespace().map(|word| word.parse().ok());
        let mut next = || numbers.next().flatten();
        Some(Self { marks: next()?, first: next()?, bytes: next()? })
    }
}

/// How a line is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Load,
    Store,
    /// By one instruction, as all atomic changes are.
    Change,
}

/// Lines of the pool, and what lanes take of them.
#[derive(Debug)]
struct Watcher {
    places: Places,
    lane: Option<usize>,
    bursts: u64,
    /// Who has a copy of a line: a bit for each lane.
    holders: HashMap<u64, u8>,
    /// Lines that came over in this burst.
    moved: HashSet<u64>,
    sums: [LaneTouches; 2],
}

impl Watcher {
    fn new(places: Places) -> Self {
        Self {
            places,
            lane: None,
            bursts: 0,
            holders: HashMap::new(),
            moved: HashSet::new(),
            sums: Default::default(),
        }
    }

    fn access(&mut self, address: u64, bytes: u64, how: How) {
        let mark = address.wrapping_sub(self.places.marks) / LINE_BYTES;
        if let Some(part) = Part::ALL.get(mark as usize) {
            let lane = match part {
                Part::Take => Some(0),
                Part::Free => Some(1),
                _ => None,
            };
            // An exchange may be printed as a load and a store.
            if lane != self.lane {
                self.bursts += u64::from(lane == Some(0));
                self.moved.clear();
            }
            self.lane = lane;
            return;
        }
        let Some(lane) = self.lane else { return };
        if address.wrapping_sub(self.places.first) < self.places.bytes {
            return;
        }
        for line in address / LINE_BYTES..=(address + bytes - 1) / LINE_BYTES {
            self.line(lane, line, how);
        }
    }

    fn line(&mut self, lane: usize, line: u64, how: How) {
        let (own, other) = (1 << lane, 2 >> lane);
        let holders = self.holders.entry(line).or_insert(own);
        let moves = match how {
            How::Load => *holders & own == 0,
            How::Store | How::Change => *holders & other != 0,
        };
        *holders = if how == How::Load { *holders | own } else { own };
        if !moves {
            return;
        }
        let beside = [line.wrapping_sub(1), line + 1].iter().any(|line| self.moved.contains(line));
        self.moved.insert(line);
        if self.bursts > WARM_UP {
            let sums = &mut self.sums[lane];
            match how {
                How::Load if beside => sums.read += 1.0,
                How::Store => sums.written += 1.0,
                How::Load | How::Change => sums.waited += 1.0,
            }
        }
    }

    fn instruction(&mut self) {
        if let Some(lane) = self.lane
            && self.bursts > WARM_UP
        {
            self.sums[lane].instructions += 1.0;
        }
    }

    fn finish(self, kind: &str, magazine: u32) -> Result<OwnPool, TraceError> {
        let (frames, wanted) = (self.bursts * BURST as u64, (WARM_UP + WATCHED) * BURST as u64);
        if frames < wanted {
            return Err(TraceError::CutOff { frames, wanted });
        }
        let packets = ((self.bursts - WARM_UP) * BURST as u64) as f64;
        let each = |sum: f64| (sum / packets * 1e4).round() / 1e4;
        let [takes, frees] = self.sums.map(|sums| LaneTouches {
            waited: each(sums.waited),
            read: each(sums.read),
            written: each(sums.written),
            instructions: each(sums.instructions),
        });
        Ok(OwnPool { kind: kind.to_owned(), magazine, takes, frees })
    }
}

/// Reads accesses; what else is said is kept, for the case that the program fails.
fn read(accesses: impl BufRead, places: &OnceLock<Places>) -> std::io::Result<(Option<Watcher>, String)> {
    const MOST_SAID: usize = 4_096;
    let (mut watcher, mut said) = (None, String::new());
    for line in accesses.lines() {
        let line = line?;
        if watcher.is_none() {
            watcher = places.get().map(|places| Watcher::new(*places));
        }
        if let Some((address, bytes, written)) = parse(&line) {
            let how = match line.trim_start().as_bytes().first() {
                Some(b'M') => How::Change,
                _ if written => How::Store,
                _ => How::Load,
            };
            if let Some(watcher) = &mut watcher {
                watcher.access(address, bytes, how);
            }
        } else if line.starts_with("I ") {
            if let Some(watcher) = &mut watcher {
                watcher.instruction();
            }
        } else if !line.starts_with(' ') && said.len() < MOST_SAID {
            said.push_str(&line);
            said.push('\n');
        }
    }
    Ok((watcher, said))
}

/// Records what lanes of a kind of pool do; `program` is what runs [`run`], by these words.
///
/// # Errors
/// [`TraceError`].
pub fn record(program: &Path, words: &[String], kind: &str, magazine: u32) -> Result<OwnPool, TraceError> {
    let mut command = std::process::Command::new(program);
    command.args(words);
    let (watcher, _) = watch(&command, Places::parse, read)?;
    let cut_off = TraceError::CutOff { frames: 0, wanted: (WARM_UP + WATCHED) * BURST as u64 };
    watcher.ok_or(cut_off)?.finish(kind, magazine)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write as _;

    const PLACES: Places = Places { marks: 0x1000, first: 0x100_0000, bytes: 0x10_0000 };

    /// A pool with a lock and an array of which both lanes use the same four lines in each burst, a buffer, and what lies outside of the marks.
    fn trace(bursts: u64) -> String {
        let mut text = String::from("==1== a line of valgrind's\n");
        for _ in 0..bursts {
            for part in [Part::Take, Part::Free] {
                let mark = PLACES.marks + LINE_BYTES * part as u64;
                let nothing = PLACES.marks;
                let _ = writeln!(text, " L {mark:x},8\n S {mark:x},8\nI  400,4\n M 9000,4");
                let how = if part == Part::Take { 'L' } else { 'S' };
                for line in 0..4 {
                    let _ = writeln!(text, " {how} {:x},8", 0x2_0000 + line * LINE_BYTES);
                }
                let _ = writeln!(text, " S 1000040,8\n S {nothing:x},8\n S 9000,4\n S 7000,4");
            }
        }
        text
    }

    fn watched(bursts: u64) -> Result<OwnPool, TraceError> {
        let places = OnceLock::from(PLACES);
        let (watcher, said) = read(trace(bursts).as_bytes(), &places).unwrap();
        assert!(said.contains("valgrind's"), "{said}");
        watcher.unwrap().finish("stack", 0)
    }

    #[test]
    fn what_comes_from_the_other_lane_is_waited_for_streamed_or_posted() {
        let OwnPool { takes, frees, .. } = watched(WARM_UP + WATCHED).unwrap();
        let a_burst = |touches: LaneTouches| {
            [touches.waited, touches.read, touches.written, touches.instructions]
                .map(|each| each * BURST as f64)
        };
        for (seen, wanted) in a_burst(takes).into_iter().zip([2.0, 3.0, 0.0, 1.0]) {
            assert!((seen - wanted).abs() < 0.01, "{takes:?}");
        }
        for (seen, wanted) in a_burst(frees).into_iter().zip([1.0, 0.0, 4.0, 1.0]) {
            assert!((seen - wanted).abs() < 0.01, "{frees:?}");
        }
        let error = watched(10).unwrap_err().to_string();
        assert_eq!(error, "the record is cut off: 320 frames are in it, of 12288");
        assert_eq!(Places::parse("places 1 2 3"), Some(Places { marks: 1, first: 2, bytes: 3 }));
        assert_eq!((Places::parse("places 1 2"), Places::parse("hello")), (None, None));
    }

    #[test]
    fn each_kind_of_pool_order_was_recorded() {
        let recorded = OwnPools::recorded().unwrap();
        for (name, magazine) in RECORDS {
            let (_, kind) = KINDS.into_iter().find(|(known, _)| *known == name).unwrap();
            assert!(recorded.find(kind, magazine).is_some(), "{name} {magazine}");
        }
        // One lock for each burst, and none where lanes keep magazines.
        let waits = |magazine| {
            let lanes = recorded.find(PoolKind::Stack, magazine).unwrap();
            lanes.map(|lane| lane.waited * BURST as f64)
        };
        assert!(waits(0).iter().all(|waits| *waits >= 2.0), "{:?}", waits(0));
        assert!(waits(256).iter().zip(waits(0)).all(|(cached, not)| *cached < not / 2.0), "{:?}", waits(256));
        assert_eq!(recorded.find(PoolKind::Stack, 64), None);
        assert_eq!(toml::from_str::<OwnPools>(&recorded.to_text().unwrap()).unwrap(), recorded);
        assert!(run("heap", 0, std::io::sink()).unwrap_err().to_string().contains("no pool 'heap'"));
    }

    #[test]
    fn the_program_tells_where_what_is() {
        let mut output = Vec::new();
        run("depot", 256, &mut output).unwrap();
        let places = Places::parse(std::str::from_utf8(&output).unwrap().trim()).unwrap();
        assert!(places.bytes > u64::from(BUFFERS) * 2_000, "{places:?}");
    }
}
