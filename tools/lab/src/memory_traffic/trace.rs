//! Records which lines the running code touches: the [`workload`](super::workload) under valgrind, whose tool lackey prints each access.

use super::forward_touches::ForwardTouches;
use super::touches::{FrameTouches, Lines, Received, Sent, State};
use super::workload::{BURST, Part, Places, STRIDE, WARM_UP};
use crate::cache_model::LINE_BYTES;
use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{ChildStderr, Command, Stdio};
use std::sync::Arc;
use std::sync::OnceLock;

/// Why nothing was recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// Valgrind isn't there or has ended.
    #[error("valgrind, which records: {0}")]
    Valgrind(#[from] std::io::Error),
    /// The program that is watched has ended otherwise.
    #[error("the workload under valgrind has ended with {status}: {said}")]
    Ended {
        /// How.
        status: std::process::ExitStatus,
        /// Its last words.
        said: String,
    },
    /// A line that should be an access is none.
    #[error(
        "the record's line '{line}' is no access, which is a letter, an address in hexadecimal and 1 to {MOST_BYTES} bytes"
    )]
    NoAccess {
        /// Its beginning.
        line: String,
    },
    /// There are fewer accesses than the work makes.
    #[error("the record is cut off: {frames} frames are in it, of {wanted}")]
    CutOff {
        /// Those that are in it.
        frames: u64,
        /// Those that there should be.
        wanted: u64,
    },
}

/// Who touches a line, of a buffer that was in use.
type Place = (u8, u32);

/// Reads, and whether the line was written.
#[derive(Clone, Copy, Debug, Default)]
struct Touch {
    read: bool,
    written: bool,
}

/// The uses of some buffers, added up.
#[derive(Debug, Default)]
struct Uses {
    open: HashMap<u64, BTreeMap<Place, Touch>>,
    count: u64,
    /// Uses that touched a line, and those that wrote it.
    sums: BTreeMap<Place, (u64, u64)>,
}

impl Uses {
    fn begin(&mut self, buffer: u64, is_counted: bool) {
        let Some(touched) = self.open.insert(buffer, BTreeMap::new()) else { return };
        if !is_counted || touched.is_empty() {
            return;
        }
        self.count += 1;
        for (place, touch) in touched {
            let sum = self.sums.entry(place).or_default();
            sum.0 += 1;
            sum.1 += u64::from(touch.written);
        }
    }

    fn touch(&mut self, buffer: u64, place: Place, written: bool) {
        if let Some(touched) = self.open.get_mut(&buffer) {
            let touch = touched.entry(place).or_default();
            touch.written |= written;
            touch.read |= !written;
        }
    }

    /// The lines that at least half of all uses touch in a part.
    fn lines(&self, part: Part) -> Lines {
        let mut lines = Lines::default();
        for (&(_, line), &(touched, written)) in self.sums.range((part as u8, 0)..=(part as u8, u32::MAX)) {
            if written * 2 >= self.count {
                lines.written.push(line);
            } else if touched * 2 >= self.count {
                lines.read.push(line);
            }
        }
        lines
    }
}

/// Adds up accesses.
#[derive(Debug)]
struct Watcher {
    places: Places,
    part: Part,
    /// Frames received.
    frames: u64,
    received: Uses,
    sent: Uses,
    /// Buffers of what is sent that are free.
    is_free: HashMap<u64, bool>,
    packets: u64,
    /// Of lines elsewhere: the burst that touched it last, in how many bursts it was touched, and in how many it was written.
    others: HashMap<u64, (u64, u64, u64, bool)>,
}

impl Watcher {
    fn new(places: Places) -> Self {
        Self {
            places,
            part: Part::Nothing,
            frames: 0,
            received: Uses::default(),
            sent: Uses::default(),
            is_free: HashMap::new(),
            packets: 0,
            others: HashMap::new(),
        }
    }

    const fn burst(&self) -> u64 {
        self.frames / BURST as u64
    }

    const fn is_watching(&self) -> bool {
        self.frames > (WARM_UP * BURST) as u64
    }

    fn access(&mut self, address: u64, bytes: u64, written: bool) {
        let marks = address.wrapping_sub(self.places.marks) / LINE_BYTES;
        if let Some(part) = Part::ALL.get(marks as usize) {
            self.part = *part;
            return;
        }
        if self.part == Part::Nothing {
            return;
        }
        for line in address / LINE_BYTES..=(address + bytes - 1) / LINE_BYTES {
            self.line(line, written);
        }
    }

