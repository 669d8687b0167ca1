//! `cargo xtask mutate-orderings`: weakens each memory ordering of `base/sync`, of the depot or of exact match in turn and sees
//! whether a test notices.
//!
//! An ordering that can be weakened without any test failing is either stronger than needed or not tested. Those that
//! are known to be of neither kind are in `benign`, each with the reason; files that are left out are in `uncovered`.

mod benign;
mod mutant;
mod record;
mod scratch;
#[cfg(test)]
mod uncovered;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use self::benign::BENIGN;
use self::mutant::{CHOICE, Mutant, find, with_all};
use self::record::Record;
use self::scratch::{Outcome, SUBJECTS, Scratch, Subject};
use crate::workspace::{self, Metadata};

/// At least so many of a hundred must be caught by a test, known ones included.
const LEAST_CAUGHT: usize = 90;

/// Options of the task.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Whose orderings: `sync` for base/sync, `mem` for the depot's queue in core/mem, `table` for exact match in core/table
    #[arg(long = "crate", value_name = "NAME", default_value = "sync", value_parser = subject, conflicts_with = "changed")]
    subject: &'static Subject,
    /// Only these files of the crate's src, such as `spin` or `rcu/domain`
    #[arg(long = "file", value_name = "NAME")]
    files: Vec<String>,
    /// Only files that have changed since perf/orderings.json was written, of all three crates
    #[arg(long, conflicts_with_all = ["files", "record"])]
    changed: bool,
    /// Write what came of the crate to perf/orderings.json
    #[arg(long, conflicts_with = "files")]
    record: bool,
    /// Only say what would be weakened
    #[arg(long)]
    list: bool,
    /// Seconds for each test program; one that takes longer has noticed nothing yet
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
}

fn subject(name: &str) -> Result<&'static Subject, String> {
    let known = || SUBJECTS.iter().map(|subject| subject.name).collect::<Vec<_>>().join(", ");
    let found = SUBJECTS.iter().find(|subject| subject.name == name);
    found.ok_or_else(|| format!("there are no models of {name}: known are {}", known()))
}

