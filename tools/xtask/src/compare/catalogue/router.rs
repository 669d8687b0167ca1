//! The router between two virtual links, against the kernel and against forwarders on DPDK; and what a part of its work takes
//! there, which bounds that of any router behind AF_XDP.

use super::{Comparison, Lanes};

const OURS: &str = "warmlane";
/// What is promised against the kernel's own forwarding. A row that bounds it has the same promise: where that is not kept,
/// no router can keep it.
const AGAINST_KERNEL: f64 = 1.4;

const KERNEL: &str = "the kernel";
const KERNEL_ON_OUR_CPU: &str = "the kernel, by receive packet steering on the router's CPU";
const TESTPMD: &str = "testpmd mac, two net_af_xdp";
const L3_FORWARD: &str = "l3_forward, two net_af_xdp";

pub(super) const COMPARISONS: &[Comparison] = &[
    Comparison {
        name: "router-kernel",
        unit: "cycles/packet",
        promise: AGAINST_KERNEL,
        bound: "the sender's CPU, which does the kernel's work of reception, too: an AF_XDP socket's costs it more than the \
                kernel's whole forwarding",
        lanes: Lanes::Fed,
        prepare: |setting| {
            setting.router(OURS, "forwarding", &[(KERNEL, "kernel"), (KERNEL_ON_OUR_CPU, "kernel-rps")])
        },
    },
    Comparison {
        name: "router-dpdk",
        unit: "cycles/packet",
        promise: 1.1,
        bound: "the sender's CPU, which does the kernel's work of reception, too, and it is the same for all AF_XDP sockets",
        lanes: Lanes::Fed,
        prepare: |setting| {
            setting.router(OURS, "forwarding", &[(TESTPMD, "testpmd"), (L3_FORWARD, "l3_forward")])
        },
    },
    Comparison {
        name: "router-user-time",
        unit: "cycles/packet",
        promise: 1.0 / 0.7,
        bound: "per packet two lines that the sender's CPU wrote (headers, a part of a descriptor); testpmd looks nothing up",
        lanes: Lanes::Fed,
        prepare: |setting| {
            setting.router(OURS, "saturated", &[(TESTPMD, "testpmd"), (L3_FORWARD, "l3_forward")])
        },
    },
    Comparison {
        name: "router-generic",
        unit: "cycles/packet",
        promise: 1.1,
        bound: "the sender's CPU, which does the kernel's work of reception, too, here without interrupt work of the driver's own",
        lanes: Lanes::Fed,
        prepare: |setting| {
            setting.router("warmlane-generic", "forwarding", &[(KERNEL, "kernel"), (TESTPMD, "testpmd")])
        },
    },
    Comparison {
        name: "router-bound-drop",
        unit: "cycles/packet",
        promise: AGAINST_KERNEL,
        bound: "not a router, but what the sender is left with if an XDP program throws all away: the least that XDP takes there",
        lanes: Lanes::Fed,
        prepare: |setting| setting.router("drop", "forwarding", &[(KERNEL, "kernel")]),
    },
    Comparison {
        name: "router-bound-receive",
        unit: "cycles/packet",
        promise: AGAINST_KERNEL,
        bound: "not a router, but what ours can be offered on a virtual link if it drops all that comes",
        lanes: Lanes::Fed,
        prepare: |setting| setting.router("receive", "forwarding", &[(KERNEL, "kernel")]),
    },
    Comparison {
        name: "router-bound-send",
        unit: "cycles/packet",
        promise: AGAINST_KERNEL,
        bound: "not a router, but what one CPU can send over AF_XDP to a virtual link, if it does nothing else",
        lanes: Lanes::Fed,
        prepare: |setting| setting.router("send", "forwarding", &[(KERNEL, "kernel")]),
    },
];
