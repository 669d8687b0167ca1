//! The kernel's pools of huge pages.

use std::fs;
use std::path::Path;

use crate::text::{format_bytes, read_number, read_text};

/// Where the kernel describes the pools of the whole machine (`Documentation/admin-guide/mm/hugetlbpage.rst`).
const MACHINE_POOLS: &str = "/sys/kernel/mm/hugepages";

/// The pages of one size that are set aside, in the machine or in one NUMA node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HugePagePool {
    /// Bytes of one page.
    pub page_bytes: u64,
    /// Pages in the pool, used or not.
    pub total: u64,
    /// Pages that are in no mapping.
    pub free: u64,
    /// Free pages that a mapping has reserved but not touched yet; zero where not told (per node).
    pub reserved: u64,
}

impl HugePagePool {
    /// Pages that a new mapping can get.
    pub fn obtainable(&self) -> u64 {
        self.free.saturating_sub(self.reserved)
    }

    /// How many pages the pool must have in total so that a new mapping gets `pages` of them.
    pub fn total_for(&self, pages: u64) -> u64 {
        self.total + pages.saturating_sub(self.obtainable())
    }
}

/// The machine's pools, smallest page first; empty if the kernel has no huge pages.
pub fn machine_pools() -> Vec<HugePagePool> {
    pools_at(Path::new(MACHINE_POOLS))
}

/// The pools in a `hugepages` directory: the machine's, or a NUMA node's.
pub(crate) fn pools_at(directory: &Path) -> Vec<HugePagePool> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut pools: Vec<_> = entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name();
            let kilobytes: u64 =
                name.to_str()?.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
            let path = entry.path();
            Some(HugePagePool {
                page_bytes: kilobytes.checked_mul(1024)?,
                total: read_number(&path.join("nr_hugepages"))?,
                free: read_number(&path.join("free_hugepages"))?,
                reserved: read_number(&path.join("resv_hugepages")).unwrap_or(0),
            })
        })
        .collect();
    pools.sort_unstable_by_key(|pool| pool.page_bytes);
    pools
}

/// The command that makes the machine's pool of this page size `total` pages large.
pub fn reserve_command(page_bytes: u64, total: u64) -> String {
    // `vm.nr_hugepages` speaks of the default size, which is 2 MiB unless the boot command line says otherwise.
    if page_bytes == 2 << 20 && default_page_bytes() == Some(page_bytes) {
        format!("`sysctl vm.nr_hugepages={total}`")
    } else {
        let kilobytes = page_bytes / 1024;
        let file = format!("{MACHINE_POOLS}/hugepages-{kilobytes}kB/nr_hugepages");
        let boot = if page_bytes >= 1 << 30 {
            format!(
                ", or `hugepagesz=1G hugepages={total}` on the boot command line while memory is unfragmented"
            )
        } else {
            String::new()
        };
        format!("`echo {total} > {file}`{boot}")
    }
}

fn default_page_bytes() -> Option<u64> {
    crate::text::kilobyte_field(&fs::read_to_string("/proc/meminfo").ok()?, "Hugepagesize")
}

/// Transparent huge pages as the kernel is set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransparentHugePages {
    /// For private memory: `always`, `madvise` or `never`.
    pub private: Option<String>,
    /// For shared memory (memfd): `always`, `within_size`, `advise`, `never`, `deny` or `force`.
    pub shared: Option<String>,
    /// Bytes of one such page; 2 MiB except on Arm with 16 KiB or 64 KiB base pages.
    pub page_bytes: Option<u64>,
}

/// How this machine's transparent huge pages are set up; every field is `None` if the kernel has none.
pub fn transparent() -> TransparentHugePages {
    transparent_at(Path::new("/sys/kernel/mm/transparent_hugepage"))
}

pub(crate) fn transparent_at(directory: &Path) -> TransparentHugePages {
    let chosen = |file| crate::text::chosen_word(&read_text(&directory.join(file))?).map(str::to_owned);
    TransparentHugePages {
        private: chosen("enabled"),
        shared: chosen("shmem_enabled"),
        page_bytes: read_number(&directory.join("hpage_pmd_size")),
    }
}

impl std::fmt::Display for HugePagePool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} pages: {} of {} free", format_bytes(self.page_bytes), self.obtainable(), self.total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(root: &Path, kilobytes: u64, files: &[(&str, u64)]) {
        let directory = root.join(format!("hugepages-{kilobytes}kB"));
        fs::create_dir_all(&directory).unwrap();
        for (name, value) in files {
            fs::write(directory.join(name), format!("{value}\n")).unwrap();
        }
    }

    #[test]
    fn pools_are_read_smallest_first() {
        let root = tempfile::tempdir().unwrap();
        pool(root.path(), 1_048_576, &[("nr_hugepages", 2), ("free_hugepages", 1)]);
        pool(root.path(), 2048, &[("nr_hugepages", 64), ("free_hugepages", 32), ("resv_hugepages", 30)]);
        pool(root.path(), 64, &[("nr_hugepages", 9)]);
        let pools = pools_at(root.path());
        assert_eq!(pools.len(), 2, "a pool without a free count is not usable: {pools:?}");
        assert_eq!(pools[0], HugePagePool { page_bytes: 2 << 20, total: 64, free: 32, reserved: 30 });
        assert_eq!(pools[0].obtainable(), 2);
        assert_eq!(pools[0].total_for(2), 64);
        assert_eq!(pools[0].total_for(10), 72);
        assert_eq!(pools[0].to_string(), "2 MiB pages: 2 of 64 free");
        assert_eq!(pools[1].page_bytes, 1 << 30);
        assert!(pools_at(&root.path().join("nothing")).is_empty());
    }

    #[test]
    fn the_command_names_the_file_of_the_size() {
        let command = reserve_command(1 << 30, 3);
        assert!(
            command.contains("echo 3 > ") && command.contains("hugepages-1048576kB/nr_hugepages"),
            "{command}"
        );
        assert!(command.contains("hugepagesz=1G hugepages=3"), "{command}");
    }

    #[test]
    fn transparent_settings() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(
            transparent_at(root.path()),
            TransparentHugePages { private: None, shared: None, page_bytes: None }
        );
        fs::write(root.path().join("enabled"), "always [madvise] never\n").unwrap();
        fs::write(root.path().join("shmem_enabled"), "always within_size [advise] never deny force\n")
            .unwrap();
        fs::write(root.path().join("hpage_pmd_size"), "2097152\n").unwrap();
        let settings = transparent_at(root.path());
        assert_eq!(settings.private.as_deref(), Some("madvise"));
        assert_eq!(settings.shared.as_deref(), Some("advise"));
        assert_eq!(settings.page_bytes, Some(2 << 20));
    }
}
