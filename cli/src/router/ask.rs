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
        bail!("{} of {} routes are not as the kernel's", value["differences"], value["routes"]);
    }
    Ok(())
}
