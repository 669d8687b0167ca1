//! `warmlane forward` from file to file and between the kernel's hosts.

#![forbid(unsafe_code)]

/// What hosts must be able to do whichever driver is between them.
macro_rules! hosts_over {
    ($driver:expr) => {
        #[test]
        fn hosts_reach_each_other() {
            if let Some(lab) = warmlane_system_tests::Lab::new($driver, 1, 1500) {
                lab.check_hosts();
            }
        }

        #[test]
        fn a_smaller_link_is_found_out() {
            if let Some(lab) = warmlane_system_tests::Lab::new($driver, 1, 1400) {
                lab.check_smaller_link(1400);
            }
        }

        #[test]
        fn links_vanish() {
            if let Some(lab) = warmlane_system_tests::Lab::new($driver, 1, 1500) {
                lab.check_vanishing();
            }
        }
    };
}

mod errors;
mod flows;
mod geneve;
mod groups;
mod guest;
mod kinds;
mod namespaces;
mod offloads;
mod pcap;
mod pci;
mod pvp;
mod steering;
mod tap;
mod vhost;
mod vxlan;
mod xdp;
