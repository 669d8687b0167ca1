//! That logs are only appended to, by the repository's history.

use std::path::Path;

use crate::record::{FOLDER, log};
use crate::workspace;

/// Complaints about commits, and changes that are in none, that removed or changed lines of logs.
pub(super) fn check(root: &Path) -> anyhow::Result<Vec<String>> {
    let logs = format!(":(top,glob){FOLDER}/**/*.{}", log::SUFFIX);
    let history = workspace::git(
        root,
        &["log", "-m", "--first-parent", "--numstat", "--format=commit %h", "--", &logs],
    )?;
    let pending = workspace::git(root, &["diff", "HEAD", "--numstat", "--", &logs])?;
    let mut commit = "a change that is in no commit";
    let mut complaints = Vec::new();
    for line in pending.lines().chain(history.lines()) {
        if let Some(name) = line.strip_prefix("commit ") {
            commit = name;
        } else if let Some([_, removed, file]) = fields(line)
            && removed != "0"
        {
            complaints.push(format!("{file}: {removed} of its lines were removed or changed by {commit}; a log is only appended to"));
        }
    }
    Ok(complaints)
}

fn fields(line: &str) -> Option<[&str; 3]> {
    line.splitn(3, '\t').collect::<Vec<_>>().try_into().ok()
}
