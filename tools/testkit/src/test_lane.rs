//! What a test of a port to another process has.

use std::sync::MutexGuard;

use tempfile::TempDir;
use warmlane_mem::{LaneThread, Pool};

/// A test whose thread is a lane, with a pool of which no buffer is missing when it ends, and a folder for sockets.
#[derive(Debug)]
pub struct TestLane {
    /// Where packets come from.
    pub pool: Pool,
    folder: TempDir,
    _lane: LaneThread,
    _alone: MutexGuard<'static, ()>,
}

impl TestLane {
    /// Begins; `alone` keeps those from running that would be in the way.
    ///
    /// # Panics
    /// If no temporary folder can be made.
    pub fn new(alone: MutexGuard<'static, ()>, pool: impl FnOnce() -> Pool) -> Self {
        let lane = LaneThread::enter();
        let folder = tempfile::tempdir().expect("there is a folder for temporary files");
        Self { pool: pool(), folder, _lane: lane, _alone: alone }
    }

    /// The path of a socket.
    ///
    /// # Panics
    /// Never: the folder's name is text.
    pub fn socket(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().expect("the folder's name is text").to_owned()
    }
}

impl Drop for TestLane {
    /// Unless the test has failed already.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.pool.ledger().outstanding(), 0, "buffers are missing");
        }
    }
}
