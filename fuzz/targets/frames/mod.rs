//! What targets share whose input is a list of frames: of each a byte of flags, two bytes of length (little endian), and the frame.

use warmlane_mem::{Packet, Pool, PoolConfig};

/// Packets of a burst.
pub const BURST: usize = 64;

/// A pool for bursts of them, with space for what becomes of them.
pub fn pool() -> Pool {
    let config = PoolConfig { name: "fuzz".to_owned(), buffers: 4_096, ..PoolConfig::default() };
    Pool::new(&config).expect("there is memory")
}

/// The frames of an input with their flags.
pub fn list(mut input: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let [flags, low, high, rest @ ..] = input else { return None };
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(rest.len());
        let (frame, next) = rest.split_at(length);
        input = next;
        Some((*flags, frame))
    })
}

/// A packet of these bytes, in a chain of segments if they are more than `segment` or a buffer has.
pub fn packet(pool: &Pool, bytes: &[u8], segment: Option<usize>) -> Option<Packet> {
    let mut parts = bytes.chunks(segment.unwrap_or(pool.data_size()));
    let mut packet = pool.take()?;
    packet.fill(parts.next().unwrap_or_default()).ok()?;
    for part in parts {
        let mut segment = pool.take()?;
        segment.fill(part).ok()?;
        packet.chain(segment).ok()?;
    }
    Some(packet)
}
