use std::path::PathBuf;

use warmlane_mem::Pool;
use warmlane_port::{Capabilities, Port};

use crate::{Format, MAXIMUM_FRAME, PcapError, receive::FileReceive, transmit::FileTransmit};

/// Which files a port reads and writes. At least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PcapConfig {
    /// The capture whose frames are received.
    pub receive: Option<PathBuf>,
    /// The capture that transmitted packets are written to.
    pub transmit: Option<PathBuf>,
    /// How often the capture is received from beginning to end; 0 repeats it without end. Every pass has the
    /// timestamps of the file.
    pub passes: u64,
    /// Bytes of each transmitted packet that are written, 1 to [`MAXIMUM_FRAME`].
    pub snap_length: u32,
    /// The format to write; `None` goes by the file's name ([`Format::of_name`]).
    pub format: Option<Format>,
}

impl Default for PcapConfig {
    /// No file yet; one pass, whole frames, format by name.
    fn default() -> Self {
        Self { receive: None, transmit: None, passes: 1, snap_length: MAXIMUM_FRAME, format: None }
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
/// use warmlane_pcap::PcapConfig;
///
/// let pool = Pool::new(&PoolConfig::default())?;
/// let config = PcapConfig {
///     receive: Some("in.pcap".into()),
///     transmit: Some("out.pcapng".into()),
///     ..PcapConfig::default()
/// };
/// let port = warmlane_pcap::open(&config, "files", &pool)?;
/// assert_eq!((port.receive.len(), port.transmit.len()), (1, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`PcapError`]: a file that cannot be opened or created, is no capture, is damaged before its first frame is
/// over, or has a first frame that is not Ethernet.
pub fn open(config: &PcapConfig, name: &str, pool: &Pool) -> Result<Port, PcapError> {
    let mut port = Port {
        name: name.to_owned(),
        driver: "pcap",
        capabilities: Capabilities {
            mac: None,
            mtu: None,
            maximum_frame: MAXIMUM_FRAME,
            timestamps: config.receive.is_some(),
            lossless: true,
            notes: Vec::new(),
        },
        receive: Vec::new(),
        transmit: Vec::new(),
    };
    if config.receive.is_none() && config.transmit.is_none() {
        return Err(PcapError::NoFile { name: port.name });
    }
    if let Some(path) = &config.receive {
        let queue = FileReceive::open(path, config.passes, pool)?;
        let times = match config.passes {
            0 => "without end".to_owned(),
            1 => "once".to_owned(),
            passes => format!("{passes} times"),
        };
        port.capabilities.notes.push(format!("reads {} ({}) {times}", path.display(), queue.format()));
        port.receive.push(Box::new(queue));
    }
    if let Some(path) = &config.transmit {
        let format = config.format.unwrap_or_else(|| Format::of_name(path));
        let queue = FileTransmit::create(path, format, config.snap_length)?;
        port.capabilities.notes.push(format!("writes {} ({format})", path.display()));
        port.transmit.push(Box::new(queue));
    }
    Ok(port)
}
