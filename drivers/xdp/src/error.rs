//! What can go wrong when a port over AF_XDP is opened.

use std::io;

use thiserror::Error;
use warmlane_bpf::BpfError;
use warmlane_driver_common::SystemError;

/// Why a port could not be opened.
#[derive(Debug, Error)]
pub enum XdpError {
    /// The interface is down.
    #[error("interface {name:?} is down: set it up with `ip link set {name} up`")]
    Down {
        /// The interface.
        name: String,
    },
    /// The interface is a bridge, a bond or a team.
    #[error(
        "interface {name:?} is a {kind}, which has no queues of its own: open its members, outside the {kind}"
    )]
    Aggregate {
        /// The interface.
        name: String,
        /// What it is.
        kind: String,
    },
    /// The interface belongs to a bridge, a bond or a team.
    #[error(
        "interface {name:?} is a member of {kind} {master:?}, which would no longer see its packets: take it out with `ip link set {name} nomaster`, or choose another"
    )]
    Enslaved {
        /// The interface.
        name: String,
        /// What it is a member of.
        master: String,
        /// What kind that is.
        kind: String,
    },
    /// Another XDP program is attached to the interface.
    #[error(
        "another XDP program (number {program}) is attached to interface {name:?}: see `bpftool net`; end the program that attached it, or take it off with `ip link set {name} xdp off`"
    )]
    ProgramThere {
        /// The interface.
        name: String,
        /// The program's number.
        program: u32,
    },
    /// A queue has a socket of another process.
    #[error(
        "queue {queue} of interface {name:?} already has an AF_XDP socket: end the other process that uses it (`ss --xdp` lists them)"
    )]
    QueueInUse {
        /// The interface.
        name: String,
        /// The queue.
        queue: u32,
    },
    /// There are fewer queues than lanes.
    #[error(
        "interface {name:?} has {available} queue(s), and {wanted} are needed, one for each lane: use fewer lanes, or more queues (`ethtool -L {name} combined {wanted}`; for a veth pair `ethtool -L {name} rx {wanted} tx {wanted}` on both ends)"
    )]
    Queues {
        /// The interface.
        name: String,
        /// Queues that were asked for.
        wanted: u32,
        /// Queues that it has.
        available: u32,
    },
    /// The kernel has addresses on an interface that everything was asked of.
    #[error(
        "interface {name:?} has addresses of the kernel's ({addresses}), which nobody could reach any more if all its packets came here: take only what is to be forwarded (steering=transit), or take the addresses off (`ip address flush dev {name}`), or insist (take-all)"
    )]
    CutsOff {
        /// The interface.
        name: String,
        /// The addresses.
        addresses: String,
    },
    /// The MTU does not fit a buffer, and the kernel makes no packets of several.
    #[error(
        "the MTU of {mtu} of interface {name:?} does not fit a buffer, which holds {maximum}, and {reason}: lower the MTU (`ip link set {name} mtu {maximum}`), or give the pool larger buffers"
    )]
    Mtu {
        /// The interface.
        name: String,
        /// Its MTU.
        mtu: u32,
        /// The most that fits.
        maximum: u32,
        /// Why several buffers don't help.
        reason: &'static str,
    },
    /// The number of ring entries is not possible.
    #[error("rings of {entries} entries are not possible: choose a power of two from 64 to 32768")]
    RingEntries {
        /// What was asked for.
        entries: u32,
    },
    /// The pool's buffers can't be shared with the kernel.
    #[error(
        "the buffers of pool {pool:?} can't be shared with the kernel, which needs at least 2048 bytes behind the first 64 of each, and at most a page: 2048 bytes of data are right for most"
    )]
    Buffers {
        /// The pool.
        pool: String,
    },
    /// The kernel was built without AF_XDP.
    #[error(
        "this kernel has no AF_XDP sockets (CONFIG_XDP_SOCKETS): use the packet driver instead, or another kernel"
    )]
    NoSockets {
        /// What the kernel said.
        source: io::Error,
    },
    /// The interface can't run an XDP program.
    #[error("interface {name:?} can't run the XDP program in {mode} mode ({source}): {remedy}")]
    NoXdp {
        /// The interface.
        name: String,
        /// The mode that was tried.
        mode: &'static str,
        /// What to do.
        remedy: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The interface can't do without copies.
    #[error(
        "interface {name:?} can't exchange packets without copies ({reason}): leave the choice open with mode=best, or say mode=copy"
    )]
    NoZeroCopy {
        /// The interface.
        name: String,
        /// Why not.
        reason: String,
    },
    /// The kernel did not accept the program.
    #[error("the kernel refuses the XDP program: {log}")]
    Program {
        /// What the verifier said.
        log: String,
    },
    /// Too little memory may be locked.
    #[error(
        "the kernel refuses to lock the pool's memory: raise the limit (`ulimit -l unlimited`, LimitMEMLOCK=infinity for a service), or give the program CAP_IPC_LOCK, or use fewer buffers"
    )]
    LockedMemory {
        /// What the kernel said.
        source: io::Error,
    },
    /// Maps or programs can't be made, or not be attached.
    #[error(transparent)]
    Bpf(BpfError),
    /// What can be wrong with any interface or system call.
    #[error(transparent)]
    System(#[from] SystemError),
}

impl From<BpfError> for XdpError {
    fn from(error: BpfError) -> Self {
        match error {
            BpfError::Permission { action, source } => Self::bpf(action)(source),
            BpfError::Refused { log, source, .. } => Self::Program { log: format!("{source}: {log}") },
            other => Self::Bpf(other),
        }
    }
}

/// What a port needs, as `setcap` spells it.
const SETCAP: &str = "cap_net_raw,cap_net_admin,cap_bpf";

impl XdpError {
    /// For tasks that `CAP_NET_RAW` allows.
    pub(crate) fn raw(action: String) -> impl FnOnce(io::Error) -> Self {
        Self::needs(action, "CAP_NET_RAW")
    }

    /// For tasks that `CAP_BPF` and, for programs of the network, `CAP_NET_ADMIN` allow.
    pub(crate) fn bpf(action: String) -> impl FnOnce(io::Error) -> Self {
        Self::needs(action, "CAP_BPF (before Linux 5.8 CAP_SYS_ADMIN) and CAP_NET_ADMIN")
    }

    fn needs(action: String, capabilities: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| SystemError::of(action, source, capabilities, SETCAP).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_permission_names_all_that_is_needed() {
        let denied = io::Error::from_raw_os_error(libc::EPERM);
        let text = XdpError::bpf("load an XDP program".to_owned())(denied).to_string();
        assert!(
            text.contains("CAP_BPF") && text.contains("CAP_NET_ADMIN") && text.contains(SETCAP),
            "{text}"
        );
    }
}