    fn line(&mut self, line: u64, written: bool) {
        let address = line * LINE_BYTES;
        let within = |first: u64| {
            let offset = address.wrapping_sub(first);
            (offset < self.places.buffers * STRIDE)
                .then_some((offset / STRIDE, (offset % STRIDE / LINE_BYTES) as u32))
        };
        let part = self.part;
        let watching = self.is_watching();
        if let Some((buffer, line)) = within(self.places.received) {
            if part == Part::Take && written && line == 0 {
                // Several stores may reset a header.
                let is_new = self.received.open.get(&buffer).is_none_or(|touched| {
                    touched.is_empty() || touched.keys().any(|(by, _)| *by != Part::Take as u8)
                });
                if is_new {
                    self.received.begin(buffer, watching);
                    self.frames += 1;
                }
            }
            self.received.touch(buffer, (part as u8, line), written);
        } else if let Some((buffer, line)) = within(self.places.sent) {
            let is_free = self.is_free.entry(buffer).or_insert(true);
            if part == Part::Free {
                *is_free = true;
            } else if *is_free {
                *is_free = false;
                self.packets += u64::from(watching);
                self.sent.begin(buffer, watching);
            }
            self.sent.touch(buffer, (part as u8, line), written);
        } else if watching {
            let burst = self.burst();
            let (last, touched, writing, was_written) =
                self.others.entry(line).or_insert((u64::MAX, 0, 0, false));
            if *last != burst {
                (*last, *was_written) = (burst, false);
                *touched += 1;
            }
            if written && !*was_written {
                *was_written = true;
                *writing += 1;
            }
        }
    }

    fn finish(self) -> Seen {
        let frames = self.frames.saturating_sub(u64::from(WARM_UP * BURST)).max(1);
        let bursts = frames / u64::from(BURST);
        let mut state = State::default();
        for (_, touched, written, _) in self.others.values() {
            if touched * 2 >= bursts {
                state.hot += 1;
            } else {
                state.others += 1;
                state.touched += *touched as f64 / frames as f64;
                state.written += *written as f64 / frames as f64;
            }
        }
        let two_digits = |value: f64| (value * 100.0).round() / 100.0;
        (state.touched, state.written) = (two_digits(state.touched), two_digits(state.written));
        let packets = (self.packets as f64 / frames as f64 * 1e3).round() / 1e3;
        Seen { packets, received: self.received, sent: self.sent, state }
    }
}

/// What was seen of the frames that were watched.
#[derive(Debug)]
pub struct Seen {
    /// Packets made of each frame.
    packets: f64,
    received: Uses,
    sent: Uses,
    state: State,
}

impl Seen {
    /// Of frames on their way through a downstream.
    pub fn downstream(&self, bytes: u32, crc: bool) -> FrameTouches {
        FrameTouches {
            bytes,
            crc,
            packets: self.packets,
            received: Received {
                take: self.received.lines(Part::Take),
                upper: self.received.lines(Part::Upper),
                lower: self.received.lines(Part::Lower),
            },
            sent: Sent { lower: self.sent.lines(Part::Lower), free: self.sent.lines(Part::Free) },
            state: self.state,
        }
    }

    /// Of frames that a lane forwards.
    pub fn forwarded(&self, bytes: u32, ipv6: bool, many: bool) -> ForwardTouches {
        ForwardTouches {
            bytes,
            ipv6,
            many,
            take: self.received.lines(Part::Take),
            lane: self.received.lines(Part::Upper),
            free: self.received.lines(Part::Free),
            state: self.state,
        }
    }
}

/// Bytes that one access may have. The widest are those of XSAVE, some 11 KiB with all states, and no line is to keep the reader for long.
const MOST_BYTES: u64 = 16_384;

/// What is kept of a program's last words, and of a line that is no access.
const MOST_SAID: usize = 4_096;
const MOST_OF_LINE: usize = 80;

/// An access as lackey prints it: a letter, an address in hexadecimal, bytes.
pub(super) fn parse(line: &str) -> Option<(u64, u64, bool)> {
    let (kind, place) = line.trim_start().split_once(' ')?;
    let (address, bytes) = place.split_once(',')?;
    let written = match kind {
        "L" => false,
        "S" | "M" => true,
        _ => return None,
    };
    let bytes: u64 = bytes.parse().ok().filter(|bytes| (1..=MOST_BYTES).contains(bytes))?;
    let address = u64::from_str_radix(address, 16).ok()?;
    // The last byte has an address, too.
    address.checked_add(bytes)?;
    Some((address, bytes, written))
}

/// What a record says.
#[derive(Debug, Default)]
struct Reading {
    watcher: Option<Watcher>,
    /// What valgrind and the program say between the accesses.
    said: String,
    /// The first line that should be an access and is none.
    no_access: Option<String>,
}

