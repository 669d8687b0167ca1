//! What the examples that build on `forwarder` have in common with it: ports, routes, and a run of ten seconds at most.

use std::sync::Arc;
use std::time::Duration;
use warmlane::assembly::ports::Opener;
use warmlane::assembly::{Assembly, Outcome, RunLimits, Signals};
use warmlane::drivers::memory::{null, replay};
use warmlane::functions::forward::control::Routes;
use warmlane::prelude::*;
use warmlane::wire::{Frame, Ipv4Fields, MacAddress};

/// The ports that the command line names, as in `west=xdp:eth0`. Without any, one that brings generated frames, and one that
/// drops what is sent to it. A quarter of the frames come from the benchmarking network of RFC 2544, and half of all are
/// near the end of their life.
pub(crate) fn ports(opener: &mut Opener<'_>, pool: &Pool) -> anyhow::Result<Vec<Port>> {
    let named = std::env::args().skip(1).filter(|text| text.contains('='));
    let opened = named.map(|text| Ok(opener.open(&text.parse()?, None)?));
    let opened = opened.collect::<anyhow::Result<Vec<_>>>()?;
    if !opened.is_empty() {
        return Ok(opened);
    }
    let mut frames = replay::Frames::new();
    for host in 0..200 {
        let source = if host < 50 { [198, 18, 0, host] } else { [192, 0, 2, host] };
        let fields = Ipv4Fields::new(source.into(), [203, 0, 113, host].into());
        let fields = Ipv4Fields { ttl: 2 + host % 2, ..fields };
        let frame = Frame::new().ethernet(MacAddress([2, 0, 0, 0, 0, 1]), MacAddress([4; 6])).ipv4(fields);
        frames.push(&frame.udp(1, 2).to_vec()?)?;
    }
    let config = replay::ReplayConfig { rounds: Some(1_000), ..Default::default() };
    Ok(vec![replay::open("west", &Arc::new(frames), pool, config)?, null::sink("east", 1)])
}

/// All by the second port.
pub(crate) fn routes() -> anyhow::Result<Arc<Routes>> {
    let routes = Routes::builder()
        .port("02:00:00:00:00:01", ["192.0.2.1/24"])
        .port("02:00:00:00:00:02", ["198.51.100.1/24"])
        .neighbour("198.51.100.2", "02:00:00:00:01:02", 1)
        .route("0.0.0.0/0", "198.51.100.2");
    Ok(Arc::new(routes.build()?))
}

/// Runs until nothing more comes, or for ten seconds, and prints the report.
pub(crate) fn run(assembly: Assembly) -> anyhow::Result<Outcome> {
    let limits = RunLimits { duration: Some(Duration::from_secs(10)), count: None };
    assembly.run_quietly(limits, &Signals::catch()?);
    let outcome = assembly.finish();
    print!("{}", outcome.report.text());
    Ok(outcome)
}