/// How a mutant fared.
#[derive(Debug, PartialEq)]
enum Fate {
    Caught(&'static str),
    Benign(&'static str),
    /// Its tests were still running when their time was up: they may loop for the weaker ordering, or just be slow.
    TookTooLong(&'static str),
    Survived,
}

/// Runs the tests with one mutant after the other; fails if one survives that is not known as benign, or too many do.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let workspace = workspace::metadata(None)?;
    let known = Record::read(&workspace.root)?;
    let subjects: Vec<_> =
        if arguments.changed { SUBJECTS.iter().collect() } else { vec![arguments.subject] };
    let mut all = Vec::new();
    for subject in subjects {
        let usual = subject.files.iter().map(|&file| file.to_owned());
        let wanted = if arguments.files.is_empty() { usual.collect() } else { arguments.files.clone() };
        let mut files = files(&workspace.root.join(subject.folder).join("src"), &wanted)?;
        if arguments.changed {
            files.retain(|file| known.differs(&workspace.root, subject, file));
            println!("{}: {} files have changed since they were last weakened", subject.folder, files.len());
        }
        let fates = weaken(subject, &files, &workspace, arguments)?;
        if arguments.record && !arguments.list {
            known.clone().with(&workspace.root, subject, &files, &fates)?.write(&workspace.root)?;
        }
        all.extend(fates.into_iter().map(|(_, fate)| fate));
    }
    if arguments.list { Ok(()) } else { judge(&all) }
}

/// Weakens each ordering of these files of a crate by itself, and says how it fared.
fn weaken(
    subject: &'static Subject,
    files: &[String],
    workspace: &Metadata,
    arguments: &Arguments,
) -> anyhow::Result<Vec<(Mutant, Fate)>> {
    let source = workspace.root.join(subject.folder).join("src");
    let (mut mutants, mut changed) = (Vec::new(), Vec::new());
    for file in files {
        let text = fs::read_to_string(source.join(file)).with_context(|| format!("cannot read {file}"))?;
        let found = find(file, &text);
        changed.push((Path::new("src").join(file), with_all(&text, &found, mutants.len())));
        mutants.extend(found);
    }
    if arguments.list {
        for mutant in &mutants {
            println!("{mutant}");
        }
        return Ok(Vec::new());
    }
    if mutants.is_empty() {
        return Ok(Vec::new());
    }
    let limit = Duration::from_secs(arguments.limit);
    let directory = workspace.target_directory.join("mutate-orderings");
    let mut scratch = Scratch::copy(subject, &workspace.root, &directory, limit)?;
    for (path, text) in &changed {
        scratch.write(path, text)?;
    }
    scratch.append(Path::new("src/lib.rs"), CHOICE)?;
    eprintln!("{} mutants; first the tests without one", mutants.len());
    scratch.build()?;
    for file in files.iter().filter(|&file| mutants.iter().any(|mutant| mutant.file == *file)) {
        match scratch.test(file, None)? {
            Outcome::Passed => {}
            Outcome::Failed(kind) => bail!("the {kind} tests of {file} fail without a change"),
            Outcome::TookTooLong(kind) => bail!("the {kind} tests of {file} need a longer --limit"),
        }
    }
    let (start, count, mut fates) = (Instant::now(), mutants.len(), Vec::new());
    for (number, mutant) in mutants.into_iter().enumerate() {
        let known = BENIGN.iter().find(|known| known.is(&mutant));
        let fate = match (scratch.test(&mutant.file, Some(number))?, known) {
            (Outcome::Failed(kind), _) => Fate::Caught(kind),
            (_, Some(known)) => Fate::Benign(known.reason),
            (Outcome::TookTooLong(kind), None) => Fate::TookTooLong(kind),
            (Outcome::Passed, None) => Fate::Survived,
        };
        match &fate {
            Fate::Caught(by) => println!("caught    {mutant}: {by}"),
            Fate::Benign(reason) => println!("benign    {mutant}: {reason}"),
            Fate::TookTooLong(kind) => println!("UNDECIDED {mutant}: {kind} tests didn't end in time"),
            Fate::Survived => println!("SURVIVED  {mutant}"),
        }
        eprintln!("{} of {count}, {} s", number + 1, start.elapsed().as_secs());
        fates.push((mutant, fate));
    }
    Ok(fates)
}

/// Prints the sum; an error if it is not good enough.
fn judge(fates: &[Fate]) -> anyhow::Result<()> {
    let count = |kind: fn(&Fate) -> bool| fates.iter().filter(|fate| kind(fate)).count();
    let caught = count(|fate| matches!(fate, Fate::Caught(_)));
    let benign = count(|fate| matches!(fate, Fate::Benign(_)));
    let survived = count(|fate| *fate == Fate::Survived);
    let slow = count(|fate| matches!(fate, Fate::TookTooLong(_)));
    println!("{caught} of {} caught, {benign} benign, {slow} undecided, {survived} survived", fates.len());
    if slow > 0 {
        bail!("{slow} weaker orderings had tests that did not end in time: give them more by --limit");
    }
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

#[cfg(test)]
mod tests {
    use super::uncovered::UNCOVERED;
    use super::*;

    #[test]
    fn a_survivor_or_too_few_caught_fail() {
        let caught = || Fate::Caught("loom");
        assert!(judge(&[caught(), caught()]).is_ok());
        let error = judge(&[caught(), Fate::Survived]).unwrap_err().to_string();
        assert!(error.starts_with("1 weaker orderings were not noticed"), "{error}");
        let error = judge(&[caught(), Fate::TookTooLong("loom")]).unwrap_err().to_string();
        assert!(error.starts_with("1 weaker orderings had tests that did not end"), "{error}");
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
    fn each_file_with_orderings_is_weakened_or_listed_with_a_reason() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut wrong = Vec::new();
        for room in ["base", "core", "drivers", "functions"] {
            for file in files(&root.join(room), &[]).unwrap().iter().filter(|file| file.contains("/src/")) {
                let path = format!("{room}/{file}");
                let text = fs::read_to_string(root.join(&path)).unwrap();
                let covered = SUBJECTS.iter().any(|subject| subject.weakens(&path));
                let listed = UNCOVERED.iter().any(|(known, _)| *known == path);
                let has = !find(&path, &text).is_empty();
                if listed != (has && !covered) {
                    wrong.push(path);
                }
            }
        }
        assert_eq!(wrong, Vec::<String>::new());
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
