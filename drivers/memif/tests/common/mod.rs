//! What the tests share.

#![allow(dead_code, unused_imports, reason = "not each program of tests uses all")]

pub(crate) mod liar;

use warmlane_mem::{Pool, PoolConfig};
use warmlane_memif::{Connector, MemifOptions, MemifPort, Role, open};
pub(crate) use warmlane_testkit::exchange::{exchange, lengths, until};
use warmlane_testkit::hostile::Beside;

pub(crate) fn pool() -> Pool {
    Pool::new(&PoolConfig { buffers: 8192, ..PoolConfig::default() }).unwrap()
}

pub(crate) fn connected(port: &MemifPort) -> bool {
    port.monitor.status().is_some_and(|status| status.connected)
}

/// Two more ports that the connector's thread looks after, to which nobody lies, with packets from one to the other. One pair at a time.
pub(crate) fn undisturbed(connector: &mut Connector) -> Beside {
    let (pool, socket) = (pool(), format!("@undisturbed-{}", std::process::id()));
    let [mut server, mut client] = [Role::Server, Role::Client]
        .map(|role| open("other", &MemifOptions::new(&socket, role), 1, &pool, connector).unwrap());
    until("the others are connected", || connected(&client) && connected(&server));
    Beside::start(pool, client.port.transmit.remove(0), server.port.receive.remove(0))
}
