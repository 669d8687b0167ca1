//! The control socket of a running instance: how it is asked from outside, and how instances are found.
//!
//! An instance [opens](Server::open) a Unix socket that only its user can open, and that answers nobody else but root. A [`Service`]
//! answers there on a thread of its own; a program with a loop of its own calls [`Server::serve`] in that instead. What all
//! instances can be asked is a [`Request`], which [`Common`] answers; an instance may know more. A [`Client`] asks, and [`find`] lists
//! who can be asked.
//!
//! # Protocol, version 1
//!
//! A request is a JSON object on a line of at most [`LONGEST_REQUEST`] bytes without the newline; its field `ask` says what is
//! asked. An answer is a JSON object on a line, too. It has the field `error`, a sentence, if the request was not understood or could
//! not be met. Several requests may be sent without waiting for answers, which come in the same order. A longer line is answered with an
//! error, and ends the connection. So do a minute without a request, and ten seconds in which nothing of an answer is read.
//! [`CONNECTIONS`] are served at once, and others wait. An answer's fields may become more within a version; so clients must leave out
//! what they don't know.
//!
//! Promises: whoever sends garbage, says nothing or doesn't read costs nothing but the connection. No lane waits for any of this: lanes
//! only ever write their counters, and the thread reads them.

#![forbid(unsafe_code)]

mod client;
mod common;
mod connection;
mod graph;
mod layout;
mod list;
mod place;
mod protocol;
mod server;
mod service;

pub use client::{Client, ClientError, TIMEOUT};
pub use common::{Common, Handler};
pub use connection::{Answer, Answers, Connection, TakeOver};
pub use graph::{GraphEdge, GraphNode, Graphs, LaneGraphs, PipelineGraph};
pub use layout::{CacheSets, Fixed, Layout, PoolLayout};
pub use list::{Found, State, find};
pub use place::{directory, path_of};
pub use protocol::{
    Described, DescribedReason, Failure, Instance, LONGEST_REQUEST, Request, Stats, VERSION, Value, asks_for,
};
pub use server::{CONNECTIONS, Server, ServerError};
pub use service::{Serve, Service, stand_back};
