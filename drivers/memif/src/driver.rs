//! The driver as the rest of the program sees it.

use crate::options::MemifOptions;
use crate::port::{self, Connector};
use std::convert::Infallible;
use warmlane_driver_common::{Driver, DriverHelp, Environment, OpenError, driver_help};
use warmlane_port::Port;

/// Ports to other processes, by shared memory.
#[derive(Debug)]
pub struct MemifDriver;

impl Driver for MemifDriver {
    const HELP: DriverHelp = driver_help! {
        "memif": "Another process on this machine, by shared memory, as VPP, DPDK and containers speak it. \
            Needs no privilege but access to the socket.";
        examples: "memif:/run/memif.sock", "memif:/run/memif.sock,role=server,id=1,secret=word";
        "socket" "PATH|@NAME": "the control socket; @NAME has no file";
        "role" "client|server": "connect to the socket and bring the memory, or make the socket; without it, \
            client";
        "id" "NUMBER": "which interface behind the socket; without it, 0";
        "secret" "WORD": "what a client must say; without it, nothing";
        "ring-size" "ENTRIES": "descriptors of each ring, a power of two from 2 to 16384; a client says it; \
            without it, 1024";
        "buffer-size" "BYTES": "of each buffer, from 64 to 65472; longer packets take several; a client says \
            it; without it, 2048";
        "queues" "COUNT": "rings in each direction; without it, one for each lane";
        "mode" "copy|zero-copy": "with zero-copy, a client's packets stay in its pool, to all of which the \
            server can then write: only for one that is trusted; a server with zero-copy, too, takes them for its own, \
            of a Warmlane client that is trusted; without it, copy";
        "allow-unsealed" "": "take memory that the client could cut short under us, as DPDK's zero-copy has \
            it: only from one that is trusted";
        "wait" "SECONDS": "for the other side, before anything else is done; without it, packets are dropped \
            until it is there";
    };
    type Options = MemifOptions;

    fn open(options: &MemifOptions, environment: &mut Environment<'_>) -> Result<Port, OpenError> {
        let connector = environment.shared.get_or_try_insert(|| Ok::<_, Infallible>(Connector::default()));
        let Ok(connector) = connector;
        let opened = port::open(&environment.name, options, environment.queues, environment.pool, connector)
            .map_err(OpenError::new)?;
        environment.watch_connection(move || opened.monitor.status());
        Ok(opened.port)
    }
}
