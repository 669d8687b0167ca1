//! Which interfaces carry default routes.

use super::{Bus, names};
use crate::error::PciError;
use std::collections::BTreeSet;
use std::fs;
use std::io;

/// `RTF_UP` of `/proc/net/route` and `/proc/net/ipv6_route` (`include/uapi/linux/route.h`).
const UP: u32 = 1;
/// `RTF_REJECT`: nothing leaves by such a route.
const REJECT: u32 = 0x200;

fn leaves(flags: Option<&&str>) -> bool {
    flags
        .and_then(|flags| u32::from_str_radix(flags, 16).ok())
        .is_some_and(|flags| flags & (UP | REJECT) == UP)
}

fn ipv4(line: &str) -> Option<String> {
    let words: Vec<_> = line.split_whitespace().collect();
    let is_default = words.get(1) == Some(&"00000000") && words.get(7) == Some(&"00000000");
    (is_default && leaves(words.get(3))).then(|| words[0].to_owned())
}

fn ipv6(line: &str) -> Option<String> {
    let words: Vec<_> = line.split_whitespace().collect();
    let is_default = words.first().is_some_and(|word| word.bytes().all(|byte| byte == b'0'))
        && words.get(1) == Some(&"00");
    let interface = words.get(9).filter(|_| is_default && leaves(words.get(8)))?;
    Some((*interface).to_owned())
}

impl Bus {
    /// The interfaces that default routes leave by, and those below them (of a bond, a bridge, a VLAN).
    ///
    /// # Errors
    /// The kernel doesn't say.
    pub(super) fn default_interfaces(&self) -> Result<BTreeSet<String>, PciError> {
        let read = |file: &str| {
            let path = self.proc.join(file);
            match fs::read_to_string(&path) {
                // A kernel without this version of IP.
                Err(error) if error.kind() == io::ErrorKind::NotFound && self.proc.join("net").is_dir() => {
                    Ok(String::new())
                }
                result => result.map_err(|source| PciError::File { action: "read", path, source }),
            }
        };
        let (ipv4s, ipv6s) = (read("net/route")?, read("net/ipv6_route")?);
        let mut waiting: Vec<_> =
            ipv4s.lines().filter_map(ipv4).chain(ipv6s.lines().filter_map(ipv6)).collect();
        let mut found = BTreeSet::new();
        while let Some(interface) = waiting.pop() {
            let folder = names(&self.sys.join("class/net").join(&interface));
            if found.insert(interface) {
                waiting
                    .extend(folder.iter().filter_map(|name| name.strip_prefix("lower_")).map(str::to_owned));
            }
        }
        Ok(found)
    }
}
