//! What the tests share.

#![allow(dead_code, unused_imports, reason = "not each program of tests uses all")]

pub(crate) mod liar;

use warmlane_mem::{Burst, Pool, PoolConfig};
use warmlane_memif::{Connector, MemifOptions, MemifPort, Role, open};
pub(crate) use warmlane_testkit::exchange::{exchange, lengths, until};
use warmlane_testkit::hostile::{Beside, alone};
use warmlane_testkit::test_lane::TestLane;

pub(crate) fn pool() -> Pool {
    Pool::new(&PoolConfig { buffers: 8192, ..PoolConfig::default() }).unwrap()
}

pub(crate) fn connected(port: &MemifPort) -> bool {
    port.monitor.status().is_some_and(|status| status.connected)
}

/// A socket, the thread that connects by it, and a pool, for ports on this thread as a lane. One at a time. When it goes, no buffer is
/// missing.
pub(crate) struct World {
    pub(crate) connector: Connector,
    pub(crate) pool: Pool,
    pub(crate) socket: String,
    // Goes last.
    _lane: TestLane,
}

impl World {
    pub(crate) fn new() -> Self {
        let lane = TestLane::new(alone(), pool);
        let (socket, pool) = (lane.socket("memif.sock"), lane.pool.clone());
        Self { connector: Connector::default(), pool, socket, _lane: lane }
    }

    /// One of our ports at the socket.
    pub(crate) fn open(&mut self, options: &MemifOptions) -> MemifPort {
        open("ours", options, 1, &self.pool, &mut self.connector).unwrap()
    }

    /// The same with a server at the socket, whose secret is a word.
    pub(crate) fn with_server() -> (Self, MemifPort) {
        let mut world = Self::new();
        let options = MemifOptions::new(&world.socket, Role::Server);
        let server = world.open(&MemifOptions { secret: Some("word".to_owned()), ..options });
        (world, server)
    }

    /// A client that tells the truth comes in to it, and its packets go.
    pub(crate) fn lets_in(&mut self, mut server: MemifPort) {
        let options = MemifOptions::new(&self.socket, Role::Client);
        let mut client = self.open(&MemifOptions { secret: Some("word".to_owned()), ..options });
        until("they are connected", || connected(&client) && connected(&server));
        let (from, to) = (&mut client.port.transmit[0], &mut server.port.receive[0]);
        exchange(&self.pool, &mut **from, &mut **to, &[60, 1514, 9000], usize::MAX);
    }
}

/// Lets queues notice that their connection is gone.
pub(crate) fn notice_the_end(port: &mut MemifPort) {
    let mut nothing = Burst::new();
    port.port.receive[0].receive(&mut nothing);
    nothing.clear();
    port.port.transmit[0].transmit(&mut nothing);
}

/// Two more ports that the connector's thread looks after, to which nobody lies, with packets from one to the other. One pair at a time.
pub(crate) fn undisturbed(connector: &mut Connector) -> Beside {
    let (pool, socket) = (pool(), format!("@undisturbed-{}", std::process::id()));
    let [mut server, mut client] = [Role::Server, Role::Client]
        .map(|role| open("other", &MemifOptions::new(&socket, role), 1, &pool, connector).unwrap());
    until("the others are connected", || connected(&client) && connected(&server));
    Beside::start(pool, client.port.transmit.remove(0), server.port.receive.remove(0))
}
