//! Ports that read and write capture files, and the readers and writers under them.
//!
//! [`Reader`] takes classic pcap and pcapng in all their byte orders and timestamp resolutions, [`Writer`] writes
//! either with nanoseconds. [`open`] makes a port of them.
//!
//! Promises: the reader stays within its window and never panics, whatever the bytes are; a file that was cut off
//! gives all its whole frames, then an error that says where it ends; a written file takes its name when it is
//! whole.
//!
//! Must not: look into frames, keep a capture in memory, or allocate per frame.

#![forbid(unsafe_code)]

mod blocks;
mod classic;
mod driver;
mod endian;
mod error;
mod format;
mod frame;
mod link_type;
mod load;
mod option;
mod output;
mod pcapng;
mod port;
mod reader;
mod reason;
mod receive;
mod source;
mod timestamp;
mod transmit;
mod writer;

pub use blocks::{BlockInterface, BlockPacket, Blocks, PacketDirection};
pub use driver::PcapDriver;
pub use error::{PcapError, Position};
pub use format::Format;
pub use frame::{Frame, MAXIMUM_FRAME};
pub use link_type::LinkType;
pub use load::{load, read_frames};
pub use port::{PcapOptions, open};
pub use reader::Reader;
pub use reason::{ReceiveDrop, TransmitDrop};
pub use writer::{Writer, Written};
