//! IPv4 forwarding against a forwarder on DPDK.

use anyhow::Context;
use warmlane_sys::simd::{self, Level};

use super::{Comparison, Lanes};
use crate::compare::dpdk::Program;
use crate::compare::setting::{Setting, Sides};
use crate::compare::traffic;

pub(super) const COMPARISONS: &[Comparison] = &[Comparison {
    name: "l3-forward",
    unit: "cycles/packet",
    promise: 2.0,
    bound: "per packet one random line of a table larger than L2, and three lines streamed through L1 and L2 (capture, \
            buffer header, frame); where the table stays in L3, instructions over issue width, not lines over bandwidth",
    lanes: Lanes::One,
    prepare: l3_forward,
}];

fn l3_forward(setting: &Setting) -> anyhow::Result<Sides> {
    let capture = setting.directory.join("l3-forward.pcap");
    let routes = setting.directory.join("l3-forward.routes");
    traffic::write_capture(&capture)?;
    traffic::write_routes(&routes)?;
    // Commas and equals signs would end the value inside a device's arguments.
    let capture = capture.to_str().filter(|path| !path.contains([',', '=']));
    let capture = capture.context("the target directory's path must be UTF-8 without ',' and '='")?;
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
