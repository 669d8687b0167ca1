//! `warmlane router` in the kernel's place: between its hosts, beside its daemons, and when things go wrong.

#![forbid(unsafe_code)]

mod boxes;
mod captures;
mod daemons;
mod decisions;
mod devices;
mod egress;
mod established;
mod evpn;
mod fail_closed;
mod guest;
mod hosts;
mod idle;
mod interfaces;
mod ip_tunnels;
mod lanes;
mod like_the_kernel;
mod neighbours;
mod operation;
mod paths;
mod policy;
mod refusals;
mod reload;
mod scan;
mod service;
mod state;
mod sysctls;
mod table;
mod traps;
mod trouble;
mod tunnels;
mod urpf;
