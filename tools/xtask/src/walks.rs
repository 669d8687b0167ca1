//! What documents name is there: functions and types in the walks through the code in docs/architecture.md, and files where
//! newcomers look what to write where.
//!
//! A walk is a section whose heading ends in "walk", such as "A packet's walk". Names in it are those in backquotes that have
//! `::` in them or end in `()`: `Type::method`, `module::function`, `function()`.

use crate::workspace;
use std::path::Path;

const DOCUMENT: &str = "docs/architecture.md";
/// Sections that say what to write where.
const GUIDES: [(&str, &str); 2] = [("CONTRIBUTING.md", "Find your way"), (DOCUMENT, "A driver")];
const WALKS: [&str; 2] = ["A packet's walk", "A route's walk"];
/// A walk with fewer names is none.
const FEWEST: usize = 5;
/// Where crates are.
const FOLDERS: [&str; 8] = ["base", "core", "drivers", "functions", "assembly", "warmlane", "tools", "cli"];

/// A source file: its path below the repository's folder, and its text.
struct Source {
    path: String,
    text: String,
}

/// The names of code in a section; none if there is no such section.
fn names<'a>(document: &'a str, heading: &str) -> Vec<&'a str> {
    quoted(document, heading).filter(|word| word.contains("::") || word.ends_with("()")).collect()
}

/// The files and folders in a section, given by their path from `root`. A pattern in braces stands for none.
fn paths<'a>(root: &Path, document: &'a str, heading: &str) -> Vec<&'a str> {
    let is_path = |word: &&str| word.split_once('/').is_some_and(|(folder, _)| root.join(folder).is_dir());
    quoted(document, heading).filter(is_path).filter(|word| !word.contains('{')).collect()
}

/// What stands in backquotes in a section.
fn quoted<'a>(document: &'a str, heading: &str) -> impl Iterator<Item = &'a str> {
    let is_heading = |line: &str| line.starts_with('#');
    let lines = document.lines();
    let section = lines
        .skip_while(move |line| !(is_heading(line) && line.trim_start_matches('#').trim() == heading))
        .skip(1)
        .take_while(move |line| !is_heading(line));
    // Every second piece is in backquotes.
    section.flat_map(|line| line.split('`').skip(1).step_by(2))
}

/// Whether a text has this word behind one of these.
fn has(text: &str, before: &[&str], word: &str) -> bool {
    before.iter().any(|before| {
        text.match_indices(&format!("{before} {word}")).any(|(start, found)| {
            let bounded =
                |letter: Option<char>| letter.is_none_or(|letter| !letter.is_alphanumeric() && letter != '_');
            bounded(text[..start].chars().next_back()) && bounded(text[start + found.len()..].chars().next())
        })
    })
}

const TYPES: [&str; 4] = ["struct", "enum", "trait", "type"];
const ITEMS: [&str; 8] = ["fn", "struct", "enum", "trait", "type", "const", "mod", "macro_rules!"];

/// Whether the code has what a name says: of `Type::method` both in files of one crate, of `module::item` the item in a
/// file of that module.
fn exists(sources: &[Source], name: &str) -> bool {
    let name = name.trim_end_matches("()");
    let mut parts: Vec<&str> = name.split("::").collect();
    let Some(last) = parts.pop() else { return false };
    let Some(owner) = parts.pop() else {
        return sources.iter().any(|source| has(&source.text, &["fn"], last));
    };
    if owner.starts_with(char::is_uppercase) {
        let room = |path: &str| path.split("/src/").next().unwrap_or(path).to_owned();
        let homes: Vec<String> = sources
            .iter()
            .filter(|source| has(&source.text, &TYPES, owner))
            .map(|source| room(&source.path))
            .collect();
        let in_same_crate = |source: &&Source| homes.contains(&room(&source.path));
        let mentions = |source: &&Source| source.text.contains(owner);
        // A variant of an enumeration begins with a capital as well.
        let found =
            |source: &Source| has(&source.text, &["fn", "const"], last) || has(&source.text, &[""], last);
        return sources.iter().filter(in_same_crate).filter(mentions).any(|source| {
            if last.starts_with(char::is_uppercase) {
                found(source)
            } else {
                has(&source.text, &["fn"], last)
            }
        });
    }
    let of_module = |source: &&Source| source.path.split(['/', '.']).any(|part| part == owner);
    sources.iter().filter(of_module).any(|source| has(&source.text, &ITEMS, last))
}

fn sources(root: &Path) -> Vec<Source> {
    let mut folders: Vec<_> = FOLDERS.iter().map(|folder| root.join(folder)).collect();
    let mut sources = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let path = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
                sources.push(Source { path, text });
            }
        }
    }
    sources
}

#[test]
fn walks_name_what_exists() {
    let root = workspace::metadata(None).unwrap().root;
    let document = std::fs::read_to_string(root.join(DOCUMENT)).unwrap();
    let sources = sources(&root);
    for walk in WALKS {
        let names = names(&document, walk);
        assert!(
            names.len() >= FEWEST,
            "{DOCUMENT} has no section \"{walk}\" with {FEWEST} names of functions"
        );
        let missing: Vec<_> = names.into_iter().filter(|name| !exists(&sources, name)).collect();
        assert!(missing.is_empty(), "{DOCUMENT}, {walk}: the code has no {}", missing.join(", "));
    }
}

#[test]
fn newcomers_are_sent_to_files_that_exist() {
    let root = workspace::metadata(None).unwrap().root;
    for (file, heading) in GUIDES {
        let document = std::fs::read_to_string(root.join(file)).unwrap();
        let paths = paths(&root, &document, heading);
        assert!(paths.len() >= FEWEST, "{file} has no section \"{heading}\" with {FEWEST} paths");
        let missing: Vec<_> = paths.into_iter().filter(|path| !root.join(path).exists()).collect();
        assert!(missing.is_empty(), "{file}, {heading}: there is no {}", missing.join(", "));
    }
}

#[test]
fn names_are_looked_up_in_their_own_crate() {
    let source = |path: &str, text: &str| Source { path: path.to_owned(), text: text.to_owned() };
    let sources = [
        source("core/mem/src/pool.rs", "pub struct Pool {}\nimpl Pool { pub fn attach(&self) {} }"),
        source("core/mem/src/burst.rs", "pub enum Room { Full }\nfn take_all() {}"),
        source("core/table/src/trie.rs", "fn lookup_burst() {} fn attached() {}"),
    ];
    for name in [
        "Pool::attach",
        "mem::Pool",
        "pool::Pool::attach",
        "burst::take_all",
        "take_all()",
        "Room::Full",
        "trie::lookup_burst",
    ] {
        assert!(exists(&sources, name), "{name}");
    }
    for name in [
        "Pool::attached",
        "Pool::take",
        "Depot::attach",
        "table::take_all",
        "take()",
        "pool::take_all",
        "Room::Empty",
    ] {
        assert!(!exists(&sources, name), "{name}");
    }
}

#[test]
fn only_the_section_s_names_count() {
    let text =
        "# A\n`a::b`\n## A packet's walk\nfrom `Port::open` and `x` to\n`take()`, `c::d`\n## B\n`e::f`\n";
    assert_eq!(names(text, WALKS[0]), ["Port::open", "take()", "c::d"]);
    assert!(names(text, WALKS[1]).is_empty());
}
