//! What is decided before packets flow: configuration, tables, next hops.

pub mod full_table;
