//! What came of each file when all of its orderings were last weakened: `perf/orderings.json`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::Fate;
use super::mutant::Mutant;
use super::scratch::Subject;
use crate::workspace;

const FILE: &str = "perf/orderings.json";

/// By the path from the repository's root.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(super) struct Record(BTreeMap<String, Weakened>);

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
struct Weakened {
    /// Git's hash of what the file held.
    contents: String,
    caught: usize,
    benign: usize,
    undecided: usize,
    survived: usize,
}

impl Record {
    pub(super) fn read(root: &Path) -> anyhow::Result<Self> {
        match fs::read_to_string(root.join(FILE)) {
            Ok(text) => serde_json::from_str(&text).with_context(|| format!("{FILE} can't be read")),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).with_context(|| format!("cannot read {FILE}")),
        }
    }

    /// Whether a file isn't as it was, or was never weakened.
    pub(super) fn differs(&self, root: &Path, subject: &Subject, file: &str) -> bool {
        let path = path(subject, file);
        let now = contents(root, &path);
        now.is_err() || self.0.get(&path).map(|then| &then.contents) != now.as_ref().ok()
    }

    /// With a crate's files as they fared now, and no others of it.
    pub(super) fn with(
        mut self,
        root: &Path,
        subject: &Subject,
        files: &[String],
        fates: &[(Mutant, Fate)],
    ) -> anyhow::Result<Self> {
        self.0.retain(|path, _| !path.starts_with(subject.folder));
        for file in files {
            let count = |kind: fn(&Fate) -> bool| {
                fates.iter().filter(|(mutant, fate)| mutant.file == *file && kind(fate)).count()
            };
            let path = path(subject, file);
            let weakened = Weakened {
                contents: contents(root, &path)?,
                caught: count(|fate| matches!(fate, Fate::Caught(_))),
                benign: count(|fate| matches!(fate, Fate::Benign(_))),
                undecided: count(|fate| matches!(fate, Fate::TookTooLong(_))),
                survived: count(|fate| *fate == Fate::Survived),
            };
            self.0.insert(path, weakened);
        }
        Ok(self)
    }

    pub(super) fn write(&self, root: &Path) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        fs::write(root.join(FILE), text + "\n").with_context(|| format!("cannot write {FILE}"))
    }
}

fn path(subject: &Subject, file: &str) -> String {
    format!("{}/src/{file}", subject.folder)
}

fn contents(root: &Path, path: &str) -> anyhow::Result<String> {
    workspace::git(root, &["hash-object", path])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutate_orderings::scratch::SUBJECTS;

    #[test]
    fn a_file_differs_until_it_is_weakened_as_it_is() {
        let root = workspace::metadata(None).unwrap().root;
        let (subject, file) = (&SUBJECTS[0], "spin.rs".to_owned());
        let record = Record::default();
        assert!(record.differs(&root, subject, &file));
        let mut record = record.with(&root, subject, std::slice::from_ref(&file), &[]).unwrap();
        assert!(!record.differs(&root, subject, &file));
        record.0.values_mut().for_each(|weakened| weakened.contents.clear());
        assert!(record.differs(&root, subject, &file));
    }
}
