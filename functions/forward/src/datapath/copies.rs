//! Copies of packets for who looks at them.

use std::cell::OnceCell;

use warmlane_mem::{Packet, Pool, PoolConfig};
use warmlane_sys::pages::PagePreference;

/// Enough for a packet of 64 KiB in buffers of 2 KiB.
const BUFFERS: u32 = 64;

/// A pool for copies of one packet at a time, made for the first: so what is traced or captured takes nothing from the pool of
/// the traffic, and can be had when that one is short.
#[derive(Debug, Default)]
pub(super) struct Copies(OnceCell<Option<Pool>>);

impl Copies {
    /// A copy; `None` if memory is short.
    #[cold]
    pub(super) fn copy(&self, packet: &Packet) -> Option<Packet> {
        let pool = self.0.get_or_init(|| {
            let config = PoolConfig {
                name: "copies".to_owned(),
                buffers: BUFFERS,
                lanes: 1,
                magazine: Some(0),
                pages: PagePreference::Plain,
                ..PoolConfig::default()
            };
            Pool::new(&config).ok()
        });
        packet.copy_in(pool.as_ref()?)
    }
}
