//! The tables of the older iptables, which the kernel keeps apart from nf_tables: whether forwarded packets pass rules there.
//!
//! They are read as `iptables-legacy-save` does, by socket options (`include/uapi/linux/netfilter_ipv4/ip_tables.h`,
//! `netfilter_ipv6/ip6_tables.h`). The kernel tells nothing of changes there.

use std::fs;
use std::io;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use warmlane_sys::socket_option::socket_option;

/// The tables of a family: where the kernel names those in use, and how entries are laid out.
struct Family {
    name: &'static str,
    domain: AddressFamily,
    level: i32,
    tables: &'static str,
    /// Where an entry says how far its target is; two bytes on, how far the next entry.
    target_offset: usize,
}

const FAMILIES: [Family; 2] = [
    Family {
        name: "iptables",
        domain: AddressFamily::INET,
        level: 0,
        tables: "/proc/net/ip_tables_names",
        target_offset: 88,
    },
    Family {
        name: "ip6tables",
        domain: AddressFamily::INET6,
        level: 41,
        tables: "/proc/net/ip6_tables_names",
        target_offset: 140,
    },
];

/// `IPT_SO_GET_INFO` and `IPT_SO_GET_ENTRIES`; those of IPv6 have the same numbers.
const GET_INFO: i32 = 64;
const GET_ENTRIES: i32 = 65;

/// Bytes of a table's name in these requests.
const NAME_BYTES: usize = 32;

/// Hooks, and what their chains are called (enum nf_inet_hooks).
const HOOKS: [(usize, &str); 5] =
    [(0, "PREROUTING"), (1, "INPUT"), (2, "FORWARD"), (3, "OUTPUT"), (4, "POSTROUTING")];

/// Those of them that forwarded packets don't pass.
const OF_OWN: [&str; 2] = ["INPUT", "OUTPUT"];

/// A built-in chain that does something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chain {
    pub(super) is_ipv6: bool,
    /// What passes it is for the box itself, or from it.
    pub(super) is_for_own: bool,
    /// As a command that lists it.
    pub(super) command: String,
}

/// All such chains, in this thread's network namespace.
///
/// # Errors
/// The kernel refuses: it needs `CAP_NET_ADMIN`, and root's names of tables. A kernel without iptables is no error.
pub(super) fn chains() -> io::Result<Vec<Chain>> {
    let mut chains = Vec::new();
    for family in &FAMILIES {
        let names = match fs::read_to_string(family.tables) {
            Ok(names) => names,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => {
                return Err(io::Error::new(error.kind(), format!("{}: {error}", family.tables)));
            }
        };
        for table in names.split_whitespace() {
            let busy = in_table(family, table)?;
            chains.extend(busy.into_iter().map(|chain| Chain {
                is_ipv6: family.domain == AddressFamily::INET6,
                is_for_own: OF_OWN.contains(&chain),
                command: format!("{}-legacy -t {table} -S {chain}", family.name),
            }));
        }
    }
    Ok(chains)
}

fn in_table(family: &Family, table: &str) -> io::Result<Vec<&'static str>> {
    // Any socket of the family will do, and this one needs no CAP_NET_RAW, which a running router hasn't got.
    let socket = socket_with(family.domain, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // The table may change between the two requests: then the second is refused.
    for _ in 0..10 {
        let mut info = [0; 84];
        name(&mut info, table);
        match socket_option(&socket, family.level, GET_INFO, &mut info) {
            // Unloaded meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        let info = Info::read(&info);
        let mut entries = vec![0; ENTRIES + info.bytes];
        name(&mut entries, table);
        entries[NAME_BYTES..NAME_BYTES + 4].copy_from_slice(&(info.bytes as u32).to_ne_bytes());
        match socket_option(&socket, family.level, GET_ENTRIES, &mut entries) {
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::AGAIN.raw_os_error()) => {}
            other => {
                other?;
                return Ok(busy(&info, &entries[ENTRIES..], family.target_offset));
            }
        }
    }
    Err(io::Error::other(format!("the table {table} changes all the time")))
}

