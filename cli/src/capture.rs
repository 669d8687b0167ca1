//! `warmlane capture`

use crate::instances::InstanceFlags;
use crate::messages;
use anyhow::Context as _;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, ErrorKind, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use warmlane::assembly::Signals;
use warmlane::assembly::capture::{CaptureRequest, Captured, Capturing, Filter, Seen};

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
    /// Only at these ports.
    #[arg(long = "port", value_name = "PORT,...", value_delimiter = ',')]
    ports: Vec<String>,
    /// Only packets that come in, leave, or are dropped.
    #[arg(long, value_enum, value_name = "WHAT,...", value_delimiter = ',')]
    see: Vec<SeenName>,
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
    /// One packet in so many.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    one_in: u32,
    /// End after so many packets.
    #[arg(long, short, value_name = "PACKETS", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum SeenName {
    /// What comes in.
    In,
    /// What leaves.
    Out,
    /// What is dropped.
    Drop,
}

const EXAMPLES: &str = "\
Examples:
  Look at what a router drops, live:
    warmlane capture router --see drop -w - | wireshark -k -i -

  Ten thousand DNS packets at one port:
    warmlane capture router --port eth0 --filter 'udp port 53' \\
      --count 10000 -w dns.pcapng

  The first 96 bytes of one packet in a thousand:
    warmlane capture router --one-in 1000 --snap 96 -w some.pcapng";

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    // A mistake in it is told before anybody is asked.
    arguments.filter.parse::<Filter>()?;
    let request = CaptureRequest {
        ports: arguments.ports.clone(),
        see: arguments.see.iter().map(|seen| seen.seen()).collect(),
        reasons: arguments.reasons.clone(),
        filter: arguments.filter.clone(),
        snap_length: arguments.snap,
        one_in: arguments.one_in,
        count: arguments.count,
        ..CaptureRequest::default()
    };
    let signals = Signals::catch()?;
    let mut client = arguments.instance.connect()?;
    let capturing: Capturing = client.ask(&request)?;
    let mut output = open(&arguments.write)?;
    for Captured { lane, port, seen } in &capturing.points {
        messages::note(format_args!("capturing at {port} of {lane}: {}", seen_word(*seen)));
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
        }
    }
}

const fn seen_word(seen: Seen) -> &'static str {
    match seen {
        Seen::In => "what comes in",
        Seen::Out => "what leaves",
        Seen::Drop => "what is dropped",
    }
}

fn open(path: &Path) -> anyhow::Result<Box<dyn Write>> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdout().lock()));
    }
    let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
    Ok(Box::new(file))
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
