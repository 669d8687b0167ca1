//! Checks how well a machine is set up for packet processing, and says what to change.
//!
//! Each check reads small files below a root directory and gives one [`Finding`] (one per interface, for those), so that tests can
//! describe any machine. Nothing is changed, and nothing needs privileges.

#![forbid(unsafe_code)]

mod finding;
mod kernel;
mod memory;
mod network;
mod privilege;
mod processor;
mod tree;
mod virtualisation;
mod xdp_drivers;

#[cfg(test)]
mod fixture;

pub use finding::{Finding, Status};

use std::io;
use std::path::Path;
use tree::Tree;
use warmlane_driver_common::Interface;

/// Examines this machine, as this process sees it.
pub fn examine() -> Vec<Finding> {
    examine_at(Path::new("/"), &Interface::list())
}

/// Examines the machine whose `/proc`, `/sys` and `/dev` lie below `root`, and which has these interfaces.
pub fn examine_at(root: &Path, interfaces: &io::Result<Vec<Interface>>) -> Vec<Finding> {
    let tree = Tree::new(root);
    let mut findings = vec![
        processor::usable_cpus(tree),
        processor::quota(tree),
        processor::weight(tree),
        processor::isolation(tree),
        processor::sibling_threads(tree),
        processor::governor(tree),
        processor::boost(tree),
        processor::cycle_counter(tree),
        processor::vectors(tree),
        memory::free(tree),
        memory::huge_pages_2m(tree),
        memory::huge_pages_1g(tree),
        memory::transparent(tree),
        memory::nodes(tree),
        memory::locked(tree),
        virtualisation::virtual_machine(tree),
        virtualisation::steal(tree),
        kernel::version(tree),
        kernel::af_xdp(tree),
        kernel::bpf_compiler(tree),
        privilege::capabilities(tree),
        privilege::tun(tree),
        privilege::file_size(tree),
        privilege::open_files(tree),
        privilege::devices(tree),
    ];
    findings.extend(network::interfaces(tree, interfaces));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_can_run() {
        let findings = examine();
        assert!(findings.iter().all(|finding| !finding.prevents_running), "{findings:#?}");
        assert!(findings.iter().any(|finding| finding.subject.as_deref() == Some("lo")));
        // What could be better comes with what to do, and with what that is worth.
        for finding in &findings {
            let needed = matches!(finding.status, Status::CouldBeBetter | Status::Problem);
            assert!(!needed || finding.remedy.is_some() && finding.worth.is_some(), "{finding:#?}");
        }
    }

    #[test]
    fn a_machine_that_tells_nothing_is_not_known() {
        let fixture = fixture::Fixture::new();
        let findings = examine_at(fixture.root(), &Ok(Vec::new()));
        for finding in &findings {
            assert!(!finding.prevents_running, "{finding:#?}");
            // Missing device nodes are a finding of their own.
            assert!(finding.status != Status::CouldBeBetter || finding.remedy.is_some(), "{finding:#?}");
        }
        let known = findings.iter().filter(|finding| finding.status != Status::NotKnown);
        let known: Vec<_> = known.map(|finding| finding.name).collect();
        assert_eq!(known, ["cpu-quota", "huge-pages-2m", "huge-pages-1g", "tun", "vfio"]);
    }
}
