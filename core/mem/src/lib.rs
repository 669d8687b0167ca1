//! The memory that packets live in: regions, pools, packets and bursts.
//!
//! A [`Pool`] maps one region of (huge-page) memory and cuts it into buffers at a planned stride, which are taken as
//! [`Packet`]s and freed when these are dropped. Packets move in [`Burst`]s, and from lane to lane through a [`channel()`].
//!
//! Promises: a packet has one owner, is freed when dropped and cannot be cloned, leaked silently or touched after
//! it was sent; each pool's [`Ledger`] is zero at rest; taking and freeing on a [lane](LaneThread)
//! touches a shared cache line only once per magazine; the data path neither allocates nor panics.
//!
//! When a lane panics, its guard returns all buffers that it cached as the thread unwinds, packets in its bursts are freed as they are
//! dropped, and a channel frees its contents when its last end is dropped. Nothing panics between the two halves of an exchange with
//! the depot, so a thread can die there only if it is killed from outside. That costs the pool one magazine and one slot of the depot's
//! queue; lanes that come to that slot use the stack behind the queue instead. No lane waits for the dead one or gets a buffer twice,
//! and the dead lane's handle keeps the memory mapped.
//!
//! Must not: know any protocol, any port or any driver. Its interface is safe.
//!
//! ```
//! use warmlane_mem::{Burst, LaneThread, Pool, PoolConfig};
//!
//! let pool = Pool::new(&PoolConfig { buffers: 512, ..PoolConfig::default() })?;
//! let _lane = LaneThread::enter(); // this thread gets its own caches of buffers
//! let mut burst = Burst::new();
//! pool.take_burst(&mut burst, 32);
//! for packet in burst.iter_mut() {
//!     packet.fill(b"a frame")?;
//! }
//! assert_eq!(pool.ledger().outstanding(), 32);
//! drop(burst);
//! assert_eq!(pool.ledger().outstanding(), 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod burst;
mod chain;
// It works in a ring's own memory, of which there are no slices under loom.
#[cfg(not(loom))]
mod channel;
mod depot;
mod doorbell;
mod eight;
mod error;
mod frames;
mod free_list;
mod header;

mod hot_bound;
mod id;
mod lane_cache;
mod lane_thread;
mod ledger;
mod lent_memory;
mod magazine_queue;
mod magazines;
mod offload;
mod packet;
pub mod plan;
mod pool;
#[cfg(not(loom))]
mod pool_source;
mod primitive;
mod reader;
mod region_access;
mod register;
mod shared;
mod shared_packet;
mod variations;

pub use burst::{BURST_CAPACITY, BURST_DEFAULT, Burst, Drain, bytes_of};
pub use chain::SegmentData;
#[cfg(not(loom))]
pub use channel::{ChannelCounters, PacketReceiver, PacketSender, channel};
pub use eight::starts_of_eight;
pub use error::{NoSpace, PoolError, TooShort};
pub use frames::{Copied, Cursor, Frames, TooManyFrames};
pub use header::APPLICATION_BYTES;
pub use id::{BufferId, MAXIMUM_BUFFERS};
pub use lane_cache::LaneCache;
pub use lane_thread::LaneThread;
pub use ledger::Ledger;
pub use lent_memory::LentMemory;
pub use offload::{
    Checksum, FlowHash, HashKind, InnerChecksum, LayerOffsets, Segmentation, SegmentationKind, Vlan, VlanTci,
};
pub use packet::{LINE_BYTES, Line, Packet};
pub use pool::{Occupancy, Pool, PoolConfig, PoolKind};
pub use reader::PacketReader;
pub use region_access::{BufferOffsets, METADATA_BYTES, Region, Span};
pub use register::MAXIMUM_POOLS;
pub use shared::MAXIMUM_LANES;
pub use shared_packet::SharedPacket;
pub use variations::{Offsets, Variations};
/// For the derives that [`Packet::application`] asks for.
pub use zerocopy;
