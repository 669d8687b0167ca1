//! `warmlane trace`

mod text;

use crate::flags::{ConfigFlags, text_of};
use crate::instances::InstanceFlags;
use crate::messages;
use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::io::{self, BufRead as _, BufReader, ErrorKind, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use warmlane::assembly::Signals;
use warmlane::assembly::capture::Filter;
use warmlane::assembly::trace::{
    self, Frame, RehearseRequest, Rehearsed, TraceRequest, TracedPacket, Tracing,
};
use warmlane::drivers::pcap::read_frames;
use warmlane::mem::{Pool, PoolConfig};

/// Show what becomes of single packets, stage by stage, and why.
///
/// Follows the next packets that match through a running instance: the port that each came in by, what each stage looked up, found, counted and
/// changed, where the packet went, or why it was dropped. With --inject, frames of a capture file are looked at instead, which never
/// came: what would become of each is said, and nothing is sent or counted. With --config, too, by a forwarder's configuration, without a running
/// instance.
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    instance: InstanceFlags,
    /// Only packets that come in by these ports; with --inject, the port that frames would come in by, the first one if none is given.
    #[arg(long = "port", value_name = "PORT,...", value_delimiter = ',')]
    ports: Vec<String>,
    /// Only these, as in `warmlane capture`; they are chosen where they come in.
    #[arg(long, value_name = "FILTER", default_value = "")]
    filter: String,
    /// End after so many packets.
    #[arg(long, short, value_name = "PACKETS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    count: u32,
    /// Print a JSON object a packet, each on a line (docs/operate.md).
    #[arg(long)]
    json: bool,
    /// Say what would become of the frames in this pcap or pcapng file.
    #[arg(long, value_name = "FILE")]
    inject: Option<PathBuf>,
    /// By this configuration of `warmlane forward`, without a running instance.
    #[arg(long, value_name = "FILE", requires = "inject", conflicts_with = "name")]
    config: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  What becomes of the next packets to a network:
    warmlane trace --filter 'dst net 203.0.113.0/24'

  Of one that comes in by a port, for a script:
    warmlane trace router --port eth0 --count 1 --json

  Why were these dropped?
    warmlane capture router --see drop --count 5 -w lost.pcapng
    warmlane trace router --port eth0 --inject lost.pcapng

  What would a new configuration do with them?
    warmlane trace --inject lost.pcapng --config new.toml";

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    // A mistake in it is told before anybody is asked.
    let filter: Filter = arguments.filter.parse()?;
    let printer = Printer { json: arguments.json, number: RefCell::new(0) };
    let Some(file) = &arguments.inject else { return follow(arguments, &printer) };
    let port = match &arguments.ports[..] {
        [] => None,
        [port] => Some(port.as_str()),
        _ => bail!("--port: frames come in by one port"),
    };
    let frames = Frames { file, filter, count: arguments.count };
    match &arguments.config {
        Some(config) => rehearse_here(config, port, &frames, &printer),
        None => rehearse_there(arguments, port, &frames, &printer),
    }
}

/// Follows packets of a running instance.
fn follow(arguments: &Arguments, printer: &Printer) -> anyhow::Result<()> {
    let request = TraceRequest {
        ports: arguments.ports.clone(),
        filter: arguments.filter.clone(),
        count: arguments.count,
        ..TraceRequest::default()
    };
    let signals = Signals::catch()?;
    let prefixes = Prefixes::of(&arguments.instance)?;
    let mut client = arguments.instance.connect()?;
    let tracing: Tracing = client.ask(&request)?;
    let places = tracing.places.iter().map(|place| format!("{} of {}", place.port, place.lane));
    messages::note(format_args!("tracing what comes in by {}", places.collect::<Vec<_>>().join(", ")));
    let mut stream = client.into_stream();
    stream.get_ref().set_read_timeout(Some(Duration::from_millis(200)))?;
    let (mut line, mut has_told) = (Vec::new(), false);
    loop {
        if signals.is_stopped() && !has_told {
            stream.get_ref().shutdown(Shutdown::Write)?;
            has_told = true;
        }
        match stream.read_until(b'\n', &mut line) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => continue,
            Err(error) => return Err(error).context("the instance does not answer"),
            Ok(0) => return Ok(()),
            Ok(_) => {}
        }
        let mut packet: TracedPacket =
            serde_json::from_slice(&line).context("the answer is not understood")?;
        prefixes.complete(&mut packet);
        printer.print(&packet)?;
        line.clear();
    }
}

/// Frames of a file that are asked about.
struct Frames<'a> {
    file: &'a Path,
    filter: Filter,
    count: u32,
}

