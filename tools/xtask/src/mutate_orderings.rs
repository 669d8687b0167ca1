//! `cargo xtask mutate-orderings`: weakens each memory ordering of `base/sync`, or of the depot, in turn and sees whether a test notices.
//!
//! An ordering that can be weakened without any test failing is either stronger than needed or not tested. Those that
//! are known to be of neither kind are in `benign`, each with the reason.

mod benign;
mod mutant;
mod scratch;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use self::benign::BENIGN;
use self::mutant::{CHOICE, find, with_all};
use self::scratch::{Outcome, SUBJECTS, Scratch, Subject};
use crate::workspace;

/// At least so many of a hundred must be caught by a test, known ones included.
const LEAST_CAUGHT: usize = 90;

/// Options of the task.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Whose orderings: `sync` for base/sync, `mem` for the depot's queue in core/mem
    #[arg(long = "crate", value_name = "NAME", default_value = "sync", value_parser = subject)]
    subject: &'static Subject,
    /// Only these files of the crate's src, such as `spin` or `rcu/domain`
    #[arg(long = "file", value_name = "NAME")]
    files: Vec<String>,
    /// Only say what would be changed
    #[arg(long)]
    list: bool,
    /// Seconds for each test program; one that takes longer has noticed
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
}

fn subject(name: &str) -> Result<&'static Subject, String> {
    let known = || SUBJECTS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(" or ");
    let found = SUBJECTS.iter().find(|(known, _)| *known == name).map(|(_, subject)| subject);
    found.ok_or_else(|| format!("there are no models of {name}: it is {}", known()))
}

/// How a mutant fared.
#[derive(Debug, PartialEq)]
enum Fate {
    Caught(&'static str),
    Benign(&'static str),
    Survived,
}

/// Runs the tests with one mutant after the other; fails if one survives that is not known as benign, or too many do.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let workspace = workspace::metadata(None)?;
    let source = workspace.root.join(arguments.subject.folder);
    let usual = arguments.subject.files.iter().map(|&file| file.to_owned());
    let wanted = if arguments.files.is_empty() { usual.collect() } else { arguments.files.clone() };
    let files = files(&source.join("src"), &wanted)?;
    let mut mutants = Vec::new();
    let mut changed = Vec::new();
    for file in &files {
        let text = fs::read_to_string(source.join("src").join(file))
            .with_context(|| format!("cannot read {file}"))?;
        let found = find(file, &text);
        changed.push((Path::new("src").join(file), with_all(&text, &found, mutants.len())));
        mutants.extend(found);
    }
    if arguments.list {
        for mutant in &mutants {
            println!("{mutant}");
        }
        return Ok(());
    }
    let limit = Duration::from_secs(arguments.limit);
    let mut scratch = Scratch::copy(
        arguments.subject,
        &workspace.root,
        &workspace.target_directory.join("mutate-orderings"),
        limit,
    )?;
    for (path, text) in &changed {
        scratch.write(path, text)?;
    }
    scratch.append(Path::new("src/lib.rs"), CHOICE)?;
    eprintln!("{} mutants; first the tests without one", mutants.len());
    scratch.build()?;
    for file in files.iter().filter(|&file| mutants.iter().any(|mutant| mutant.file == *file)) {
        if let Some(name) = scratch.test(file, None)?.noticed() {
            bail!("the {name} tests of {file} fail without a change, or need a longer --limit");
        }
    }
    let (start, mut fates) = (Instant::now(), Vec::new());
    for (number, mutant) in mutants.iter().enumerate() {
        let known = || BENIGN.iter().find(|known| known.is(mutant)).map(|known| Fate::Benign(known.reason));
        let noticed = scratch.test(&mutant.file, Some(number))?.noticed();
        let fate = noticed.map(Fate::Caught).or_else(known).unwrap_or(Fate::Survived);
        match &fate {
            Fate::Caught(by) => println!("caught    {mutant}: {by}"),
            Fate::Benign(reason) => println!("benign    {mutant}: {reason}"),
            Fate::Survived => println!("SURVIVED  {mutant}"),
        }
        eprintln!("{} of {}, {} s", number + 1, mutants.len(), start.elapsed().as_secs());
        fates.push(fate);
    }
    judge(&fates)
}

/// Prints the sum; an error if it is not good enough.
fn judge(fates: &[Fate]) -> anyhow::Result<()> {
    let count = |kind: fn(&Fate) -> bool| fates.iter().filter(|fate| kind(fate)).count();
    let caught = count(|fate| matches!(fate, Fate::Caught(_)));
    let benign = count(|fate| matches!(fate, Fate::Benign(_)));
    let survived = count(|fate| *fate == Fate::Survived);
    println!("{caught} of {} caught, {benign} benign, {survived} survived", fates.len());
    if survived > 0 {
        bail!(
            "{survived} weaker orderings were not noticed: test them, weaken them, or say in benign.rs why not"
        );
    }
    if caught * 100 < fates.len() * LEAST_CAUGHT {
        bail!(
            "only {caught} of {} weaker orderings were caught; at least {LEAST_CAUGHT} % have to be",
            fates.len()
        );
    }
    Ok(())
}

/// The sources below `directory`, relative to it, or those that are `wanted`.
fn files(directory: &Path, wanted: &[String]) -> anyhow::Result<Vec<String>> {
    let mut known = Vec::new();
    let mut folders = vec![directory.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                known.push(path.strip_prefix(directory)?.display().to_string());
            }
        }
    }
    known.sort();
    if wanted.is_empty() {
        return Ok(known);
    }
    let wanted: Vec<String> =
        wanted.iter().map(|name| format!("{}.rs", name.trim_end_matches(".rs"))).collect();
    if let Some(stranger) = wanted.iter().find(|name| !known.contains(name)) {
        bail!("there is no {stranger}: known are {}", known.join(", "));
    }
    Ok(wanted)
}

impl Outcome {
    fn noticed(&self) -> Option<&'static str> {
        match self {
            Self::Passed => None,
            Self::Failed(kind) | Self::TookTooLong(kind) => Some(kind),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_survivor_or_too_few_caught_fail() {
        let caught = || Fate::Caught("loom");
        assert!(judge(&[caught(), caught()]).is_ok());
        let error = judge(&[caught(), Fate::Survived]).unwrap_err().to_string();
        assert!(error.starts_with("1 weaker orderings were not noticed"), "{error}");
        let mut fates: Vec<_> = (0..9).map(|_| caught()).collect();
        fates.push(Fate::Benign("reason"));
        assert!(judge(&fates).is_ok());
        fates.push(Fate::Benign("reason"));
        assert!(judge(&fates).unwrap_err().to_string().starts_with("only 9 of 11"));
    }

    #[test]
    fn what_is_known_as_benign_is_still_there() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../base/sync/src");
        for known in BENIGN {
            let text = fs::read_to_string(source.join(known.file)).unwrap();
            let hits = find(known.file, &text).into_iter().filter(|mutant| known.is(mutant)).count();
            assert_eq!(hits, 1, "{} {}", known.file, known.line);
        }
    }

    #[test]
    fn files_are_chosen_by_name() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../base/sync/src");
        assert!(files(&source, &[]).unwrap().contains(&"rcu/domain.rs".to_owned()));
        let chosen = files(&source, &["spin".to_owned(), "rcu/reader.rs".to_owned()]).unwrap();
        assert_eq!(chosen, ["spin.rs", "rcu/reader.rs"]);
        assert!(files(&source, &["x".to_owned()]).unwrap_err().to_string().starts_with("there is no x.rs"));
    }
}
