//! `warmlane gen`: what it sends, what it measures, what it refuses.

#![forbid(unsafe_code)]

mod errors;
mod methods;
mod namespaces;
mod processes;
mod replay;
mod tshark;
