//! What a capture file's burst path costs; the file lies in the kernel's page cache.

use super::fixture;
use crate::bench::Bench;
use crate::error::LabError;
use crate::measure::Measure;
use crate::setting::Lanes;
use crate::setting::Setting;
use std::path::{Path, PathBuf};
use warmlane_mem::{Burst, LaneCache, Pool};
use warmlane_pcap::PcapOptions;
use warmlane_port::{ReceiveQueue, TransmitQueue};

pub(super) const BENCHES: &[Bench] = &[
    Bench {
        name: "pcap-read",
        unit: "packet",
        sentence: "receive 60-byte frames from a capture file, over and over, and free them",
        lanes: Lanes::One,
        prepare: read,
    },
    Bench {
        name: "pcap-write",
        unit: "packet",
        sentence: "take packets with 60-byte frames and transmit them to a capture file, /dev/null",
        lanes: Lanes::One,
        prepare: write,
    },
];

/// Frames in the capture.
const FRAMES: usize = 4_096;
const FRAME: usize = 60;
/// How often a unit of work repeats its burst.
const REPEAT: usize = 100;
const BURST: usize = 32;

/// A file that is removed when this is dropped.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

struct Read {
    burst: Burst,
    queue: Box<dyn ReceiveQueue>,
    _lane: LaneCache,
    _file: Temporary,
}

fn read(setting: &Setting) -> Result<Box<dyn Measure>, LabError> {
    const NAME: &str = "pcap-read";
    let (pool, lane) = fixture::pool(NAME)?;
    let file = Temporary(std::env::temp_dir().join(format!("warmlane-{NAME}-{}.pcap", std::process::id())));
    let mut writer = warmlane_pcap::Writer::create(&file.0, warmlane_pcap::Format::of_name(&file.0))
        .map_err(LabError::setup)?;
    for number in 0..FRAMES {
        writer.write_frame(number as u64, &[0; FRAME]).map_err(LabError::setup)?;
    }
    writer.finish().map_err(LabError::setup)?;
    let config = PcapOptions { read: Some(file.0.clone()), passes: 0, ..PcapOptions::default() };
    let port = warmlane_pcap::open(&config, NAME, &pool).map_err(LabError::setup)?;
    let queue = fixture::receive(port)?;
    let burst = Burst::with_limit(setting.burst.unwrap_or(BURST));
    Ok(Box::new(Read { burst, queue, _lane: lane, _file: file }))
}

impl Measure for Read {
    fn work(&mut self) -> u64 {
        let mut packets = 0;
        for _ in 0..REPEAT {
            packets += self.queue.receive(&mut self.burst);
            self.burst.clear();
        }
        packets as u64
    }
}

struct Write {
    pool: Pool,
    burst: Burst,
    queue: Box<dyn TransmitQueue>,
    _lane: LaneCache,
}

fn write(setting: &Setting) -> Result<Box<dyn Measure>, LabError> {
    const NAME: &str = "pcap-write";
    let (pool, lane) = fixture::pool(NAME)?;
    let config = PcapOptions { write: Some(Path::new("/dev/null").to_owned()), ..PcapOptions::default() };
    let port = warmlane_pcap::open(&config, NAME, &pool).map_err(LabError::setup)?;
    let queue = fixture::transmit(port)?;
    let burst = Burst::with_limit(setting.burst.unwrap_or(BURST));
    Ok(Box::new(Write { pool, burst, queue, _lane: lane }))
}

impl Measure for Write {
    fn work(&mut self) -> u64 {
        let mut packets = 0;
        for _ in 0..REPEAT {
            let limit = self.burst.limit();
            packets += self.pool.take_burst(&mut self.burst, limit);
            for packet in self.burst.iter_mut() {
                // A fresh buffer has space for a small frame.
                let _ = packet.append(FRAME);
                // The same time for all, so that the clock is not part of it.
                packet.set_timestamp(1);
            }
            self.queue.transmit(&mut self.burst);
        }
        packets as u64
    }
}