impl Frames<'_> {
    fn each(&self, mut take: impl FnMut(&[u8]) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let mut left = self.count;
        let mut wanted = 0_u64;
        read_frames::<anyhow::Error>(self.file, |_, frame| {
            if !self.filter.matches(frame, frame.len()) {
                return Ok(());
            }
            wanted += 1;
            if left == 0 {
                return Ok(());
            }
            left -= 1;
            take(frame)
        })?;
        if wanted == 0 {
            bail!("{} has no such frames", self.file.display());
        }
        let shown = u64::from(self.count);
        if wanted > shown {
            messages::note(format_args!("{} more match: say --count for more than {shown}", wanted - shown));
        }
        Ok(())
    }
}

/// Asks a running instance.
fn rehearse_there(
    arguments: &Arguments,
    port: Option<&str>,
    frames: &Frames<'_>,
    printer: &Printer,
) -> anyhow::Result<()> {
    let prefixes = Prefixes::of(&arguments.instance)?;
    let mut client = arguments.instance.connect()?;
    let _: Rehearsed = client.ask(&RehearseRequest::default())?;
    let mut stream = client.into_stream();
    frames.each(|frame| {
        let mut packet = ask(&mut stream, &Frame::new(port, frame))?;
        prefixes.complete(&mut packet);
        printer.print(&packet)
    })
}

fn ask(stream: &mut BufReader<UnixStream>, frame: &Frame) -> anyhow::Result<TracedPacket> {
    let mut line = serde_json::to_vec(frame)?;
    line.push(b'\n');
    stream.get_mut().write_all(&line).context("the instance does not answer")?;
    line.clear();
    stream.read_until(b'\n', &mut line).context("the instance does not answer")?;
    let value: Value = serde_json::from_slice(&line)
        .map_err(|error| {
            if line.is_empty() {
                io::Error::from(ErrorKind::UnexpectedEof).into()
            } else {
                anyhow::Error::from(error)
            }
        })
        .context("the instance does not answer")?;
    if let Some(error) = value.get("error").and_then(Value::as_str) {
        bail!("{error}");
    }
    Ok(serde_json::from_value(value)?)
}

/// By a configuration.
fn rehearse_here(
    config: &Path,
    port: Option<&str>,
    frames: &Frames<'_>,
    printer: &Printer,
) -> anyhow::Result<()> {
    let (config, _) = ConfigFlags::of_file(config, &text_of(config)?)?;
    // As small as the data of a frame allows: it is for one packet at a time, and what is made of that.
    let pool =
        PoolConfig { name: "rehearsal".to_owned(), buffers: BUFFERS, ..config.pool.pool_config("packets") };
    let pool = Pool::new(&pool)?;
    let unknown: Vec<&str> =
        config.ports.iter().filter(|port| port.mac.is_none()).map(|port| port.name.as_str()).collect();
    if !unknown.is_empty() {
        messages::note(format_args!(
            "the configuration doesn't say which Ethernet address {} has: frames to any address are taken for its own",
            unknown.join(", ")
        ));
    }
    let mut pipeline = trace::offline(&config, &pool)?;
    frames.each(|frame| {
        let packet = trace::rehearse(&mut pipeline, port, frame, &pool).map_err(anyhow::Error::msg)?;
        printer.print(&packet)
    })
}

const BUFFERS: u32 = 1_024;

/// A router's lanes know next hops, and its control side the prefixes that lead there.
struct Prefixes<'a>(Option<&'a InstanceFlags>);

impl<'a> Prefixes<'a> {
    fn of(instance: &'a InstanceFlags) -> anyhow::Result<Self> {
        let is_router = instance.connect()?.instance()?.kind == "router";
        Ok(Self(is_router.then_some(instance)))
    }

    /// Adds the prefixes that destinations were looked up by. They may have changed since.
    fn complete(&self, packet: &mut TracedPacket) {
        let Some(instance) = self.0 else { return };
        for step in &mut packet.steps {
            let Some(address) = step.found.get("destination").filter(|_| !step.found.contains_key("route"))
            else {
                continue;
            };
            let table: u16 = step.found.get("table").and_then(|table| table.parse().ok()).unwrap_or(0);
            let request = json!({ "ask": "routes", "address": address, "table": table });
            let answer = instance.connect().and_then(|mut client| Ok(client.ask::<Value>(&request)?));
            let prefix =
                answer.ok().and_then(|answer| Some(answer["routes"][0]["prefix"].as_str()?.to_owned()));
            step.found.extend(prefix.map(|prefix| ("route".to_owned(), prefix)));
        }
    }
}

struct Printer {
    json: bool,
    number: RefCell<u64>,
}

impl Printer {
    fn print(&self, packet: &TracedPacket) -> anyhow::Result<()> {
        if self.json {
            return Ok(messages::print(format_args!("{}\n", serde_json::to_string(packet)?))?);
        }
        let mut number = self.number.borrow_mut();
        *number += 1;
        Ok(messages::print(text::of(*number, packet))?)
    }
}
