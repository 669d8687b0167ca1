//! Tests of what the kernel here may lack, in guests that boot Debian's.

use warmlane_system_tests::{GuestTests, check_in_a_guest};

/// Debian's 6.1 has no links for the tc hook, doesn't tell what drivers can do, and its control groups are those of version 2. That conntrack is missing
/// is a test, too; so its modules come last.
const GROUPS: [GuestTests; 5] = [
    GuestTests {
        modules: "tun",
        tests: "idle::a_group_that_vanishes idle::a_machine_without_cache_shares idle::a_quota_is_told",
        count: 3,
    },
    GuestTests {
        modules: "veth bridge sch_ingress cls_bpf",
        tests: "paths::hosts_reach paths::killed paths::routes paths::what_a_kill paths::what_can_not_be_is \
                established::without_conntrack",
        count: 6,
    },
    GuestTests {
        modules: "8021q nf_tables",
        tests: "like_the_kernel::packets_are_treated_alike_on_path_tc \
                like_the_kernel::packets_are_treated_alike_on_path_xdp",
        count: 2,
    },
    GuestTests {
        modules: "vrf bonding macvlan vxlan ip_gre ipip wireguard sch_fq",
        tests: "devices:: egress:: fail_closed::fair_queueing --skip taps",
        count: 15,
    },
    GuestTests {
        modules: "nf_conntrack_netlink nf_nat nft_chain_nat nft_masq nft_ct",
        tests: "established::streams",
        count: 1,
    },
];

#[test]
fn tests_pass_with_an_older_kernel_and_all_its_modules() {
    check_in_a_guest(&["nft", "python3", "setpriv", "tc", "wg"], &GROUPS);
}

#[test]
fn tunnels_without_frames_work_with_an_older_kernel_that_has_them() {
    let tests = GuestTests { modules: "veth tun ip_gre ipip sit", tests: "ip_tunnels::", count: 4 };
    check_in_a_guest(&["python3"], &[tests]);
}
