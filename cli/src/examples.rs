//! The examples in help texts: each can be copied, and is understood.

use crate::Arguments;
use clap::{Command, CommandFactory, Parser};

/// Longer lines would be wrapped by a terminal of 80 columns, and could not be copied.
const WIDEST: usize = 78;

fn all(command: &Command, found: &mut Vec<(String, String)>) {
    let help = command.get_after_help().or(command.get_after_long_help());
    found.extend(help.map(|help| (command.get_name().to_owned(), help.to_string())));
    command.get_subcommands().for_each(|command| all(command, found));
}

/// Words of the first command of a pipeline as a shell takes them. Examples use quotation marks only.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for letter in line.chars() {
        match (letter, quote) {
            ('\'' | '"', None) => quote = Some(letter),
            (_, Some(mark)) if mark == letter => quote = None,
            (' ', None) => words.push(String::new()),
            ('|', None) => break,
            _ => words.last_mut().unwrap().push(letter),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[test]
fn examples_fit_the_terminal_and_are_understood() {
    let mut found = Vec::new();
    all(&Arguments::command(), &mut found);
    let mut commands = 0;
    for (name, help) in &found {
        // A backslash at the end goes on in the next line.
        let joined = help.replace("\\\n", "\u{b6}");
        for line in joined.lines() {
            // Behind what runs the command with other rights or on other CPUs.
            let Some(start) = line.starts_with("  ").then(|| line.find("warmlane ")).flatten() else {
                continue;
            };
            let widest = line.split('\u{b6}').map(|part| part.chars().count()).max();
            assert!(widest <= Some(WIDEST), "{name}: a line is too long to be copied:\n{line}");
            let parsed = Arguments::try_parse_from(words(&line[start..].replace('\u{b6}', " ")));
            assert!(parsed.is_ok(), "{name}: {line}\n{}", parsed.err().unwrap());
            commands += 1;
        }
    }
    assert!(commands >= 10, "only {commands} examples in {found:?}");
}
