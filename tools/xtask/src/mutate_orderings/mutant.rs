//! What to change: finding the orderings in a source file.

use std::fmt;
use std::ops::Range;

/// One ordering that a file has, to be made weaker.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Mutant {
    /// Relative to the crate's `src`.
    pub(super) file: String,
    /// From 1.
    number: usize,
    /// The line, without what surrounds it.
    pub(super) line: String,
    /// What is written there.
    was: &'static str,
    /// What to put there.
    pub(super) becomes: &'static str,
    range: Range<usize>,
}

const FENCES: &[(&str, &[&str])] = &[
    // A fence of relaxed ordering there is not.
    ("fence(Ordering::Acquire)", &["()"]),
    ("fence(Ordering::Release)", &["()"]),
    ("fence(Ordering::AcqRel)", &["fence(Ordering::Acquire)", "fence(Ordering::Release)"]),
    ("fence(Ordering::SeqCst)", &["fence(Ordering::AcqRel)"]),
];

const ACCESSES: &[(&str, &[&str])] = &[
    ("Ordering::Acquire", &["Ordering::Relaxed"]),
    ("Ordering::Release", &["Ordering::Relaxed"]),
    ("Ordering::AcqRel", &["Ordering::Acquire", "Ordering::Release"]),
    // What is next weaker depends on the access: see `weaker_than_sequential`.
    (SEQUENTIAL, &["Ordering::AcqRel"]),
];

const SEQUENTIAL: &str = "Ordering::SeqCst";

/// The orderings below sequential consistency for the access in `code` before it: a load can't release and a store can't acquire.
fn weaker_than_sequential(before: &str) -> &'static [&'static str] {
    let last = |access| before.rfind(access);
    match (last(".load("), last(".store(")) {
        (load, store) if load > store => &["Ordering::Acquire"],
        (_, Some(_)) => &["Ordering::Release"],
        _ => &["Ordering::AcqRel"],
    }
}

/// All single weakenings of the code in `text`, its tests left out.
pub(super) fn find(file: &str, text: &str) -> Vec<Mutant> {
    let end = text.find("#[cfg(all(test").or(text.find("#[cfg(test)]")).unwrap_or(text.len());
    let mut mutants = Vec::new();
    let mut start = 0;
    for (index, whole) in text[..end].split_inclusive('\n').enumerate() {
        let code = whole.find("//").map_or(whole, |comment| &whole[..comment]);
        let mut at = 0;
        while let Some((offset, was, weaker)) = next(&code[at..]) {
            let range = start + at + offset..start + at + offset + was.len();
            let sequential = was == SEQUENTIAL;
            let weaker = if sequential { weaker_than_sequential(&code[..at + offset]) } else { weaker };
            for &becomes in weaker {
                let (file, line) = (file.to_owned(), whole.trim().to_owned());
                mutants.push(Mutant { file, number: index + 1, line, was, becomes, range: range.clone() });
            }
            at += offset + was.len();
        }
        start += whole.len();
    }
    mutants
}

