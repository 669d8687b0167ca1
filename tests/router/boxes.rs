//! Boxes with the rules that people have: those of firewalld, of Docker, of a home gateway. Whatever the path, and though the rules come after the
//! router, just what the kernel lets through gets through.

use std::fs;

use warmlane_system_tests::{RouterLab, SHORT};
use warmlane_testkit::namespace::Namespace;
use warmlane_testkit::process::Process;

const PROGRAM: &str = concat!("python3 -B ", env!("CARGO_MANIFEST_DIR"), "/src/doors.py");

/// Where a connection may go: an address and a port, and whether the rules let it through.
type Door = (&'static str, u16, bool);

/// Somebody's rules.
struct Rules {
    whose: &'static str,
    load: &'static str,
    unload: &'static str,
    text: &'static str,
    /// What the router calls them.
    kind: &'static str,
    /// From the inside, which is the west, and from the outside.
    outwards: &'static [Door],
    inwards: &'static [Door],
}

/// As firewalld has them for an internal and an external zone: SSH to the outside is forbidden, and from there only HTTP may come in.
const FIREWALLD: &str = "
table inet firewalld {
    chain mangle_PREROUTING {
        type filter hook prerouting priority mangle + 10; policy accept;
        jump mangle_PREROUTING_ZONES
    }
    chain mangle_PREROUTING_ZONES {
        iifname w0 goto mangle_PRE_internal
        goto mangle_PRE_external
    }
    chain mangle_PRE_internal { }
    chain mangle_PRE_external { }
    chain nat_POSTROUTING {
        type nat hook postrouting priority srcnat + 10; policy accept;
        oifname e0 jump nat_POST_external
    }
    chain nat_POST_external {
        meta nfproto ipv4 oifname != lo masquerade
    }
    chain filter_PREROUTING {
        type filter hook prerouting priority filter + 10; policy accept;
        icmpv6 type { nd-router-advert, nd-neighbor-solicit } accept
        meta nfproto ipv6 fib saddr . mark . iif oif missing drop
    }
    chain filter_FORWARD {
        type filter hook forward priority filter + 10; policy accept;
        ct state { established, related } accept
        ct status dnat accept
        ct state invalid drop
        jump filter_FORWARD_ZONES
        reject with icmpx admin-prohibited
    }
    chain filter_FORWARD_ZONES {
        iifname w0 goto filter_FWD_internal
        goto filter_FWD_external
    }
    chain filter_FWD_internal {
        tcp dport 22 reject with icmpx port-unreachable
        oifname e0 accept
    }
    chain filter_FWD_external {
        tcp dport 80 ct state new accept
    }
}
";

/// As Docker has them for a network behind w0, with one of its ports published.
const DOCKER: &str = "
*nat
:PREROUTING ACCEPT
:POSTROUTING ACCEPT
:DOCKER -
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A POSTROUTING -s 192.0.2.0/24 ! -o w0 -j MASQUERADE
-A DOCKER -i w0 -j RETURN
-A DOCKER ! -i w0 -p tcp -m tcp --dport 8080 -j DNAT --to-destination 192.0.2.2:80
COMMIT
*filter
:FORWARD DROP
:DOCKER -
:DOCKER-ISOLATION -
:DOCKER-USER -
-A FORWARD -j DOCKER-USER
-A FORWARD -j DOCKER-ISOLATION
-A FORWARD -o w0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A FORWARD -o w0 -j DOCKER
-A FORWARD -i w0 ! -o w0 -j ACCEPT
-A DOCKER -d 192.0.2.2/32 ! -i w0 -o w0 -p tcp -m tcp --dport 80 -j ACCEPT
-A DOCKER-ISOLATION -j RETURN
-A DOCKER-USER -j RETURN
COMMIT
";

const DOCKER_OUTWARDS: &[Door] = &[("198.51.100.2", 22, true), ("2001:db8:2::2", 22, true)];
const DOCKER_INWARDS: &[Door] = &[
    ("198.51.100.1", 8080, true),
    ("192.0.2.2", 80, true),
    ("192.0.2.2", 22, false),
    // Of IPv6 it says nothing.
    ("2001:db8:1::2", 22, true),
];

/// A gateway that masquerades, and lets nobody in.
const GATEWAY: &str = "
table ip home {
    chain across {
        type filter hook forward priority filter; policy drop;
        ct state established,related accept
        iifname w0 accept
    }
    chain out {
        type nat hook postrouting priority srcnat;
        oifname e0 masquerade
    }
}
";

const ALL: &[Rules] = &[
    Rules {
        whose: "firewalld",
        load: "nft -f",
        unload: "nft flush ruleset",
        text: FIREWALLD,
        kind: "nftables",
        outwards: &[
            ("198.51.100.2", 80, true),
            ("198.51.100.2", 22, false),
            ("2001:db8:2::2", 80, true),
            ("2001:db8:2::2", 22, false),
        ],
        inwards: &[
            ("192.0.2.2", 80, true),
            ("192.0.2.2", 22, false),
            ("2001:db8:1::2", 80, true),
            ("2001:db8:1::2", 22, false),
        ],
    },
    Rules {
        whose: "Docker, by nftables",
        load: "iptables-nft-restore",
        unload: "nft flush ruleset",
        text: DOCKER,
        kind: "nftables",
        outwards: DOCKER_OUTWARDS,
        inwards: DOCKER_INWARDS,
    },
    Rules {
        whose: "Docker, by the older iptables",
        load: "iptables-legacy-restore",
        unload: "iptables-legacy-restore",
        text: DOCKER,
        kind: "iptables",
        outwards: DOCKER_OUTWARDS,
        inwards: DOCKER_INWARDS,
    },
    Rules {
        whose: "a home gateway",
        load: "nft -f",
        unload: "nft flush ruleset",
        text: GATEWAY,
        kind: "nftables",
        outwards: &[("198.51.100.2", 80, true), ("2001:db8:2::2", 80, true)],
        inwards: &[("192.0.2.2", 80, false), ("2001:db8:1::2", 80, true)],
    },
];

/// The older iptables' tables, empty.
const NOTHING: &str = "*nat\n:PREROUTING ACCEPT\nCOMMIT\n*filter\n:FORWARD ACCEPT\nCOMMIT\n";

fn load(lab: &RouterLab, rules: &Rules) {
    let file = lab.directory().join("rules");
    fs::write(&file, rules.text).expect("a writable directory");
    let line = format!("{} {}", rules.load, file.display());
    lab.router.run(&line).expect_success(&line);
}

fn unload(lab: &RouterLab, rules: &Rules) {
    let mut line = rules.unload.to_owned();
    if rules.unload.ends_with("restore") {
        let file = lab.directory().join("nothing");
        fs::write(&file, NOTHING).expect("a writable directory");
        line = format!("{line} {}", file.display());
    }
    lab.router.run(&line).expect_success(&line);
}

/// A host gets through just those doors that are open.
#[track_caller]
fn check_doors(host: &Namespace, doors: &[Door], what: &str) {
    let known = |is_open| if is_open { "open" } else { "closed" };
    let words: Vec<String> = doors
        .iter()
        .map(|(address, port, is_open)| format!("{address},{port},{}", known(*is_open)))
        .collect();
    let line = format!("{PROGRAM} try {}", words.join(" "));
    let finished = host.spawn(&line).finish(SHORT);
    let mut passed: Vec<&str> = finished.expect_success(&line).lines().collect();
    passed.sort_unstable();
    let open = doors.iter().filter(|(.., is_open)| *is_open);
    let mut open: Vec<String> = open.map(|(address, port, _)| format!("{address},{port}")).collect();
    open.sort_unstable();
    assert_eq!(passed, open, "{what}");
}

fn check_rules(lab: &RouterLab, rules: &Rules, by_whom: &str) {
    check_doors(&lab.west, rules.outwards, &format!("{by_whom}, outwards, {}", rules.whose));
    check_doors(&lab.east, rules.inwards, &format!("{by_whom}, inwards, {}", rules.whose));
}

/// What the running router has to say of such rules.
fn tells_of(lab: &RouterLab, rules: &Rules) -> bool {
    lab.ask("status")["warnings"].to_string().contains(&format!("rules of {} ", rules.kind))
}

#[test]
fn only_what_the_kernel_lets_through_gets_through() {
    let programs =
        ["nft", "ethtool", "python3", "iptables-nft-restore", "iptables-legacy-restore", "iptables-legacy"];
    let Some(lab) = RouterLab::new(1500, &programs) else { return };
    lab.hosts_take_redirected();
    let _servers: Vec<Process> = [&lab.west, &lab.east]
        .map(|host| {
            let mut server = host.spawn(&format!("{PROGRAM} serve 22 80"));
            server.wait_for("ready", SHORT);
            server
        })
        .into();
    for rules in ALL {
        load(&lab, rules);
        check_rules(&lab, rules, "the kernel");
        unload(&lab, rules);
    }
    for options in ["user", "tc --offload-established", "xdp --offload-established"] {
        let process = lab.start("w0 e0", &format!("--path {options}"));
        for rules in ALL {
            // Without rules all are open.
            check_doors(&lab.east, &[("192.0.2.2", 22, true), ("2001:db8:1::2", 22, true)], options);
            load(&lab, rules);
            RouterLab::wait_until("the rules are known", SHORT, || tells_of(&lab, rules));
            check_rules(&lab, rules, options);
            unload(&lab, rules);
            RouterLab::wait_until("they are gone", SHORT, || !tells_of(&lab, rules));
        }
        RouterLab::end(process);
    }
}
