//! A capture in several files: each is whole, the next begins by size or by time, and only the newest are kept.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const INTERFACE_STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;

/// Bytes of a block's type and both of its lengths.
const SHORTEST: usize = 12;
/// Instances write no longer ones: a packet of 256 KiB with a comment.
const LONGEST: usize = 1 << 20;

/// When the next file begins, and which are kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Files that are kept; all if it isn't said.
    pub(super) files: Option<usize>,
    /// Bytes of a file, at most.
    pub(super) size: Option<u64>,
    /// How much later than the first packet of a file the last one may have come.
    pub(super) time: Option<Duration>,
}

/// Files that a stream of pcapng is written to. It begins with the section and its interfaces, which are put at the head of each file.
pub(super) struct Ring {
    name: PathBuf,
    limits: Limits,
    /// What has come of a block that isn't whole.
    unfinished: Vec<u8>,
    head: Vec<u8>,
    current: Current,
    /// Those that are there, the oldest first.
    kept: VecDeque<PathBuf>,
    /// Those that there were.
    count: u64,
}

/// The file that is written to.
struct Current {
    file: BufWriter<File>,
    size: u64,
    /// When its first packet came, in nanoseconds since 1970.
    first: Option<u64>,
}

impl Ring {
    /// Creates the first file, whose name is made of this one.
    pub(super) fn create(name: &Path, limits: Limits) -> io::Result<Self> {
        let path = numbered(name, 1, SystemTime::now());
        let current = Current::create(&path)?;
        Ok(Self {
            name: name.to_owned(),
            limits,
            unfinished: Vec::new(),
            head: Vec::new(),
            current,
            kept: VecDeque::from([path]),
            count: 1,
        })
    }

    /// A whole block.
    fn take(&mut self, block: &[u8]) -> io::Result<()> {
        match word(block, 0) {
            SECTION_HEADER | INTERFACE_DESCRIPTION => {
                self.head.extend_from_slice(block);
                self.current.write(block)
            }
            ENHANCED_PACKET => {
                let time = u64::from(word(block, 12)) << 32 | u64::from(word(block, 16));
                if self.is_full(block.len(), time) {
                    self.begin_next(time)?;
                }
                self.current.first.get_or_insert(time);
                self.current.write(block)
            }
            // Sums of all files stand in the last one.
            INTERFACE_STATISTICS => self.current.write(block),
            kind => Err(strange(format_args!("block of type {kind}"))),
        }
    }

    /// Whether a packet is for the next file. Each has one at least.
    fn is_full(&self, bytes: usize, time: u64) -> bool {
        let Some(first) = self.current.first else { return false };
        let is_too_large = self.limits.size.is_some_and(|most| self.current.size + bytes as u64 > most);
        let is_too_late = self
            .limits
            .time
            .is_some_and(|most| u128::from(time.saturating_sub(first)) >= most.as_nanos().max(1));
        is_too_large || is_too_late
    }

