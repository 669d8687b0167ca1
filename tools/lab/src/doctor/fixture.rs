//! Machines made of a few files.

use std::fs;
use std::path::Path;

pub(super) struct Fixture {
    directory: tempfile::TempDir,
}

impl Fixture {
    pub(super) fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    /// A machine with these files, by path and contents.
    pub(super) fn with(files: &[(&str, &str)]) -> Self {
        let fixture = Self::new();
        for (path, text) in files {
            fixture.write(path, text);
        }
        fixture
    }

    pub(super) fn write(&self, path: &str, text: &str) {
        let path = self.directory.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(super) fn root(&self) -> &Path {
        self.directory.path()
    }

    pub(super) fn tree(&self) -> super::Tree<'_> {
        super::Tree::new(self.root())
    }
}
