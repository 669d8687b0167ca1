//! `warmlane doctor`: what the machine lacks, and how to give it that.

use anyhow::bail;
use serde::Serialize;
use std::fmt::Write as _;
use std::io::Write as _;
use warmlane_doctor::{Finding, Status};
use warmlane_lab::machine::Machine;

/// Check whether this machine is set up well, and say what to change.
///
/// Reads /proc, /sys and /dev; changes nothing and needs no privilege. Each check says what was found, the command
/// that would improve it, and what that is worth. Checks are about this process as well (CPUs, limits, capabilities):
/// run it the way that the data plane will be run.
///
/// Ends with an error only if something prevents every kind of run; slower than possible is no error.
#[derive(Clone, Copy, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Print one JSON object: "findings", and the "machine" that they are about.
    #[arg(long)]
    json: bool,
    /// Leave out checks whose result is good.
    #[arg(long, conflicts_with = "json")]
    brief: bool,
}

const EXAMPLES: &str = "Examples:
  warmlane doctor
  warmlane doctor --brief
  taskset -c 2-7 warmlane doctor --json";

#[derive(Serialize)]
struct Report<'a> {
    findings: &'a [Finding],
    machine: Machine,
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let Arguments { json, brief } = arguments;
    let findings = warmlane_doctor::examine();
    let text = if json {
        serde_json::to_string(&Report { findings: &findings, machine: Machine::this() })? + "\n"
    } else {
        text(&findings, brief)?
    };
    std::io::stdout().lock().write_all(text.as_bytes())?;
    check(&findings)
}

fn check(findings: &[Finding]) -> anyhow::Result<()> {
    let preventing: Vec<_> = findings.iter().filter(|finding| finding.prevents_running).collect();
    if preventing.is_empty() {
        return Ok(());
    }
    let names = preventing.iter().map(|finding| finding.name).collect::<Vec<_>>().join(", ");
    bail!("nothing can run on this machine before this is changed: {names}")
}

/// Most urgent first.
const ORDER: [(Status, &str); 4] = [
    (Status::Problem, "Problems"),
    (Status::CouldBeBetter, "Could be better"),
    (Status::NotKnown, "Not known"),
    (Status::Good, "Good"),
];

fn text(findings: &[Finding], brief: bool) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    for (status, heading) in ORDER {
        let group: Vec<_> = findings.iter().filter(|finding| finding.status == status).collect();
        if group.is_empty() || brief && status == Status::Good {
            continue;
        }
        writeln!(text, "{heading}")?;
        for finding in group {
            let name = match &finding.subject {
                Some(subject) => format!("{} {subject}", finding.name),
                None => finding.name.to_owned(),
            };
            paragraph(&mut text, &format!("  {name:<NAME$}"), &finding.found)?;
            if let Some(remedy) = &finding.remedy {
                paragraph(&mut text, &format!("{:INDENT$}do: ", ""), remedy)?;
            }
            if let Some(worth) = &finding.worth {
                paragraph(&mut text, &format!("{:INDENT$}worth: ", ""), worth)?;
            }
        }
        writeln!(text)?;
    }
    let count = |status| findings.iter().filter(|finding| finding.status == status).count();
    let counts = ORDER.map(|(status, heading)| format!("{}: {}", heading.to_lowercase(), count(status)));
    writeln!(text, "{} checks; {}", findings.len(), counts.join(", "))?;
    Ok(text)
}

/// Columns of a name, and where everything else begins.
const NAME: usize = 24;
const INDENT: usize = NAME + 2;
/// As wide as the help texts.
const WIDTH: usize = 100;

/// Adds a text that is wrapped between words and indented under its first line.
fn paragraph(text: &mut String, first: &str, words: &str) -> std::fmt::Result {
    let indent = " ".repeat(first.chars().count());
    let options = textwrap::Options::new(WIDTH).initial_indent(first).subsequent_indent(&indent);
    writeln!(text, "{}", textwrap::fill(words, options.break_words(false)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings() -> Vec<Finding> {
        let finding = |name, status, prevents_running| Finding {
            name,
            subject: None,
            status,
            found: "something that is long enough to need a second line when it is printed to a terminal"
                .to_owned(),
            remedy: Some("`command`".to_owned()),
            worth: None,
            prevents_running,
        };
        vec![
            finding("governor", Status::Good, false),
            Finding {
                subject: Some("eth0".to_owned()),
                ..finding("interface", Status::CouldBeBetter, false)
            },
            finding("free-memory", Status::Problem, true),
        ]
    }

    #[test]
    fn problems_come_first_and_lines_stay_narrow() {
        let text = text(&findings(), false).unwrap();
        let at = |word: &str| text.find(word).unwrap();
        assert!(at("free-memory") < at("interface eth0") && at("interface eth0") < at("governor"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(text.contains("\n                          do: `command`\n"), "{text}");
        assert!(
            text.ends_with("3 checks; problems: 1, could be better: 1, not known: 0, good: 1\n"),
            "{text}"
        );
    }

    #[test]
    fn brief_leaves_out_what_is_good() {
        assert!(!text(&findings(), true).unwrap().contains("governor"));
    }

    #[test]
    fn only_what_prevents_running_is_an_error() {
        let mut findings = findings();
        assert!(check(&findings).unwrap_err().to_string().ends_with(": free-memory"));
        findings[2].prevents_running = false;
        check(&findings).unwrap();
    }

    #[test]
    fn the_json_form_keeps_its_names() {
        let findings = findings();
        let json = serde_json::to_value(Report { findings: &findings, machine: Machine::this() }).unwrap();
        assert_eq!(json["findings"][1]["status"], "could-be-better");
        assert_eq!(json["findings"][1]["subject"], "eth0");
        assert_eq!(json["findings"][2]["prevents_running"], true);
        assert!(json["machine"]["cycles_per_second"].as_u64().is_some());
    }
}
