//! `warmlane capture`

mod ring;

use crate::instances::InstanceFlags;
use crate::messages;
use anyhow::{Context as _, ensure};
use ring::{Limits, Ring};
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, ErrorKind, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use warmlane::assembly::Signals;
use warmlane::assembly::capture::{CaptureRequest, Captured, Capturing, Filter, Seen, WHOLE_LANE};

/// Capture packets of a running instance, also those that the kernel never sees, and those that are dropped.
///
/// Writes pcapng. Each packet has its port as interface and its direction; one that was dropped has the reason as a comment.
/// Packets are copied, so nothing waits for this: what comes too fast is missed, and counted in the interfaces' statistics at the
/// end. Goes on until --count, Ctrl-C, or the end of the instance.
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    instance: InstanceFlags,
    /// Where to: a file, or `-` for standard output.
    #[arg(long, short, value_name = "FILE")]
    write: PathBuf,
    /// Keep only so many files, the newest: the next begins when one has as much as --file-size or --file-seconds say. FILE is then the name
    /// that theirs are made of: NAME.pcapng becomes NAME_00001_20261127203400.pcapng, with number and time (UTC).
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    files: Option<u32>,
    /// Begin with the next file before one gets larger than this: bytes, or kB, MB, GB, KiB, MiB, GiB.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    file_size: Option<u64>,
    /// Begin with the next file when a packet comes so many seconds after the first of one.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    file_seconds: Option<u64>,
    /// Only at these ports.
    #[arg(long = "port", value_name = "PORT,...", value_delimiter = ',')]
    ports: Vec<String>,
    /// Only packets that come in, leave, or are dropped; or those that go from stage to stage.
    #[arg(long, value_enum, value_name = "WHAT,...", value_delimiter = ',')]
    see: Vec<SeenName>,
    /// What goes over these edges between stages, as `forwarder:port0` or, where a stage passes packets on without a named output, `vxlan`.
    #[arg(long = "edge", value_name = "EDGE,...", value_delimiter = ',')]
    edges: Vec<String>,
    /// What comes to these stages and goes from them.
    #[arg(long = "stage", value_name = "STAGE,...", value_delimiter = ',')]
    stages: Vec<String>,
    /// Only packets that are dropped for these reasons, as `warmlane stats` names them.
    #[arg(long = "reason", value_name = "REASON,...", value_delimiter = ',')]
    reasons: Vec<String>,
    /// Only these: `host`, `net`, `port`, `portrange`, `proto`, `ether`, `vlan`, `less`, `greater`, `len` and protocols, with
    /// `and`, `or`, `not`, as in pcap-filter(7).
    #[arg(long, value_name = "FILTER", default_value = "")]
    filter: String,
    /// Bytes of each packet at most.
    #[arg(long, value_name = "BYTES", default_value_t = 262_144, value_parser = clap::value_parser!(u32).range(1..=262_144))]
    snap: u32,
    /// One packet in so many, whatever it is; the filter chooses among these.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    one_in: u32,
    /// End after so many packets.
    #[arg(long, short, value_name = "PACKETS", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum SeenName {
    /// What comes in.
    In,
    /// What leaves.
    Out,
    /// What is dropped.
    Drop,
    /// What goes from stage to stage.
    Edge,
}

const EXAMPLES: &str = "\
Examples:
  Look at what a router drops, live:
    warmlane capture router --see drop -w - | wireshark -k -i -

  Ten thousand DNS packets at one port:
    warmlane capture router --port eth0 --filter 'udp port 53' \\
      --count 10000 -w dns.pcapng

  The first 96 bytes of one packet in a thousand:
    warmlane capture router --one-in 1000 --snap 96 -w some.pcapng

  What was dropped in about the last hour, in files of ten minutes:
    warmlane capture router --see drop --files 7 --file-seconds 600 \\
      -w lost.pcapng";

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    // A mistake in it is told before anybody is asked.
    arguments.filter.parse::<Filter>()?;
    arguments.check()?;
    let request = CaptureRequest {
        ports: arguments.ports.clone(),
        see: arguments.see.iter().map(|seen| seen.seen()).collect(),
        reasons: arguments.reasons.clone(),
        edges: arguments.edges.clone(),
        stages: arguments.stages.clone(),
        filter: arguments.filter.clone(),
        snap_length: arguments.snap,
        one_in: arguments.one_in,
        count: arguments.count,
        ..CaptureRequest::default()
    };
    let signals = Signals::catch()?;
    let mut client = arguments.instance.connect()?;
    let capturing: Capturing = client.ask(&request)?;
    let mut output = arguments.open()?;
    for Captured { lane, port, seen } in &capturing.points {
        let place = if port == WHOLE_LANE { lane.clone() } else { format!("{port} of {lane}") };
        messages::note(format_args!("capturing at {place}: {}", seen_word(*seen)));
    }
    let stream = client.into_stream();
    copy(stream, &mut *output, &signals)
        .with_context(|| format!("the capture can't be written to {}", arguments.write.display()))
}