/// The first ordering in `code` that can be weaker: where, what, and what it may become.
fn next(code: &str) -> Option<(usize, &'static str, &'static [&'static str])> {
    let hit = |&(was, weaker): &(&'static str, &'static [&'static str])| {
        code.find(was).map(|offset| (offset, was, weaker))
    };
    // A fence starts before the ordering in it.
    FENCES.iter().chain(ACCESSES).filter_map(hit).min_by_key(|&(offset, ..)| offset)
}

/// `text` with all of its mutants inside, of which the environment picks one by its number when the program runs (Untch,
/// Offutt and Harrold, "Mutation Analysis Using Mutant Schemata", ISSTA 1993): all of them for one build. `first` is the
/// number of the first.
pub(super) fn with_all(text: &str, mutants: &[Mutant], first: usize) -> String {
    let mut changed = text.to_owned();
    let mut last = mutants.len();
    // From the back, so that ranges in front stay valid. Those of one range come together.
    while let Some(mutant) = last.checked_sub(1).map(|index| &mutants[index]) {
        let begin = mutants[..last].iter().position(|other| other.range == mutant.range).unwrap_or(last - 1);
        let body = "crate::mutants::is";
        let choice = (begin..last).fold(String::new(), |text, index| {
            format!("{text}if {body}({}) {{ {} }} else ", first + index, mutants[index].becomes)
        });
        changed.replace_range(mutant.range.clone(), &format!("({choice}{{ {} }})", mutant.was));
        last = begin;
    }
    changed
}

/// What a crate with mutants needs, and the variable that picks one.
pub(super) const CHOICE: &str = r#"
mod mutants {
    pub(crate) fn is(number: usize) -> bool {
        static CHOSEN: std::sync::OnceLock<Option<usize>> = std::sync::OnceLock::new();
        *CHOSEN.get_or_init(|| std::env::var("ORDERING_MUTANT").ok()?.parse().ok()) == Some(number)
    }
}
"#;
pub(super) const VARIABLE: &str = "ORDERING_MUTANT";

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, number, line, was, becomes, .. } = self;
        write!(f, "{file}:{number}: {was} -> {becomes} in `{line}`")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
//! Not Ordering::Acquire in a comment.
fn code() {
    a.swap(1, Ordering::AcqRel); // nor Ordering::Release here
    a.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed);
    a.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire);
    fence(Ordering::SeqCst);
    fence(Ordering::Release);
    a.load(Ordering::Relaxed);
}
#[cfg(all(test, not(loom)))]
mod tests {
    fn test() {
        a.load(Ordering::Acquire);
    }
}
";

    #[test]
    fn each_ordering_is_weakened_once_in_each_way() {
        let found: Vec<_> = find("a.rs", TEXT).iter().map(|m| (m.number, m.was, m.becomes)).collect();
        assert_eq!(
            found,
            [
                (3, "Ordering::AcqRel", "Ordering::Acquire"),
                (3, "Ordering::AcqRel", "Ordering::Release"),
                (4, "Ordering::Acquire", "Ordering::Relaxed"),
                (5, "Ordering::AcqRel", "Ordering::Acquire"),
                (5, "Ordering::AcqRel", "Ordering::Release"),
                (5, "Ordering::Acquire", "Ordering::Relaxed"),
                (6, "fence(Ordering::SeqCst)", "fence(Ordering::AcqRel)"),
                (7, "fence(Ordering::Release)", "()"),
            ]
        );
    }

    #[test]
    fn sequential_consistency_is_weakened_to_what_the_access_can_be() {
        let becomes = |code: &str| find("a.rs", code).iter().map(|mutant| mutant.becomes).collect::<Vec<_>>();
        assert_eq!(becomes("a.load(Ordering::SeqCst)"), ["Ordering::Acquire"]);
        assert_eq!(becomes("a.store(true, Ordering::SeqCst)"), ["Ordering::Release"]);
        assert_eq!(becomes("a.swap(true, Ordering::SeqCst)"), ["Ordering::AcqRel"]);
    }

    #[test]
    fn all_are_in_one_text_each_under_its_number() {
        let mutants = find("a.rs", TEXT);
        let changed = with_all(TEXT, &mutants, 10);
        let different: Vec<_> = TEXT
            .lines()
            .zip(changed.lines())
            .filter(|(old, new)| old != new)
            .map(|(_, new)| new.trim())
            .collect();
        assert_eq!(different.len(), 5);
        assert_eq!(
            different[0],
            "a.swap(1, (if crate::mutants::is(10) { Ordering::Acquire } else if crate::mutants::is(11) { \
             Ordering::Release } else { Ordering::AcqRel })); // nor Ordering::Release here"
        );
        assert_eq!(different[4], "(if crate::mutants::is(17) { () } else { fence(Ordering::Release) });");
        assert_eq!(
            mutants[7].to_string(),
            "a.rs:7: fence(Ordering::Release) -> () in `fence(Ordering::Release);`"
        );
    }
}
