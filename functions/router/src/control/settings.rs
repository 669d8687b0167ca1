//! What of a router can be set, and changed while it runs.

use warmlane_forward::control::SourceCheck;
use warmlane_forward::control::config::IcmpLimits;

use crate::by_interface::{ByInterface, InterfaceChoice};

/// What can be changed while packets flow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RouterSettings {
    /// ICMP errors that each lane may send.
    pub icmp: IcmpLimits,
    /// How packets' sources are checked.
    pub source_checks: SourceChecks,
    /// Forward also what would pass netfilter, IPsec or tc in the kernel.
    pub bypass_netfilter: bool,
    /// Forward established flows past netfilter, on the paths inside the kernel.
    pub offload_established: bool,
}

/// How packets' sources are checked on which interface.
pub type SourceChecks = ByInterface<SourceCheck>;

impl InterfaceChoice for SourceCheck {
    const SETTING: &'static str = "urpf";
}
