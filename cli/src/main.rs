//! The `warmlane` command.
fn main() {}
