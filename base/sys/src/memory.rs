//! How much memory this process may take.

use std::fs;
use std::path::Path;

use crate::text::{kilobyte_field, read_number};

/// Bytes that can be taken without swapping or waking the out-of-memory killer: what the kernel estimates
/// (`MemAvailable`), or the limit of a control group above this process if that is lower. `None` if
/// the kernel does not tell.
pub fn available() -> Option<u64> {
    let machine = kilobyte_field(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable")?;
    let membership = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limit = group_limit(Path::new("/sys/fs/cgroup"), &membership);
    Some(limit.map_or(machine, |limit| machine.min(limit)))
}

/// The lowest `memory.max` from this process's version 2 control group up to the root. In a container that sees
/// only its own group, the path in `/proc/self/cgroup` may not exist below `/sys/fs/cgroup`; then the root's counts.
fn group_limit(root: &Path, membership: &str) -> Option<u64> {
    let path = membership.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let own = root.join(path);
    own.ancestors()
        .take_while(|group| group.starts_with(root))
        // "max" isn't a number: no limit at this level.
        .filter_map(|group| read_number(&group.join("memory.max")))
        .min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_limit_on_the_way_up_counts() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("slice/service");
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join("memory.max"), "max\n").unwrap();
        fs::write(root.path().join("slice/memory.max"), "1048576\n").unwrap();
        fs::write(root.path().join("memory.max"), "4194304\n").unwrap();
        assert_eq!(group_limit(root.path(), "0::/slice/service\n"), Some(1 << 20));
        assert_eq!(
            group_limit(root.path(), "0::/elsewhere\n"),
            Some(4 << 20),
            "the root's, seen from a container"
        );
        assert_eq!(group_limit(root.path(), "4:memory:/slice\n"), None, "version 1 has other files");
    }

    #[test]
    fn this_machine_has_some() {
        assert!(available().is_some_and(|bytes| bytes > 1 << 20));
    }
}
