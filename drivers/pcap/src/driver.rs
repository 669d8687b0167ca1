use warmlane_driver_common::{Driver, Environment, Files, OpenError, OptionHelp, option_help};
use warmlane_port::Port;

use crate::{PcapOptions, port};

/// Ports on capture files.
#[derive(Debug)]
pub struct PcapDriver;

impl Driver for PcapDriver {
    const NAME: &'static str = "pcap";
    const SUMMARY: &'static str =
        "Receives the frames of a capture file, writes what is sent to another. Needs no privilege.";
    const EXAMPLES: &'static [&'static str] = &["pcap:in.pcap", "pcap:read=in.pcap,write=out.pcapng"];
    const OPTIONS: &'static [OptionHelp] = option_help! {
        "read" "FILE": "receive the frames of this capture";
        "write" "FILE": "write what is sent to this capture";
        "format" "pcap|pcapng": "the format to write; without it, what the file's name says";
        "passes" "COUNT": "how often the capture is received, 0 for ever; without it, once";
        "snap-length" "BYTES": "write at most so many bytes of each frame; without it, all";
    };
    const MAIN_OPTION: Option<&'static str> = Some("read");
    type Options = PcapOptions;

    fn open(name: &str, options: &PcapOptions, environment: &mut Environment<'_>) -> Result<Port, OpenError> {
        port::open(options, name, environment.pool).map_err(OpenError::new)
    }

    fn files(options: &PcapOptions) -> Files<'_> {
        Files {
            reads: options.read.as_deref().into_iter().collect(),
            writes: options.write.as_deref().into_iter().collect(),
        }
    }
}
