//! Pools as those use them who own packets, move them and change them.

#![cfg(not(loom))]

mod buffers;
mod channels;
mod common;
mod lanes;
mod offload;
mod ownership;
mod sharing;
