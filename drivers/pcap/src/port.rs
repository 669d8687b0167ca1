use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use warmlane_mem::Pool;
use warmlane_port::{Capabilities, Offloads, Port};

use crate::{Format, MAXIMUM_FRAME, PcapError, receive::FileReceive, transmit::FileTransmit};

/// Which files a port reads and writes. At least one.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct PcapOptions {
    /// The capture whose frames are received.
    pub read: Option<PathBuf>,
    /// The capture that transmitted packets are written to.
    pub write: Option<PathBuf>,
    /// How often the capture is received from beginning to end; 0 repeats it without end. Every pass has the
    /// timestamps of the file.
    pub passes: u64,
    /// Bytes of each transmitted packet that are written, 1 to [`MAXIMUM_FRAME`].
    pub snap_length: u32,
    /// The format to write; `None` goes by the file's name ([`Format::of_name`]).
    pub format: Option<Format>,
}

impl Default for PcapOptions {
    /// No file yet; one pass, whole frames, format by name.
    fn default() -> Self {
        Self { read: None, write: None, passes: 1, snap_length: MAXIMUM_FRAME, format: None }
    }
}

/// Opens a port with one receive queue, one transmit queue or both.
///
/// Receiving copies frames into packets of `pool`, a chain where one buffer is too short, with the time of
/// their capture. With no buffer left it waits for one; at the file's end it is finished; where the file is cut off
/// or damaged it has failed, after all frames before. A frame check sequence, where the file says there is one, is
/// taken off. Snapped frames and frames of other link types are counted drops.
///
/// Transmitting writes packets with their own timestamp, or with the wall clock if they have none. The file takes
/// its name when the queue is dropped, as [`Writer`](crate::Writer) says.
///
/// Files block: a lane that polls such a queue waits for the disk once in 1 MiB, and a named pipe with nothing in
/// it holds it up altogether.
///
/// ```no_run
/// use warmlane_mem::{Pool, PoolConfig};
/// use warmlane_pcap::PcapOptions;
///
/// let pool = Pool::new(&PoolConfig::default())?;
/// let options = PcapOptions {
///     read: Some("in.pcap".into()),
///     write: Some("out.pcapng".into()),
///     ..PcapOptions::default()
/// };
/// let port = warmlane_pcap::open(&options, "files", &pool)?;
/// assert_eq!((port.receive.len(), port.transmit.len()), (1, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`PcapError`]: a file that cannot be opened or created, is no capture, is damaged before its first frame is
/// over, or has a first frame that is not Ethernet.
pub fn open(options: &PcapOptions, name: &str, pool: &Pool) -> Result<Port, PcapError> {
    let mut port = Port {
        name: name.to_owned(),
        driver: "pcap",
        capabilities: Capabilities {
            mac: None,
            offloads: Offloads::default(),
            mtu: None,
            maximum_frame: MAXIMUM_FRAME,
            timestamps: options.read.is_some(),
            notes: Vec::new(),
        },
        receive: Vec::new(),
        transmit: Vec::new(),
    };
    if options.read.is_none() && options.write.is_none() {
        return Err(PcapError::NoFile);
    }
    if let Some(path) = &options.read {
        let queue = FileReceive::open(path, options.passes, pool)?;
        let times = match options.passes {
            0 => "without end".to_owned(),
            1 => "once".to_owned(),
            passes => format!("{passes} times"),
        };
        port.capabilities.notes.push(format!("reads {} ({}) {times}", path.display(), queue.format()));
        port.receive.push(Box::new(queue));
    }
    if let Some(path) = &options.write {
        let format = options.format.unwrap_or_else(|| Format::of_name(path));
        let queue = FileTransmit::create(path, format, options.snap_length)?;
        port.capabilities.notes.push(format!("writes {} ({format})", path.display()));
        port.transmit.push(Box::new(queue));
    }
    Ok(port)
}
