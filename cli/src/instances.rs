//! `warmlane ls`, and how the other commands find the instance that they are about.

use crate::messages;
use anyhow::{Context as _, bail};
use serde_json::json;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};
use warmlane::control::{self, Client, Found, State};

/// List the running instances that can be asked.
///
/// Those of this user: their control sockets are in /run/warmlane for root, in $XDG_RUNTIME_DIR/warmlane for others, or in
/// /tmp/warmlane-NUMBER for users without that directory. A `dead` one was left behind by an instance that was killed; the next one of that name replaces it, and
/// `--prune` removes it.
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Print a JSON list.
    #[arg(long)]
    json: bool,
    /// Remove the sockets of dead ones first, and say which.
    #[arg(long)]
    prune: bool,
    /// Look for control sockets here.
    #[arg(long, value_name = "PATH")]
    directory: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  What runs here (as root):
    warmlane ls

  The numbers of their processes, for a script:
    warmlane ls --json | jq '.[].pid'";

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let directory = arguments.directory.clone().unwrap_or_else(control::directory);
    let mut found = find(&directory)?;
    if arguments.prune {
        prune(&mut found)?;
    }
    messages::print_list(&found, arguments.json, as_json, text)
}

/// Removes the sockets of dead instances, and takes those off the list.
fn prune(found: &mut Vec<Found>) -> anyhow::Result<()> {
    for one in std::mem::take(found) {
        let removed =
            one.remove_dead().with_context(|| format!("{} can't be removed", one.path.display()))?;
        if removed {
            messages::note(format_args!("removed {}, which a killed instance had left", one.path.display()));
        } else {
            found.push(one);
        }
    }
    Ok(())
}

fn find(directory: &Path) -> anyhow::Result<Vec<Found>> {
    control::find(directory)
        .with_context(|| format!("the control sockets in {} can't be listed", directory.display()))
}

/// Running instances in the usual place, each with what it is and its socket.
pub(crate) fn running() -> anyhow::Result<Vec<(String, PathBuf)>> {
    let all = find(&control::directory())?.into_iter();
    let running = all.filter_map(|Found { name, path, state }| match state {
        State::Running(instance) => {
            Some((format!("{name} ({}, process {})", instance.kind, instance.pid), path))
        }
        State::Dead | State::Unknown(_) => None,
    });
    Ok(running.collect())
}

fn as_json(found: &Found) -> serde_json::Value {
    let mut object = match &found.state {
        State::Running(instance) => json!({
            "state": "running", "pid": instance.pid, "kind": instance.kind, "since": since(instance.since),
            "version": instance.version, "protocol": instance.protocol,
        }),
        State::Dead => json!({ "state": "dead" }),
        State::Unknown(error) => json!({ "state": "unknown", "error": error.to_string() }),
    };
    object["name"] = json!(found.name);
    object["socket"] = json!(found.path.display().to_string());
    object
}

/// A moment as RFC 3339 has it.
fn since(seconds: u64) -> String {
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(seconds)).to_string()
}

fn text(found: &[Found]) -> String {
    let mut text = String::new();
    let width = found.iter().map(|found| found.name.chars().count()).max().unwrap_or(0).max(4);
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{:<width$}  {:<8} {:>8}  {:<20}  socket", "name", "kind", "pid", "since");
    for Found { name, path, state } in found {
        let path = path.display();
        let _ = match state {
            State::Running(instance) => writeln!(
                text,
                "{name:<width$}  {:<8} {:>8}  {:<20}  {path}",
                instance.kind,
                instance.pid,
                since(instance.since)
            ),
            State::Dead => writeln!(text, "{name:<width$}  {:<8} {:>8}  {:<20}  {path}", "dead", "-", "-"),
            State::Unknown(error) => {
                writeln!(text, "{name:<width$}  {:<8} {:>8}  {:<20}  {path} ({error})", "unknown", "-", "-")
            }
        };
    }
    text
}

/// Connects to the instance at a socket, and checks that it is understood.
pub(crate) fn connect(path: &Path) -> anyhow::Result<Client> {
    let mut client = Client::connect(path)?;
    client.instance()?;
    Ok(client)
}

/// Which instance is asked.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct InstanceFlags {
    /// Which instance: its name, as `warmlane ls` shows it, the number of its process, or the path of its control socket. Not
    /// needed if only one runs.
    #[arg(value_name = "NAME")]
    name: Option<String>,
}

impl InstanceFlags {
    /// Connects to it, and checks that it is understood.
    pub(crate) fn connect(&self) -> anyhow::Result<Client> {
        connect(&self.path()?)
    }

    /// Where its socket is.
    pub(crate) fn path(&self) -> anyhow::Result<PathBuf> {
        let directory = control::directory();
        if let Some(name) = &self.name {
            let path = control::path_of(name);
            if name.contains('/') {
                return Ok(PathBuf::from(name));
            } else if path.exists() {
                return Ok(path);
            }
        }
        let found = find(&directory)?;
        let mut running: Vec<&Found> =
            found.iter().filter(|found| matches!(found.state, State::Running(_))).collect();
        if let Some(name) = &self.name {
            let has_number = |found: &&Found| match &found.state {
                State::Running(instance) => instance.pid.to_string() == *name,
                _ => false,
            };
            let path = running.iter().copied().find(has_number).map(|found| found.path.clone());
            return path.with_context(|| {
                format!("there is no instance '{name}' in {}: `warmlane ls` lists them", directory.display())
            });
        }
        match (running.pop(), &running[..]) {
            (Some(found), []) => Ok(found.path.clone()),
            (None, _) => bail!(
                "no instance runs that has its control socket in {}: name one by the path of its socket",
                directory.display()
            ),
            (Some(last), others) => {
                let names = others.iter().chain([&last]).map(|found| found.name.as_str());
                bail!("several instances run: name one of {}", names.collect::<Vec<_>>().join(", "))
            }
        }
    }
}
