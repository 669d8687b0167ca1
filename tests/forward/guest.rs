//! Tests of what the kernel here may lack, in a guest that boots Debian's.

use warmlane_system_tests::{GuestTests, check_in_a_guest};

#[test]
fn geneve_works_with_an_older_kernel_that_has_it() {
    let tests = GuestTests { modules: "veth tun geneve", tests: "geneve::in_a_guest", count: 3 };
    check_in_a_guest(&["python3"], &[tests]);
}
