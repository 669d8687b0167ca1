//! IPv4 forwarding, by prefixes and by flows, against a forwarder on DPDK.

use anyhow::Context;
use warmlane_sys::simd::{self, Level};

use super::{Comparison, Lanes};
use crate::compare::dpdk::Program;
use crate::compare::setting::{Setting, Sides};
use crate::compare::traffic;

pub(super) const COMPARISONS: &[Comparison] = &[
    Comparison {
        name: "l3-forward",
        unit: "cycles/packet",
        promise: 2.0,
        bound: "per packet one random line of a table larger than L2, and three lines streamed through L1 and L2 (capture, \
                buffer header, frame); where the table stays in L3, instructions over issue width, not lines over bandwidth",
        lanes: Lanes::One,
        prepare: l3_forward,
    },
    Comparison {
        name: "l3-forward-two-lanes",
        unit: "cycles/packet",
        // Two lanes do at least 1.9 times what one does.
        promise: 0.95,
        bound: "nothing is written that both lanes write: each has its queue, its counters and its cache of the pool's buffers; the table is read by both;                 what is left is the shared level, and what threads of one core share",
        lanes: Lanes::Two { lines: 0.0 },
        prepare: |setting| {
            let ours = setting.bench("l3-forward-two-lanes", &[])?;
            setting.against_ours(ours, &[("one lane alone", "l3-forward")])
        },
    },
    Comparison {
        name: "flows-forward",
        unit: "cycles/packet",
        promise: 1.5,
        bound: "per packet 1.15 random lines of the 4.6 MiB that hold the capture's flows, and three lines streamed through L1 and L2 \
                (capture, buffer header, frame); rte_hash reads two random lines and more",
        lanes: Lanes::One,
        prepare: flows_forward,
    },
];

/// Frames for both sides, each of a flow of its own.
fn capture(setting: &Setting, name: &str) -> anyhow::Result<String> {
    let capture = setting.directory.join(name);
    traffic::write_capture(&capture)?;
    // Commas and equals signs would end the value inside a device's arguments.
    let path = capture.to_str().filter(|path| !path.contains([',', '=']));
    Ok(path.context("the target directory's path must be UTF-8 without ',' and '='")?.to_owned())
}

/// With as many flows on both sides: the best of what l3fwd does for exact match, and of what `rte_hash` has besides.
fn flows_forward(setting: &Setting) -> anyhow::Result<Sides> {
    let capture = capture(setting, "flows-forward.pcap")?;
    let device = format!("--vdev=net_pcap0,rx_pcap={capture},infinite_rx=1");
    let (hops, stored) = (traffic::HOPS.to_string(), traffic::FRAMES.to_string());
    let table = |lookup, slots| {
        ["--lookup", lookup, "--flows-of", capture.as_str(), "--slots", slots, "--hops", hops.as_str()]
    };
    let copied =
        |lookup, slots| [&table(lookup, slots)[..], &["--stored", "1", "--capture", &capture]].concat();
    let peer = |what: &str, environment, arguments| Program {
        name: format!("l3_forward ({what})"),
        file: "l3_forward",
        mebibytes: 512,
        environment,
        arguments,
    };
    let device = [device.as_str()];
    let received = [&table("em", HALF_FULL)[..], &["--stored", &stored]].concat();
    let (bulk, half_full) = (copied("em", FULL), copied("em", HALF_FULL));
    let (data, data_half_full) = (copied("em-data", FULL), copied("em-data", HALF_FULL));
    let peers = [
        peer("rte_hash lookup_bulk, half full, net_pcap infinite_rx", &device, &received),
        peer("rte_hash lookup_bulk, frames from memory", &[], &bulk),
        peer("rte_hash lookup_bulk, half full, frames from memory", &[], &half_full),
        peer("rte_hash lookup_with_hash_bulk_data, frames from memory", &[], &data),
        peer("rte_hash lookup_with_hash_bulk_data, half full, frames from memory", &[], &data_half_full),
    ];
    setting.against_dpdk(setting.bench("flows-forward", &["--pcap", &capture])?, 256, &peers)
}

/// Slots of `rte_hash` for the million flows.
const FULL: &str = "1048576";
const HALF_FULL: &str = "2097152";

fn l3_forward(setting: &Setting) -> anyhow::Result<Sides> {
    let capture = &capture(setting, "l3-forward.pcap")?;
    let routes = setting.directory.join("l3-forward.routes");
    traffic::write_routes(&routes)?;
    let routes = routes.to_str().context("the target directory's path must be UTF-8")?;
    let (lookup, lookup_name) = match simd::detected() {
        Level::Avx512 => ("fib-avx512", "rte_fib AVX-512"),
        _ => ("fib-scalar", "rte_fib scalar"),
    };
    let device = format!("--vdev=net_pcap0,rx_pcap={capture},infinite_rx=1");
    let (hops, stored) = (traffic::HOPS.to_string(), traffic::FRAMES.to_string());
    let table = ["--lookup", lookup, "--routes", routes, "--hops", &hops];
    let received = [&table[..], &["--stored", &stored]].concat();
    // It keeps no packets beside those that it works on.
    let copied = [&table[..], &["--stored", "1", "--capture", capture]].concat();
    // The builder of the table takes most of the memory.
    let peer = |source: &str, environment, arguments| Program {
        name: format!("l3_forward ({lookup_name}, {source})"),
        file: "l3_forward",
        mebibytes: 768,
        environment,
        arguments,
    };
    // `net_pcap` passes each packet through a ring; a loop that copies frames from memory doesn't.
    let device = [device.as_str()];
    let peers = [peer("net_pcap infinite_rx", &device, &received), peer("frames from memory", &[], &copied)];
    setting.against_dpdk(setting.bench("l3-forward", &["--pcap", capture])?, 256, &peers)
}
