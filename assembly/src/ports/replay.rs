//! Captures replayed from memory: `drivers/pcap` reads them, `drivers/memory` replays them.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;
use warmlane_driver_common::{Driver, DriverHelp, Environment, Files, OpenError, driver_help};
use warmlane_memory::{null, replay};
use warmlane_port::Port;

/// Ports that replay a capture.
#[derive(Debug)]
pub struct ReplayDriver;

/// What to replay.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ReplayOptions {
    /// The capture.
    pub file: PathBuf,
    /// How often; `None` is for ever.
    #[serde(default)]
    pub rounds: Option<u64>,
}

impl Driver for ReplayDriver {
    const HELP: DriverHelp = driver_help! {
        "replay": "Receives the frames of a capture from memory, over and over, on each lane; drops what is \
            sent to it. Needs no privilege.";
        examples: "replay:in.pcap", "replay:in.pcap,rounds=3";
        "file" "FILE": "the capture";
        "rounds" "COUNT": "how often; without it, for ever";
    };
    type Options = ReplayOptions;

    fn open(options: &ReplayOptions, environment: &mut Environment<'_>) -> Result<Port, OpenError> {
        let frames = Arc::new(warmlane_pcap::load(&options.file).map_err(OpenError::new)?);
        let config = replay::ReplayConfig { rounds: options.rounds, queues: environment.queues };
        let source =
            replay::open(&environment.name, &frames, environment.pool, config).map_err(OpenError::new)?;
        Ok(Port { transmit: null::sink(&environment.name, environment.queues).transmit, ..source })
    }

    fn files(options: &ReplayOptions) -> Files<'_> {
        Files { reads: vec![&options.file], writes: Vec::new() }
    }
}
