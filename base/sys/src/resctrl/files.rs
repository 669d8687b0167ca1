//! The few things that are done with the files of resctrl, so that tests can do them with a model of its own.

use std::fmt::Debug;
use std::fs;
use std::io;
use std::path::Path;

pub(super) trait Files: Debug + Send + Sync {
    fn read(&self, path: &Path) -> io::Result<String>;
    /// In one call, as the kernel takes a line only as a whole.
    fn write(&self, path: &Path, text: &str) -> io::Result<()>;
    fn make(&self, directory: &Path) -> io::Result<()>;
    /// A directory with all that the kernel shows in it.
    fn remove(&self, directory: &Path) -> io::Result<()>;
    /// The names of the directories in one; none if it can't be read.
    fn directories(&self, directory: &Path) -> Vec<String>;
    /// Whether there is a process of this number.
    fn is_running(&self, process: u32) -> bool;
}

/// Those of the machine.
#[derive(Debug)]
pub(super) struct Disk;

impl Files for Disk {
    fn read(&self, path: &Path) -> io::Result<String> {
        fs::read_to_string(path)
    }

    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        // Not created: what the kernel doesn't show, it doesn't have.
        let mut file = fs::OpenOptions::new().write(true).open(path)?;
        io::Write::write_all(&mut file, text.as_bytes())
    }

    fn make(&self, directory: &Path) -> io::Result<()> {
        fs::create_dir(directory)
    }

    fn remove(&self, directory: &Path) -> io::Result<()> {
        fs::remove_dir(directory)
    }

    fn directories(&self, directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        directories.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    fn is_running(&self, process: u32) -> bool {
        Path::new(&format!("/proc/{process}")).exists()
    }
}