impl SeenName {
    const fn seen(self) -> Seen {
        match self {
            Self::In => Seen::In,
            Self::Out => Seen::Out,
            Self::Drop => Seen::Drop,
            Self::Edge => Seen::Edge,
        }
    }
}

const fn seen_word(seen: Seen) -> &'static str {
    match seen {
        Seen::In => "what comes in",
        Seen::Out => "what leaves",
        Seen::Drop => "what is dropped",
        Seen::Edge => "what goes from stage to stage",
    }
}

impl Arguments {
    const fn is_in_several_files(&self) -> bool {
        self.file_size.is_some() || self.file_seconds.is_some()
    }

    fn check(&self) -> anyhow::Result<()> {
        ensure!(
            self.files.is_none() || self.is_in_several_files(),
            "--files needs --file-size or --file-seconds: when the next file is to begin"
        );
        ensure!(
            !self.is_in_several_files() || self.write != Path::new("-"),
            "standard output is no name for several files: say one with -w, or leave out --file-size and --file-seconds"
        );
        ensure!(
            self.reasons.is_empty() || self.see.is_empty() || self.see.contains(&SeenName::Drop),
            "--reason is about packets that are dropped: add drop to --see"
        );
        Ok(())
    }

    fn open(&self) -> anyhow::Result<Box<dyn Write>> {
        let path = &self.write;
        if path == Path::new("-") {
            return Ok(Box::new(io::stdout().lock()));
        }
        if self.is_in_several_files() {
            let limits = Limits {
                files: self.files.map(|files| files as usize),
                size: self.file_size,
                time: self.file_seconds.map(Duration::from_secs),
            };
            return Ok(Box::new(Ring::create(path, limits).context("cannot create the first file")?));
        }
        let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Box::new(file))
    }
}

/// A number of bytes: `1000`, `64KiB`, `100MB`.
fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let factor = match unit.trim_start() {
        "" | "B" => 1,
        "k" | "kB" => 1_000,
        "M" | "MB" => 1_000_000,
        "G" | "GB" => 1_000_000_000,
        "Ki" | "KiB" => 1 << 10,
        "Mi" | "MiB" => 1 << 20,
        "Gi" | "GiB" => 1 << 30,
        _ => return Err("units are kB, MB, GB, KiB, MiB, GiB".to_owned()),
    };
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    bytes.filter(|bytes| *bytes > 0).ok_or_else(|| "a number of bytes is wanted, such as 100MB".to_owned())
}

/// Copies until the instance ends the stream. On Ctrl-C it is told that there has been enough, and writes the statistics.
fn copy(mut stream: BufReader<UnixStream>, output: &mut dyn Write, signals: &Signals) -> io::Result<()> {
    stream.get_ref().set_read_timeout(Some(Duration::from_millis(200)))?;
    let mut has_told = false;
    loop {
        if signals.is_stopped() && !has_told {
            stream.get_ref().shutdown(Shutdown::Write)?;
            has_told = true;
        }
        let count = match stream.fill_buf() {
            Ok([]) => return output.flush(),
            Ok(bytes) => match output.write_all(bytes).and_then(|()| output.flush()) {
                // Whoever looks has seen enough.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
                written => written.map(|()| bytes.len())?,
            },
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) =>
            {
                0
            }
            Err(error) => return Err(error),
        };
        stream.consume(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        let sizes = ["1", "7B", "2kB", "3 M", "64KiB", "5Gi"].map(parse_size);
        assert_eq!(sizes, [Ok(1), Ok(7), Ok(2_000), Ok(3_000_000), Ok(65_536), Ok(5 << 30)]);
        for wrong in ["", "0", "kB", "-1", "1.5MB", "10kb", "99999999999999GB"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }
}
