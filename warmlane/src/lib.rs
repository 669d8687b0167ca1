//! Warmlane: a userspace packet data plane for Linux.
//!
//! This is the crate to depend on: it re-exports the others and adds nothing of its own.
//!
#![doc = include_str!("../guide.md")]
#![forbid(unsafe_code)]

pub use warmlane_assembly as assembly;
pub use warmlane_control as control;
pub use warmlane_counters as counters;
pub use warmlane_crypto as crypto;
pub use warmlane_lane as lane;
pub use warmlane_mem as mem;
pub use warmlane_metrics as metrics;
pub use warmlane_port as port;
pub use warmlane_settings as settings;
pub use warmlane_sync as sync;
pub use warmlane_sys as sys;
pub use warmlane_table as table;
pub use warmlane_wire as wire;

/// Ports, one module a driver.
pub mod drivers {
    pub use warmlane_driver_common as common;
    pub use warmlane_kernel as kernel;
    pub use warmlane_memif as memif;
    pub use warmlane_memory as memory;
    pub use warmlane_pcap as pcap;
    pub use warmlane_pci as pci;
    pub use warmlane_virtio as virtio;
    pub use warmlane_xdp as xdp;
}

/// Network functions.
pub mod functions {
    pub use warmlane_docsis as docsis;
    pub use warmlane_forward as forward;
    pub use warmlane_gen as generator;
    pub use warmlane_router as router;
    pub use warmlane_vxlan as vxlan;
}

/// What a network function of one's own usually needs.
pub mod prelude {
    pub use crate::counters::{
        Counter, CounterView, Description, DropCounters, Role, Source, counters, drop_reasons,
    };
    pub use crate::lane::{
        LaneConfig, Lanes, Outputs, PassThrough, Pipeline, Poll, Stage, Task, branch, every, per_packet,
    };
    pub use crate::mem::{Burst, Packet, Pool, PoolConfig};
    pub use crate::port::{
        BurstExt, Capabilities, Port, QueueCounters, QueueCountersView, QueueStatus, ReceiveQueue,
        TransmitQueue,
    };
}
