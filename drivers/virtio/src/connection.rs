//! A port's connection: the socket, the thread that keeps it, messages as they come and go.

pub(crate) mod control;
pub(crate) mod inbound;
pub(crate) mod outgoing;
pub(crate) mod role;
