//! Metrics from the command line: where they are offered, and who may read them.

use crate::control_socket::fixed;
use crate::messages;
use anyhow::{Context as _, bail};
use clap::Args;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use warmlane::assembly::Assembly;
use warmlane::control::{Fixed, Service};
use warmlane::counters::Registry;
use warmlane::lane::LaneView;
use warmlane::metrics::{Identity, Server, ServerError, Token};

/// Where what this instance counts can be read by Prometheus.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Metrics")]
pub(crate) struct MetricsFlags {
    /// Offer what is counted to Prometheus at http://ADDRESS:PORT/metrics (OpenMetrics), and to a browser as a page at
    /// http://ADDRESS:PORT/; without ADDRESS on 127.0.0.1. Addresses that others can reach need --metrics-token-file. Port 0 is any
    /// that is free.
    #[arg(long, value_name = "[ADDRESS:]PORT", global = true, value_parser = address)]
    metrics: Option<SocketAddr>,
    /// Only who shows the token in this file (`Authorization: Bearer`) may read the metrics. It crosses the network as it is:
    /// take a tunnel or a proxy with TLS where others can listen.
    #[arg(long, value_name = "FILE", global = true)]
    metrics_token_file: Option<PathBuf>,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let on_loopback = |port| SocketAddr::from((IpAddr::from(Ipv4Addr::LOCALHOST), port));
    let port = text.parse::<u16>().map(on_loopback).ok();
    port.or_else(|| text.parse().ok()).ok_or_else(|| {
        "give a port, or an address and a port, as in 9469, 192.0.2.1:9469 or [::1]:9469".to_owned()
    })
}

impl MetricsFlags {
    /// Whether any of them is given.
    pub(crate) const fn are_given(&self) -> bool {
        self.metrics.is_some() || self.metrics_token_file.is_some()
    }

    /// Listens, if that is asked for. Nobody is answered yet.
    pub(crate) fn open(&self) -> anyhow::Result<Option<Server>> {
        let Some(address) = self.metrics else {
            if self.metrics_token_file.is_some() {
                bail!("--metrics-token-file is for --metrics, which says where");
            }
            return Ok(None);
        };
        let token = self.metrics_token_file.as_deref().map(Token::read).transpose()?;
        match Server::open(address, token) {
            Err(error @ ServerError::NoToken { .. }) => bail!("{error}; --metrics-token-file gives one"),
            server => Ok(Some(server?)),
        }
    }
}

/// Lets a thread answer for an instance of a kind, away from the CPUs of lanes, until what this returns is dropped.
pub(crate) fn serve(
    server: Option<Server>,
    kind: &str,
    registry: &Registry,
    lanes: &[LaneView],
    fixed: &Fixed,
) -> anyhow::Result<Option<Service>> {
    let Some(server) = server else { return Ok(None) };
    let address = server.address();
    let cpus = lanes.iter().filter_map(|lane| lane.cpu).collect();
    let service = server.start(registry.clone(), fixed, Identity::new(kind), cpus);
    let service = service.context("metrics have no thread")?;
    messages::note(format_args!("metrics are at http://{address}/metrics"));
    messages::note(format_args!("a page that shows them is at http://{address}/"));
    Ok(Some(service))
}

/// The same for an instance that forwards.
pub(crate) fn of_assembly(
    server: Option<Server>,
    kind: &str,
    assembly: &Assembly,
) -> anyhow::Result<Option<Service>> {
    let lanes = assembly.lanes().views();
    serve(server, kind, assembly.registry(), lanes, &fixed(lanes, assembly.pool()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_on_the_loopback() {
        assert_eq!(address("9469").unwrap().to_string(), "127.0.0.1:9469");
        for text in ["192.0.2.1:9469", "[::1]:0"] {
            assert_eq!(address(text).unwrap().to_string(), text);
        }
        for wrong in ["", "x", "65536", "localhost:9469", "192.0.2.1", ":9469", "::1:9469:x"] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
    }
}
