//! The router between two virtual links, against the kernel and against forwarders on DPDK; and what a part of its work takes
//! there, which bounds that of any router behind AF_XDP.

use super::{Comparison, Lanes, Setting};

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
        name: "router-kernel-flooded",
        unit: "cycles/packet",
        promise: AGAINST_KERNEL,
        bound: "what AF_XDP takes in the kernel to send with copies (see router-bound-send); the kernel's forwarding is the other \
                CPU's",
        lanes: Lanes::Fed,
        prepare: |setting| {
            setting.router(OURS, "flooded", &[(KERNEL, "kernel"), (KERNEL_ON_OUR_CPU, "kernel-rps")])
        },
    },
    Comparison {
        name: "router-dpdk",
        unit: "cycles/packet",
        promise: 1.1,
        bound: "what AF_XDP takes in the kernel to send with copies, nine tenths of the lane's time and the same for all (see \
                router-user-time for the rest)",
        lanes: Lanes::Fed,
        prepare: |setting| {
            setting.router(OURS, "flooded", &[(TESTPMD, "testpmd"), (L3_FORWARD, "l3_forward")])
        },
    },
    Comparison {
        name: "router-user-time",
        unit: "cycles/packet",
        promise: 1.0 / 0.7,
        bound: "of each packet a line that the other CPU wrote; testpmd, the better peer, looks nothing up",
        lanes: Lanes::Fed,
        prepare: |setting| {
            setting.router(OURS, "saturated", &[(TESTPMD, "testpmd"), (L3_FORWARD, "l3_forward")])
        },
    },
    Comparison {
        name: "router-user-time-l3",
        unit: "cycles/packet",
        promise: 1.0 / 0.7,
        bound: "as that of router-user-time, against the peer that does what we do: look up, rewrite, count down",
        lanes: Lanes::Fed,
        prepare: |setting| setting.router(OURS, "saturated", &[(L3_FORWARD, "l3_forward")]),
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
        name: "router-xdp",
        unit: "cycles/packet",
        promise: 1.3,
        bound: "a virtual link's reception and the driver's program, on the CPU of the sender; the kernel makes a socket buffer besides",
        lanes: Lanes::Fed,
        prepare: |setting| {
            setting.router(
                "warmlane-xdp",
                "flooded",
                &[(KERNEL, "kernel"), (KERNEL_ON_OUR_CPU, "kernel-rps")],
            )
        },
    },
    Comparison {
        name: "router-tc",
        unit: "cycles/packet",
        promise: 1.0,
        bound: "the socket buffer that is made before the program runs, and what sends it: both the kernel's, the same for both",
        lanes: Lanes::Fed,
        prepare: |setting| {
            setting.router("warmlane-tc", "flooded", &[(KERNEL, "kernel"), (KERNEL_ON_OUR_CPU, "kernel-rps")])
        },
    },
    Comparison {
        name: "router-xdp-scattered",
        unit: "cycles/packet",
        promise: 1.3,
        bound: "as that of router-xdp, and a lookup in the kernel's table for each packet: no two of a moment are for the same destination",
        lanes: Lanes::Fed,
        prepare: |setting| setting.router("warmlane-xdp", "scattered", &[(KERNEL, "kernel")]),
    },
    Comparison {
        name: "router-tc-scattered",
        unit: "cycles/packet",
        promise: 1.0,
        bound: "as that of router-tc, and a lookup in the kernel's table for each packet, which the kernel does, too",
        lanes: Lanes::Fed,
        prepare: |setting| setting.router("warmlane-tc", "scattered", &[(KERNEL, "kernel")]),
    },
    Comparison {
        name: "router-established",
        unit: "cycles/packet",
        promise: 1.3,
        bound: "as that of router-xdp, beside the looks at the flow and the adjusted checksums; the kernel's conntrack and NAT besides",
        lanes: Lanes::Fed,
        prepare: |setting| setting.router("warmlane-xdp", "established", &[(KERNEL, "kernel")]),
    },
    Comparison {
        name: "router-established-1000",
        unit: "cycles/packet",
        promise: 2.0,
        bound: "as that of router-established: how many rules there are makes no difference to ours",
        lanes: Lanes::Fed,
        prepare: |setting| setting.router("warmlane-xdp", "established-1000", &[(KERNEL, "kernel")]),
    },
    Comparison {
        name: "router-established-tc",
        unit: "cycles/packet",
        promise: 1.3,
        bound: "the socket buffer, as for router-tc; the kernel's conntrack and NAT besides",
        lanes: Lanes::Fed,
        prepare: |setting| setting.router("warmlane-tc", "established", &[(KERNEL, "kernel")]),
    },
    Comparison {
        name: "router-tc-tcp",
        unit: "cycles/KiB",
        promise: 1.0,
        bound: "the ends' TCP: a router forwards some 20,000 packets of 64 KiB a second",
        lanes: Lanes::Fed,
        prepare: |setting| setting.router_tcp("tc", "through"),
    },
    Comparison {
        name: "router-tc-tcp-off",
        unit: "cycles/KiB",
        promise: 1.1,
        bound: "the ends' TCP and its checksums, beside which forwarding is the smaller part",
        lanes: Lanes::Fed,
        prepare: |setting| setting.router_tcp("tc", "through-off"),
    },
    Comparison {
        name: "router-local-tcp",
        unit: "cycles/KiB",
        promise: 0.95,
        bound: "the kernel's own way: the program looks the address up and passes the packet on",
        lanes: Lanes::Fed,
        prepare: |setting| setting.router_tcp("best", "local"),
    },
    Comparison {
        name: "router-best-tcp-bridge",
        unit: "cycles/KiB",
        promise: 1.0,
        bound: "as that of router-tc-tcp; what the bridge does with a packet is the kernel's, the same for both",
        lanes: Lanes::Fed,
        prepare: |setting| setting.router_tcp("best", "bridge"),
    },
    Comparison {
        name: "router-best-tcp-macvlan",
        unit: "cycles/KiB",
        promise: 1.0,
        bound: "as that of router-tc-tcp; what the macvlan does with a packet is the kernel's, the same for both",
        lanes: Lanes::Fed,
        prepare: |setting| setting.router_tcp("best", "macvlan"),
    },
    Comparison {
        name: "router-best-tcp-vxlan",
        unit: "cycles/KiB",
        promise: 1.0,
        bound: "the ends' TCP, and the kernel's encapsulation, the same for both",
        lanes: Lanes::Fed,
        prepare: |setting| setting.router_tcp("best", "vxlan"),
    },
    Comparison {
        name: "tap-tcp",
        unit: "cycles/KiB",
        promise: 3.0,
        bound: "the ends' TCP, and two copies between the kernel and ours; without offloads each frame is a system call at both devices",
        lanes: Lanes::Fed,
        prepare: |setting| setting.tcp("tap", "through", ("the same without offloads", "tap-off")),
    },
    Comparison {
        name: "tap-tcp-kernel",
        unit: "cycles/KiB",
        promise: 0.8,
        bound: "the ends' TCP, and two copies between the kernel and ours, where the kernel's own forwarding between links copies nothing",
        lanes: Lanes::Fed,
        prepare: |setting| setting.tcp("tap", "through", ("the kernel, between virtual links", "kernel")),
    },
    Comparison {
        name: "router-lookup",
        unit: "cycles/lookup",
        promise: 1.0,
        bound: "not a router, but what it is to go by inside the kernel: the kernel's own table, which follows rules, groups and neighbours besides, \
                against a map that has the same routes",
        lanes: Lanes::One,
        prepare: Setting::router_lookup,
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