/// Where entries start in an answer (struct ipt_get_entries).
const ENTRIES: usize = 40;

fn name(request: &mut [u8], table: &str) {
    let length = table.len().min(NAME_BYTES - 1);
    request[..length].copy_from_slice(&table.as_bytes()[..length]);
}

/// What there is of a table (struct ipt_getinfo): for each hook, where its chain starts and where its policy stands.
struct Info {
    hooks: u32,
    first: [usize; 5],
    policy: [usize; 5],
    bytes: usize,
}

impl Info {
    fn read(bytes: &[u8; 84]) -> Self {
        let word = |index: usize| number(bytes, NAME_BYTES + 4 * index).unwrap_or(0);
        Self {
            hooks: word(0),
            first: std::array::from_fn(|hook| word(1 + hook) as usize),
            policy: std::array::from_fn(|hook| word(6 + hook) as usize),
            // Far more than any table has, so that a wrong number takes no memory.
            bytes: (word(12) as usize).min(1 << 28),
        }
    }
}

/// The chains that have rules, or drop what has none.
fn busy(info: &Info, entries: &[u8], target_offset: usize) -> Vec<&'static str> {
    /// The verdict of a target that accepts: -NF_ACCEPT - 1.
    const ACCEPT: u32 = (-2_i32).cast_unsigned();
    /// Bytes of a target in front of its verdict (struct xt_entry_target).
    const TARGET_HEADER: usize = 32;

    let mut chains = Vec::new();
    for (hook, chain) in HOOKS {
        if info.hooks & 1 << hook == 0 {
            continue;
        }
        let policy = info.policy[hook];
        let target = entries.get(policy + target_offset..).and_then(|bytes| bytes.first_chunk::<2>());
        let target = target.map_or(0, |bytes| usize::from(u16::from_ne_bytes(*bytes)));
        let accepts = number(entries, policy + target + TARGET_HEADER) == Some(ACCEPT);
        if info.first[hook] != policy || !accepts {
            chains.push(chain);
        }
    }
    chains
}

fn number(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(offset..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A table of IPv4 with three chains, whose policies stand at these places and say this.
    fn table(rules_in_forward: bool, verdict: i32) -> (Info, Vec<u8>) {
        const ENTRY: usize = 112 + 40;
        let mut entries = vec![0; 4 * ENTRY];
        for entry in 0..4 {
            entries[entry * ENTRY + 88..][..2].copy_from_slice(&112_u16.to_ne_bytes());
            entries[entry * ENTRY + 144..][..4].copy_from_slice(&(-2_i32).to_ne_bytes());
        }
        let forward = if rules_in_forward { 2 } else { 1 };
        entries[forward * ENTRY + 144..][..4].copy_from_slice(&verdict.to_ne_bytes());
        let info = Info {
            hooks: 1 << 2 | 1 << 1,
            first: [0, 0, ENTRY, 0, 0],
            policy: [0, 0, forward * ENTRY, 0, 0],
            bytes: entries.len(),
        };
        (info, entries)
    }

    #[test]
    fn chains_with_rules_or_a_policy_of_drop_count() {
        let of = |rules, verdict| {
            let (info, entries) = table(rules, verdict);
            busy(&info, &entries, 88)
        };
        assert!(of(false, -2).is_empty());
        assert_eq!(of(true, -2), ["FORWARD"]);
        assert_eq!(of(false, -1), ["FORWARD"]);
    }

    proptest! {
        #[test]
        fn any_answer_is_read_without_harm(info in any::<[u8; 32]>(), entries in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut bytes = [0; 84];
            bytes[32..64].copy_from_slice(&info);
            let _ = busy(&Info::read(&bytes), &entries, 140);
        }
    }
}
