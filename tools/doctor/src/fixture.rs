//! Machines made of a few files.

use crate::finding::{Finding, Status};
use crate::tree::Tree;
use std::fs;
use std::path::Path;

pub(crate) struct Fixture {
    directory: tempfile::TempDir,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    /// A machine with these files, by path and contents.
    pub(crate) fn with(files: &[(&str, &str)]) -> Self {
        let fixture = Self::new();
        for (path, text) in files {
            fixture.write(path, text);
        }
        fixture
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.directory.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Writes a file, and looks what a check makes of the machine then.
    #[track_caller]
    pub(crate) fn expect(&self, path: &str, text: &str, check: fn(Tree) -> Finding, status: Status) {
        self.write(path, text);
        let finding = check(self.tree());
        assert_eq!(finding.status, status, "{finding:?}");
    }

    pub(crate) fn root(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn tree(&self) -> Tree<'_> {
        Tree::new(self.root())
    }
}