    /// Begins with the next file, the first packet of which came then.
    fn begin_next(&mut self, time: u64) -> io::Result<()> {
        self.current.file.flush()?;
        self.count += 1;
        let path = numbered(&self.name, self.count, UNIX_EPOCH + Duration::from_nanos(time));
        self.current = Current::create(&path)?;
        self.kept.push_back(path);
        self.current.write(&self.head)?;
        while self.limits.files.is_some_and(|most| self.kept.len() > most) {
            let Some(oldest) = self.kept.pop_front() else { break };
            match fs::remove_file(&oldest) {
                // Somebody else has taken it away.
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

impl Write for Ring {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut waiting = std::mem::take(&mut self.unfinished);
        waiting.extend_from_slice(bytes);
        let mut rest = &waiting[..];
        while rest.len() >= SHORTEST {
            let length = word(rest, 4) as usize;
            if !(SHORTEST..=LONGEST).contains(&length) {
                return Err(strange(format_args!("block of {length} bytes")));
            }
            let Some((block, behind)) = rest.split_at_checked(length) else { break };
            self.take(block)?;
            rest = behind;
        }
        self.unfinished.extend_from_slice(rest);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.current.file.flush()
    }
}

impl Current {
    fn create(path: &Path) -> io::Result<Self> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        let file = BufWriter::new(File::create(path).map_err(named)?);
        Ok(Self { file, size: 0, first: None })
    }

    fn write(&mut self, block: &[u8]) -> io::Result<()> {
        self.size += block.len() as u64;
        self.file.write_all(block)
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

fn strange(what: std::fmt::Arguments<'_>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("the instance sends a {what}, which captures don't have"))
}

/// `lost.pcapng` becomes `lost_00001_20261127203400.pcapng`, as dumpcap names files, with the time in UTC.
fn numbered(name: &Path, number: u64, time: SystemTime) -> PathBuf {
    let time: String =
        humantime::format_rfc3339_seconds(time).to_string().chars().filter(char::is_ascii_digit).collect();
    let mut file = name.file_stem().map_or_else(OsString::new, OsString::from);
    file.push(format!("_{number:05}_{time}"));
    if let Some(extension) = name.extension() {
        file.push(".");
        file.push(extension);
    }
    name.with_file_name(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmlane::drivers::pcap::{BlockInterface, BlockPacket, Blocks, PacketDirection};

    /// 2026-11-27 20:34:00 UTC.
    const BEGIN: u64 = 1_795_811_640_000_000_000;
    const SECOND: u64 = 1_000_000_000;

    fn head() -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut blocks = Blocks(&mut bytes);
        blocks.section("test");
        for name in ["west", "east"] {
            blocks.interface(&BlockInterface { name, description: "", snap_length: 0 });
        }
        bytes
    }

    /// A packet of 60 bytes, which all are this one, and its block.
    fn packet(byte: u8, time: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        Blocks(&mut bytes).packet(&BlockPacket {
            interface: u32::from(byte % 2),
            timestamp_nanoseconds: time,
            length: 60,
            data: &[byte; 60],
            direction: PacketDirection::Inbound,
            comment: "",
        });
        bytes
    }

    fn limits(files: Option<usize>, size: Option<u64>, seconds: Option<u64>) -> Limits {
        Limits { files, size, time: seconds.map(Duration::from_secs) }
    }

    /// What files there are after a stream was written in pieces of so many bytes, by name.
    fn written(limits: Limits, stream: &[u8], pieces: usize) -> Vec<(String, Vec<u8>)> {
        let directory = tempfile::tempdir().unwrap();
        let mut ring = Ring::create(&directory.path().join("a.b.pcapng"), limits).unwrap();
        for piece in stream.chunks(pieces) {
            ring.write_all(piece).unwrap();
        }
        ring.flush().unwrap();
        let files = fs::read_dir(directory.path()).unwrap().map(|file| file.unwrap());
        let mut files: Vec<_> = files
            .map(|file| (file.file_name().into_string().unwrap(), fs::read(file.path()).unwrap()))
            .collect();
        files.sort();
        files
    }

    #[test]
    fn each_file_begins_anew_and_only_the_newest_are_kept() {
        let packets: Vec<_> =
            (0..10).map(|number| packet(number, BEGIN + u64::from(number) * SECOND)).collect();
        let mut statistics = Vec::new();
        Blocks(&mut statistics).statistics(0, BEGIN, 10, 0);
        let stream = [head(), packets.concat(), statistics.clone()].concat();
        let three = (head().len() + 3 * packets[0].len()) as u64;
        for (limits, pieces) in [
            (limits(Some(2), Some(three), None), 1),
            (limits(Some(2), Some(three + 1), Some(60)), 7),
            (limits(Some(2), None, Some(3)), 4_096),
        ] {
            let files = written(limits, &stream, pieces);
            let expected = [
                ("a.b_00003_20261127203406.pcapng", [head(), packets[6..9].concat()].concat()),
                (
                    "a.b_00004_20261127203409.pcapng",
                    [&head(), &packets[9], &statistics].map(Vec::as_slice).concat(),
                ),
            ];
            assert_eq!(files, expected.map(|(name, bytes)| (name.to_owned(), bytes)), "{limits:?}");
        }
    }

    #[test]
    fn without_a_number_of_files_all_are_kept_and_the_first_has_the_time_of_now() {
        let stream = [head(), packet(0, BEGIN), packet(1, BEGIN), packet(2, BEGIN)].concat();
        // Smaller than any: a packet each.
        let files = written(limits(None, Some(1), None), &stream, 5);
        let [first, second, third] = &files[..] else { panic!("{files:?}") };
        assert!(first.0.starts_with("a.b_00001_20") && first.0.len() == second.0.len(), "{}", first.0);
        for (number, (_, bytes)) in [first, second, third].into_iter().enumerate() {
            assert_eq!(*bytes, [head(), packet(number as u8, BEGIN)].concat());
        }
    }

    #[test]
    fn a_capture_of_nothing_is_one_file() {
        let files = written(limits(Some(3), Some(100), None), &head(), 64);
        assert_eq!(files.iter().map(|(_, bytes)| bytes.clone()).collect::<Vec<_>>(), [head()]);
    }

    #[test]
    fn what_is_no_capture_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        for (bytes, word) in
            [([0xff; 32], "bytes"), ([12, 0, 0, 0, 12, 0, 0, 0].repeat(4).try_into().unwrap(), "type 12")]
        {
            let mut ring = Ring::create(&directory.path().join("x"), limits(None, Some(1), None)).unwrap();
            let error = ring.write_all(&bytes).unwrap_err();
            assert!(error.to_string().contains(word), "{error}");
        }
        let missing = directory.path().join("missing/x");
        let error = Ring::create(&missing, limits(None, Some(1), None)).err().unwrap();
        assert!(error.to_string().contains("missing/x_00001_"), "{error}");
    }
}
