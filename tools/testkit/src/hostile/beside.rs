//! Traffic of others, which goes on while somebody lies.

use crate::exchange::exchange;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use warmlane_mem::{LaneThread, Pool};
use warmlane_port::{ReceiveQueue, TransmitQueue};

/// Packets that go from one port to another on a lane of their own, and are compared, until this ends.
#[derive(Debug)]
pub struct Beside {
    stop: Arc<AtomicBool>,
    /// Until it has ended.
    lane: Option<JoinHandle<u64>>,
    pool: Pool,
}

/// Bytes of the packets of a round.
const LENGTHS: [usize; 3] = [60, 1_514, 9_000];

impl Beside {
    /// Begins. The two are connected already.
    pub fn start(pool: Pool, mut from: Box<dyn TransmitQueue>, mut to: Box<dyn ReceiveQueue>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, packets) = (Arc::clone(&stop), pool.clone());
        let lane = std::thread::spawn(move || {
            let _lane = LaneThread::enter();
            let mut rounds = 0;
            while !stopped.load(Ordering::Relaxed) {
                exchange(&packets, &mut *from, &mut *to, &LENGTHS, usize::MAX);
                rounds += 1;
            }
            drop((from, to));
            rounds
        });
        Self { stop, lane: Some(lane), pool }
    }

    /// Ends it.
    ///
    /// # Panics
    /// If a packet was lost or changed, none went, or a buffer is missing.
    pub fn end(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let lane = self.lane.take().expect("it ends once");
        let rounds = lane.join().expect("all packets came as they were sent");
        assert!(rounds > 0, "no packets went meanwhile");
        assert_eq!(self.pool.ledger().outstanding(), 0);
    }
}

impl Drop for Beside {
    /// Where a test has failed: the next one needs its ports.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(lane) = self.lane.take() {
            let _ = lane.join();
        }
    }
}
