//! `warmlane demo` and `warmlane lab`, as somebody sees them who runs them.

#![forbid(unsafe_code)]

mod demo;
mod lab_report;
