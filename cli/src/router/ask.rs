//! Requests to a running router.

use crate::messages;
use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use std::net::IpAddr;
use std::path::Path;
use warmlane::control::{Client, ClientError};

use super::answer;

/// What a running router can be asked.
#[derive(clap::Subcommand, Debug)]
pub(crate) enum Request {
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
    /// Neighbours on its interfaces.
    #[command(alias = "neighbors")]
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

pub(crate) fn run(request: &Request, socket: &Path, as_json: bool) -> anyhow::Result<()> {
    let line = match request {
        Request::Status => json!({ "ask": "status" }),
        Request::Counters => json!({ "ask": "counters" }),
        Request::Routes { address, limit, table } => {
            json!({ "ask": "routes", "address": address, "limit": limit, "table": table })
        }
        Request::Neighbours { limit } => json!({ "ask": "neighbours", "limit": limit }),
        Request::Verify => json!({ "ask": "verify" }),
        Request::Reload => json!({ "ask": "reload" }),
    };
    let at = || format!("no router answers at {}: start one, or say --socket", socket.display());
    let answer = match Client::connect(socket).and_then(|mut client| client.ask_for_line(&line)) {
        Err(ClientError::Refused(sentence)) => bail!("{sentence}"),
        answer => answer.with_context(at)?,
    };
    let value: Value = serde_json::from_str(&answer).context("the router's answer is no JSON")?;
    if as_json {
        messages::print(answer)?;
    } else {
        messages::print(answer::text(request, &value))?;
    }
    if value["equal"] == false {
        bail!(unequal(&value));
    }
    Ok(())
}

/// How much a comparison has found. Lanes have routes, paths inside the kernel decide, and what their programs go by is neither.
fn unequal(value: &Value) -> String {
    let counts = ["routes", "decisions"].map(|name| (value[name].as_u64().unwrap_or(0), name));
    let compared: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, name)| format!("{count} {name}"))
        .collect();
    let compared =
        if compared.is_empty() { String::new() } else { format!(" ({} compared)", compared.join(" and ")) };
    format!("not as the kernel: {} difference(s){compared}", value["differences"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_compared_is_said() {
        let told = |routes, decisions| {
            unequal(&json!({ "differences": 3, "routes": routes, "decisions": decisions }))
        };
        assert_eq!(told(7, 0), "not as the kernel: 3 difference(s) (7 routes compared)");
        assert_eq!(told(0, 5), "not as the kernel: 3 difference(s) (5 decisions compared)");
        assert_eq!(told(7, 5), "not as the kernel: 3 difference(s) (7 routes and 5 decisions compared)");
        assert_eq!(told(0, 0), "not as the kernel: 3 difference(s)");
    }
}
