//! The router between two virtual links, against the kernel and against forwarders on DPDK.

use super::{Comparison, Lanes};

const KERNEL: &str = "the kernel";
const KERNEL_ON_OUR_CPU: &str = "the kernel, by receive packet steering on the router's CPU";
const TESTPMD: &str = "testpmd mac, two net_af_xdp";
const L3_FORWARD: &str = "l3_forward, two net_af_xdp";

pub(super) const COMPARISONS: &[Comparison] = &[
    Comparison {
        name: "router-kernel",
        unit: "cycles/packet",
        promise: 1.4,
        bound: "the sender's CPU, which does the kernel's work of reception, too: an AF_XDP socket's costs it more than the \
                kernel's whole forwarding",
        lanes: Lanes::Fed,
        prepare: |setting| {
            setting.router("forwarding", &[(KERNEL, "kernel"), (KERNEL_ON_OUR_CPU, "kernel-rps")])
        },
    },
    Comparison {
        name: "router-dpdk",
        unit: "cycles/packet",
        promise: 1.1,
        bound: "the sender's CPU, which does the kernel's work of reception, too, and it is the same for all AF_XDP sockets",
        lanes: Lanes::Fed,
        prepare: |setting| setting.router("forwarding", &[(TESTPMD, "testpmd"), (L3_FORWARD, "l3_forward")]),
    },
    Comparison {
        name: "router-user-time",
        unit: "cycles/packet",
        promise: 1.0 / 0.7,
        bound: "per packet two lines that the sender's CPU wrote (headers, a part of a descriptor); testpmd looks nothing up",
        lanes: Lanes::Fed,
        prepare: |setting| setting.router("saturated", &[(TESTPMD, "testpmd"), (L3_FORWARD, "l3_forward")]),
    },
];
