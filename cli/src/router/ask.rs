//! Asks a running router.

use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// What a running router can be asked.
#[derive(clap::Subcommand, Debug)]
pub(crate) enum Question {
    /// Its ports, tables and warnings.
    Status,
    /// What lanes and ports have counted, and what was heard from the kernel.
    Counters,
    /// What its tables hold, or what packets to one address find.
    Routes {
        /// Only what packets to this address find.
        address: Option<IpAddr>,
        /// At most so many.
        #[arg(long, value_name = "COUNT")]
        limit: Option<usize>,
        /// Which table; 0 is the one outside of VRFs.
        #[arg(long, value_name = "NUMBER", default_value_t = 0)]
        table: u16,
    },
    /// Stations on its interfaces.
    Neighbours {
        /// At most so many.
        #[arg(long, value_name = "COUNT")]
        limit: Option<usize>,
    },
    /// Lists the kernel's routes anew, and compares. The exit status is 0 only if all is equal.
    Verify,
    /// Read the configuration file again. What can't be changed while it runs is named, and then nothing is changed.
    Reload,
}

pub(crate) fn run(question: &Question, socket: &Path, as_json: bool) -> anyhow::Result<()> {
    let line = match question {
        Question::Status => json!({ "ask": "status" }),
        Question::Counters => json!({ "ask": "counters" }),
        Question::Routes { address, limit, table } => {
            json!({ "ask": "routes", "address": address, "limit": limit, "table": table })
        }
        Question::Neighbours { limit } => json!({ "ask": "neighbours", "limit": limit }),
        Question::Verify => json!({ "ask": "verify" }),
        Question::Reload => json!({ "ask": "reload" }),
    };
    let at = || format!("no router answers at {}: start one, or say --socket", socket.display());
    let mut stream = UnixStream::connect(socket).with_context(at)?;
    stream.write_all(format!("{line}\n").as_bytes()).with_context(at)?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).with_context(at)?;
    let value: Value = serde_json::from_str(&answer).context("the router's answer is no JSON")?;
    if let Some(error) = value["error"].as_str() {
        bail!("{error}");
    }
    if as_json {
        print!("{answer}");
    } else {
        print!("{}", text(question, &value));
    }
    if value["equal"] == false {
        bail!("{} of {} routes are not as the kernel's", value["differences"], value["routes"]);
    }
    Ok(())
}

/// The answer for people.
fn text(question: &Question, value: &Value) -> String {
    let list = |name: &str| value[name].as_array().cloned().unwrap_or_default();
    let word = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let mut lines: Vec<String> = Vec::new();
    match question {
        Question::Routes { .. } => {
            let routes = list("routes");
            for route in &routes {
                lines.push(format!("{:<43} {}", word(&route["prefix"]), word(&route["leads_to"])));
            }
            if routes.len() > 1 {
                lines.push(format!("{} of {} routes", routes.len(), value["total"]));
            }
        }
        Question::Neighbours { .. } => {
            for known in list("neighbours") {
                let [interface, address, mac, state] =
                    ["interface", "address", "mac", "state"].map(|name| word(&known[name]));
                lines.push(format!("{interface:<15} {address:<39} {mac:<17} {state}"));
            }
        }
        Question::Verify => {
            lines.extend(list("first").iter().map(word));
            if value["equal"] == true {
                lines.push(format!("equal: {} routes are as the kernel's", value["routes"]));
            }
        }
        Question::Reload => {
            lines.extend(list("changed").iter().map(word));
            if lines.is_empty() {
                lines.push("nothing is different".to_owned());
            }
        }
        Question::Status | Question::Counters => lines.push(format!("{value:#}")),
    }
    lines.push(String::new());
    lines.join("\n")
}
