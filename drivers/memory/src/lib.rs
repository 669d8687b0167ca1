//! Ports inside this process, which need no hardware and no privilege. Memory shared with other processes is `memif`'s and `virtio`'s.
//!
//! [`null`]: a sink that drops and a source of empty frames, which cost nothing but what the port interface
//! itself costs. [`ring_pair`]: two ports, each of which receives what the other transmits, without a copy.
//! [`replay`]: frames loaded beforehand and given out over and over, each copied into a fresh buffer, as a NIC
//! would have written it.
//!
//! Promises: no system call and no allocation while packets move; every packet is counted.
//!
//! Must not: read files (frames to replay come from the caller), know protocols.

#![forbid(unsafe_code)]

pub mod null;
pub mod replay;
pub mod ring_pair;
