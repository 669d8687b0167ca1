//! The file behind a writer: under a temporary name until it is whole.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Write},
    path::{Path, PathBuf},
};

use crate::PcapError;

/// A file that takes its name when it is finished.
#[derive(Debug)]
pub(crate) struct Output {
    file: File,
    /// The name it is to have.
    path: PathBuf,
    /// The name it has until then; `None` for what has to be written in place.
    partial: Option<PathBuf>,
    /// Bytes up to the end of the last whole block that was written.
    length: u64,
}

impl Output {
    pub(crate) fn create(path: &Path) -> Result<Self, PcapError> {
        // A symbolic link stays one: the file that it names is replaced.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        // A named pipe into Wireshark or /dev/null cannot be renamed into place, nor may they be replaced.
        let in_place = fs::metadata(&path).is_ok_and(|metadata| !metadata.is_file());
        let partial = if in_place { None } else { partial_name(&path) };
        let target = partial.as_deref().unwrap_or(&path);
        let opened = if in_place { OpenOptions::new().write(true).open(target) } else { claim(target) };
        match opened {
            Ok(file) => Ok(Self { file, path, partial, length: 0 }),
            Err(source) => Err(PcapError::Create { file: target.to_owned(), source }),
        }
    }

    /// The name that the bytes are under now.
    pub(crate) fn written_path(&self) -> &Path {
        self.partial.as_deref().unwrap_or(&self.path)
    }

    /// Appends whole records. When that fails, the file is cut back to what it was, as far as it can be, so that
    /// it does not end in half a record.
    pub(crate) fn append(&mut self, records: &[u8]) -> io::Result<()> {
        let result = self.file.write_all(records);
        match result {
            Ok(()) => self.length += records.len() as u64,
            Err(_) if self.partial.is_some() => {
                // If even this fails, the reader of the file finds its truncated end; the first error tells more.
                let _ = self.file.set_len(self.length);
            }
            Err(_) => {}
        }
        result
    }

    /// Brings the file to the disk and gives it its name: whoever finds the name finds a whole file, also after
    /// a power failure.
    pub(crate) fn finish(&self) -> Result<(), PcapError> {
        let Some(partial) = &self.partial else { return Ok(()) };
        self.file
            .sync_all()
            .and_then(|()| fs::rename(partial, &self.path))
            .map_err(|source| PcapError::Finish { file: self.path.clone(), partial: partial.clone(), source })
    }

    /// Removes what was written under the temporary name.
    pub(crate) fn abandon(&self) {
        if let Some(partial) = &self.partial {
            // If it can't be removed it is found by its name, and the next writer empties it.
            let _ = fs::remove_file(partial);
        }
    }
}

/// Creates the file, or empties what a program that died has left of it; but not what another one is writing.
fn claim(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
    // File systems without locks have to do without this check.
    if let Err(TryLockError::WouldBlock) = file.try_lock() {
        return Err(io::Error::new(io::ErrorKind::WouldBlock, "another writer is writing this file"));
    }
    file.set_len(0)?;
    Ok(file)
}

/// `directory/.name.partial`: hidden, and on the same file system, so that renaming is atomic. `None` for a path
/// without a file name, which cannot be created either.
fn partial_name(path: &Path) -> Option<PathBuf> {
    let mut name = OsString::from(".");
    name.push(path.file_name()?);
    name.push(".partial");
    Some(path.with_file_name(name))
}