impl Reading {
    /// Reads all accesses; those of before `places` is known count for nothing.
    fn of(accesses: impl BufRead, places: &OnceLock<Places>) -> std::io::Result<Self> {
        let mut reading = Self::default();
        for line in accesses.lines() {
            let line = line?;
            if let Some((address, bytes, written)) = parse(&line) {
                if reading.watcher.is_none() {
                    reading.watcher = places.get().map(|places| Watcher::new(*places));
                }
                if let Some(watcher) = &mut reading.watcher {
                    watcher.access(address, bytes, written);
                }
            } else if line.starts_with(' ') {
                reading.no_access.get_or_insert_with(|| line.chars().take(MOST_OF_LINE).collect());
            } else if !line.starts_with("I ") && reading.said.len() < MOST_SAID {
                reading.said.push_str(&line);
                reading.said.push('\n');
            }
        }
        Ok(reading)
    }

    /// The frames' way, if the record is whole.
    fn finish(self) -> Result<Seen, TraceError> {
        if let Some(line) = self.no_access {
            return Err(TraceError::NoAccess { line });
        }
        let (frames, wanted) =
            (self.watcher.as_ref().map_or(0, |watcher| watcher.frames), super::workload::frames());
        match self.watcher {
            Some(watcher) if frames >= wanted => Ok(watcher.finish()),
            _ => Err(TraceError::CutOff { frames, wanted }),
        }
    }
}

/// Records frames' way: `program` with `arguments` is what runs the [downstream](super::workload::run), or the
/// [forwarder](super::forward_workload::run).
///
/// # Errors
/// [`TraceError`].
pub fn record(program: &Path, arguments: &[String]) -> Result<Seen, TraceError> {
    let mut command = Command::new(program);
    command.args(arguments);
    watch(&command, Places::parse, |accesses, places| {
        let reading = Reading::of(accesses, places)?;
        let said = reading.said.clone();
        Ok((reading, said))
    })?
    .0
    .finish()
}

