//! Makes `data/ipv4.table` and `data/ipv6.table` from a list of prefixes.
//!
//! `zcat bgp-prefixes.txt.gz | cargo run --release -p warmlane-forward --example pack_table -- functions/forward/data`
//!
//! Input: one prefix a line, both families, in any order. See `data/README.md` for where the list is from.

use std::error::Error;
use std::io::{BufRead, stdin};
use std::path::PathBuf;

use warmlane_forward::control::full_table::pack;
use warmlane_table::IpPrefix;

fn main() -> Result<(), Box<dyn Error>> {
    let folder: PathBuf = std::env::args_os().nth(1).ok_or("name the folder to write to")?.into();
    let (mut ipv4, mut ipv6) = (Vec::new(), Vec::new());
    for line in stdin().lock().lines() {
        match line?.trim().parse()? {
            IpPrefix::V4(prefix) => ipv4.push(prefix),
            IpPrefix::V6(prefix) => ipv6.push(prefix),
        }
    }
    println!("{} IPv4 and {} IPv6 prefixes", ipv4.len(), ipv6.len());
    std::fs::write(folder.join("ipv4.table"), pack(ipv4)?)?;
    std::fs::write(folder.join("ipv6.table"), pack(ipv6)?)?;
    Ok(())
}
