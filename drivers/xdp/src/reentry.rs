//! Packets that come in by one interface of ours go on as if they had come in by another.

use crate::bpf::Redirection;
use crate::error::XdpError;
use warmlane_driver_common::{Interface, InterfaceName};

/// Gives the kernel packets back that were taken from an interface: what is written to `from`, a TAP interface, comes in by
/// `into`. The kernel's rules, filters, VLANs, VRFs and source checks see it as they would have seen it there.
///
/// A program at the entrance of `from` does it (`BPF_TCX_INGRESS`, Linux 6.6). It ends when this is dropped, or when the
/// process ends, however it does.
#[derive(Debug)]
pub struct Reentry {
    _redirection: Redirection,
}

impl Reentry {
    /// Leads packets that come in by the interface `from` into the interface `into`. Needs `CAP_BPF` and `CAP_NET_ADMIN`.
    ///
    /// Not to be used with an `into` whose XDP program is in generic mode: that would take the packets again.
    ///
    /// # Errors
    /// [`XdpError`]: an interface is missing, or the kernel is too old, or refuses.
    pub fn new(from: &str, into: &str) -> Result<Self, XdpError> {
        let find = |name| Interface::find(&InterfaceName::new(name)?);
        find(from)?;
        let into = find(into)?;
        Ok(Self { _redirection: Redirection::new(from, into.index)? })
    }
}
