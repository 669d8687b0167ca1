//! An interface's folder under `/sys/class/net`.

use std::fs;
use std::path::{Path, PathBuf};

pub(crate) struct Sysfs(PathBuf);

impl Sysfs {
    /// `None` if sysfs isn't mounted, or is that of another network namespace, which then knows no such interface
    /// or has given it another number.
    pub(crate) fn of(name: &str, index: u32) -> Option<Self> {
        let sysfs = Self(Path::new("/sys/class/net").join(name));
        (sysfs.number("ifindex") == Some(index)).then_some(sysfs)
    }

    pub(crate) fn number(&self, file: &str) -> Option<u32> {
        fs::read_to_string(self.0.join(file)).ok()?.trim().parse().ok()
    }

    /// The last part of what a link points to.
    pub(crate) fn target(&self, link: &str) -> Option<String> {
        Some(fs::read_link(self.0.join(link)).ok()?.file_name()?.to_string_lossy().into_owned())
    }

    /// How many queues there are whose names begin so.
    pub(crate) fn queues(&self, prefix: &str) -> Option<u32> {
        let entries = fs::read_dir(self.0.join("queues")).ok()?.flatten();
        let count = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix)).count();
        u32::try_from(count).ok().filter(|count| *count > 0)
    }
}
