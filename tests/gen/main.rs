//! `warmlane gen`: what it sends, what it measures, what it refuses.

#![forbid(unsafe_code)]

mod errors;
mod memif;
mod methods;
mod namespaces;
mod replay;
mod tshark;
