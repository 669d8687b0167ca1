use warmlane_driver_common::{Driver, DriverHelp, Environment, Files, OpenError, driver_help};
use warmlane_port::Port;

use crate::{PcapOptions, port};

/// Ports on capture files.
#[derive(Debug)]
pub struct PcapDriver;

impl Driver for PcapDriver {
    const HELP: DriverHelp = driver_help! {
        "pcap": "Receives the frames of a capture file, writes what is sent to another. Needs no privilege.";
        examples: "pcap:in.pcap", "pcap:read=in.pcap,write=out.pcapng";
        "read" "FILE": "receive the frames of this capture";
        "write" "FILE": "write what is sent to this capture";
        "format" "pcap|pcapng": "the format to write; without it, what the file's name says";
        "passes" "COUNT": "how often the capture is received, 0 for ever; without it, once";
        "snap-length" "BYTES": "write at most so many bytes of each frame; without it, all";
    };
    type Options = PcapOptions;

    fn open(options: &PcapOptions, environment: &mut Environment<'_>) -> Result<Port, OpenError> {
        port::open(options, &environment.name, environment.pool).map_err(OpenError::new)
    }

    fn files(options: &PcapOptions) -> Files<'_> {
        Files {
            reads: options.read.as_deref().into_iter().collect(),
            writes: options.write.as_deref().into_iter().collect(),
        }
    }
}
