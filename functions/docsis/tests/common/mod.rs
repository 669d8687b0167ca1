//! What several tests begin with.

use std::sync::LazyLock;

use warmlane_mem::{Pool, PoolConfig};

/// One for all tests of a file.
pub(crate) fn pool() -> &'static Pool {
    static POOL: LazyLock<Pool> =
        LazyLock::new(|| Pool::new(&PoolConfig { buffers: 4_096, ..PoolConfig::default() }).expect("a pool"));
    &POOL
}
