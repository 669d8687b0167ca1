//! `warmlane demo`, `warmlane docsis`, `warmlane lab`, and running instances asked from outside, as somebody sees them who runs them.

#![forbid(unsafe_code)]

mod capture;
mod control;
mod demo;
mod docsis;
mod forwarder;
mod lab_report;
mod memory_traffic;
mod messages;
mod metrics;
mod observe;
mod page;
mod predict;
mod top;
mod trace;
mod tracepoints;
mod walk_through;
