//! `cargo xtask record --machine NAME -- COMMAND`: what a command measured, kept in `perf/figures/NAME` with the command and
//! the machine.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use serde_json::{Map, Value, json};

use crate::workspace::{self, Metadata};

/// The folder of the records, below the repository's root: in it one for each machine.
pub(super) const FOLDER: &str = "perf/figures";

/// Options of the task.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// What this machine is called: the folder of its records below perf/figures, such as zen5
    #[arg(long, value_name = "NAME", value_parser = name)]
    machine: String,
    /// A command that prints one JSON object a line, such as `cargo xtask compare lpm4 --json`
    #[arg(required = true, last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Runs the command and keeps each of its results in a file of its own. Results that are void are not kept.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let Metadata { root, .. } = workspace::metadata(None)?;
    let [program, rest @ ..] = arguments.command.as_slice() else { bail!("name a command to run") };
    let output = Command::new(program)
        .args(rest)
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("{program} does not start"))?;
    if !output.status.success() {
        bail!("{program} failed ({}), and nothing was recorded", output.status);
    }
    let date = Command::new("date").args(["--utc", "+%F"]).output().context("date does not start")?;
    let measured = json!({
        "command": shown(&arguments.command),
        "date": String::from_utf8_lossy(&date.stdout).trim(),
    });
    let text = String::from_utf8(output.stdout).context("the command printed something else than text")?;
    let mut void = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        match kept(line, &measured)? {
            Kept::Record { path, record } => {
                let file = root.join(FOLDER).join(&arguments.machine).join(path).with_extension("json");
                if let Some(folder) = file.parent() {
                    fs::create_dir_all(folder)
                        .with_context(|| format!("cannot make {}", folder.display()))?;
                }
                let text = serde_json::to_string_pretty(&record)? + "\n";
                fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
                println!("{}", file.strip_prefix(&root).unwrap_or(&file).display());
            }
            Kept::Void(reason) => void.push(reason),
        }
    }
    if !void.is_empty() {
        bail!("not recorded, since they do not count: {}", void.join("; "));
    }
    Ok(())
}

/// What becomes of a result.
#[derive(Debug, PartialEq)]
enum Kept {
    /// The path of its record below the folder, without the suffix.
    Record { path: String, record: Value },
    /// It doesn't count, for this reason.
    Void(String),
}

/// A name of a file or folder, which needs no quoting in documents.
fn name(name: &str) -> anyhow::Result<String> {
    if name.is_empty() || name.contains(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-') {
        bail!("'{name}' can't be a file's name");
    }
    Ok(name.to_owned())
}

fn kept(line: &str, measured: &Value) -> anyhow::Result<Kept> {
    let result: Map<String, Value> = serde_json::from_str(line)
        .with_context(|| format!("a JSON object a line was expected (--json?), not: {line}"))?;
    let name = result.get("name").and_then(Value::as_str);
    let name = self::name(name.with_context(|| format!("the result has no name: {line}"))?)?;
    if let Some(reason) = result.get("void").and_then(Value::as_str) {
        return Ok(Kept::Void(format!("{name} is void, {reason}")));
    }
    // The kind tells from the fields: comparisons have a peer, experiments a table.
    let kind = ["peer_name", "columns"].map(|field| result.contains_key(field));
    let kind = match kind {
        [true, _] => "compare",
        [_, true] => "lab",
        _ => "bench",
    };
    let path = format!("{kind}/{name}");
    let mut record = result;
    record.insert("measured".to_owned(), measured.clone());
    Ok(Kept::Record { path, record: Value::Object(record) })
}

/// The command as one would type it: without the folder that the program lies in, which is another one on each machine.
fn shown(command: &[String]) -> String {
    let program = |word: &String| {
        let name = Path::new(word).file_name().map(|name| name.to_string_lossy().into_owned());
        name.unwrap_or_else(|| word.clone())
    };
    let plain = |word: &String| {
        if word.contains(|letter: char| letter.is_whitespace() || letter == '\'') {
            format!("'{}'", word.replace('\'', r"'\''"))
        } else {
            word.clone()
        }
    };
    let [first, rest @ ..] = command else { return String::new() };
    [program(first)].iter().chain(rest).map(plain).collect::<Vec<_>>().join(" ")
}

/// Reads a record.
pub(super) fn read(file: &Path) -> anyhow::Result<Value> {
    let text = fs::read_to_string(file).context("there is no such record: cargo xtask record makes it")?;
    let record: Value = serde_json::from_str(&text).context("the record is no JSON")?;
    if record.get("measured").is_none() {
        bail!("the file is no record of `cargo xtask record`");
    }
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(line: &str) -> String {
        match kept(line, &json!({"command": "x"})).unwrap() {
            Kept::Record { path, record } => {
                assert_eq!(record["measured"]["command"], "x");
                path
            }
            Kept::Void(reason) => reason,
        }
    }

    #[test]
    fn results_are_kept_by_kind_and_name() {
        assert_eq!(path(r#"{"name":"lpm4","peer_name":"rte_fib","void":null}"#), "compare/lpm4");
        assert_eq!(path(r#"{"name":"copy","columns":[]}"#), "lab/copy");
        assert_eq!(path(r#"{"name":"replay-drop","median":1.0}"#), "bench/replay-drop");
    }

    #[test]
    fn what_does_not_count_is_not_kept() {
        let reason = path(r#"{"name":"lpm4","peer_name":"rte_fib","void":"ours has two modes"}"#);
        assert_eq!(reason, "lpm4 is void, ours has two modes");
        let error = |line| kept(line, &Value::Null).unwrap_err().to_string();
        assert!(error("lpm4 against rte_fib").contains("a JSON object a line"));
        assert!(error("{}").contains("no name"));
        assert!(error(r#"{"name":"../lpm4"}"#).contains("can't be a file's name"));
    }

    #[test]
    fn commands_are_shown_as_typed() {
        let words = ["sh", "-c", "echo it's"].map(str::to_owned);
        assert_eq!(shown(&words), r"sh -c 'echo it'\''s'");
    }

    #[test]
    fn a_program_s_own_folder_is_not_recorded() {
        for program in
            ["/home/me/my target/release/warmlane", "target/release/warmlane", "./warmlane", "warmlane"]
        {
            let words = [program, "lab", "copy", "--pcap", "./frames.pcap"].map(str::to_owned);
            assert_eq!(shown(&words), "warmlane lab copy --pcap ./frames.pcap");
        }
    }

    #[test]
    fn only_records_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.json");
        assert!(read(&file).unwrap_err().to_string().contains("no such record"));
        fs::write(&file, "{\"ratio\":2}").unwrap();
        assert!(read(&file).unwrap_err().to_string().contains("no record of"));
        fs::write(&file, "{\"ratio\":2,\"measured\":{}}").unwrap();
        assert_eq!(read(&file).unwrap()["ratio"], 2);
    }
}
