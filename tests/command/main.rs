//! `warmlane demo`, `warmlane docsis` and `warmlane lab`, as somebody sees them who runs them.

#![forbid(unsafe_code)]

mod demo;
mod docsis;
mod lab_report;
