//! What an instance has counted, for Prometheus and whoever else reads its formats.
//!
//! [`expose`] writes a registry as text, in one of two [`Format`]s, under the names that [`Name`] makes. A [`Server`] answers
//! `GET /metrics` with it, `/stats.json` with what `warmlane stats --json` prints, `/graph.json` with the graphs of lanes, and `/` with a
//! page that shows these in a browser. Nothing can be changed by it. It listens on the loopback; elsewhere only with a [`Token`].
//!
//! What is counted is declared where it is counted, by `counters!` (`base/counters`): a new metric needs no change here.
//!
//! Promises: whoever sends garbage, says nothing or doesn't read costs nothing but the connection. At most [`CONNECTIONS`] are open, and
//! when one more comes, the oldest goes; so idle ones keep nobody out. No lane waits for any of this: lanes only ever write their counters.

#![forbid(unsafe_code)]

mod access;
mod connection;
mod exposition;
mod name;
mod page;
mod request;
mod server;

pub use access::{Access, Token, TokenError};
pub use exposition::{Format, Identity, expose};
pub use name::{Name, Unit};
pub use request::{Document, LONGEST_REQUEST, respond};
pub use server::{CONNECTIONS, Server, ServerError};
