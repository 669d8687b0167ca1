//! Traces written to a client, and frames read from one.

use std::collections::VecDeque;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use warmlane_control::Failure;
use warmlane_lane::{Graph, Pipeline, TraceReader};
use warmlane_mem::{Packet, Pool};
use warmlane_sys::clock::{self, Clock};

use super::request::Frame;
use super::{TracedPacket, is_of};
use crate::turns::{Turn, has_enough, is_silence};

/// The longest frame that is asked about, in bytes.
const LONGEST_FRAME: usize = 65_536;

/// The longest line: a frame in hexadecimal digits, and what is around it.
const LONGEST_LINE: u64 = 2 * LONGEST_FRAME as u64 + 1_024;

/// How long a lane may take to say what it would do: on a busy machine its turn may come late.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long to wait for buffers of a pool that is short of them.
const BUFFER_PATIENCE: Duration = Duration::from_millis(200);

/// How long to wait for a lane's answer, or a buffer, before looking again.
const REST: Duration = Duration::from_millis(1);

/// Traces of several lanes on their way to a client.
pub(super) struct TraceStream {
    readers: Vec<(String, Arc<Graph>, TraceReader)>,
    left: u32,
    /// Nanoseconds since 1970 when the clock showed these cycles.
    began: (u64, u64),
}

impl TraceStream {
    pub(super) fn new(readers: Vec<(String, Arc<Graph>, TraceReader)>, count: u32) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let began = (u64::try_from(now.as_nanos()).unwrap_or(u64::MAX), clock::cycles());
        Self { readers, left: count, began }
    }

    /// Writes traces until there have been enough, the client has, or lanes or the program end.
    pub(super) fn run(mut self, stream: &UnixStream, turn: &Turn) {
        // The client hears of an error by the end of the stream.
        let _ = self.write_all(stream, turn);
    }

    fn write_all(&mut self, stream: &UnixStream, turn: &Turn) -> io::Result<()> {
        loop {
            let is_over = turn.is_ending() || self.readers.iter().all(|(.., reader)| reader.is_over());
            let count = self.write_some(stream)?;
            if self.left == 0 || is_over && count == 0 || count == 0 && has_enough(stream)? {
                return Ok(());
            }
        }
    }

    fn write_some(&mut self, stream: &UnixStream) -> io::Result<usize> {
        let mut written = 0;
        for (lane, graph, reader) in &mut self.readers {
            while self.left > 0
                && let Some(trace) = reader.read()
            {
                let (then, at) = self.began;
                let time = then + Clock::calibrated().nanoseconds(trace.cycles.saturating_sub(at));
                write_line(stream, &TracedPacket::new(lane, graph, &trace, Some(time)))?;
                (self.left, written) = (self.left - 1, written + 1);
            }
        }
        Ok(written)
    }
}

fn write_line(mut stream: &UnixStream, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// A way into a lane.
pub(super) struct Door {
    pub(super) lane: String,
    pub(super) port: String,
    pub(super) graph: Arc<Graph>,
    pub(super) input: usize,
}

/// Answers frames, a line each, until the client has no more.
pub(super) fn answer_frames(stream: &UnixStream, turn: &Turn, doors: &[Door], pool: &Pool) {
    let mut lines = BufReader::new(stream);
    let mut line = Vec::new();
    while !turn.is_ending() {
        let limit = LONGEST_LINE.saturating_sub(line.len() as u64);
        match lines.by_ref().take(limit).read_until(b'\n', &mut line) {
            Err(error) if is_silence(&error) => continue,
            Err(_) => return,
            Ok(_) if line.last() == Some(&b'\n') => {}
            Ok(0) if line.is_empty() => return,
            Ok(_) => {
                let error = format!("a line has at most {LONGEST_LINE} bytes, and ends with a newline");
                let _ = write_line(stream, &Failure { error });
                return;
            }
        }
        let written = match answer_frame(&line, turn, doors, pool) {
            Ok(traced) => write_line(stream, &traced),
            Err(error) => write_line(stream, &Failure { error }),
        };
        if written.is_err() {
            return;
        }
        line.clear();
    }
}

fn answer_frame(line: &[u8], turn: &Turn, doors: &[Door], pool: &Pool) -> Result<TracedPacket, String> {
    let frame: Frame = serde_json::from_slice(line).map_err(|error| format!("that is no frame: {error}"))?;
    let door = doors.iter().find(|door| frame.port.as_ref().is_none_or(|port| is_of(&door.port, port)));
    let door = door.ok_or_else(|| {
        let names: Vec<&str> = doors.iter().map(|door| door.port.as_str()).collect();
        format!("packets don't come in by that port, but by {}", names.join(", "))
    })?;
    let bytes = frame.bytes()?;
    let began = Instant::now();
    // Where buffers are short, one is free now and then.
    let packet = loop {
        match packet(&bytes, pool)? {
            Some(packet) => break packet,
            None if began.elapsed() > BUFFER_PATIENCE || turn.is_ending() => return Err(no_buffer(pool)),
            None => std::thread::sleep(REST),
        }
    };
    let mut reader = door.graph.rehearse(vec![(door.input, packet)]);
    let began = Instant::now();
    loop {
        let is_over = reader.is_over() || turn.is_ending() || began.elapsed() > PATIENCE;
        if let Some(trace) = reader.read() {
            return Ok(TracedPacket::new(&door.lane, &door.graph, &trace, None));
        }
        if is_over {
            return Err(format!("{} does not answer", door.lane));
        }
        std::thread::sleep(REST);
    }
}

fn no_buffer(pool: &Pool) -> String {
    format!("pool {} has no free buffer; with --config, frames get a pool of their own", pool.name())
}

/// A packet with these bytes, in as many buffers as it needs; `None` if they are not free.
fn packet(bytes: &[u8], pool: &Pool) -> Result<Option<Packet>, String> {
    if bytes.len() > LONGEST_FRAME {
        return Err(format!("a frame has at most {LONGEST_FRAME} bytes"));
    }
    let mut segments = VecDeque::new();
    let mut rest = bytes;
    while !rest.is_empty() || segments.is_empty() {
        let Some(mut segment) = pool.take() else { return Ok(None) };
        let (now, later) = rest.split_at(rest.len().min(segment.tailroom()));
        segment.fill(now).map_err(|error| error.to_string())?;
        segments.push_back(segment);
        rest = later;
    }
    let Some(mut packet) = segments.pop_front() else { return Ok(None) };
    for segment in segments {
        packet.chain(segment).map_err(|_| "the frame needs too many buffers".to_owned())?;
    }
    Ok(Some(packet))
}

/// What would become of a frame that came in by a port of a pipeline that nobody runs.
///
/// # Errors
/// A sentence: there is no such port, or no buffer.
pub fn rehearse(
    pipeline: &mut Pipeline,
    port: Option<&str>,
    frame: &[u8],
    pool: &Pool,
) -> Result<TracedPacket, String> {
    let graph = Arc::clone(pipeline.graph());
    let mut inputs = super::request::inputs(&graph);
    let input = inputs.find(|(_, name)| port.is_none_or(|port| is_of(name, port)));
    let (input, _) = input.ok_or_else(|| {
        let names: Vec<&str> = super::request::inputs(&graph).map(|(_, name)| name).collect();
        format!("packets don't come in by that port, but by {}", names.join(", "))
    })?;
    let packet = packet(frame, pool)?.ok_or_else(|| no_buffer(pool))?;
    let trace = pipeline.rehearse(input, packet);
    Ok(TracedPacket::new("lane0", &graph, &trace, None))
}