/// Runs a program under lackey, which prints each access, and lets `read` have them. The program's first line says where what is, and `parse`
/// understands it. What `read` gives, and what was said between the accesses.
pub(super) fn watch<P: Copy + Send + Sync + 'static, R>(
    watched: &Command,
    parse: fn(&str) -> Option<P>,
    read: impl FnOnce(BufReader<ChildStderr>, &OnceLock<P>) -> std::io::Result<(R, String)>,
) -> Result<(R, String), TraceError> {
    let mut process = Command::new("valgrind")
        .args(["--tool=lackey", "--trace-mem=yes", "--log-fd=2"])
        .arg(watched.get_program())
        .args(watched.get_args())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let places = Arc::<OnceLock<P>>::default();
    let output = process.stdout.take().ok_or_else(|| std::io::Error::other("no standard output"))?;
    let told = Arc::clone(&places);
    let listener = std::thread::spawn(move || {
        let mut output = BufReader::new(output);
        let mut line = String::new();
        if output.read_line(&mut line).is_ok()
            && let Some(known) = parse(line.trim())
        {
            let _ = told.set(known);
        }
        let _ = output.read_to_end(&mut Vec::new());
    });
    let errors = process.stderr.take().ok_or_else(|| std::io::Error::other("no standard error"))?;
    let reading = read(BufReader::with_capacity(1 << 20, errors), &places);
    let status = process.wait()?;
    let _ = listener.join();
    let (reading, said) = reading?;
    if !status.success() {
        return Err(TraceError::Ended { status, said });
    }
    Ok((reading, said))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fmt::Write as _;

    const PLACES: Places = Places { marks: 0x1000, received: 0x10_0000, sent: 0x200_0000, buffers: 4_096 };

    /// What lackey would print of frames that are taken, looked at and sent.
    fn record(frames: u64) -> String {
        let mut text = String::from("==1== a line of valgrind's\nI  0400,4\n");
        let mut access = |kind: &str, address: u64, bytes: u64| {
            let _ = writeln!(text, " {kind} {address:x},{bytes}");
        };
        let mark = |part: Part| 0x1000 + LINE_BYTES * part as u64;
        for frame in 0..frames {
            let buffer = PLACES.received + frame % 4 * STRIDE;
            access("S", mark(Part::Take), 8);
            access("S", buffer, 32);
            access("S", mark(Part::Nothing), 8);
            access("S", buffer + 192, 64);
            access("S", mark(Part::Upper), 8);
            // Across two lines.
            access("L", buffer + 250, 12);
            access("M", 0x900_0000, 4);
            access("S", 0xa00_0000 + frame % 300 * LINE_BYTES, 4);
            access("S", mark(Part::Lower), 8);
            access("S", PLACES.sent + 64, 64);
            access("S", mark(Part::Free), 8);
            access("L", PLACES.sent, 8);
            access("S", mark(Part::Nothing), 8);
        }
        text
    }

    fn places() -> OnceLock<Places> {
        let places = OnceLock::new();
        places.set(PLACES).unwrap();
        places
    }

    fn read(text: &[u8]) -> Reading {
        Reading::of(text, &places()).unwrap()
    }

    #[test]
    fn accesses_become_lines_by_part_and_place() {
        let reading = read(record(super::super::workload::frames()).as_bytes());
        assert_eq!(reading.said, "==1== a line of valgrind's\n");
        let frame = reading.finish().unwrap().downstream(1_520, false);
        assert_eq!(frame.received.take, Lines { read: vec![], written: vec![0] });
        assert_eq!(frame.received.upper, Lines { read: vec![3, 4], written: vec![] });
        assert_eq!(frame.received.lower, Lines::default());
        assert_eq!(frame.sent.lower, Lines { read: vec![], written: vec![1] });
        assert_eq!(frame.sent.free, Lines { read: vec![0], written: vec![] });
        assert!((frame.packets - 1.0).abs() < 0.01, "{}", frame.packets);
        // One line that each burst writes, and one of each modem.
        assert_eq!((frame.state.hot, frame.state.others), (1, 300));
        assert!((frame.state.touched - 1.0).abs() < 0.05 && (frame.state.written - 1.0).abs() < 0.05);
    }

    #[test]
    fn what_is_cut_off_or_no_access_is_not_taken_for_one() {
        let error = read(record(100).as_bytes()).finish().unwrap_err().to_string();
        assert_eq!(error, "the record is cut off: 100 frames are in it, of 2560");
        let lines = ["", " L", " L 12", " L x,4", " L 12,0", " L 12,x", "I  0400,4", " X 12,4"];
        for line in lines.into_iter().chain([" L 0,16385", " L ffffffffffffffff,1"]) {
            assert_eq!(parse(line), None, "{line}");
        }
        assert_eq!(parse(" M 1f,4"), Some((0x1f, 4, true)));
        assert_eq!(Places::parse("places 1 2 3 4").map(|places| places.sent), Some(3));
        assert_eq!((Places::parse("places 1 2"), Places::parse("hello")), (None, None));
        assert_eq!(Places::parse(&format!("places 1 2 3 {}", u64::MAX)), None);
    }

    /// A line of a record, or something like it.
    fn line() -> impl Strategy<Value = String> {
        let near = prop_oneof![Just(PLACES.marks), Just(PLACES.received), Just(PLACES.sent), any::<u64>()];
        let address = (near, 0_u64..0x2000).prop_map(|(first, offset)| first.wrapping_add(offset));
        let bytes = prop_oneof![0_u64..600, any::<u64>()];
        prop_oneof![
            (any::<char>(), address.clone(), bytes)
                .prop_map(|(kind, address, bytes)| format!(" {kind} {address:x},{bytes}")),
            (prop_oneof![Just('L'), Just('S'), Just('M')], address, 1_u64..=64)
                .prop_map(|(kind, address, bytes)| format!(" {kind} {address:x},{bytes}")),
            any::<String>(),
        ]
    }

    proptest! {
        #[test]
        fn garbage_is_a_named_error(lines in proptest::collection::vec(line(), 0..64)) {
            let error = read(lines.join("\n").as_bytes()).finish().unwrap_err().to_string();
            prop_assert!(error.starts_with("the record"), "{error}");
        }

        #[test]
        fn a_record_with_a_changed_byte_is_read_or_named(place in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let mut text = record(8).into_bytes();
            let place = place.index(text.len());
            text[place] = byte;
            match Reading::of(&*text, &places()) {
                Ok(reading) => {
                    let error = reading.finish().unwrap_err().to_string();
                    prop_assert!(error.starts_with("the record"), "{error}");
                }
                Err(error) => prop_assert_eq!(error.kind(), std::io::ErrorKind::InvalidData),
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn a_record_that_ends_early_is_cut_off_or_has_a_broken_line(place in any::<prop::sample::Index>()) {
            let text = record(super::super::workload::frames());
            // The last frame is in it as soon as its buffer is taken.
            let last = text.rfind(&format!(" S {:x},32", PLACES.received + (super::super::workload::frames() - 1) % 4 * STRIDE)).unwrap();
            let error = read(&text.as_bytes()[..place.index(last)]).finish().unwrap_err();
            prop_assert!(matches!(error, TraceError::CutOff { .. } | TraceError::NoAccess { .. }), "{error}");
        }
    }
}
